#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what Debian 12 or Ubuntu 24.04 lacks to build and run mapfold, or says what that is.
# Usage: install-deps.sh build|demo|deb|kernel|test. Nothing is asked of the network when nothing is
# missing.
set -eu

purpose=${1:-}
missing=

# need PACKAGE COMMAND...: the package is missing unless the command succeeds.
need() {
    package=$1
    shift
    if ! "$@" >/dev/null 2>&1; then
        missing="$missing $package"
    fi
}

found() {
    command -v "$1"
}

# The headers of a library, without a compiler that may itself be missing.
header() {
    cc -E -x c -include "$1" /dev/null
}

# The run-time libraries of clang's sanitizers and fuzzer are a package of their own.
clang_fuzzes() {
    echo '#include <stddef.h>
int LLVMFuzzerTestOneInput(const char *data, size_t size);
int LLVMFuzzerTestOneInput(const char *data, size_t size) { return size && *data ? 0 : 0; }' |
        clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null
}

# A C library for the compiler of another machine.
cross_links() {
    echo '#include <stdio.h>
int main(void) { return puts("") < 0; }' | aarch64-linux-gnu-gcc -x c - -o /dev/null
}

# A library that nothing is linked with, only preloaded.
library() {
    find /usr/lib -name "$1" | grep -q .
}

# Debian and Ubuntu package Python's own tests by its version: those of the mmap module are run.
system_python() {
    /usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])' || echo python3.11
}

python_tests() {
    /usr/bin/python3 -c 'import test.test_mmap' || python3 -c 'import test.test_mmap'
}

need_build() {
    need gcc found gcc
    need libc6-dev header stdio.h
    need make found make
    need meson found meson
    need ninja-build found ninja
    need pkgconf found pkg-config
    need python3 found python3
    need libjansson-dev pkg-config --exists jansson
    need libbsd-dev pkg-config --exists libbsd
    need libcmocka-dev pkg-config --exists cmocka
    need libsqlite3-dev pkg-config --exists sqlite3
}

need_demo() {
    need_build
    need gnuplot-nox found gnuplot
}

need_deb() {
    need_build
    need debhelper found dh
    need dpkg-dev found dpkg-buildpackage
    need systemtap-sdt-dev header sys/sdt.h
}

need_kernel() {
    need gcc found gcc
    need binutils found ld
    need make found make
    need python3 found python3
    need qemu-system-x86 found qemu-system-i386
}

need_test() {
    need_demo
    need_kernel
    need_deb
    need lintian found lintian
    need g++ found g++
    need binutils found readelf
    need clang found clang
    need libclang-rt-dev clang_fuzzes
    need clang-format-14 found clang-format-14
    need clang-tidy found clang-tidy
    need gcc-aarch64-linux-gnu found aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross cross_links
    need qemu-user found qemu-aarch64
    need spin found spin
    need mandoc found mandoc
    need shellcheck found shellcheck
    need git found git
    need sqlite3 found sqlite3
    need perl found perl
    need bpftrace found bpftrace
    need redis-server found redis-server
    need lld found ld.lld
    need libjemalloc2 library 'libjemalloc.so.2'
    need libmimalloc2.0 library 'libmimalloc.so.2*'
    need "lib$(system_python)-testsuite" python_tests
}

find_missing() {
    missing=
    case $purpose in
    build) need_build ;;
    demo) need_demo ;;
    deb) need_deb ;;
    kernel) need_kernel ;;
    test) need_test ;;
    *)
        echo "usage: $0 build|demo|deb|kernel|test" >&2
        exit 2
        ;;
    esac
}

give_up() {
    echo "mapfold: make $purpose needs what these Debian packages hold and what is missing here:" >&2
    echo "   $missing" | fold -s -w 96 >&2
    echo "$1" >&2
    exit 1
}

find_missing
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || give_up "There is no apt-get here: please install them, by whatever names your system has for them."
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=sudo
else
    give_up "Installing needs root or sudo. As root: apt-get install, and the names above."
fi

echo "mapfold: installing$missing"
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300"
# Unquoted: a command and a list of packages.
# shellcheck disable=SC2086
{
    $apt update || give_up "apt-get update failed: see above."
    $apt install -y --no-install-recommends $missing || give_up "apt-get install failed: see above."
}

find_missing
[ -z "$missing" ] || give_up "They are installed, but do not work: is another version first in PATH?"
