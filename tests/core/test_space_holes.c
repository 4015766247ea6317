/* SPDX-License-Identifier: MIT */
/*
 * A hundred thousand areas of one page, a hole of one page after each, and two pages asked for: the
 * search that walked everything. Every answer is compared with the linear reference, which still
 * does.
 */
#include "space_fixture.h"
#include "space_model.h"

enum { AREAS = 100000 };

struct holes {
    struct fixture f;
    struct model model;
};

static void open_holes(struct holes *holes, uint64_t low, uint64_t pages_of_area)
{
    const uint64_t step = (pages_of_area + 1) * PAGE, last = low + AREAS * step - 1;
    open_space(&holes->f, low, last, PAGE);
    assert_int_equal(model_create(&holes->model, low, last, PAGE), 0);
    holes->model.room = AREAS + 10;
    holes->model.areas = calloc(holes->model.room, sizeof(struct mf_area));
    holes->model.next = calloc(holes->model.room, sizeof(struct mf_area));
    assert_non_null(holes->model.areas);
    assert_non_null(holes->model.next);
    holes->model.count = AREAS;
    for (uint64_t i = 0; i < AREAS; i++) {
        const struct mf_area area = {low + i * step, pages_of_area * PAGE, MF_TAG_MERGE | i % 3, i};
        holes->model.areas[i] = area;
        assert_int_equal(mf_space_insert(holes->f.space, &area), 0);
    }
}

static void close_holes(struct holes *holes)
{
    assert_areas(&holes->f, holes->model.areas, holes->model.count);
    model_destroy(&holes->model);
    close_space(&holes->f);
}

static void free_range(struct holes *holes, uint64_t start, uint64_t length)
{
    assert_int_equal(mf_space_remove(holes->f.space, start, length), 0);
    assert_int_equal(model_remove(&holes->model, start, length), 0);
}

/* Both give the same answer, which is returned; TOP for none. */
static uint64_t ask(const struct holes *holes, const struct mf_fit *fit)
{
    uint64_t got = TOP, want = TOP;
    const int result = mf_space_find_gap(holes->f.space, fit, &got);
    assert_int_equal(result, model_find_gap(&holes->model, fit, &want));
    assert_int_equal(got, want);
    return got;
}

static uint64_t ask_two_pages(const struct holes *holes, enum mf_policy policy, uint64_t align,
                              uint64_t hint)
{
    const struct mf_fit fit = {
        .length = 2 * PAGE, .align = align, .last = TOP, .hint = hint, .policy = policy};
    return ask(holes, &fit);
}

static void two_pages_do_not_fit_into_a_hundred_thousand_holes_of_one(void **state)
{
    (void)state;
    struct holes holes;
    open_holes(&holes, 0, 1);
    const uint64_t end = 2 * AREAS * PAGE;
    for (uint64_t align = 1; align <= 2 * MIB; align *= 512) {
        assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, align, 0), TOP);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_HIGHEST, align, 0), TOP);
        for (uint64_t hint = 0; hint <= end; hint += end / 8)
            assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, align, hint), TOP);
    }
    close_holes(&holes);
}

static void one_page_fits_into_the_first_the_last_or_the_hinted_hole(void **state)
{
    (void)state;
    struct holes holes;
    open_holes(&holes, 0, 1);
    struct mf_fit fit = {.length = PAGE, .align = 1, .last = TOP, .policy = MF_FIT_LOWEST};
    assert_int_equal(ask(&holes, &fit), PAGE);
    fit.policy = MF_FIT_HIGHEST;
    assert_int_equal(ask(&holes, &fit), (2 * AREAS - 1) * PAGE);
    fit.policy = MF_FIT_HINT;
    for (uint64_t page = 0; page < 2 * AREAS; page += 9973) {
        fit.hint = page * PAGE;
        assert_int_equal(ask(&holes, &fit), (page | 1) * PAGE);
    }
    fit.align = 2 * PAGE; /* every hole is odd */
    assert_int_equal(ask(&holes, &fit), TOP);
    close_holes(&holes);
}

