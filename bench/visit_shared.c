/* SPDX-License-Identifier: MIT */
/*
 * shared_refcount: the library's pool as it would be with the count that comes to mind first. One
 * atomic word an extent counts its pins, so that pins and unpins of all threads write to one cache
 * line; that word also closes the extent, so that no barrier is needed to evict it. All else is as
 * in the pool: extents, a hash table read without a lock, a second chance, eviction in batches
 * whose pages are dropped together, and reuse of the place by one mmap(MAP_FIXED).
 *
 * A slot's key changes only while its word says CLOSED with no pin. A pin counts first and looks at
 * the word it found and at the key after; if it was CLOSED, or the key is another's, it counts back
 * and looks again under the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "visit.h"

enum { EXTENT = 2 << 20, BATCH = 256, SHARES = 32, THREADS = 64, CLOSED = 1 << 30 };

#define NONE UINT32_MAX
#define NO_KEY UINT64_MAX

struct slot {
    _Atomic uint32_t word; /* pins, and CLOSED */
    _Atomic uint32_t next; /* in its bucket */
    _Atomic uint64_t key;
    _Atomic bool used; /* since the hand last came by */
} __attribute__((aligned(64)));

struct pool {
    const struct visit_world *world;
    size_t extent_bytes;
    char *base; /* slot i has its place at i extents from here */
    uint32_t capacity;
    struct slot *slots;
    _Atomic uint32_t *buckets;
    unsigned bucket_bits;

    pthread_mutex_t lock __attribute__((aligned(64)));
    uint32_t hand;
    uint32_t idle_count;
    uint32_t idle[BATCH + THREADS]; /* closed, dropped, in no bucket */
    uint64_t misses;
};

static size_t bucket_of(const struct pool *pool, uint64_t key)
{
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - pool->bucket_bits));
}

/* Without the lock the chain may change underfoot: it is followed for so long and no longer. */
static uint32_t find(const struct pool *pool, uint64_t key)
{
    uint32_t i = atomic_load_explicit(&pool->buckets[bucket_of(pool, key)], memory_order_acquire);
    for (int steps = 0; i != NONE && steps < 64; steps++) {
        if (atomic_load_explicit(&pool->slots[i].key, memory_order_relaxed) == key)
            return i;
        i = atomic_load_explicit(&pool->slots[i].next, memory_order_acquire);
    }
    return NONE;
}

static void unpin(struct slot *slot)
{
    if (!atomic_load_explicit(&slot->used, memory_order_relaxed))
        atomic_store_explicit(&slot->used, true, memory_order_relaxed);
    atomic_fetch_sub_explicit(&slot->word, 1, memory_order_release);
}

/* The slot of the key, pinned, or NONE. */
static uint32_t try_pin(struct pool *pool, uint64_t key)
{
    const uint32_t i = find(pool, key);
    if (i == NONE)
        return NONE;
    struct slot *slot = &pool->slots[i];
    /* acquire: pairs with the release by which a filled slot is opened */
    const uint32_t word = atomic_fetch_add_explicit(&slot->word, 1, memory_order_acquire);
    if (!(word & CLOSED) && atomic_load_explicit(&slot->key, memory_order_relaxed) == key)
        return i;
    atomic_fetch_sub_explicit(&slot->word, 1, memory_order_release);
    return NONE;
}

static void unchain_locked(struct pool *pool, uint32_t gone)
{
    struct slot *slot = &pool->slots[gone];
    const uint64_t key = atomic_load_explicit(&slot->key, memory_order_relaxed);
    if (key == NO_KEY)
        return;
    _Atomic uint32_t *link = &pool->buckets[bucket_of(pool, key)];
    while (atomic_load_explicit(link, memory_order_relaxed) != gone)
        link = &pool->slots[atomic_load_explicit(link, memory_order_relaxed)].next;
    atomic_store_explicit(link, atomic_load_explicit(&slot->next, memory_order_relaxed),
                          memory_order_release);
    atomic_store_explicit(&slot->key, NO_KEY, memory_order_relaxed);
}

