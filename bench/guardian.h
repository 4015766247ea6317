/* SPDX-License-Identifier: MIT */
/*
 * Guardians: a process that does a last thing when this one ends, however it ends. It holds the
 * reading end of a pipe whose writing end this process (and its forks, not what they exec) keeps
 * open: end-of-file means that we are gone, be it by exit, signal, crash or kill -9. Where we still
 * can, we close the pipe ourselves and wait for the guardian.
 */
#ifndef MAPFOLD_BENCH_GUARDIAN_H
#define MAPFOLD_BENCH_GUARDIAN_H

#include <sys/types.h>

struct guardian {
    pid_t process; /* 0: none */
    int pipe;      /* the writing end */
};

/* last(argument) is done in the guardian, and says 0 if it succeeded. 0, or -1 with errno. */
int guardian_start(struct guardian *guardian, int (*last)(const void *argument),
                   const void *argument);

/* Has it done now, and waits. 0, or -1 if it failed. Async-signal-safe. */
int guardian_end(struct guardian *guardian);

/* The signals that end a command in an orderly way, which guardians do not heed. */
enum { ENDING_SIGNALS = 3 };
extern const int ending_signals[ENDING_SIGNALS];

#endif
