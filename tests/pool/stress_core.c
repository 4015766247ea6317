/* SPDX-License-Identifier: MIT */
/*
 * The pool's core under threads, with pools so small that every pin evicts (CASES 29). Translations
 * are stamps in memory, written without any atomicity: whoever has a slot pinned must find the
 * stamp of its key in it, unchanged, and ThreadSanitizer must find no race.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MF_MACHINE "linux/machine_linux.h"
#include "core/pool.h"

enum { THREADS = 16, SLOTS = 64, HELD = 4 };

static struct pool pool;
static struct {
    uintptr_t stamp;
    _Atomic uint32_t pinned; /* by those who have returned from pin and not called unpin */
} translation[SLOTS];
static _Atomic unsigned failures;
static unsigned slot_count, keys, steps;
static unsigned held_most; /* by a thread; one is never left for another to unpin */
static bool with_dooms;
static void *chunks[THREADS];
static _Atomic unsigned chunk_count;
static _Atomic uint64_t installed, timed_out;

static void expect(bool truth, const char *what)
{
    if (truth)
        return;
    atomic_fetch_add(&failures, 1);
    fprintf(stderr, "# %s\n", what);
}

static void expect_free(uint32_t slot, const char *what)
{
    expect(atomic_load_explicit(&translation[slot].pinned, memory_order_relaxed) == 0, what);
}

void *machine_chunk(struct pool *core, size_t bytes)
{
    (void)core;
    void *chunk = calloc(1, bytes);
    if (chunk)
        chunks[atomic_fetch_add(&chunk_count, 1)] = chunk;
    return chunk;
}

int machine_admit(struct pool *core, uint32_t slot, void *request)
{
    (void)core;
    (void)slot;
    (void)request;
    return 1;
}

int machine_install(struct pool *core, uint32_t slot, void *request)
{
    (void)core;
    expect_free(slot, "installed over a pinned translation");
    translation[slot].stamp = (uintptr_t)request;
    return atomic_fetch_add(&installed, 1) % 97 == 96 ? -EIO : 0;
}

void machine_drop(struct pool *core, const uint32_t *slots, uint32_t count)
{
    (void)core;
    for (uint32_t i = 0; i < count; i++)
        expect_free(slots[i], "dropped a pinned translation");
}

void machine_retire(struct pool *core, uint32_t slot)
{
    (void)core;
    expect_free(slot, "retired a pinned translation");
    translation[slot].stamp = 0;
}

bool machine_is_kept(struct pool *core, uint32_t slot)
{
    (void)core;
    return translation[slot].stamp != 0;
}

struct held {
    uint32_t slot;
    uintptr_t key;
};

/* Pins are handed from thread to thread here. */
static struct {
    pthread_mutex_t mutex;
    struct held held;
} exchange = {PTHREAD_MUTEX_INITIALIZER, {POOL_NONE, 0}};

static struct held swap(struct held mine)
{
    pthread_mutex_lock(&exchange.mutex);
    const struct held other = exchange.held;
    exchange.held = mine;
    pthread_mutex_unlock(&exchange.mutex);
    return other;
}

static void let_go(struct pool_block *block, struct held held)
{
    expect(translation[held.slot].stamp == held.key, "a pinned translation has changed");
    atomic_fetch_sub_explicit(&translation[held.slot].pinned, 1, memory_order_relaxed);
    pool_unpin(&pool, block, held.slot);
}

static uint64_t soon(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + 100000;
}

static void *worker(void *block)
{
    unsigned seed = (unsigned)(uintptr_t)block;
    struct held held[HELD];
    unsigned count = 0;
    for (unsigned step = 0; step < steps; step++) {
        const unsigned draw = (unsigned)rand_r(&seed);
        if (count == held_most || (count && draw % 4 == 0)) {
            struct held one = held[--count];
            if (with_dooms && draw % 64 < 4) {
                const struct pool_victim victim = {one.slot, pool_generation(&pool, one.slot)};
                pool_doom(&pool, &victim, 1);
            }
            if (held_most > 1 && draw % 32 < 8)
                one = swap(one);
            if (one.slot != POOL_NONE)
                let_go(block, one);
            continue;
        }
        struct held *new = &held[count];
        new->key = 1 + draw / 64 % keys;
        const int err = pool_pin(&pool, block, (struct pool_key){new->key, 0}, (void *)new->key,
                                 draw % 3 ? 0 : soon(), &new->slot);
        if (err == 0) {
            pool_settle(block);
            atomic_fetch_add_explicit(&translation[new->slot].pinned, 1, memory_order_relaxed);
            expect(translation[new->slot].stamp == new->key, "pinned another key's translation");
            count++;
        }
        atomic_fetch_add_explicit(&timed_out, err == -ETIMEDOUT, memory_order_relaxed);
        expect(err == 0 || err == -EAGAIN || err == -ETIMEDOUT || err == -EIO, "odd error");
    }
    while (count)
        let_go(block, held[--count]);
    return NULL;
}

