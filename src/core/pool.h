/* SPDX-License-Identifier: MIT */
/*
 * pool: a fixed number of slots, each holding one translation; idle ones are reused.
 *
 * What a translation is, is the machine's business (core/machine.h): an extent of a file in a
 * process, a page of high memory in a kernel. The pool knows which slot holds which key, who has it
 * pinned, and which to reuse.
 *
 * Rules for the caller:
 *  - Every thread (in a kernel: every processor, not interrupted meanwhile) passes a block of its
 *    own, made known by pool_block_add. It may be handed on to another thread when its owner is
 *    gone, with its counters as they are; it is never taken out. A thread without one passes NULL,
 *    and pays with the lock.
 *  - pool_pin gives a slot that stays what it is until pool_unpin, which any thread may call.
 *  - Between a pin and pool_settle a fork leaves no trace of the pin in the child; between
 *    pool_unpin_note and pool_settle it leaves the slot unpinned there. In both cases the word that
 *    was given as the owner's mark is 0 in the child, so that owner and counters agree. Without
 *    counters (block NULL, or memory out) this promise is not made.
 *  - pool_pin may sleep, and calls the machine. pool_unpin never waits for pins.
 *  - Only pool_pinned and pool_hit may be called from a handler that has interrupted another call,
 *    and of these pool_hit only with a block that the interrupted call does not use.
 */
#ifndef MF_CORE_POOL_H
#define MF_CORE_POOL_H

#include <stdatomic.h>

#include "core/machine.h"

enum {
    POOL_NONE = UINT32_MAX,
    POOL_SLOTS_MAX = 1 << 16,
    POOL_CHUNK = 256, /* slots whose counters stand together: 2 KiB */
    POOL_STRIDE = 16, /* the most slots looked at in one hold of the lock, beside a hash chain */
    POOL_NOTE_UNPIN = 1 << 30,
};

/*
 * The states of a slot. All changes are made under the lock.
 *   LIVE      may be pinned; the only state in which a pin succeeds
 *   EMPTY     no translation, no key
 *   FILLING   a thread is installing its translation; others that want the key wait
 *   CLOSED    the evictor is finding out whether it is pinned; a pin under the lock reopens it
 *   DROPPING  it is not, and its translation is being dropped; others that want the key wait
 *   IDLE      dropped, and the next but some to be reused; a pin under the lock revives it
 *   DOOMED    forgotten while pinned: no longer found by its key, retired with its last unpin
 *   BUSY      its translation is being retired; not found by its key
 * A slot is in the hash table from FILLING to IDLE.
 */
enum pool_state {
    POOL_LIVE, /* 0: what the hit asks for most cheaply. Slots never used have no state yet. */
    POOL_EMPTY,
    POOL_FILLING,
    POOL_CLOSED,
    POOL_DROPPING,
    POOL_IDLE,
    POOL_DOOMED,
    POOL_BUSY,
};

/* What a slot translates. The pool only compares keys. */
struct pool_key {
    uintptr_t owner;
    uintptr_t index;
};

struct pool_slot {
    _Atomic uint32_t life; /* generation << 3 | state; the generation counts translations */
    _Atomic uint32_t next; /* hash chain */
    _Atomic uintptr_t owner, index;
    uint32_t link;   /* list of empty or idle slots; under the lock */
    uint32_t before; /* the same, backwards, for idle ones */
    /* Pins counted when the evictor last came by, and the first of the translation: relaxed. */
    _Atomic uint32_t seen;
    struct machine_slot machine;
};

/* Pins and unpins of one slot by one thread, modulo 2^32. Each only grows, but pins begin again at
 * 0 when they are at their end. */
struct pool_counter {
    _Atomic uint32_t pins;
    _Atomic uint32_t unpins;
};

/* A pin or unpin in progress. what: slot + 1, with POOL_NOTE_UNPIN for an unpin; 0: none. before:
 * what that counter's pins, or unpins, were. One word where the machine has such, hence one store.
 */
