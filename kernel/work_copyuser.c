/* SPDX-License-Identifier: MIT */
/*
 * Copy users, the mail's open question: copies between pages of highmem and a user's buffer whose
 * pages are missing. The copying thread sleeps in the page fault while it has the page mapped;
 * other threads of its processor go on. Buffers that end in a hole give a short count.
 *
 * Each processor has several copying threads and one pager.
 */
#include "kernel/console.h"
#include "kernel/options.h"
#include "kernel/thread.h"
#include "kernel/user.h"
#include "kernel/work.h"

enum {
    COPIERS = THREADS_PER_CPU - 1,
    BUFFER_PAGES = 4,
    BUFFER_BYTES = BUFFER_PAGES * PAGE,
    EVERY = 4, /* copies until the buffer's pages are missing again */
};

struct run {
    uintptr_t buffer[CPUS_MAX * COPIERS];
    uint32_t copies; /* of each thread, each way */
    struct meeting meeting, copiers;
    struct figures figures;
    _Atomic uint32_t copying, errors, short_copies;
};

/* What a page holds that is copied from. */
static uint8_t page_byte(uint32_t number, uint32_t offset)
{
    return (uint8_t)(scatter(number) + offset * 7);
}

/* Behind the buffers' own pages: one for each copier to copy to, and shared ones to copy from. */
static uint32_t target_number(unsigned copier)
{
    return PAGES_USER + cpu_count * COPIERS * BUFFER_PAGES + copier;
}

enum { SOURCES = 256 };
static uint32_t source_number(uint32_t i)
{
    return PAGES_EXHAUST - SOURCES + i;
}

static uint8_t user_byte(uintptr_t address)
{
    return (uint8_t)(user_word(address & ~(uintptr_t)3) >> address % 4 * 8);
}

/* Bytes that a copy of n at this place of a buffer must give. */
static size_t expected(size_t at, size_t n)
{
    return at >= BUFFER_BYTES ? 0 : at + n > BUFFER_BYTES ? BUFFER_BYTES - at : n;
}

/* From a buffer as the pagers filled it. */
static uint32_t copy_in(uintptr_t buffer, unsigned copier, size_t at, size_t offset, size_t n)
{
    struct page *page = highmem_page(target_number(copier));
    const size_t done = copy_to_page(page, offset, buffer + at, n);
    uint32_t errors = done != expected(at, n);
    const volatile uint8_t *bytes = kmap(page);
    for (size_t i = 0; i < done; i += 1 + i % 61)
        errors += bytes[offset + i] != user_byte(buffer + at + i);
    kunmap(page);
    return errors;
}

static uint32_t copy_out(uintptr_t buffer, uint32_t source, size_t at, size_t offset, size_t n)
{
    const size_t done = copy_from_page(buffer + at, highmem_page(source), offset, n);
    uint32_t errors = done != expected(at, n);
    const volatile uint8_t *bytes = (const volatile uint8_t *)(buffer + at);
    for (size_t i = 0; i < done; i += 1 + i % 61)
        errors += bytes[i] != page_byte(source, offset + i);
    return errors;
}

static void copy_many(struct run *run, unsigned copier)
{
    const uintptr_t buffer = run->buffer[copier];
    uint32_t state = copier + 1, errors = 0, shorter = 0;
    for (uint32_t i = 0; i < run->copies; i++) {
        /* One in four reaches into the hole, some lie in it. */
        const size_t offset = random_below(&state, PAGE);
        const size_t n = 1 + random_below(&state, PAGE - offset);
        const size_t at = random_below(&state, 4)
                              ? random_below(&state, BUFFER_BYTES - PAGE)
                              : BUFFER_BYTES - PAGE / 2 + random_below(&state, PAGE);
        shorter += expected(at, n) < n;
        if (i % EVERY == 0)
            user_discard(buffer, BUFFER_PAGES);
        if (i / EVERY % 2)
            errors += copy_out(buffer, source_number(random_below(&state, SOURCES)), at, offset, n);
        else
            errors += copy_in(buffer, copier, at, offset, n);
    }
    atomic_fetch_add_explicit(&run->errors, errors, memory_order_relaxed);
    atomic_fetch_add_explicit(&run->short_copies, shorter, memory_order_relaxed);
}

static void work(unsigned index, void *context)
{
    struct run *run = context;
    const unsigned cpu = index / THREADS_PER_CPU, thread = index % THREADS_PER_CPU;
    if (index == 0)
        figures_begin(&run->figures);
    meet(&run->meeting);
    if (thread == COPIERS) {
        user_pager();
    } else {
        copy_many(run, cpu * COPIERS + thread);
        if (atomic_fetch_sub_explicit(&run->copying, 1, memory_order_acq_rel) == 1)
            user_pagers_stop();
    }
    meet(&run->meeting);
    if (index == 0)
        figures_end(&run->figures);
}

bool work_copyuser(void)
{
    const unsigned copiers = cpu_count * COPIERS;
    struct run run = {.copies = options.ops / 100 + 1,
                      .meeting.count = cpu_count * THREADS_PER_CPU,
                      .copying = copiers};
    user_start();
    for (unsigned i = 0; i < copiers; i++) {
        run.buffer[i] = user_map(BUFFER_PAGES, PAGES_USER + i * BUFFER_PAGES);
        if (!run.buffer[i])
            panic("no room for the users' buffers");
    }
    for (uint32_t i = 0; i < SOURCES; i++) {
        uint8_t *bytes = kmap_local(highmem_page(source_number(i)));
        for (uint32_t k = 0; k < PAGE; k++)
            bytes[k] = page_byte(source_number(i), k);
        kunmap_local();
    }
    threads_run(THREADS_PER_CPU, work, &run);
    const uint32_t errors = atomic_load_explicit(&run.errors, memory_order_relaxed);
    print("{\"workload\":\"copyuser_short\",\"pool\":\"%s\",\"cpus\":%u,\"short\":%u}\n",
          options.pool, cpu_count, atomic_load_explicit(&run.short_copies, memory_order_relaxed));
    figures_print(&run.figures, "copyuser", "kmap", "faulting", (uint64_t)copiers * run.copies,
                  errors);
    return errors == 0;
}
