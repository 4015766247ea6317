/* SPDX-License-Identifier: MIT */
/*
 * lru_cache: the cache of mapped windows that every project writes for itself, written well. One
 * mutex guards a hash table and a list of windows from newest to oldest use. What is slow is done
 * without the mutex: the window that goes is unlinked under it, and another piece is mapped over
 * it by one call afterwards; two threads that miss the same piece at once both map it, and the
 * second gives its own back. Windows have places of their own in one range of addresses.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "visit.h"

enum { NONE = -1 };
enum { WINDOW = 64 << 10 };

struct window {
    uint64_t key;
    uint32_t pins;
    int32_t chain;        /* the next in its bucket */
    int32_t newer, older; /* the next in the list */
};

struct lru {
    const struct visit_world *world;
    size_t window_bytes;
    char *base;
    struct window *windows;
    int32_t *buckets;
    unsigned bucket_bits;

    pthread_mutex_t lock __attribute__((aligned(64)));
    int32_t newest, oldest;
    uint64_t misses;
};

static size_t bucket_of(const struct lru *lru, uint64_t key)
{
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - lru->bucket_bits));
}

static void list_remove(struct lru *lru, int32_t i)
{
    const struct window *window = &lru->windows[i];
    *(window->newer == NONE ? &lru->newest : &lru->windows[window->newer].older) = window->older;
    *(window->older == NONE ? &lru->oldest : &lru->windows[window->older].newer) = window->newer;
}

static void list_push(struct lru *lru, int32_t i)
{
    struct window *window = &lru->windows[i];
    window->newer = NONE;
    window->older = lru->newest;
    *(lru->newest == NONE ? &lru->oldest : &lru->windows[lru->newest].newer) = i;
    lru->newest = i;
}

static void list_push_oldest(struct lru *lru, int32_t i)
{
    struct window *window = &lru->windows[i];
    window->older = NONE;
    window->newer = lru->oldest;
    *(lru->oldest == NONE ? &lru->newest : &lru->windows[lru->oldest].older) = i;
    lru->oldest = i;
}

static int32_t find(const struct lru *lru, uint64_t key)
{
    int32_t i = lru->buckets[bucket_of(lru, key)];
    while (i != NONE && lru->windows[i].key != key)
        i = lru->windows[i].chain;
    return i;
}

static void unchain(struct lru *lru, int32_t gone)
{
    if (lru->windows[gone].key == UINT64_MAX)
        return;
    int32_t *link = &lru->buckets[bucket_of(lru, lru->windows[gone].key)];
    while (*link != gone)
        link = &lru->windows[*link].chain;
    *link = lru->windows[gone].chain;
}

/* The window of the key, pinned and the newest, or NONE. */
static int32_t look_up_locked(struct lru *lru, uint64_t key)
{
    const int32_t i = find(lru, key);
    if (i == NONE)
        return NONE;
    lru->windows[i].pins++;
    if (lru->newest != i) {
        list_remove(lru, i);
        list_push(lru, i);
    }
    return i;
}

/* The oldest that nobody has pinned, taken out of table and list; NONE if all are. */
static int32_t take_oldest_locked(struct lru *lru)
{
    int32_t i = lru->oldest;
    while (i != NONE && lru->windows[i].pins)
        i = lru->windows[i].newer;
    if (i == NONE)
        return NONE;
    unchain(lru, i);
    list_remove(lru, i);
    return i;
}

static int map_over(const struct lru *lru, int32_t i, struct visit visit)
{
    const struct visit_world *world = lru->world;
    const int fd = world->paths ? open(world->paths[visit.file], O_RDONLY | O_CLOEXEC) : world->fd;
    if (fd < 0)
        return -errno;
    const void *start =
        mmap(lru->base + (size_t)i * lru->window_bytes, lru->window_bytes, PROT_READ,
             MAP_SHARED | MAP_FIXED, fd, (off_t)(visit.offset & ~(lru->window_bytes - 1)));
    const int error = start == MAP_FAILED ? -errno : 0;
    if (world->paths)
        close(fd);
    return error;
}

