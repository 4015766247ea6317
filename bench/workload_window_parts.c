/* SPDX-License-Identifier: MIT */
/* What is done in the parts of the window workload, in a child process for each system. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mapfold/window.h>

#include "cli/cli.h"
#include "workload_window.h"

enum { SEED = 2002, SMALL_BATCH = 64, MANY_SAMPLES = 32 };

uint64_t window_slice(const struct bench *bench)
{
    const double wanted = bench->quick ? 0.01 : 0.08;
    return (uint64_t)(1e9 * (bench->seconds < wanted ? bench->seconds : wanted));
}

static int tell(const struct window_run *run, const char *what, int error)
{
    cli_error("%s: %s cannot %s: %s", run->part->name, run->visitor->name, what, strerror(-error));
    return CLI_FAILURE;
}

/* Visits timed together for one sample. */
static uint16_t sampled(const struct window_run *run)
{
    return run->visitor->calls ? 1 : run->part->sampled;
}

static struct bench_row new_row(const struct window_run *run, unsigned threads)
{
    const struct visit_world *world = &run->world;
    return (struct bench_row){
        .workload = run->part->name,
        .system = run->visitor->name,
        .n = world->paths ? world->files : world->file_bytes / VISIT_PAGE,
        .threads = threads,
        .sampled = sampled(run),
    };
}

static void take(struct bench_row *row, const struct bench_time *time)
{
    row->ops = time->ops;
    row->ns_per_op = time->ns_per_op;
    row->p50_ns = time->p50_ns;
    row->p99_ns = time->p99_ns;
    row->p999_ns = time->p999_ns;
}

/* Opens the system. 1: it cannot be, and the rows say why; CLI_OK; CLI_FAILURE after telling why.
 */
static int open_system(const struct window_run *run, void **system, struct child_rows *rows)
{
    const int error = run->visitor->open(&run->world, system);
    if (!error)
        return CLI_OK;
    if (error != -ENOMEM || run->visitor != &visitor_whole)
        return tell(run, "begin", error);
    for (unsigned threads = 1; threads <= WINDOW_THREADS; threads++) {
        struct bench_row row = new_row(run, threads);
        snprintf(row.note, sizeof(row.note), "ENOMEM: the kernel allows %llu maps",
                 (unsigned long long)bench_max_map_count());
        child_row(rows, &row);
    }
    return -1;
}

static struct bench_series series_of(const struct window_run *run)
{
    const bool small = sampled(run) == 1;
    return (struct bench_series){.prepare = visiting_prepare,
                                 .run = visiting_run,
                                 .batch = small ? SMALL_BATCH : VISIT_BATCH,
                                 .waits = true,
                                 .samples = small ? MANY_SAMPLES : 0,
                                 .sampled = sampled(run)};
}

static struct visiting *visiting_open(const struct window_run *run, void *system,
                                      const struct draw *draw, unsigned count)
{
    struct visiting *visiting = bench_memory(count * sizeof(*visiting), "the visits");
    for (unsigned i = 0; visiting && i < count; i++) {
        visiting[i].run = run;
        visiting[i].system = system;
        visiting[i].draw = draw;
        visiting[i].random = SEED + i;
    }
    return visiting;
}

static uint64_t visits_of(const struct visiting *visiting, unsigned count)
{
    uint64_t visits = 0;
    for (unsigned i = 0; i < count; i++)
        visits += visiting[i].visits;
    return visits;
}

/* Rounds of one thread and of two in turns. misses[t] grows by those of t + 1 threads. */
static int measure_rounds(const struct window_run *run, struct visiting *visiting,
                          struct bench_time times[WINDOW_THREADS][WINDOW_ROUNDS],
                          uint64_t misses[WINDOW_THREADS], uint64_t visits[WINDOW_THREADS])
{
    const struct bench_series series = series_of(run);
    const struct visitor *visitor = run->visitor;
    for (unsigned round = 0; round < WINDOW_ROUNDS; round++) {
        for (unsigned threads = 1; threads <= WINDOW_THREADS; threads++) {
            void *states[WINDOW_THREADS];
            struct bench_time each[WINDOW_THREADS];
            for (unsigned i = 0; i < threads; i++)
                states[i] = &visiting[i];
            const uint64_t visited = visits_of(visiting, WINDOW_THREADS);
            const uint64_t missed =
                visitor->misses ? visitor->misses(visiting->system, visited) : 0;
            int error = bench_measure_threads(&series, states, threads, UINT64_MAX,
                                              bench_now() + window_slice(run->bench), each);
            struct bench_time *time = &times[threads - 1][round];
            *time = bench_time_together(each, threads);
            if (!error && time->error != -ETIME)
                error = time->error;
            if (error)
                return tell(run, "go on", error);
            const uint64_t now = visits_of(visiting, WINDOW_THREADS);
            visits[threads - 1] += now - visited;
            if (visitor->misses)
                misses[threads - 1] += visitor->misses(visiting->system, now) - missed;
        }
    }
    return CLI_OK;
}

