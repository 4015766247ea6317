#!/bin/sh
# SPDX-License-Identifier: MIT
# Each public header compiles alone and twice, in every language that may include it.
. "$(dirname "$0")/tap.sh"

# compiles COMPILER STANDARD LANGUAGE HEADER
compiles() {
    printf '#include <mapfold/%s>\n#include <mapfold/%s>\n' "$4" "$4" |
        "$1" "-std=$2" -x "$3" -Wall -Wextra -pedantic -Werror -Iinclude -fsyntax-only -
}

for header in include/mapfold/*.h; do
    name=$(basename "$header")
    for standard in c11 c17; do
        check "$name is $standard for gcc" compiles gcc $standard c "$name"
        check "$name is $standard for clang" compiles clang $standard c "$name"
    done
    check "$name is c++17 for g++" compiles g++ c++17 c++ "$name"
    check "$name is c++17 for clang++" compiles clang++ c++17 c++ "$name"
done
finish
