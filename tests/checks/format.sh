#!/bin/sh
# SPDX-License-Identifier: MIT
# The C files are as clang-format-14 writes them (`make format`). The version is pinned, since others
# format some things otherwise; Debian 12 and Ubuntu 24.04 both have it.
. "$(dirname "$0")/tap.sh"

for file in $(scripts/sources.sh '*.c' '*.h'); do
    check "$file is formatted" clang-format-14 --dry-run --Werror "$file"
done

# clang-format leaves comments alone.
fits_100_columns() {
    # shellcheck disable=SC2046 # names without blanks
    ! grep -nE '^.{101,}$' $(scripts/sources.sh '*.c' '*.h')
}
check "no line of C has more than 100 columns" fits_100_columns
finish
