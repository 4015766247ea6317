/* SPDX-License-Identifier: MIT */
/* Programs that the bench runs (perf, gnuplot), with memory files for their input and output. */
#ifndef MAPFOLD_BENCH_CHILDREN_H
#define MAPFOLD_BENCH_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether PATH has an executable of this name. */
bool child_exists(const char *program);

/* A memory file that is not inherited by exec, or -1. */
int child_file(const char *name);

/*
 * Starts argv[0] from PATH with the given descriptors as its standard input, output and errors (-1:
 * /dev/null). The process, or -1 with errno set.
 */
pid_t child_start(const char *const *argv, int in, int out, int err);

/* Waits for it. Its exit code, 128 + signal, or -1. */
int child_wait(pid_t pid);

#endif
