/* SPDX-License-Identifier: MIT */
/*
 * Measuring in a child process: each system begins with no mappings, no tables and a count of
 * kernel maps of its own, and one that is killed is a row that says so, not the end of the run.
 */
#ifndef MAPFOLD_BENCH_IN_CHILD_H
#define MAPFOLD_BENCH_IN_CHILD_H

#include "bench.h"

/* Rows that a child hands over, in memory that it shares with its parent. */
struct child_rows {
    size_t count;
    struct bench_row rows[256];
};

static inline void child_row(struct child_rows *rows, const struct bench_row *row)
{
    if (rows->count < sizeof(rows->rows) / sizeof(*rows->rows))
        rows->rows[rows->count++] = *row;
}

/*
 * Runs job(bench, argument, rows) in a child and reports its rows. If the child is killed, a last
 * row with the workload, system, n and threads of `named` has a note of it. CLI_OK, or
 * CLI_FAILURE: the job's own, after it told why, or no child could be made.
 */
int run_in_child(struct bench *bench, const struct bench_row *named,
                 int (*job)(struct bench *bench, const void *argument, struct child_rows *rows),
                 const void *argument);

#endif