static void the_one_hole_of_two_pages_is_found_wherever_it_is(void **state)
{
    (void)state;
    const uint64_t where[] = {0, 1, 31, AREAS / 2, AREAS / 2 + 1, AREAS - 2, AREAS - 1};
    struct holes holes;
    open_holes(&holes, MIB, 2); /* two pages of area, one of hole; the areas' upper pages go */
    for (size_t i = 0; i < COUNT(where); i++) {
        const uint64_t hole = MIB + (3 * where[i] + 1) * PAGE;
        free_range(&holes, hole, PAGE);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, 1, 0), hole);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_HIGHEST, 1, 0), hole);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, 0), hole);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, hole), hole);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, hole + 1), hole);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, TOP), hole);
        struct mf_fit fit = {
            .length = 2 * PAGE, .align = 1, .low = hole, .last = hole + 2 * PAGE - 1};
        assert_int_equal(ask(&holes, &fit), hole);
        fit.last--;
        assert_int_equal(ask(&holes, &fit), TOP);
        fit.last++;
        fit.low++;
        assert_int_equal(ask(&holes, &fit), TOP);

        const struct mf_area back = {hole, PAGE, MF_TAG_MERGE | where[i] % 3, where[i]};
        assert_int_equal(mf_space_insert(holes.f.space, &back), 0); /* merges: as before */
        assert_int_equal(model_insert(&holes.model, &back), 0);
        assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, 1, 0), TOP);
    }
    close_holes(&holes);
}

static void two_holes_of_two_pages_are_told_apart_by_policy_and_hint(void **state)
{
    (void)state;
    struct holes holes;
    open_holes(&holes, 0, 2);
    const uint64_t lower = (3 * 1000 + 1) * PAGE, upper = (3 * 99000 + 1) * PAGE;
    free_range(&holes, lower, PAGE);
    free_range(&holes, upper, PAGE);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, 1, 0), lower);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HIGHEST, 1, 0), upper);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, lower), lower);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, lower + 1), upper);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, upper), upper);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 1, upper + 1), lower);
    close_holes(&holes);
}

static void an_alignment_of_two_mebibytes_is_found_among_misfitting_holes(void **state)
{
    (void)state;
    struct holes holes;
    open_holes(&holes, 0, 1);
    /* long holes that begin a page after a multiple of 2 MiB, short ones that begin on it, and one
     * of each kind that fits */
    for (uint64_t i = 1; i < 300; i++) {
        const uint64_t boundary = 2 * MIB * i;
        free_range(&holes, boundary + PAGE,
                   2 * MIB - 2 * PAGE); /* up to, not with, the last hole */
        if (i == 100 || i == 200)
            free_range(&holes, boundary, PAGE);
    }
    assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, 2 * MIB, 0), 200 * MIB);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HIGHEST, 2 * MIB, 0), 400 * MIB);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 2 * MIB, 200 * MIB), 200 * MIB);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 2 * MIB, 200 * MIB + 1), 400 * MIB);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_HINT, 2 * MIB, 400 * MIB + 1), 200 * MIB);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, 4 * MIB, 0), 200 * MIB);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, 16 * MIB, 0), 400 * MIB);
    assert_int_equal(ask_two_pages(&holes, MF_FIT_LOWEST, 1024 * MIB, 0), TOP);
    close_holes(&holes);
}

static void among_all_these_holes_random_changes_give_the_linear_answers(void **state)
{
    (void)state;
    struct holes holes;
    open_holes(&holes, 7 * PAGE, 1);
    uint64_t seed = 39;
    for (unsigned i = 0; i < 1000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t address = holes.model.low + (seed >> 40) % (2 * AREAS) * PAGE;
        const uint64_t length = (1 + (seed >> 36) % 4) * PAGE;
        const struct mf_fit fit = {.length = length,
                                   .align = PAGE << (seed >> 34) % 4,
                                   .low = i % 8 == 0 ? address : 0,
                                   .last = i % 8 == 1 ? address : TOP,
                                   .hint = address,
                                   .policy = (enum mf_policy)(i % 3)};
        if (address + length - 1 <= holes.model.last)
            free_range(&holes, address, length);
        struct mf_area got = {0}, want = {0};
        assert_int_equal(mf_space_place(holes.f.space, &fit, i, 0, &got),
                         model_place(&holes.model, &fit, i, 0, &want));
        assert_same_area(&got, &want);
    }
    close_holes(&holes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_pages_do_not_fit_into_a_hundred_thousand_holes_of_one),
        cmocka_unit_test(one_page_fits_into_the_first_the_last_or_the_hinted_hole),
        cmocka_unit_test(the_one_hole_of_two_pages_is_found_wherever_it_is),
        cmocka_unit_test(two_holes_of_two_pages_are_told_apart_by_policy_and_hint),
        cmocka_unit_test(an_alignment_of_two_mebibytes_is_found_among_misfitting_holes),
        cmocka_unit_test(among_all_these_holes_random_changes_give_the_linear_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
