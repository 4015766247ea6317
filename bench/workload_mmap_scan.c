/* SPDX-License-Identifier: MIT */
/*
 * mmap_scan: the second mail again, on today's machine and a real file. A program maps a piece of
 * one file again and again, always from the file's beginning, keeps the newest of them, and is
 * timed for every 5,000, as the mail did.
 *
 * A live piece lies in a slot. While pieces are kept, a new one takes a new slot; while the window
 * holds their number, it takes the slot of the one that goes: the slots in turn are the pieces from
 * oldest to newest. As in the mail's program, the new piece is mapped before the old one goes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "rival.h"

enum { STEP = 5000, BATCH = 250, MAX_PAGES = 64, SEED = 2001, GROW = 300000, QUICK = 60000 };

#define NEVER UINT64_MAX

struct scenario {
    const char *name;
    const char *title;
    uint64_t total;
    uint64_t hold_from;  /* with this many live, each new piece pushes one out ... */
    uint64_t hold_until; /* ... until so many operations are done */
    uint32_t max_pages;
    bool random; /* one at random goes, not the oldest */
};

static const struct scenario scenarios[] = {
    {"mmap_scan.grow", "all are kept: live mappings grow", GROW, NEVER, NEVER, 1, false},
    {"mmap_scan.window20k", "20,000 are kept, the oldest is unmapped", 120000, 20000, NEVER, 1,
     false},
    {"mmap_scan.window40k", "40,000 are kept, the oldest is unmapped", 120000, 40000, NEVER, 1,
     false},
    {"mmap_scan.hole", "20,000 are kept from 20,000 to 40,000, then all", 80000, 20000, 40000, 1,
     false},
    {"mmap_scan.sizes", "1 to 64 pages each, 40,000 are kept, the oldest is unmapped", 120000,
     40000, NEVER, MAX_PAGES, false},
    {"mmap_scan.random", "1 to 64 pages each, 40,000 are kept, one at random is unmapped", 120000,
     40000, NEVER, MAX_PAGES, true},
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(*scenarios) };

static const char *const parts[] = {"mmap_scan.grow",
                                    "mmap_scan.window20k",
                                    "mmap_scan.window40k",
                                    "mmap_scan.hole",
                                    "mmap_scan.sizes",
                                    "mmap_scan.random",
                                    NULL};

/* In the order of the columns; ratios are not taken here. */
static const char *const systems[] = {"space",   "linear",      "rbtree", "kernel",
                                      "mapping", "kernel-anon", NULL};

static const struct system {
    const char *name;
    const struct rival *rival;
    bool anonymous;
} columns[] = {
    {"linear", &rival_linear, false},     {"rbtree", &rival_rbtree, false},
    {"kernel", &rival_kernel, false},     {"mapping", &rival_mapping, false},
    {"kernel-anon", &rival_kernel, true}, {"space", &rival_mapfold, false},
};

enum { COLUMNS = sizeof(columns) / sizeof(*columns) };

struct scan {
    const struct scenario *scenario;
    const struct rival *rival;
    void *handle;
    uint64_t total;
    uint64_t done;
    uint64_t live;
    uint64_t oldest;
    uint64_t random;
    uint64_t checksum;
    uint64_t *start; /* by slot */
    uint8_t *pages;
    struct {
        uint64_t slot;
        bool replaces;
        uint32_t pages;
        uint64_t start;
        uint64_t old_start;
        uint32_t old_pages;
    } batch[BATCH];
};

static bool slot_drawn(const struct scan *scan, size_t count, uint64_t slot)
{
    for (size_t i = 0; i < count; i++) {
        if (scan->batch[i].slot == slot)
            return true;
    }
    return false;
}

static uint64_t choose_slot(struct scan *scan, size_t count)
{
    if (!scan->scenario->random) {
        const uint64_t slot = scan->oldest % scan->live;
        scan->oldest++;
        return slot;
    }
    uint64_t slot = bench_random_below(&scan->random, scan->live);
    while (slot_drawn(scan, count, slot))
        slot = bench_random_below(&scan->random, scan->live);
    return slot;
}

