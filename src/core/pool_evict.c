/* SPDX-License-Identifier: MIT */
/*
 * Taking slots back: counting pins, eviction, retiring, dooming. pool.c has the invariant; this
 * file is its second half, what comes after a slot has left LIVE.
 */
#include "core/pool_parts.h"

/* Counting. */

struct sums {
    uint32_t pins[POOL_STRIDE];
    uint32_t unpins[POOL_STRIDE];
};

static void sum_side(struct pool *pool, const uint32_t *slots, uint32_t count, uint32_t *total,
                     bool pins)
{
    for (struct pool_block *block = atomic_load_explicit(&pool->blocks, memory_order_acquire);
         block; block = block->next)
        for (uint32_t i = 0; i < count; i++) {
            /* acquire: pairs with the release in pool_chunk_add */
            const uintptr_t chunk = pool_chunk(block, slots[i], memory_order_acquire);
            if (!chunk)
                continue;
            const struct pool_counter *counter = pool_counter_in(chunk, slots[i]);
            /* acquire: orders all reads of unpins before those of pins, and the slot's reuse after
             * what the last user did with it (pairs with the release in pool_count_unpin) */
            total[i] += atomic_load_explicit(pins ? &counter->pins : &counter->unpins,
                                             memory_order_acquire);
        }
}

/* All unpins before any pins: see the top of pool.c. Lock-free. count <= POOL_STRIDE. */
static void sums(struct pool *pool, const uint32_t *slots, uint32_t count, struct sums *sum)
{
    __builtin_memset(sum, 0, sizeof(*sum));
    sum_side(pool, slots, count, sum->unpins, false);
    sum_side(pool, slots, count, sum->pins, true);
}

uint32_t pool_pinned(struct pool *pool, uint32_t slot)
{
    struct sums sum;
    sums(pool, &slot, 1, &sum);
    return sum.pins[0] - sum.unpins[0];
}

/* Retiring. */

/* Retires a slot that is out of the hash table and the lists; false: its translation stays. */
static bool retire_locked(struct pool *pool, uint32_t slot)
{
    set_state_locked(pool, slot, POOL_BUSY);
    pool->in_transit++;
    pool->retiring++;
    unlock(pool);
    machine_retire(pool, slot);
    lock(pool);
    begin_generation_locked(pool, slot, POOL_EMPTY);
    put_away_locked(pool, slot);
    const bool gone = !machine_is_kept(pool, slot);
    pool->retiring--;
    end_transit_locked(pool);
    return gone;
}

/* No fork gets in between: the lock is free only while a slot is in transit. */
bool pool_retire_kept_locked(struct pool *pool)
{
    bool gone = false;
    uint32_t slot = pool->kept;
    pool->kept = POOL_NONE;
    while (slot != POOL_NONE) {
        const uint32_t next = pool->slots[slot].link;
        pool->steps++;
        pool->taken++;
        gone |= retire_locked(pool, slot);
        slot = next;
    }
    return gone;
}

/* After a heavy barrier since the slot was doomed. Two may try at once: the second finds it gone.
 * During a fork the evictor leaves the slot to whoever unpinned it, or to the next round. Whether
 * its translation has gone. */
static bool reap_unless_pinned(struct pool *pool, uint32_t slot, uint32_t doomed, bool evictor)
{
    if (life_of(pool, slot) != doomed || pool_pinned(pool, slot))
        return false;
    bool gone = false;
    lock(pool);
    /* A fork waits for the evictor, so the evictor must not wait for the fork. */
    while (pool->frozen && !evictor)
        sleep_for_change_locked(pool);
    if (!pool->frozen && life_of(pool, slot) == doomed) {
        atomic_fetch_sub_explicit(&pool->attention, 1, memory_order_relaxed);
        gone = retire_locked(pool, slot);
    }
    unlock(pool);
    return gone;
}

/*
 * Retires a doomed slot with its last unpin. The barrier is not for this thread, but for a pin that
 * saw LIVE before another thread doomed the slot: pairs with the light one in pool_try. Where it
 * cannot be had, the slot is left to the evictor.
 */
