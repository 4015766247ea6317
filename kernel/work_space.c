/* SPDX-License-Identifier: MIT */
/*
 * The kernel's address space, placed by a space.
 *
 * First real areas, on all processors: mapped, written, read through kmap, unmapped. Then the
 * second mail's program: pieces of 1 to 64 pages, the oldest unmapped when so many are live, and
 * what a placement and a removal cost at each number. That is done in a space of 2^38 bytes, since
 * 4 GiB do not hold a million such areas; nothing is mapped there.
 */
#include <mapfold/space.h>

#include "kernel/console.h"
#include "kernel/options.h"
#include "kernel/thread.h"
#include "kernel/vmap.h"
#include "kernel/work.h"

enum { AREA_PAGES = 64, MEASURED = 10000 };

struct run {
    uint32_t rounds;
    struct meeting meeting;
    struct figures figures;
    _Atomic uint32_t errors;
};

static uint32_t use_area(uint32_t highmem, uint32_t pages, uint32_t seed)
{
    uint32_t errors = 0;
    volatile uint32_t *words = vmap(highmem, pages);
    if (!words)
        return 1;
    for (uint32_t i = 0; i < pages; i++)
        words[i * (PAGE / sizeof(*words))] = scatter(seed + i);
    cpu_pause();
    for (uint32_t i = 0; i < pages; i++) {
        const volatile uint32_t *word = kmap(highmem_page(highmem + i));
        errors += *word != scatter(seed + i);
        kunmap(highmem_page(highmem + i));
    }
    vunmap((void *)words);
    return errors;
}

static void use_areas(unsigned index, void *context)
{
    struct run *run = context;
    uint32_t state = index + 1, errors = 0;
    if (index == 0)
        figures_begin(&run->figures);
    meet(&run->meeting);
    for (uint32_t i = 0; i < run->rounds; i++)
        errors += use_area(PAGES_SPACE + index * AREA_PAGES, 1 + random_below(&state, AREA_PAGES),
                           index << 16 | i);
    meet(&run->meeting);
    if (index == 0)
        figures_end(&run->figures);
    atomic_fetch_add_explicit(&run->errors, errors, memory_order_relaxed);
}

/* The live pieces, in the order in which they came: first page << 6 | pages - 1. */
struct pieces {
    struct mf_space *space;
    uint32_t *piece;
    uint32_t live;
    uint32_t oldest;
    uint32_t random;
};

static uint64_t start_of(uint32_t piece)
{
    return (uint64_t)(piece >> 6) << PAGE_SHIFT;
}

static uint64_t length_of(uint32_t piece)
{
    return (uint64_t)(piece % AREA_PAGES + 1) << PAGE_SHIFT;
}

static uint32_t place(struct pieces *pieces, uint32_t *piece)
{
    const uint32_t pages = 1 + random_below(&pieces->random, AREA_PAGES);
    const struct mf_fit fit = {.length = (uint64_t)pages << PAGE_SHIFT,
                               .align = PAGE,
                               .last = UINT64_MAX,
                               .policy = MF_FIT_LOWEST};
    struct mf_area area;
    if (mf_space_place(pieces->space, &fit, 0, 0, &area))
        return 1;
    *piece = (uint32_t)(area.start >> PAGE_SHIFT) << 6 | (pages - 1);
    return 0;
}

static uint32_t replace_oldest(struct pieces *pieces)
{
    uint32_t *piece = &pieces->piece[pieces->oldest];
    pieces->oldest = pieces->oldest + 1 == pieces->live ? 0 : pieces->oldest + 1;
    if (mf_space_remove(pieces->space, start_of(*piece), length_of(*piece)))
        return 1;
    return place(pieces, piece);
}

/* That each piece is where it was put, a whole area of its own. */
static uint32_t check(const struct pieces *pieces)
{
    uint32_t errors = 0;
    for (uint32_t i = 0; i < pieces->live; i += 1 + i % 7) {
        struct mf_area area;
        errors += mf_space_find(pieces->space, start_of(pieces->piece[i]), &area) ||
                  area.start != start_of(pieces->piece[i]) ||
                  area.length != length_of(pieces->piece[i]);
    }
    return errors;
}

static uint32_t run_pieces(struct pieces *pieces, uint32_t live)
{
    uint32_t errors = 0;
    for (; pieces->live < live; pieces->live++)
        errors += place(pieces, &pieces->piece[pieces->live]);
    pieces->oldest = 0;
    for (uint32_t i = 0; i < MEASURED; i++) /* so that all numbers are measured with holes */
        errors += replace_oldest(pieces);
    const uint64_t begin = timestamp();
    for (uint32_t i = 0; i < MEASURED; i++)
        errors += replace_oldest(pieces);
    const uint64_t time = timestamp() - begin;
    errors += check(pieces);

    struct mf_space_stats stats;
    mf_space_stats(pieces->space, &stats);
    print("{\"workload\":\"space_pieces\",\"areas\":%u,\"ops\":%u,\"bytes_per_area\":%u,", live,
          MEASURED, (uint32_t)stats.metadata_bytes / live);
    if (options.instructions)
        print("\"instructions\":%llu,", time);
    print("\"errors\":%u}\n", errors);
    return errors;
}

static uint32_t run_all_pieces(void)
{
    struct pieces pieces = {.random = 1};
    const uint32_t bytes = options.areas * sizeof(*pieces.piece);
    pieces.piece = vmap(PAGES_SPACE + CPUS_MAX * AREA_PAGES, (bytes + PAGE - 1) >> PAGE_SHIFT);
    if (!pieces.piece ||
        mf_space_create(0, (UINT64_C(1) << 38) - 1, PAGE, &memory_alloc, &pieces.space))
        panic("no memory for %u areas", options.areas);
    uint32_t errors = 0;
    for (uint32_t live = 1000; live < options.areas; live *= 10)
        errors += run_pieces(&pieces, live);
    errors += run_pieces(&pieces, options.areas);
    mf_space_destroy(pieces.space);
    vunmap(pieces.piece);
    return errors;
}

bool work_space(void)
{
    struct run run = {.rounds = options.ops / 100 + 1, .meeting.count = cpu_count};
    vmap_start();
    threads_run(1, use_areas, &run);
    const uint32_t errors = atomic_load_explicit(&run.errors, memory_order_relaxed);
    figures_print(&run.figures, "space", "kmap", "areas", (uint64_t)run.rounds * cpu_count, errors);
    return run_all_pieces() + errors == 0;
}
