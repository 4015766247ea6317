/* SPDX-License-Identifier: MIT */
#include "pieces.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mapfold/mmap.h>

#include "cli/cli.h"
#include "rival.h"

const struct mapper mapper_kernel = {"kernel", mmap, munmap};
const struct mapper mapper_mapping = {"mapping", mf_mmap, mf_munmap};

static int prepare_fresh(struct pieces *pieces, size_t count)
{
    const struct pieces_plan *plan = pieces->plan;
    const uint64_t file_pages = plan->file_bytes >> PAGE_SHIFT;
    for (size_t i = 0; i < count; i++) {
        const uint64_t pages = 1 + bench_random_below(&pieces->random, plan->max_pages);
        const uint64_t places = plan->spread ? file_pages - pages + 1 : 1;
        pieces->batch[i].length = (size_t)(pages << PAGE_SHIFT);
        pieces->batch[i].offset = (uint64_t)bench_random_below(&pieces->random, places)
                                  << PAGE_SHIFT;
    }
    return 0;
}

static int prepare_grow(void *state, size_t count)
{
    struct pieces *pieces = state;
    if (pieces->live + count > pieces->room)
        return -ENOSPC;
    for (size_t i = 0; i < count; i++)
        pieces->batch[i].slot = pieces->live + i;
    return prepare_fresh(pieces, count);
}

static int prepare_turn(void *state, size_t count)
{
    struct pieces *pieces = state;
    for (size_t i = 0; i < count; i++) {
        const uint64_t slot = pieces->oldest++ % pieces->live;
        pieces->batch[i].slot = slot;
        pieces->batch[i].old = pieces->start[slot];
        pieces->batch[i].old_length = (size_t)pieces->pages[slot] << PAGE_SHIFT;
    }
    return prepare_fresh(pieces, count);
}

static int prepare_release(void *state, size_t count)
{
    struct pieces *pieces = state;
    for (size_t i = 0; i < count; i++) {
        const uint64_t slot = bench_random_below(&pieces->random, pieces->live);
        const uint64_t last = --pieces->live;
        pieces->batch[i].old = pieces->start[slot];
        pieces->batch[i].old_length = (size_t)pieces->pages[slot] << PAGE_SHIFT;
        pieces->start[slot] = pieces->start[last];
        pieces->pages[slot] = pieces->pages[last];
    }
    return 0;
}

static void enter(struct pieces *pieces, size_t i)
{
    pieces->start[pieces->batch[i].slot] = pieces->batch[i].start;
    pieces->pages[pieces->batch[i].slot] = (uint32_t)(pieces->batch[i].length >> PAGE_SHIFT);
}

static int commit_turn(void *state, size_t count)
{
    for (size_t i = 0; i < count; i++)
        enter(state, i);
    return 0;
}

static int commit_grow(void *state, size_t count)
{
    struct pieces *pieces = state;
    commit_turn(pieces, count);
    pieces->live += count;
    return 0;
}

static int map_one(struct pieces *pieces, size_t i)
{
    const struct pieces_plan *plan = pieces->plan;
    char *start = pieces->mapper->map(NULL, pieces->batch[i].length, plan->protection, plan->flags,
                                      pieces->fd, (off_t)pieces->batch[i].offset);
    if (start == MAP_FAILED)
        return -errno;
    pieces->batch[i].start = start;
    if (plan->touch == READ)
        pieces->sum += (unsigned char)*(volatile char *)start;
    else if (plan->touch == WRITTEN)
        *(volatile char *)start = 1;
    return 0;
}

static int run_grow(void *state, size_t first, size_t count)
{
    struct pieces *pieces = state;
    for (size_t i = first; i < first + count; i++) {
        const int error = map_one(pieces, i);
        if (error) {
            commit_grow(pieces, i); /* what was mapped before is told, and unmapped */
            return error;
        }
    }
    return 0;
}

static int run_turn(void *state, size_t first, size_t count)
{
    struct pieces *pieces = state;
    for (size_t i = first; i < first + count; i++) {
        const int error = map_one(pieces, i);
        if (error)
            return error;
        if (pieces->mapper->unmap(pieces->batch[i].old, pieces->batch[i].old_length))
            return -errno;
    }
    return 0;
}

static int run_release(void *state, size_t first, size_t count)
{
    struct pieces *pieces = state;
    for (size_t i = first; i < first + count; i++) {
        if (pieces->mapper->unmap(pieces->batch[i].old, pieces->batch[i].old_length))
            return -errno;
    }
    return 0;
}

const struct bench_series pieces_grow = {
    prepare_grow, run_grow, commit_grow, PIECES_BATCH, true, 0, 0};
const struct bench_series pieces_turn = {
    prepare_turn, run_turn, commit_turn, PIECES_BATCH, true, 0, 0};
const struct bench_series pieces_release = {
    prepare_release, run_release, NULL, PIECES_BATCH, true, 0, 0};

int pieces_file(const struct bench *bench, const struct pieces_plan *plan)
{
    const int fd = bench_file(bench, plan->sparse ? 1 << PAGE_SHIFT : (size_t)plan->file_bytes);
    if (fd >= 0 && plan->sparse && ftruncate(fd, (off_t)plan->file_bytes)) {
        cli_error("cannot make a sparse file of %llu MiB in %s: %s; choose another directory with "
                  "--dir",
                  (unsigned long long)plan->file_bytes >> 20, bench->directory, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

int pieces_open(struct pieces *pieces, const struct mapper *mapper, const struct pieces_plan *plan,
                int fd, uint64_t room, uint64_t seed)
{
    *pieces =
        (struct pieces){.mapper = mapper, .plan = plan, .fd = fd, .room = room, .random = seed};
    pieces->start = bench_memory(room * sizeof(*pieces->start), "the list of live pieces");
    pieces->pages = bench_memory(room * sizeof(*pieces->pages), "the list of live pieces");
    if (!pieces->start || !pieces->pages)
        return -1;
    bench_memory_touch(pieces->start, room * sizeof(*pieces->start));
    bench_memory_touch(pieces->pages, room * sizeof(*pieces->pages));
    return 0;
}

static int run_untimed(struct pieces *pieces, const struct bench_series *series, uint64_t count)
{
    int error = 0;
    while (count > 0 && !error) {
        const size_t some = count < PIECES_BATCH ? (size_t)count : PIECES_BATCH;
        error = series->prepare(pieces, some);
        if (!error)
            error = series->run(pieces, 0, some);
        if (!error && series->commit)
            error = series->commit(pieces, some);
        count -= some;
    }
    return error;
}

int pieces_fill(struct pieces *pieces, uint64_t count)
{
    return run_untimed(pieces, &pieces_grow, count);
}

int pieces_churn(struct pieces *pieces, uint64_t count)
{
    return run_untimed(pieces, &pieces_turn, count);
}

int pieces_shed(struct pieces *pieces, uint64_t count)
{
    return run_untimed(pieces, &pieces_release, count < pieces->live ? count : pieces->live);
}
