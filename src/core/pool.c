/* SPDX-License-Identifier: MIT */
/*
 * The invariant, from which the rest follows (docs/POOL.md has the proof, models/pin.pml checks
 * it):
 *
 *     A slot's translation, key and generation change only after it has left LIVE, a heavy barrier
 *     has passed, and sums() has found as many unpins as pins.
 *
 * A pin counts first and looks at the state after; the evictor stores the state first and counts
 * after. With the barriers in between at least one of them notices the other: the pin backs off,
 * or the evictor sees it.
 *
 * sums() counts all unpins before any pins. An unpin it has seen came after its pin, so that pin
 * is seen as well; what it misses can only make the slot look pinned. So it does not matter in
 * which threads a slot is pinned and unpinned, nor that counting takes time.
 *
 * Everything but the hit and the unpin is done by whoever needs a slot, under one lock. No hold of
 * it looks at more than POOL_STRIDE slots and two hash chains, and at the threads that sleep, once;
 * what takes longer (scanning, barriers, installing, dropping) is done by a thread that has marked
 * the slots, or itself as the evictor, and let go of the lock.
 */
#include "core/pool_parts.h"

/* Counting. */

static struct pool_counter *counter_grow(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    struct pool_counter *counter = pool_counter(block, slot);
    if (counter)
        return counter;
    struct pool_counter *chunk = machine_chunk(pool, POOL_CHUNK * sizeof(*chunk));
    if (!chunk)
        return NULL;
    pool_chunk_add(block, slot, chunk);
    return chunk + slot % POOL_CHUNK;
}

/*
 * A counter of pins that is at its end begins again at 0, and the unpins are set ahead by as much.
 * Until both are stored the slot looks pinned once more than it is. Not while a pin or unpin of the
 * block's is in progress, whose note it would belie.
 */
