/* SPDX-License-Identifier: MIT */
/*
 * space: finding room among n live areas, giving it back, and looking up.
 *
 * All areas have one tag that lets them merge, and a file offset that no neighbour continues, as
 * with pieces of a file mapped at random: nothing merges. The harness keeps its own list of live
 * areas, five bytes each. Victims are drawn and results entered outside the timed part, a batch at
 * a time, so the caches see the rival's memory and a few KiB of the batch.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "cli/cli.h"
#include "rival.h"

enum { BATCH = 256, MAX_PAGES = 64, FIFO_LIVE = 20000, SEED = 2001 };
enum { LINEAR_LIMIT = FIFO_LIVE, TURNOVERS = 3 };

static const char *const systems[] = {"mapfold", "linear", "rbtree", "kernel", NULL};
static const char *const parts[] = {"space.steady", "space.fifo", "space.find", NULL};
static const struct rival *const rivals[] = {&rival_mapfold, &rival_linear, &rival_rbtree,
                                             &rival_kernel};

enum { RIVALS = sizeof(rivals) / sizeof(rivals[0]) };

/* A set of live areas, held by one rival. */
struct set {
    const struct rival *rival;
    void *handle;
    uint32_t max_pages;
    uint64_t n;
    uint64_t live;
    uint32_t *page; /* where area i begins, in pages above base */
    uint8_t *pages; /* how many it has */
    uint64_t base;
    uint64_t random;
    uint64_t serial;   /* areas placed so far: gives each its offset */
    uint64_t checksum; /* of all addresses chosen, in order */
    uint64_t oldest;   /* fifo: the next to go */
    struct {
        uint32_t index;
        uint32_t pages;     /* of the new area */
        uint32_t old_pages; /* of the one that goes */
        uint64_t offset;
        uint64_t old_start;
        uint64_t start; /* the result */
    } batch[BATCH];
    uint64_t zero; /* find: what makes a lookup depend on the last one */
};

/*
 * The offset of the serial-th area: one that ends at most 64 pages on never continues another, and
 * it stays within 5 TB, which every file system can map.
 */
static uint64_t next_offset(struct set *set)
{
    return (set->serial++ & 0xffffff) * (MAX_PAGES + 1) << PAGE_SHIFT;
}

static uint32_t next_size(struct set *set)
{
    return 1 + bench_random_below(&set->random, set->max_pages);
}

static void note_address(struct set *set, uint64_t start)
{
    set->checksum = (set->checksum ^ start) * UINT64_C(0x100000001b3);
    set->checksum ^= set->checksum >> 29;
}

/* --- filling ------------------------------------------------------------------------------- */

static void enter(struct set *set, uint64_t i, uint64_t start, uint32_t pages)
{
    set->page[i] = (uint32_t)((start - set->base) >> PAGE_SHIFT);
    set->pages[i] = (uint8_t)pages;
    note_address(set, start);
}

static uint64_t start_of(const struct set *set, uint64_t i)
{
    return set->base + ((uint64_t)set->page[i] << PAGE_SHIFT);
}

static int fill_prepare(void *state, size_t count)
{
    struct set *set = state;
    for (size_t i = 0; i < count; i++) {
        set->batch[i].pages = next_size(set);
        set->batch[i].offset = next_offset(set);
    }
    return 0;
}

static int fill_commit(void *state, size_t count)
{
    struct set *set = state;
    /* The kernel gives addresses from the top down: the list counts from 8 TiB below the first. */
    if (set->live == 0 && count > 0 && !set->rival->computes)
        set->base = set->batch[0].start - (UINT64_C(1) << 43);
    for (size_t i = 0; i < count; i++)
        enter(set, set->live++, set->batch[i].start, set->batch[i].pages);
    return 0;
}

/* Where the batch fails in the middle, what was placed is entered here, so that nothing is lost. */
static int fill_run(void *state, size_t first, size_t count)
{
    struct set *set = state;
    for (size_t i = first; i < first + count; i++) {
        const int error = set->rival->place(set->handle, set->batch[i].pages, set->batch[i].offset,
                                            &set->batch[i].start);
        if (error) {
            fill_commit(set, i);
            return error;
        }
    }
    return 0;
}

static const struct bench_series fill_series = {
    fill_prepare, fill_run, fill_commit, BATCH, false, 0, 0};

/* --- steady and fifo: one goes, one comes -------------------------------------------------- */

/* Whether area `index` is already in the first `count` of the batch: it can go only once. */
static bool drawn(const struct set *set, size_t count, uint32_t index)
{
    for (size_t i = 0; i < count; i++) {
        if (set->batch[i].index == index)
            return true;
    }
    return false;
}

