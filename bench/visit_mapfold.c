/* SPDX-License-Identifier: MIT */
/* Visits through the library, called through its shared object like any program's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mapfold/window.h>

#include "visit.h"

struct ours {
    struct mf_pool *pool;
    uint32_t flags;
    struct mf_file *file[]; /* by number */
};

static int open_files(struct ours *ours, const struct visit_world *world)
{
    int error = 0;
    for (uint32_t i = 0; i < world->files && !error; i++)
        error = world->paths ? mf_file_open(ours->pool, world->paths[i], 0, &ours->file[i])
                             : mf_file_from_fd(ours->pool, world->fd, 0, &ours->file[i]);
    return error;
}

/* Whoever opens many small files by path allows copies: most are touched once. */
static int open_ours(const struct visit_world *world, void **out)
{
    const struct mf_pool_limits limits = {
        .bytes = world->budget_bytes, .maps = world->budget_maps, .files = world->budget_files};
    struct ours *ours = calloc(1, sizeof(*ours) + world->files * sizeof(struct mf_file *));
    if (!ours)
        return -ENOMEM;
    *out = ours;
    ours->flags = world->paths ? MF_MAY_COPY : 0;
    int error = mf_pool_create(&limits, world->extent, 0, &ours->pool);
    if (!error)
        error = mf_fault_install(); /* else mf_read is pread */
    return error ? error : open_files(ours, world);
}

VISIT_INLINE int visit_windows(void *system, const struct visit *visits, size_t count,
                               uint64_t *sum, bool chained)
{
    struct ours *ours = system;
    struct mf_window window = {.data = NULL};
    uint64_t total = *sum;
    for (size_t i = 0; i < count; i++) {
        const struct visit visit = visit_after(visits[i], total, chained);
        int error = mf_window_pin(ours->file[visit.file], visit_page(visit), VISIT_PAGE,
                                  ours->flags, MF_FOREVER, &window);
        if (error)
            return error;
        total += visit_read(window.data, visit_byte(visit));
        error = mf_window_unpin(&window);
        if (error)
            return error;
    }
    *sum = total;
    return 0;
}

static int run_window(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_windows(system, visits, count, sum, false);
}

static int chain_window(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_windows(system, visits, count, sum, true);
}

VISIT_INLINE int visit_locals(void *system, const struct visit *visits, size_t count, uint64_t *sum,
                              bool chained)
{
    struct ours *ours = system;
    struct mf_window window = {.data = NULL};
    uint64_t total = *sum;
    for (size_t i = 0; i < count; i++) {
        const struct visit visit = visit_after(visits[i], total, chained);
        int error = mf_local_pin(ours->file[visit.file], visit_page(visit), VISIT_PAGE, &window);
        if (error)
            return error;
        total += visit_read(window.data, visit_byte(visit));
        error = mf_local_unpin(&window);
        if (error)
            return error;
    }
    *sum = total;
    return 0;
}

static int run_local(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_locals(system, visits, count, sum, false);
}

static int chain_local(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_locals(system, visits, count, sum, true);
}

/* The byte alone. */
VISIT_INLINE int visit_reads(void *system, const struct visit *visits, size_t count, uint64_t *sum,
                             bool chained)
{
    struct ours *ours = system;
    uint64_t total = *sum;
    for (size_t i = 0; i < count; i++) {
        const struct visit visit = visit_after(visits[i], total, chained);
        unsigned char byte;
        const ssize_t got = mf_read(ours->file[visit.file], visit.offset, &byte, 1, 0);
        if (got != 1)
            return got < 0 ? (int)got : -EIO;
        total += byte;
    }
    *sum = total;
    return 0;
}

static int run_read(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_reads(system, visits, count, sum, false);
}

static int chain_read(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_reads(system, visits, count, sum, true);
}

static uint64_t misses(void *system, uint64_t visits)
{
    const struct ours *ours = system;
    struct mf_pool_stats stats;
    mf_pool_stats(ours->pool, &stats);
    return visits - stats.hits;
}

static int copy_window(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    struct ours *ours = system;
    struct mf_window window = {.data = NULL};
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[VISIT_COPY];
        int error = mf_window_pin(ours->file[visits[i].file], visits[i].offset, VISIT_COPY,
                                  ours->flags, MF_FOREVER, &window);
        if (error)
            return error;
        memcpy(bytes, window.data, VISIT_COPY);
        *sum += visit_read(bytes, 0);
        error = mf_window_unpin(&window);
        if (error)
            return error;
    }
    return 0;
}

static int copy_read(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    struct ours *ours = system;
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[VISIT_COPY];
        const ssize_t got =
            mf_read(ours->file[visits[i].file], visits[i].offset, bytes, VISIT_COPY, 0);
        if (got != VISIT_COPY)
            return got < 0 ? (int)got : -EIO;
        *sum += visit_read(bytes, 0);
    }
    return 0;
}

/* Mapped, not copied: it is unmapping that could disturb others. */
static int come_and_go(void *system, const struct visit_world *world, uint32_t number)
{
    struct ours *ours = system;
    struct mf_file *file;
    struct mf_window window = {.data = NULL};
    int error = mf_file_open(ours->pool, world->paths[number], 0, &file);
    if (error)
        return error;
    error = mf_window_pin(file, 0, VISIT_PAGE, 0, MF_FOREVER, &window);
    if (!error) {
        visit_read(window.data, 0);
        error = mf_window_unpin(&window);
    }
    mf_file_close(file);
    return error;
}

const struct visitor visitor_window = {.name = "window",
                                       .open = open_ours,
                                       .run = run_window,
                                       .chain = chain_window,
                                       .misses = misses,
                                       .copy = copy_window,
                                       .come_and_go = come_and_go};
const struct visitor visitor_local = {
    .name = "local", .open = open_ours, .run = run_local, .chain = chain_local, .misses = misses};
const struct visitor visitor_read = {.name = "mf_read",
                                     .open = open_ours,
                                     .run = run_read,
                                     .chain = chain_read,
                                     .misses = misses,
                                     .copy = copy_read};