static void renew_locked(struct pool_block *block, struct pool_counter *counter)
{
    if (atomic_load_explicit(&counter->pins, memory_order_relaxed) != UINT32_MAX)
        return;
    atomic_store_explicit(&counter->pins, 0, memory_order_release);
    pool_count_unpin(counter, atomic_load_explicit(&counter->unpins, memory_order_relaxed));
    atomic_store_explicit(&block->renewals,
                          atomic_load_explicit(&block->renewals, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* State changes need the lock, so under it a pin needs no second look. */
static void pin_locked(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    struct pool_counter *counter = block ? counter_grow(pool, block, slot) : NULL;
    const bool own = counter != NULL;
    /* Without counters of its own the lock makes up for these being shared. */
    if (!own) {
        block = &pool->common;
        counter = pool_counter(block, slot);
    }
    renew_locked(block, counter);
    const uint32_t pins = atomic_load_explicit(&counter->pins, memory_order_relaxed);
    if (own)
        pool_note_set(block, slot + 1, pins);
    atomic_store_explicit(&counter->pins, pins + 1, memory_order_release);
}

void pool_unpin_common(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    lock(pool);
    struct pool_counter *counter = block ? counter_grow(pool, block, slot) : NULL;
    if (!counter)
        counter = pool_counter(&pool->common, slot);
    pool_count_unpin(counter, atomic_load_explicit(&counter->unpins, memory_order_relaxed));
    unlock(pool);
    if (pool_is_awaited(pool, machine_barrier_light))
        pool_unpin_slow(pool, slot);
}

uint32_t pool_walk(struct pool *pool, uint32_t slot, struct pool_key key)
{
    for (int steps = 0; steps < 64 && slot != POOL_NONE; steps++) {
        if (pool_slot_holds(&pool->slots[slot], key))
            return slot;
        slot = atomic_load_explicit(&pool->slots[slot].next, memory_order_acquire);
    }
    return POOL_NONE;
}

void pool_give_up(struct pool *pool, struct pool_block *block)
{
    uint32_t before;
    const uint32_t note = pool_note_get(block, &before);
    if (!note)
        return;
    const uint32_t slot = note - 1;
    atomic_store_explicit(&pool_counter(block, slot)->pins, before, memory_order_release);
    pool_settle(block);
    if (pool_is_awaited(pool, machine_barrier_light))
        pool_unpin_slow(pool, slot);
}

/* Pinning, the slow way. */

/* The slot holds the key: 0 = pinned; 1 = another thread is at it, look again. */
static int pin_found_locked(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    switch (state_of(pool, slot)) {
    case POOL_IDLE:
        remove_idle_locked(pool, slot);
        machine_restore(pool, slot);
        pool->counts.revived++;
        __attribute__((fallthrough));
    case POOL_CLOSED:
    case POOL_LIVE:
        pin_locked(pool, block, slot);
        set_state_locked(pool, slot, POOL_LIVE);
        return 0;
    default:
        sleep_for_change_locked(pool);
        return 1;
    }
}

/*
 * Finds a slot in which the request may be installed, out of all lists and not in the hash table.
 * 1: *slot is it; 0: there is none; TAKE_AGAIN: the lock was let go, look again; else an error.
 */
enum { TAKE_AGAIN = 2 };
static int take_locked(struct pool *pool, void *request, uint32_t *slot)
{
    *slot = pop_empty_locked(pool);
    if (*slot != POOL_NONE) {
        const int admitted = machine_admit(pool, *slot, request);
        if (admitted > 0) {
            pool->taken++;
            return admitted;
        }
        push_empty_locked(pool, *slot);
        if (admitted < 0)
            return admitted;
    }
    *slot = pool->idle_head;
    if (*slot == POOL_NONE)
        return 0;
    const int admitted = machine_admit(pool, *slot, request);
    if (admitted > 0) {
        remove_idle_locked(pool, *slot);
        unhash_locked(pool, *slot);
    } else if (!admitted) {
        pool_retire_oldest_locked(pool);
        return TAKE_AGAIN;
    }
    return admitted;
}

/* Installs the translation in the slot and pins it. Lets go of the lock meanwhile. */
static int fill_locked(struct pool *pool, struct pool_block *block, uint32_t slot,
                       struct pool_key key, void *request)
{
    hash_locked(pool, slot, key);
    begin_generation_locked(pool, slot, POOL_FILLING);
    pool->in_transit++;
    unlock(pool);
    const int err = machine_install(pool, slot, request);
    lock(pool);
    if (err) {
        unhash_locked(pool, slot);
        put_away_locked(pool, slot);
    } else {
        pool->counts.misses++;
        pin_locked(pool, block, slot);
        /* The first pin is no second use: what is wanted once goes before what is wanted again. */
        atomic_fetch_add_explicit(&pool->slots[slot].seen, 1, memory_order_relaxed);
        set_state_locked(pool, slot, POOL_LIVE);
    }
    end_transit_locked(pool);
    return err;
}

/* One thread's wish for a slot. */
struct wish {
    struct pool_key key;
    void *request;
    uint64_t deadline;
    bool queued;
    struct pool_waiter waiter;
};

static void leave_queue_locked(struct pool *pool, struct wish *wish)
{
    if (!wish->queued)
        return;
    dequeue_locked(pool, &pool->starving, &wish->waiter);
    atomic_fetch_sub_explicit(&pool->attention, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&pool->waiting, 1, memory_order_relaxed);
    wish->queued = false;
    signal_starving_locked(pool); /* what is left may do for the next */
}

static bool is_first_locked(const struct pool *pool, const struct wish *wish)
{
    return !pool->starving.head || pool->starving.head == &wish->waiter;
}

/* Looks whether anything can be evicted. 1: nothing can; 0: something may have been. */
static int look_for_room_locked(struct pool *pool, struct wish *wish)
{
    if (pool->evicting || pool->retiring || pool->frozen) {
        sleep_for_change_locked(pool);
        return 0;
    }
    /* Cleared before the look: what is unpinned during it sets the event, and we do not sleep. */
    if (wish->queued)
        machine_event_clear(&wish->waiter.event);
    const uint32_t taken = pool->taken;
    uint32_t reaped = 0;
    const int count = pool_evict_locked(pool, wish->queued || !wish->deadline, &reaped);
    /* Or others have made the room meanwhile, or are about to. */
    if (count > 0 || reaped || pool->idle_head != POOL_NONE || pool->taken < taken ||
        pool->retiring)
        return 0;
    return count < 0 ? -MF_EAGAIN : 1;
}

/*
 * Finds room by eviction, or waits for it. 0: look again. Only the first in the queue looks. Only
 * from inside the queue, and after a barrier, is it certain that the next unpin will wake us; so
 * whoever has found nothing from outside queues up and looks once more before it sleeps.
 */
static int make_room_locked(struct pool *pool, struct wish *wish)
{
    const bool first = is_first_locked(pool, wish);
    if (first) {
        const int full = look_for_room_locked(pool, wish);
        if (full <= 0)
            return full;
    }
    if (!wish->deadline)
        return -MF_EAGAIN;
    if (!wish->queued) {
        enqueue_locked(&pool->starving, &wish->waiter);
        atomic_fetch_add_explicit(&pool->attention, 1, memory_order_relaxed);
        /* seq_cst: pairs with pool_budget_changed */
        atomic_fetch_add_explicit(&pool->waiting, 1, memory_order_seq_cst);
        wish->queued = true;
        pool->counts.waits++;
        if (is_first_locked(pool, wish))
            return 0;
    }
    unlock(pool);
    const bool woken = machine_event_wait(&wish->waiter.event, wish->deadline);
    lock(pool);
    return woken ? 0 : -MF_ETIMEDOUT;
}

static int pin_slow_locked(struct pool *pool, struct pool_block *block, struct wish *wish,
                           uint32_t *slot)
{
    for (;;) {
        const uint32_t found = lookup_locked(pool, wish->key);
        if (found != POOL_NONE) {
            *slot = found;
            if (pin_found_locked(pool, block, found) == 0)
                return 0;
            continue;
        }
        if (pool->frozen) {
            sleep_for_change_locked(pool);
            continue;
        }
        int err = is_first_locked(pool, wish) ? take_locked(pool, wish->request, slot) : 0;
        if (err < 0)
            return err;
        if (err == TAKE_AGAIN)
            continue;
        if (err) {
            err = fill_locked(pool, block, *slot, wish->key, wish->request);
            if (err != -MF_ENOMEM)
                return err;
            /* Give up what is idle, a batch at a time, until the world has room or nothing is. */
            uint32_t reaped = 0;
            if (!pool_retire_oldest_locked(pool) && pool_evict_locked(pool, true, &reaped) <= 0 &&
                !reaped && pool->idle_head == POOL_NONE)
                return err;
            while (pool_retire_oldest_locked(pool))
                ;
            continue;
        }
        if (pool->kept != POOL_NONE && is_first_locked(pool, wish)) {
            if (pool_retire_kept_locked(pool))
                continue;
            if (!pool->taken)
                return -MF_ENOMEM; /* and there is nobody to wait for */
        }
        err = make_room_locked(pool, wish);
        if (err)
            return err;
    }
}

int pool_pin(struct pool *pool, struct pool_block *block, struct pool_key key, void *request,
             uint64_t deadline, uint32_t *slot)
{
    if (block && (*slot = pool_hit(pool, block, key)) != POOL_NONE)
        return 0;
    struct wish wish = {.key = key, .request = request, .deadline = deadline};
    lock(pool);
    const int err = pin_slow_locked(pool, block, &wish, slot);
    leave_queue_locked(pool, &wish);
    unlock(pool);
    return err;
}

void pool_unpin_slow(struct pool *pool, uint32_t slot)
{
    pool_reap(pool, slot, false);
    if (!atomic_load_explicit(&pool->waiting, memory_order_relaxed))
        return;
    lock(pool);
    if (!pool->evicting)
        pool->hand = slot; /* where the waiter will look first */
    signal_starving_locked(pool);
    unlock(pool);
}

void pool_budget_changed(struct pool *pool)
{
    if (!atomic_load_explicit(&pool->waiting, memory_order_seq_cst))
        return;
    lock(pool);
    signal_starving_locked(pool);
    unlock(pool);
}

bool pool_counter_ready(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    if (!block)
        return false;
    if (pool_counter(block, slot))
        return true;
    lock(pool);
    const bool ready = counter_grow(pool, block, slot) != NULL;
    unlock(pool);
    return ready;
}

bool pool_hit_ready(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    struct pool_counter *counter = pool_counter(block, slot);
    if (counter && atomic_load_explicit(&counter->pins, memory_order_relaxed) != UINT32_MAX)
        return true;
    lock(pool);
    counter = counter_grow(pool, block, slot);
    if (counter)
        renew_locked(block, counter);
    unlock(pool);
    if (counter && pool_is_awaited(pool, machine_barrier_light))
        pool_unpin_slow(pool, slot); /* it may have looked pinned */
    return counter != NULL;
}

/* Beginning, and fork. */

void pool_init(struct pool *pool, const struct pool_memory *memory)
{
    __builtin_memset(pool, 0, sizeof(*pool));
    pool->slots = memory->slots;
    pool->buckets = memory->buckets;
    pool->bucket_mask = (UINT32_C(1) << memory->bucket_bits) - 1;
    pool->capacity = memory->capacity;
    pool->batch = memory->batch;
    pool->batch_max = memory->batch_max;
    pool->empty = pool->kept = pool->idle_head = pool->idle_tail = POOL_NONE;
    for (uint32_t i = 0; i < memory->capacity; i += POOL_CHUNK)
        pool_chunk_add(&pool->common, i, memory->common_counters + i);
    atomic_store_explicit(&pool->blocks, &pool->common, memory_order_release);
}

void pool_block_add(struct pool *pool, struct pool_block *block)
{
    lock(pool);
    block->pool = pool;
    block->next = atomic_load_explicit(&pool->blocks, memory_order_relaxed);
    /* release: pairs with the acquire in sum_side() */
    atomic_store_explicit(&pool->blocks, block, memory_order_release);
    unlock(pool);
}

void pool_freeze(struct pool *pool)
{
    lock(pool);
    while (pool->frozen)
        sleep_for_change_locked(pool);
    pool->frozen = true;
    while (pool->in_transit || pool->evicting)
        sleep_for_change_locked(pool);
}

/* Ends what a thread that is gone had in progress: its pin is taken back, its unpin completed. Both
 * hold however far it had come. */
static void undo_note(struct pool_block *block)
{
    uint32_t before;
    const uint32_t note = pool_note_get(block, &before);
    if (!note)
        return;
    struct pool_counter *counter = pool_counter(block, (note & ~(uint32_t)POOL_NOTE_UNPIN) - 1);
    if (note & POOL_NOTE_UNPIN)
        atomic_store_explicit(&counter->unpins, before + 1, memory_order_relaxed);
    else
        atomic_store_explicit(&counter->pins, before, memory_order_relaxed);
    uint64_t *mark = atomic_load_explicit(&block->note_mark, memory_order_relaxed);
    if (mark)
        *mark = 0;
    pool_settle(block);
}

void pool_thaw(struct pool *pool, bool child)
{
    pool->frozen = false;
    if (!child) {
        signal_changes_locked(pool);
        signal_starving_locked(pool);
        unlock(pool);
        return;
    }
    pool->changes = pool->starving = (struct pool_queue){NULL, NULL};
    atomic_fetch_sub_explicit(&pool->attention,
                              atomic_load_explicit(&pool->waiting, memory_order_relaxed),
                              memory_order_relaxed);
    atomic_store_explicit(&pool->waiting, 0, memory_order_relaxed);
    for (struct pool_block *block = atomic_load_explicit(&pool->blocks, memory_order_relaxed);
         block; block = block->next)
        undo_note(block);
    const uint32_t used = pool->used;
    unlock(pool);
    /* Whoever unpinned them last may be gone. */
    for (uint32_t slot = 0; slot < used && pool_is_awaited(pool, machine_barrier_light); slot++)
        pool_reap(pool, slot, false);
}

static uint64_t count_pins(const struct pool_block *block, uint32_t used)
{
    /* In the very moment of a renewal it is off by UINT32_MAX. */
    uint64_t pins =
        (uint64_t)atomic_load_explicit(&block->renewals, memory_order_relaxed) * UINT32_MAX;
    for (uint32_t slot = 0; slot < used; slot++) {
        /* acquire: pairs with the release in pool_chunk_add */
        const uintptr_t chunk = pool_chunk(block, slot, memory_order_acquire);
        if (chunk)
            pins += atomic_load_explicit(&pool_counter_in(chunk, slot)->pins, memory_order_relaxed);
        else
            slot |= POOL_CHUNK - 1;
    }
    return pins;
}

void pool_count(struct pool *pool, struct pool_counts *counts)
{
    lock(pool);
    *counts = pool->counts;
    const uint32_t used = pool->used;
    unlock(pool);
    uint64_t pins = 0;
    for (const struct pool_block *block = atomic_load_explicit(&pool->blocks, memory_order_acquire);
         block; block = block->next)
        pins += count_pins(block, used);
    /* A pin that a fork has taken back is in one sum and not in the other. */
    const uint64_t others = counts->misses + counts->revived;
    counts->hits = pins > others ? pins - others : 0;
}
