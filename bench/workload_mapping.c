/* SPDX-License-Identifier: MIT */
/*
 * mapping: programs that map many small pieces of files, by the kernel alone and through the
 * mapping layer, called as the drop-in of `mapfold run` calls it.
 *
 * A part is one such program. Parts whose rivals differ by factors run each rival in a process of
 * its own; those that look for a few per cent run both in turns in one process
 * (workload_mapping_calls.c).
 */
#include "workload_mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mapfold/mmap.h>

#include "cli/cli.h"
#include "in_child.h"
#include "pieces.h"

enum { MAX_THREADS = 2, SEED = 2001, STEP = 10000, MILLION = 1000000, SPREAD_LIVE = 1000 };

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const char *const systems[] = {"kernel", "mapping", NULL};

static const char *const parts[] = {
    "mapping.grow",
    "mapping.grow-read",
    "mapping.grow-written",
    "mapping.window",
    "mapping.window-read",
    "mapping.window-written",
    "mapping.sparse",
    "mapping.random",
    "mapping.random-shared",
    "mapping.random-private",
    "mapping.random-written",
    "mapping.files",
    "mapping.one",
    "mapping.once",
    "mapping.first",
    "mapping.passed",
    "mapping.passed-folded",
    NULL,
};

#define WRITABLE (PROT_READ | PROT_WRITE)

static const struct part pieces_parts[] = {
    {"mapping.grow",
     "one page of one file, all are kept, never touched",
     part_grow,
     MILLION,
     10 * STEP,
     1,
     {WRITABLE, MAP_PRIVATE, MIB, false, 1, false, UNTOUCHED}},
    {"mapping.grow-read",
     "the same, one byte of each read",
     part_grow,
     MILLION,
     10 * STEP,
     1,
     {WRITABLE, MAP_PRIVATE, MIB, false, 1, false, READ}},
    {"mapping.grow-written",
     "the same, one byte of each written",
     part_grow,
     MILLION,
     10 * STEP,
     1,
     {WRITABLE, MAP_PRIVATE, MIB, false, 1, false, WRITTEN}},
    {"mapping.window",
     "one page of one file, 20,000 are kept, the oldest is unmapped",
     part_window,
     20000,
     20000,
     1,
     {WRITABLE, MAP_PRIVATE, MIB, false, 1, false, UNTOUCHED}},
    {"mapping.window-read",
     "the same, one byte of each read",
     part_window,
     20000,
     20000,
     1,
     {WRITABLE, MAP_PRIVATE, MIB, false, 1, false, READ}},
    {"mapping.window-written",
     "the same, one byte of each written",
     part_window,
     20000,
     20000,
     1,
     {WRITABLE, MAP_PRIVATE, MIB, false, 1, false, WRITTEN}},
    {"mapping.sparse",
     "1 to 64 pages anywhere in 16 GiB, untouched: kept, then unmapped at random",
     part_sparse,
     300000,
     3 * STEP,
     1,
     {PROT_READ, MAP_PRIVATE, 16 * GIB, true, 64, true, UNTOUCHED}},
    {"mapping.random",
     "1 to 64 pages of 1 GiB: map, read a byte, unmap the oldest of 1,000",
     part_window,
     SPREAD_LIVE,
     SPREAD_LIVE,
     MAX_THREADS,
     {PROT_READ, MAP_PRIVATE, GIB, false, 64, true, READ}},
    {"mapping.random-shared",
     "the same, shared",
     part_window,
     SPREAD_LIVE,
     SPREAD_LIVE,
     MAX_THREADS,
     {PROT_READ, MAP_SHARED, GIB, false, 64, true, READ}},
    {"mapping.random-private",
     "the same, private and writable, a byte read",
     part_window,
     SPREAD_LIVE,
     SPREAD_LIVE,
     MAX_THREADS,
     {WRITABLE, MAP_PRIVATE, GIB, false, 64, true, READ}},
    {"mapping.random-written",
     "the same, private and writable, a byte written",
     part_window,
     SPREAD_LIVE,
     SPREAD_LIVE,
     MAX_THREADS,
     {WRITABLE, MAP_PRIVATE, GIB, false, 64, true, WRITTEN}},
    {"mapping.files",
     "private pieces of one page, each of another file, all are kept",
     part_files,
     70000,
     2 * STEP,
     1,
     {WRITABLE, MAP_PRIVATE, 4096, false, 1, false, READ}},
};

