/* SPDX-License-Identifier: MIT */
/* The pool's core on a machine of which every step is scripted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"

#include "../unit.h"

enum { KEYS = 64, SLOTS_MAX = 4096 };

/* The world: everything a script can set, and what the machine has seen. */
static struct {
    struct pool pool;
    struct pool_block *blocks[4];
    uint32_t truly_pinned[SLOTS_MAX];
    uint64_t budget, held; /* translations allowed and held */
    int install_error, installs_to_fail;
    int admit_error;
    int barriers_to_fail;
    bool no_chunks;
    void (*at_barrier)(void);
    void (*at_install)(void);
    void (*at_wait)(void);
    unsigned locks, barriers, installs, drops, retires, restores;
    void *memory[4];
} world;

static struct machine_slot *payload(uint32_t slot)
{
    return &world.pool.slots[slot].machine;
}

bool machine_lock_acquire(struct machine_lock *lock)
{
    assert_false(lock->held);
    lock->held = true;
    world.locks++;
    return false;
}

void machine_lock_release(struct machine_lock *lock)
{
    assert_true(lock->held);
    lock->held = false;
}

static void run(void (**script)(void))
{
    void (*now)(void) = *script;
    *script = NULL;
    if (now)
        now();
}

bool machine_event_wait(struct machine_event *event, uint64_t deadline)
{
    assert_false(world.pool.lock.held);
    if (!event->set)
        run(&world.at_wait);
    if (!event->set && deadline == UINT64_MAX)
        fail_msg("would sleep for ever");
    return event->set;
}

bool machine_barrier_heavy(void)
{
    assert_false(world.pool.lock.held);
    world.barriers++;
    run(&world.at_barrier);
    return world.barriers_to_fail-- <= 0;
}

void *machine_chunk(struct pool *pool, size_t bytes)
{
    (void)pool;
    return world.no_chunks ? NULL : calloc(1, bytes);
}

int machine_admit(struct pool *pool, uint32_t slot, void *request)
{
    (void)request;
    assert_true(pool->lock.held);
    if (world.admit_error)
        return world.admit_error;
    if (payload(slot)->stamp)
        return 1;
    if (world.held == world.budget)
        return 0;
    world.held++;
    return 1;
}

int machine_install(struct pool *pool, uint32_t slot, void *request)
{
    assert_false(pool->lock.held);
    assert_int_equal(world.truly_pinned[slot], 0);
    run(&world.at_install);
    world.installs++;
    if (world.installs_to_fail > 0) {
        world.installs_to_fail--;
        payload(slot)->stamp = 0;
        world.held--;
        return world.install_error;
    }
    payload(slot)->stamp = (uintptr_t)request;
    payload(slot)->dropped = false;
    return 0;
}

void machine_restore(struct pool *pool, uint32_t slot)
{
    assert_true(pool->lock.held);
    assert_true(payload(slot)->dropped);
    payload(slot)->dropped = false;
    world.restores++;
}

void machine_drop(struct pool *pool, const uint32_t *slots, uint32_t count)
{
    (void)pool;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(world.truly_pinned[slots[i]], 0);
        payload(slots[i])->dropped = true;
        world.drops++;
    }
}

void machine_retire(struct pool *pool, uint32_t slot)
{
    assert_false(pool->lock.held);
    assert_int_equal(world.truly_pinned[slot], 0);
    payload(slot)->stamp = 0;
    world.held--;
    world.retires++;
}

bool machine_is_kept(struct pool *pool, uint32_t slot)
{
    (void)pool;
    return payload(slot)->stamp != 0;
}

/* A pool of that many slots, and four "threads". */
static void begin(uint32_t slots, uint32_t batch)
{
    memset(&world, 0, sizeof(world));
    world.budget = UINT64_MAX;
    uint32_t bits = 1;
    while (1u << bits < 2 * slots)
        bits++;
    struct pool_memory memory = {
        .slots = world.memory[0] = calloc(slots, sizeof(struct pool_slot)),
        .buckets = world.memory[1] = malloc((size_t)4 << bits),
        .batch = world.memory[2] = calloc(POOL_BATCH_ROOM(batch), sizeof(uint32_t)),
        .common_counters = world.memory[3] =
            calloc(slots + POOL_CHUNK, sizeof(struct pool_counter)),
        .capacity = slots,
        .bucket_bits = bits,
        .batch_max = batch,
    };
    memset(world.memory[1], 0xff, (size_t)4 << bits);
    pool_init(&world.pool, &memory);
    for (int i = 0; i < 4; i++) {
        world.blocks[i] = calloc(1, sizeof(struct pool_block));
        pool_block_add(&world.pool, world.blocks[i]);
    }
}