struct pool_note {
#if UINTPTR_MAX > UINT32_MAX
    _Atomic uint64_t word; /* before << 32 | what */
#else
    _Atomic uint32_t what, before;
#endif
};

/* One thread's counters. Zero all of it, then pool_block_add. */
struct pool_block {
    /* What is in progress, for pool_thaw and pool_give_up; and the owner's mark, or NULL. */
    struct pool_note note;
    _Atomic(uint64_t *) note_mark;
    struct pool *pool;       /* constant once added */
    struct pool_block *next; /* the same */
    /* How often one of its counters of pins, at UINT32_MAX, has begun again at 0. */
    _Atomic uint32_t renewals;
    /* For each POOL_CHUNK slots, where the counter of slot 0 would be if all lay together; or 0. */
    _Atomic uintptr_t chunk[POOL_SLOTS_MAX / POOL_CHUNK];
};

struct pool_waiter {
    struct machine_event event;
    struct pool_waiter *next;
};

struct pool_queue {
    struct pool_waiter *head, *tail;
};

/* Under the lock, or the evictor's. Plain numbers: the machine adds them up. */
struct pool_counts {
    uint64_t hits; /* by pool_count: all pins but those that missed or revived */
    uint64_t misses, revived, evicted, rounds, waits;
    uint64_t lock_taken, lock_contended, lock_steps;
    uint64_t passed; /* sleepers woken or passed over in the queues, under the lock */
    uint32_t lock_steps_max;
    uint32_t passed_max; /* in one walk: bounded by the threads that sleep, not by the slots */
};

struct pool {
    /* Constant, read by every hit. */
    struct pool_slot *slots;
    _Atomic uint32_t *buckets;
    uint32_t bucket_mask;
    uint32_t capacity;
    uint32_t batch_max;

    /* Read by every unpin: how many threads wait, and slots are doomed, all told; a machine that
     * wants to see every unpin in pool_unpin_slow adds one. Written when one of these changes. */
    _Atomic uint32_t attention;
    _Atomic uint32_t waiting; /* threads */

    _Atomic(struct pool_block *) blocks __attribute__((aligned(64)));

    /* Under the lock. */
    struct machine_lock lock __attribute__((aligned(64)));
    uint32_t used; /* slots ever used: those from here on are EMPTY and in no list */
    uint32_t empty;
    uint32_t kept;  /* EMPTY slots whose translation could not be removed: machine_is_kept */
    uint32_t taken; /* slots neither in this list nor in the one of empty ones */
    uint32_t idle_head, idle_tail;
    uint32_t in_transit; /* slots that are FILLING or BUSY */
    uint32_t retiring;   /* those that are BUSY */
    uint32_t steps;      /* slots looked at in this hold of the lock */
    bool evicting;       /* a thread is the evictor: hand, seen and batch are its own */
    bool frozen;
    struct pool_queue starving; /* wait for a slot, first come first served */
    struct pool_queue changes;  /* wait for any end of FILLING, BUSY or the evictor */
    struct pool_counts counts;

    uint32_t hand;
    uint64_t again; /* counts.revived when the last round began */
    uint32_t *batch;
    struct pool_block common; /* for threads without a block; under the lock */
};

/* A round may drop a quarter more than batch_max, for what was revived: what batch has room for. */
#define POOL_BATCH_ROOM(batch_max) ((batch_max) + (batch_max) / 4)

/* What pool_init is given. buckets: a power of two, at least twice the slots. batch:
 * POOL_BATCH_ROOM(batch_max) numbers. All memory zeroed, but buckets filled with POOL_NONE.
 * common_counters: one counter a slot. */
struct pool_memory {
    struct pool_slot *slots;
    _Atomic uint32_t *buckets;
    uint32_t *batch;
    struct pool_counter *common_counters;
    uint32_t capacity; /* slots, 1 to POOL_SLOTS_MAX */
    uint32_t bucket_bits;
    uint32_t batch_max; /* 1 or more: the most slots that one round frees for other keys */
};

