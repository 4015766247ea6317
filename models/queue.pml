/* SPDX-License-Identifier: MIT */
/*
 * Who waits for a slot is served: the queue of make_room_locked and leave_queue_locked in
 * src/core/pool.c, at the grain of its lock. That an unpin and a waiter's last look do not miss
 * each other is pin.pml's matter: here memory is in order.
 *
 * Two slots, pinned at first and unpinned at some time. Three threads want one each and give it
 * back; one of them may lose patience and leave.
 *
 * Checked: nobody sleeps for ever (no invalid end state), and what was pinned is unpinned.
 *
 * Mistakes, each of which must be found:
 *   NO_HANDOVER   who leaves the queue does not tell the next
 *   NO_LOOK       who has queued up sleeps without looking again
 *   CLEAR_LATE    the event is cleared after the look, not before
 */
#define WAITERS 3

byte free;           /* slots */
byte waiting;
byte first = 255;    /* the queue: who stands first, and who after whom */
byte after[WAITERS] = 255;
bool event[WAITERS];
byte finished;

inline tell()
{
    if
    :: first != 255 ->
        event[first] = true
    :: else
    fi
}

inline unpin()
{
    free++;
    if
    :: waiting > 0 -> d_step { tell() }
    :: else
    fi
}

inline enqueue()
{
    after[me] = 255;
    event[me] = false;
    if
    :: first == 255 -> first = me
    :: else ->
        at = first;
        do
        :: after[at] != 255 -> at = after[at]
        :: else -> break
        od;
        after[at] = me;
        at = 0
    fi;
    waiting++;
    queued = true
}

inline leave()
{
    if
    :: queued ->
        if
        :: first == me -> first = after[me]
        :: else ->
            at = first;
            do
            :: after[at] != me -> at = after[at]
            :: else -> break
            od;
            after[at] = after[me];
            at = 0
        fi;
        waiting--;
        queued = false;
#ifndef NO_HANDOVER
        tell()
#endif
    :: else
    fi
}

proctype waiter(byte me)
{
    byte at;
    bool queued, served;
look:
    /* The look itself is made without the lock. */
    if
    :: first == 255 || first == me ->
#ifndef CLEAR_LATE
        event[me] = false;
#endif
        d_step {
            if
            :: free > 0 && (first == 255 || first == me) ->
                free--;
                leave();
                served = true
            :: else
            fi
        };
        if
        :: served -> goto done
        :: else
        fi
#ifdef CLEAR_LATE
        ;
        event[me] = false
#endif
    :: else
    fi;
    if
    :: !queued ->
        d_step { enqueue() };
#ifndef NO_LOOK
        if
        :: first == me -> goto look
        :: else
        fi
#endif
    :: else
    fi;
    if
    :: event[me] -> goto look
    :: me == 2 -> d_step { leave() }; goto done /* it has lost patience */
    fi;
done:
    if
    :: served -> unpin()
    :: else
    fi;
    finished++
}

proctype holder()
{
    byte at;
    unpin();
    finished++
}

init
{
    atomic {
        run waiter(0);
        run waiter(1);
        run waiter(2);
        run holder();
        run holder()
    }
    finished == 5;
    assert(free == 2 && waiting == 0 && first == 255)
}
