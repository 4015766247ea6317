/* SPDX-License-Identifier: MIT */
#include "test_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

enum { IN_ONE = 1000, OPEN_AT_ONCE = 16 };

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* The guardian's last thing. Nothing has been made yet where there is no name. */
static int remove_all(const void *root)
{
    return *(const char *)root == '\0'
               ? 0
               : nftw(root, remove_entry, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS);
}

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
        const int length = snprintf(path, sizeof(path), "%s/%03u", tree->root, i / IN_ONE);
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

/*
 * The guardian knows the directory by its name, so the name is there first, and mkdtemp will not
 * do. That somebody else has made one of this name would take 2^64 tries.
 */
static int make_root(const struct bench *bench, const struct test_tree *tree)
{
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -1;
    if (snprintf(tree->root, PATH_MAX, "%s/mapfold-bench-%016" PRIx64, bench->directory, number) <
        PATH_MAX) {
        if (mkdir(tree->root, 0700) == 0)
            return 0;
    } else {
        errno = ENAMETOOLONG;
    }
    tree->root[0] = '\0'; /* nothing to remove */
    return -1;
}

int test_tree_make(const struct bench *bench, uint32_t count, size_t bytes, struct test_tree *tree)
{
    *tree = (struct test_tree){.count = count, .bytes = bytes};
    /* Shared with the guardian, which is there before the directory is. */
    char *root = mmap(NULL, PATH_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (root != MAP_FAILED) {
        tree->root = root;
        tree->paths = calloc(count, sizeof(*tree->paths));
    }
    if (tree->paths && guardian_start(&tree->guardian, remove_all, root) == 0 &&
        make_root(bench, tree) == 0 && fill_tree(bench, tree) == 0)
        return 0;
    cli_error("cannot make %u test files in %s: %s; choose another directory with --dir", count,
              bench->directory, strerror(errno));
    test_tree_remove(tree);
    return -1;
}

void test_tree_remove(struct test_tree *tree)
{
    if (tree->guardian.process && guardian_end(&tree->guardian))
        cli_error("cannot remove the test files: remove %s yourself", tree->root);
    for (uint32_t i = 0; tree->paths && i < tree->count; i++)
        free(tree->paths[i]);
    free(tree->paths);
    if (tree->root)
        munmap(tree->root, PATH_MAX);
    *tree = (struct test_tree){.count = 0};
}
