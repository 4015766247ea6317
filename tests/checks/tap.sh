# SPDX-License-Identifier: MIT
# For the checks of this directory: sourced by them. They are run from anywhere, see the tree at
# $root, may use the directory $work, and end with `finish`.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/mapfold-check.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
count=0
failed=0

# check SENTENCE COMMAND...: one test, passed if the command succeeds; its output is shown if not.
check() {
    sentence=$1
    shift
    count=$((count + 1))
    if "$@" >"$work/said" 2>&1; then
        echo "ok $count - $sentence"
    else
        cat "$work/said"
        echo "not ok $count - $sentence"
        failed=$((failed + 1))
    fi
}

# skip SENTENCE REASON: one test that this machine cannot run.
skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

finish() {
    echo "1..$count"
    [ "$failed" = 0 ]
    exit
}
