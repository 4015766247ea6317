/* SPDX-License-Identifier: MIT */
/*
 * The kernel itself, and the mapping layer in its place: mmap and munmap of pieces of a file, or of
 * anonymous memory, never touched. To the kernel alone, pieces may lie beyond the end of the file.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <mapfold/mmap.h>

#include "bench.h"
#include "rival.h"

struct piece_source {
    int fd;
    int flags;
};

static int kernel_create(const struct rival_setup *setup, void **out)
{
    struct piece_source *source = calloc(1, sizeof(*source));
    if (!source)
        return -ENOMEM;
    source->fd = setup->anonymous ? -1 : setup->fd;
    source->flags = MAP_PRIVATE | (setup->anonymous ? MAP_ANONYMOUS : 0);
    *out = source;
    return 0;
}

static int kernel_place(void *rival, uint32_t pages, uint64_t offset, uint64_t *start)
{
    const struct piece_source *source = rival;
    void *memory = mmap(NULL, (size_t)pages << PAGE_SHIFT, PROT_READ | PROT_WRITE, source->flags,
                        source->fd, source->fd < 0 ? 0 : (off_t)offset);
    if (memory == MAP_FAILED)
        return -errno;
    *start = (uint64_t)(uintptr_t)memory;
    return 0;
}

static int kernel_remove(void *rival, uint64_t start, uint32_t pages)
{
    (void)rival;
    return munmap((void *)(uintptr_t)start, (size_t)pages << PAGE_SHIFT) ? -errno : 0;
}

static void kernel_destroy(void *rival)
{
    free(rival);
}

const struct rival rival_kernel = {
    .name = "kernel",
    .create = kernel_create,
    .destroy = kernel_destroy,
    .place = kernel_place,
    .remove = kernel_remove,
};

static int mapping_place(void *rival, uint32_t pages, uint64_t offset, uint64_t *start)
{
    const struct piece_source *source = rival;
    void *memory = mf_mmap(NULL, (size_t)pages << PAGE_SHIFT, PROT_READ | PROT_WRITE, source->flags,
                           source->fd, source->fd < 0 ? 0 : (off_t)offset);
    if (memory == MAP_FAILED)
        return -errno;
    *start = (uint64_t)(uintptr_t)memory;
    return 0;
}

static int mapping_remove(void *rival, uint64_t start, uint32_t pages)
{
    (void)rival;
    return mf_munmap((void *)(uintptr_t)start, (size_t)pages << PAGE_SHIFT) ? -errno : 0;
}

const struct rival rival_mapping = {
    .name = "mapping",
    .create = kernel_create,
    .destroy = kernel_destroy,
    .place = mapping_place,
    .remove = mapping_remove,
};
