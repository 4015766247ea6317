/* SPDX-License-Identifier: MIT */
/*
 * Systems that take turns, each in a process of its own: all are ready before any is measured, and
 * then each does a short slice of its work, again and again. So each system has its own mappings
 * and caches, and the moods of a shared machine, which last longer than a slice, hit all alike.
 */
#ifndef MAPFOLD_BENCH_TURNS_H
#define MAPFOLD_BENCH_TURNS_H

#include "bench.h"

enum { TURNS_MAX = 32 };

struct turns {
    /* In the child, once: makes everything ready. CLI_OK and *state, or CLI_FAILURE after telling.
     */
    int (*begin)(struct bench *bench, const void *argument, void **state);
    /* In the child: a slice, and its row. CLI_OK, or CLI_FAILURE after telling why. */
    int (*slice)(void *state, struct bench_row *row);
    int rounds; /* TURNS_MAX at most */
};

struct turns_system {
    const void *argument;
    struct bench_row named; /* workload, system, n and threads, for a child that is killed */
};

/*
 * Runs all systems and reports one row each, in their order: that of the median slice, with the
 * operations of all. CLI_OK or CLI_FAILURE.
 */
int turns_run(struct bench *bench, const struct turns *turns, const struct turns_system *systems,
              size_t count);

#endif
