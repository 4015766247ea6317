/* SPDX-License-Identifier: MIT */
/*
 * Test files with names, for systems that open them by path: `count` of `bytes` bytes each, in a
 * new directory in that of --dir. They are sparse (on disk an inode each), and all their pages are
 * in the page cache (count * bytes of memory). The directory goes with this process, however that
 * ends.
 */
#ifndef MAPFOLD_BENCH_TEST_TREE_H
#define MAPFOLD_BENCH_TEST_TREE_H

#include "bench.h"
#include "guarded_dir.h"

struct test_tree {
    uint32_t count;
    size_t bytes;
    struct guarded_dir root;
    char **paths; /* as --dir is: absolute or not */
};

/* 0, or -1 after telling why not. */
int test_tree_make(const struct bench *bench, uint32_t count, size_t bytes, struct test_tree *tree);
/* Removes it now. Also for a zeroed one. */
void test_tree_remove(struct test_tree *tree);

#endif
