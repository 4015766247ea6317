/* SPDX-License-Identifier: MIT */
/* Pools: making and destroying them, their limits and figures. */
#include <string.h>

#include "linux/pool.h"
#include "linux/system.h"

struct budget process_budget = {
    .bytes_max = UINT64_MAX, .maps_max = UINT64_MAX, .bytes_limit = UINT64_MAX};

/* A ceiling on two sums: take one, then the other, or none. */
static bool take64(_Atomic uint64_t *sum, const _Atomic uint64_t *max, uint64_t n)
{
    /* seq_cst: pairs with budget_give and set_budget, which are followed by pool_budget_changed */
    uint64_t now = atomic_load_explicit(sum, memory_order_seq_cst);
    do {
        const uint64_t most = atomic_load_explicit(max, memory_order_seq_cst);
        if (now > most || most - now < n)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(sum, &now, now + n, memory_order_seq_cst,
                                                    memory_order_seq_cst));
    return true;
}

bool budget_take(struct budget *budget, uint64_t bytes, uint64_t maps)
{
    if (!take64(&budget->bytes, &budget->bytes_max, bytes))
        return false;
    if (take64(&budget->maps, &budget->maps_max, maps))
        return true;
    budget_give(budget, bytes, 0);
    return false;
}

void budget_give(struct budget *budget, uint64_t bytes, uint64_t maps)
{
    atomic_fetch_sub_explicit(&budget->bytes, bytes, memory_order_seq_cst);
    atomic_fetch_sub_explicit(&budget->maps, maps, memory_order_seq_cst);
}

static bool is_power(uint64_t n)
{
    return n && (n & (n - 1)) == 0;
}

static uint64_t power_below(uint64_t n)
{
    return UINT64_C(1) << (63 - __builtin_clzll(n));
}

/* The largest extent that leaves room for a few dozen, or what the maps need to use the bytes. */
static uint64_t choose_extent(const struct mf_pool_limits *limits, uint32_t flags)
{
    enum { USUAL = 2 << 20, SEVERAL = 32 };
    if (flags & MF_POOL_DEBUG)
        return system_page;
    uint64_t extent = power_below(limits->bytes / SEVERAL ? limits->bytes / SEVERAL : 1);
    if (extent > USUAL)
        extent = USUAL;
    const uint64_t shares = limits->bytes / limits->maps;
    if (shares > extent)
        extent = power_below(shares) < INT32_MAX ? power_below(shares) : 1 << 30;
    return extent < system_page ? system_page : extent;
}

static int check_limits(const struct mf_pool_limits *limits)
{
    if (!limits->bytes || !limits->maps || !limits->files || limits->maps > POOL_SLOTS_MAX)
        return -EINVAL;
    return 0;
}

/* All that has a fixed size lies in one mapping, of which the kernel gives pages when touched. */
static int lay_out(struct mf_pool **out, const struct mf_pool_limits *limits)
{
    const uint32_t slots = POOL_SLOTS_MAX, bits = 17;
    const uint32_t ghosts = (uint32_t)power_below(2 * (uint64_t)limits->maps);
    size_t at = 0;
    const size_t pool_at = at;
    at = round_up(at + sizeof(struct mf_pool), 4096);
    const size_t slots_at = at;
    at = round_up(at + slots * sizeof(struct pool_slot), 4096);
    const size_t buckets_at = at;
    at += sizeof(uint32_t) << bits;
    const size_t batch_at = at;
    at = round_up(at + POOL_BATCH_ROOM(BATCH_MAX) * sizeof(uint32_t), 4096);
    const size_t counters_at = at;
    at = round_up(at + slots * sizeof(struct pool_counter), 4096);
    const size_t extents_at = at;
    at = round_up(at + slots * sizeof(struct extent), 4096);
    const size_t ghosts_at = at;
    at = round_up(at + ghosts * sizeof(uint64_t), 4096);

    char *memory = metadata_map(at);
    if (!memory)
        return -ENOMEM;
    struct mf_pool *pool = (struct mf_pool *)(void *)(memory + pool_at);
    struct pool_memory core = {
        .slots = (void *)(memory + slots_at),
        .buckets = (void *)(memory + buckets_at),
        .batch = (void *)(memory + batch_at),
        .common_counters = (void *)(memory + counters_at),
        .capacity = slots,
        .bucket_bits = bits,
        .batch_max = BATCH_MAX,
    };
    memset(memory + buckets_at, 0xff, sizeof(uint32_t) << bits);
    pool_init(&pool->core, &core);
    pool->extents = (void *)(memory + extents_at);
    pool->ghosts = (void *)(memory + ghosts_at);
    pool->ghosts_mask = ghosts - 1;
    pool->memory = memory;
    pool->memory_bytes = at;
    *out = pool;
    return 0;
}

