/* SPDX-License-Identifier: MIT */
/*
 * A fuzzer's bytes as operations on a space and its linear reference: the first choose a terrain
 * and how many areas stand there to begin with, the others the operations. Any difference aborts.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz_space.h"
#include "space_ops.h"

enum { MOST_OPERATIONS = 4000 };

static _Noreturn void stop(const struct pair *pair, const struct op *op)
{
    char text[512];
    op_print(op, text, sizeof(text));
    fprintf(stderr, "space and reference differ: %s\nin operation %llu (areas: %zu): %s\n",
            pair->why, (unsigned long long)pair->operations, pair->model.count, text);
    abort();
}

/* MAPFOLD_FUZZ_TRACE in the environment: every operation is told before it is run. */
static void run(struct pair *pair, const struct op *op)
{
    if (getenv("MAPFOLD_FUZZ_TRACE")) {
        char text[512];
        op_print(op, text, sizeof(text));
        fprintf(stderr, "%s\n", text);
    }
    if (!pair_apply(pair, op))
        stop(pair, op);
}

/* Areas to begin with, so that few bytes reach a tree of some height. */
static void prefill(struct pair *pair, const struct terrain *terrain, struct choices *choices)
{
    static const unsigned operations[] = {0, 0, 0, 0, 30, 90, 300, 1500};
    const unsigned count = operations[choose(choices, 8)];
    struct choices more = {.seed = choose(choices, 256), .endless = true};
    for (unsigned i = 0; i < count; i++) {
        struct op op;
        op_choose(&op, terrain, &pair->model, PHASE_GROW, &more);
        run(pair, &op);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    struct choices choices = {.bytes = bytes, .left = size};
    struct terrain terrain;
    terrain_choose(&terrain, &choices, 2);
    terrain.crowd = 2000;

    struct op op = {.kind = OP_STATS};
    struct pair pair;
    if (!pair_create(&pair, terrain.low, terrain.last, terrain.granule))
        stop(&pair, &op);
    prefill(&pair, &terrain, &choices);
    pair.full_every = pair.model.count < 100 ? 1 : 64;
    enum phase phase = PHASE_CHURN;
    for (unsigned i = 0; choices.left > 0 && i < MOST_OPERATIONS; i++) {
        if (i % 32 == 0)
            phase = (enum phase)choose(&choices, PHASES);
        op_choose(&op, &terrain, &pair.model, phase, &choices);
        run(&pair, &op);
    }
    if (!pair_compare(&pair) || !pair_destroy(&pair))
        stop(&pair, &op);
    return 0;
}
