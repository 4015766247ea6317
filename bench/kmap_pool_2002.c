/* SPDX-License-Identifier: MIT */
/*
 * pool-2002: the pool of the first mail, a model of what its kernel did. All of it is under one
 * lock. A slot's count is 0 (free), 1 (nobody uses it, but it was used since the last flush and
 * still holds its page) or users + 1. A page that has a slot gets it again. For another page the
 * cursor goes on from where it stopped to the next slot that counts 0; when it wraps, all slots are
 * looked at, those that count 1 become 0, and the TLBs are flushed. Where all slots are in use the
 * caller sleeps until one is not.
 *
 * A step is a slot looked at. What the kernel did by writing a page table entry is an
 * mmap(MAP_FIXED) here, under the lock like there, and what it did by clearing entries and flushing
 * is one madvise(MADV_DONTNEED) for each run of slots.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kmap_system.h"

#define NO_SLOT UINT32_MAX

struct pool {
    const struct kmap_setup *setup;
    char *base;
    struct metered_lock lock;

    /* Under the lock. */
    uint32_t *count;   /* by slot */
    uint32_t *page;    /* by slot: file * pages + page */
    uint32_t *slot_of; /* by page, or NO_SLOT: the page's own pointer in the kernel */
    uint32_t cursor;
    uint64_t steps, steps_max;

    _Atomic uint32_t unused; /* counts slots that came out of use while somebody slept */
    _Atomic uint32_t sleepers;
};

static void flush_run(const struct pool *pool, uint32_t first, uint32_t end)
{
    if (end > first)
        madvise(pool->base + (size_t)first * KMAP_PAGE, (size_t)(end - first) * KMAP_PAGE,
                MADV_DONTNEED);
}

static void flush_all_locked(struct pool *pool)
{
    uint32_t run = 0; /* where a run of slots that were freed begins */
    for (uint32_t i = 0; i < pool->setup->slots; i++) {
        if (pool->count[i] == 1) {
            pool->count[i] = 0;
            pool->slot_of[pool->page[i]] = NO_SLOT;
        } else if (pool->count[i] > 1) {
            flush_run(pool, run, i);
            run = i + 1;
        }
    }
    flush_run(pool, run, pool->setup->slots);
}

static void sleep_unlocked(struct pool *pool, uint32_t seen)
{
    syscall(SYS_futex, &pool->unused, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* A free slot, or one that the page got while we slept (*again). *steps grows. */
static uint32_t find_slot(struct pool *pool, uint32_t page, uint64_t *steps, bool *again)
{
    const uint32_t slots = pool->setup->slots;
    uint32_t left = slots;
    for (;;) {
        pool->cursor = (pool->cursor + 1) % slots;
        ++*steps;
        if (pool->cursor == 0) {
            flush_all_locked(pool);
            *steps += slots;
            left = slots;
        }
        if (pool->count[pool->cursor] == 0)
            return pool->cursor;
        if (--left)
            continue;
        atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_relaxed);
        const uint32_t seen = atomic_load_explicit(&pool->unused, memory_order_relaxed);
        metered_lock_release(&pool->lock);
        sleep_unlocked(pool, seen);
        metered_lock_acquire(&pool->lock);
        atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_relaxed);
        *again = pool->slot_of[page] != NO_SLOT;
        if (*again)
            return pool->slot_of[page];
        left = slots;
    }
}

static int fill_slot(struct pool *pool, uint32_t slot, uint32_t page)
{
    const struct kmap_setup *setup = pool->setup;
    const void *at =
        mmap(pool->base + (size_t)slot * KMAP_PAGE, KMAP_PAGE, PROT_READ, MAP_SHARED | MAP_FIXED,
             setup->fds[page / setup->pages], (off_t)(page % setup->pages) * KMAP_PAGE);
    if (at == MAP_FAILED)
        return -errno;
    pool->count[slot] = 1;
    pool->page[slot] = page;
    pool->slot_of[page] = slot;
    return 0;
}

static int map(struct pool *pool, uint32_t page, uint32_t *slot)
{
    uint64_t steps = 0;
    int error = 0;
    metered_lock_acquire(&pool->lock);
    *slot = pool->slot_of[page];
    if (*slot == NO_SLOT) {
        bool again = false;
        *slot = find_slot(pool, page, &steps, &again);
        error = again ? 0 : fill_slot(pool, *slot, page);
        pool->steps += steps;
        pool->steps_max = steps > pool->steps_max ? steps : pool->steps_max;
    }
    if (!error)
        pool->count[*slot]++;
    metered_lock_release(&pool->lock);
    return error;
}

static void unmap(struct pool *pool, uint32_t slot)
{
    metered_lock_acquire(&pool->lock);
    const bool wakes =
        --pool->count[slot] == 1 && atomic_load_explicit(&pool->sleepers, memory_order_relaxed) > 0;
    if (wakes)
        atomic_fetch_add_explicit(&pool->unused, 1, memory_order_relaxed);
    metered_lock_release(&pool->lock);
    if (wakes)
        syscall(SYS_futex, &pool->unused, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static int open_pool(const struct kmap_setup *setup, void **state)
{
    const size_t pages = (size_t)setup->files * setup->pages;
    struct pool *pool = aligned_alloc(64, sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    *pool = (struct pool){.setup = setup};
    *state = pool;
    pool->lock.times = setup->times;
    pool->count = calloc(setup->slots, sizeof(*pool->count));
    pool->page = calloc(setup->slots, sizeof(*pool->page));
    pool->slot_of = malloc(pages * sizeof(*pool->slot_of));
    pool->base = mmap(NULL, (size_t)setup->slots * KMAP_PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!pool->count || !pool->page || !pool->slot_of || pool->base == MAP_FAILED)
        return -ENOMEM;
    for (size_t i = 0; i < pages; i++)
        pool->slot_of[i] = NO_SLOT;
    int error = 0;
    for (uint32_t i = 0; i < setup->held && !error; i++) {
        uint32_t slot;
        error = map(pool, i, &slot);
    }
    return error;
}

static int run(struct kmap_worker *worker, size_t first, size_t count)
{
    struct pool *pool = worker->state;
    for (size_t i = first; i < first + count; i++) {
        uint32_t slot;
        const int error = map(pool, worker->file * pool->setup->pages + worker->page[i], &slot);
        if (error)
            return error;
        worker->sum += kmap_touch(pool->base + (size_t)slot * KMAP_PAGE);
        unmap(pool, slot);
    }
    return 0;
}

static void read_books(void *state, struct kmap_books *books)
{
    const struct pool *pool = state;
    *books = (struct kmap_books){
        .counted = true,
        .timed = pool->setup->times,
        .stepped = true,
        .lock = pool->lock.books,
        .steps = pool->steps,
        .steps_max = pool->steps_max,
    };
}

const struct kmap_system kmap_pool_2002 = {.name = "pool-2002",
                                           .pool = true,
                                           .timed = true,
                                           .open = open_pool,
                                           .run = run,
                                           .read_books = read_books};
