/* SPDX-License-Identifier: MIT */
/* The space layer itself, through its public interface. */
#include <mapfold/space.h>

#include "bench.h"
#include "rival.h"

static int mapfold_create(const struct rival_setup *setup, void **out)
{
    struct mf_space *space = NULL;
    (void)setup;
    const int error = mf_space_create(RIVAL_LOW, RIVAL_LAST, UINT64_C(1) << PAGE_SHIFT,
                                      mf_alloc_system(), &space);
    *out = space;
    return error;
}

static int mapfold_place(void *rival, uint32_t pages, uint64_t offset, uint64_t *start)
{
    const struct mf_fit fit = {
        .length = (uint64_t)pages << PAGE_SHIFT,
        .align = 1,
        .low = RIVAL_LOW,
        .last = RIVAL_LAST,
        .policy = MF_FIT_LOWEST,
    };
    struct mf_area area;
    const int error = mf_space_place(rival, &fit, MF_TAG_MERGE, offset, &area);
    if (!error)
        *start = area.start;
    return error;
}

static int mapfold_remove(void *rival, uint64_t start, uint32_t pages)
{
    return mf_space_remove(rival, start, (uint64_t)pages << PAGE_SHIFT);
}

static int mapfold_find(void *rival, uint64_t address, uint64_t *start)
{
    struct mf_area area;
    const int error = mf_space_find(rival, address, &area);
    if (!error)
        *start = area.start;
    return error;
}

static double mapfold_bytes_per_area(void *rival)
{
    struct mf_space_stats stats;
    mf_space_stats(rival, &stats);
    return stats.areas ? (double)stats.metadata_bytes / (double)stats.areas : 0;
}

static void mapfold_destroy(void *rival)
{
    mf_space_destroy(rival);
}

const struct rival rival_mapfold = {
    .name = "mapfold",
    .agrees = true,
    .computes = true,
    .create = mapfold_create,
    .destroy = mapfold_destroy,
    .place = mapfold_place,
    .remove = mapfold_remove,
    .find = mapfold_find,
    .bytes_per_area = mapfold_bytes_per_area,
};
