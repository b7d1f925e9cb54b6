#!/bin/sh
# Tests native code at each level of processor that this machine has below its own: a sample of the
# tests, where each runs at one of the levels, or all of them where MITHRIL_TESTS is `all`
# (tests/python/levels.py).
set -e
# One level was asked for, and was tested.
[ -z "$MITHRIL_CPU" ] || exit 0
[ -x /usr/lib/llvm-22/bin/llvm-config ] || exit 0
told() { .venv/bin/mithril --version | sed -n "s/^$1: //p"; }
own=$(told processor)
# The last one is the machine's own.
levels=$(told levels | sed 's/,\{0,1\}[^,]*$//; s/,/ /g')

# The names of the test programs in Rust that run at the level of this number.
programs() {
    number=0
    for file in codegen/native/tests/*.rs codegen/native/tests/*/main.rs; do
        number=$((number + 1))
        [ "$MITHRIL_TESTS" = all ] || [ $((number % $2)) = "$1" ] || continue
        file=${file%/main.rs}
        basename "${file%.rs}"
    done
}

index=0
for level in $levels; do
    export MITHRIL_CPU="$level"
    # Tests in Rust take levels alone. Sweeps of contractions test all levels in one run, and other
    # architectures have none of them. Without `--workspace` crates would be built again, with other
    # features.
    # shellcheck disable=SC2046
    [ "${level%%+*}" = "${own%%+*}" ] ||
        cargo test --release --workspace \
            $(programs "$index" "$(echo "$levels" | wc -w)" | sed 's/^/--test /') -- \
            --skip sweep_of --skip few_rows_and_an_open_axis --skip arm64_objects
    .venv/bin/python -m pytest "$@"
    index=$((index + 1))
done
