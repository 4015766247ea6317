/* SPDX-License-Identifier: MIT */
/* What the tests with threads share: threads that count what is wrong, and a handler that stays. */
#ifndef MAPFOLD_TESTS_POOL_STRESS_H
#define MAPFOLD_TESTS_POOL_STRESS_H

#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static struct sigaction ours; /* cmocka sets a SIGBUS handler of its own before each test */
static _Atomic unsigned wrong;
static _Atomic bool stop;
static unsigned rounds;

static inline bool prepare(void)
{
#ifdef __SANITIZE_THREAD__
    rounds = 300;
#else
    rounds = 2000;
#endif
    return mf_fault_install() == 0 && sigaction(SIGBUS, NULL, &ours) == 0;
}

static inline void begin(void)
{
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
    atomic_store(&wrong, 0);
    atomic_store(&stop, false);
}

static inline void expect(bool truth)
{
    if (!truth)
        atomic_fetch_add(&wrong, 1);
}

static inline void start_threads(unsigned count, void *(*function)(void *), pthread_t *threads)
{
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, function, (void *)(uintptr_t)(i + 1)),
                         0);
}

static inline void join_threads(unsigned count, const pthread_t *threads)
{
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
}

static inline void run_threads(unsigned count, void *(*function)(void *))
{
    pthread_t threads[16];
    start_threads(count, function, threads);
    join_threads(count, threads);
}

#endif