static const struct part calls_parts[] = {
    {"mapping.one",
     "one piece is held; another is mapped, read and unmapped again and again",
     calls_one,
     200000,
     20000,
     1,
     {PROT_READ, MAP_PRIVATE, MIB, false, 1, false, READ}},
    {"mapping.once",
     "files of 64 KiB in turn: opened, mapped, summed, unmapped, closed",
     calls_once,
     40000,
     4000,
     1,
     {PROT_READ, MAP_PRIVATE, MIB / 16, false, 16, false, READ}},
    {"mapping.first",
     "the only piece of a file, mapped and unmapped, beside 1,000 folded ones",
     calls_first,
     200000,
     20000,
     1,
     {PROT_READ, MAP_PRIVATE, MIB, false, 1, false, UNTOUCHED}},
    {"mapping.passed",
     "one anonymous page, mapped and unmapped; nothing is folded",
     calls_passed,
     200000,
     20000,
     1,
     {PROT_READ, MAP_PRIVATE, MIB, false, 1, false, UNTOUCHED}},
    {"mapping.passed-folded",
     "the same beside 1,000 folded pieces",
     calls_passed,
     200000,
     20000,
     1,
     {PROT_READ, MAP_PRIVATE, MIB, false, 1, false, UNTOUCHED}},
};

enum {
    PIECES_PARTS = sizeof(pieces_parts) / sizeof(*pieces_parts),
    CALLS_PARTS = sizeof(calls_parts) / sizeof(*calls_parts),
};

/* --- what a child does --------------------------------------------------------------------- */

/* What is known of a process with so many live pieces. */
static void measure_process(const struct run *run, uint64_t live, struct bench_row *row)
{
    struct mf_map_stats stats;
    row->kernel_maps = bench_kernel_maps();
    if (run->mapper != &mapper_mapping || live == 0)
        return;
    mf_map_stats(&stats);
    row->bytes_per_area = (double)stats.metadata_bytes / (double)live;
}

void explain_end(struct bench_row *row, int error, uint64_t live)
{
    if (error == -ETIME)
        snprintf(row->note, sizeof(row->note), "stopped by --seconds at %" PRIu64, live);
    else if (error == -ENOMEM)
        snprintf(row->note, sizeof(row->note), "ENOMEM at %" PRIu64 " live, %" PRIu64 " maps", live,
                 bench_kernel_maps());
    else if (error)
        snprintf(row->note, sizeof(row->note), "%s at %" PRIu64 " live", strerror(-error), live);
}

void take_time(struct bench_row *row, const struct bench_time *time)
{
    row->ops = time->ops;
    row->ns_per_op = time->ns_per_op;
    row->p50_ns = time->p50_ns;
    row->p99_ns = time->p99_ns;
}

/* A series of `total` operations with a row each STEP. *live is read after each. */
static int run_steps(const struct run *run, const struct bench_series *series, void *state,
                     const char *workload, uint64_t total, const uint64_t *live,
                     struct child_rows *rows)
{
    struct bench_row row = {.workload = workload, .system = run->mapper->name, .threads = 1};
    row.n = run->n;
    while (row.count < total && !row.note[0]) {
        struct bench_time time;
        const uint64_t step = total - row.count < STEP ? total - row.count : STEP;
        row.count += step;
        bench_progress(run->bench, "%s %s: %" PRIu64 " of %" PRIu64, workload, row.system,
                       row.count, total);
        bench_measure(series, state, step, run->until, &time);
        take_time(&row, &time);
        explain_end(&row, time.error, *live);
        row.kernel_maps = 0;
        row.bytes_per_area = 0;
        if (row.note[0] || row.count == total)
            measure_process(run, *live, &row);
        child_row(rows, &row);
    }
    return row.note[0] ? -1 : 0;
}

int part_grow(const struct run *run, struct child_rows *rows)
{
    struct pieces pieces;
    const int fd = pieces_file(run->bench, &run->part->plan);
    if (fd < 0 || pieces_open(&pieces, run->mapper, &run->part->plan, fd, run->n, SEED))
        return CLI_FAILURE;
    run_steps(run, &pieces_grow, &pieces, run->part->name, run->n, &pieces.live, rows);
    return CLI_OK; /* its memory goes with the process */
}

