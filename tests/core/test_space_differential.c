/* SPDX-License-Identifier: MIT */
/*
 * Ten million random operations on a space and on its linear reference, in rounds. A round is one
 * terrain, filled, churned, worked on in wide ranges, emptied, and filled again, with its own seed.
 *
 * MAPFOLD_TEST_OPERATIONS  how many operations in all (default: ten million, see scale.h)
 * MAPFOLD_TEST_SEED        the seed of the first round; a failure prints the one to give here
 */
#include <inttypes.h>
#include <stdio.h>

#include "../unit.h"
#include "scale.h"
#include "space_ops.h"

struct crowd {
    size_t areas;        /* about so many live areas */
    unsigned operations; /* so many in one round */
    unsigned share;      /* so many rounds of a hundred */
};

/* The reference walks everything, so the large ones are rare and short. */
static const struct crowd crowds[] = {
    {2, 1000, 8},      {40, 10000, 15},  {200, 30000, 27},
    {1500, 60000, 41}, {6000, 60000, 8}, {30000, 120000, 1},
};

static const struct crowd *choose_crowd(struct choices *choices)
{
    unsigned dice = (unsigned)choose(choices, 100);
    const struct crowd *crowd = crowds;
    while (dice >= crowd->share)
        dice -= (crowd++)->share;
    return crowd;
}

static void explain(const struct pair *pair, const struct op *op, uint64_t seed)
{
    char text[512];
    op_print(op, text, sizeof(text));
    print_error("space and reference differ: %s\nin operation %" PRIu64 " (areas: %zu): %s\n"
                "space: [%#" PRIx64 ", %#" PRIx64 "] granule %#" PRIx64
                "\nto repeat: MAPFOLD_TEST_SEED=%#" PRIx64 "\n",
                pair->why, pair->operations, pair->model.count, text, pair->model.low,
                pair->model.last, pair->model.granule, seed);
}

/* Removes everything by one range; then nothing but one gap may be left. */
static bool empty(struct pair *pair)
{
    const uint64_t low = pair->model.low, half = pair->model.last / 2 - low / 2 + 1;
    const struct op lower = {.kind = OP_REMOVE, .start = low, .length = half};
    const struct op upper = {.kind = OP_REMOVE, .start = low + half, .length = half};
    return pair_apply(pair, &lower) && pair_apply(pair, &upper) && pair_compare(pair);
}

/* Growing ends when the space is crowded, shrinking when it is nearly empty, and any phase by
 * chance. */
static bool phase_is_over(enum phase phase, const struct model *model, size_t crowd,
                          struct choices *choices)
{
    if (phase == PHASE_GROW && model->count >= crowd)
        return true;
    if (phase == PHASE_SHRINK && model->count <= crowd / 16)
        return true;
    const bool directed = phase == PHASE_GROW || phase == PHASE_SHRINK;
    return choose(choices, directed ? 8 * crowd + 50 : crowd / 2 + 50) == 0;
}

/* Returns how many operations were run; 0 after a difference. */
static uint64_t run_round(uint64_t seed, uint64_t most, uint64_t *denied)
{
    struct choices choices = {.seed = seed, .endless = true};
    const struct crowd *crowd = choose_crowd(&choices);
    struct terrain terrain;
    terrain_choose(&terrain, &choices, crowd->areas);
    const uint64_t count = crowd->operations < most ? crowd->operations : most;

    struct pair pair;
    struct op op = {.kind = OP_STATS};
    bool same = pair_create(&pair, terrain.low, terrain.last, terrain.granule);
    enum phase phase = PHASE_GROW;
    while (same && pair.operations < count) {
        if (phase_is_over(phase, &pair.model, crowd->areas, &choices))
            phase = (enum phase)((phase + 1) % PHASES);
        op_choose(&op, &terrain, &pair.model, phase, &choices);
        same = pair_apply(&pair, &op);
    }
    same = same && pair_compare(&pair) && empty(&pair);
    const uint64_t done = pair.operations;
    *denied += pair.denied;
    if (!same)
        explain(&pair, &op, seed);
    if (!pair_destroy(&pair)) {
        print_error("%s; to repeat: MAPFOLD_TEST_SEED=%#" PRIx64 "\n", pair.why, seed);
        same = false;
    }
    return same ? done : 0;
}

static void ten_million_random_operations_are_answered_as_by_the_linear_reference(void **state)
{
    (void)state;
    const uint64_t wanted = number_from_environment("MAPFOLD_TEST_OPERATIONS", scaled(10000000));
    const uint64_t first_seed = number_from_environment("MAPFOLD_TEST_SEED", 1);
    uint64_t done = 0, denied = 0, rounds = 0;
    while (done < wanted) {
        const uint64_t ran = run_round(first_seed + rounds++, wanted - done, &denied);
        assert_int_not_equal(ran, 0);
        done += ran;
    }
    print_message("%" PRIu64 " operations in %" PRIu64 " rounds, seeds from %" PRIu64 "; %" PRIu64
                  " of them met a failing allocation\n",
                  done, rounds, first_seed, denied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_million_random_operations_are_answered_as_by_the_linear_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
