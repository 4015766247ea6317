/* SPDX-License-Identifier: MIT */
/* What a space is inside: for space.c, and for space_check.c, which tests its invariants. */
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

/*
 * Checks every invariant of space.c. 0, or -1 with a sentence in why (size bytes). Only tests are
 * built with it.
 */
int space_check(const struct mf_space *space, char *why, size_t size);

#endif
