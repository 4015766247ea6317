/* SPDX-License-Identifier: MIT */
/*
 * Hot pages: every processor maps pages drawn by Zipf's law, more than there are slots, and checks
 * and changes a word of its own in each. held=N keeps N percent of the slots pinned all the while.
 */
#include "kernel/console.h"
#include "kernel/options.h"
#include "kernel/thread.h"
#include "kernel/work.h"
#include "kernel/zipf.h"

struct run {
    uint32_t held; /* pages that each processor holds */
    struct meeting meeting;
    struct figures figures;
    _Atomic uint32_t errors;
};

static struct page *page_of(uint32_t rank)
{
    return highmem_page(PAGES_VERIFY + rank);
}

/* Behind those that are drawn. */
static struct page *held_page(unsigned index, uint32_t i)
{
    return page_of(options.pages + index * SLOTS_MAX + i);
}

/* How often this processor has changed its word in each page. */
static uint32_t *make_tally(void)
{
    size_t bytes = PAGE;
    while (bytes < options.pages * sizeof(uint32_t))
        bytes *= 2;
    return lowmem_zeroed(bytes);
}

static uint32_t map_many(unsigned index, uint32_t *tally, uint32_t ops)
{
    uint32_t errors = 0, state = index + 1;
    for (uint32_t i = 0; i < ops; i++) {
        const uint32_t rank = zipf_draw(&state);
        volatile uint32_t *words = kmap(page_of(rank));
        errors += words[CPUS_MAX] != scatter(rank) || words[index] != tally[rank];
        words[index] = ++tally[rank];
        cpu_pause(); /* others run while it is mapped */
        errors += words[index] != tally[rank];
        kunmap(page_of(rank));
    }
    return errors;
}

static void work(unsigned index, void *context)
{
    struct run *run = context;
    uint32_t *tally = make_tally();
    if (!tally)
        panic("no memory for zipf");
    for (uint32_t i = 0; i < run->held; i++)
        kmap(held_page(index, i));
    meet(&run->meeting);
    if (index == 0)
        figures_begin(&run->figures);
    meet(&run->meeting);
    const uint32_t errors = map_many(index, tally, options.ops);
    meet(&run->meeting);
    if (index == 0)
        figures_end(&run->figures);
    meet(&run->meeting);
    for (uint32_t i = 0; i < run->held; i++)
        kunmap(held_page(index, i));
    atomic_fetch_add_explicit(&run->errors, errors, memory_order_relaxed);
}

bool work_zipf(void)
{
    struct run run = {.held = options.slots * options.held / 100 / cpu_count,
                      .meeting.count = cpu_count};
    if (!zipf_start(options.pages))
        panic("no memory for zipf");
    for (uint32_t rank = 0; rank < options.pages; rank++) {
        uint32_t *words = kmap_local(page_of(rank));
        __builtin_memset(words, 0, CPUS_MAX * sizeof(*words));
        words[CPUS_MAX] = scatter(rank);
        kunmap_local();
    }
    threads_run(1, work, &run);
    const uint32_t errors = atomic_load_explicit(&run.errors, memory_order_relaxed);
    figures_print(&run.figures, "zipf", "kmap", options.held ? "held" : "free",
                  (uint64_t)options.ops * cpu_count, errors);
    return errors == 0;
}
