/* SPDX-License-Identifier: MIT */
/*
 * The pin protocol of src/core/pool.c on processors with store buffers.
 *
 * One slot that holds key 0. Two threads look it up, pin, use and unpin it; thread 0 may leave a pin
 * for thread 1 to unpin. A third wants the slot for another key, or wants it gone. What a thread
 * stores goes into its own buffer and reaches memory some time later, in order; loads read memory.
 * A heavy barrier empties all buffers; a light one does nothing here, which is the point. (What
 * aarch64 reorders beyond this is held by the acquire and release orders in the code.)
 *
 * Checked: a translation never changes while pinned (asserts); whoever waits is woken in the end
 * (no invalid end state); a doomed slot is retired in the end (assert in init).
 *
 * Variants, one of:
 *   EVICT            closes, counts, installs another key; waits while the slot is pinned
 *   DOOM             forgets the slot; the last unpin retires it
 * Mistakes, each of which must be found:
 *   NO_BARRIER       no heavy barrier at all
 *   NO_CLOSE_BARRIER none between closing or dooming and counting
 *   NO_WAIT_BARRIER  none between the waiter's flag and its last look
 *   NO_REAP_BARRIER  an unpin retires a doomed slot without one of its own
 *   ATTENTION_LATE   dooming asks unpins for attention only after its barrier
 *   CHECK_FIRST      the pin looks at the state before it counts
 *   NO_IDENTITY      the pin checks that the slot is open, not that it is the same generation
 *   FLAG_FIRST       the unpin looks for waiters before it counts
 *   SUM_SHORT        the counters of thread 1 are not summed
 */
#define ROUNDS 2

/* Addresses: of thread t's counters, PINS + t and UNPINS + t. */
#define PINS 0
#define UNPINS 2
#define HANDED 4 /* 1: thread 0 has left a pin; 2: it will not */
#define STATE 5
#define KEY 6
#define WAITING 7 /* the pool's attention: somebody waits, or a slot is doomed */

/* A slot's life: generation * 4 + state. */
#define LIVE 0
#define CLOSED 1
#define DOOMED 2
#define EMPTY 3
#define GONE 9
#define state_in(life) ((life) & 3)

byte memory[8];
chan buffer[3] = [3] of { byte, byte };
byte translation; /* the key for which the slot's translation was installed */
bool event;
byte finished;
byte at, what; /* only within a d_step */

#define store(address, value) buffer[me] ! address, value

inline drain(which)
{
    do
    :: len(buffer[which]) > 0 ->
        buffer[which] ? at, what;
        memory[at] = what
    :: else -> break
    od
}

inline heavy()
{
#ifndef NO_BARRIER
    d_step {
        drain(0);
        drain(1);
        drain(2);
        at = 0;
        what = 0
    }
#else
    skip
#endif
}

/* Every load is a step of its own, unpins before pins. */
inline sums()
{
    pinned = 0 - memory[UNPINS];
    pinned = pinned + memory[PINS];
#ifndef SUM_SHORT
    pinned = pinned - memory[UNPINS + 1];
    pinned = pinned + memory[PINS + 1]
#endif
}

/* Under the lock, hence one step: of two that try, one finds the slot doomed. */
inline retire_if_free()
{
    sums();
    if
    :: pinned == 0 ->
        d_step {
            if
            :: state_in(memory[STATE]) == DOOMED ->
                memory[STATE] = EMPTY;
                translation = GONE
            :: else
            fi
        }
    :: else
    fi;
    pinned = 0
}

inline let_go(address, value)
{
#ifdef FLAG_FIRST
    seen = memory[WAITING];
    store(address, value);
#else
    store(address, value);
    seen = memory[WAITING];
#endif
    if
    :: seen ->
        event = true;
#ifdef DOOM
        if
        :: state_in(memory[STATE]) == DOOMED ->
#ifndef NO_REAP_BARRIER
            heavy();
#endif
            retire_if_free()
        :: else
        fi
#endif
    :: else
    fi;
    seen = 0
}

