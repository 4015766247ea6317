/* SPDX-License-Identifier: MIT */
/*
 * What pool.c (pinning) and pool_evict.c (taking back) share: the lock, the slots' lists and hash
 * table, waiting. Private to them. All _locked functions are called under the lock.
 */
#ifndef MF_CORE_POOL_PARTS_H
#define MF_CORE_POOL_PARTS_H

#include "core/pool.h"

static inline void lock(struct pool *pool)
{
    const bool contended = machine_lock_acquire(&pool->lock);
    pool->counts.lock_taken++;
    pool->counts.lock_contended += contended;
}

static inline void unlock(struct pool *pool)
{
    pool->counts.lock_steps += pool->steps;
    if (pool->counts.lock_steps_max < pool->steps)
        pool->counts.lock_steps_max = pool->steps;
    pool->steps = 0;
    machine_lock_release(&pool->lock);
}

/* Slots, lists and the hash table. */

static inline uint32_t life_of(const struct pool *pool, uint32_t slot)
{
    return atomic_load_explicit(&pool->slots[slot].life, memory_order_acquire);
}

static inline uint32_t state_of(const struct pool *pool, uint32_t slot)
{
    return pool_life_state(life_of(pool, slot));
}

/* release: pairs with the acquire of life in pool_try; the slot is complete before it is LIVE */
static inline void set_state_locked(struct pool *pool, uint32_t slot, enum pool_state state)
{
    const uint32_t life = life_of(pool, slot);
    atomic_store_explicit(&pool->slots[slot].life, (life & ~7u) | state, memory_order_release);
}

static inline void begin_generation_locked(struct pool *pool, uint32_t slot, enum pool_state state)
{
    const uint32_t life = life_of(pool, slot);
    atomic_store_explicit(&pool->slots[slot].life, ((life & ~7u) + 8) | state,
                          memory_order_release);
}

static inline uint32_t lookup_locked(struct pool *pool, struct pool_key key)
{
    uint32_t i = atomic_load_explicit(&pool->buckets[pool_hash(pool, key)], memory_order_relaxed);
    while (i != POOL_NONE && !pool_slot_holds(&pool->slots[i], key)) {
        pool->steps++;
        i = atomic_load_explicit(&pool->slots[i].next, memory_order_relaxed);
    }
    pool->steps++;
    return i;
}

