/* SPDX-License-Identifier: MIT */
/*
 * The harness behind `mapfold bench`: what a workload gets, and what it owes.
 *
 * A workload is one file with one struct bench_workload, entered in the table of bench.c. Its
 * rules:
 *  - It runs each of its systems that bench_wants, on the same work from the same seed, and hands
 *    every result to bench_report: that prints it at once with --json, else keeps it for the
 *    workload's `print`, which writes tables of at most 100 columns.
 *  - A system that cannot go on (the kernel's limit, the time of --seconds) still gets a row, with
 *    a note that says why and where. A number that was not measured is not reported.
 *  - It measures with bench_measure, which says how time is taken.
 *  - What fails for another reason is told with cli_error and returned as CLI_FAILURE.
 */
#ifndef MAPFOLD_BENCH_H
#define MAPFOLD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lock_figures.h"

enum { BENCH_NOTE = 64, BENCH_SYSTEMS = 16 };

/* One measured result. Names are literals. A field that does not apply is 0 (note: empty). */
struct bench_row {
    const char *workload; /* "space.steady" */
    const char *system;
    uint64_t n;     /* the size of the workload, mostly live areas */
    uint64_t count; /* in a series: operations done when the row was taken */
    uint32_t threads;
    uint64_t ops; /* operations timed; 0: nothing was measured, and note says why */
    double ns_per_op;
    double p50_ns;
    double p99_ns;
    bool only_mean;   /* without percentiles */
    double p999_ns;   /* 0: not measured */
    uint32_t sampled; /* operations timed together for one sample of the percentiles; 0: 1 */
    bool counts_misses;
    double misses_per_op; /* of a cache */
    uint64_t kernel_maps; /* of this process, at the end */
    double bytes_per_area;
    struct lock_figures lock;
    char note[BENCH_NOTE];
};

struct bench;

struct bench_workload {
    const char *name;           /* as on the command line */
    const char *help;           /* one line */
    const char *const *systems; /* NULL-terminated; the first is the one ratios are taken to */
    /* Its parts ("space.steady"), which can be asked for alone, NULL-terminated; or NULL. */
    const char *const *parts;
    bool takes_argument; /* DIR, after its name */
    uint64_t maps; /* kernel maps that --raise-limit makes room for, for the largest n by default */
    int (*run)(struct bench *bench);
    void (*print)(const struct bench *bench, FILE *out);
    void (*plot)(const struct bench *bench, FILE *script); /* gnuplot commands */
};

/* The options of a run, and its rows so far. Read-only for workloads. */
struct bench {
    const struct bench_workload *workload;
    const char *part;                      /* the one part asked for, or NULL for all */
    const char *argument;                  /* what followed the workload's name, or NULL */
    const char *wanted[BENCH_SYSTEMS + 1]; /* NULL-terminated; empty for all */
    uint64_t sizes[16];                    /* of --n, 0-terminated; empty for the workload's own */
    double seconds;                        /* the patience of one series */
    bool quick;
    bool json;
    bool profile;
    bool raise_limit;
    const char *plot;
    const char *directory; /* for test files */
    struct bench_row *rows;
    size_t row_count;
};

/* Whether the user asked for this system (or part), or for all. */
bool bench_wants(const struct bench *bench, const char *system);
bool bench_wants_part(const struct bench *bench, const char *part);

/* Takes one row: prints it (--json) and keeps a copy. Rows of a workload come in printing order. */
void bench_report(struct bench *bench, const struct bench_row *row);

/* The first row of the key's workload and system, or NULL. Its n, count and threads are compared
 * too, where the key's are not 0. */
const struct bench_row *bench_row_find(const struct bench *bench, const struct bench_row *key);

/* A table of rows by n and system, with the ratio to the first system. */
void bench_print_by_n(const struct bench *bench, FILE *out, const char *workload,
                      const char *title);

