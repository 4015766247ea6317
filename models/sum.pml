/* SPDX-License-Identifier: MIT */
/*
 * Counting pins of a slot that is not closed, as the fault handler and the evictor's first look do
 * (sums() in src/core/pool_evict.c): it must never find fewer than there are.
 *
 * Thread 0 has the slot pinned all the time, and counts. Thread 1 pins it and unpins it, or leaves
 * the pin to thread 2 to unpin; both have store buffers. Every load is a step of its own.
 *
 * Mistakes, each of which must be found:
 *   PINS_FIRST   pins are read before unpins
 *   MIXED        pins and unpins are read thread by thread
 */
#define ROUNDS 2

/* Addresses: of thread t's counters, PINS + t and UNPINS + t. */
#define PINS 0
#define UNPINS 3
#define HANDED 6

byte memory[7];
chan buffer[3] = [3] of { byte, byte };
byte at, what; /* only within a d_step */

#define store(address, value) buffer[me] ! address, value

proctype pinner(byte me)
{
    byte pins, unpins;
    do
    :: pins < ROUNDS ->
        pins++;
        store(PINS + me, pins);
        unpins++;
        store(UNPINS + me, unpins)
    :: break
    od;
    pins++;
    store(PINS + me, pins);
    store(HANDED, 1)
}

proctype heir(byte me)
{
end:
    memory[HANDED] == 1 -> store(UNPINS + me, 1)
}

proctype counter()
{
    short sum;
#ifdef MIXED
    sum = sum + memory[PINS];
    sum = sum - memory[UNPINS];
    sum = sum + memory[PINS + 1];
    sum = sum - memory[UNPINS + 1];
    sum = sum + memory[PINS + 2];
    sum = sum - memory[UNPINS + 2];
#else
#ifdef PINS_FIRST
    sum = sum + memory[PINS];
    sum = sum + memory[PINS + 1];
    sum = sum + memory[PINS + 2];
#endif
    sum = sum - memory[UNPINS];
    sum = sum - memory[UNPINS + 1];
    sum = sum - memory[UNPINS + 2];
#ifndef PINS_FIRST
    sum = sum + memory[PINS];
    sum = sum + memory[PINS + 1];
    sum = sum + memory[PINS + 2];
#endif
#endif
    assert(sum > 0)
}

#define drain_one(which)                                                                           \
    d_step {                                                                                       \
        len(buffer[which]) > 0 ->                                                                  \
        buffer[which] ? at, what;                                                                  \
        memory[at] = what;                                                                         \
        at = 0;                                                                                    \
        what = 0                                                                                   \
    }

proctype drainer()
{
end:
    do
    :: drain_one(1)
    :: drain_one(2)
    od
}

init
{
    atomic {
        memory[PINS] = 1;
        run pinner(1);
        run heir(2);
        run counter();
        run drainer()
    }
}