static void end(void)
{
    for (int i = 0; i < 4; i++) {
        for (unsigned c = 0; c < POOL_SLOTS_MAX / POOL_CHUNK; c++)
            free(pool_counter(world.blocks[i], c * POOL_CHUNK));
        free(world.blocks[i]);
        free(world.memory[i]);
    }
}

static struct pool_key key_of(uintptr_t n)
{
    return (struct pool_key){n, ~n};
}

/* Key n's translation is stamped n. */
static int pin_until(int thread, uintptr_t n, uint64_t deadline, uint32_t *slot)
{
    struct pool_block *block = thread < 0 ? NULL : world.blocks[thread];
    const int err = pool_pin(&world.pool, block, key_of(n), (void *)n, deadline, slot);
    if (!err) {
        pool_settle(block);
        world.truly_pinned[*slot]++;
        assert_int_equal(payload(*slot)->stamp, n);
        assert_false(payload(*slot)->dropped);
    }
    return err;
}

static uint32_t pin(int thread, uintptr_t n)
{
    uint32_t slot = POOL_NONE;
    assert_int_equal(pin_until(thread, n, 0, &slot), 0);
    return slot;
}

static void unpin(int thread, uint32_t slot)
{
    world.truly_pinned[slot]--;
    pool_unpin(&world.pool, thread < 0 ? NULL : world.blocks[thread], slot);
}

static uint64_t hits(void)
{
    struct pool_counts counts;
    pool_count(&world.pool, &counts);
    return counts.hits;
}

static void a_hit_takes_no_lock(void **state)
{
    (void)state;
    begin(4, 2);
    unpin(0, pin(0, 1));
    const unsigned locks = world.locks, barriers = world.barriers;
    for (int i = 0; i < 100; i++)
        unpin(0, pin(0, 1));
    assert_int_equal(world.locks, locks);
    assert_int_equal(world.barriers, barriers);
    assert_int_equal(world.installs, 1);
    assert_int_equal(hits(), 100);
    end();
}

static void a_counter_at_its_end_begins_again_and_no_hit_is_lost(void **state)
{
    (void)state;
    begin(4, 2);
    const uint32_t slot = pin(0, 1);
    assert_int_equal(pin(1, 1), slot); /* what the others have pinned stays so */
    struct pool_counter *counter = pool_counter(world.blocks[0], slot);
    for (int only_hits = 0; only_hits < 2; only_hits++) {
        counter->pins = UINT32_MAX - 2;
        counter->unpins = UINT32_MAX - 3;
        const uint64_t before = hits();
        for (int i = 0; i < 5; i++) {
            if (only_hits) {
                assert_true(pool_hit_ready(&world.pool, world.blocks[0], slot));
                assert_int_equal(pool_hit(&world.pool, world.blocks[0], key_of(1)), slot);
                pool_settle(world.blocks[0]);
                pool_unpin(&world.pool, world.blocks[0], slot);
            } else {
                unpin(0, pin(0, 1));
            }
            assert_int_equal(pool_pinned(&world.pool, slot), 2);
        }
        assert_int_equal(counter->pins, 3);
        assert_int_equal(hits() - before, 5);
    }
    unpin(0, slot);
    unpin(1, slot);
    assert_int_equal(pool_pinned(&world.pool, slot), 0);
    end();
}

static void a_common_counter_at_its_end_begins_again(void **state)
{
    (void)state;
    begin(4, 1);
    const uint32_t slot = pin(-1, 1);
    struct pool_counter *counter = pool_counter(&world.pool.common, slot);
    counter->pins = UINT32_MAX;
    counter->unpins = UINT32_MAX - 1;
    const uint64_t before = hits();
    assert_int_equal(pin(-1, 1), slot);
    assert_int_equal(hits() - before, 1);
    assert_int_equal(pool_pinned(&world.pool, slot), 2);
    unpin(-1, slot);
    unpin(-1, slot);
    assert_int_equal(pool_pinned(&world.pool, slot), 0);
    end();
}