int part_sparse(const struct run *run, struct child_rows *rows)
{
    struct pieces pieces;
    const int fd = pieces_file(run->bench, &run->part->plan);
    if (fd < 0 || pieces_open(&pieces, run->mapper, &run->part->plan, fd, run->n, SEED))
        return CLI_FAILURE;
    /* At the limit of kernel maps the harness itself could not go on. */
    if (run_steps(run, &pieces_grow, &pieces, run->part->name, run->n, &pieces.live, rows))
        pieces_shed(&pieces, PIECES_BATCH);
    run_steps(run, &pieces_release, &pieces, "mapping.sparse-release", pieces.live, &pieces.live,
              rows);
    return CLI_OK;
}

/* Files of one page in turn: opened and written before, and closed after, a batch is timed. */
struct files {
    const struct run *run;
    uint64_t live;
    uint64_t sum;
    int fd[PIECES_BATCH];
};

static int files_prepare(void *state, size_t count)
{
    struct files *files = state;
    for (size_t i = 0; i < count; i++) {
        files->fd[i] = bench_file(files->run->bench, (size_t)files->run->part->plan.file_bytes);
        if (files->fd[i] < 0)
            return -EIO;
    }
    return 0;
}

static int files_run(void *state, size_t first, size_t count)
{
    struct files *files = state;
    const struct pieces_plan *plan = &files->run->part->plan;
    for (size_t i = first; i < first + count; i++) {
        char *piece = files->run->mapper->map(NULL, (size_t)plan->file_bytes, plan->protection,
                                              plan->flags, files->fd[i], 0);
        if (piece == MAP_FAILED)
            return -errno;
        files->sum += (unsigned char)*(volatile char *)piece;
        files->live++;
    }
    return 0;
}

static int files_commit(void *state, size_t count)
{
    struct files *files = state;
    for (size_t i = 0; i < count; i++)
        close(files->fd[i]);
    return 0;
}

int part_files(const struct run *run, struct child_rows *rows)
{
    static const struct bench_series series = {
        files_prepare, files_run, files_commit, PIECES_BATCH, true, 0, 0};
    struct files files = {.run = run};
    run_steps(run, &series, &files, run->part->name, run->n, &files.live, rows);
    return CLI_OK;
}

struct worker {
    const struct run *run;
    pthread_t thread;
    pthread_barrier_t *start;
    struct pieces pieces;
    uint64_t ops;
    struct bench_time time;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    pthread_barrier_wait(worker->start);
    bench_measure(&pieces_turn, &worker->pieces, worker->ops, worker->run->until, &worker->time);
    return NULL;
}

/*
 * Every thread has a file, and pieces, of its own. It is measured when as many operations are done
 * as it will be measured for: a program that does this does it for long.
 */
static int worker_open(struct worker *worker, const struct run *run, unsigned number)
{
    const struct pieces_plan *plan = &run->part->plan;
    worker->run = run;
    worker->ops = run->bench->quick ? STEP / 2 : 5 * STEP;
    const int fd = pieces_file(run->bench, plan);
    if (fd < 0 || pieces_open(&worker->pieces, run->mapper, plan, fd, run->n, SEED + number))
        return CLI_FAILURE;
    int error = pieces_fill(&worker->pieces, run->n);
    if (!error)
        error = pieces_churn(&worker->pieces, worker->ops);
    if (error)
        cli_error("%s: cannot begin with %" PRIu64 " pieces: %s", run->part->name, run->n,
                  strerror(-error));
    return error ? CLI_FAILURE : CLI_OK;
}

/* The row of all threads: an operation's time as its thread saw it, and the last's percentiles. */
static void workers_row(const struct run *run, struct worker *workers, struct child_rows *rows)
{
    struct bench_row row = {.workload = run->part->name, .system = run->mapper->name, .n = run->n};
    double rate = 0;
    uint64_t ops = 0;
    row.threads = run->threads;
    for (unsigned i = 0; i < run->threads; i++) {
        const struct bench_time *time = &workers[i].time;
        take_time(&row, time);
        ops += time->ops;
        rate += time->ns_per_op > 0 ? 1 / time->ns_per_op : 0;
        explain_end(&row, time->error, run->n);
    }
    row.ops = ops;
    row.ns_per_op = rate > 0 ? run->threads / rate : 0;
    measure_process(run, run->n * run->threads, &row);
    child_row(rows, &row);
}