void pool_init(struct pool *pool, const struct pool_memory *memory);

/* Makes a zeroed block known, for good. */
void pool_block_add(struct pool *pool, struct pool_block *block);

/*
 * Pins the slot that holds key; where none does, installs one as request says, reusing idle slots.
 * deadline: 0 = do not wait for others' pins, UINT64_MAX = for ever.
 * 0; -EAGAIN (all is pinned and deadline is 0, or there is no heavy barrier), -ETIMEDOUT; what
 * machine_admit and machine_install say.
 */
int pool_pin(struct pool *pool, struct pool_block *block, struct pool_key key, void *request,
             uint64_t deadline, uint32_t *slot);

/* Before a pin: the word, not 0 once it is settled, by which its owner knows that there is one;
 * NULL: none. It goes for all pins until the next call. */
/* NOLINTNEXTLINE(readability-non-const-parameter): kept, to be written through */
static inline void pool_mark(struct pool_block *block, uint64_t *mark)
{
    if (block)
        /* release: after the settling of the pin before, also in the child of a fork */
        atomic_store_explicit(&block->note_mark, mark, memory_order_release);
}

static inline void pool_note_set(struct pool_block *block, uint32_t what, uint32_t before)
{
#if UINTPTR_MAX > UINT32_MAX
    atomic_store_explicit(&block->note.word, ((uint64_t)before << 32) + what, memory_order_release);
#else
    atomic_store_explicit(&block->note.before, before, memory_order_relaxed);
    atomic_store_explicit(&block->note.what, what, memory_order_release);
#endif
}

/* What is noted, and what was before; by its owner, or when that is gone. */
static inline uint32_t pool_note_get(const struct pool_block *block, uint32_t *before)
{
#if UINTPTR_MAX > UINT32_MAX
    const uint64_t word = atomic_load_explicit(&block->note.word, memory_order_relaxed);
    *before = (uint32_t)(word >> 32);
    return (uint32_t)word;
#else
    *before = atomic_load_explicit(&block->note.before, memory_order_relaxed);
    return atomic_load_explicit(&block->note.what, memory_order_relaxed);
#endif
}

/* The pin is the caller's to keep, or the unpin done. */
static inline void pool_settle(struct pool_block *block)
{
    if (block)
        pool_note_set(block, 0, 0);
}

/*
 * Dooms slots: those in use go with their last unpin, the others now. Only slots whose generation
 * is the one given (pool_generation when they were pinned or installed) are touched. One barrier
 * for all.
 */
struct pool_victim {
    uint32_t slot;
    uint32_t generation;
};
void pool_doom(struct pool *pool, const struct pool_victim *victims, uint32_t count);

/* The budget has grown, or its limits changed: whoever waits for it looks again. The change comes
 * before, sequentially consistent: pairs with a waiter's raising of `waiting` before it asks
 * machine_admit, which reads so too. */
void pool_budget_changed(struct pool *pool);

/* Makes the counter that an unpin needs; false: memory is out. */
bool pool_counter_ready(struct pool *pool, struct pool_block *block, uint32_t slot);

/* Makes the counter, with room for one pin more, that pool_hit needs and does not make. The block,
 * which is not NULL, has no pin in progress. false: memory is out. */
bool pool_hit_ready(struct pool *pool, struct pool_block *block, uint32_t slot);

/* Evicts and retires up to count slots that nobody has pinned; the number that went, with doomed
 * ones that were found unpinned. */
uint32_t pool_shrink(struct pool *pool, uint32_t count);

/* Pins of one slot not yet unpinned, those in progress included; never less than there are.
 * Lock-free and safe in a handler. */
uint32_t pool_pinned(struct pool *pool, uint32_t slot);

/* Waits until no call is between two states, and keeps all others out; for fork. */
void pool_freeze(struct pool *pool);
/* Ends it; in the child all other threads are gone, and so are their unfinished pins, and doomed
 * slots that nobody else has pinned. */