int window_visits(const struct window_run *run, struct child_rows *rows)
{
    static struct bench_time times[WINDOW_THREADS][WINDOW_ROUNDS];
    uint64_t misses[WINDOW_THREADS] = {0};
    uint64_t visits[WINDOW_THREADS] = {0};
    struct draw draw;
    void *system;
    const int opened = open_system(run, &system, rows);
    if (opened)
        return opened < 0 ? CLI_OK : CLI_FAILURE;
    int error = draw_open(&draw, run->world.files, (uint32_t)(run->world.file_bytes / VISIT_PAGE),
                          run->part->zipf);
    struct visiting *visiting = visiting_open(run, system, &draw, WINDOW_THREADS);
    if (error || !visiting)
        return error ? tell(run, "draw visits", error) : CLI_FAILURE;
    error = visiting_warm(visiting);
    if (error)
        return tell(run, "begin", error);
    if (measure_rounds(run, visiting, times, misses, visits) != CLI_OK)
        return CLI_FAILURE;
    for (unsigned threads = 1; threads <= WINDOW_THREADS; threads++) {
        struct bench_row row = new_row(run, threads);
        const struct bench_time time = median_time(times[threads - 1], WINDOW_ROUNDS);
        take(&row, &time);
        row.counts_misses = run->visitor->misses != NULL;
        row.misses_per_op = (double)misses[threads - 1] / (double)visits[threads - 1];
        row.kernel_maps = bench_kernel_maps();
        child_row(rows, &row);
    }
    return CLI_OK;
}

/* --- readers ------------------------------------------------------------------------------- */

/* A thread beside the readers for which files come and go. */
struct comer {
    const struct window_run *run;
    void *system;
    pthread_t thread;
    _Atomic bool stop;
    uint64_t files;
    int error;
};

static void *come_and_go(void *argument)
{
    struct comer *comer = argument;
    const struct visit_world *world = &comer->run->world;
    while (!atomic_load_explicit(&comer->stop, memory_order_relaxed) && !comer->error) {
        comer->error = comer->run->visitor->come_and_go(
            comer->system, world, 1 + (uint32_t)(comer->files % (world->files - 1)));
        comer->files += !comer->error;
    }
    return NULL;
}

enum { READERS = 8, READERS_SLICES = 2 };

/* All readers at once, alone or beside a comer. */
static int measure_readers(const struct comer *model, struct visiting *visiting,
                           struct bench_time *time)
{
    const struct window_run *run = model->run;
    const struct bench_series series = series_of(run);
    struct comer comer = *model;
    struct bench_time each[READERS];
    void *states[READERS];
    for (unsigned i = 0; i < READERS; i++)
        states[i] = &visiting[i];
    int error = comer.system ? -pthread_create(&comer.thread, NULL, come_and_go, &comer) : 0;
    if (error)
        return tell(run, "start a thread", error);
    const uint64_t until = bench_now() + READERS_SLICES * window_slice(run->bench);
    error = bench_measure_threads(&series, states, READERS, UINT64_MAX, until, each);
    atomic_store_explicit(&comer.stop, true, memory_order_relaxed);
    if (comer.system)
        pthread_join(comer.thread, NULL);
    *time = bench_time_together(each, READERS);
    if (!error && comer.error)
        error = comer.error;
    if (!error && time->error != -ETIME)
        error = time->error;
    return error ? tell(run, "go on", error) : CLI_OK;
}

int window_readers(const struct window_run *run, struct child_rows *rows)
{
    static struct bench_time times[2][WINDOW_ROUNDS];
    static const char *const names[2] = {"window.readers-quiet", "window.readers"};
    struct window_run hot = *run;
    struct draw draw;
    hot.world.files = 1;
    struct comer comer = {.run = run};
    void *system;
    if (open_system(&hot, &system, rows))
        return CLI_FAILURE;
    int error = draw_open(&draw, 1, (uint32_t)(run->world.file_bytes / VISIT_PAGE), false);
    struct visiting *visiting = visiting_open(&hot, system, &draw, READERS);
    if (error || !visiting)
        return error ? tell(run, "draw visits", error) : CLI_FAILURE;
    error = visiting_warm(visiting);
    if (error)
        return tell(run, "begin", error);
    for (unsigned round = 0; round < 2 * WINDOW_ROUNDS; round++) {
        comer.system = round % 2 ? system : NULL;
        if (measure_readers(&comer, visiting, &times[round % 2][round / 2]) != CLI_OK)
            return CLI_FAILURE;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct bench_row row = new_row(run, READERS);
        const struct bench_time time = median_time(times[i], WINDOW_ROUNDS);
        row.workload = names[i];
        take(&row, &time);
        child_row(rows, &row);
    }
    return CLI_OK;
}