static int miss(struct lru *lru, struct visit visit, uint64_t key, int32_t *out)
{
    pthread_mutex_lock(&lru->lock);
    const int32_t mine = take_oldest_locked(lru);
    pthread_mutex_unlock(&lru->lock);
    if (mine == NONE)
        return -EAGAIN;
    const int error = map_over(lru, mine, visit);
    pthread_mutex_lock(&lru->lock);
    struct window *window = &lru->windows[mine];
    const int32_t other = error ? NONE : look_up_locked(lru, key);
    if (error || other != NONE) {
        window->key = UINT64_MAX;
        list_push_oldest(lru, mine);
    } else {
        int32_t *bucket = &lru->buckets[bucket_of(lru, key)];
        *window = (struct window){.key = key, .pins = 1, .chain = *bucket};
        *bucket = mine;
        list_push(lru, mine);
    }
    pthread_mutex_unlock(&lru->lock);
    *out = other != NONE ? other : mine;
    return error;
}

VISIT_INLINE int visit_cached(void *system, const struct visit *visits, size_t count, uint64_t *sum,
                              bool chained)
{
    struct lru *lru = system;
    uint64_t total = *sum;
    for (size_t i = 0; i < count; i++) {
        const struct visit visit = visit_after(visits[i], total, chained);
        const uint64_t key = (uint64_t)visit.file << 32 | visit.offset / lru->window_bytes;
        pthread_mutex_lock(&lru->lock);
        int32_t window = look_up_locked(lru, key);
        lru->misses += window == NONE;
        pthread_mutex_unlock(&lru->lock);
        if (window == NONE) {
            const int error = miss(lru, visit, key, &window);
            if (error)
                return error;
        }
        total += visit_read(lru->base + (size_t)window * lru->window_bytes,
                            visit.offset & (uint32_t)(lru->window_bytes - 1));
        pthread_mutex_lock(&lru->lock);
        lru->windows[window].pins--;
        pthread_mutex_unlock(&lru->lock);
    }
    *sum = total;
    return 0;
}

static int run(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_cached(system, visits, count, sum, false);
}

static int chain(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_cached(system, visits, count, sum, true);
}

static int open_lru(const struct visit_world *world, void **out)
{
    struct lru *lru = aligned_alloc(64, sizeof(*lru));
    if (!lru)
        return -ENOMEM;
    *lru = (struct lru){.world = world, .window_bytes = WINDOW, .newest = NONE, .oldest = NONE};
    *out = lru;
    pthread_mutex_init(&lru->lock, NULL);
    size_t windows = world->budget_bytes / WINDOW;
    windows = windows < world->budget_maps ? windows : world->budget_maps;
    lru->bucket_bits = 2;
    while (1u << lru->bucket_bits < 2 * windows)
        lru->bucket_bits++;
    lru->windows = calloc(windows, sizeof(*lru->windows));
    lru->buckets = malloc(sizeof(*lru->buckets) << lru->bucket_bits);
    lru->base =
        mmap(NULL, windows * WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!lru->windows || !lru->buckets || lru->base == MAP_FAILED)
        return -ENOMEM;
    for (size_t i = 0; i < (size_t)1 << lru->bucket_bits; i++)
        lru->buckets[i] = NONE;
    for (size_t i = 0; i < windows; i++) {
        lru->windows[i].key = UINT64_MAX;
        list_push(lru, (int32_t)i);
    }
    return 0;
}

static uint64_t misses(void *system, uint64_t visits)
{
    (void)visits;
    return ((const struct lru *)system)->misses; /* no thread is visiting */
}

/* The cache has no files that could be closed: their windows go when others need the room. */
static int come_and_go(void *system, const struct visit_world *world, uint32_t file)
{
    (void)world;
    uint64_t sum = 0;
    const struct visit visit = {.file = file};
    return run(system, &visit, 1, &sum);
}

const struct visitor visitor_lru = {.name = "lru_cache",
                                    .open = open_lru,
                                    .run = run,
                                    .chain = chain,
                                    .misses = misses,
                                    .come_and_go = come_and_go};
