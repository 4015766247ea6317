#!/bin/sh
# SPDX-License-Identifier: MIT
# The shell scripts have no fault that shellcheck knows, and the Python files compile; and what scripts
# must not do, they do not.
. "$(dirname "$0")/tap.sh"

compiles() {
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], encoding="utf-8").read())' "$1"
}

# A tree of the usual name, of which packages are made into the directory above it: where a file that
# is in no version of it, a directory of the packages' name, and packages of others must stay.
deb_removes_nothing() {
    mkdir -p "$work/mapfold/scripts" "$work/mapfold/build" "$work/bin" || return 1
    cp scripts/deb.sh "$work/mapfold/scripts/"
    touch "$work/mapfold/unsaved.c" "$work/other.deb" "$work/other.changes"
    cat >"$work/bin/dpkg-buildpackage" <<'END'
#!/bin/sh
set -eu
[ -e unsaved.c ] && [ ! -e build ] && [ -z "$(ls -d mapfold-deb-* 2>/dev/null)" ]
for kind in .deb .changes .buildinfo; do echo "$$" >"../mapfold_1$kind"; done
END
    chmod +x "$work/bin/dpkg-buildpackage"
    for times in once twice; do
        (cd "$work/mapfold" && PATH=$work/bin:$PATH sh scripts/deb.sh ..) || return 1
        echo "made $times"
    done
    (cd "$work/mapfold" && PATH=$work/bin:$PATH sh scripts/deb.sh) || return 1
    ls "$work" "$work/mapfold" "$work/mapfold/scripts"
    for file in mapfold/unsaved.c mapfold/scripts/deb.sh other.deb other.changes mapfold_1.deb \
        mapfold_1.changes mapfold_1.buildinfo mapfold/build-deb/mapfold_1.deb; do
        [ -e "$work/$file" ] || { echo "$file is gone"; return 1; }
    done
    [ "$(find "$work" -name 'mapfold-deb-*' | wc -l)" = 0 ]
}

# A file of a target's name must not make it up to date.
every_target_is_phony() {
    sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile | sort -u >"$work/targets"
    sed -n 's/^\.PHONY: //p' Makefile | tr ' ' '\n' | sort -u | diff -u - "$work/targets"
}

check "every target of the Makefile is phony" every_target_is_phony
check "deb.sh removes nothing that it has not made" deb_removes_nothing
for file in $(scripts/sources.sh '*.sh') .ci/run kernel/run; do
    check "shellcheck finds nothing in $file" shellcheck --shell=sh -P tests/checks -x "$file"
done
check "shellcheck finds nothing in completions/mapfold" \
    shellcheck --shell=bash completions/mapfold
for file in $(scripts/sources.sh '*.py') scripts/test; do
    check "$file is Python" compiles "$file"
done
finish
