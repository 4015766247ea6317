/* SPDX-License-Identifier: MIT */
/*
 * The mail's program: every processor reads one byte of a page of the page cache, over and over.
 *     same       all read the same page
 *     different  each reads its own
 *     large      any page of a file that is larger than the cache: pages come and go
 * Each by kmap and by kmap_local. For the first two, another pass with one processor at a time
 * finds out whether any page of memory is written by more than one of them.
 */
#include "kernel/cache.h"
#include "kernel/console.h"
#include "kernel/options.h"
#include "kernel/thread.h"
#include "kernel/work.h"
#include "kernel/written.h"

enum kind { SAME, DIFFERENT, LARGE };
static const char *const kind_names[] = {"same", "different", "large"};

enum { ALONE_OPS = 1000 };

struct run {
    enum kind kind;
    bool local;
    uint32_t ops;
    struct meeting meeting;
    struct figures figures;
    _Atomic uint32_t errors;
};

static uint32_t choose(const struct run *run, unsigned index, uint32_t *state)
{
    if (run->kind == LARGE)
        return random_below(state, CACHE_FILE_PAGES);
    return run->kind == SAME ? 0 : index;
}

static uint32_t read_many(const struct run *run, unsigned index, uint32_t ops, uint32_t seed)
{
    uint32_t errors = 0, state = seed;
    for (uint32_t i = 0; i < ops; i++) {
        const uint32_t page = choose(run, index, &state);
        const uint32_t word = i & 1023;
        const uint32_t *words = cache_get(page, run->local);
        errors += *(const volatile uint8_t *)&words[word] != (uint8_t)cache_word(page, word);
        cache_put(page, run->local);
        cpu_pause();
    }
    return errors;
}

static void work(unsigned index, void *context)
{
    struct run *run = context;
    read_many(run, index, 1, index + 1);
    meet(&run->meeting);
    if (index == 0)
        figures_begin(&run->figures);
    meet(&run->meeting);
    const uint32_t errors = read_many(run, index, run->ops, index + 1);
    meet(&run->meeting);
    if (index == 0)
        figures_end(&run->figures);
    meet(&run->meeting);
    atomic_fetch_add_explicit(&run->errors, errors, memory_order_relaxed);
}

static void work_alone(unsigned index, void *context)
{
    struct run *run = context;
    read_many(run, index, 1, index + 1); /* what is written the first time only does not count */
    written_begin();
    const uint32_t errors = read_many(run, index, ALONE_OPS, index + 1);
    written_end();
    atomic_fetch_add_explicit(&run->errors, errors, memory_order_relaxed);
}

static void find_written(struct run *run)
{
    written_start();
    for (unsigned cpu = 0; cpu < cpu_count; cpu++)
        thread_run_on(cpu, work_alone, run);
    const struct written written = written_result();
    print("{\"workload\":\"read1_written\",\"pool\":\"%s\",\"map\":\"%s\",\"kind\":\"%s\","
          "\"cpus\":%u,\"ops\":%u,\"pages_written\":%u,\"pages_written_by_several\":%u}\n",
          options.pool, run->local ? "local" : "kmap", kind_names[run->kind], cpu_count,
          ALONE_OPS * cpu_count, written.pages, written.shared);
}

bool work_read1(void)
{
    bool well = true;
    cache_start(PAGES_CACHE);
    for (enum kind kind = SAME; kind <= LARGE; kind++)
        for (int local = 0; local < 2; local++) {
            struct run run = {.kind = kind,
                              .local = local,
                              .ops = kind == LARGE ? options.ops / 4 : options.ops,
                              .meeting.count = cpu_count};
            threads_run(1, work, &run);
            if (kind != LARGE)
                find_written(&run);
            const uint32_t errors = atomic_load_explicit(&run.errors, memory_order_relaxed);
            figures_print(&run.figures, "read1", local ? "local" : "kmap", kind_names[kind],
                          (uint64_t)run.ops * cpu_count, errors);
            well &= errors == 0;
        }
    return well;
}
