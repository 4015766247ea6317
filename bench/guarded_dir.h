/* SPDX-License-Identifier: MIT */
/*
 * A new directory that goes, with all in it, when this process (and its forks) has ended, however
 * that came.
 */
#ifndef MAPFOLD_BENCH_GUARDED_DIR_H
#define MAPFOLD_BENCH_GUARDED_DIR_H

#include "guardian.h"

struct guarded_dir {
    char *path; /* as the parent is: absolute or not; of PATH_MAX bytes, or NULL: none */
    struct guardian guardian;
};

/* Makes one in the parent. 0, or -1 with errno and *dir zeroed. */
int guarded_dir_make(const char *parent, struct guarded_dir *dir);

/* Removes it now, and zeroes *dir; also a zeroed one. 0, or -1 after telling that it is still
 * there. */
int guarded_dir_remove(struct guarded_dir *dir);

#endif