static struct pool_memory make_pool(uint32_t batch)
{
    const struct pool_memory memory = {
        .slots = calloc(slot_count, sizeof(struct pool_slot)),
        .buckets = malloc(4 * 2 * SLOTS),
        .batch = calloc(POOL_BATCH_ROOM(batch), sizeof(uint32_t)),
        .common_counters = calloc(POOL_CHUNK, sizeof(struct pool_counter)),
        .capacity = slot_count,
        .bucket_bits = 7,
        .batch_max = batch,
    };
    memset((void *)(uintptr_t)memory.buckets, 0xff, 4 * 2 * SLOTS);
    pool_init(&pool, &memory);
    memset(translation, 0, sizeof(translation));
    return memory;
}

static void free_pool(struct pool_memory memory)
{
    free(memory.slots);
    free((void *)(uintptr_t)memory.buckets);
    free(memory.batch);
    free(memory.common_counters);
    while (atomic_load(&chunk_count))
        free(chunks[atomic_fetch_sub(&chunk_count, 1) - 1]);
}

/* Threads come in two generations: the second takes over the first's blocks. */
static void stress(const char *name, unsigned with_slots, unsigned with_keys, unsigned with_held,
                   bool dooms)
{
    slot_count = with_slots;
    keys = with_keys;
    held_most = with_held;
    with_dooms = dooms;
    const struct pool_memory memory = make_pool(slot_count > 1 ? slot_count / 2 : 1);
    struct pool_block *blocks[THREADS];
    for (int i = 0; i < THREADS; i++) {
        blocks[i] = calloc(1, sizeof(*blocks[i]));
        if (i)
            pool_block_add(&pool, blocks[i]);
    }
    for (int generation = 0; generation < 2; generation++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, worker, i ? blocks[i] : NULL); /* one has none */
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    const struct held last = swap((struct held){POOL_NONE, 0});
    if (last.slot != POOL_NONE)
        let_go(blocks[1], last);
    for (uint32_t i = 0; i < slot_count; i++)
        expect(pool_pinned(&pool, i) == 0, "a pin was left");
    expect(atomic_load(&pool.waiting) == 0 && !pool.starving.head, "a waiter was left");
    struct pool_counts counts;
    pool_count(&pool, &counts);
    fprintf(stderr, "# %s: %llu misses, %llu evicted in %llu rounds, %llu revived, %llu waits\n",
            name, (unsigned long long)counts.misses, (unsigned long long)counts.evicted,
            (unsigned long long)counts.rounds, (unsigned long long)counts.revived,
            (unsigned long long)counts.waits);
    for (int i = 0; i < THREADS; i++)
        free(blocks[i]);
    free_pool(memory);
}

int main(void)
{
    machine_start();
    steps = MACHINE_ALWAYS_FENCES ? 5000 : 20000;
    const struct {
        const char *name;
        unsigned slots, keys, held;
        bool dooms;
    } runs[] = {
        {"one slot, three keys", 1, 3, 1, false},
        {"two slots: every pin evicts or waits", 2, 16, 1, false},
        {"eight slots, with waiting", 8, 64, HELD, false},
        {"sixty-four slots, eviction in batches", 64, 400, HELD, false},
        {"eight slots, with slots doomed while pinned", 8, 24, HELD, true},
    };
    const unsigned n = sizeof(runs) / sizeof(runs[0]);
    printf("1..%u\n", n);
    for (unsigned i = 0; i < n; i++) {
        const unsigned before = atomic_load(&failures);
        stress(runs[i].name, runs[i].slots, runs[i].keys, runs[i].held, runs[i].dooms);
        printf("%sok %u - %s\n", atomic_load(&failures) == before ? "" : "not ", i + 1,
               runs[i].name);
    }
    return atomic_load(&failures) != 0;
}