/* The process ends with the part, and frees what it holds. */
/* NOLINTBEGIN(clang-analyzer-unix.Malloc) */
int part_window(const struct run *run, struct child_rows *rows)
{
    pthread_barrier_t start;
    struct worker *workers = calloc(run->threads, sizeof(*workers));
    if (!workers || pthread_barrier_init(&start, NULL, run->threads)) {
        cli_error("out of memory");
        return CLI_FAILURE;
    }
    for (unsigned i = 0; i < run->threads; i++) {
        workers[i].start = &start;
        if (worker_open(&workers[i], run, i) != CLI_OK)
            return CLI_FAILURE;
    }
    bench_progress(run->bench, "%s %s, %u threads", run->part->name, run->mapper->name,
                   run->threads);
    for (unsigned i = 1; i < run->threads; i++) {
        const int error = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        if (error) {
            cli_error("cannot start a thread: %s", strerror(error));
            return CLI_FAILURE;
        }
    }
    work(&workers[0]);
    for (unsigned i = 1; i < run->threads; i++)
        pthread_join(workers[i].thread, NULL);
    workers_row(run, workers, rows);
    return CLI_OK;
}

/* NOLINTEND(clang-analyzer-unix.Malloc) */

/* --- the order of a run -------------------------------------------------------------------- */

static int job(struct bench *bench, const void *argument, struct child_rows *rows)
{
    struct run run = *(const struct run *)argument;
    struct part part = *run.part;
    if (bench->quick && part.plan.file_bytes == GIB)
        part.plan.file_bytes /= 16;
    run.part = &part;
    run.bench = bench;
    run.until = bench_now() + (uint64_t)(bench->seconds * 1e9);
    return run.part->run(&run, rows);
}

static int run_one(struct bench *bench, const struct part *part, const struct mapper *mapper,
                   unsigned threads)
{
    struct run run = {.part = part, .mapper = mapper, .threads = threads};
    run.n = bench->quick ? part->quick : part->total;
    if (part->run == part_grow && bench->sizes[0])
        run.n = bench->sizes[0];
    const struct bench_row named = {.workload = part->name,
                                    .system = mapper ? mapper->name : systems[1],
                                    .n = run.n,
                                    .threads = threads};
    return run_in_child(bench, &named, job, &run);
}

static int run(struct bench *bench)
{
    static const struct mapper *const mappers[] = {&mapper_kernel, &mapper_mapping};
    int status = CLI_OK;
    for (size_t i = 0; i < PIECES_PARTS; i++) {
        const struct part *part = &pieces_parts[i];
        if (!bench_wants_part(bench, part->name))
            continue;
        for (unsigned threads = 1; threads <= part->threads; threads++) {
            for (size_t m = 0; m < 2 && status == CLI_OK; m++) {
                if (bench_wants(bench, mappers[m]->name))
                    status = run_one(bench, part, mappers[m], threads);
            }
        }
    }
    const bool any = bench_wants(bench, systems[0]) || bench_wants(bench, systems[1]);
    for (size_t i = 0; i < CALLS_PARTS && status == CLI_OK; i++) {
        if (any && bench_wants_part(bench, calls_parts[i].name))
            status = run_one(bench, &calls_parts[i], NULL, 1);
    }
    return status;
}

/* --- what the rows say --------------------------------------------------------------------- */

/* Of a series, its beginning, a few others, and where it ended. */
static bool shown(const struct bench *bench, const struct bench_row *row)
{
    static const uint64_t counts[] = {0, STEP, 6 * STEP, 10 * STEP, 30 * STEP, 60 * STEP};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        if (row->count == counts[i])
            return true;
    }
    const struct bench_row *next = row + 1;
    return next == bench->rows + bench->row_count || next->count <= row->count;
}

