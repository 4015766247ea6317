/* SPDX-License-Identifier: MIT */
/* Visits by system calls: mmap for each, pread for each, and one mapping of each file kept. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "visit.h"

/* --- mmap and pread: nothing is kept but the descriptor of a single file --- */

static int open_plain(const struct visit_world *world, void **out)
{
    *out = (void *)(uintptr_t)world;
    return 0;
}

static int begin(const struct visit_world *world, struct visit visit)
{
    return world->paths ? open(world->paths[visit.file], O_RDONLY | O_CLOEXEC) : world->fd;
}

static int end(const struct visit_world *world, int fd)
{
    return world->paths ? close(fd) : 0;
}

static int run_mmap(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    const struct visit_world *world = system;
    for (size_t i = 0; i < count; i++) {
        const int fd = begin(world, visits[i]);
        if (fd < 0)
            return -errno;
        void *page =
            mmap(NULL, VISIT_PAGE, PROT_READ, MAP_SHARED, fd, (off_t)visit_page(visits[i]));
        if (page == MAP_FAILED)
            return -errno;
        *sum += visit_read(page, visit_byte(visits[i]));
        if (munmap(page, VISIT_PAGE) || end(world, fd))
            return -errno;
    }
    return 0;
}

static int run_pread(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    const struct visit_world *world = system;
    for (size_t i = 0; i < count; i++) {
        unsigned char byte;
        const int fd = begin(world, visits[i]);
        if (fd < 0)
            return -errno;
        const ssize_t got = pread(fd, &byte, 1, visits[i].offset);
        if (got != 1)
            return got < 0 ? -errno : -EIO;
        *sum += byte;
        if (end(world, fd))
            return -errno;
    }
    return 0;
}

/* --- whole: the limit that nothing with a cache can pass, where the kernel allows it --- */

static void *map_whole(const struct visit_world *world, uint32_t file)
{
    const struct visit visit = {.file = file};
    const int fd = begin(world, visit);
    if (fd < 0)
        return MAP_FAILED;
    void *start = mmap(NULL, world->file_bytes, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    end(world, fd);
    errno = error;
    return start;
}

static int open_whole(const struct visit_world *world, void **out)
{
    char **starts = calloc(world->files, sizeof(*starts));
    if (!starts)
        return -ENOMEM;
    *out = starts;
    for (uint32_t i = 0; i < world->files; i++) {
        starts[i] = map_whole(world, i);
        if (starts[i] != MAP_FAILED)
            continue;
        const int error = errno;
        while (i-- > 0) /* at the limit of maps nothing else could go on */
            munmap(starts[i], world->file_bytes);
        return -error;
    }
    return 0;
}

VISIT_INLINE int visit_whole(void *system, const struct visit *visits, size_t count, uint64_t *sum,
                             bool chained)
{
    char *const *starts = system;
    uint64_t total = *sum;
    for (size_t i = 0; i < count; i++) {
        const struct visit visit = visit_after(visits[i], total, chained);
        total += visit_read(starts[visit.file], visit.offset);
    }
    *sum = total;
    return 0;
}

static int run_whole(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_whole(system, visits, count, sum, false);
}

static int chain_whole(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    return visit_whole(system, visits, count, sum, true);
}

static int copy_pread(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    const struct visit_world *world = system;
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[VISIT_COPY];
        const ssize_t got = pread(world->fd, bytes, VISIT_COPY, visits[i].offset);
        if (got != VISIT_COPY)
            return got < 0 ? -errno : -EIO;
        *sum += visit_read(bytes, 0);
    }
    return 0;
}

static int copy_whole(void *system, const struct visit *visits, size_t count, uint64_t *sum)
{
    char *const *starts = system;
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[VISIT_COPY];
        memcpy(bytes, starts[visits[i].file] + visits[i].offset, VISIT_COPY);
        *sum += visit_read(bytes, 0);
    }
    return 0;
}

static int come_and_go(void *system, const struct visit_world *world, uint32_t file)
{
    (void)system;
    uint64_t sum = 0;
    const struct visit visit = {.file = file};
    return run_mmap((void *)(uintptr_t)world, &visit, 1, &sum);
}

const struct visitor visitor_mmap = {
    .name = "mmap", .calls = true, .open = open_plain, .run = run_mmap};
const struct visitor visitor_pread = {
    .name = "pread", .calls = true, .open = open_plain, .run = run_pread, .copy = copy_pread};
const struct visitor visitor_whole = {.name = "whole",
                                      .open = open_whole,
                                      .run = run_whole,
                                      .chain = chain_whole,
                                      .copy = copy_whole,
                                      .come_and_go = come_and_go};
