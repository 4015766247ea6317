/* SPDX-License-Identifier: MIT */
/*
 * kmap_lock: the first mail again. Sixteen processes, or sixteen threads, read one byte of a file
 * and seek back, all of the same file or each of its own; and what a map costs under a pool's lock
 * as the pool grows.
 *
 * An iteration's time is CPU time, user and kernel mode, of all workers together: there are more of
 * them than processors. Processes have a pool each, threads share one. A lock that keeps times is
 * measured twice: first without them, for the time of an iteration, then with them, for its books.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "cli/cli.h"
#include "in_child.h"
#include "kmap_kernel.h"
#include "kmap_system.h"

enum { SEED = 2002, SLOTS = 128, SLOTS_MAX = 4096, CROWD = 4, CALL_BATCH = 64, START_MS = 100 };

struct part {
    const char *name;
    const char *title;
    bool processes;
    bool different; /* each worker has a file of its own */
    bool crowded;   /* pages at random, CROWD for each slot; else always the first */
    bool held;      /* three quarters of the slots are held all the time */
};

static const struct part kmap_parts[] = {
    {"kmap_lock.processes-same", "16 processes, the same file", true, false, false, false},
    {"kmap_lock.processes-different", "16 processes, different files", true, true, false, false},
    {"kmap_lock.threads-same", "16 threads, the same file", false, false, false, false},
    {"kmap_lock.threads-different", "16 threads, different files", false, true, false, false},
    {"kmap_lock.slots", "16 threads, random pages, 4 for each slot: short pins", false, false, true,
     false},
    {"kmap_lock.slots-held", "the same, while three quarters of the slots are held", false, false,
     true, true},
};

enum { PARTS = sizeof(kmap_parts) / sizeof(*kmap_parts) };

static const char *const parts[] = {
    "kmap_lock.processes-same",
    "kmap_lock.processes-different",
    "kmap_lock.threads-same",
    "kmap_lock.threads-different",
    "kmap_lock.slots",
    "kmap_lock.slots-held",
    NULL,
};

static const char *const systems[] = {"read+lseek", "pread", "mmap", "pool-2002",
                                      "window",     "local", NULL};

static const struct kmap_system *const kmap_systems[] = {
    &kmap_read_lseek, &kmap_pread, &kmap_mmap, &kmap_pool_2002, &kmap_window, &kmap_local,
};

enum { SYSTEMS = sizeof(kmap_systems) / sizeof(kmap_systems[0]) };

/* One system on one part, in a child process. */
struct run {
    const struct part *part;
    const struct kmap_system *system;
    struct kmap_setup setup;
    uint64_t slice;
};

/* What a process, or a crew of threads, has to tell. */
struct outcome {
    struct bench_time time;
    uint64_t wall_ns;
    struct kmap_books books;
};

/* --- workers ------------------------------------------------------------------------------- */

struct series_state {
    const struct run *run;
    uint64_t random;
    struct kmap_worker worker;
};

static int prepare(void *state, size_t count)
{
    struct series_state *series = state;
    for (size_t i = 0; i < count && series->run->part->crowded; i++)
        series->worker.page[i] = bench_random_below(&series->random, series->run->setup.pages);
    return 0;
}

static int iterate(void *state, size_t first, size_t count)
{
    struct series_state *series = state;
    return series->run->system->run(&series->worker, first, count);
}

static struct bench_series series_of(const struct run *run)
{
    const bool small = run->system->calls || run->part->crowded;
    return (struct bench_series){.prepare = prepare,
                                 .run = iterate,
                                 .batch = small ? CALL_BATCH : KMAP_BATCH,
                                 .sampled = small ? 1 : CALL_BATCH};
}

/* Worker `number` on an open state: a description of its file of its own. */
static int worker_open(struct series_state *series, const struct run *run, void *state,
                       unsigned number)
{
    char path[32];
    const unsigned file = run->part->different ? number : 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", run->setup.fds[file]);
    series->run = run;
    series->random = SEED + number;
    series->worker.state = state;
    series->worker.file = file;
    series->worker.fd = open(path, O_RDONLY | O_CLOEXEC);
    return series->worker.fd < 0 ? -errno : 0;
}