static void draw(struct set *set, size_t i, uint32_t index)
{
    set->batch[i].index = index;
    set->batch[i].old_start = start_of(set, index);
    set->batch[i].old_pages = set->pages[index];
    set->batch[i].pages = next_size(set);
    set->batch[i].offset = next_offset(set);
}

static int steady_prepare(void *state, size_t count)
{
    struct set *set = state;
    for (size_t i = 0; i < count; i++) {
        uint32_t index = bench_random_below(&set->random, set->n);
        while (drawn(set, i, index))
            index = bench_random_below(&set->random, set->n);
        draw(set, i, index);
    }
    return 0;
}

static int fifo_prepare(void *state, size_t count)
{
    struct set *set = state;
    for (size_t i = 0; i < count; i++) {
        draw(set, i, (uint32_t)set->oldest);
        set->oldest = (set->oldest + 1) % set->n;
    }
    return 0;
}

static int pair_run(void *state, size_t first, size_t count)
{
    struct set *set = state;
    int error = 0;
    for (size_t i = first; i < first + count && !error; i++) {
        error = set->rival->remove(set->handle, set->batch[i].old_start, set->batch[i].old_pages);
        if (!error)
            error = set->rival->place(set->handle, set->batch[i].pages, set->batch[i].offset,
                                      &set->batch[i].start);
    }
    return error;
}

static int pair_commit(void *state, size_t count)
{
    struct set *set = state;
    for (size_t i = 0; i < count; i++)
        enter(set, set->batch[i].index, set->batch[i].start, set->batch[i].pages);
    return 0;
}

/* --- find ---------------------------------------------------------------------------------- */

static int find_prepare(void *state, size_t count)
{
    struct set *set = state;
    for (size_t i = 0; i < count; i++) {
        const uint32_t index = bench_random_below(&set->random, set->n);
        const uint32_t page = bench_random_below(&set->random, set->pages[index]);
        set->batch[i].old_start = start_of(set, index);
        set->batch[i].start = set->batch[i].old_start + ((uint64_t)page << PAGE_SHIFT) + 8;
    }
    return 0;
}

/* start is the address to look up, and then the answer. */
static int find_run(void *state, size_t first, size_t count)
{
    struct set *set = state;
    int error = 0;
    for (size_t i = first; i < first + count && !error; i++)
        error = set->rival->find(set->handle, set->batch[i].start, &set->batch[i].start);
    return error;
}

/* Each address contains the last answer, times a zero that the compiler cannot see. */
static int chase_run(void *state, size_t first, size_t count)
{
    struct set *set = state;
    const uint64_t zero = *(volatile uint64_t *)&set->zero;
    uint64_t last = 0;
    int error = 0;
    for (size_t i = first; i < first + count && !error; i++) {
        error = set->rival->find(set->handle, set->batch[i].start + (last & zero), &last);
        set->batch[i].start = last;
    }
    return error;
}

static int find_commit(void *state, size_t count)
{
    const struct set *set = state;
    for (size_t i = 0; i < count; i++) {
        if (set->batch[i].start != set->batch[i].old_start)
            return -EBADMSG;
    }
    return 0;
}

/* --- one system at one n ------------------------------------------------------------------- */

static void set_close(struct set *set)
{
    if (set->handle) {
        if (!set->rival->computes) {
            for (uint64_t i = 0; i < set->live; i++)
                set->rival->remove(set->handle, start_of(set, i), set->pages[i]);
        }
        set->rival->destroy(set->handle);
    }
    bench_memory_free(set->page, set->n * sizeof(*set->page));
    bench_memory_free(set->pages, set->n * sizeof(*set->pages));
    free(set);
}

static struct set *set_open(const struct rival *rival, uint64_t n, uint32_t max_pages, int fd)
{
    struct set *set = calloc(1, sizeof(*set));
    if (!set) {
        cli_error("out of memory");
        return NULL;
    }
    set->rival = rival;
    set->n = n;
    set->max_pages = max_pages;
    set->random = SEED;
    set->page = bench_memory(n * sizeof(*set->page), "the list of live areas");
    set->pages = set->page ? bench_memory(n * sizeof(*set->pages), "the list of live areas") : NULL;
    const struct rival_setup setup = {.areas = n + 1, .fd = fd};
    const int error = set->pages ? rival->create(&setup, &set->handle) : -ENOMEM;
    if (!error)
        return set;
    cli_error("cannot set up %s for %" PRIu64 " areas: %s", rival->name, n, strerror(-error));
    set->handle = NULL;
    set_close(set);
    return NULL;
}

/* A part of the workload: what is measured on a set that has been turned over by `pairs`. */
struct part {
    const char *name;
    struct bench_series series;
    int (*pairs)(void *state, size_t count); /* how the pairs are drawn that turn the set over */
    uint32_t max_pages;
    bool finds;
};