static void print_row(const struct bench *bench, FILE *out, const struct bench_row *row)
{
    fprintf(out, "  %9" PRIu64 " %7u  %-8s", row->count ? row->count : row->n, row->threads,
            row->system);
    if (row->ops == 0) {
        fprintf(out, " %s\n", row->note);
        return;
    }
    const struct bench_row key = {.workload = row->workload,
                                  .system = systems[0],
                                  .count = row->count,
                                  .threads = row->threads};
    const struct bench_row *kernel = bench_row_find(bench, &key);
    fprintf(out, " %9.1f %8.0f %8.0f", row->ns_per_op, row->p50_ns, row->p99_ns);
    if (kernel && kernel->ops && row != kernel)
        fprintf(out, " %8.2f", kernel->ns_per_op / row->ns_per_op);
    else
        fprintf(out, " %8s", "-");
    if (row->bytes_per_area > 0)
        fprintf(out, " %7.1f", row->bytes_per_area);
    else
        fprintf(out, " %7s", "-");
    if (row->kernel_maps)
        fprintf(out, " %7" PRIu64, row->kernel_maps);
    else
        fprintf(out, " %7s", "-");
    if (row->note[0])
        fprintf(out, "\n  %9s %7s  %-8s %s", "", "", "", row->note);
    fputc('\n', out);
}

static const struct part *part_of(const char *workload)
{
    for (size_t i = 0; i < PIECES_PARTS; i++) {
        if (strcmp(pieces_parts[i].name, workload) == 0)
            return &pieces_parts[i];
    }
    for (size_t i = 0; i < CALLS_PARTS; i++) {
        if (strcmp(calls_parts[i].name, workload) == 0)
            return &calls_parts[i];
    }
    return NULL;
}

/* Rows come system by system; a table wants them beside each other. */
static void print_table(const struct bench *bench, FILE *out, const char *workload,
                        const char *title)
{
    bool any = false;
    for (unsigned threads = 1; threads <= MAX_THREADS; threads++) {
        for (size_t s = 0; systems[s]; s++) {
            for (size_t i = 0; i < bench->row_count; i++) {
                const struct bench_row *row = &bench->rows[i];
                if (row->threads != threads || strcmp(row->system, systems[s]) != 0 ||
                    strcmp(row->workload, workload) != 0 || !shown(bench, row))
                    continue;
                if (!any)
                    fprintf(out, "%s: %s\n  %9s %7s  %-8s %9s %8s %8s %8s %7s %7s\n", workload,
                            title, "n", "threads", "system", "ns/op", "p50", "p99", "speed",
                            "B/piece", "maps");
                any = true;
                print_row(bench, out, row);
            }
        }
    }
    if (any)
        fputc('\n', out);
}

static void print(const struct bench *bench, FILE *out)
{
    fputs(
        "n: pieces live, in a series so far mapped or unmapped. speed: the kernel's ns/op "
        "divided by this\n"
        "row's. With 2 threads ns/op is what each of them saw. B/piece: our tables, for each live "
        "piece.\n\n",
        out);
    for (const char *const *name = parts; *name; name++) {
        const struct part *part = part_of(*name);
        print_table(bench, out, *name, part->title);
        if (part->run == part_sparse)
            print_table(bench, out, "mapping.sparse-release",
                        "the same pieces, unmapped at random");
    }
}

static void plot(const struct bench *bench, FILE *script)
{
    static const char *const shown_parts[][2] = {
        {"mapping.grow", "one page of one file, never touched"},
        {"mapping.grow-written", "the same, a byte written"},
        {"mapping.sparse", "1 to 64 pages anywhere in 16 GiB"},
        {"mapping.files", "one page of another file each"},
    };
    fputs("set multiplot layout 2,2 title 'mapfold bench mapping: time of one mapping, by the "
          "number live'\nset xlabel 'live (thousands)'\nset xrange [0:*]\nset yrange [1e-7:*]\n",
          script);
    for (size_t i = 0; i < sizeof(shown_parts) / sizeof(*shown_parts); i++)
        plot_panel(bench, script, shown_parts[i][0], shown_parts[i][1]);
    fputs("unset multiplot\n", script);
}

const struct bench_workload bench_mapping = {
    .name = "mapping",
    .help = "small pieces of files, mapped by the kernel and by the mapping layer",
    .systems = systems,
    .parts = parts,
    .maps = MILLION,
    .run = run,
    .print = print,
    .plot = plot,
};
