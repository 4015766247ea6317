#!/bin/sh
# SPDX-License-Identifier: MIT
# The shell scripts have no fault that shellcheck knows, and the Python files compile.
. "$(dirname "$0")/tap.sh"

compiles() {
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], encoding="utf-8").read())' "$1"
}

for file in $(scripts/sources.sh '*.sh') .ci/run kernel/run; do
    check "shellcheck finds nothing in $file" shellcheck --shell=sh -P tests/checks -x "$file"
done
check "shellcheck finds nothing in completions/mapfold" \
    shellcheck --shell=bash completions/mapfold
for file in $(scripts/sources.sh '*.py') scripts/test; do
    check "$file is Python" compiles "$file"
done
finish