static const struct part steady = {"space.steady",
                                   {steady_prepare, pair_run, pair_commit, BATCH, false, 0, 0},
                                   steady_prepare,
                                   MAX_PAGES,
                                   false};
static const struct part fifo = {"space.fifo",
                                 {fifo_prepare, pair_run, pair_commit, BATCH, false, 0, 0},
                                 fifo_prepare,
                                 1,
                                 false};
static const struct part find_independent = {
    "space.find",
    {find_prepare, find_run, find_commit, BATCH, false, 0, 0},
    steady_prepare,
    MAX_PAGES,
    true};
static const struct part find_dependent = {
    "space.find.dependent",
    {find_prepare, chase_run, find_commit, BATCH, false, 0, 0},
    steady_prepare,
    MAX_PAGES,
    true};

/* Why a series ended early, in the row's words. */
static void explain(struct bench_row *row, const struct set *set, const char *stage,
                    const struct bench_time *time)
{
    if (time->error == -ETIME)
        snprintf(row->note, sizeof(row->note), "stopped by --seconds %s at %" PRIu64, stage,
                 time->done);
    else
        snprintf(row->note, sizeof(row->note), "%s at %" PRIu64 " areas",
                 time->error == -ENOMEM ? "ENOMEM" : strerror(-time->error), set->live);
}

static uint64_t operations(const struct bench *bench, const struct part *part, uint64_t n)
{
    const uint64_t most = bench->quick ? 100000 : part->finds ? 2000000 : 1000000;
    const uint64_t wanted = part->finds ? 4 * n : n;
    const uint64_t least = bench->quick ? 20000 : 400000;
    return wanted < least ? least : wanted > most ? most : wanted;
}

static uint64_t deadline(const struct bench *bench)
{
    return bench_now() + (uint64_t)(bench->seconds * 1e9);
}

/* Fills the set and turns it over; false, with a note, if that does not come to its end. */
static bool make_steady(const struct bench *bench, const struct part *part, struct set *set,
                        uint64_t until, struct bench_row *row)
{
    const struct bench_series pairs = {
        part->pairs, pair_run, pair_commit, set->n < 4 * BATCH ? set->n / 4 + 1 : BATCH, false,
        0,           0};
    struct bench_time time;
    bench_progress(bench, "%s %s n=%" PRIu64 ": filling", part->name, set->rival->name, set->n);
    bench_measure(&fill_series, set, set->n, until, &time);
    if (time.error) {
        explain(row, set, "while filling", &time);
        return false;
    }
    for (uint32_t turn = 0; turn < TURNOVERS; turn++) {
        bench_progress(bench, "%s %s n=%" PRIu64 ": turning the set over, %u of %u", part->name,
                       set->rival->name, set->n, turn + 1, TURNOVERS);
        bench_measure(&pairs, set, set->n, until, &time);
        if (time.error) {
            explain(row, set, "while turning over", &time);
            return false;
        }
    }
    return true;
}

static void measure_part(struct bench *bench, const struct part *part, struct set *set,
                         uint64_t until, struct bench_row *row)
{
    struct bench_series series = part->series;
    if (set->n < 4 * BATCH)
        series.batch = set->n / 4 + 1;
    struct bench_time time;
    bench_progress(bench, "%s %s n=%" PRIu64 ": measuring", part->name, set->rival->name, set->n);
    bench_measure(&series, set, operations(bench, part, set->n), until, &time);
    row->ops = time.ops;
    row->ns_per_op = time.ns_per_op;
    row->p50_ns = time.p50_ns;
    row->p99_ns = time.p99_ns;
    if (time.error)
        explain(row, set, "while measuring", &time);
    if (!set->rival->computes)
        row->kernel_maps = bench_kernel_maps();
    if (set->rival->bytes_per_area)
        row->bytes_per_area = set->rival->bytes_per_area(set->handle);
}

/* Checksums of the systems that must agree, for one part and n. */
struct agreement {
    const char *first;
    uint64_t checksum;
};

static int check_agreement(struct agreement *agreement, const struct part *part,
                           const struct set *set)
{
    if (!set->rival->agrees)
        return CLI_OK;
    if (!agreement->first) {
        agreement->first = set->rival->name;
        agreement->checksum = set->checksum;
        return CLI_OK;
    }
    if (agreement->checksum == set->checksum)
        return CLI_OK;
    cli_error("%s at n=%" PRIu64 ": %s and %s chose different addresses on the same sequence; this "
              "is a bug: please report it",
              part->name, set->n, agreement->first, set->rival->name);
    return CLI_FAILURE;
}

/* Measures all parts of the list on one set of one system: the first may change it, none needs it
 * fresh. */
