#!/bin/sh
# SPDX-License-Identifier: MIT
# Arrows run downward only: a layer includes its own headers and those of the layers it stands on.
# System headers are not looked at here (freestanding.sh does so for the core).
. "$(dirname "$0")/tap.sh"

# includes FILE: the tree's files that it includes by name, as paths from the top.
includes() {
    sed -n 's/^ *# *include *[<"]\([^>"]*\)[>"].*/\1/p' "$1" | while read -r name; do
        for at in "$(dirname "$1")/$name" "src/$name" "include/$name" "$name"; do
            if [ -f "$at" ]; then
                realpath --relative-to=. "$at"
                break
            fi
        done
    done
}

# A header that may also be the system's is no way out: the core includes the tree and these.
freestanding='float|iso646|limits|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdnoreturn'

# stands_on FILE ALLOWED: whatever it includes of the tree lies in an allowed directory.
stands_on() {
    includes "$1" | grep -Ev "^($2)/" >"$work/upward"
    sed "s,^,$1 includes ," "$work/upward"
    [ ! -s "$work/upward" ]
}

is_freestanding() {
    sed -n 's/^ *# *include *<\([^>]*\)>.*/\1/p' "$1" | grep -Ev "^(mapfold/.*|($freestanding)\.h)$" \
        >"$work/hosted"
    sed "s,^,$1 includes ," "$work/hosted"
    [ ! -s "$work/hosted" ]
}

# layer DIRECTORY ALLOWED
layer() {
    [ -d "$1" ] || return 0
    for file in $(scripts/sources.sh '*.c' '*.h' | grep "^$1/"); do
        check "$file stands on ${2:-nothing}" stands_on "$file" "$2"
    done
}

layer include 'include'
layer src/core 'include|src/core'
layer src/linux 'include|src/core|src/linux'
layer src/preload 'include|src/core|src/linux|src/preload'
layer src/sqlite 'include|src/core|src/linux|src/sqlite'
layer kernel 'include|src/core|kernel'
layer src/cli 'include|src/linux|src/cli'
layer bench 'include|src/cli|bench'
for file in $(scripts/sources.sh '*.c' '*.h' | grep '^src/core/'); do
    check "$file includes only freestanding headers" is_freestanding "$file"
done
finish