bool pool_reap(struct pool *pool, uint32_t slot, bool evictor)
{
    const uint32_t life = life_of(pool, slot);
    return pool_life_state(life) == POOL_DOOMED && machine_barrier_heavy() &&
           reap_unless_pinned(pool, slot, life, evictor);
}

/* Eviction. The evictor is one thread at a time; hand, seen and batch are its own. */

/*
 * Walks the hand round once and adds to the `found` in the batch those that look idle, until they
 * are as many as wanted. Looks only: whether a slot is idle indeed is found out when it is closed.
 */
static uint32_t choose(struct pool *pool, uint32_t used, uint32_t found, uint32_t want,
                       bool spare_recent, uint32_t *reaped)
{
    uint32_t steps = used;
    while (steps && found < want) {
        uint32_t slots[POOL_STRIDE], count = 0;
        for (; count < POOL_STRIDE && count < steps; count++) {
            slots[count] = pool->hand < used ? pool->hand : 0;
            pool->hand = slots[count] + 1;
        }
        steps -= count;
        struct sums sum;
        sums(pool, slots, count, &sum);
        for (uint32_t i = 0; i < count; i++) {
            struct pool_slot *slot = &pool->slots[slots[i]];
            const uint32_t state = state_of(pool, slots[i]);
            if (state == POOL_DOOMED && sum.pins[i] == sum.unpins[i])
                *reaped += pool_reap(pool, slots[i], true);
            if (state != POOL_LIVE || sum.pins[i] != sum.unpins[i])
                continue;
            const bool recent =
                atomic_load_explicit(&slot->seen, memory_order_relaxed) != sum.pins[i];
            atomic_store_explicit(&slot->seen, sum.pins[i], memory_order_relaxed);
            if (!(recent && spare_recent) && found < want)
                pool->batch[found++] = slots[i];
        }
    }
    return found;
}

/* Changes the state of all in the batch from `first` on that are in state `from`; the others leave
 * it. Those that sums() finds pinned change to LIVE instead, and leave too. How many the batch has
 * then. */
static uint32_t advance_from(struct pool *pool, uint32_t first, uint32_t count,
                             enum pool_state from, enum pool_state to)
{
    uint32_t kept = first;
    for (; first < count; first += POOL_STRIDE) {
        const uint32_t n = count - first < POOL_STRIDE ? count - first : POOL_STRIDE;
        struct sums sum = {{0}, {0}};
        if (to == POOL_DROPPING)
            sums(pool, pool->batch + first, n, &sum);
        lock(pool);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t slot = pool->batch[first + i];
            pool->steps++;
            if (state_of(pool, slot) != from)
                continue;
            if (sum.pins[i] != sum.unpins[i]) {
                set_state_locked(pool, slot, POOL_LIVE);
                continue;
            }
            if (to == POOL_IDLE)
                append_idle_locked(pool, slot);
            else
                set_state_locked(pool, slot, to);
            pool->batch[kept++] = slot;
        }
        unlock(pool);
    }
    return kept;
}

static uint32_t advance(struct pool *pool, uint32_t count, enum pool_state from, enum pool_state to)
{
    return advance_from(pool, 0, count, from, to);
}

/*
 * Fills the batch with slots that were LIVE and are CLOSED now. The hand goes round twice for such
 * as were not used since it came by, and if there are none a third time for any. What a lap has
 * found is closed before the next: otherwise it would be found again, and take up another's place.
 */
static uint32_t close_some(struct pool *pool, uint32_t used, uint32_t want, uint32_t *reaped)
{
    uint32_t count = 0;
    for (unsigned lap = 0; count < want && (lap < 2 || (lap == 2 && !count)); lap++) {
        const uint32_t found = choose(pool, used, count, want, lap < 2, reaped);
        count = advance_from(pool, count, found, POOL_LIVE, POOL_CLOSED);
    }
    return count;
}

/*
 * How many a round drops. A slot that is revived has cost its place in a round and was of no use to
 * another key. So that every round frees as many slots for other keys, half of those in use or
 * batch_max, it drops as many more as were revived since the last one. The bound, a quarter, is for
 * pools whose pages are nearly all wanted again: there more drops make more revivals.
 */
