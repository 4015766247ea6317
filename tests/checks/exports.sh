#!/bin/sh
# SPDX-License-Identifier: MIT
# What the release libraries in $BUILD show and need: the symbols of libmapfold.map, versioned, and
# nothing else; libc, and no other library; no work at load time; no way to unload it.
. "$(dirname "$0")/tap.sh"

library=$BUILD/libmapfold.so
archive=$BUILD/libmapfold.a
drop_in=$BUILD/src/preload/libmapfold-run.so

sed -n 's/^ *\(mf_[a-z0-9_]*\);.*/\1/p' src/libmapfold.map | sort >"$work/listed"
nm -D --defined-only "$library" >"$work/dynamic"
awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' "$work/dynamic" | sort >"$work/exported"
nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | sort >"$work/shown"
cat include/mapfold/*.h | tr '\n' ' ' | grep -o 'MF_PUBLIC [^;{(]*(' |
    sed -n 's/.*\(mf_[a-z0-9_]*\)($/\1/p' | sort >"$work/declared"
readelf -dW "$library" >"$work/tags"
readelf -lW "$library" >"$work/segments"

versioned() {
    ! awk '$2 != "A"' "$work/dynamic" | grep -v '@@MAPFOLD_[0-9.]*$'
}

# What programs were linked with must not go: a symbol leaves this file with the soname.
symbols_agree() {
    awk '$2 == "A" { print $3 "@" $3 } $2 != "A" { sub(/@@/, "@", $3); print $3 }' "$work/dynamic" |
        sort >"$work/versions"
    sed -n 's/^ \([^ ]*\) [0-9.]*$/\1/p' debian/libmapfold0.symbols | sort |
        diff -u - "$work/versions" &&
        grep -q "^$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p') " \
            debian/libmapfold0.symbols
}

# The linker's own start files have such a section; the archive shows what is ours.
no_constructors() {
    ! readelf -SW "$archive" | grep -E '\.(preinit_array|init_array|fini_array|ctors|dtors)'
}

only_libc() {
    ! grep NEEDED "$work/tags" | grep -Ev '\[(libc\.so\.6|ld-linux[^]]*)\]'
}

hardened() {
    grep -q 'GNU_RELRO' "$work/segments" || echo "no RELRO"
    grep -q 'BIND_NOW\|FLAGS_1.*NOW' "$work/tags" || echo "binds lazily"
    ! grep 'TEXTREL' "$work/tags" || echo "text is relocated"
    ! grep 'GNU_STACK.*E' "$work/segments" || echo "the stack is executable"
}

is_hardened() {
    [ -z "$(hardened | tee "$work/weak")" ] || { cat "$work/weak"; false; }
}

check "the shared library exports what libmapfold.map lists, and nothing else" \
    diff -u "$work/listed" "$work/exported"
check "the headers declare public what libmapfold.map lists, and nothing else" \
    diff -u "$work/listed" "$work/declared"
check "every exported symbol has a version" versioned
check "the package's symbols file lists what the library exports, under the same version" \
    symbols_agree
check "the static library shows what the shared one exports, and nothing else" \
    diff -u "$work/listed" "$work/shown"
# Of all names that libc has for these calls; its private ones are for itself. CASES 41, 45.
calls='mmap|munmap|mprotect|mremap|madvise|msync|mincore|mlock|munlock|shmat'
others='pkey_mprotect|posix_madvise|remap_file_pages'

names_of_libc() {
    libc=$(ldd "$drop_in" | awk '$1 ~ /^libc\.so/ { print $3 }')
    nm -D --defined-only "$libc" | grep -v '@@*GLIBC_PRIVATE' |
        awk '{ sub(/@.*/, "", $3); print $3 }' |
        grep -E "^(__)?(libc_)?($calls)(2|64|all|_.*)?\$|^($others)\$" | sort -u >"$work/libc"
    nm -D --defined-only "$drop_in" | awk '{ print $3 }' | grep -v '^mf_' | sort >"$work/dropped"
    diff -u "$work/libc" "$work/dropped"
}

check "the drop-in has each name that libc has for a mapping call" names_of_libc
check "the drop-in never asks the loader for a symbol" \
    sh -c "! nm -D --undefined-only '$drop_in' | grep -E ' (dlsym|dlvsym|dlopen)(@|\$)'"
check "the library has no constructor or destructor" no_constructors
check "the library needs libc and no other library" only_libc
check "the library is not unloaded" grep -q 'FLAGS_1.*NODELETE' "$work/tags"
check "the library is hardened" is_hardened
finish