static void chain_locked(struct pool *pool, uint32_t i, uint64_t key)
{
    struct slot *slot = &pool->slots[i];
    _Atomic uint32_t *bucket = &pool->buckets[bucket_of(pool, key)];
    atomic_store_explicit(&slot->key, key, memory_order_relaxed);
    atomic_store_explicit(&slot->used, true, memory_order_relaxed);
    atomic_store_explicit(&slot->next, atomic_load_explicit(bucket, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(bucket, i, memory_order_release);
    /* Opened, with a pin of ours. Pins that are about to be counted back stay counted. */
    atomic_fetch_sub_explicit(&slot->word, CLOSED - 1, memory_order_release);
}

/* The pages of all go at once, so that the processors' TLBs are flushed once. */
static void drop(const struct pool *pool, const uint32_t *slots, uint32_t count)
{
    struct iovec ranges[BATCH];
    for (uint32_t i = 0; i < count; i++)
        ranges[i] = (struct iovec){pool->base + slots[i] * pool->extent_bytes, pool->extent_bytes};
    const int own_process = -10000; /* PIDFD_SELF, of newer kernels */
    const long bytes =
        syscall(SYS_process_madvise, own_process, ranges, (size_t)count, MADV_DONTNEED, 0u);
    for (uint32_t i = bytes > 0 ? (uint32_t)((size_t)bytes / pool->extent_bytes) : 0; i < count;
         i++)
        madvise(ranges[i].iov_base, ranges[i].iov_len, MADV_DONTNEED);
}

/* Closes up to a batch that nobody has pinned and that was not used since the last time. */
static void evict_locked(struct pool *pool)
{
    uint32_t most = pool->capacity / 2 < BATCH ? pool->capacity / 2 : BATCH;
    most = most ? most : 1;
    for (uint32_t steps = 0; steps < 2 * pool->capacity && pool->idle_count < most; steps++) {
        const uint32_t i = pool->hand++ % pool->capacity;
        struct slot *slot = &pool->slots[i];
        uint32_t none = 0;
        if (atomic_load_explicit(&slot->used, memory_order_relaxed)) {
            atomic_store_explicit(&slot->used, false, memory_order_relaxed);
            continue;
        }
        /* acquire: what was done under the last pin comes before the drop */
        if (!atomic_compare_exchange_strong_explicit(&slot->word, &none, CLOSED,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        unchain_locked(pool, i);
        pool->idle[pool->idle_count++] = i;
    }
    drop(pool, pool->idle, pool->idle_count);
}

static int map_over(const struct pool *pool, uint32_t i, struct visit visit)
{
    const struct visit_world *world = pool->world;
    const int fd = world->paths ? open(world->paths[visit.file], O_RDONLY | O_CLOEXEC) : world->fd;
    if (fd < 0)
        return -errno;
    const void *start =
        mmap(pool->base + i * pool->extent_bytes, pool->extent_bytes, PROT_READ,
             MAP_SHARED | MAP_FIXED, fd, (off_t)(visit.offset & ~(pool->extent_bytes - 1)));
    const int error = start == MAP_FAILED ? -errno : 0;
    if (world->paths)
        close(fd);
    return error;
}

/* Two threads may map the same extent at once; the second gives its own back. */
static int miss(struct pool *pool, struct visit visit, uint64_t key, uint32_t *out)
{
    pthread_mutex_lock(&pool->lock);
    *out = try_pin(pool, key);
    if (*out == NONE && !pool->idle_count)
        evict_locked(pool);
    const uint32_t mine = *out == NONE && pool->idle_count ? pool->idle[--pool->idle_count] : NONE;
    pool->misses += mine != NONE;
    pthread_mutex_unlock(&pool->lock);
    if (*out != NONE)
        return 0;
    if (mine == NONE)
        return -EAGAIN;
    const int error = map_over(pool, mine, visit);
    pthread_mutex_lock(&pool->lock);
    *out = error ? NONE : try_pin(pool, key);
    if (error || *out != NONE) {
        pool->idle[pool->idle_count++] = mine;
    } else {
        chain_locked(pool, mine, key);
        *out = mine;
    }
    pthread_mutex_unlock(&pool->lock);
    return error;
}

VISIT_INLINE int visit_pinned(void *system, const struct visit *visits, size_t count, uint64_t *sum,
                              bool chained)
{
    struct pool *pool = system;
    const unsigned shift = (unsigned)__builtin_ctzll(pool->extent_bytes);
    uint64_t total = *sum;
    for (size_t i = 0; i < count; i++) {
        const struct visit visit = visit_after(visits[i], total, chained);
        const uint64_t key = (uint64_t)visit.file << 32 | visit.offset >> shift;
        uint32_t slot = try_pin(pool, key);
        if (slot == NONE) {
            const int error = miss(pool, visit, key, &slot);
            if (error)
                return error;
        }
        total += visit_read(pool->base + slot * pool->extent_bytes,
                            visit.offset & (uint32_t)(pool->extent_bytes - 1));
        unpin(&pool->slots[slot]);
    }
    *sum = total;
    return 0;
}

static int run(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_pinned(system, visits, count, sum, false);
}

static int chain(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_pinned(system, visits, count, sum, true);
}

/* What is said, or as the library's pool chooses. */
static size_t choose_extent(const struct visit_world *world)
{
    size_t extent = world->extent ? world->extent : EXTENT;
    while (extent > VISIT_PAGE &&
           (extent > world->budget_bytes / SHARES || extent / 2 >= world->file_bytes))
        extent /= 2;
    return extent;
}

static int open_pool(const struct visit_world *world, void **out)
{
    struct pool *pool = aligned_alloc(64, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    *pool = (struct pool){.world = world, .extent_bytes = choose_extent(world)};
    *out = pool;
    pthread_mutex_init(&pool->lock, NULL);
    const uint64_t extents = world->budget_bytes / pool->extent_bytes;
    pool->capacity = extents < world->budget_maps ? (uint32_t)extents : world->budget_maps;
    pool->bucket_bits = 2;
    while (1u << pool->bucket_bits < 2 * pool->capacity)
        pool->bucket_bits++;
    const size_t bytes = pool->capacity * pool->extent_bytes;
    pool->slots = aligned_alloc(64, pool->capacity * sizeof(*pool->slots));
    pool->buckets = malloc(sizeof(*pool->buckets) << pool->bucket_bits);
    char *raw =
        mmap(NULL, bytes + EXTENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!pool->slots || !pool->buckets || raw == MAP_FAILED)
        return -ENOMEM;
    pool->base = (char *)(((uintptr_t)raw + EXTENT - 1) & ~(uintptr_t)(EXTENT - 1));
    for (size_t i = 0; i < (size_t)1 << pool->bucket_bits; i++)
        atomic_init(&pool->buckets[i], NONE);
    for (uint32_t i = 0; i < pool->capacity; i++) {
        struct slot *slot = &pool->slots[i];
        atomic_init(&slot->word, 0);
        atomic_init(&slot->key, NO_KEY);
        atomic_init(&slot->next, NONE);
        atomic_init(&slot->used, false);
    }
    return 0;
}

static uint64_t misses(void *system, uint64_t visits)
{
    (void)visits;
    return ((const struct pool *)system)->misses; /* no thread is visiting */
}

const struct visitor visitor_shared = {
    .name = "shared_refcount", .open = open_pool, .run = run, .chain = chain, .misses = misses};