void pool_thaw(struct pool *pool, bool child);

/* pool_counts, at one moment; for the hits reads all counters that there are. */
void pool_count(struct pool *pool, struct pool_counts *counts);

/* The cold halves of pool_unpin: somebody waits, or the slot is doomed; and without counters. */
void pool_unpin_slow(struct pool *pool, uint32_t slot) __attribute__((cold));
void pool_unpin_common(struct pool *pool, struct pool_block *block, uint32_t slot)
    __attribute__((cold));

static inline uint32_t pool_life_state(uint32_t life)
{
    return life & 7;
}

static inline uint32_t pool_generation(const struct pool *pool, uint32_t slot)
{
    return atomic_load_explicit(&pool->slots[slot].life, memory_order_relaxed) >> 3;
}

/* 0, or what pool_counter_in finds the slot's counter by. */
static inline uintptr_t pool_chunk(const struct pool_block *block, size_t slot, memory_order order)
{
    return atomic_load_explicit(&block->chunk[slot / POOL_CHUNK], order);
}

static inline struct pool_counter *pool_counter_in(uintptr_t chunk, size_t slot)
{
    return (struct pool_counter *)(chunk + slot * sizeof(struct pool_counter));
}

/* For the block's owner. */
static inline struct pool_counter *pool_counter(const struct pool_block *block, uint32_t slot)
{
    const uintptr_t chunk = pool_chunk(block, slot, memory_order_relaxed);
    return chunk ? pool_counter_in(chunk, slot) : NULL;
}

/* A chunk of zeros, of which slot has its counter, becomes the block's. */
static inline void pool_chunk_add(struct pool_block *block, uint32_t slot,
                                  struct pool_counter *chunk)
{
    const uintptr_t before = slot / POOL_CHUNK * (POOL_CHUNK * sizeof(*chunk));
    /* release: pairs with the acquire in sum_side(); a fresh chunk is zero before it is seen */
    atomic_store_explicit(&block->chunk[slot / POOL_CHUNK], (uintptr_t)chunk - before,
                          memory_order_release);
}

/* Neighbours by index have neighbouring buckets, which share cache lines, in runs of 2048; where a
 * run begins, its number decides, so that indices in equal steps do not meet in few buckets. */
static inline uint32_t pool_hash(const struct pool *pool, struct pool_key key)
{
    const uintptr_t odd = (uintptr_t)0x9e3779b97f4a7c15, half = 4 * sizeof(uintptr_t);
    const uintptr_t owner = key.owner * odd >> half, run = (key.index >> 11) * odd >> half;
    return (uint32_t)(owner + run + key.index) & pool->bucket_mask;
}

static inline bool pool_slot_holds(const struct pool_slot *slot, struct pool_key key)
{
    return atomic_load_explicit(&slot->owner, memory_order_relaxed) == key.owner &&
           atomic_load_explicit(&slot->index, memory_order_relaxed) == key.index;
}

/*
 * What every unpin ends with, after it has written its counter: whether pool_unpin_slow has to look
 * closer. light: machine_barrier_light, or one that does as much where it is called.
 */
static inline __attribute__((always_inline)) bool pool_is_awaited(const struct pool *pool,
                                                                  void (*light)(void))
{
    light(); /* pairs with the heavy one of a waiter, and of pool_doom */
    return atomic_load_explicit(&pool->attention, memory_order_relaxed) != 0;
}

/*
 * Notes that an unpin is in progress; what the counter says until pool_count_unpin. Also turns the
 * note of a pin of the same slot into that of its unpin, by the one store of pool_note_set: both
 * leave the child the same sum.
 */
/* NOLINTNEXTLINE(readability-non-const-parameter): kept, to be written through */
static inline uint32_t pool_unpin_note(struct pool_block *block, struct pool_counter *counter,
                                       uint32_t slot, uint64_t *mark)
{
    const uint32_t before = atomic_load_explicit(&counter->unpins, memory_order_relaxed);
    pool_mark(block, mark);
    pool_note_set(block, slot + (1 + POOL_NOTE_UNPIN), before);
    return before;
}

