/* SPDX-License-Identifier: MIT */
/*
 * window: programs that read files through small mapped pieces, a byte a visit: by the pool, by
 * what the kernel offers, and by the caches that people write. The order of a run, and its tables;
 * what is done in a part is in workload_window_parts.c.
 *
 * Each system runs in a process of its own. It is warmed up, and then measured by one thread and by
 * two in turns, in rounds of which the median counts: so what one and two threads take can be
 * compared even on a machine that others use as well.
 */
#include "workload_window.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "test_tree.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define QUARTER (256 * MIB)

static const char *const systems[] = {
    "window", "local", "mf_read", "mmap", "whole", "pread", "lru_cache", "shared_refcount", NULL,
};

static const struct visitor *const visitors[] = {
    &visitor_window, &visitor_local, &visitor_read, &visitor_mmap,
    &visitor_whole,  &visitor_pread, &visitor_lru,  &visitor_shared,
};

enum {
    VISITORS = sizeof(visitors) / sizeof(visitors[0]),
    MAPS = 1024,
    DESCRIPTORS = 256,
    PLENTY = 32768
};

static const struct window_part window_parts[] = {
    {.name = "window.hot",
     .title = "a random page of 64 KiB of one file",
     .run = window_visits,
     .file_bytes = 64 * KIB,
     .budget = MIB,
     .sampled = 64},
    {.name = "window.hot.dependent",
     .title = "the same, each visit waiting for the byte of the last",
     .run = window_visits,
     .file_bytes = 64 * KIB,
     .budget = MIB,
     .sampled = 64,
     .chained = true},
    {.name = "window.random",
     .title = "a random page of a file of 1 GiB, all of which may be mapped",
     .run = window_visits,
     .file_bytes = GIB,
     .sampled = 64},
    {.name = "window.random.dependent",
     .title = "the same, each visit waiting for the byte of the last",
     .run = window_visits,
     .file_bytes = GIB,
     .sampled = 64,
     .chained = true},
    {.name = "window.quarter",
     .title = "the same, of which a quarter may be mapped",
     .run = window_visits,
     .file_bytes = GIB,
     .budget = QUARTER,
     .extent = 8 * KIB, /* for single pages at random, the smaller the better */
     .sampled = 1},
    {.name = "window.files",
     .title = "a random page of files of 64 KiB, Zipf 0.99; 1,024 maps, 256 descriptors",
     .run = window_visits,
     .files = 100000,
     .quick = 4000,
     .file_bytes = 64 * KIB,
     .budget = 64 * MIB,
     .zipf = true,
     .sampled = 1},
    {.name = "window.files-uniform",
     .title = "the same, all files alike",
     .run = window_visits,
     .files = 100000,
     .quick = 4000,
     .file_bytes = 64 * KIB,
     .budget = 64 * MIB,
     .sampled = 1},
    {.name = "window.copy",
     .title = "64 bytes copied out of a random page of 64 KiB of one file",
     .run = window_visits,
     .file_bytes = 64 * KIB,
     .budget = MIB,
     .sampled = 64,
     .copies = true},
    {.name = "window.readers",
     .title = "8 threads as in window.hot, while one opens, touches and closes files",
     .run = window_readers,
     .files = 10000,
     .quick = 1000,
     .file_bytes = 64 * KIB,
     .budget = 64 * MIB,
     .sampled = 64},
};

enum { PARTS = sizeof(window_parts) / sizeof(*window_parts) };

static const char *const parts[] = {
    "window.hot",           "window.hot.dependent",
    "window.random",        "window.random.dependent",
    "window.quarter",       "window.files",
    "window.files-uniform", "window.copy",
    "window.readers",       NULL,
};

static uint32_t files_of(const struct bench *bench, const struct window_part *part)
{
    if (!part->files)
        return 1;
    if (bench->sizes[0])
        return (uint32_t)bench->sizes[0];
    return bench->quick ? part->quick : part->files;
}

static uint64_t bytes_of(const struct bench *bench, const struct window_part *part)
{
    return bench->quick && part->file_bytes == GIB ? GIB / 16 : part->file_bytes;
}

static uint64_t n_of(const struct window_run *run)
{
    const struct visit_world *world = &run->world;
    return world->paths ? world->files : world->file_bytes / VISIT_PAGE;
}

static bool takes_part(const struct window_part *part, const struct visitor *visitor)
{
    return part->copies                  ? visitor->copy != NULL
           : part->chained               ? visitor->chain != NULL
           : part->run == window_readers ? visitor->come_and_go != NULL
                                         : true;
}

static int job(struct bench *bench, const void *argument, struct child_rows *rows)
{
    (void)bench;
    const struct window_run *run = argument;
    return run->part->run(run, rows);
}

/* The files there are, made when a part first needs them. */
struct test_files {
    int fd;
    uint64_t fd_bytes;
    struct test_tree tree;
};

static void files_close(struct test_files *files)
{
    if (files->fd >= 0)
        close(files->fd);
    test_tree_remove(&files->tree);
    files->fd = -1;
}

