#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the models with SPIN: the protocol must hold, and each known mistake must be found.
# usage: scripts/model.sh [VARIANT [MISTAKE]]     TAP on standard output
set -eu
cd "$(dirname "$0")/.."
if ! command -v spin >/dev/null || ! command -v gcc >/dev/null; then
    echo "1..0 # SKIP spin or gcc is not installed (apt-get install spin gcc)"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
failed=0

# errors VARIANT MISTAKE: how many errors SPIN finds; fails if the search was not complete.
errors() {
    (
        cd "$work"
        rm -f pan*
        spin -a "-D$1" ${2:+"-D$2"} "$OLDPWD/models/pin.pml" >spin.log 2>&1
        gcc -O2 -w -DSAFETY -o pan pan.c
        ./pan -m1000000 -w24 >pan.log 2>&1
        if [ -z "${2-}" ] && grep -q 'max search depth too small' pan.log; then
            echo incomplete
        else
            sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log
        fi
    )
}

# check VARIANT MISTAKE WANTED NAME
check() {
    number=$((number + 1))
    found=$(errors "$1" "$2") || found="a failed run"
    if [ "$found" = "$3" ]; then
        echo "ok $number - $4"
    else
        echo "not ok $number - $4"
        echo "# $1 $2: errors: $found, not $3"
        sed 's/^/# /' "$work"/*.log | tail -20
        failed=1
    fi
}

if [ $# -gt 0 ]; then
    errors "$1" "${2-}"
    cat "$work/pan.log"
    exit
fi

check EVICT '' 0 'eviction never takes a pinned slot, and wakes whoever waits'
check DOOM '' 0 'a forgotten slot goes with its last unpin, and not before'
check EVICT NO_BARRIER 1 'without any membarrier a pinned slot is reused'
check EVICT NO_CLOSE_BARRIER 1 'without the membarrier after closing a pinned slot is reused'
check EVICT NO_WAIT_BARRIER 1 'without the membarrier after its flag a waiter sleeps for ever'
check EVICT CHECK_FIRST 1 'a pin that looks before it counts is lost'
check EVICT NO_IDENTITY 1 'a pin that does not check the key gets another page'
check EVICT FLAG_FIRST 1 'an unpin that looks for waiters before it counts wakes nobody'
check EVICT SUM_SHORT 1 'a thread that is not summed loses its pins'
check DOOM NO_BARRIER 1 'without any membarrier a pinned slot is retired, or never'
check DOOM NO_REAP_BARRIER 1 'an unpin that retires without a membarrier of its own is too early'
echo "1..$number"
exit $failed
