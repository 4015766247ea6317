#!/bin/sh
# SPDX-License-Identifier: MIT
# The C files are as clang-format-14 writes them (`make format`). The version is pinned, since others
# format some things otherwise; Debian 12 and Ubuntu 24.04 both have it.
. "$(dirname "$0")/tap.sh"

for file in $(scripts/sources.sh '*.c' '*.h'); do
    check "$file is formatted" clang-format-14 --dry-run --Werror "$file"
done
finish