/* Counts an unpin. What was done with the slot comes before (release: pairs with the acquire in
 * sums()). */
static inline void pool_count_unpin(struct pool_counter *counter, uint32_t before)
{
    atomic_store_explicit(&counter->unpins, before + 1, memory_order_release);
}

static inline void pool_unpin(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    struct pool_counter *counter = block ? pool_counter(block, slot) : NULL;
    if (!counter) {
        pool_unpin_common(pool, block, slot);
        return;
    }
    pool_count_unpin(counter, atomic_load_explicit(&counter->unpins, memory_order_relaxed));
    if (__builtin_expect(pool_is_awaited(pool, machine_barrier_light), false))
        pool_unpin_slow(pool, slot);
}

/* Takes back, by its note, a pin that was not settled and that nobody has been given; nothing if
 * there is none. */
void pool_give_up(struct pool *pool, struct pool_block *block) __attribute__((cold));

/* The slot in a chain that holds the key, found without the lock: the chain may change underfoot
 * and lead astray; that costs a look under the lock. */
uint32_t pool_walk(struct pool *pool, uint32_t slot, struct pool_key key) __attribute__((cold));

/* The first slot in the key's chain, or POOL_NONE. */
static inline uint32_t pool_first(const struct pool *pool, struct pool_key key)
{
    return atomic_load_explicit(&pool->buckets[pool_hash(pool, key)], memory_order_acquire);
}

/*
 * Pins slot i, which is *slot, if it holds the key, with no store but to the thread's own block.
 * false: it does not, or is closed; then, and if the pin turns out to be no use, pool_give_up must
 * follow. Calls nothing but light, so that a caller who leaves all else to a slow path of its own
 * keeps its registers. light: machine_barrier_light, or one that does as much where it is called.
 */
static inline __attribute__((always_inline)) bool pool_try(struct pool_block *block, uint32_t i,
                                                           const struct pool_slot *slot,
                                                           struct pool_key key, void (*light)(void))
{
    /* acquire: the key is looked at in this life or a later one; and the slot is read after it */
    const uint32_t life = atomic_load_explicit(&slot->life, memory_order_acquire);
    if (__builtin_expect(pool_life_state(life) != POOL_LIVE, false) ||
        __builtin_expect(!pool_slot_holds(slot, key), false))
        return false;
    const uintptr_t chunk = pool_chunk(block, i, memory_order_relaxed);
    if (__builtin_expect(!chunk, false))
        return false;
    struct pool_counter *counter = pool_counter_in(chunk, i);
    const uint32_t pins = atomic_load_explicit(&counter->pins, memory_order_relaxed);
    if (__builtin_expect(pins == UINT32_MAX, false))
        return false; /* at its end: pool_pin and pool_hit_ready renew it */
    pool_note_set(block, i + 1, pins);
    atomic_store_explicit(&counter->pins, pins + 1, memory_order_release);
    light(); /* pairs with the heavy one between CLOSED or DOOMED and sums() */

    /* LIVE in the same generation: from here on the slot stays what it is. */
    return __builtin_expect(atomic_load_explicit(&slot->life, memory_order_acquire) == life, true);
}

/*
 * The hit: no lock, no system call, no store but to the thread's own block. The slot, pinned and to
 * be settled; or POOL_NONE: the slow path must look.
 */
static inline uint32_t pool_hit(struct pool *pool, struct pool_block *block, struct pool_key key)
{
    uint32_t i = pool_first(pool, key);
    if (i != POOL_NONE && !pool_slot_holds(&pool->slots[i], key))
        i = pool_walk(pool, i, key);
    if (i == POOL_NONE || !pool_try(block, i, &pool->slots[i], key, machine_barrier_light)) {
        pool_give_up(pool, block);
        return POOL_NONE;
    }
    return i;
}

#endif
