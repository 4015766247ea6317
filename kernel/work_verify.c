/* SPDX-License-Identifier: MIT */
/*
 * Every frame of highmem (or a sample) is written through kmap by one processor, then read back by
 * another. Many of the mappings are given to a third, which unmaps.
 *
 * The frames are dealt out in blocks of as many as there are processors: in block b processor c
 * writes frame b * n + (c + turn) % n, with a turn for each block, and another turn for reading.
 */
#include "kernel/console.h"
#include "kernel/options.h"
#include "kernel/thread.h"
#include "kernel/work.h"

static const uint16_t checked_words[] = {0, 511, 1023};
enum { CHECKED = sizeof(checked_words) / sizeof(checked_words[0]) };

struct run {
    uint32_t frames, stride;
    struct meeting meeting;
    struct figures figures;
    _Atomic uint32_t errors;
    _Atomic(struct page *) parcel[CPUS_MAX]; /* a page to be unmapped by that processor */
};

static uint32_t wanted(uint32_t frame, unsigned i)
{
    return scatter(frame + i * 0x01000001);
}

static void take_parcel(struct run *run, unsigned index)
{
    struct page *page = atomic_exchange_explicit(&run->parcel[index], NULL, memory_order_acquire);
    if (page)
        kunmap(page);
}

/* Lets the next processor unmap the page, if it has nothing to unmap yet. */
static void hand_on(struct run *run, unsigned index, struct page *page)
{
    struct page *none = NULL;
    if (!atomic_compare_exchange_strong_explicit(&run->parcel[(index + 1) % cpu_count], &none, page,
                                                 memory_order_release, memory_order_relaxed))
        kunmap(page);
}

static uint32_t visit(struct run *run, unsigned index, uint32_t frame, bool writes)
{
    uint32_t errors = 0;
    struct page *page = highmem_page(PAGES_VERIFY + frame * run->stride);
    volatile uint32_t *words = kmap(page);
    for (unsigned i = 0; i < CHECKED; i++)
        if (writes)
            words[checked_words[i]] = wanted(frame, i);
        else
            errors += words[checked_words[i]] != wanted(frame, i);
    cpu_pause();
    hand_on(run, index, page);
    take_parcel(run, index);
    return errors;
}

static uint32_t visit_all(struct run *run, unsigned index, bool writes)
{
    uint32_t errors = 0;
    for (uint32_t block = 0; block * cpu_count < run->frames; block++) {
        uint32_t turn = scatter(block) % cpu_count;
        if (!writes && cpu_count > 1) /* never the turn of the writer */
            turn += 1 + scatter(~block) % (cpu_count - 1);
        const uint32_t frame = block * cpu_count + (index + turn) % cpu_count;
        if (frame < run->frames)
            errors += visit(run, index, frame, writes);
    }
    meet(&run->meeting);
    take_parcel(run, index);
    return errors;
}

/* Local mappings nested as deep as they may, of frames that this processor has written. */
static uint32_t visit_nested(unsigned index)
{
    volatile uint32_t *words[LOCAL_DEPTH];
    uint32_t errors = 0;
    for (unsigned i = 0; i < LOCAL_DEPTH; i++) {
        words[i] = kmap_local(highmem_page(PAGES_VERIFY + index * LOCAL_DEPTH + i));
        words[i][0] = wanted(index, i);
    }
    for (unsigned i = LOCAL_DEPTH; i-- > 0;) {
        for (unsigned k = 0; k <= i; k++) /* the outer ones are still there */
            errors += words[k][0] != wanted(index, k);
        kunmap_local();
    }
    return errors;
}

static void work(unsigned index, void *context)
{
    struct run *run = context;
    atomic_fetch_add_explicit(&run->errors, visit_nested(index), memory_order_relaxed);
    meet(&run->meeting);
    if (index == 0)
        figures_begin(&run->figures);
    meet(&run->meeting);
    visit_all(run, index, true);
    meet(&run->meeting);
    const uint32_t errors = visit_all(run, index, false);
    meet(&run->meeting);
    if (index == 0)
        figures_end(&run->figures);
    meet(&run->meeting);
    atomic_fetch_add_explicit(&run->errors, errors, memory_order_relaxed);
}

bool work_verify(void)
{
    if (highmem_pages() <= PAGES_VERIFY)
        panic("verify wants more highmem than %u pages", highmem_pages());
    const uint32_t all = highmem_pages() - PAGES_VERIFY;
    struct run run = {.frames = all, .stride = 1, .meeting.count = cpu_count};
    if (options.frames && options.frames < all) {
        run.frames = options.frames;
        run.stride = all / options.frames;
    }
    threads_run(1, work, &run);
    const uint32_t errors = atomic_load_explicit(&run.errors, memory_order_relaxed);
    figures_print(&run.figures, "verify", "kmap", run.frames == all ? "all" : "sample",
                  2 * (uint64_t)run.frames, errors);
    return errors == 0;
}