static void keys_in_equal_steps_do_not_meet_in_long_chains(void **state)
{
    (void)state;
    enum { KEPT = 4096 };
    const struct pool pool = {.bucket_mask = 2 * KEPT - 1};
    static const uintptr_t steps[] = {1,       2,       3,     8,     100,    512,    2047,
                                      2048,    2049,    4095,  65504, 65536,  131008, 1 << 18,
                                      1 << 20, 1 << 24, 12345, 99999, 1 << 28};
    for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
        unsigned char chains[2 * KEPT] = {0}, longest = 0;
        for (uintptr_t i = 0; i < KEPT; i++) {
            const struct pool_key key = {1 << 25, i * steps[s]};
            unsigned char *chain = &chains[pool_hash(&pool, key)];
            longest = ++*chain > longest ? *chain : longest;
        }
        assert_true(longest <= 4);
    }
}

static void a_full_pool_says_so_at_once_or_at_the_deadline(void **state)
{
    (void)state;
    begin(2, 1);
    const uint32_t a = pin(0, 1), b = pin(1, 2);
    uint32_t slot;
    assert_int_equal(pin_until(0, 3, 0, &slot), -EAGAIN);
    assert_int_equal(pin_until(0, 3, 1000, &slot), -ETIMEDOUT);
    assert_int_equal(world.pool.waiting, 0);
    assert_null(world.pool.starving.head);
    unpin(3, a);
    unpin(2, b);
    unpin(0, pin(0, 3));
    end();
}

static uint32_t held_slot;
static void unpin_held(void)
{
    unpin(1, held_slot);
}

static void an_unpin_during_the_last_look_wakes_the_waiter(void **state)
{
    (void)state;
    begin(1, 1);
    held_slot = pin(0, 1);
    /* The first barrier with a deadline is the one after queueing: it stands for an unpin that
     * comes between flag and sum. */
    world.at_barrier = unpin_held;
    uint32_t slot;
    assert_int_equal(pin_until(0, 2, UINT64_MAX, &slot), 0);
    unpin(0, slot);
    end();
}

static void an_unpin_while_it_sleeps_wakes_the_waiter(void **state)
{
    (void)state;
    begin(1, 1);
    held_slot = pin(0, 1);
    world.at_wait = unpin_held;
    uint32_t slot;
    assert_int_equal(pin_until(0, 2, UINT64_MAX, &slot), 0);
    unpin(0, slot);
    end();
}

static bool hit_succeeded;
static uint32_t raced_slot;
static void hit_key_one(void)
{
    raced_slot = pool_hit(&world.pool, world.blocks[2], key_of(1));
    hit_succeeded = raced_slot != POOL_NONE;
}

static void a_hit_on_a_closed_slot_backs_off_and_the_slot_is_reused(void **state)
{
    (void)state;
    begin(1, 1);
    unpin(0, pin(0, 1));
    unpin(2, pin(2, 1)); /* so that thread 2 has counters */
    hit_succeeded = true;
    uint32_t slot;
    /* With a deadline no barrier comes before the one between closing and summing. */
    world.at_barrier = hit_key_one;
    assert_int_equal(pin_until(0, 2, 1, &slot), 0);
    assert_false(hit_succeeded);
    assert_int_equal(pool_pinned(&world.pool, slot), 1);
    unpin(0, slot);
    assert_int_equal(pool_pinned(&world.pool, slot), 0);
    end();
}

static void pin_key_one(void)
{
    raced_slot = pin(2, 1);
}

static void a_pin_under_the_lock_rescues_a_closed_slot(void **state)
{
    (void)state;
    begin(1, 1);
    unpin(0, pin(0, 1));
    uint32_t slot;
    world.at_barrier = pin_key_one;
    assert_int_equal(pin_until(0, 2, 1, &slot), -ETIMEDOUT);
    assert_int_equal(payload(raced_slot)->stamp, 1);
    assert_int_equal(world.drops, 0);
    unpin(0, raced_slot);
    end();
}