static void begin_books(const struct run *run, void *state, struct kmap_books *before)
{
    *before = (struct kmap_books){.counted = false};
    if (run->system->read_books)
        run->system->read_books(state, before);
}

/* The books of what came after `before`; maxima are those since the pool was made. */
static void end_books(const struct run *run, void *state, const struct kmap_books *before,
                      struct kmap_books *books)
{
    begin_books(run, state, books);
    books->lock.total -= before->lock.total;
    books->lock.waited -= before->lock.waited;
    books->lock.hold_ns -= before->lock.hold_ns;
    books->lock.wait_ns -= before->lock.wait_ns;
    books->lock.spin_ns -= before->lock.spin_ns;
    books->steps -= before->steps;
}

/* Maps as many pages as there are slots twice over, so that the pool is full when time is taken. */
static int fill_pool(struct series_state *worker)
{
    const struct run *run = worker->run;
    int error = 0;
    for (uint32_t done = 0; run->part->crowded && done < 2 * run->setup.slots && !error;
         done += CALL_BATCH) {
        prepare(worker, CALL_BATCH);
        error = iterate(worker, 0, CALL_BATCH);
    }
    return error;
}

/* Sixteen threads that share a state. */
static int run_threads(const struct run *run, struct outcome *outcome)
{
    void *state = NULL;
    void *states[KMAP_WORKERS];
    struct bench_time times[KMAP_WORKERS];
    struct kmap_books before;
    struct series_state *workers =
        bench_memory(KMAP_WORKERS * sizeof(*workers), "the threads' pages");
    int error = workers ? run->system->open(&run->setup, &state) : -ENOMEM;
    for (unsigned i = 0; i < KMAP_WORKERS && !error; i++) {
        states[i] = &workers[i];
        error = worker_open(&workers[i], run, state, i);
    }
    if (!error)
        error = fill_pool(&workers[0]);
    if (error)
        return error;
    const struct bench_series series = series_of(run);
    begin_books(run, state, &before);
    const uint64_t begin = bench_now();
    error =
        bench_measure_threads(&series, states, KMAP_WORKERS, UINT64_MAX, begin + run->slice, times);
    outcome->wall_ns = bench_now() - begin;
    end_books(run, state, &before, &outcome->books);
    outcome->time = bench_time_together(times, KMAP_WORKERS);
    return error;
}

/* One process of sixteen; all begin at the same time. */
static int run_process(const struct run *run, unsigned number, uint64_t start,
                       struct outcome *outcome)
{
    void *state = NULL;
    struct kmap_books before;
    struct series_state *worker = bench_memory(sizeof(*worker), "the process's pages");
    int error = worker ? run->system->open(&run->setup, &state) : -ENOMEM;
    if (!error)
        error = worker_open(worker, run, state, number);
    if (error)
        return error;
    const struct timespec at = {(time_t)(start / 1000000000), (long)(start % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
    const struct bench_series series = series_of(run);
    begin_books(run, state, &before);
    const uint64_t begin = bench_now();
    bench_measure(&series, worker, UINT64_MAX, start + run->slice, &outcome->time);
    outcome->wall_ns = bench_now() - begin;
    end_books(run, state, &before, &outcome->books);
    return 0;
}

static void add_books(struct kmap_books *sum, const struct kmap_books *books)
{
    sum->counted = books->counted;
    sum->timed = books->timed;
    sum->stepped = books->stepped;
    sum->lock.total += books->lock.total;
    sum->lock.waited += books->lock.waited;
    sum->lock.hold_ns += books->lock.hold_ns;
    sum->lock.wait_ns += books->lock.wait_ns;
    sum->lock.spin_ns += books->lock.spin_ns;
    sum->steps += books->steps;
    if (books->lock.hold_max_ns > sum->lock.hold_max_ns)
        sum->lock.hold_max_ns = books->lock.hold_max_ns;
    if (books->lock.wait_max_ns > sum->lock.wait_max_ns)
        sum->lock.wait_max_ns = books->lock.wait_max_ns;
    if (books->steps_max > sum->steps_max)
        sum->steps_max = books->steps_max;
}

static int wait_process(pid_t pid, struct outcome *outcome)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return outcome->time.error == -ETIME ? 0 : outcome->time.error;
    return outcome->time.error ? outcome->time.error : -ECHILD;
}

static int run_processes(const struct run *run, struct outcome *outcome)
{
    const size_t bytes = KMAP_WORKERS * sizeof(struct outcome);
    struct outcome *each =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (each == MAP_FAILED)
        return -errno;
    pid_t pids[KMAP_WORKERS];
    struct bench_time times[KMAP_WORKERS];
    const pid_t parent = getpid();
    const uint64_t start = bench_now() + START_MS * UINT64_C(1000000);
    int error = 0;
    for (unsigned i = 0; i < KMAP_WORKERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            each[i].time.error =
                getppid() == parent ? run_process(run, i, start, &each[i]) : -ESRCH;
            _exit(0);
        }
        if (pids[i] < 0)
            error = -errno;
    }
    for (unsigned i = 0; i < KMAP_WORKERS; i++) {
        const int failed = pids[i] > 0 ? wait_process(pids[i], &each[i]) : 0;
        error = error ? error : failed;
        times[i] = each[i].time;
        add_books(&outcome->books, &each[i].books);
        outcome->wall_ns += each[i].wall_ns;
    }
    outcome->time = bench_time_together(times, KMAP_WORKERS);
    munmap(each, bytes);
    return error;
}

