/* SPDX-License-Identifier: MIT */
/*
 * Random operations on a space: a stream of choices, from a generator of random numbers or from the
 * bytes of a fuzzer, becomes first a terrain (which space, how full, what kind of areas), then
 * operations that suit it: mostly sensible ones near the edges of what is there, some nonsense.
 */
#ifndef TESTS_CORE_SPACE_OPS_H
#define TESTS_CORE_SPACE_OPS_H

#include "space_pair.h"

/* Where choices come from: a fuzzer's bytes (0 when they have run out) or, endless, a seed. */
struct choices {
    const unsigned char *bytes;
    size_t left;
    uint64_t seed;
    bool endless;
};

struct terrain {
    uint64_t low, last, granule;
    uint64_t hubs[8];     /* areas gather around these addresses */
    uint64_t spread;      /* granules around a hub */
    uint64_t long_length; /* granules: the longest of the usual lengths */
    uint64_t tags[8];
    unsigned tag_count; /* 0: every tag is a new one */
    unsigned delta_mode;
    unsigned align_mode;
    unsigned nonsense; /* one in so many operations is meant to be refused; 0: none */
    unsigned denial; /* 0: allocations succeed, 1: each fails once, 2: famine above half a crowd */
    size_t crowd;    /* so many areas are many: above, the phase turns to removing */
};

enum phase { PHASE_GROW, PHASE_CHURN, PHASE_RANGES, PHASE_SHRINK, PHASES };

/* 0 <= choice < count */
uint64_t choose(struct choices *choices, uint64_t count);

void terrain_choose(struct terrain *terrain, struct choices *choices, size_t crowd);
void op_choose(struct op *op, const struct terrain *terrain, const struct model *model,
               enum phase phase, struct choices *choices);

#endif