static void what_was_used_lately_is_spared(void **state)
{
    (void)state;
    begin(4, 1);
    for (uintptr_t n = 1; n <= 4; n++)
        unpin(0, pin(0, n));
    unpin(0, pin(0, 5)); /* evicts one, and looks at all: no mark is left */
    unsigned kept = 0;
    for (uintptr_t round = 0; round < 8; round++) {
        const unsigned before = world.installs;
        unpin(0, pin(0, 5));
        kept += world.installs == before;
        unpin(0, pin(0, 10 + round));
    }
    assert_int_equal(kept, 8);
    end();
}

static void what_was_wanted_once_goes_before_what_was_wanted_again(void **state)
{
    (void)state;
    begin(8, 4);
    for (uintptr_t n = 1; n <= 8; n++)
        unpin(0, pin(0, n));
    unpin(0, pin(0, 2));
    unpin(0, pin(0, 4));
    unpin(0, pin(0, 9)); /* evicts four */
    const unsigned locks = world.locks;
    unpin(0, pin(0, 2));
    unpin(0, pin(0, 4));
    assert_int_equal(world.locks, locks);
    end();
}

static void what_was_evicted_but_not_reused_is_revived(void **state)
{
    (void)state;
    begin(4, 2);
    for (uintptr_t n = 1; n <= 5; n++)
        unpin(0, pin(0, n));
    assert_int_equal(world.drops, 2);
    const unsigned installs = world.installs;
    for (uintptr_t n = 1; n <= 4; n++)
        if (world.pool.idle_head != POOL_NONE && payload(world.pool.idle_head)->stamp == n) {
            unpin(0, pin(0, n));
            break;
        }
    assert_int_equal(world.installs, installs);
    assert_int_equal(world.restores, 1);
    assert_int_equal(world.pool.counts.revived, 1);
    end();
}

static void a_round_that_goes_round_twice_drops_no_slot_twice(void **state)
{
    (void)state;
    begin(8, 4);
    uint32_t held[5];
    for (uintptr_t n = 1; n <= 4; n++)
        unpin(0, pin(0, n));
    for (uintptr_t n = 5; n <= 8; n++)
        held[n - 5] = pin(1, n);
    unpin(0, pin(0, 3)); /* used lately: found on the second lap, as the others are again */
    unpin(0, pin(0, 4));
    held[4] = pin(1, 9);
    assert_int_equal(world.drops, 4);
    assert_int_equal(world.pool.counts.evicted, 4);
    for (unsigned i = 0; i < 5; i++)
        unpin(1, held[i]);
    end();
}

/* Sixteen slots, eight to a round: what the second round drops after so many revivals. */
static unsigned second_round(unsigned revivals)
{
    begin(16, 8);
    for (uintptr_t n = 1; n <= 17; n++)
        unpin(0, pin(0, n));
    assert_int_equal(world.drops, 8);
    for (unsigned i = 0; i < revivals; i++)
        unpin(0, pin(0, payload(world.pool.idle_head)->stamp));
    assert_int_equal(world.pool.counts.revived, revivals);
    for (uintptr_t n = 100; world.drops == 8; n++)
        unpin(0, pin(0, n));
    const unsigned drops = world.drops - 8;
    end();
    return drops;
}

static void a_round_drops_as_many_more_as_were_revived_up_to_a_quarter(void **state)
{
    (void)state;
    assert_int_equal(second_round(0), 8);
    assert_int_equal(second_round(1), 9);
    assert_int_equal(second_round(2), 10);
    assert_int_equal(second_round(7), 10);
}

static void a_doomed_slot_goes_with_its_last_unpin(void **state)
{
    (void)state;
    begin(4, 2);
    const uint32_t a = pin(0, 1);
    assert_int_equal(pin(1, 1), a);
    const struct pool_victim victim = {a, pool_generation(&world.pool, a)};
    pool_doom(&world.pool, &victim, 1);
    assert_int_equal(world.retires, 0);
    const uint32_t b = pin(0, 1);
    assert_int_not_equal(a, b);
    pool_doom(&world.pool, &victim, 1); /* once more: nothing */
    unpin(2, a);
    assert_int_equal(world.retires, 0);
    unpin(3, a);
    assert_int_equal(world.retires, 1);
    unpin(0, b);
    assert_int_equal(world.retires, 1);
    end();
}