static int scan_prepare(void *state, size_t count)
{
    struct scan *scan = state;
    const struct scenario *scenario = scan->scenario;
    for (size_t i = 0; i < count; i++) {
        const uint64_t at = scan->done + i;
        const bool holds = at >= scenario->hold_from && at < scenario->hold_until;
        const uint64_t slot = holds ? choose_slot(scan, i) : scan->live++;
        scan->batch[i].slot = slot;
        scan->batch[i].replaces = holds;
        scan->batch[i].old_start = scan->start[slot];
        scan->batch[i].old_pages = scan->pages[slot];
        scan->batch[i].pages = 1 + bench_random_below(&scan->random, scenario->max_pages);
    }
    return 0;
}

static void enter(struct scan *scan, size_t i)
{
    scan->start[scan->batch[i].slot] = scan->batch[i].start;
    scan->pages[scan->batch[i].slot] = (uint8_t)scan->batch[i].pages;
    scan->checksum = (scan->checksum ^ scan->batch[i].start) * UINT64_C(0x100000001b3);
    scan->checksum ^= scan->checksum >> 29;
}

static int scan_commit(void *state, size_t count)
{
    struct scan *scan = state;
    for (size_t i = 0; i < count; i++)
        enter(scan, i);
    scan->done += count;
    return 0;
}

/* Where a batch fails in the middle, what it did is entered here, so that nothing is lost. */
static int scan_run(void *state, size_t first, size_t count)
{
    struct scan *scan = state;
    int error = 0;
    for (size_t i = first; i < first + count; i++) {
        error = scan->rival->place(scan->handle, scan->batch[i].pages, 0, &scan->batch[i].start);
        if (!error && scan->batch[i].replaces)
            error = scan->rival->remove(scan->handle, scan->batch[i].old_start,
                                        scan->batch[i].old_pages);
        if (error) {
            scan_commit(scan, i);
            break;
        }
    }
    return error;
}

static void scan_close(struct scan *scan)
{
    if (scan->handle) {
        for (uint64_t i = 0; i < scan->live && !scan->rival->computes; i++) {
            if (scan->pages[i]) /* 0: prepared, but the batch failed before */
                scan->rival->remove(scan->handle, scan->start[i], scan->pages[i]);
        }
        scan->rival->destroy(scan->handle);
    }
    bench_memory_free(scan->start, scan->total * sizeof(*scan->start));
    bench_memory_free(scan->pages, scan->total * sizeof(*scan->pages));
    free(scan);
}

static struct scan *scan_open(const struct scenario *scenario, const struct system *system,
                              uint64_t total, int fd)
{
    struct scan *scan = calloc(1, sizeof(*scan));
    if (!scan) {
        cli_error("out of memory");
        return NULL;
    }
    scan->scenario = scenario;
    scan->rival = system->rival;
    scan->total = total;
    scan->random = SEED;
    scan->start = bench_memory(total * sizeof(*scan->start), "the list of live mappings");
    scan->pages = scan->start
                      ? bench_memory(total * sizeof(*scan->pages), "the list of live mappings")
                      : NULL;
    const struct rival_setup setup = {.areas = total + 1, .fd = fd, .anonymous = system->anonymous};
    const int error = scan->pages ? scan->rival->create(&setup, &scan->handle) : -ENOMEM;
    if (!error)
        return scan;
    cli_error("cannot set up %s for %" PRIu64 " mappings: %s", system->name, total,
              strerror(-error));
    scan->handle = NULL;
    scan_close(scan);
    return NULL;
}

static void explain(struct bench_row *row, const struct scan *scan, int error)
{
    if (error == -ETIME)
        snprintf(row->note, sizeof(row->note), "stopped by --seconds at %" PRIu64, scan->done);
    else if (error == -ENOMEM && !scan->rival->computes)
        snprintf(row->note, sizeof(row->note), "ENOMEM at %" PRIu64 " maps", bench_kernel_maps());
    else
        snprintf(row->note, sizeof(row->note), "%s after %" PRIu64, strerror(-error), scan->done);
}

