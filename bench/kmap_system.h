/* SPDX-License-Identifier: MIT */
/*
 * The systems of the kmap_lock workload: ways to get at one byte of a page of a file and to let go
 * of it. A state is shared by the threads of a process; each worker has a description of its file
 * of its own, as 16 copies of a program have.
 */
#ifndef MAPFOLD_BENCH_KMAP_SYSTEM_H
#define MAPFOLD_BENCH_KMAP_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metered_lock.h"

enum { KMAP_WORKERS = 16, KMAP_PAGE = 4096, KMAP_BATCH = 4096 };

struct kmap_setup {
    const int *fds; /* of `files` files */
    unsigned files;
    uint32_t pages; /* of each */
    uint32_t slots; /* of a pool; one page each */
    uint32_t held;  /* slots that are pinned before and stay so: pages from 0 of the first file */
    bool times;     /* the lock keeps times */
};

struct kmap_worker {
    void *state;
    int fd;
    unsigned file;
    uint64_t sum;
    uint32_t page[KMAP_BATCH];
};

/* What a pool's lock went through, and what was done under it. */
struct kmap_books {
    bool counted, timed, stepped;
    struct lock_books lock;
    uint64_t steps, steps_max;
};

struct kmap_system {
    const char *name;
    bool calls; /* each iteration is a system call, at least */
    bool pool;  /* has slots */
    bool timed; /* its lock can keep times */
    /* 0 or a negative errno. A state goes with its process. */
    int (*open)(const struct kmap_setup *setup, void **state);
    /* Iterations on the worker's pages first..first+count-1. */
    int (*run)(struct kmap_worker *worker, size_t first, size_t count);
    void (*read_books)(void *state, struct kmap_books *books); /* NULL: none */
};

extern const struct kmap_system kmap_read_lseek;
extern const struct kmap_system kmap_pread;
extern const struct kmap_system kmap_mmap;
extern const struct kmap_system kmap_pool_2002;
extern const struct kmap_system kmap_window;
extern const struct kmap_system kmap_local;

static inline uint64_t kmap_touch(const void *page)
{
    return *(const volatile unsigned char *)page;
}

#endif
