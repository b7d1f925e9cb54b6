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

# The names of the test programs in Rust that run at level $1 of $2.
programs() {
    number=0
    for file in codegen/native/tests/*.rs codegen/native/tests/*/main.rs; do
        number=$((number + 1))
        [ "$MITHRIL_TESTS" = all ] || [ $((number % $2)) = "$1" ] || continue
        file=${file%/main.rs}
        basename "${file%.rs}"
    done
}

# Tests in Rust take levels alone.
other=
for level in $levels; do
    [ "${level%%+*}" = "${own%%+*}" ] || other="$other $level"
done

index=0
for level in $levels; do
    export MITHRIL_CPU="$level"
    # Sweeps of contractions test all levels in one run, and other architectures have none of them.
    # Without `--workspace` crates would be built again, with other features.
    if [ "${level%%+*}" != "${own%%+*}" ]; then
        # shellcheck disable=SC2046
        cargo test --release --workspace \
            $(programs "$index" "$(echo "$other" | wc -w)" | sed 's/^/--test /') -- \
            --skip sweep_of --skip few_rows_and_an_open_axis --skip arm64_objects
        index=$((index + 1))
    fi
    .venv/bin/python -m pytest "$@"
done
