/* SPDX-License-Identifier: MIT */
#include "test_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

enum { IN_ONE = 1000 };

/* A hole's pages come into the page cache like any others when they are read. */
static int make_file(const char *path, size_t bytes)
{
    static char block[1 << 16];
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int failed = ftruncate(fd, (off_t)bytes);
    for (size_t at = 0; at < bytes && !failed; at += sizeof(block))
        failed = pread(fd, block, sizeof(block), (off_t)at) < 0;
    const int error = errno;
    close(fd);
    errno = error;
    return failed ? -1 : 0;
}

static int fill_tree(const struct bench *bench, struct test_tree *tree)
{
    for (uint32_t i = 0; i < tree->count; i++) {
        char path[PATH_MAX];
        const int length = snprintf(path, sizeof(path), "%s/%03u", tree->root.path, i / IN_ONE);
        if (i % IN_ONE == 0) {
            bench_progress(bench, "making %u files of %zu KiB: %u", tree->count, tree->bytes >> 10,
                           i);
            if (mkdir(path, 0700))
                return -1;
        }
        snprintf(path + length, sizeof(path) - (size_t)length, "/%06u", i);
        tree->paths[i] = strdup(path);
        if (!tree->paths[i] || make_file(path, tree->bytes))
            return -1;
    }
    return 0;
}

int test_tree_make(const struct bench *bench, uint32_t count, size_t bytes, struct test_tree *tree)
{
    *tree = (struct test_tree){.count = count, .bytes = bytes};
    tree->paths = calloc(count, sizeof(*tree->paths));
    if (tree->paths && guarded_dir_make(bench->directory, &tree->root) == 0 &&
        fill_tree(bench, tree) == 0)
        return 0;
    cli_error("cannot make %u test files in %s: %s; choose another directory with --dir", count,
              bench->directory, strerror(errno));
    test_tree_remove(tree);
    return -1;
}

void test_tree_remove(struct test_tree *tree)
{
    guarded_dir_remove(&tree->root);
    for (uint32_t i = 0; tree->paths && i < tree->count; i++)
        free(tree->paths[i]);
    free(tree->paths);
    *tree = (struct test_tree){.count = 0};
}