static void an_unpinned_slot_is_doomed_at_once_whether_live_or_idle(void **state)
{
    (void)state;
    begin(4, 2);
    struct pool_victim victims[4];
    for (uint32_t i = 0; i < 4; i++) {
        victims[i].slot = pin(0, i + 1);
        victims[i].generation = pool_generation(&world.pool, victims[i].slot);
        unpin(0, victims[i].slot);
    }
    unpin(0, pin(0, 5)); /* evicts two, and takes one */
    assert_int_equal(world.pool.idle_head == POOL_NONE, false);
    const unsigned barriers = world.barriers;
    pool_doom(&world.pool, victims, 4);
    assert_int_equal(world.barriers, barriers + 1);
    assert_int_equal(world.retires, 3); /* the fourth is of another generation now */
    assert_int_equal(world.held, 1);
    end();
}

static void without_a_barrier_nothing_is_evicted(void **state)
{
    (void)state;
    begin(2, 1);
    unpin(0, pin(0, 1));
    unpin(0, pin(0, 2));
    uint32_t slot;
    for (int deadline = 0; deadline < 2; deadline++) {
        world.barriers_to_fail = 1;
        assert_int_equal(pin_until(0, 3, deadline, &slot), -EAGAIN);
        world.barriers_to_fail = 0;
        assert_int_equal(world.drops, 0);
    }
    for (uintptr_t n = 1; n <= 2; n++)
        unpin(0, pin(0, n));
    assert_int_equal(world.installs, 2);
    unpin(0, pin(0, 3));
    end();
}

static void only_while_a_slot_is_doomed_do_unpins_look_closer(void **state)
{
    (void)state;
    begin(4, 2);
    const uint32_t doomed = pin(0, 1), other = pin(1, 2);
    assert_int_equal(world.pool.attention, 0);
    const struct pool_victim victim = {doomed, pool_generation(&world.pool, doomed)};
    pool_doom(&world.pool, &victim, 1);
    assert_int_equal(world.pool.attention, 1);
    unpin(1, other);
    assert_int_equal(world.pool.attention, 1);
    unpin(0, doomed);
    assert_int_equal(world.pool.attention, 0);
    end();
}

static void a_slot_doomed_without_a_barrier_is_found_by_the_evictor(void **state)
{
    (void)state;
    begin(2, 1);
    const uint32_t a = pin(0, 1);
    unpin(0, a);
    const struct pool_victim victim = {a, pool_generation(&world.pool, a)};
    world.barriers_to_fail = 1;
    pool_doom(&world.pool, &victim, 1);
    world.barriers_to_fail = 0;
    assert_int_equal(world.retires, 0);
    const uint32_t b = pin(0, 2);
    uint32_t c;
    assert_int_equal(pin_until(0, 3, 1, &c), 0);
    assert_int_equal(world.retires, 1);
    unpin(0, b);
    unpin(0, c);
    end();
}

static void a_refused_install_leaves_the_slot_usable(void **state)
{
    (void)state;
    begin(1, 1);
    world.installs_to_fail = 1;
    world.install_error = -EIO;
    uint32_t slot;
    assert_int_equal(pin_until(0, 1, 0, &slot), -EIO);
    unpin(0, pin(0, 1));
    world.installs_to_fail = 1;
    assert_int_equal(pin_until(0, 2, 0, &slot), -EIO);
    unpin(0, pin(0, 1));
    assert_int_equal(world.held, 1);
    end();
}

static void when_memory_is_out_idle_translations_are_given_up(void **state)
{
    (void)state;
    begin(8, 2);
    for (uintptr_t n = 1; n <= 4; n++)
        unpin(0, pin(0, n));
    world.installs_to_fail = 1;
    world.install_error = -ENOMEM;
    unpin(0, pin(0, 5));
    assert_true(world.retires > 0);
    world.installs_to_fail = 100;
    uint32_t slot;
    const uint32_t held = pin(0, 5);
    assert_int_equal(pin_until(0, 6, 0, &slot), -ENOMEM);
    assert_int_equal(world.held, 1);
    world.installs_to_fail = 0;
    unpin(0, held);
    unpin(0, pin(0, 6));
    end();
}

