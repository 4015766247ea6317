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
 * it looks at more than POOL_STRIDE slots and two hash chains; what takes longer (scanning,
 * barriers, installing, dropping) is done by a thread that has marked the slots, or itself as the
 * evictor, and let go of the lock.
 */
#include "core/pool.h"

static void lock(struct pool *pool)
{
    const bool contended = machine_lock_acquire(&pool->lock);
    pool->counts.lock_taken++;
    pool->counts.lock_contended += contended;
}

static void unlock(struct pool *pool)
{
    pool->counts.lock_steps += pool->steps;
    if (pool->counts.lock_steps_max < pool->steps)
        pool->counts.lock_steps_max = pool->steps;
    pool->steps = 0;
    machine_lock_release(&pool->lock);
}

/* Slots, lists and the hash table. All _locked functions are called under the lock. */

static uint32_t life_of(const struct pool *pool, uint32_t slot)
{
    return atomic_load_explicit(&pool->slots[slot].life, memory_order_acquire);
}

static uint32_t state_of(const struct pool *pool, uint32_t slot)
{
    return pool_life_state(life_of(pool, slot));
}

/* release: pairs with the acquire of life in pool_hit; the slot is complete before it is LIVE */
static void set_state_locked(struct pool *pool, uint32_t slot, enum pool_state state)
{
    const uint32_t life = life_of(pool, slot);
    atomic_store_explicit(&pool->slots[slot].life, (life & ~7u) | state, memory_order_release);
}

static void begin_generation_locked(struct pool *pool, uint32_t slot, enum pool_state state)
{
    const uint32_t life = life_of(pool, slot);
    atomic_store_explicit(&pool->slots[slot].life, ((life & ~7u) + 8) | state,
                          memory_order_release);
}

static uint32_t lookup_locked(struct pool *pool, struct pool_key key)
{
    uint32_t i = atomic_load_explicit(&pool->buckets[pool_hash(pool, key)], memory_order_relaxed);
    while (i != POOL_NONE && !pool_slot_holds(&pool->slots[i], key)) {
        pool->steps++;
        i = atomic_load_explicit(&pool->slots[i].next, memory_order_relaxed);
    }
    pool->steps++;
    return i;
}

