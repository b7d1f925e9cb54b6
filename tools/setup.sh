#!/bin/sh
# Readies the checkout: the compiler's tools, the virtual environment .venv/, and in it what
# tools/requirements/<name>.txt lists for each name given. The name `llvm` stands for LLVM and MLIR,
# which native code is made with: where they cannot be had, it says so and goes on without them.
# What is there already costs no time.
#
#   tools/setup.sh numpy torch
#
# PYTHON names the interpreter .venv/ is made with; REQUIREMENTS another directory of lists.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
requirements=${REQUIREMENTS:-tools/requirements}
stamps=.venv/.installed

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

# Whether version $1 is at least $2.
at_least() {
    printf '%s\n%s\n' "$2" "$1" | sort -t. -k1,1n -k2,2n -C
}

check_cargo() {
    version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || true
    [ -n "$version" ] || fail "cargo is missing or does not run. Mithril is built with Rust 1.87 or newer: install it with rustup, then run this again."
    at_least "$version" 1.87 || fail "cargo $version is too old. Mithril is built with Rust 1.87 or newer: 'rustup update' brings it."
}

check_python() {
    command -v "$python" >/dev/null || fail "$python is missing. Mithril is built with Python 3.11 or newer; PYTHON=<path> names another."
    version=$("$python" -c 'import platform; print(platform.python_version())')
    at_least "$version" 3.11 || fail "$python is Python $version, too old. Mithril is built with Python 3.11 or newer; PYTHON=<path> names another."
}

# Installs Debian packages, through sudo where not root.
apt() {
    root=
    if [ "$(id -u)" != 0 ]; then
        root="sudo -n"
        [ ! -t 0 ] || root=sudo
    fi
    how="install it and run this again: apt-get install $*"
    command -v apt-get >/dev/null || fail "something is missing that Debian has in: $*. There is no apt-get here: install it and run this again."
    [ -z "$root" ] || command -v sudo >/dev/null || fail "something is missing, and this is neither root nor is there sudo; $how"
    say "installing $*"
    { $root apt-get -q update && $root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
        --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"; } >&2 || fail "apt-get failed; $how"
}

# Whether the C compiler makes programs: Rust links with it.
compiles() {
    echo 'int main(void) { return 0; }' | cc -x c - -o /dev/null 2>/dev/null
}

install_tools() {
    missing=
    compiles || missing="gcc libc6-dev"
    runs "$python" ensurepip || missing="$missing python3-venv"
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086
    apt $missing
    compiles || fail "cc does not compile, even after apt-get install $missing"
    runs "$python" ensurepip || fail "$python cannot make virtual environments; PYTHON=<path> names another."
}

# Whether what the crate mithril-native is built with is there.
has_llvm() {
    for file in bin/llvm-config bin/FileCheck lib/libMLIRCAPIIR.a lib/libMLIR.so lib/libclang-22.so.1; do
        [ -e "/usr/lib/llvm-22/$file" ] || return 1
    done
    [ -e /usr/include/zstd.h ] && [ -e /usr/include/zlib.h ] && command -v c++ >/dev/null
}

install_llvm() {
    has_llvm && return
    [ "$(uname -sm)" = "Linux x86_64" ] || { say "native code is made on x86-64 Linux alone: going on without"; return; }
    # A subshell: what fails in it ends it, not this script.
    (apt llvm-22-dev libmlir-22-dev libpolly-22-dev llvm-22-tools libclang1-22 \
        libclang-common-22-dev libzstd-dev zlib1g-dev g++) || true
    has_llvm || say "without LLVM 22 there is no native code: CpuBackend will say so, all else works"
}

has_clang() {
    command -v clang >/dev/null || [ -x /usr/lib/llvm-22/bin/clang ]
}

# The newest GCC that Debian's archive has, beside the one that is cc.
install_newer_gcc() {
    at_least "$(cc -dumpversion 2>/dev/null || echo 0)" 13 && return
    for version in 16 15 14 13; do
        ! command -v "gcc-$version" >/dev/null || return 0
    done
    for version in 16 15 14 13; do
        if apt-cache show "gcc-$version" >/dev/null 2>&1; then
            (apt "gcc-$version") || say "going on without gcc-$version"
            return 0
        fi
    done
    say "no GCC newer than $(cc -dumpversion) can be installed here: C is not tested by one"
}

# A compiler for arm64, and what runs its programs.
has_arm64() {
    command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null
}

install_arm64() {
    has_arm64 || (apt gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user) || true
    has_arm64 || say "going on without arm64: C is not tested for it"
}

# Whether a Python runs and has a module.
runs() {
    "$1" -c "import $2" 2>/dev/null
}

# Makes .venv/, or takes the one there is: it may hold frameworks that took long to fetch.
make_venv() {
    ! runs .venv/bin/python sys || python=.venv/bin/python
    check_python
    install_tools
    rm -rf "$stamps"
    if ! runs .venv/bin/python sys; then
        say "making .venv with $("$python" --version)"
        "$python" -m venv --clear .venv
    elif ! runs .venv/bin/python pip; then
        .venv/bin/python -m ensurepip >&2
    fi
    mkdir "$stamps"
}

# Installs the lists whose text is not what was last installed.
install_lists() {
    lists=
    for name in "$@"; do
        list=$requirements/$name.txt
        cmp -s "$list" "$stamps/$name" || lists="$lists $name"
    done
    [ -n "$lists" ] || return 0
    say "installing into .venv:$lists$(case "$lists" in *torch*) echo ' (torch is some 5.6 GB)' ;; esac)"
    arguments=
    for name in $lists; do
        arguments="$arguments -r $requirements/$name.txt"
    done
    # shellcheck disable=SC2086
    .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --retries 10 \
        -c "$requirements/numpy.txt" $arguments >&2
    for name in $lists; do
        cp "$requirements/$name.txt" "$stamps/$name"
    done
}

exec 9<tools/setup.sh
! command -v flock >/dev/null || flock 9
check_cargo
{ [ -d "$stamps" ] && runs .venv/bin/python pip; } || make_venv
# torch.compile, which the tests run, compiles C++.
case " $* " in *" torch test "* | *" torch "*" test "*) command -v c++ >/dev/null || apt g++ ;; esac
case " $* " in *" llvm "*) install_llvm ;; esac
# tinygrad compiles with it.
case " $* " in *" tinygrad "*) has_clang || (apt clang-22) || say "without clang, tinygrad has no CPU" ;; esac
# C is tested with it, too.
case " $* " in *" test "*) has_clang || (apt clang-22 libclang-rt-22-dev) || say "going on without clang"; install_newer_gcc; install_arm64 ;; esac
install_lists $(printf '%s\n' "$@" | grep -vx llvm)
