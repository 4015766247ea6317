#!/bin/sh
# SPDX-License-Identifier: MIT
# The reference that `make docs` makes out of the headers: every public function is in it, told, with its
# errors; the man pages name the same errors; and the documents name no file that is not there.
#
# What stands in single quotes is no text for this shell.
# shellcheck disable=SC2016
. "$(dirname "$0")/tap.sh"

reference=$work/api.html
sed -n 's/^ *\(mf_[a-z0-9_]*\);.*/\1/p' src/libmapfold.map >"$work/functions"

# What follows a function's heading, up to the next declaration's end.
section() {
    awk -v id="id=\"$1\"" 'index($0, id) { inside = 1; next } /^<h[23]/ && told { exit }
        inside { print; told = told || /^<pre/ }' "$reference"
}

is_told() {
    [ "$(grep -c "<h3 id=\"$1\">" "$reference")" = 1 ] || { echo "no section, or several"; return 1; }
    section "$1" | grep -q '<pre class="doc">' || { echo "its header has no comment on it"; return 1; }
    section "$1" >"$work/section"
    # What returns nothing, a pointer that is never NULL, or 0 whatever happens has no errors to tell.
    if grep -Eq "^(<pre>)?(int|int64_t|ssize_t) $1\(" "$work/section" &&
        ! grep -q "data-function=\"$1\"" "$work/section" &&
        ! grep -Eq '(^|[. ])0\.|[01]: ' "$work/section"; then
        echo "its comment tells no result"
        return 1
    fi
}

# errors_told FUNCTION: as the reference has them.
errors_told() {
    sed -n "s/.*data-function=\"$1\">\(.*\)<\/p>/\1/p" "$reference" | grep -o -e '-E[A-Z0-9]*'
}

# Of all functions in a man page together.
same_errors() {
    sed -n 's/^\.Nm \(mf_[a-z0-9_]*\).*/\1/p' "$1" | sort -u | while read -r function; do
        errors_told "$function"
    done | tr -d - | sort -u >"$work/told"
    list='^\.It Er '
    grep -q "$list" "$1" || list='^\.Er '
    grep "$list" "$1" | grep -o 'E[A-Z0-9]\{2,\}' | sort -u >"$work/named"
    diff -u "$work/told" "$work/named"
}

# Links between documents, and files that they name in backquotes with a directory of the tree.
names_what_is_there() {
    {
        grep -o '](\([^)#:]*\))' "$1" | sed 's/^](//; s/)$//' | sed "s,^,$(dirname "$1")/,"
        grep -o '`\(docs\|examples\|include\|man\|models\|scripts\|src\|tests\)/[^`* ]*`' "$1" | tr -d '`'
    } | sort -u | while read -r file; do
        [ -e "${file%/}" ] || [ -e "$file.c" ] || echo "there is no $file"
    done >"$work/lost"
    cat "$work/lost"
    [ ! -s "$work/lost" ]
}

check "the reference is made" scripts/api.py "$reference"
while read -r function; do
    check "$function is told in the reference" is_told "$function"
done <"$work/functions"
for page in man/mf_*.3; do
    check "$page names the errors that the headers name" same_errors "$page"
done
for document in *.md docs/*.md; do
    check "$document names files that are there" names_what_is_there "$document"
done
finish
