#!/bin/sh
# SPDX-License-Identifier: MIT
# The Debian packages: they build, lintian finds nothing wrong, and what they install works, in a root of its
# own: an overlay over this system's, which has its libc and gcc, and of which the tree of sources is
# hidden. Nothing is fetched, and nothing of this system changes.
#
# What stands in single quotes is for a shell inside.
# shellcheck disable=SC2016
. "$(dirname "$0")/tap.sh"

debs=$root/build-test/deb
layer=$work/overlay

build_packages() {
    rm -rf "$debs" && scripts/deb.sh "$debs" && for name in libmapfold0 libmapfold-dev mapfold; do
        ls "$debs/$name"_*.deb || return 1
    done
}

has_no_fault() {
    lintian --allow-root --no-cfg --fail-on error,warning "$debs"/*.changes
}

# Runs a command in the new root: the overlay's, with /proc, and a directory of a real file system
# in which files can be folded.
inside() {
    unshare --mount sh -c '
        set -e
        layer=$1 hidden=$2 data=$3
        shift 3
        mkdir -p "$layer/top" "$layer/work" "$layer/root"
        mount -t overlay overlay "$layer/root" \
            -o "lowerdir=/,upperdir=$layer/top,workdir=$layer/work"
        mount --bind /dev "$layer/root/dev"
        mount -t proc proc "$layer/root/proc"
        mount -t tmpfs tmpfs "$layer/root$hidden"
        mkdir -p "$layer/root/mnt/data"
        mount --bind "$data" "$layer/root/mnt/data"
        cd "$layer/root"
        exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive "$@"
    ' sh "$layer" "$root" "$data" "$@"
}

installs() {
    cp "$debs"/libmapfold0_*.deb "$debs"/libmapfold-dev_*.deb "$debs"/mapfold_*.deb "$data/" &&
        inside sh -c 'dpkg --no-triggers -i /mnt/data/*.deb && ldconfig && dpkg --verify mapfold'
}

# builds EXAMPLE OPTION...: by pkg-config, out of the example that the package brings.
builds() {
    example=$1
    shift
    inside sh -c 'set -e
        source=$(ls /usr/share/doc/*mapfold*/examples/"$0".c*)
        case $source in *.gz) zcat "$source" ;; *) cat "$source" ;; esac >/mnt/data/"$0".c
        cd /mnt/data && cc -O2 -Wall -Wextra -Werror -pthread "$0.c" -o "$0" \
            $(pkg-config --cflags --libs "$@" mapfold)' "$example" "$@"
}

finds_room() {
    inside /mnt/data/gapalloc | grep -F 'lie in gaps of old buffers'
}

uses_the_package() {
    inside ldd /mnt/data/gapalloc | grep '/usr/lib/.*libmapfold\.so\.0\|=> /lib/.*libmapfold\.so\.0'
}

# More pages of one file than the kernel would map.
folds() {
    truncate -s 1G "$data/data"
    inside sh -c 'cd /mnt/data && mapfold run -- ./mmap_scan --count "$0" --window "$0" --pages 1 \
        --spread --file data' 70000 >"$work/scan" || return 1
    cat "$work/scan"
    awk '/ live, / { live = $3; maps = $5 } END { exit !(live == 70000 && maps < 2000) }' \
        "$work/scan"
}

measures() {
    inside mapfold bench space.fifo -q -n 1000 -a mapfold | grep '1000 *mapfold '
}

inspects() {
    inside sh -c 'mapfold inspect $$' | grep 'maps used'
}

has_files() {
    inside sh -c 'set -e
        test -s /usr/share/bash-completion/completions/mapfold
        cd /usr/share/doc/mapfold
        test -s MAPPING.md
        for file in $(grep -oh "]([A-Za-z/]*\.md)" ./*.md | tr -d "]()"); do test -s "$file"; done
        for page in man1/mapfold.1 man1/mapfold-run.1 man3/mf_window.3; do
            zcat "/usr/share/man/$page.gz" | grep -q mapfold
        done
        bash -c ". /usr/share/bash-completion/completions/mapfold
            COMP_WORDS=(mapfold ins) COMP_CWORD=1; _mapfold; test \${COMPREPLY[0]} = inspect"'
}

loads_in_sqlite() {
    inside python3 -c '
import glob, sqlite3
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(glob.glob("/usr/lib/*/mapfold/libmapfold_sqlite.so")[0])
database = sqlite3.connect("file:/mnt/data/a.db?vfs=mapfold", uri=True)
database.execute("create table t(a)")
database.execute("insert into t values (42)")
database.commit()
assert database.execute("select a from t").fetchone() == (42,)'
}

windows_in_python() {
    inside sh -c 'python3 /usr/share/doc/libmapfold-dev/examples/windows.py /etc/services' |
        grep ' lines in '
}

goes_without_a_trace() {
    inside sh -c 'dpkg --no-triggers -P mapfold libmapfold-dev libmapfold0 &&
        ! find /usr /etc /var/lib -xdev -name "*mapfold*" ! -path "*/dpkg/*" | grep .'
}

check "the packages build" build_packages
check "lintian finds no error in them, and no warning" has_no_fault
data=
if [ "$(id -u)" != 0 ]; then
    why="only root can mount an overlay"
elif ! unshare --mount true 2>"$work/why"; then
    why=$(cat "$work/why")
elif ! data=$(mktemp -d /var/tmp/mapfold-packages.XXXXXX) || ! trap 'rm -rf "$work" "$data"' EXIT ||
    ! inside true 2>"$work/why"; then
    why="no overlay can be mounted: $(tail -n 1 "$work/why")"
else
    why=
fi
if [ -n "$why" ]; then
    skip "the packages work in a root of their own" "$why"
    finish
fi
check "they install" installs
check "completion, man pages and documents are there" has_files
check "an example builds with what they install" builds gapalloc
check "it runs" finds_room
check "it uses the library of the package" uses_the_package
check "another builds with the static library" builds tailgrep --static
check "an example in Python finds the library" windows_in_python
check "mmap_scan builds" builds mmap_scan
check "mapfold run folds it beyond the kernel's limit" folds
check "mapfold inspect looks at a process" inspects
check "mapfold bench measures" measures
check "SQLite loads its extension" loads_in_sqlite
check "they are removed without a trace" goes_without_a_trace
finish
