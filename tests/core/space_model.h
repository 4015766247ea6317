/* SPDX-License-Identifier: MIT */
/*
 * The linear reference of the space layer: the same interface, done in the most obvious way. All
 * areas stand in one array, ordered by address, and every question is answered by walking it from
 * the bottom. It is meant to be read and believed, not to be fast.
 *
 * What the public header leaves open is decided here:
 *  - Errors are looked for in this order: -EINVAL, -EOVERFLOW, -ERANGE, -EEXIST or -ENOSPC. (The
 *    model itself never lacks memory.) On an error no result is written.
 *  - A piece starts at an address that is a multiple of both align and the granule; bounds and
 *    hint need not be. Bounds wholly outside the space are -ENOSPC.
 *  - Wherever two areas touch that can merge, they are one, whatever made them touch. Only areas
 *    whose union would be all 2^64 bytes stay apart, since no length can say so: then there are
 * two, the upper of which is what came last from below.
 *  - A retag leaves an area whole whose tag it does not change.
 *  - Fragmentation is exact: 0 only when no free byte lies outside the largest gap.
 */
#ifndef TESTS_CORE_SPACE_MODEL_H
#define TESTS_CORE_SPACE_MODEL_H

#include <stdbool.h>

#include <mapfold/space.h>

struct model {
    uint64_t low, last, granule;
    struct mf_area *areas; /* ordered by address */
    size_t count, room;
    struct mf_area
        *next; /* where an operation writes the new array; swapped with areas at its end */
    size_t next_count;
};

/* -EINVAL as mf_space_create. */
int model_create(struct model *model, uint64_t low, uint64_t last, uint64_t granule);
void model_destroy(struct model *model);

int model_find_gap(const struct model *model, const struct mf_fit *fit, uint64_t *start);
int model_place(struct model *model, const struct mf_fit *fit, uint64_t tag, uint64_t offset,
                struct mf_area *area);
int model_insert(struct model *model, const struct mf_area *area);
int model_remove(struct model *model, uint64_t start, uint64_t length);
int model_retag(struct model *model, uint64_t start, uint64_t length, uint64_t clear, uint64_t set);
int model_find(const struct model *model, uint64_t address, struct mf_area *area);
int model_next(const struct model *model, uint64_t address, struct mf_area *area);
void model_stats(const struct model *model, struct mf_space_stats *stats); /* no metadata_bytes */

#endif
