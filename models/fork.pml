/* SPDX-License-Identifier: MIT */
/*
 * A fork at any moment of what another thread does with one window (pool_note_set, window_own,
 * window_clear, pool_thaw). The child sees a prefix of that thread's stores: so the thread is a
 * sequence of steps, and the fork stops it between two of them.
 *
 * A thread's counters are made with its first pin (thread_block_generic), and in the child go to
 * another thread, which pins once more.
 *
 * Checked: in the child the window says that it is pinned exactly if the counters do, and the
 * counters that are summed have the other thread's pin too.
 *
 * Mistakes, each of which must be found:
 *   NOTE_LATE      the note comes after the count
 *   SETTLE_EARLY   the pin is settled before the window has it
 *   CLEAR_FIRST    the window is cleared before the unpin is noted
 *   NO_MARK        the child does not touch the window
 *   MARK_LOST      a pin that is given back, to be tried again, takes the mark with it
 *   LIST_LATE      the thread has its counters before they are summed
 */
#define NONE 0
#define PIN 1
#define UNPIN 2

byte pins, unpins;
bool had, listed;        /* the counters: by the thread's record, and among those that are summed */
bool owned;              /* the window's token */
byte note, before, slot; /* slot: stands for the note's; there is one */
bool mark;               /* the note's mark is the window's token, or none */
bool forked;

inline count_pin()
{
#ifdef NOTE_LATE
    pins++;
    d_step { note = PIN; before = pins - 1 }
#else
    d_step { note = PIN; before = pins };
    pins++
#endif
}

/* From the note of the pin by one store; the pin's mark stays. */
inline give_back()
{
#ifdef MARK_LOST
    mark = false;
#endif
    d_step { note = UNPIN; before = unpins };
    unpins++;
    note = NONE
}

proctype thread()
{
    byte round;
#ifdef LIST_LATE
    had = true;
    listed = true;
#else
    listed = true;
    had = true;
#endif
    do
    :: round < 2 && !forked ->
        round++;
        mark = true;
        count_pin();
        /* An extent that does not fit: once more. */
        if
        :: give_back(); count_pin()
        :: true
        fi;
#ifdef SETTLE_EARLY
        note = NONE;
        owned = true;
#else
        owned = true;
        note = NONE;
#endif
        mark = true;
#ifdef CLEAR_FIRST
        owned = false;
        d_step { note = UNPIN; before = unpins };
#else
        d_step { note = UNPIN; before = unpins };
        owned = false;
#endif
        unpins++;
        note = NONE
    :: break
    od
}

/* The child: one step, since all others are gone. */
proctype child()
{
    d_step {
        forked = true;
        if
        :: note == PIN -> pins = before
        :: note == UNPIN -> unpins = before + 1
        :: else
        fi;
        if
#ifndef NO_MARK
        :: note != NONE && mark -> owned = false
#endif
        :: else
        fi;
        assert(pins - unpins == (owned -> 1 : 0));
        listed = (had -> listed : true); /* else it makes its own */
        pins++;
        assert((listed -> pins - unpins : 0) == (owned -> 2 : 1))
    }
}

init
{
    atomic {
        run thread();
        run child()
    }
}