static int files_for(struct test_files *files, struct bench *bench, const struct window_part *part)
{
    const uint64_t bytes = bytes_of(bench, part);
    const uint32_t count = files_of(bench, part);
    if (part->files && files->tree.count >= count)
        return CLI_OK;
    if (part->files) {
        test_tree_remove(&files->tree);
        return test_tree_make(bench, count, bytes, &files->tree) ? CLI_FAILURE : CLI_OK;
    }
    if (files->fd >= 0 && files->fd_bytes == bytes)
        return CLI_OK;
    if (files->fd >= 0)
        close(files->fd);
    bench_progress(bench, "%s: writing a file of %" PRIu64 " MiB", part->name, bytes / MIB);
    files->fd = bench_file(bench, bytes);
    files->fd_bytes = bytes;
    return files->fd >= 0 ? CLI_OK : CLI_FAILURE;
}

static int run_part(struct bench *bench, const struct window_part *part, struct test_files *files)
{
    const uint64_t bytes = bytes_of(bench, part);
    const uint64_t budget = part->budget == QUARTER ? bytes / 4 : part->budget;
    struct window_run run = {.bench = bench, .part = part};
    int status = CLI_OK;
    for (size_t i = 0; i < VISITORS && status == CLI_OK; i++) {
        if (!bench_wants(bench, visitors[i]->name) || !takes_part(part, visitors[i]))
            continue;
        status = files_for(files, bench, part);
        if (status != CLI_OK)
            break;
        run.visitor = visitors[i];
        run.world = (struct visit_world){
            .paths = part->files ? (const char *const *)files->tree.paths : NULL,
            .fd = files->fd,
            .files = files_of(bench, part),
            .file_bytes = bytes,
            .budget_bytes = budget ? budget : bytes,
            .budget_maps = part->files ? MAPS : PLENTY,
            .budget_files = DESCRIPTORS,
            .extent = part->extent,
        };
        const struct bench_row named = {
            .workload = part->name, .system = visitors[i]->name, .n = n_of(&run), .threads = 1};
        bench_progress(bench, "%s: %s", part->name, visitors[i]->name);
        status = run_in_child(bench, &named, job, &run);
    }
    return status;
}

static int run(struct bench *bench)
{
    struct test_files files = {.fd = -1};
    int status = CLI_OK;
    for (size_t i = 0; i < PARTS && status == CLI_OK; i++) {
        if (bench_wants_part(bench, window_parts[i].name))
            status = run_part(bench, &window_parts[i], &files);
    }
    bench_progress(bench, "removing the test files");
    files_close(&files);
    return status;
}

/* --- what the rows say --------------------------------------------------------------------- */

static const struct bench_row *find_row(const struct bench *bench, const char *workload,
                                        const char *system, unsigned threads)
{
    return bench_row_find(
        bench, &(struct bench_row){.workload = workload, .system = system, .threads = threads});
}

static void print_row(const struct bench *bench, FILE *out, const struct bench_row *row)
{
    fprintf(out, "  %7u  %-15s", row->threads, row->system);
    if (row->ops == 0) {
        fprintf(out, " %s\n", row->note);
        return;
    }
    const struct bench_row *window = find_row(bench, row->workload, systems[0], row->threads);
    fprintf(out, " %10.1f %10.1f %10.1f %10.1f", row->ns_per_op, row->p50_ns, row->p99_ns,
            row->p999_ns);
    if (window && window->ops && row != window)
        fprintf(out, " %9.2f", row->ns_per_op / window->ns_per_op);
    else
        fprintf(out, " %9s", "-");
    if (row->counts_misses)
        fprintf(out, " %8.4f", row->misses_per_op);
    else
        fprintf(out, " %8s", "-");
    if (row->note[0])
        fprintf(out, "\n  %7s  %-15s %s", "", "", row->note);
    fputc('\n', out);
}

/* Rows come system by system; a table wants them by threads. */
static void print_table(const struct bench *bench, FILE *out, const char *workload,
                        const char *title, unsigned sampled)
{
    bool any = false;
    for (unsigned threads = 1; threads <= 8; threads++) {
        for (size_t i = 0; i < bench->row_count; i++) {
            const struct bench_row *row = &bench->rows[i];
            if (row->threads != threads || strcmp(row->workload, workload) != 0)
                continue;
            if (!any)
                fprintf(out, "%s: %s\n  %7s  %-15s %10s %10s %10s %10s %9s %8s\n", workload, title,
                        "threads", "system", "ns/visit", sampled > 1 ? "p50*" : "p50",
                        sampled > 1 ? "p99*" : "p99", sampled > 1 ? "p99.9*" : "p99.9", "/window",
                        "misses");
            any = true;
            print_row(bench, out, row);
        }
    }
    if (any)
        fputc('\n', out);
}

static double figure(const struct bench *bench, const char *workload, const char *system,
                     unsigned threads)
{
    const struct bench_row *row = find_row(bench, workload, system, threads);
    return row && row->ops ? row->ns_per_op : 0;
}