inline unpin()
{
    assert(translation == 0);
    unpins++;
    let_go(UNPINS + me, unpins)
}

proctype thread(byte me)
{
    byte pins, unpins, round, seen, life;
    bool live;
    short pinned;
    do
    :: round < ROUNDS ->
        round++;
        life = memory[STATE];
        if
        :: state_in(life) == LIVE && memory[KEY] == 0 ->
#ifdef CHECK_FIRST
            live = memory[STATE] == life;
#endif
            pins++;
            store(PINS + me, pins);
#ifndef CHECK_FIRST
#ifdef NO_IDENTITY
            live = state_in(memory[STATE]) == LIVE;
#else
            live = memory[STATE] == life;
#endif
#endif
            life = 0;
            if
            :: live ->
                live = false;
                assert(translation == 0);
                if
                :: unpin()
                :: me == 0 && round == ROUNDS ->
                    round++;
                    store(HANDED, 1)
                fi
            :: else ->
                pins--;
                let_go(PINS + me, pins)
            fi
        :: else -> life = 0
        fi
    :: else -> break
    od;
    if
    :: me == 0 && round == ROUNDS -> store(HANDED, 2)
    :: me == 0 && round > ROUNDS
    :: me == 1 && memory[HANDED] == 1 -> unpin()
    :: me == 1 && memory[HANDED] == 2
    fi;
    finished++
}

#ifdef EVICT
proctype other()
{
    byte me = 2;
    byte key = 1, generation;
    bool queued;
    short pinned;
look:
    sums();
    if
    :: pinned != 0 -> goto wait
    :: else
    fi;
    store(STATE, generation * 4 + CLOSED);
#ifndef NO_CLOSE_BARRIER
    heavy();
#endif
    sums();
    if
    :: pinned != 0 ->
        store(STATE, generation * 4 + LIVE);
        goto wait
    :: else
    fi;
    translation = key;
    generation++;
    store(KEY, key);
    store(STATE, generation * 4 + LIVE);
    if
    :: key == 0 -> goto done
    :: else
    fi;
    /* Once more, back to the first key: what a thread saw before may look as if nothing was. */
    key = 0;
    pinned = 0;
    if
    :: queued ->
        queued = false;
        store(WAITING, 0)
    :: else
    fi;
    goto look;
wait:
    pinned = 0;
    if
    :: queued -> event == true
    :: else ->
        queued = true;
        store(WAITING, 1)
    fi;
    event = false;
#ifndef NO_WAIT_BARRIER
    heavy();
#endif
    goto look;
done:
    pinned = 0;
    finished++
}
#endif

#ifdef DOOM
proctype other()
{
    byte me = 2;
    short pinned;
    store(STATE, DOOMED);
#ifndef ATTENTION_LATE
    store(WAITING, 1);
#endif
#ifndef NO_CLOSE_BARRIER
    heavy();
#endif
#ifdef ATTENTION_LATE
    store(WAITING, 1);
#endif
    retire_if_free();
    finished++
}
#endif

#define drain_one(which)                                                                           \
    d_step {                                                                                       \
        len(buffer[which]) > 0 ->                                                                  \
        buffer[which] ? at, what;                                                                  \
        memory[at] = what;                                                                         \
        at = 0;                                                                                    \
        what = 0                                                                                   \
    }

/* Buffers drain when they like. */
proctype drainer()
{
end:
    do
    :: drain_one(0)
    :: drain_one(1)
    :: drain_one(2)
    od
}

init
{
    atomic {
        run thread(0);
        run thread(1);
        run other();
        run drainer()
    }
    finished == 3 && len(buffer[0]) + len(buffer[1]) + len(buffer[2]) == 0;
#ifdef DOOM
    assert(state_in(memory[STATE]) == EMPTY)
#endif
}