/* One system through one scenario, a row each 5,000. */
static void run_rows(struct bench *bench, struct scan *scan, const char *system)
{
    static const struct bench_series series = {
        scan_prepare, scan_run, scan_commit, BATCH, false, 0, 0};
    const uint64_t until = bench_now() + (uint64_t)(bench->seconds * 1e9);
    struct bench_row row = {.workload = scan->scenario->name, .system = system, .threads = 1};
    row.n = scan->total;
    while (scan->done < scan->total && !row.note[0]) {
        struct bench_time time;
        const uint64_t left = scan->total - scan->done;
        const uint64_t step = left < STEP ? left : STEP;
        row.count = scan->done + step;
        bench_progress(bench, "%s %s: %" PRIu64 " of %" PRIu64, scan->scenario->name, system,
                       row.count, scan->total);
        bench_measure(&series, scan, step, until, &time);
        row.ops = time.ops;
        row.ns_per_op = time.ns_per_op;
        row.p50_ns = time.p50_ns;
        row.p99_ns = time.p99_ns;
        if (!time.error && scan->done < scan->total && bench_now() > until)
            time.error = -ETIME;
        if (time.error)
            explain(&row, scan, time.error);
        if (!scan->rival->computes && (row.note[0] || scan->done == scan->total))
            row.kernel_maps = bench_kernel_maps();
        bench_report(bench, &row);
    }
}

static int run_scenario(struct bench *bench, const struct scenario *scenario, int fd)
{
    uint64_t total = bench->quick && scenario->total > QUICK ? QUICK : scenario->total;
    if (scenario->hold_from == NEVER && bench->sizes[0])
        total = bench->sizes[0];
    const char *first = NULL;
    uint64_t checksum = 0;
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct system *system = &columns[i];
        if (!bench_wants(bench, system->name))
            continue;
        struct scan *scan = scan_open(scenario, system, total, fd);
        if (!scan)
            return CLI_FAILURE;
        run_rows(bench, scan, system->name);
        const bool complete = scan->rival->agrees && scan->done == total;
        const bool agrees = !complete || !first || checksum == scan->checksum;
        if (complete && !first)
            first = system->name;
        if (complete)
            checksum = scan->checksum;
        scan_close(scan);
        if (agrees)
            continue;
        cli_error("%s: %s and %s chose different addresses on the same sequence; this is a bug: "
                  "please report it",
                  scenario->name, first, system->name);
        return CLI_FAILURE;
    }
    return CLI_OK;
}

static int run(struct bench *bench)
{
    const int fd = bench_file(bench, (size_t)MAX_PAGES << PAGE_SHIFT);
    if (fd < 0)
        return CLI_FAILURE;
    int status = CLI_OK;
    for (size_t i = 0; i < SCENARIOS && status == CLI_OK; i++) {
        if (bench_wants_part(bench, scenarios[i].name))
            status = run_scenario(bench, &scenarios[i], fd);
    }
    close(fd);
    return status;
}

/* --- what the rows say --------------------------------------------------------------------- */

static const struct bench_row *row_at(const struct bench *bench, const struct scenario *scenario,
                                      const char *system, uint64_t count)
{
    return bench_row_find(
        bench, &(struct bench_row){.workload = scenario->name, .system = system, .count = count});
}

static bool measured(const struct bench_row *row)
{
    return row && row->ops > 0 && !row->note[0];
}

/* The last complete row of a system. */
static const struct bench_row *last_row(const struct bench *bench, const struct scenario *scenario,
                                        const char *system)
{
    const struct bench_row *last = NULL;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->workload == scenario->name && strcmp(row->system, system) == 0 && measured(row))
            last = row;
    }
    return last;
}

static uint64_t last_count(const struct bench *bench, const struct scenario *scenario)
{
    uint64_t last = 0;
    for (size_t i = 0; i < bench->row_count; i++) {
        if (bench->rows[i].workload == scenario->name && bench->rows[i].count > last)
            last = bench->rows[i].count;
    }
    return last;
}

