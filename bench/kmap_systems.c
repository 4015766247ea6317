/* SPDX-License-Identifier: MIT */
/* The kmap_lock workload by system calls and by the library. pool-2002 has a file of its own. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mapfold/window.h>

#include "kmap_system.h"

/* --- system calls --- */

static int open_nothing(const struct kmap_setup *setup, void **state)
{
    (void)setup;
    *state = NULL;
    return 0;
}

/* The mail's loop. */
static int run_read_lseek(struct kmap_worker *worker, size_t first, size_t count)
{
    (void)first;
    for (size_t i = 0; i < count; i++) {
        unsigned char byte;
        const ssize_t got = read(worker->fd, &byte, 1);
        if (got != 1)
            return got < 0 ? -errno : -EIO;
        worker->sum += byte;
        if (lseek(worker->fd, 0, SEEK_SET) != 0)
            return -errno;
    }
    return 0;
}

static int run_pread(struct kmap_worker *worker, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        unsigned char byte;
        const ssize_t got = pread(worker->fd, &byte, 1, (off_t)worker->page[i] * KMAP_PAGE);
        if (got != 1)
            return got < 0 ? -errno : -EIO;
        worker->sum += byte;
    }
    return 0;
}

static int run_mmap(struct kmap_worker *worker, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        void *page = mmap(NULL, KMAP_PAGE, PROT_READ, MAP_SHARED, worker->fd,
                          (off_t)worker->page[i] * KMAP_PAGE);
        if (page == MAP_FAILED)
            return -errno;
        worker->sum += kmap_touch(page);
        if (munmap(page, KMAP_PAGE))
            return -errno;
    }
    return 0;
}

/* --- the library: extents of one page, as many as there are slots --- */

struct ours {
    struct mf_pool *pool;
    struct mf_file *file[KMAP_WORKERS];
    struct mf_window held[];
};

static int open_ours(const struct kmap_setup *setup, void **state)
{
    const struct mf_pool_limits limits = {
        .bytes = (uint64_t)setup->slots * KMAP_PAGE, .maps = setup->slots, .files = 1};
    struct ours *ours = calloc(1, sizeof(*ours) + setup->held * sizeof(*ours->held));
    if (!ours)
        return -ENOMEM;
    *state = ours;
    int error = mf_pool_create(&limits, KMAP_PAGE, 0, &ours->pool);
    for (unsigned i = 0; i < setup->files && !error; i++)
        error = mf_file_from_fd(ours->pool, setup->fds[i], 0, &ours->file[i]);
    for (uint32_t i = 0; i < setup->held && !error; i++)
        error = mf_window_pin(ours->file[0], (uint64_t)i * KMAP_PAGE, KMAP_PAGE, 0, MF_NOWAIT,
                              &ours->held[i]);
    return error;
}

static int run_window(struct kmap_worker *worker, size_t first, size_t count)
{
    struct ours *ours = worker->state;
    struct mf_window window = {.data = NULL};
    for (size_t i = first; i < first + count; i++) {
        int error = mf_window_pin(ours->file[worker->file], (uint64_t)worker->page[i] * KMAP_PAGE,
                                  KMAP_PAGE, 0, MF_FOREVER, &window);
        if (error)
            return error;
        worker->sum += kmap_touch(window.data);
        error = mf_window_unpin(&window);
        if (error)
            return error;
    }
    return 0;
}

static int run_local(struct kmap_worker *worker, size_t first, size_t count)
{
    struct ours *ours = worker->state;
    struct mf_window window = {.data = NULL};
    for (size_t i = first; i < first + count; i++) {
        int error = mf_local_pin(ours->file[worker->file], (uint64_t)worker->page[i] * KMAP_PAGE,
                                 KMAP_PAGE, &window);
        if (error)
            return error;
        worker->sum += kmap_touch(window.data);
        error = mf_local_unpin(&window);
        if (error)
            return error;
    }
    return 0;
}

static void read_books(void *state, struct kmap_books *books)
{
    const struct ours *ours = state;
    struct mf_pool_stats stats;
    mf_pool_stats(ours->pool, &stats);
    *books = (struct kmap_books){
        .counted = true,
        .stepped = true,
        .lock = {.total = stats.lock_taken, .waited = stats.lock_contended},
        .steps = stats.lock_steps,
        .steps_max = stats.lock_steps_max,
    };
}

const struct kmap_system kmap_read_lseek = {
    .name = "read+lseek", .calls = true, .open = open_nothing, .run = run_read_lseek};
const struct kmap_system kmap_pread = {
    .name = "pread", .calls = true, .open = open_nothing, .run = run_pread};
const struct kmap_system kmap_mmap = {
    .name = "mmap", .calls = true, .open = open_nothing, .run = run_mmap};
const struct kmap_system kmap_window = {
    .name = "window", .pool = true, .open = open_ours, .run = run_window, .read_books = read_books};
const struct kmap_system kmap_local = {
    .name = "local", .pool = true, .open = open_ours, .run = run_local, .read_books = read_books};