static void the_machines_budget_is_kept_by_retiring(void **state)
{
    (void)state;
    begin(8, 4);
    world.budget = 3;
    for (uintptr_t n = 1; n <= 20; n++) {
        unpin(0, pin(0, n));
        assert_true(world.held <= 3);
    }
    const uint32_t a = pin(0, 1), b = pin(0, 2), c = pin(0, 3);
    uint32_t slot;
    assert_int_equal(pin_until(0, 4, 0, &slot), -EAGAIN);
    assert_int_equal(pin_until(0, 4, 5, &slot), -ETIMEDOUT);
    unpin(0, a);
    unpin(0, b);
    unpin(0, c);
    world.budget = 2;
    assert_int_equal(pool_shrink(&world.pool, 1), 1);
    assert_int_equal(world.held, 2);
    assert_int_equal(pool_shrink(&world.pool, 5), 2);
    end();
}

static void a_thread_without_counters_pays_with_the_lock(void **state)
{
    (void)state;
    begin(2, 1);
    world.no_chunks = true;
    const uint32_t a = pin(-1, 1), b = pin(0, 1);
    assert_int_equal(a, b);
    assert_int_equal(pool_pinned(&world.pool, a), 2);
    unpin(0, a);
    world.no_chunks = false;
    unpin(1, a);
    assert_int_equal(pool_pinned(&world.pool, a), 0);
    end();
}

static void a_fork_undoes_the_unfinished_pins_of_other_threads(void **state)
{
    (void)state;
    begin(2, 1);
    const uint32_t a = pin(0, 1);
    unpin(1, pin(1, 1));
    assert_int_equal(pool_hit(&world.pool, world.blocks[1], key_of(1)), a);
    assert_int_equal(pool_pinned(&world.pool, a), 2);
    pool_freeze(&world.pool);
    pool_thaw(&world.pool, false);
    assert_int_equal(pool_pinned(&world.pool, a), 2);
    pool_freeze(&world.pool);
    pool_thaw(&world.pool, true);
    assert_int_equal(pool_pinned(&world.pool, a), 1);
    unpin(0, a);
    end();
}

static void a_fork_completes_the_unfinished_unpins_of_other_threads(void **state)
{
    (void)state;
    for (int counted = 0; counted < 2; counted++) {
        begin(2, 1);
        uint64_t mark = 1;
        const uint32_t a = pin(0, 1), b = pin(1, 1);
        struct pool_counter *counter = pool_counter(world.blocks[1], b);
        const uint32_t before = pool_unpin_note(world.blocks[1], counter, b, &mark);
        if (counted)
            pool_count_unpin(counter, before);
        pool_freeze(&world.pool);
        pool_thaw(&world.pool, true);
        assert_int_equal(pool_pinned(&world.pool, a), 1);
        assert_int_equal(mark, 0);
        world.truly_pinned[b]--;
        unpin(0, a);
        end();
    }
}

static void a_fork_reaps_what_others_had_not_yet_come_to_reap(void **state)
{
    (void)state;
    for (int counted = 0; counted < 2; counted++) {
        begin(2, 2);
        uint64_t mark = 1;
        const uint32_t a = pin(1, 1), b = pin(0, 2);
        const struct pool_victim victims[] = {{a, pool_generation(&world.pool, a)},
                                              {b, pool_generation(&world.pool, b)}};
        pool_doom(&world.pool, victims, 2);
        struct pool_counter *counter = pool_counter(world.blocks[1], a);
        const uint32_t before = pool_unpin_note(world.blocks[1], counter, a, &mark);
        if (counted)
            pool_count_unpin(counter, before);
        world.truly_pinned[a]--;
        pool_freeze(&world.pool);
        pool_thaw(&world.pool, true);
        assert_int_equal(world.retires, 1);
        assert_int_equal(world.pool.attention, 1);
        unpin(0, b);
        assert_int_equal(world.pool.attention, 0);
        end();
    }
}

static void a_fork_clears_the_mark_of_an_unfinished_pin(void **state)
{
    (void)state;
    begin(2, 1);
    unpin(1, pin(1, 1));
    uint64_t mark = 0;
    pool_mark(world.blocks[1], &mark);
    const uint32_t a = pool_hit(&world.pool, world.blocks[1], key_of(1));
    mark = 1;
    pool_freeze(&world.pool);
    pool_thaw(&world.pool, true);
    assert_int_equal(mark, 0);
    assert_int_equal(pool_pinned(&world.pool, a), 0);
    end();
}