static void print_cell(FILE *out, const struct bench_row *row)
{
    if (!row)
        fprintf(out, " %12s", "-");
    else if (measured(row))
        fprintf(out, " %12.2f", row->ns_per_op * STEP / 1e6);
    else
        fprintf(out, " %12s", strncmp(row->note, "ENOMEM", 6) == 0 ? "ENOMEM" : "stopped");
}

/* Every 5,000 is measured; beyond 20,000 a long series is shown every 20,000, and where it ended.
 */
static bool shown(const struct bench *bench, const struct scenario *scenario, uint64_t count,
                  uint64_t last)
{
    if (last <= 120000 || count <= 20000 || count % 20000 == 0)
        return true;
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct bench_row *row = row_at(bench, scenario, columns[i].name, count);
        if (row && row->note[0])
            return true;
    }
    return false;
}

static void print_scenario(const struct bench *bench, FILE *out, const struct scenario *scenario)
{
    const uint64_t last = last_count(bench, scenario);
    if (last == 0)
        return;
    fprintf(out, "%s: %s\n  %9s", scenario->name, scenario->title, "mapped");
    for (size_t i = 0; i < COLUMNS; i++) {
        if (bench_wants(bench, columns[i].name))
            fprintf(out, " %12s", columns[i].name);
    }
    fputc('\n', out);
    for (uint64_t count = STEP; count <= last; count += STEP) {
        if (!shown(bench, scenario, count, last))
            continue;
        fprintf(out, "  %9" PRIu64, count);
        for (size_t i = 0; i < COLUMNS; i++) {
            if (bench_wants(bench, columns[i].name))
                print_cell(out, row_at(bench, scenario, columns[i].name, count));
        }
        fputc('\n', out);
    }
    for (size_t i = 0; i < bench->row_count; i++) {
        if (bench->rows[i].workload == scenario->name && bench->rows[i].note[0])
            fprintf(out, "  %s: %s\n", bench->rows[i].system, bench->rows[i].note);
    }
    fputc('\n', out);
}

static void print_rate(FILE *out, const struct bench_row *row)
{
    if (measured(row))
        fprintf(out, " %12.0f", 1e9 / row->ns_per_op);
    else
        fprintf(out, " %12s", row && strncmp(row->note, "ENOMEM", 6) == 0 ? "ENOMEM" : "-");
}

/* The mail's headline. A request is one mapping made while that many are live. */
static void print_headline(const struct bench *bench, FILE *out)
{
    const struct scenario *grow = &scenarios[0];
    const uint64_t last = last_count(bench, grow);
    if (last == 0)
        return;
    fprintf(out,
            "Requests a second, each mapping one page (the mail: anonymous 1000, file 20)\n"
            "  %9s",
            "live");
    for (size_t i = 0; i < COLUMNS; i++) {
        if (bench_wants(bench, columns[i].name))
            fprintf(out, " %12s", columns[i].name);
    }
    const uint64_t counts[] = {2 * STEP, 12 * STEP, last};
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
        if (c > 0 && counts[c] == counts[c - 1])
            continue;
        fprintf(out, "\n  %9" PRIu64, counts[c]);
        for (size_t i = 0; i < COLUMNS; i++) {
            if (bench_wants(bench, columns[i].name))
                print_rate(out, row_at(bench, grow, columns[i].name, counts[c]));
        }
    }
    fputs("\n\n", out);
}

/* --- the closing lines: computed from the rows --------------------------------------------- */

/* From here on a cost has grown: below, the noise of a shared machine could have made it. */
#define GREW 2.0

static double grown(const struct bench *bench, const struct scenario *scenario, const char *system,
                    uint64_t *at)
{
    const struct bench_row *early = row_at(bench, scenario, system, 2 * STEP);
    const struct bench_row *late = last_row(bench, scenario, system);
    if (!measured(early) || !late || late->count <= early->count || early->ns_per_op <= 0)
        return 0;
    *at = late->count;
    return late->ns_per_op / early->ns_per_op;
}