static void hash_locked(struct pool *pool, uint32_t slot, struct pool_key key)
{
    struct pool_slot *s = &pool->slots[slot];
    _Atomic uint32_t *bucket = &pool->buckets[pool_hash(pool, key)];
    atomic_store_explicit(&s->owner, key.owner, memory_order_relaxed);
    atomic_store_explicit(&s->index, key.index, memory_order_relaxed);
    atomic_store_explicit(&s->next, atomic_load_explicit(bucket, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(bucket, slot, memory_order_release); /* pairs with acquire in pool_hit */
}

static void unhash_locked(struct pool *pool, uint32_t slot)
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

static uint32_t pop_empty_locked(struct pool *pool)
{
    const uint32_t slot = pool->empty;
    if (slot != POOL_NONE)
        pool->empty = pool->slots[slot].link;
    else if (pool->used < pool->capacity)
        return pool->used++;
    return slot;
}

static void push_empty_locked(struct pool *pool, uint32_t slot)
{
    set_state_locked(pool, slot, POOL_EMPTY);
    pool->slots[slot].link = pool->empty;
    pool->empty = slot;
}

static void append_idle_locked(struct pool *pool, uint32_t slot)
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

static void remove_idle_locked(struct pool *pool, uint32_t slot)
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

static void enqueue_locked(struct pool_queue *queue, struct pool_waiter *waiter)
{
    waiter->next = NULL;
    machine_event_clear(&waiter->event);
    if (queue->head)
        queue->tail->next = waiter;
    else
        queue->head = waiter;
    queue->tail = waiter;
}

static void dequeue_locked(struct pool_queue *queue, struct pool_waiter *waiter)
{
    struct pool_waiter **at = &queue->head, *before = NULL;
    while (*at != waiter) {
        before = *at;
        at = &before->next;
    }
    *at = waiter->next;
    if (queue->tail == waiter)
        queue->tail = before;
}

/* A slot may have become free: the first in the queue shall look. */
static void signal_starving_locked(struct pool *pool)
{
    if (pool->starving.head)
        machine_event_set(&pool->starving.head->event);
}

static void signal_changes_locked(struct pool *pool)
{
    struct pool_waiter *waiter = pool->changes.head;
    pool->changes = (struct pool_queue){NULL, NULL};
    while (waiter) {
        struct pool_waiter *next = waiter->next; /* once set, the waiter may be gone */
        machine_event_set(&waiter->event);
        waiter = next;
    }
}

/* Sleeps until another thread has finished what it does with a slot or as the evictor. */
static void sleep_for_change_locked(struct pool *pool)
{
    struct pool_waiter waiter;
    enqueue_locked(&pool->changes, &waiter);
    unlock(pool);
    machine_event_wait(&waiter.event, UINT64_MAX);
    lock(pool);
}

/* Before a call takes a slot out of its state: a fork under way goes first. */
static void wait_for_thaw_locked(struct pool *pool)
{
    while (pool->frozen)
        sleep_for_change_locked(pool);
}

static void end_transit_locked(struct pool *pool)
{
    pool->in_transit--;
    signal_changes_locked(pool);
    signal_starving_locked(pool);
}

/* Counting. */

static struct pool_counter *counter_grow(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    struct pool_counter *counter = pool_counter(block, slot);
    if (counter)
        return counter;
    struct pool_counter *chunk = machine_chunk(pool, POOL_CHUNK * sizeof(*chunk));
    if (!chunk)
        return NULL;
    /* release: pairs with the acquire in sums(); a fresh chunk is zero before it is seen */
    atomic_store_explicit(&block->chunk[slot / POOL_CHUNK], chunk, memory_order_release);
    return chunk + slot % POOL_CHUNK;
}

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
            struct pool_counter *chunk =
                atomic_load_explicit(&block->chunk[slots[i] / POOL_CHUNK], memory_order_acquire);
            if (!chunk)
                continue;
            chunk += slots[i] % POOL_CHUNK;
            /* acquire: orders all reads of unpins before those of pins, and the slot's reuse after
             * what the last user did with it (pairs with the release in pool_unpin) */
            total[i] +=
                atomic_load_explicit(pins ? &chunk->pins : &chunk->unpins, memory_order_acquire);
        }
}

/* All unpins before any pins: see the top of the file. Lock-free. count <= POOL_STRIDE. */
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

