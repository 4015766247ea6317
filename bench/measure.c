/* SPDX-License-Identifier: MIT */
/*
 * How time is taken. Reading the clock costs about as much as a cheap operation, so a mean over
 * single timings would be half clock. Batches of up to some hundred operations carry the mean, with
 * two readings each; eight single ones after each batch carry the percentiles, less the clock's
 * median cost, and are left out of the mean.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "bench.h"
#include "cli/cli.h"

enum { SINGLES = 8, SAMPLES = 1 << 16 };

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t bench_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static int compare_samples(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* What an empty pair of readings shows, by the median of many. */
static uint32_t clock_cost(void)
{
    static _Atomic uint32_t known; /* relaxed: threads that find it out at once agree nearly */
    enum { PAIRS = 1001 };
    uint32_t pairs[PAIRS];
    const uint32_t before = atomic_load_explicit(&known, memory_order_relaxed);
    if (before)
        return before;
    for (int i = 0; i < PAIRS; i++) {
        const uint64_t begin = bench_now();
        pairs[i] = (uint32_t)(bench_now() - begin);
    }
    qsort(pairs, PAIRS, sizeof(*pairs), compare_samples);
    atomic_store_explicit(&known, pairs[PAIRS / 2], memory_order_relaxed);
    return pairs[PAIRS / 2];
}

struct samples {
    uint32_t *ns;
    size_t count; /* samples taken; the newest SAMPLES of them are kept */
};

/* Operations first..first+count-1, one by one. */
static int run_singles(const struct bench_series *series, void *state, size_t first, size_t count,
                       struct samples *samples)
{
    const uint32_t cost = clock_cost();
    for (size_t i = first; i < first + count; i++) {
        const uint64_t begin = bench_now();
        const int error = series->run(state, i, 1);
        const uint64_t ns = bench_now() - begin;
        if (error)
            return error;
        samples->ns[samples->count++ % SAMPLES] = ns <= cost               ? 0
                                                  : ns - cost > UINT32_MAX ? UINT32_MAX
                                                                           : (uint32_t)(ns - cost);
    }
    return 0;
}

/* One batch: the timed run, then the single operations. *spent and *ops grow by the timed run. */
static int run_batch(const struct bench_series *series, void *state, size_t count,
                     struct samples *samples, uint64_t *spent, uint64_t *ops)
{
    const size_t singles = count < 4 * SINGLES ? count / 4 : SINGLES;
    int error = series->prepare ? series->prepare(state, count) : 0;
    if (error)
        return error;
    const clockid_t clock = series->waits ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    const uint64_t begin = read_clock(clock);
    error = series->run(state, 0, count - singles);
    *spent += read_clock(clock) - begin;
    if (error)
        return error;
    *ops += count - singles;
    error = run_singles(series, state, count - singles, singles, samples);
    if (!error && series->commit)
        error = series->commit(state, count);
    return error;
}

static void summarize(struct samples *samples, uint64_t spent, struct bench_time *time)
{
    const size_t kept = samples->count < SAMPLES ? samples->count : SAMPLES;
    if (time->ops)
        time->ns_per_op = (double)spent / (double)time->ops;
    if (kept == 0)
        return;
    qsort(samples->ns, kept, sizeof(*samples->ns), compare_samples);
    const size_t middle = kept / 2;
    const size_t last_percent = kept - 1 - kept / 100;
    time->p50_ns = samples->ns[middle];
    time->p99_ns = samples->ns[last_percent];
}

void bench_measure(const struct bench_series *series, void *state, uint64_t ops, uint64_t until,
                   struct bench_time *time)
{
    *time = (struct bench_time){0};
    struct samples samples = {bench_memory(SAMPLES * sizeof(uint32_t), "the samples"), 0};
    if (!samples.ns) {
        time->error = -ENOMEM;
        return;
    }
    uint64_t spent = 0;
    while (time->done < ops && !time->error) {
        const uint64_t left = ops - time->done;
        const size_t count = left < series->batch ? (size_t)left : series->batch;
        time->error = run_batch(series, state, count, &samples, &spent, &time->ops);
        if (!time->error)
            time->done += count;
        if (!time->error && time->done < ops && bench_now() > until)
            time->error = -ETIME;
    }
    summarize(&samples, spent, time);
    bench_memory_free(samples.ns, SAMPLES * sizeof(uint32_t));
}
