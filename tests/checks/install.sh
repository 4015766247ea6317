#!/bin/sh
# SPDX-License-Identifier: MIT
# Who installs mapfold can build programs with it: `make install` of the release build ($BUILD) into
# an empty place, then C and C++ programs by pkg-config, with either library.
. "$(dirname "$0")/tap.sh"

place=$work/place
prefix=/opt/mapfold

install_it() {
    make install BUILD="$BUILD" CC=gcc DESTDIR="$place" PREFIX="$prefix"
}

mf_pkg_config() {
    PKG_CONFIG_LIBDIR=$pc PKG_CONFIG_SYSROOT_DIR=$place pkg-config "$@" mapfold
}

# builds COMPILER SOURCE PROGRAM OPTION...
builds() {
    compiler=$1 source=$2 program=$3
    shift 3
    # Unquoted: pkg-config gives options.
    # shellcheck disable=SC2046
    $compiler -Wall -Wextra -Werror "$source" $(mf_pkg_config --cflags) "$@" \
        $(mf_pkg_config --libs) -o "$program"
}

# runs PROGRAM: ends well and prints nothing on stderr.
runs() {
    LD_LIBRARY_PATH=$libraries "$1" 2>"$work/stderr" && [ ! -s "$work/stderr" ]
}

uses_shared() {
    LD_LIBRARY_PATH=$libraries ldd "$1" | grep -q "libmapfold.so.*$place"
}

uses_static() {
    ! ldd "$1" 2>&1 | grep libmapfold
}

# Documents that man pages name, and those that documents link to.
documents_are_there() {
    documents=$place$prefix/share/doc/mapfold
    {
        sed -n 's/^\.Pa \([A-Z]*\.md\).*/\1/p' man/*.[1-9]
        grep -oh '](\([^)#:]*\))' "$documents"/*.md | sed 's/^](//; s/)$//'
    } | sort -u | while read -r file; do
        [ -s "$documents/$file" ] || echo "there is no $file"
    done >"$work/lost"
    cat "$work/lost"
    [ -s "$documents/MAPPING.md" ] && [ ! -s "$work/lost" ]
}

# The first ```c block of README.md is a program; the block after it is what it prints.
readme_block() {
    awk -v want="$1" '/^```/ { inside = !inside; if (inside) { n += started || /^```c$/
        started = started || /^```c$/ } ; next } inside && n == want' README.md
}

readme_prints() {
    readme_block 2 >"$work/expected"
    [ -s "$work/expected" ] && runs "$work/readme" | diff -u "$work/expected" -
}

check "make install honours DESTDIR and PREFIX" install_it
check "nothing is installed outside of PREFIX" \
    test "$(find "$place" -mindepth 1 ! -type d ! -path "$place$prefix/*" | wc -l)" = 0
pc=$(dirname "$(find "$place$prefix" -name mapfold.pc)")
libraries=$(dirname "$pc")
check "pkg-config knows the version" \
    test "$(mf_pkg_config --modversion)" = "$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build)"
for header in include/mapfold/*.h; do
    check "$header is installed" cmp "$header" "$place$prefix/$header"
done
check "the documents that are named are installed" documents_are_there
check "the installed command runs where it was put" \
    "$place$prefix/bin/mapfold" --version
check "it finds what it starts for bench" \
    "$place$prefix/bin/mapfold" bench space.fifo -q -n 1000 -a mapfold
check "it finds the drop-in" "$place$prefix/bin/mapfold" run -- true

for language in c cpp; do
    compiler=gcc
    [ $language = c ] || compiler=g++
    consumer=tests/consumer/consumer.$language
    check "$consumer builds with the shared library" builds $compiler $consumer "$work/$language"
    check "it finds the installed library" uses_shared "$work/$language"
    check "it runs" runs "$work/$language"
    check "$consumer builds with the static library" \
        builds $compiler $consumer "$work/$language-static" -static
    check "it needs no libmapfold.so" uses_static "$work/$language-static"
    check "it runs" runs "$work/$language-static"
done

readme_block 1 >"$work/readme.c"
check "the README's example builds" builds gcc "$work/readme.c" "$work/readme"
check "the README's example prints what the README says" readme_prints
finish