static uint32_t round_size(const struct pool *pool, uint32_t used, uint64_t again)
{
    const uint32_t half = used / 2 ? used / 2 : 1;
    const uint32_t net = pool->batch_max < half ? pool->batch_max : half;
    const uint32_t most = POOL_BATCH_ROOM(net);
    return again < most - net ? net + (uint32_t)again : most;
}

/* One round by the evictor: how many became idle, or -1 if there is no barrier. thorough: after it
 * has found none, there is none that was not pinned since before the call. */
static int evict(struct pool *pool, uint32_t used, uint32_t want, bool thorough, uint32_t *reaped)
{
    if (thorough && !machine_barrier_heavy()) /* pairs with the light one of an unpin */
        return -1;
    uint32_t count = close_some(pool, used, want, reaped);
    if (!count)
        return 0;
    if (!machine_barrier_heavy()) { /* pairs with the light one in pool_try */
        advance(pool, count, POOL_CLOSED, POOL_LIVE);
        return -1;
    }
    count = advance(pool, count, POOL_CLOSED, POOL_DROPPING);
    if (count) {
        machine_drop(pool, pool->batch, count);
        count = advance(pool, count, POOL_DROPPING, POOL_IDLE);
    }
    return (int)count;
}

/* Becomes the evictor as soon as it can, and evicts. */
int pool_evict_locked(struct pool *pool, bool thorough, uint32_t *reaped)
{
    while (pool->evicting || pool->frozen)
        sleep_for_change_locked(pool);
    pool->evicting = true;
    const uint32_t used = pool->used;
    const uint64_t revived = pool->counts.revived;
    const uint32_t want = round_size(pool, used, revived - pool->again);
    unlock(pool);
    const int count = evict(pool, used, want, thorough, reaped);
    lock(pool);
    pool->evicting = false;
    signal_changes_locked(pool);
    if (count > 0) {
        pool->again = revived;
        pool->counts.rounds++;
        pool->counts.evicted += (uint32_t)count;
        signal_starving_locked(pool);
    }
    return count;
}

bool pool_retire_oldest_locked(struct pool *pool)
{
    const uint32_t slot = pool->idle_head;
    if (slot == POOL_NONE)
        return false;
    remove_idle_locked(pool, slot);
    unhash_locked(pool, slot);
    retire_locked(pool, slot);
    return true;
}

/* Dooming. */

static void doom_locked(struct pool *pool, const struct pool_victim *victim)
{
    const uint32_t slot = victim->slot;
    while (pool_generation(pool, slot) == victim->generation) {
        switch (state_of(pool, slot)) {
        case POOL_LIVE:
        case POOL_CLOSED:
            unhash_locked(pool, slot);
            set_state_locked(pool, slot, POOL_DOOMED);
            atomic_fetch_add_explicit(&pool->attention, 1, memory_order_relaxed);
            return;
        case POOL_IDLE:
            remove_idle_locked(pool, slot);
            unhash_locked(pool, slot);
            retire_locked(pool, slot);
            return;
        case POOL_FILLING:
        case POOL_DROPPING:
        case POOL_BUSY:
            sleep_for_change_locked(pool);
            break;
        default:
            return;
        }
    }
}

void pool_doom(struct pool *pool, const struct pool_victim *victims, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        lock(pool);
        wait_for_thaw_locked(pool);
        pool->steps++;
        doom_locked(pool, &victims[i]);
        unlock(pool);
    }
    if (!count ||
        !machine_barrier_heavy()) /* pairs with the light one in pool_try, and of unpins */
        return;
    for (uint32_t i = 0; i < count; i++)
        reap_unless_pinned(pool, victims[i].slot, victims[i].generation << 3 | POOL_DOOMED, false);
}

uint32_t pool_shrink(struct pool *pool, uint32_t count)
{
    uint32_t gone = 0;
    lock(pool);
    while (gone < count) {
        wait_for_thaw_locked(pool);
        if (pool_retire_oldest_locked(pool))
            gone++;
        else if (pool_evict_locked(pool, true, &gone) <= 0 && pool->idle_head == POOL_NONE)
            break;
    }
    if (gone < count && pool->kept != POOL_NONE) {
        wait_for_thaw_locked(pool);
        gone += pool_retire_kept_locked(pool);
    }
    unlock(pool);
    return gone;
}
