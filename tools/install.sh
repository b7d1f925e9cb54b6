#!/bin/sh
# Builds Mithril and installs it into .venv/: the package (its Python files stay where they are, so
# that a change needs no second run) and the commands. Nothing is rewritten that has not changed.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}/release

# Replaces a file in one step, so that nobody sees half of one and a program that runs keeps its own.
place() {
    cmp -s "$1" "$2" && return
    cp "$1" "$2.$$"
    mv -f "$2.$$" "$2"
}

# The code generator is a library of its own, built where LLVM is. One build has crates made once.
native=frontend/python/mithril/_native.so
if [ -x /usr/lib/llvm-22/bin/llvm-config ]; then
    cargo build --release --package mithril-tools --package mithril-python --package mithril-native \
        --bins --lib
    place "$target/libmithril_native.so" "$native"
    ln -sfn "$PWD/$native" .venv/lib/libmithril_native.so
else
    cargo build --release --package mithril-tools --package mithril-python --bins --lib
    rm -f "$native" .venv/lib/libmithril_native.so
    echo "install: LLVM 22 is missing: built without native code" >&2
fi
for command in mithril mithril-opt; do
    place "$target/$command" ".venv/bin/$command"
done
case $(uname -s) in
    Darwin) place "$target/libmithril_python.dylib" frontend/python/mithril/_core.abi3.so ;;
    *) place "$target/libmithril_python.so" frontend/python/mithril/_core.abi3.so ;;
esac
for site in .venv/lib/python3.*/site-packages; do
    [ -e "$site/mithril.pth" ] || echo "$PWD/frontend/python" >"$site/mithril.pth"
done
