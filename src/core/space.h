/* SPDX-License-Identifier: MIT */
/*
 * What a space is inside: shared by tree.c, fit.c, space.c and space_check.c; tree.c tells the
 * invariants.
 */
#ifndef MAPFOLD_CORE_SPACE_H
#define MAPFOLD_CORE_SPACE_H

#include <mapfold/space.h>

#include "core/node.h"

/* A tree of nodes a third full would still need more memory than 64 bits address to be so high. */
enum { MAX_HEIGHT = 16 };

struct mf_space {
    uint64_t low, last; /* granules, as everything inside */
    unsigned shift;     /* log2 of the granule */
    unsigned height;    /* inner levels above the leaves */
    void *root;         /* struct inner, or struct leaf if height is 0; NULL in an empty space */
    uint64_t areas;
    uint64_t used;     /* granules in areas, modulo 2^64 */
    uint64_t inners;   /* inner nodes */
    uint64_t reserved; /* operations */
    struct nodes nodes;
};

/* A space is a page: itself, then its first nodes. */
enum { SPACE_BYTES = SLAB_MIN, SPACE_HEAD = 128 };
_Static_assert(sizeof(struct mf_space) <= SPACE_HEAD && SPACE_HEAD % SLAB_ALIGN == 0,
               "a space's first nodes begin behind it");

/*
 * How a leaf was reached: inner[0] is the root, at[] the child taken in each; row is a place in the
 * leaf.
 */
struct path {
    struct inner *inner[MAX_HEIGHT];
    int8_t at[MAX_HEIGHT];
    struct leaf *leaf; /* NULL in an empty space */
    unsigned row;
};

/* A path on the stack, which hardening flags need not clear: its users set what they read. */
#define PATH __attribute__((uninitialized)) struct path

/* All lines of a node at once: one wait for memory, where its columns one by one would be three. */
static inline void prefetch_node(const void *node)
{
#pragma GCC unroll 12
    for (unsigned i = 0; i < NODE_BYTES; i += 64)
        __builtin_prefetch((const char *)node + i);
}

/*
 * The first child whose key is at or above the granule, or the last child. First the block of four,
 * then the key in it, without branches: all lines of the keys are waited for at once. Keys behind
 * the last are UINT64_MAX.
 */
static inline unsigned inner_search(const struct inner *inner, uint64_t granule)
{
    unsigned at = 0;
#pragma GCC unroll 6
    for (unsigned i = 3; i < INNER_KEYS - 1; i += 4)
        at += inner->key[i] < granule;
    const uint64_t *key = inner->key + 4u * at;
    at = 4 * at + (key[0] < granule) + (key[1] < granule) + (key[2] < granule) + (key[3] < granule);
    return at < inner->count ? at : inner->count - 1u;
}

static inline bool path_at_area(const struct path *path)
{
    return path->leaf && path->row < path->leaf->count;
}

/* ---- tree.c: reading ---- */

/* The way to the first area that ends at or above the granule, or behind the last area of all. */
void path_find(const struct mf_space *space, struct path *path, uint64_t granule);

/* The first granule that the path's leaf covers. */
uint64_t path_low(const struct mf_space *space, const struct path *path);

/* The first granule of the gap before the path's row, which may be empty. */
uint64_t path_gap(const struct mf_space *space, const struct path *path);

/* Whether there is a gap behind the last area of all; *first is where it begins. */
bool space_tail(const struct mf_space *space, uint64_t *first);

struct summary inner_summary(const struct inner *inner);

/* ---- tree.c: memory ---- */

/*
 * Leaves that one operation may split: retag, at both ends and where it merges with what lies
 * beside.
 */
enum { SPLITS = 4 };

/*
 * Makes ready all nodes that an operation may take which splits up to `leaves` leaves. 0, -ENOMEM.
 */
int space_prepare(struct mf_space *space, uint64_t leaves);

/* Nodes that the next `operations` operations may take. */
uint64_t nodes_for_operations(const struct mf_space *space, uint64_t operations);

/* Operations that may allocate begin: they use up as many of those reserved. */
void space_use_reserve(struct mf_space *space, uint64_t operations);

/* ---- tree.c: changing a leaf; the path is void afterwards ---- */

/*
 * Gives the path's leaf these rows (up to LEAF_ROWS + 2), splitting it where they do not fit.
 * `newest` is the row to split behind if rows have been coming in order, so that runs leave full
 * leaves, or -1.
 */
void space_rewrite(struct mf_space *space, struct path *path, const struct row *rows,
                   unsigned count, int newest);

/*
 * Gives the path's area new bounds within the gaps beside it. Nodes must be ready where they grow.
 */
void space_set_bounds(struct mf_space *space, struct path *path, uint64_t first, uint64_t last);

/* Inserts a row before the path's, in the gap there, whatever its neighbours. 0, -ENOMEM. */
int space_insert_row(struct mf_space *space, struct path *path, const struct row *row);

/* Takes out n areas from the path's on, all in its leaf. */
void space_erase_rows(struct mf_space *space, struct path *path, unsigned n);

/* ---- fit.c ---- */

/*
 * Finds where a piece fits, and the way there: the path is at the row before which the piece goes.
 * 0, -EINVAL, -ENOSPC.
 */
int fit_find(const struct mf_space *space, const struct mf_fit *fit, struct path *path,
             uint64_t *start);

/*
 * Checks every invariant of tree.c. 0, or -1 with a sentence in why (size bytes). Only tests are
 * built with it.
 */
int space_check(const struct mf_space *space, char *why, size_t size);

#endif
