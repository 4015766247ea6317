/* SPDX-License-Identifier: MIT */
/*
 * How time is taken. Reading the clock costs about as much as a cheap operation, so a mean over
 * single timings would be half clock. Batches of up to some hundred operations carry the mean, with
 * two readings each; eight single ones (or as many as a series says, or small groups) after each
 * batch carry the percentiles, less the clock's median cost, and are left out of the mean.
 */
#include <errno.h>
#include <pthread.h>
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

static size_t sampled(const struct bench_series *series)
{
    return series->sampled ? series->sampled : 1;
}

/* Operations first..first+count-1, one by one, or group by group. */
static int run_singles(const struct bench_series *series, void *state, size_t first, size_t count,
                       struct samples *samples)
{
    const uint32_t cost = clock_cost();
    for (size_t i = first; i < first + count; i += sampled(series)) {
        const uint64_t begin = bench_now();
        const int error = series->run(state, i, sampled(series));
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
    const size_t group = sampled(series);
    const size_t wanted = series->samples ? series->samples : SINGLES;
    const size_t most = series->samples ? count / group : count / 4 / group;
    const size_t singles = (most < wanted ? most : wanted) * group;
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

/* The sample that a share of 1/part of all exceed, at most. */
static double percentile(const struct samples *samples, size_t kept, size_t part, size_t group)
{
    const size_t beyond = kept / part;
    return (double)samples->ns[kept - 1 - beyond] / (double)group;
}

static void summarize(struct samples *samples, size_t group, uint64_t spent,
                      struct bench_time *time)
{
    const size_t kept = samples->count < SAMPLES ? samples->count : SAMPLES;
    if (time->ops)
        time->ns_per_op = (double)spent / (double)time->ops;
    if (kept == 0)
        return;
    qsort(samples->ns, kept, sizeof(*samples->ns), compare_samples);
    const size_t middle = kept / 2;
    time->p50_ns = (double)samples->ns[middle] / (double)group;
    time->p99_ns = percentile(samples, kept, 100, group);
    time->p999_ns = percentile(samples, kept, 1000, group);
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
    summarize(&samples, sampled(series), spent, time);
    bench_memory_free(samples.ns, SAMPLES * sizeof(uint32_t));
}

struct measured_thread {
    const struct bench_series *series;
    void *state;
    uint64_t ops;
    uint64_t until;
    struct bench_time *time;
    pthread_barrier_t *start;
    pthread_t thread;
};

static void *measure_thread(void *argument)
{
    const struct measured_thread *thread = argument;
    pthread_barrier_wait(thread->start);
    bench_measure(thread->series, thread->state, thread->ops, thread->until, thread->time);
    return NULL;
}

int bench_measure_threads(const struct bench_series *series, void *const *states, unsigned threads,
                          uint64_t ops, uint64_t until, struct bench_time *times)
{
    enum { MOST = 64 };
    struct measured_thread thread[MOST];
    pthread_barrier_t start;
    if (threads < 1 || threads > MOST)
        return -EINVAL;
    pthread_barrier_init(&start, NULL, threads);
    int error = 0;
    for (unsigned i = 0; i < threads && !error; i++) {
        thread[i] = (struct measured_thread){series, states[i], ops, until, &times[i], &start, 0};
        if (i > 0)
            error = -pthread_create(&thread[i].thread, NULL, measure_thread, &thread[i]);
    }
    if (error)
        return error; /* those that wait at the barrier end with the process */
    measure_thread(&thread[0]);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(thread[i].thread, NULL);
    pthread_barrier_destroy(&start);
    return 0;
}

struct bench_time bench_time_together(const struct bench_time *times, unsigned threads)
{
    struct bench_time all = {0};
    double rate = 0;
    for (unsigned i = 0; i < threads; i++) {
        const struct bench_time *time = &times[i];
        all.ops += time->ops;
        all.done += time->done;
        rate += time->ns_per_op > 0 ? 1 / time->ns_per_op : 0;
        all.p50_ns = time->p50_ns > all.p50_ns ? time->p50_ns : all.p50_ns;
        all.p99_ns = time->p99_ns > all.p99_ns ? time->p99_ns : all.p99_ns;
        all.p999_ns = time->p999_ns > all.p999_ns ? time->p999_ns : all.p999_ns;
        if (time->error && (!all.error || all.error == -ETIME))
            all.error = time->error;
    }
    all.ns_per_op = rate > 0 ? threads / rate : 0;
    return all;
}