static inline void hash_locked(struct pool *pool, uint32_t slot, struct pool_key key)
{
    struct pool_slot *s = &pool->slots[slot];
    _Atomic uint32_t *bucket = &pool->buckets[pool_hash(pool, key)];
    atomic_store_explicit(&s->owner, key.owner, memory_order_relaxed);
    atomic_store_explicit(&s->index, key.index, memory_order_relaxed);
    atomic_store_explicit(&s->next, atomic_load_explicit(bucket, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(bucket, slot,
                          memory_order_release); /* pairs with acquire in pool_first */
}

static inline void unhash_locked(struct pool *pool, uint32_t slot)
{
    struct pool_slot *s = &pool->slots[slot];
    const struct pool_key key = {atomic_load_explicit(&s->owner, memory_order_relaxed),
                                 atomic_load_explicit(&s->index, memory_order_relaxed)};
    _Atomic uint32_t *at = &pool->buckets[pool_hash(pool, key)];
    uint32_t i;
    while ((i = atomic_load_explicit(at, memory_order_relaxed)) != slot) {
        pool->steps++;
        at = &pool->slots[i].next;
    }
    atomic_store_explicit(at, atomic_load_explicit(&s->next, memory_order_relaxed),
                          memory_order_release);
}

static inline uint32_t pop_empty_locked(struct pool *pool)
{
    const uint32_t slot = pool->empty;
    if (slot != POOL_NONE)
        pool->empty = pool->slots[slot].link;
    if (slot != POOL_NONE || pool->used == pool->capacity)
        return slot;
    set_state_locked(pool, pool->used, POOL_EMPTY);
    return pool->used++;
}

static inline void push_empty_locked(struct pool *pool, uint32_t slot)
{
    set_state_locked(pool, slot, POOL_EMPTY);
    pool->slots[slot].link = pool->empty;
    pool->empty = slot;
}

/* A slot in which nothing is, or should be. */
static inline void put_away_locked(struct pool *pool, uint32_t slot)
{
    pool->taken--;
    if (!machine_is_kept(pool, slot)) {
        push_empty_locked(pool, slot);
        return;
    }
    set_state_locked(pool, slot, POOL_EMPTY);
    pool->slots[slot].link = pool->kept;
    pool->kept = slot;
}

static inline void append_idle_locked(struct pool *pool, uint32_t slot)
{
    set_state_locked(pool, slot, POOL_IDLE);
    pool->slots[slot].link = POOL_NONE;
    pool->slots[slot].before = pool->idle_tail;
    if (pool->idle_tail != POOL_NONE)
        pool->slots[pool->idle_tail].link = slot;
    else
        pool->idle_head = slot;
    pool->idle_tail = slot;
}

static inline void remove_idle_locked(struct pool *pool, uint32_t slot)
{
    const struct pool_slot *s = &pool->slots[slot];
    if (s->before != POOL_NONE)
        pool->slots[s->before].link = s->link;
    else
        pool->idle_head = s->link;
    if (s->link != POOL_NONE)
        pool->slots[s->link].before = s->before;
    else
        pool->idle_tail = s->before;
}

/* Waiting. A waiter stands in one queue, on its own stack. */

static inline void enqueue_locked(struct pool_queue *queue, struct pool_waiter *waiter)
{
    waiter->next = NULL;
    machine_event_clear(&waiter->event);
    if (queue->head)
        queue->tail->next = waiter;
    else
        queue->head = waiter;
    queue->tail = waiter;
}

static inline void count_passed_locked(struct pool *pool, uint32_t passed)
{
    pool->counts.passed += passed;
    if (pool->counts.passed_max < passed)
        pool->counts.passed_max = passed;
}

static inline void dequeue_locked(struct pool *pool, struct pool_queue *queue,
                                  struct pool_waiter *waiter)
{
    struct pool_waiter **at = &queue->head, *before = NULL;
    uint32_t passed = 1;
    for (; *at != waiter; passed++) {
        before = *at;
        at = &before->next;
    }
    count_passed_locked(pool, passed);
    *at = waiter->next;
    if (queue->tail == waiter)
        queue->tail = before;
}

/* A slot may have become free: the first in the queue shall look. */
static inline void signal_starving_locked(struct pool *pool)
{
    if (pool->starving.head)
        machine_event_set(&pool->starving.head->event);
}

static inline void signal_changes_locked(struct pool *pool)
{
    struct pool_waiter *waiter = pool->changes.head;
    pool->changes = (struct pool_queue){NULL, NULL};
    uint32_t passed = 0;
    for (; waiter; passed++) {
        struct pool_waiter *next = waiter->next; /* once set, the waiter may be gone */
        machine_event_set(&waiter->event);
        waiter = next;
    }
    count_passed_locked(pool, passed);
}

/* Sleeps until another thread has finished what it does with a slot or as the evictor. */
static inline void sleep_for_change_locked(struct pool *pool)
{
    struct pool_waiter waiter;
    enqueue_locked(&pool->changes, &waiter);
    unlock(pool);
    machine_event_wait(&waiter.event, UINT64_MAX);
    lock(pool);
}

/* Before a call takes a slot out of its state: a fork under way goes first. */
static inline void wait_for_thaw_locked(struct pool *pool)
{
    while (pool->frozen)
        sleep_for_change_locked(pool);
}

static inline void end_transit_locked(struct pool *pool)
{
    pool->in_transit--;
    signal_changes_locked(pool);
    signal_starving_locked(pool);
}

/* pool_evict.c */

/* Becomes the evictor as soon as it can, and evicts: how many became idle, or -1 if there is no
 * heavy barrier. thorough: after it has found none, there is none that was not pinned since before
 * the call. *reaped grows by the doomed ones that it found unpinned, whose translations are gone.
 */
int pool_evict_locked(struct pool *pool, bool thorough, uint32_t *reaped);

/* Retires the slot that has been idle longest; false: none is idle. Lets go of the lock meanwhile.
 */
bool pool_retire_oldest_locked(struct pool *pool);

/* Tries again to remove what could not be removed; whether any of it went. Lets go of the lock
 * meanwhile. */
bool pool_retire_kept_locked(struct pool *pool);

/* Retires a slot if it is doomed and nobody has it pinned any more; whether its translation went.
 */
bool pool_reap(struct pool *pool, uint32_t slot, bool evictor);

#endif