/* --- rows ---------------------------------------------------------------------------------- */

/* wall_ns: of all locks together, where processes have one each. */
static struct lock_figures figures_of(const struct outcome *outcome)
{
    const struct kmap_books *books = &outcome->books;
    const double total = books->lock.total ? (double)books->lock.total : 1;
    const double waited = books->lock.waited ? (double)books->lock.waited : 1;
    const double wall = outcome->wall_ns ? (double)outcome->wall_ns : 1;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return (struct lock_figures){
        .counted = books->counted,
        .timed = books->timed,
        .stepped = books->stepped,
        .total = books->lock.total,
        .spin = (double)books->lock.waited / total,
        .util = (double)books->lock.hold_ns / wall,
        .hold_mean_ns = (double)books->lock.hold_ns / total,
        .hold_max_ns = (double)books->lock.hold_max_ns,
        .wait_mean_ns = (double)books->lock.wait_ns / waited,
        .wait_max_ns = (double)books->lock.wait_max_ns,
        .wait_cpu = (double)books->lock.spin_ns / wall / (double)(processors > 0 ? processors : 1),
        .steps_mean = outcome->time.done ? (double)books->steps / (double)outcome->time.done : 0,
        .steps_max = books->steps_max,
    };
}

static int run_once(const struct run *run, bool times, struct outcome *outcome)
{
    struct run copy = *run;
    *outcome = (struct outcome){.wall_ns = 0};
    copy.setup.times = times;
    const int error =
        run->part->processes ? run_processes(&copy, outcome) : run_threads(&copy, outcome);
    return error ? error : outcome->time.error == -ETIME ? 0 : outcome->time.error;
}

static int job(struct bench *bench, const void *argument, struct child_rows *rows)
{
    (void)bench;
    const struct run *run = argument;
    static struct outcome outcome;
    int error = run_once(run, false, &outcome);
    struct bench_row row = {
        .workload = run->part->name,
        .system = run->system->name,
        .n = run->system->pool ? run->setup.slots : KMAP_WORKERS,
        .threads = KMAP_WORKERS,
        .ops = outcome.time.ops,
        .ns_per_op = outcome.time.ns_per_op,
        .p50_ns = outcome.time.p50_ns,
        .p99_ns = outcome.time.p99_ns,
        .p999_ns = outcome.time.p999_ns,
        .sampled = series_of(run).sampled,
    };
    if (!error && run->system->timed)
        error = run_once(run, true, &outcome);
    if (error) {
        cli_error("%s: %s with %u slots cannot go on: %s", run->part->name, run->system->name,
                  run->setup.slots, strerror(-error));
        return CLI_FAILURE;
    }
    row.lock = figures_of(&outcome);
    child_row(rows, &row);
    return CLI_OK;
}

/* --- the order of a run -------------------------------------------------------------------- */

