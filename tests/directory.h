/* SPDX-License-Identifier: MIT */
/* A directory of its own for a test program, with all that is in it removed at the end. */
#ifndef MAPFOLD_TESTS_DIRECTORY_H
#define MAPFOLD_TESTS_DIRECTORY_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static char directory[64];

/* 0, or -1 with errno. */
static inline int directory_make(const char *name)
{
    snprintf(directory, sizeof(directory), "/tmp/mapfold-%s-XXXXXX", name);
    return mkdtemp(directory) ? 0 : -1;
}

static inline int directory_remove_one(const char *path, const struct stat *st, int kind,
                                       struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline int directory_remove(void)
{
    return nftw(directory, directory_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The path of a name in it: good until the thread has asked for four more. */
static inline const char *path_of(const char *name)
{
    static _Thread_local char paths[4][128];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
    return path;
}

#endif
