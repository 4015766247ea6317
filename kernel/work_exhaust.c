/* SPDX-License-Identifier: MIT */
/*
 * More pins than slots. All slots are pinned, and threads that want other pages come one after the
 * other, each when the one before has been counted as waiting. Then the pins are given up one at a
 * time: in which order do the waiters get on? Then all threads map, sleep and unmap at random, more
 * of them than there are slots; the workload ends only if no wake is lost. At last the pages go
 * away while all stand still, and are mapped once more, in slots whose translations were removed.
 */
#include "kernel/console.h"
#include "kernel/options.h"
#include "kernel/thread.h"
#include "kernel/work.h"

enum { WAITERS_MAX = 48, CROWD_PAGES = 1024, NOBODY = 0xffffffff };

struct run {
    unsigned waiters;
    _Atomic uint32_t turn;  /* waiters below this shall come */
    _Atomic uint32_t got;   /* how many have their page */
    _Atomic uint32_t first; /* who got the last one */
    _Atomic uint32_t done;
    uint32_t in_order;
    uint32_t most_woken;
    struct figures figures;
    struct meeting meeting;
    uint32_t crowd_ops;
    _Atomic uint32_t errors;
};

static struct page *page_of(uint32_t i)
{
    return highmem_page(PAGES_EXHAUST + i);
}

static void add_errors(struct run *run, uint32_t errors)
{
    atomic_fetch_add_explicit(&run->errors, errors, memory_order_relaxed);
}

static void wait_for(_Atomic uint32_t *value, uint32_t least)
{
    while (atomic_load_explicit(value, memory_order_acquire) < least)
        thread_yield();
}

static void be_waiter(struct run *run, unsigned number)
{
    wait_for(&run->turn, number + 1);
    const volatile uint32_t *words = kmap(page_of(SLOTS_MAX + number));
    add_errors(run, *words != scatter(SLOTS_MAX + number));
    atomic_store_explicit(&run->first, number, memory_order_relaxed);
    atomic_fetch_add_explicit(&run->got, 1, memory_order_release);
    wait_for(&run->done, 1);
    kunmap(page_of(SLOTS_MAX + number));
}

/* All is pinned: what does not wait, and what waits in vain, says so; what is there is there. */
static void check_refusals(struct run *run)
{
    struct page *other = page_of(SLOTS_MAX);
    add_errors(run, kmap_until(other, 0) != NULL);
    add_errors(run, kmap_until(other, timestamp() + 100000) != NULL);
    add_errors(run, kmap_until(page_of(0), 0) == NULL);
    kunmap(page_of(0));
}

static void direct_waiters(struct run *run)
{
    const bool core = same_text(options.pool, "core");
    figures_begin(&run->figures);
    for (uint32_t i = 0; i < options.slots; i++)
        kmap(page_of(i));
    if (core) /* that of 2002 knows only waiting */
        check_refusals(run);
    for (uint32_t i = 0; i < run->waiters; i++) {
        const uint64_t before = kmap_counts().waits;
        atomic_store_explicit(&run->turn, i + 1, memory_order_release);
        while (kmap_counts().waits == before)
            thread_yield();
    }
    for (uint32_t i = 0; i < run->waiters; i++) {
        kunmap(page_of(i));
        wait_for(&run->got, i + 1);
        run->in_order += atomic_load_explicit(&run->first, memory_order_relaxed) == i;
    }
    atomic_store_explicit(&run->done, 1, memory_order_release);
    for (uint32_t i = run->waiters; i < options.slots; i++)
        kunmap(page_of(i));
}

static void crowd(struct run *run, unsigned index)
{
    uint32_t state = index + 1, errors = 0;
    for (uint32_t i = 0; i < run->crowd_ops; i++) {
        const uint32_t n = random_below(&state, CROWD_PAGES);
        const volatile uint32_t *words = kmap(page_of(n));
        errors += *words != scatter(n);
        thread_yield();
        errors += *words != scatter(n);
        kunmap(page_of(n));
    }
    add_errors(run, errors);
}

static void work(unsigned index, void *context)
{
    struct run *run = context;
    if (index == 0)
        direct_waiters(run);
    else if (index <= run->waiters)
        be_waiter(run, index - 1);
    meet(&run->meeting);
    crowd(run, index);
    meet(&run->meeting);
    if (index == 0) {
        figures_end(&run->figures);
        for (uint32_t i = 0; i < CROWD_PAGES; i++)
            kmap_forget(page_of(i));
    }
    meet(&run->meeting);
    crowd(run, index);
}

bool work_exhaust(void)
{
    const unsigned threads = THREADS_PER_CPU * cpu_count;
    struct run run = {.waiters = threads - 1 < WAITERS_MAX ? threads - 1 : WAITERS_MAX,
                      .meeting.count = threads,
                      .crowd_ops = options.ops / 100 + 1};
    for (uint32_t i = 0; i < SLOTS_MAX + WAITERS_MAX; i++) {
        *(uint32_t *)kmap_local(page_of(i)) = scatter(i);
        kunmap_local();
    }
    threads_run(THREADS_PER_CPU, work, &run);
    const uint32_t errors = atomic_load_explicit(&run.errors, memory_order_relaxed);
    print("{\"workload\":\"exhaust_order\",\"pool\":\"%s\",\"cpus\":%u,\"slots\":%u,"
          "\"waiters\":%u,\"in_order\":%u}\n",
          options.pool, cpu_count, options.slots, run.waiters, run.in_order);
    figures_print(&run.figures, "exhaust", "kmap", "crowd",
                  options.slots + run.waiters + (uint64_t)threads * run.crowd_ops, errors);
    return errors == 0;
}