static int run_system(struct bench *bench, const struct part *part,
                      const struct kmap_system *system, const int *fds, uint32_t slots)
{
    const double seconds = bench->quick ? 0.02 : 0.4;
    struct run run = {.part = part, .system = system};
    run.slice = (uint64_t)(1e9 * (bench->seconds < seconds ? bench->seconds : seconds));
    run.setup = (struct kmap_setup){
        .fds = fds,
        .files = part->different ? KMAP_WORKERS : 1,
        .pages = part->crowded ? CROWD * slots : 1,
        .slots = slots,
        .held = part->held ? slots / 4 * 3 : 0,
    };
    const struct bench_row named = {
        .workload = part->name, .system = system->name, .n = slots, .threads = KMAP_WORKERS};
    bench_progress(bench, "%s: %s, %u slots", part->name, system->name, slots);
    return run_in_child(bench, &named, job, &run);
}

/* The sizes of --n are slots. */
static int run_part(struct bench *bench, const struct part *part, const int *fds)
{
    static const uint64_t grown[] = {SLOTS, 512, 1024, SLOTS_MAX, 0};
    static const uint64_t usual[] = {SLOTS, 0};
    int status = CLI_OK;
    for (size_t i = 0; i < SYSTEMS; i++) {
        const struct kmap_system *system = kmap_systems[i];
        if (!bench_wants(bench, system->name) || (part->crowded && !system->pool))
            continue;
        const uint64_t *slots = !part->crowded ? usual : bench->sizes[0] ? bench->sizes : grown;
        for (; *slots && status == CLI_OK; slots++)
            status = run_system(bench, part, system, fds, (uint32_t)*slots);
    }
    return status;
}

static int open_files(const struct bench *bench, int fds[KMAP_WORKERS])
{
    uint64_t slots = SLOTS_MAX;
    for (const uint64_t *n = bench->sizes; *n; n++)
        slots = *n > slots ? *n : slots;
    for (unsigned i = 0; i < KMAP_WORKERS; i++) {
        fds[i] = bench_file(bench, i == 0 ? (size_t)(slots * CROWD * KMAP_PAGE) : KMAP_PAGE);
        if (fds[i] < 0)
            return CLI_FAILURE;
    }
    return CLI_OK;
}

static void print(const struct bench *bench, FILE *out);

static int run(struct bench *bench)
{
    int fds[KMAP_WORKERS];
    for (const uint64_t *n = bench->sizes; *n; n++) {
        if (*n < 4 * KMAP_WORKERS || *n > 1 << 15) {
            cli_error("kmap_lock: --n are slots, from %d to %d, not %" PRIu64, 4 * KMAP_WORKERS,
                      1 << 15, *n);
            return CLI_USAGE;
        }
    }
    for (unsigned i = 0; i < KMAP_WORKERS; i++)
        fds[i] = -1;
    int status = open_files(bench, fds);
    for (size_t i = 0; i < PARTS && status == CLI_OK; i++) {
        if (bench_wants_part(bench, kmap_parts[i].name))
            status = run_part(bench, &kmap_parts[i], fds);
    }
    for (unsigned i = 0; i < KMAP_WORKERS; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    if (status == CLI_OK && !bench->quick && !bench->part) {
        status = kmap_kernel_run(bench);
        if (status != CLI_OK && !bench->json)
            print(bench, stdout); /* what was measured before is not lost */
    }
    return status;
}

/* --- what the rows say --------------------------------------------------------------------- */

static const struct bench_row *row_at(const struct bench *bench, const char *workload,
                                      const char *system, uint64_t slots)
{
    const struct bench_row *row = bench_row_find(
        bench, &(struct bench_row){.workload = workload, .system = system, .n = slots});
    return row && row->ops ? row : NULL;
}

static void print_times(const struct bench *bench, FILE *out, const struct part *part)
{
    const struct bench_row *mail = row_at(bench, part->name, systems[0], KMAP_WORKERS);
    bool any = false;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (strcmp(row->workload, part->name) != 0)
            continue;
        if (!any)
            fprintf(out, "%s: %s\n  %-12s %12s %10s %10s %10s %12s\n", part->name, part->title,
                    "system", "ns CPU/iter", "p50", "p99", "p99.9", "read+lseek/");
        any = true;
        fprintf(out, "  %-12s", row->system);
        if (row->ops)
            fprintf(out, " %12.1f %10.1f %10.1f %10.1f", row->ns_per_op, row->p50_ns, row->p99_ns,
                    row->p999_ns);
        if (row->ops && mail && row != mail)
            fprintf(out, " %12.1f", mail->ns_per_op / row->ns_per_op);
        fprintf(out, "%s%s\n", row->note[0] ? " " : "", row->note);
    }
    if (any)
        fputc('\n', out);
}

