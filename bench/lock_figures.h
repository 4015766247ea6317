/* SPDX-License-Identifier: MIT */
/*
 * What a lock went through while a workload ran, as the lockmeter of 2002 told it, and what a pool
 * did under it. A row that has such figures (struct bench_row's `lock`), wherever it was measured,
 * gets its line in the tables of lock_print and lock_print_steps.
 */
#ifndef MAPFOLD_BENCH_LOCK_FIGURES_H
#define MAPFOLD_BENCH_LOCK_FIGURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct lock_figures {
    bool counted; /* total, spin and reject are known */
    bool timed;   /* util, hold and wait are known */
    bool stepped; /* steps are known */

    uint64_t total; /* attempts to take it */
    double spin;    /* the share of attempts that found it held and waited (CON and SPIN) */
    double reject;  /* the share of attempts that found it held and went away */

    double util; /* the share of the time in which it was held */
    double hold_mean_ns, hold_max_ns;
    double wait_mean_ns, wait_max_ns; /* of those that waited */
    double wait_cpu;                  /* the share of all processors' time spent spinning */

    double steps_mean;  /* slots looked at under the lock for one map */
    uint64_t steps_max; /* the most in one hold of the lock */
};

struct bench;

/* The mail's table of the rows of one workload whose lock was counted; nothing if there is none. */
void lock_print(const struct bench *bench, FILE *out, const char *workload, const char *title);

/* The same for steps; n are the slots. */
void lock_print_steps(const struct bench *bench, FILE *out, const char *workload,
                      const char *title);

#endif
