/* SPDX-License-Identifier: MIT */
#include "guarded_dir.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "cli/cli.h"

enum { OPEN_AT_ONCE = 16, NAMES = 32 /* room for what is made in it */ };

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* The guardian's last thing. Nothing has been made yet where there is no name. */
static int remove_all(const void *path)
{
    return *(const char *)path == '\0'
               ? 0
               : nftw(path, remove_entry, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS);
}

/*
 * The guardian knows the directory by its name, so the name is there first, and mkdtemp will not
 * do. That somebody else has made one of this name would take 2^64 tries.
 */
static int make(const char *parent, char *path)
{
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -1;
    if (snprintf(path, PATH_MAX, "%s/mapfold-bench-%016" PRIx64, parent, number) >=
        PATH_MAX - NAMES)
        errno = ENAMETOOLONG;
    else if (mkdir(path, 0700) == 0)
        return 0;
    path[0] = '\0'; /* nothing to remove */
    return -1;
}

int guarded_dir_make(const char *parent, struct guarded_dir *dir)
{
    *dir = (struct guarded_dir){.path = NULL};
    /* Shared with the guardian, which is there before the directory is. */
    char *path = mmap(NULL, PATH_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (path == MAP_FAILED)
        return -1;
    dir->path = path;
    if (guardian_start(&dir->guardian, remove_all, path) == 0 && make(parent, path) == 0)
        return 0;
    const int error = errno;
    guarded_dir_remove(dir);
    errno = error;
    return -1;
}

int guarded_dir_remove(struct guarded_dir *dir)
{
    const int failed = dir->guardian.process ? guardian_end(&dir->guardian) : 0;
    if (failed)
        cli_error("cannot remove the test files: remove %s yourself", dir->path);
    if (dir->path)
        munmap(dir->path, PATH_MAX);
    *dir = (struct guarded_dir){.path = NULL};
    return failed;
}