static bool print_asked_line(FILE *out, bool first, const char *what, const char *asked,
                             double measured, bool met)
{
    if (first)
        fprintf(out, "%-62s %10s %10s\n", "What is asked of the pool", "asked", "measured");
    fprintf(out, "  %-60s %10s %10.1f%s\n", what, asked, measured, met ? "" : "  missed");
    return false;
}

static void print_asked(const struct bench *bench, FILE *out)
{
    enum { LESS = 30 };
    bool first = true;
    for (size_t i = 0; i < PARTS; i++) {
        const struct part *part = &kmap_parts[i];
        char what[100];
        if (!part->crowded) {
            const struct bench_row *mail = row_at(bench, part->name, systems[0], KMAP_WORKERS);
            const struct bench_row *ours = row_at(bench, part->name, "window", SLOTS);
            if (!mail || !ours)
                continue;
            const double less = mail->ns_per_op / ours->ns_per_op;
            snprintf(what, sizeof(what), "%s: CPU, read+lseek / window", part->title);
            first = print_asked_line(out, first, what, ">= 30", less, less >= LESS);
            continue;
        }
        const struct bench_row *small = row_at(bench, part->name, "window", SLOTS);
        const struct bench_row *large = row_at(bench, part->name, "window", SLOTS_MAX);
        if (!small || !large)
            continue;
        char asked[32];
        snprintf(asked, sizeof(asked), "<= %" PRIu64, small->lock.steps_max);
        snprintf(what, sizeof(what), "worst steps of 4096 slots / as many as of 128%s",
                 part->held ? ", held" : "");
        first = print_asked_line(out, first, what, asked, (double)large->lock.steps_max,
                                 large->lock.steps_max <= small->lock.steps_max);
    }
    if (!first)
        fputc('\n', out);
}

static void print(const struct bench *bench, FILE *out)
{
    if (!bench->row_count)
        return;
    fputs(
        "Sixteen workers read one byte of a page, again and again. ns CPU: of all processors, user "
        "and\nkernel mode, for one iteration. Percentiles of pool-2002, window and local are of 64 "
        "iterations,\ndivided. The tables of locks read as the mail's: UTIL the share of time a "
        "lock was held, CON of\nattempts that found it held, %CPU of processors' time spent "
        "spinning; of TOTAL attempts, NOWAIT\ngot it at once, SPIN after waiting, RJECT not. "
        "What is not counted is left out.\n\n",
        out);

    for (size_t i = 0; i < PARTS; i++) {
        const struct part *part = &kmap_parts[i];
        if (part->crowded) {
            lock_print_steps(bench, out, part->name, part->title);
        } else {
            print_times(bench, out, part);
            lock_print(bench, out, part->name, "  their locks");
        }
    }
    print_asked(bench, out);
    kmap_kernel_print(out);
}

static void plot(const struct bench *bench, FILE *script)
{
    static const char *const shown[][2] = {
        {"kmap_lock.processes-same", "16 processes, the same file"},
        {"kmap_lock.threads-same", "16 threads, the same file"},
        {"kmap_lock.threads-different", "16 threads, different files"},
        {"kmap_lock.processes-different", "16 processes, different files"},
    };
    fputs("set multiplot layout 2,2 title 'mapfold bench kmap_lock: CPU time of one iteration'\n",
          script);
    for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++)
        plot_bars(bench, script, shown[i][0], shown[i][1]);
    fputs("unset multiplot\n", script);
}

const struct bench_workload bench_kmap_lock = {
    .name = "kmap_lock",
    .help = "the mail of 2002: 16 readers of one byte, and the steps under a pool's lock",
    .systems = systems,
    .parts = parts,
    .maps = SLOTS_MAX,
    .run = run,
    .print = print,
    .plot = plot,
};