static void set_budget(struct budget *budget, const struct mf_pool_limits *limits)
{
    atomic_store_explicit(&budget->bytes_max, limits->bytes, memory_order_seq_cst);
    atomic_store_explicit(&budget->maps_max, limits->maps, memory_order_seq_cst);
}

static void set_bytes_limit(struct budget *budget, uint64_t bytes)
{
    atomic_store_explicit(&budget->bytes_limit, bytes, memory_order_seq_cst);
}

/* Held for a few hundred nanoseconds, so that who finds one held spins before it sleeps. */
static void locks_init(struct mf_pool *pool)
{
    pthread_mutexattr_t spins;
    pthread_mutexattr_init(&spins);
    pthread_mutexattr_settype(&spins, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&pool->core.lock.mutex, &spins);
    pthread_mutex_init(&pool->files_lock, &spins);
    pthread_mutexattr_destroy(&spins);
    pthread_cond_init(&pool->files_changed, NULL);
}

static int create(const struct mf_pool_limits *limits, size_t extent, uint32_t flags,
                  struct mf_pool **out)
{
    machine_start();
    int err = check_limits(limits);
    if (err)
        return err;
    if (!extent)
        extent = choose_extent(limits, flags);
    if (flags & ~(uint32_t)MF_POOL_DEBUG || !is_power(extent) || extent < system_page ||
        limits->bytes < extent || extent > UINT64_C(1) << 40)
        return -EINVAL;
    struct mf_pool *pool;
    err = lay_out(&pool, limits);
    if (err)
        return err;
    pool->extent_shift = (uint32_t)__builtin_ctzll(extent);
    pool->extent_mask = extent - 1;
    pool->flags = flags;
    if (flags & MF_POOL_DEBUG)
        atomic_init(&pool->core.attention, 1); /* every unpin looks closer: piece_unpin_slow */
    pool->open_max = limits->files;
    set_budget(&pool->budget, limits);
    set_bytes_limit(&pool->budget, limits->bytes);
    locks_init(pool);
    err = registry_add(pool);
    if (err)
        metadata_unmap(pool->memory, pool->memory_bytes);
    else
        *out = pool;
    return err;
}

int mf_pool_create(const struct mf_pool_limits *limits, size_t extent, uint32_t flags,
                   struct mf_pool **out)
{
    const int saved = errno;
    const int err = create(limits, extent, flags, out);
    errno = saved;
    return err;
}

static bool over(const struct budget *budget)
{
    return atomic_load_explicit(&budget->bytes, memory_order_relaxed) >
               atomic_load_explicit(&budget->bytes_max, memory_order_relaxed) ||
           atomic_load_explicit(&budget->maps, memory_order_relaxed) >
               atomic_load_explicit(&budget->maps_max, memory_order_relaxed);
}

/* Gives up one idle extent of each pool but one; how many went. */
static uint32_t shrink_all(const struct mf_pool *except)
{
    uint32_t gone = 0;
    registry_walk_begin();
    for (uint32_t i = 0; i < POOLS_MAX; i++) {
        struct mf_pool *pool = atomic_load_explicit(&registry[i], memory_order_acquire);
        if (pool && pool != except)
            gone += pool_shrink(&pool->core, 1);
    }
    registry_walk_end();
    return gone;
}

bool process_make_room(const struct mf_pool *pool, uint64_t bytes, uint64_t maps)
{
    const struct budget *b = &process_budget;
    const uint64_t bytes_max = atomic_load_explicit(&b->bytes_max, memory_order_relaxed);
    const uint64_t maps_max = atomic_load_explicit(&b->maps_max, memory_order_relaxed);
    if (bytes > bytes_max)
        return false;
    if (atomic_load_explicit(&b->bytes, memory_order_relaxed) <= bytes_max - bytes &&
        atomic_load_explicit(&b->maps, memory_order_relaxed) + maps <= maps_max)
        return false; /* it is something else that is short */
    return shrink_all(pool) != 0;
}