static int run_system(struct bench *bench, const struct rival *rival,
                      const struct part *const *list, uint64_t n, int fd,
                      struct agreement *agreement)
{
    struct set *set = set_open(rival, n, list[0]->max_pages, fd);
    if (!set)
        return CLI_FAILURE;
    struct bench_row failed = {.system = rival->name, .n = n, .threads = 1};
    const bool ready = make_steady(bench, list[0], set, deadline(bench), &failed);
    int status = CLI_OK;
    bool whole = ready; /* no series was cut short, so that all systems did the same */
    for (; *list && status == CLI_OK; list++) {
        if ((*list)->finds && !rival->find)
            continue;
        struct bench_row row = failed;
        row.workload = (*list)->name;
        if (ready)
            measure_part(bench, *list, set, deadline(bench), &row);
        bench_report(bench, &row);
        whole = whole && !row.note[0];
        if (whole)
            status = check_agreement(agreement, *list, set);
    }
    set_close(set);
    return status;
}

static int run_size(struct bench *bench, const struct part *const *list, uint64_t n, int fd)
{
    struct agreement agreement = {NULL, 0};
    int status = CLI_OK;
    for (size_t i = 0; i < RIVALS && status == CLI_OK; i++) {
        const struct rival *rival = rivals[i];
        if (!bench_wants(bench, rival->name) || (list[0]->finds && !rival->find))
            continue;
        if (rival == &rival_linear && n > LINEAR_LIMIT && !bench->wanted[0])
            continue;
        status = run_system(bench, rival, list, n, fd, &agreement);
    }
    return status;
}

static int run_sizes(struct bench *bench, const struct part *const *list, const uint64_t *sizes,
                     int fd)
{
    int status = CLI_OK;
    for (; *list && *sizes && status == CLI_OK; sizes++)
        status = run_size(bench, list, *sizes, fd);
    return status;
}

static int run(struct bench *bench)
{
    static const uint64_t full[] = {1000, 10000, 100000, 1000000, 10000000, 0};
    static const uint64_t quick[] = {1000, 10000, 100000, 0};
    static const uint64_t live[] = {FIFO_LIVE, 0};
    const uint64_t *sizes = bench->sizes[0] ? bench->sizes : bench->quick ? quick : full;
    const bool wants_kernel = bench_wants(bench, rival_kernel.name);
    const int fd = wants_kernel ? bench_file(bench, 1 << 20) : -1;
    if (fd < 0 && wants_kernel)
        return CLI_FAILURE;
    /* steady leaves the set as turned over as it was: the lookups share it. */
    const struct part *list[4] = {NULL};
    size_t count = 0;
    if (bench_wants_part(bench, steady.name))
        list[count++] = &steady;
    if (bench_wants_part(bench, find_independent.name)) {
        list[count++] = &find_independent;
        list[count++] = &find_dependent;
    }
    int status = run_sizes(bench, list, sizes, fd);
    if (status == CLI_OK && bench_wants_part(bench, fifo.name))
        status = run_sizes(bench, (const struct part *const[]){&fifo, NULL},
                           bench->sizes[0] ? bench->sizes : live, fd);
    if (fd >= 0)
        close(fd);
    return status;
}

static void print(const struct bench *bench, FILE *out)
{
    fputs("Nanoseconds, one thread. kernel makes real mappings; the others only choose "
          "addresses.\n\n",
          out);
    bench_print_by_n(bench, out, steady.name,
                     "areas of 1..64 pages; one at random goes, one comes (a pair)");
    bench_print_by_n(bench, out, fifo.name,
                     "areas of one page; the oldest goes, one comes (a pair)");
    bench_print_by_n(bench, out, find_independent.name, "the area at a random address");
    bench_print_by_n(bench, out, find_dependent.name, "the same, each lookup waiting for the last");
}

static void plot(const struct bench *bench, FILE *script)
{
    fputs(
        "set multiplot layout 2,2 title 'mapfold bench space: time of one operation, by the number "
        "of live areas'\nset logscale x\nset xlabel 'live areas'\n"
        "set format x '%.0s%c'\nset autoscale xfix\n",
        script);
    plot_panel(bench, script, steady.name, "one at random goes, one comes (1 to 64 pages)");
    plot_panel(bench, script, find_independent.name, "look up a random address");
    plot_panel(bench, script, find_dependent.name, "look up, each waiting for the last");
    plot_bars(bench, script, fifo.name, "the oldest goes, one comes (20,000 pages live)");
    fputs("unset multiplot\n", script);
}

const struct bench_workload bench_space = {
    .name = "space",
    .help = "finding room among n live areas, giving it back, looking up",
    .systems = systems,
    .parts = parts,
    .maps = 1000000,
    .run = run,
    .print = print,
    .plot = plot,
};