/* What is asked of one system beside another. */
static const struct asked {
    const char *what;
    const char *workload, *system;
    unsigned threads;
    const char *than_workload, *than_system;
    unsigned than_threads;
    double most; /* times as long */
} asked[] = {
    {"hot, 2 threads: window / the same, 1 thread", "window.hot", "window", 2, "window.hot",
     "window", 1, 1.1},
    {"hot, 2 threads: window / lru_cache", "window.hot", "window", 2, "window.hot", "lru_cache", 2,
     0.1},
    {"hot, 1 thread: window / whole", "window.hot", "window", 1, "window.hot", "whole", 1, 4},
    {"hot, dependent, 1 thread: window / whole", "window.hot.dependent", "window", 1,
     "window.hot.dependent", "whole", 1, 4},
    {"random, all mapped, 1 thread: window / whole", "window.random", "window", 1, "window.random",
     "whole", 1, 1.6},
    {"random, all mapped, dependent, 1 thread: window / whole", "window.random.dependent", "window",
     1, "window.random.dependent", "whole", 1, 1.6},
    {"random, a quarter, 2 threads: window / lru_cache", "window.quarter", "window", 2,
     "window.quarter", "lru_cache", 2, 0.125},
    {"files, Zipf, 1 thread: window / lru_cache", "window.files", "window", 1, "window.files",
     "lru_cache", 1, 1.0 / 3},
    {"files, Zipf, 2 threads: window / lru_cache", "window.files", "window", 2, "window.files",
     "lru_cache", 2, 1.0 / 3},
    {"files, Zipf, 1 thread: window / open+pread+close", "window.files", "window", 1,
     "window.files", "pread", 1, 0.7},
    {"files, Zipf, 2 threads: window / open+pread+close", "window.files", "window", 2,
     "window.files", "pread", 2, 0.7},
    {"files, uniform, 1 thread: window / open+pread+close", "window.files-uniform", "window", 1,
     "window.files-uniform", "pread", 1, 1.15},
    {"files, uniform, 2 threads: window / open+pread+close", "window.files-uniform", "window", 2,
     "window.files-uniform", "pread", 2, 1.15},
    {"64 bytes, 1 thread: mf_read / pread", "window.copy", "mf_read", 1, "window.copy", "pread", 1,
     1.0 / 15},
};

static void print_asked(const struct bench *bench, FILE *out)
{
    bool any = false;
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        const struct asked *a = &asked[i];
        const double ours = figure(bench, a->workload, a->system, a->threads);
        const double theirs = figure(bench, a->than_workload, a->than_system, a->than_threads);
        if (ours <= 0 || theirs <= 0)
            continue;
        if (!any)
            fprintf(out, "%-58s %9s %9s\n", "What is asked of the pool", "at most", "measured");
        any = true;
        fprintf(out, "  %-56s %9.3f %9.3f%s\n", a->what, a->most, ours / theirs,
                ours / theirs <= a->most ? "" : "  missed");
    }
    const struct bench_row *quiet = find_row(bench, "window.readers-quiet", "window", 8);
    const struct bench_row *busy = find_row(bench, "window.readers", "window", 8);
    if (quiet && busy && quiet->p99_ns > 0)
        fprintf(out, "  %-56s %9s %9.3f\n", "readers: p99 while files come and go / while none do",
                "-", busy->p99_ns / quiet->p99_ns);
    if (any)
        fputc('\n', out);
}

static void print(const struct bench *bench, FILE *out)
{
    if (!bench->row_count)
        return;
    fputs(
        "One byte read a visit, wall-clock time as each thread saw it, medians of rounds. misses: "
        "share of\nvisits whose piece was not in the cache. p*: a visit takes less than reading "
        "the "
        "clock, so 64 are\ntimed together and divided (but for mmap and pread).\n\n",
        out);
    for (size_t i = 0; i < PARTS; i++) {
        const struct window_part *part = &window_parts[i];
        if (part->run == window_readers)
            print_table(bench, out, "window.readers-quiet", "8 threads as in window.hot, alone",
                        part->sampled);
        print_table(bench, out, part->name, part->title, part->sampled);
    }
    print_asked(bench, out);
}

static void plot(const struct bench *bench, FILE *script)
{
    static const char *const shown[][2] = {
        {"window.hot", "64 KiB of one file"},
        {"window.random", "1 GiB, all may be mapped"},
        {"window.quarter", "1 GiB, a quarter may be mapped"},
        {"window.files", "100,000 files, Zipf"},
    };
    fputs("set multiplot layout 2,2 title 'mapfold bench window: time of one visit, 1 and 2 "
          "threads'\n",
          script);
    for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++)
        plot_bars(bench, script, shown[i][0], shown[i][1]);
    fputs("unset multiplot\n", script);
}

const struct bench_workload bench_window = {
    .name = "window",
    .help = "reading files through small pieces, by the pool and by caches",
    .systems = systems,
    .parts = parts,
    .maps = 100000,
    .run = run,
    .print = print,
    .plot = plot,
};