/* From here on nothing is taken that the new limits forbid; then what is idle goes. */
static int shrink_budget(struct budget *budget, const struct mf_pool_limits *limits,
                         struct mf_pool *only)
{
    const struct mf_pool_limits before = {
        .bytes = atomic_load_explicit(&budget->bytes_max, memory_order_relaxed),
        .maps = (uint32_t)atomic_load_explicit(&budget->maps_max, memory_order_relaxed),
    };
    set_budget(budget, limits);
    while (over(budget) && (only ? pool_shrink(&only->core, 1) : shrink_all(NULL)))
        ;
    if (over(budget)) {
        set_budget(budget, &before);
        return -EBUSY;
    }
    set_bytes_limit(budget, limits->bytes);
    return 0;
}

int mf_pool_set_limits(struct mf_pool *pool, const struct mf_pool_limits *limits)
{
    int err = check_limits(limits);
    if (err || (pool && limits->bytes >> pool->extent_shift == 0))
        return -EINVAL;
    if (!pool)
        return shrink_budget(&process_budget, limits, NULL);
    const int saved = errno, cancel = cancel_off();
    pthread_mutex_lock(&pool->files_lock);
    const uint32_t open_before = pool->open_max;
    pool->open_max = limits->files;
    err = limits->files <= pool->strays || files_trim_locked(pool, 0) ? -EBUSY : 0;
    if (err)
        pool->open_max = open_before;
    pthread_mutex_unlock(&pool->files_lock);
    if (!err)
        err = shrink_budget(&pool->budget, limits, pool);
    pool_budget_changed(&pool->core); /* there may be more room, or less than is waited for */
    if (err) {
        pthread_mutex_lock(&pool->files_lock);
        pool->open_max = open_before;
        pthread_mutex_unlock(&pool->files_lock);
    }
    cancel_restore(cancel);
    errno = saved;
    return err;
}

/* Pins minus unpins, over all slots. */
static uint64_t count_pinned(struct mf_pool *pool)
{
    const uint32_t used = atomic_load_explicit(&pool->extents_used, memory_order_acquire);
    uint64_t pinned = 0;
    for (uint32_t i = 0; i < used; i++)
        pinned += pool_pinned(&pool->core, i);
    return pinned;
}

static uint64_t count_failed(struct mf_pool *pool)
{
    const uint32_t used = atomic_load_explicit(&pool->extents_used, memory_order_acquire);
    uint64_t failed = 0;
    for (uint32_t i = 0; i < used; i++)
        failed +=
            atomic_load_explicit(&pool->core.slots[i].machine.failed, memory_order_relaxed) != 0;
    return failed;
}

void mf_pool_stats(struct mf_pool *pool, struct mf_pool_stats *stats)
{
    struct pool_counts counts;
    pool_count(&pool->core, &counts);
    memset(stats, 0, sizeof(*stats));
    pthread_mutex_lock(&pool->files_lock);
    stats->bytes_copied = pool->copied;
    stats->copies = pool->copies;
    stats->reopened = pool->reopened;
    stats->files_open = pool->open;
    stats->failed = pool->failed_retired;
    /* Copies change both sums under this lock: their difference is that of one moment. */
    stats->bytes_mapped =
        atomic_load_explicit(&pool->budget.bytes, memory_order_relaxed) - stats->bytes_copied;
    pthread_mutex_unlock(&pool->files_lock);
    stats->maps = (uint32_t)atomic_load_explicit(&pool->budget.maps, memory_order_relaxed);
    stats->pinned = count_pinned(pool);
    stats->failed += count_failed(pool);
    stats->hits = counts.hits;
    stats->misses = counts.misses;
    stats->revived = counts.revived;
    stats->evicted = counts.evicted;
    stats->rounds = counts.rounds;
    stats->waits = counts.waits;
    stats->lock_taken = counts.lock_taken;
    stats->lock_contended = counts.lock_contended;
    stats->lock_steps = counts.lock_steps;
    stats->lock_steps_max = counts.lock_steps_max;
}

int mf_pool_destroy(struct mf_pool *pool)
{
    if (!pool)
        return 0;
    if (pool->files || pool->copied || count_pinned(pool))
        return -EBUSY;
    registry_remove(pool);
    extents_destroy(pool);
    chunks_destroy(pool);
    pthread_mutex_destroy(&pool->files_lock);
    pthread_cond_destroy(&pool->files_changed);
    metadata_unmap(pool->memory, pool->memory_bytes);
    return 0;
}
