/* SPDX-License-Identifier: MIT */
/*
 * The parts of the mapping workload that ask what the layer costs where it does not fold: a few per
 * cent, or some nanoseconds. The rivals take turns in one process, and a row is the median of its
 * rounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mapfold/mmap.h>

#include "cli/cli.h"
#include "workload_mapping.h"

enum { ROUNDS = 20, RIVALS = 2, FILES = 64, HELD = 1000, BATCH = 200, PAGE = 4096 };

struct calls {
    const struct run *run;
    const struct mapper *mapper;
    int fd[FILES];
    size_t files;
    uint64_t turn;
    uint64_t sum;
};

static int compare_times(const void *a, const void *b)
{
    const double x = ((const struct bench_time *)a)->ns_per_op;
    const double y = ((const struct bench_time *)b)->ns_per_op;
    return (x > y) - (x < y);
}

static void report(const struct run *run, const struct mapper *mapper, struct bench_time *times,
                   size_t rounds, struct child_rows *rows)
{
    struct bench_row row = {.workload = run->part->name, .system = mapper->name, .threads = 1};
    uint64_t ops = 0;
    row.n = run->n;
    for (size_t i = 0; i < rounds; i++) {
        ops += times[i].ops;
        if (times[i].error)
            explain_end(&row, times[i].error, 1);
    }
    qsort(times, rounds, sizeof(*times), compare_times);
    take_time(&row, &times[rounds / 2]);
    row.ops = ops;
    child_row(rows, &row);
}

/* Rounds of a series for one rival after the other, on a copy of the same state. */
static int in_turns(const struct calls *calls, const struct bench_series *series,
                    struct child_rows *rows)
{
    static struct bench_time times[RIVALS][ROUNDS];
    const struct mapper *const mappers[RIVALS] = {&mapper_kernel, &mapper_mapping};
    const struct run *run = calls->run;
    struct calls of[RIVALS];
    size_t rounds = 0;
    bool failed = false;
    for (size_t i = 0; i < RIVALS; i++) {
        of[i] = *calls;
        of[i].mapper = mappers[i];
    }
    while (rounds < ROUNDS && !failed) {
        bench_progress(run->bench, "%s: round %zu of %d", run->part->name, rounds + 1, ROUNDS);
        for (size_t i = 0; i < RIVALS; i++) {
            bench_measure(series, &of[i], run->n / ROUNDS, run->until, &times[i][rounds]);
            failed = failed || times[i][rounds].error;
        }
        rounds++;
    }
    for (size_t i = 0; i < RIVALS; i++) {
        if (bench_wants(run->bench, mappers[i]->name))
            report(run, mappers[i], times[i], rounds, rows);
    }
    return CLI_OK;
}

/* Files as the part wants them, their pages in the page cache. */
static int calls_open(struct calls *calls, const struct run *run, size_t files)
{
    *calls = (struct calls){.run = run};
    for (; calls->files < files; calls->files++) {
        calls->fd[calls->files] = pieces_file(run->bench, &run->part->plan);
        if (calls->fd[calls->files] < 0)
            return -1;
    }
    return 0;
}

/* Keeps so many pieces of one more file mapped through the layer; they are folded. */
static int hold_folded(const struct calls *calls)
{
    const struct pieces_plan *plan = &calls->run->part->plan;
    const int fd = pieces_file(calls->run->bench, plan);
    if (fd < 0)
        return -1;
    for (uint64_t i = 0; i < HELD; i++) {
        const off_t offset = (off_t)(i * PAGE % plan->file_bytes);
        if (mf_mmap(NULL, PAGE, plan->protection, plan->flags, fd, offset) == MAP_FAILED) {
            cli_error("%s: cannot hold %d pieces: %s", calls->run->part->name, HELD,
                      strerror(errno));
            return -1;
        }
    }
    return 0;
}

/* Maps, reads the first byte if the part reads, unmaps; its file is the next in turn. */
static int pair_run(void *state, size_t first, size_t count)
{
    struct calls *calls = state;
    const struct pieces_plan *plan = &calls->run->part->plan;
    for (size_t i = first; i < first + count; i++) {
        const int fd = calls->fd[calls->turn++ % calls->files];
        char *piece = calls->mapper->map(NULL, PAGE, plan->protection, plan->flags, fd, PAGE);
        if (piece == MAP_FAILED)
            return -errno;
        if (plan->touch == READ)
            calls->sum += (unsigned char)*(volatile char *)piece;
        if (calls->mapper->unmap(piece, PAGE))
            return -errno;
    }
    return 0;
}

int calls_one(const struct run *run, struct child_rows *rows)
{
    static const struct bench_series series = {NULL, pair_run, NULL, BATCH, true, 0, 0};
    struct calls calls;
    if (calls_open(&calls, run, 1))
        return CLI_FAILURE;
    if (mf_mmap(NULL, PAGE, run->part->plan.protection, run->part->plan.flags, calls.fd[0], 0) ==
        MAP_FAILED) {
        cli_error("%s: cannot map the piece to hold: %s", run->part->name, strerror(errno));
        return CLI_FAILURE;
    }
    return in_turns(&calls, &series, rows);
}

int calls_first(const struct run *run, struct child_rows *rows)
{
    static const struct bench_series series = {NULL, pair_run, NULL, BATCH, true, 0, 0};
    struct calls calls;
    if (calls_open(&calls, run, FILES) || hold_folded(&calls))
        return CLI_FAILURE;
    return in_turns(&calls, &series, rows);
}

static int anonymous_run(void *state, size_t first, size_t count)
{
    struct calls *calls = state;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    for (size_t i = first; i < first + count; i++) {
        void *page = calls->mapper->map(NULL, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (page == MAP_FAILED || calls->mapper->unmap(page, PAGE))
            return -errno;
    }
    return 0;
}

int calls_passed(const struct run *run, struct child_rows *rows)
{
    static const struct bench_series series = {NULL, anonymous_run, NULL, BATCH, true, 0, 0};
    struct calls calls;
    const bool folded = strcmp(run->part->name, "mapping.passed-folded") == 0;
    if (calls_open(&calls, run, 0) || (folded && hold_folded(&calls)))
        return CLI_FAILURE;
    return in_turns(&calls, &series, rows);
}

/* What a program does that maps each file once. The files have no names but those in /proc. */
static int once_run(void *state, size_t first, size_t count)
{
    struct calls *calls = state;
    for (size_t i = first; i < first + count; i++) {
        char path[32];
        struct stat status;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", calls->fd[calls->turn++ % calls->files]);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status))
            return -errno;
        const size_t length = (size_t)status.st_size;
        unsigned char *bytes = calls->mapper->map(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            return -errno;
        for (size_t at = 0; at < length; at++)
            calls->sum += bytes[at];
        if (calls->mapper->unmap(bytes, length) || close(fd))
            return -errno;
    }
    return 0;
}

int calls_once(const struct run *run, struct child_rows *rows)
{
    static const struct bench_series series = {NULL, once_run, NULL, BATCH, true, 0, 0};
    struct calls calls;
    return calls_open(&calls, run, FILES) ? CLI_FAILURE : in_turns(&calls, &series, rows);
}