/* Without a block the lock makes up for the counters being shared. */
static void count_common_locked(struct pool *pool, uint32_t slot, bool pin)
{
    struct pool_counter *counter = pool_counter(&pool->common, slot);
    _Atomic uint32_t *side = pin ? &counter->pins : &counter->unpins;
    atomic_store_explicit(side, atomic_load_explicit(side, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* State changes need the lock, so under it a pin needs no second look. */
static void pin_locked(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    struct pool_counter *counter = block ? counter_grow(pool, block, slot) : NULL;
    if (!counter) {
        count_common_locked(pool, slot, true);
        return;
    }
    const uint32_t pins = atomic_load_explicit(&counter->pins, memory_order_relaxed);
    atomic_store_explicit(&block->note_pins, pins, memory_order_relaxed);
    atomic_store_explicit(&block->note_slot, slot + 1, memory_order_release);
    atomic_store_explicit(&counter->pins, pins + 1, memory_order_release);
}

void pool_unpin_common(struct pool *pool, struct pool_block *block, uint32_t slot)
{
    lock(pool);
    struct pool_counter *counter = block ? counter_grow(pool, block, slot) : NULL;
    if (counter)
        atomic_store_explicit(&counter->unpins,
                              atomic_load_explicit(&counter->unpins, memory_order_relaxed) + 1,
                              memory_order_release);
    else
        count_common_locked(pool, slot, false);
    unlock(pool);
    if (pool_is_awaited(pool, slot))
        pool_unpin_slow(pool, slot);
}

uint32_t pool_walk(struct pool *pool, uint32_t slot, struct pool_key key)
{
    for (int steps = 0; steps < 8 && slot != POOL_NONE; steps++) {
        if (pool_slot_holds(&pool->slots[slot], key))
            return slot;
        slot = atomic_load_explicit(&pool->slots[slot].next, memory_order_acquire);
    }
    return POOL_NONE;
}

void pool_hit_undo(struct pool *pool, struct pool_block *block, uint32_t slot, uint32_t pins)
{
    atomic_store_explicit(&pool_counter(block, slot)->pins, pins, memory_order_release);
    pool_settle(block);
    if (pool_is_awaited(pool, slot))
        pool_unpin_slow(pool, slot);
}

/* Retiring. */

/* Retires a slot that is out of the hash table and the lists. */
static void retire_locked(struct pool *pool, uint32_t slot)
{
    set_state_locked(pool, slot, POOL_BUSY);
    pool->in_transit++;
    pool->retiring++;
    unlock(pool);
    machine_retire(pool, slot);
    lock(pool);
    begin_generation_locked(pool, slot, POOL_EMPTY);
    push_empty_locked(pool, slot);
    pool->retiring--;
    end_transit_locked(pool);
}

/* After a heavy barrier since the slot was doomed. Two may try at once: the second finds it gone.
 * During a fork the evictor leaves the slot to whoever unpinned it, or to the next round. */
static void reap_unless_pinned(struct pool *pool, uint32_t slot, uint32_t doomed, bool evictor)
{
    if (life_of(pool, slot) != doomed || pool_pinned(pool, slot))
        return;
    lock(pool);
    /* A fork waits for the evictor, so the evictor must not wait for the fork. */
    while (pool->frozen && !evictor)
        sleep_for_change_locked(pool);
    if (!pool->frozen && life_of(pool, slot) == doomed)
        retire_locked(pool, slot);
    unlock(pool);
}

/*
 * Retires a doomed slot with its last unpin. The barrier is not for this thread, but for a pin that
 * saw LIVE before another thread doomed the slot: pairs with the light one in pool_hit. Where it
 * cannot be had, the slot is left to the evictor.
 */
static void reap(struct pool *pool, uint32_t slot, bool evictor)
{
    const uint32_t life = life_of(pool, slot);
    if (pool_life_state(life) == POOL_DOOMED && machine_barrier_heavy())
        reap_unless_pinned(pool, slot, life, evictor);
}

/* Eviction. The evictor is one thread at a time; hand, seen and batch are its own. */

/*
 * Walks the hand over at most `steps` slots and gathers those that look idle. Looks only: whether a
 * slot is idle indeed is found out when it is closed.
 */
static uint32_t choose(struct pool *pool, uint32_t used, uint32_t steps, uint32_t want,
                       bool spare_recent)
{
    uint32_t found = 0;
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
                reap(pool, slots[i], true);
            if (state != POOL_LIVE || sum.pins[i] != sum.unpins[i])
                continue;
            const bool recent = slot->seen != sum.pins[i];
            slot->seen = sum.pins[i];
            if (!(recent && spare_recent) && found < want)
                pool->batch[found++] = slots[i];
        }
    }
    return found;
}

/* Changes the state of all in the batch that are in state `from`; the others leave it. Those that
 * sums() finds pinned change to LIVE instead, and leave too. */
static uint32_t advance(struct pool *pool, uint32_t count, enum pool_state from, enum pool_state to)
{
    uint32_t kept = 0;
    for (uint32_t first = 0; first < count; first += POOL_STRIDE) {
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

/* One round by the evictor: how many became idle, or -1 if there is no barrier. thorough: after it
 * has found none, there is none that was not pinned since before the call. */
static int evict(struct pool *pool, uint32_t used, bool thorough)
{
    if (thorough && !machine_barrier_heavy()) /* pairs with the light one of an unpin */
        return -1;
    const uint32_t half = used / 2 ? used / 2 : 1;
    const uint32_t want = pool->batch_max < half ? pool->batch_max : half;
    uint32_t count = choose(pool, used, 2 * used, want, true);
    if (!count)
        count = choose(pool, used, used, want, false);
    count = advance(pool, count, POOL_LIVE, POOL_CLOSED);
    if (!count)
        return 0;
    if (!machine_barrier_heavy()) { /* pairs with the light one in pool_hit */
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
static int evict_locked(struct pool *pool, bool thorough)
{
    while (pool->evicting || pool->frozen)
        sleep_for_change_locked(pool);
    pool->evicting = true;
    const uint32_t used = pool->used;
    unlock(pool);
    const int count = evict(pool, used, thorough);
    lock(pool);
    pool->evicting = false;
    signal_changes_locked(pool);
    if (count > 0) {
        pool->counts.rounds++;
        pool->counts.evicted += (uint32_t)count;
        signal_starving_locked(pool);
    }
    return count;
}

static bool retire_oldest_idle_locked(struct pool *pool)
{
    const uint32_t slot = pool->idle_head;
    if (slot == POOL_NONE)
        return false;
    remove_idle_locked(pool, slot);
    unhash_locked(pool, slot);
    retire_locked(pool, slot);
    return true;
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
        pool->counts.late_hits += state_of(pool, slot) != POOL_IDLE;
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
        if (admitted > 0)
            return admitted;
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
        retire_oldest_idle_locked(pool);
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
        push_empty_locked(pool, slot);
    } else {
        pool->counts.misses++;
        pin_locked(pool, block, slot);
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
    dequeue_locked(&pool->starving, &wish->waiter);
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
    const int count = evict_locked(pool, wish->queued || !wish->deadline);
    return count < 0 ? -MF_EAGAIN : count == 0 && pool->idle_head == POOL_NONE;
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
            if (!retire_oldest_idle_locked(pool) && evict_locked(pool, true) <= 0 &&
                pool->idle_head == POOL_NONE)
                return err;
            while (retire_oldest_idle_locked(pool))
                ;
            continue;
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

/* Dooming. */

void pool_unpin_slow(struct pool *pool, uint32_t slot)
{
    reap(pool, slot, false);
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
    lock(pool);
    const bool ready = counter_grow(pool, block, slot) != NULL;
    unlock(pool);
    return ready;
}

static void doom_locked(struct pool *pool, const struct pool_victim *victim)
{
    const uint32_t slot = victim->slot;
    while (pool_generation(pool, slot) == victim->generation) {
        switch (state_of(pool, slot)) {
        case POOL_LIVE:
        case POOL_CLOSED:
            unhash_locked(pool, slot);
            set_state_locked(pool, slot, POOL_DOOMED);
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
        !machine_barrier_heavy()) /* pairs with the light one in pool_hit, and of unpins */
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
        if (retire_oldest_idle_locked(pool))
            gone++;
        else if (evict_locked(pool, true) <= 0 && pool->idle_head == POOL_NONE)
            break;
    }
    unlock(pool);
    return gone;
}

/* Beginning, and fork. */

void pool_init(struct pool *pool, const struct pool_memory *memory)
{
    __builtin_memset(pool, 0, sizeof(*pool));
    pool->slots = memory->slots;
    pool->buckets = memory->buckets;
    pool->bucket_shift = (uint32_t)(8 * sizeof(uintptr_t)) - memory->bucket_bits;
    pool->capacity = memory->capacity;
    pool->batch = memory->batch;
    pool->batch_max = memory->batch_max;
    pool->empty = pool->idle_head = pool->idle_tail = POOL_NONE;
    for (uint32_t i = 0; i < memory->capacity; i += POOL_CHUNK)
        atomic_store_explicit(&pool->common.chunk[i / POOL_CHUNK], memory->common_counters + i,
                              memory_order_relaxed);
    atomic_store_explicit(&pool->blocks, &pool->common, memory_order_release);
}

void pool_block_add(struct pool *pool, struct pool_block *block)
{
    lock(pool);
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
    const uint32_t note = atomic_load_explicit(&block->note_slot, memory_order_relaxed);
    if (!note)
        return;
    struct pool_counter *counter = pool_counter(block, (note & ~(uint32_t)POOL_NOTE_UNPIN) - 1);
    if (note & POOL_NOTE_UNPIN)
        atomic_store_explicit(&counter->unpins,
                              atomic_load_explicit(&block->note_unpins, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    else
        atomic_store_explicit(&counter->pins,
                              atomic_load_explicit(&block->note_pins, memory_order_relaxed),
                              memory_order_relaxed);
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
    atomic_store_explicit(&pool->waiting, 0, memory_order_relaxed);
    for (struct pool_block *block = atomic_load_explicit(&pool->blocks, memory_order_relaxed);
         block; block = block->next)
        undo_note(block);
    unlock(pool);
}

void pool_count(struct pool *pool, struct pool_counts *counts)
{
    lock(pool);
    *counts = pool->counts;
    unlock(pool);
}