/* Ends the list, and shows its items, if there are any. */
static void close_list(FILE *out, const char *heading, FILE *list, const char *items)
{
    if (list)
        fclose(list);
    if (*items)
        text_wrap(out, items, heading, "  ");
}

static void close_growth(const struct bench *bench, FILE *out, bool grew)
{
    const struct scenario *grow = &scenarios[0];
    char items[600] = "";
    const char *separator = "";
    FILE *list = fmemopen(items, sizeof(items), "w");
    for (size_t i = 0; list && i < COLUMNS; i++) {
        uint64_t at = 0;
        const double factor = grown(bench, grow, columns[i].name, &at);
        if (factor <= 0 || (factor >= GREW) != grew)
            continue;
        fprintf(list, "%s%s %.1fx at %" PRIu64, separator, columns[i].name, factor, at);
        separator = ", ";
    }
    close_list(out, grew ? "Grew, from 10,000 live on: " : "Flat: ", list, items);
}

/* How much the slowest 5,000 took longer than the fastest, once the window was full. */
static double swing(const struct bench *bench, const struct scenario *scenario, const char *system)
{
    double low = 0;
    double high = 0;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->workload != scenario->name || strcmp(row->system, system) != 0 || !measured(row) ||
            row->count <= scenario->hold_from)
            continue;
        low = low == 0 || row->ns_per_op < low ? row->ns_per_op : low;
        high = row->ns_per_op > high ? row->ns_per_op : high;
    }
    return low > 0 ? high / low : 0;
}

static void close_window(const struct bench *bench, FILE *out)
{
    const struct scenario *window = &scenarios[1];
    char items[600] = "";
    const char *separator = "";
    FILE *list = fmemopen(items, sizeof(items), "w");
    for (size_t i = 0; list && i < COLUMNS; i++) {
        const double factor = swing(bench, window, columns[i].name);
        if (factor <= 0)
            continue;
        fprintf(list, "%s%s %.1f", separator, columns[i].name, factor);
        separator = ", ";
    }
    close_list(out, "Window of 20,000, slowest / fastest: ", list, items);
}

static void print(const struct bench *bench, FILE *out)
{
    fputs("Milliseconds for each 5,000 mappings of one file, one thread, never touched. kernel and "
          "mapping\n"
          "(the mapping layer) make them; linear (the kernel of 2001), rbtree (2012 to 2022) and "
          "space only\nchoose addresses.\n\n",
          out);
    for (size_t i = 0; i < SCENARIOS; i++)
        print_scenario(bench, out, &scenarios[i]);
    print_headline(bench, out);
    close_growth(bench, out, true);
    close_growth(bench, out, false);
    close_window(bench, out);
}

static void plot(const struct bench *bench, FILE *script)
{
    static const char *const shown_parts[][2] = {
        {"mmap_scan.grow", "all are kept"},
        {"mmap_scan.window20k", "20,000 are kept, the oldest goes"},
        {"mmap_scan.hole", "20,000 are kept from 20,000 to 40,000 only"},
        {"mmap_scan.random", "40,000 of 1 to 64 pages, a random one goes"},
    };
    fputs("set multiplot layout 2,2 title 'mapfold bench mmap_scan: time of one mapping, by the "
          "number mapped so far'\nset xlabel 'mapped so far (thousands)'\nset xrange [0:*]\n"
          "set yrange [2e-8:*]\n",
          script);
    for (size_t i = 0; i < sizeof(shown_parts) / sizeof(*shown_parts); i++)
        plot_panel(bench, script, shown_parts[i][0], shown_parts[i][1]);
    fputs("unset multiplot\n", script);
}

const struct bench_workload bench_mmap_scan = {
    .name = "mmap_scan",
    .help = "the mail of 2001: mapping pieces of one file by the ten thousand",
    .systems = systems,
    .parts = parts,
    .maps = GROW,
    .run = run,
    .print = print,
    .plot = plot,
};
