#!/bin/sh
# SPDX-License-Identifier: MIT
# The core needs no libc: it compiles for 32 and 64 bits where no header but the compiler's own can
# be found, and what it leaves undefined is what every freestanding environment must have.
. "$(dirname "$0")/tap.sh"

# The four functions that gcc may call by itself, and its helpers for 64-bit arithmetic on 32 bits.
allowed='^(memcpy|memmove|memset|memcmp)$'
allowed_32="$allowed|^__(u?(div|mod|divmod)|(ash[lr]|lshr|mul|ffs|clz|ctz|popcount|bswap))[ds]i[234]$"
headers=$(gcc -print-file-name=include)

# compiles BITS FILE OBJECT
compiles() {
    gcc "-m$1" -std=gnu11 -O2 -Wall -Wextra -Werror -ffreestanding -nostdlib -nostdinc \
        -isystem "$headers" -Iinclude -Isrc -fno-pic -fno-stack-protector -fcf-protection=none \
        -U_FORTIFY_SOURCE -c "$2" -o "$3"
}

# Undefined in all objects together: what one of them defines is not asked of the world.
needs_only() {
    pattern=$1
    shift
    nm --defined-only -j "$@" | sort -u >"$work/defined"
    nm --undefined-only -j "$@" | sort -u | comm -23 - "$work/defined" | grep -v ':$' | grep -v '^$' |
        grep -Ev "$pattern" >"$work/foreign"
    sed 's/^/undefined: /' "$work/foreign"
    [ ! -s "$work/foreign" ]
}

for bits in 32 64; do
    objects=
    for file in src/core/*.c; do
        object=$work/$bits-$(basename "$file" .c).o
        check "$file compiles freestanding for $bits bits" compiles $bits "$file" "$object"
        [ ! -f "$object" ] || objects="$objects $object"
    done
    pattern=$allowed
    [ $bits = 64 ] || pattern=$allowed_32
    # Unquoted: a list.
    # shellcheck disable=SC2086
    check "the core asks nothing of a $bits-bit world but the memory functions" \
        needs_only "$pattern" $objects
done
finish
