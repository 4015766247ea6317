/* SPDX-License-Identifier: MIT */
/*
 * A space and its linear reference, side by side. Every operation goes to both; a difference in the
 * answer, in the areas around the place, in the allocator's books or in the invariants is put into
 * words in `why`. The random test and the fuzz target are two sources of operations for it.
 */
#ifndef TESTS_CORE_SPACE_PAIR_H
#define TESTS_CORE_SPACE_PAIR_H

#include "checked_alloc.h"
#include "space_model.h"

enum op_kind {
    OP_INSERT,
    OP_PLACE,
    OP_REMOVE,
    OP_RETAG,
    OP_FIND_GAP,
    OP_FIND,
    OP_NEXT,
    OP_STATS,
    OP_RESERVE,
};

struct op {
    enum op_kind kind;
    uint64_t start, length; /* insert, remove, retag; start is also the address of find and next */
    uint64_t tag, delta;    /* insert; place, whose offset is delta + where the model places it */
    uint64_t clear, set;    /* retag */
    struct mf_fit fit;      /* place, find_gap */
    size_t operations;      /* reserve */
    size_t fail_at;         /* the k-th allocation within fails; 0: none */
    bool famine;            /* all of them fail, and the operation is not repeated */
};

struct pair {
    struct mf_space *space;
    struct model model;
    struct checked_alloc memory;
    uint64_t reserved;   /* so many operations may not allocate */
    uint64_t operations; /* so far */
    uint64_t denied;     /* so many of them met a failing allocation */
    unsigned full_every; /* a full comparison each so many operations */
    char why[1024];      /* what differs; empty while nothing does */
};

/* False when creation differs from the reference; true with pair->space NULL when both refuse. */
bool pair_create(struct pair *pair, uint64_t low, uint64_t last, uint64_t granule);
/* False when something leaked. */
bool pair_destroy(struct pair *pair);

/* Runs one operation on both. False: they differ, see why. */
bool pair_apply(struct pair *pair, const struct op *op);

/* Compares all areas, the stats, the books, and checks the invariants. */
bool pair_compare(struct pair *pair);

void op_print(const struct op *op, char *text, size_t size);

#endif
