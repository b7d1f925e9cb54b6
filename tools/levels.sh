#!/bin/sh
# Tests native code at each level of processor that this machine has below its own: a sample of the
# tests, or all of them where MITHRIL_TESTS is `all` (tests/python/levels.py).
set -e
# One level was asked for, and was tested.
[ -z "$MITHRIL_CPU" ] || exit 0
[ -x /usr/lib/llvm-22/bin/llvm-config ] || exit 0
told() { .venv/bin/mithril --version | sed -n "s/^$1: //p"; }
own=$(told processor)
# The last one is the machine's own.
for level in $(told levels | sed 's/,\{0,1\}[^,]*$//; s/,/ /g'); do
    export MITHRIL_CPU="$level"
    # Tests in Rust take levels alone. Sweeps of contractions test all levels in one run, and other
    # architectures have none of them.
    [ "${level%%+*}" = "${own%%+*}" ] ||
        cargo test --release -p mithril-native -- --skip sweep_of \
            --skip few_rows_and_an_open_axis --skip arm64_objects
    .venv/bin/python -m pytest "$@"
done
