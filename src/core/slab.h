/* SPDX-License-Identifier: MIT */
/*
 * slab: nodes of one size, cut from blocks of the caller's allocator.
 *
 * Rules: nodes_require() is the only function that may fail; after it returned 0, as many
 * node_take() as it was asked for succeed. A block whose last node comes back goes to the
 * allocator, except while its nodes are wanted (`keep` nodes stay free) or it is the only spare
 * one. Callers lock.
 */
#ifndef MAPFOLD_CORE_SLAB_H
#define MAPFOLD_CORE_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include <mapfold/base.h>

enum { NODE_BYTES = 768, SLAB_MIN = 4096, SLAB_MAX = 2 << 20 };

struct slab;

/* Blocks with a free node stand before those without, so that the first block tells whether any has
 * one. */
struct nodes {
    const struct mf_alloc *alloc;
    struct slab *first, *last;
    uint64_t free; /* nodes ready to be taken */
    uint64_t taken;
    uint64_t keep;  /* of those, how many must not go back to the allocator */
    uint64_t bytes; /* in all blocks */
};

/* Makes at least `count` nodes ready. 0, -ENOMEM. */
int nodes_require(struct nodes *nodes, uint64_t count);

/* Takes a ready node; its first word tells its block and is not the caller's. */
void *node_take(struct nodes *nodes);

void node_give(struct nodes *nodes, void *node);

/* Gives every block back, taken nodes included. */
void nodes_destroy(struct nodes *nodes);

#endif
