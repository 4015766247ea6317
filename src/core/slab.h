/* SPDX-License-Identifier: MIT */
/*
 * slab: nodes of one size, cut from blocks of the caller's allocator.
 *
 * Rules: nodes_require() is the only function that may fail; after it returned 0, as many
 * node_take() as it was asked for succeed. A block goes back to the allocator when its last node
 * has come back, except while its nodes are wanted (`keep`). The first nodes lie in memory of the
 * owner's, beside the owner itself. Callers lock.
 */
#ifndef MAPFOLD_CORE_SLAB_H
#define MAPFOLD_CORE_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include <mapfold/base.h>

enum { NODE_BYTES = 768, SLAB_ALIGN = 64, SLAB_MIN = 4096, SLAB_MAX = 2 << 20 };

struct slab;

struct nodes {
    const struct mf_alloc *alloc;
    struct slab *
        partial; /* blocks with a free node, the fuller half before the emptier: they shall drain */
    struct slab *last; /* of those */
    struct slab *full;
    uint64_t free; /* nodes ready to be taken */
    uint64_t taken;
    uint64_t
        keep; /* of the free ones, how many must not go back; each one taken uses up one of these */
    uint64_t bytes; /* in all blocks but the owner's */
};

/* Begins with the nodes that fit in `size` bytes (at least a header and one node) at `memory`. */
void nodes_init(struct nodes *nodes, const struct mf_alloc *alloc, void *memory, size_t size);

/*
 * Makes at least `count` nodes ready. 0, or -ENOMEM and nothing is held that was not held before.
 */
int nodes_require(struct nodes *nodes, uint64_t count);

/* Takes a ready node; its first word tells its block and is not the caller's. */
void *node_take(struct nodes *nodes);

void node_give(struct nodes *nodes, void *taken);

/* Gives back the blocks that are wholly free, as far as `keep` allows. */
void nodes_trim(struct nodes *nodes);

/* Gives every block back but the owner's, taken nodes included. */
void nodes_destroy(struct nodes *nodes);

#endif
