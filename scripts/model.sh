#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the models with SPIN: the protocol must hold, and each known mistake must be found.
# usage: scripts/model.sh [MODEL VARIANT [MISTAKE]]     TAP on standard output
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

# errors MODEL VARIANT MISTAKE: how many errors SPIN finds; fails if the search was not complete.
errors() {
    (
        cd "$work"
        rm -f pan*
        spin -a "-D$2" ${3:+"-D$3"} "$OLDPWD/models/$1.pml" >spin.log 2>&1
        gcc -O2 -w -DSAFETY -o pan pan.c
        ./pan -m1000000 -w24 >pan.log 2>&1
        if [ -z "${3-}" ] && grep -q 'max search depth too small' pan.log; then
            echo incomplete
        else
            sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log
        fi
    )
}

# check MODEL VARIANT MISTAKE WANTED NAME
check() {
    number=$((number + 1))
    found=$(errors "$1" "$2" "$3") || found="a failed run"
    if [ "$found" = "$4" ]; then
        echo "ok $number - $5"
    else
        echo "not ok $number - $5"
        echo "# $1 $2 $3: errors: $found, not $4"
        sed 's/^/# /' "$work"/*.log | tail -20
        failed=1
    fi
}

if [ $# -gt 0 ]; then
    errors "$1" "$2" "${3-}"
    cat "$work/pan.log"
    exit
fi

check pin EVICT '' 0 'eviction never takes a pinned slot, and wakes whoever waits'
check pin DOOM '' 0 'a forgotten slot goes with its last unpin, and not before'
check pin EVICT NO_BARRIER 1 'without any membarrier a pinned slot is reused'
check pin EVICT NO_CLOSE_BARRIER 1 'without the membarrier after closing a pinned slot is reused'
check pin EVICT NO_WAIT_BARRIER 1 'without the membarrier after its flag a waiter sleeps for ever'
check pin EVICT CHECK_FIRST 1 'a pin that looks before it counts is lost'
check pin EVICT NO_IDENTITY 1 'a pin that does not check the key gets another page'
check pin EVICT FLAG_FIRST 1 'an unpin that looks for waiters before it counts wakes nobody'
check pin EVICT SUM_SHORT 1 'a thread that is not summed loses its pins'
check pin DOOM NO_BARRIER 1 'without any membarrier a pinned slot is retired, or never'
check pin DOOM NO_CLOSE_BARRIER 1 'without the membarrier after dooming a pinned slot is retired'
check pin DOOM NO_REAP_BARRIER 1 'an unpin that retires without a membarrier of its own is too early'
check pin DOOM ATTENTION_LATE 1 'dooming that asks for attention after its membarrier is overlooked'
check sum ALL '' 0 'whoever has a slot pinned never counts none'
check sum ALL PINS_FIRST 1 'counting pins before unpins misses one'
check sum ALL MIXED 1 'counting thread by thread misses one'
check fork ALL '' 0 'after a fork a window is pinned exactly if it is counted'
check fork ALL NOTE_LATE 1 'a note after the count leaks a pin'
check fork ALL SETTLE_EARLY 1 'a pin settled before the window has it leaks'
check fork ALL CLEAR_FIRST 1 'a window cleared before its unpin is noted leaks'
check fork ALL NO_MARK 1 'a window that the child leaves alone is unpinned twice'
check fork ALL MARK_LOST 1 'a pin tried again without its mark is unpinned twice'
check fork ALL LIST_LATE 1 'counters that a thread has before they are summed lose pins'
check queue ALL '' 0 'whoever waits in the queue is served'
check queue ALL NO_HANDOVER 1 'who leaves the queue without a word lets the next sleep for ever'
check queue ALL NO_LOOK 1 'who queues up and sleeps at once misses an unpin'
check queue ALL CLEAR_LATE 1 'an event cleared after the look is lost'
echo "1..$number"
exit $failed