static void freeze_as_a_fork_does(void)
{
    world.pool.frozen = true;
}

static void thaw_as_a_fork_does(void)
{
    assert_false(world.pool.evicting);
    world.pool.frozen = false;
    for (struct pool_waiter *w = world.pool.changes.head; w; w = w->next)
        machine_event_set(&w->event);
    world.pool.changes = (struct pool_queue){NULL, NULL};
}

static void the_evictor_does_not_wait_for_a_fork_that_waits_for_it(void **state)
{
    (void)state;
    begin(2, 1);
    const uint32_t doomed = pin(0, 1), other = pin(0, 2);
    const struct pool_victim victim = {doomed, pool_generation(&world.pool, doomed)};
    pool_doom(&world.pool, &victim, 1);
    /* Its last unpin is counted, and its thread has not come to retire it. */
    struct pool_counter *counter = pool_counter(world.blocks[0], doomed);
    pool_count_unpin(counter, counter->unpins);
    world.truly_pinned[doomed]--;
    unpin(0, other);
    world.at_barrier = freeze_as_a_fork_does;
    world.at_wait = thaw_as_a_fork_does;
    pool_shrink(&world.pool, 2);
    assert_int_equal(world.retires, 2);
    end();
}

static void an_evictor_that_has_only_reaped_has_made_room(void **state)
{
    (void)state;
    begin(1, 1);
    const uint32_t doomed = pin(0, 1);
    const struct pool_victim victim = {doomed, pool_generation(&world.pool, doomed)};
    pool_doom(&world.pool, &victim, 1);
    /* Its last unpin is counted, and its thread has not come to retire it. */
    struct pool_counter *counter = pool_counter(world.blocks[0], doomed);
    pool_count_unpin(counter, counter->unpins);
    world.truly_pinned[doomed]--;
    uint32_t slot;
    assert_int_equal(pin_until(0, 2, 0, &slot), 0);
    assert_int_equal(world.retires, 1);
    unpin(0, slot);
    end();
}

static void a_wish_that_no_limit_allows_leaves_the_queue(void **state)
{
    (void)state;
    begin(1, 1);
    const uint32_t a = pin(0, 1);
    uint32_t slot;
    unpin(0, a);
    world.admit_error = -E2BIG;
    assert_int_equal(pin_until(0, 2, UINT64_MAX, &slot), -E2BIG);
    assert_int_equal(world.pool.waiting, 0);
    assert_null(world.pool.starving.head);
    world.admit_error = 0;
    unpin(0, pin(0, 2));
    end();
}

static void grow_the_budget(void)
{
    world.budget++;
    pool_budget_changed(&world.pool);
}

static void a_larger_budget_wakes_the_waiter(void **state)
{
    (void)state;
    begin(2, 1);
    world.budget = 1;
    const uint32_t a = pin(0, 1);
    world.at_wait = grow_the_budget;
    uint32_t slot;
    assert_int_equal(pin_until(1, 2, UINT64_MAX, &slot), 0);
    unpin(1, slot);
    unpin(0, a);
    end();
}

/* The first mail's complaint: what is done under the lock must not grow with the pool. */
static uint32_t worst_steps(uint32_t slots)
{
    begin(slots, slots / 2);
    const uint32_t held = slots / 2;
    uint32_t *pins = calloc(held, sizeof(*pins));
    for (uint32_t i = 0; i < held; i++)
        pins[i] = pin(0, i + 1);
    for (uintptr_t n = 0; n < 4 * slots; n++)
        unpin(1, pin(1, 10000 + n));
    for (uint32_t i = 0; i < held; i++)
        unpin(2, pins[i]);
    const uint32_t worst = world.pool.counts.lock_steps_max;
    free(pins);
    end();
    return worst;
}

static void the_worst_steps_under_the_lock_do_not_grow_with_the_slots(void **state)
{
    (void)state;
    for (uint32_t slots = 64; slots <= 4096; slots *= 2)
        assert_true(worst_steps(slots) <= POOL_STRIDE + 16);
}