/* A line about what is going on, on stderr, only if that is a terminal; the next replaces it. */
void bench_progress(const struct bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t bench_now(void);

/*
 * A repeated operation to be timed. prepare and commit (may be NULL) run untimed around each batch
 * and do what is the harness's own work: drawing victims, keeping the lists of live areas. run does
 * operations first..first+count-1 of the batch and nothing else. All return 0 or a negative errno,
 * which ends the measurement.
 */
struct bench_series {
    int (*prepare)(void *state, size_t count);
    int (*run)(void *state, size_t first, size_t count);
    int (*commit)(void *state, size_t count);
    size_t batch; /* operations in a batch, at most */
    bool waits;   /* its operations wait for others: wall-clock time is the true mean */
    /* For the percentiles: samples after each batch (0: 8), and operations that one sample times
     * together (0: 1; more where a single one takes less than reading the clock). */
    uint16_t samples;
    uint16_t sampled;
};

struct bench_time {
    uint64_t ops; /* in the mean */
    double ns_per_op;
    double p50_ns;
    double p99_ns;
    double p999_ns;
    uint64_t done; /* operations done in all: fewer than asked after an error or a timeout */
    int error;     /* 0, the error of the series, or -ETIME */
};

/*
 * Does `ops` operations and fills *time; gives up with -ETIME when bench_now() passes `until`.
 * The mean is taken over batches, two clock readings each; it is the CPU time of this thread, in
 * user and kernel mode, so that other programs' turns on the same CPU do not count (for a series
 * that `waits`: wall-clock time). Single operations for the percentiles are timed apart, eight
 * after each batch, by the wall clock, less the cost of reading it (the median of many empty
 * pairs); they do not enter the mean. Where a series samples several operations together, the
 * percentiles are those of such groups, divided by their size.
 */
void bench_measure(const struct bench_series *series, void *state, uint64_t ops, uint64_t until,
                   struct bench_time *time);

/*
 * The same by so many threads at once, each with a state and a time of its own; the calling thread
 * is one of them. 0, or -errno: a thread could not be started, and nothing was measured.
 */
int bench_measure_threads(const struct bench_series *series, void *const *states, unsigned threads,
                          uint64_t ops, uint64_t until, struct bench_time *times);

/*
 * What the threads saw together: the operations of all, the mean time of an operation as its thread
 * saw it, the worst thread's percentiles, and an error, if there was one, other than -ETIME.
 */
struct bench_time bench_time_together(const struct bench_time *times, unsigned threads);

/* A small fast generator (splitmix64): the same sequence for the same seed, everywhere. */
static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Uniform in 0..bound-1; bound below 2^32. */
static inline uint32_t bench_random_below(uint64_t *state, uint64_t bound)
{
    return (uint32_t)((bench_random(state) >> 32) * bound >> 32);
}

/* Anonymous memory for the harness; NULL after telling what it was for. */
void *bench_memory(size_t bytes, const char *purpose);
/* Has the kernel put pages behind it now, so that no rival pays for that while it is timed. */
void bench_memory_touch(void *memory, size_t bytes);
void bench_memory_free(void *memory, size_t bytes);

/*
 * A test file of `bytes` bytes of data in the directory of --dir, without a name, so that it goes
 * with the process. The descriptor, or -1 after telling why not.
 */
int bench_file(const struct bench *bench, size_t bytes);

/* How many maps this process has, and may have (0 if unreadable). */
uint64_t bench_kernel_maps(void);
uint64_t bench_max_map_count(void);

/*
 * Raises vm.max_map_count to at least `maps` and sees to it that it is restored when this process
 * ends, however it ends; limit_restore does so at once. 0, or -1 after telling why not.
 */
int limit_raise(uint64_t maps);
void limit_restore(void);
/* The value it was raised from, or 0 while it is not raised. */
uint64_t limit_raised_from(void);
/* From here on SIGINT, SIGTERM and SIGHUP end the command with a word, and the limit restored. */
void limit_catch_signals(void);

/* Starts and stops sampling this process with perf; profile_print writes symbol, ticks, share. */
int profile_start(void);
int profile_stop(FILE *out);

/* Whether a plot could be written to path (gnuplot is there, the directory writable); tells why
 * not. */
int plot_check(const char *path);
/* Lets the workload write its gnuplot commands and makes the SVG. */
int plot_write(const struct bench *bench, const char *path);

/*
 * For a workload's `plot`, inside a multiplot: one panel with a line for each system over n (rows
 * without a count) or over count, both axes as set before; or one with a bar for each system.
 */
void plot_panel(const struct bench *bench, FILE *script, const char *workload, const char *title);
void plot_bars(const struct bench *bench, FILE *script, const char *workload, const char *title);

extern const struct bench_workload bench_space;
extern const struct bench_workload bench_mmap_scan;
extern const struct bench_workload bench_mapping;
extern const struct bench_workload bench_kmap_lock;
extern const struct bench_workload bench_window;
extern const struct bench_workload bench_files;
extern const struct bench_workload bench_sqlite; /* only built where SQLite is */

#endif
