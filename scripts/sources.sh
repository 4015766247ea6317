#!/bin/sh
# SPDX-License-Identifier: MIT
# Lists the tree's files whose names match: sources.sh 'PATTERN'... (without git: the tree may be a
# tarball, or another user's).
set -eu
cd "$(dirname "$0")/.."
for pattern in "$@"; do
    find . \( -path './build*' -o -name '.[!.]*' -type d \) -prune -o -type f -name "$pattern" -print
done | sed 's,^\./,,' | sort