static void random_use_never_touches_a_pinned_slot(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        srand(seed);
        begin(1 + seed % 7, 1 + seed % 3);
        world.budget = 1 + (unsigned)rand() % 7;
        uint32_t held[8];
        struct pool_victim victims[8];
        unsigned count = 0;
        for (int step = 0; step < 2000; step++) {
            const int thread = rand() % 5 - 1;
            if (rand() % 64 == 0) {
                world.installs_to_fail = rand() % 3;
                world.install_error = rand() % 2 ? -ENOMEM : -EIO;
            }
            world.no_chunks = rand() % 4 == 0;
            if (rand() % 16 == 0)
                world.barriers_to_fail = rand() % 3;
            if (count && (count == 8 || rand() % 2)) {
                const unsigned which = (unsigned)rand() % count;
                if (rand() % 8 == 0)
                    pool_doom(&world.pool, &victims[which], 1);
                unpin(thread, held[which]);
                held[which] = held[--count];
                victims[which] = victims[count];
                continue;
            }
            uint32_t slot;
            if (pin_until(thread, 1 + (unsigned)rand() % 12, (unsigned)rand() % 2, &slot) == 0) {
                held[count] = slot;
                victims[count++] = (struct pool_victim){slot, pool_generation(&world.pool, slot)};
            }
        }
        world.barriers_to_fail = world.installs_to_fail = 0;
        while (count)
            unpin(0, held[--count]);
        pool_shrink(&world.pool, 100);
        for (uint32_t i = 0; i < world.pool.used; i++)
            assert_int_equal(pool_pinned(&world.pool, i), 0);
        assert_true(world.held <= world.pool.used);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_takes_no_lock),
        cmocka_unit_test(a_counter_at_its_end_begins_again_and_no_hit_is_lost),
        cmocka_unit_test(a_common_counter_at_its_end_begins_again),
        cmocka_unit_test(keys_in_equal_steps_do_not_meet_in_long_chains),
        cmocka_unit_test(a_full_pool_says_so_at_once_or_at_the_deadline),
        cmocka_unit_test(an_unpin_during_the_last_look_wakes_the_waiter),
        cmocka_unit_test(an_unpin_while_it_sleeps_wakes_the_waiter),
        cmocka_unit_test(a_hit_on_a_closed_slot_backs_off_and_the_slot_is_reused),
        cmocka_unit_test(a_pin_under_the_lock_rescues_a_closed_slot),
        cmocka_unit_test(what_was_used_lately_is_spared),
        cmocka_unit_test(what_was_wanted_once_goes_before_what_was_wanted_again),
        cmocka_unit_test(what_was_evicted_but_not_reused_is_revived),
        cmocka_unit_test(a_round_that_goes_round_twice_drops_no_slot_twice),
        cmocka_unit_test(a_round_drops_as_many_more_as_were_revived_up_to_a_quarter),
        cmocka_unit_test(a_doomed_slot_goes_with_its_last_unpin),
        cmocka_unit_test(an_unpinned_slot_is_doomed_at_once_whether_live_or_idle),
        cmocka_unit_test(without_a_barrier_nothing_is_evicted),
        cmocka_unit_test(only_while_a_slot_is_doomed_do_unpins_look_closer),
        cmocka_unit_test(a_slot_doomed_without_a_barrier_is_found_by_the_evictor),
        cmocka_unit_test(a_refused_install_leaves_the_slot_usable),
        cmocka_unit_test(when_memory_is_out_idle_translations_are_given_up),
        cmocka_unit_test(the_machines_budget_is_kept_by_retiring),
        cmocka_unit_test(a_thread_without_counters_pays_with_the_lock),
        cmocka_unit_test(a_fork_undoes_the_unfinished_pins_of_other_threads),
        cmocka_unit_test(a_fork_completes_the_unfinished_unpins_of_other_threads),
        cmocka_unit_test(a_fork_reaps_what_others_had_not_yet_come_to_reap),
        cmocka_unit_test(a_fork_clears_the_mark_of_an_unfinished_pin),
        cmocka_unit_test(the_evictor_does_not_wait_for_a_fork_that_waits_for_it),
        cmocka_unit_test(an_evictor_that_has_only_reaped_has_made_room),
        cmocka_unit_test(a_wish_that_no_limit_allows_leaves_the_queue),
        cmocka_unit_test(a_larger_budget_wakes_the_waiter),
        cmocka_unit_test(the_worst_steps_under_the_lock_do_not_grow_with_the_slots),
        cmocka_unit_test(random_use_never_touches_a_pinned_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
