/* SPDX-License-Identifier: MIT */
/* Finding gaps: every policy, bounds, alignments, and gaps of all widths. */
#include "space_fixture.h"
#include "space_model.h"

static const enum mf_policy policies[] = {MF_FIT_LOWEST, MF_FIT_HIGHEST, MF_FIT_HINT};

/* What find_gap answers: an address, or a negative errno as a huge one. */
static uint64_t gap(const struct fixture *fixture, struct mf_fit fit)
{
    uint64_t start = 0x1234567;
    const int result = mf_space_find_gap(fixture->space, &fit, &start);
    if (result != 0)
        assert_int_equal(start, 0x1234567);
    return result == 0 ? start : (uint64_t)(int64_t)result;
}

static struct mf_fit fit_of(enum mf_policy policy, uint64_t length)
{
    return (struct mf_fit){.length = length, .align = 1, .last = TOP, .policy = policy};
}

static const uint64_t NO_SPACE = (uint64_t)(int64_t)-ENOSPC;
static const uint64_t INVALID = (uint64_t)(int64_t)-EINVAL;

/* Gaps of 1, 3, 2, 3, and 5 pages in pages 16 to 63, one page of area between them, the rest full:
 * 16 free, 18-20 free, 22-23 free, 25-27 free, 59-63 free. */
static void open_five_gaps(struct fixture *fixture)
{
    open_space(fixture, 16 * PAGE, 64 * PAGE - 1, PAGE);
    const uint64_t areas[][2] = {{17, 1}, {21, 1}, {24, 1}, {28, 31}};
    for (size_t i = 0; i < COUNT(areas); i++)
        assert_int_equal(insert(fixture, areas[i][0] * PAGE, areas[i][1] * PAGE, i, 0), 0);
}

static void lowest_gives_the_first_gap_that_is_long_enough(void **state)
{
    (void)state;
    struct fixture f;
    open_five_gaps(&f);
    const uint64_t want[] = {16, 18, 18, 59, 59};
    for (uint64_t pages = 1; pages <= 5; pages++)
        assert_int_equal(gap(&f, fit_of(MF_FIT_LOWEST, pages * PAGE)), want[pages - 1] * PAGE);
    assert_int_equal(gap(&f, fit_of(MF_FIT_LOWEST, 6 * PAGE)), NO_SPACE);
    assert_int_equal(gap(&f, fit_of(MF_FIT_LOWEST, TOP - PAGE + 1)), NO_SPACE);
    close_space(&f);
}

static void highest_gives_the_end_of_the_last_gap_that_is_long_enough(void **state)
{
    (void)state;
    struct fixture f;
    open_five_gaps(&f);
    for (uint64_t pages = 1; pages <= 5; pages++)
        assert_int_equal(gap(&f, fit_of(MF_FIT_HIGHEST, pages * PAGE)), (64 - pages) * PAGE);
    assert_int_equal(insert(&f, 59 * PAGE, 5 * PAGE, 9, 0), 0);
    const uint64_t want[] = {27, 26, 25};
    for (uint64_t pages = 1; pages <= 3; pages++)
        assert_int_equal(gap(&f, fit_of(MF_FIT_HIGHEST, pages * PAGE)), want[pages - 1] * PAGE);
    assert_int_equal(gap(&f, fit_of(MF_FIT_HIGHEST, 4 * PAGE)), NO_SPACE);
    close_space(&f);
}

static void a_hint_gives_the_first_fit_at_or_above_it_or_else_the_lowest_of_all(void **state)
{
    (void)state;
    struct fixture f;
    open_five_gaps(&f);
    const struct {
        uint64_t hint, pages, want;
    } cases[] = {
        {0, 1, 16},
        {16 * PAGE, 1, 16},
        {16 * PAGE + 1, 1, 18}, /* a hint need not be aligned */
        {17 * PAGE, 1, 18},     /* in an area */
        {19 * PAGE, 1, 19},     /* within a gap */
        {19 * PAGE, 2, 19},     /* what is left of it is just enough */
        {19 * PAGE, 3, 25},     /* and now too short */
        {19 * PAGE - 1, 2, 19},
        {20 * PAGE + 1, 1, 22},
        {26 * PAGE, 3, 59},
        {61 * PAGE, 3, 61},
        {62 * PAGE, 3, 18}, /* none above: the lowest of all */
        {63 * PAGE, 1, 63},
        {63 * PAGE + 1, 1, 16},
        {64 * PAGE, 1, 16}, /* beyond the space */
        {TOP, 2, 18},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mf_fit fit = fit_of(MF_FIT_HINT, cases[i].pages * PAGE);
        fit.hint = cases[i].hint;
        assert_int_equal(gap(&f, fit), cases[i].want * PAGE);
    }
    struct mf_fit fit = fit_of(MF_FIT_HINT, 6 * PAGE);
    fit.hint = 30 * PAGE;
    assert_int_equal(gap(&f, fit), NO_SPACE);
    close_space(&f);
}

static void a_hint_counts_only_within_the_bounds(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    struct mf_fit fit = fit_of(MF_FIT_HINT, PAGE);
    fit.low = 100 * PAGE;
    fit.last = 200 * PAGE - 1;
    fit.hint = 50 * PAGE;
    assert_int_equal(gap(&f, fit), 100 * PAGE);
    fit.hint = 150 * PAGE;
    assert_int_equal(gap(&f, fit), 150 * PAGE);
    fit.hint = 199 * PAGE;
    assert_int_equal(gap(&f, fit), 199 * PAGE);
    fit.hint = 199 * PAGE + 1;
    assert_int_equal(gap(&f, fit), 100 * PAGE);
    fit.hint = TOP;
    assert_int_equal(gap(&f, fit), 100 * PAGE);
    assert_int_equal(insert(&f, 100 * PAGE, 100 * PAGE, 1, 0), 0);
    assert_int_equal(gap(&f, fit), NO_SPACE);
    close_space(&f);
}

static void bounds_cut_gaps_at_both_ends_and_need_not_be_aligned(void **state)
{
    (void)state;
    struct fixture f;
    open_five_gaps(&f);
    const struct {
        uint64_t low, last, pages, lowest, highest;
    } cases[] = {
        {0, TOP, 2, 18, 62},
        {19 * PAGE, 21 * PAGE - 1, 2, 19, 19},
        {19 * PAGE, 21 * PAGE - 2, 2, 0, 0},
        {19 * PAGE + 1, 24 * PAGE - 1, 2, 22, 22},
        {19 * PAGE + 1, 21 * PAGE - 1, 1, 20, 20},
        {18 * PAGE, 27 * PAGE, 1, 18, 26},
        {18 * PAGE, 28 * PAGE - 1, 3, 18, 25},
        {18 * PAGE, 28 * PAGE - 2, 3, 18, 18},
        {60 * PAGE, 64 * PAGE - 1, 4, 60, 60},
        {60 * PAGE, 64 * PAGE - 1, 5, 0, 0},
        {60 * PAGE, TOP, 4, 60, 60},
        {0, 16 * PAGE - 1, 1, 0, 0}, /* wholly outside */
        {64 * PAGE, TOP, 1, 0, 0},
        {0, 0, 1, 0, 0},
        {TOP, TOP, 1, 0, 0},
        {16 * PAGE, 16 * PAGE, 1, 0, 0}, /* shorter than a page */
        {0, 17 * PAGE - 1, 1, 16, 16},
        {28 * PAGE, 59 * PAGE - 1, 1, 0, 0}, /* only an area */
        {30 * PAGE, 59 * PAGE, 1, 0, 0},
        {30 * PAGE, 60 * PAGE - 1, 1, 59, 59},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t policy = 0; policy < COUNT(policies); policy++) {
            struct mf_fit fit = fit_of(policies[policy], cases[i].pages * PAGE);
            fit.low = cases[i].low;
            fit.last = cases[i].last;
            const uint64_t want = fit.policy == MF_FIT_HIGHEST ? cases[i].highest : cases[i].lowest;
            assert_int_equal(gap(&f, fit), want ? want * PAGE : NO_SPACE);
        }
    }
    close_space(&f);
}

static void a_piece_fills_the_largest_gap_to_its_last_page_under_every_policy(void **state)
{
    (void)state;
    for (size_t policy = 0; policy < COUNT(policies); policy++) {
        struct fixture f;
        open_five_gaps(&f);
        struct mf_fit fit = fit_of(policies[policy], 5 * PAGE);
        fit.hint = 40 * PAGE;
        struct mf_area placed;
        assert_int_equal(mf_space_place(f.space, &fit, 1, 0, &placed), 0);
        assert_int_equal(placed.start, 59 * PAGE);
        assert_int_equal(gap(&f, fit), NO_SPACE);
        assert_int_equal(mf_space_place(f.space, &fit, 1, 0, &placed), -ENOSPC);
        assert_int_equal(placed.start, 59 * PAGE);
        close_space(&f);
    }
}

static void every_alignment_from_one_byte_to_half_of_everything_is_kept(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, 1);
    assert_int_equal(insert(&f, 0, 3, 1, 0), 0);
    assert_int_equal(insert(&f, TOP - 4, 5, 1, 0), 0);
    for (unsigned power = 0; power < 64; power++) {
        const uint64_t align = UINT64_C(1) << power;
        struct mf_fit fit = fit_of(MF_FIT_LOWEST, 3);
        fit.align = align;
        assert_int_equal(gap(&f, fit), align < 3 ? align == 2 ? 4 : 3 : align);
        fit.policy = MF_FIT_HIGHEST;
        assert_int_equal(gap(&f, fit), (TOP - 4 - 3) & ~(align - 1));
        fit.policy = MF_FIT_HINT;
        fit.hint = align + 1;
        const uint64_t above = power == 0 ? 3 : power == 1 ? 4 : 2 * align;
        assert_int_equal(gap(&f, fit), power == 63 ? align : above);
    }
    close_space(&f);
}

static void alignments_below_the_granule_ask_for_nothing_more(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, PAGE, TOP, PAGE);
    for (uint64_t align = 1; align <= PAGE; align *= 2) {
        struct mf_fit fit = fit_of(MF_FIT_LOWEST, PAGE);
        fit.align = align;
        assert_int_equal(gap(&f, fit), PAGE);
        fit.low = PAGE + 1;
        assert_int_equal(gap(&f, fit), 2 * PAGE);
    }
    close_space(&f);
}

static void alignment_is_of_the_address_and_not_from_the_start_of_the_space(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 3 * PAGE, 3 * PAGE + 64 * MIB - 1, PAGE);
    struct mf_fit fit = fit_of(MF_FIT_LOWEST, PAGE);
    fit.align = 2 * MIB;
    assert_int_equal(gap(&f, fit), 2 * MIB);
    fit.policy = MF_FIT_HIGHEST;
    assert_int_equal(gap(&f, fit), 64 * MIB);
    fit.length = 4 * PAGE;
    assert_int_equal(gap(&f, fit), 62 * MIB);
    fit.align = 128 * MIB;
    assert_int_equal(gap(&f, fit), NO_SPACE);
    close_space(&f);
}

static void zero_is_aligned_to_everything(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    struct mf_fit fit = fit_of(MF_FIT_LOWEST, PAGE);
    fit.align = UINT64_C(1) << 63;
    assert_int_equal(gap(&f, fit), 0);
    assert_int_equal(insert(&f, 0, PAGE, 1, 0), 0);
    assert_int_equal(gap(&f, fit), UINT64_C(1) << 63);
    assert_int_equal(insert(&f, UINT64_C(1) << 63, PAGE, 1, 0), 0);
    assert_int_equal(gap(&f, fit), NO_SPACE);
    close_space(&f);
}

static void a_long_gap_without_an_aligned_address_is_passed_over(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, 64 * MIB - 1, PAGE);
    /* all is full but: a long gap that holds no multiple of 2 MiB that leaves room for two pages, a
     * short aligned one, and an aligned one that is long enough */
    assert_int_equal(insert(&f, 0, 64 * MIB, 1, 0), 0);
    assert_int_equal(mf_space_remove(f.space, 2 * MIB + PAGE, 2 * MIB), 0);
    assert_int_equal(mf_space_remove(f.space, 10 * MIB, PAGE), 0);
    assert_int_equal(mf_space_remove(f.space, 20 * MIB - PAGE, 3 * PAGE), 0);
    struct mf_fit fit = fit_of(MF_FIT_LOWEST, 2 * PAGE);
    fit.align = 2 * MIB;
    assert_int_equal(gap(&f, fit), 20 * MIB);
    fit.policy = MF_FIT_HIGHEST;
    assert_int_equal(gap(&f, fit), 20 * MIB);
    fit.policy = MF_FIT_HINT;
    fit.hint = 30 * MIB;
    assert_int_equal(gap(&f, fit), 20 * MIB);
    fit.length = 3 * PAGE;
    assert_int_equal(gap(&f, fit), NO_SPACE);
    fit.length = PAGE;
    fit.hint = 5 * MIB;
    assert_int_equal(gap(&f, fit), 10 * MIB);
    close_space(&f);
}

static void a_terabyte_gap_beside_a_page_is_used_for_what_is_asked(void **state)
{
    (void)state;
    struct fixture f;
    const uint64_t tib = UINT64_C(1) << 40;
    open_space(&f, 0, 4 * tib - 1, PAGE);
    assert_int_equal(insert(&f, 0, tib, 1, 0), 0);
    assert_int_equal(insert(&f, tib + PAGE, PAGE, 1, 0), 0);
    assert_int_equal(insert(&f, 2 * tib + 2 * PAGE, PAGE, 1, 0), 0);
    assert_int_equal(insert(&f, 2 * tib + 4 * PAGE, 2 * tib - 4 * PAGE, 1, 0), 0);
    assert_int_equal(gap(&f, fit_of(MF_FIT_LOWEST, PAGE)), tib);
    assert_int_equal(gap(&f, fit_of(MF_FIT_LOWEST, 2 * PAGE)), tib + 2 * PAGE);
    assert_int_equal(gap(&f, fit_of(MF_FIT_LOWEST, tib)), tib + 2 * PAGE);
    assert_int_equal(gap(&f, fit_of(MF_FIT_LOWEST, tib + PAGE)), NO_SPACE);
    assert_int_equal(gap(&f, fit_of(MF_FIT_HIGHEST, PAGE)), 2 * tib + 3 * PAGE);
    assert_int_equal(gap(&f, fit_of(MF_FIT_HIGHEST, 2 * PAGE)), 2 * tib);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.largest_gap, tib);
    assert_int_equal(stats.free, tib + 2 * PAGE);
    close_space(&f);
}

static void bad_fits_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_five_gaps(&f);
    struct dump before;
    take_dump(&before, f.space);
    const struct mf_fit bad[] = {
        {.length = 0, .align = 1, .last = TOP},
        {.length = 1, .align = 1, .last = TOP},
        {.length = PAGE + 1, .align = 1, .last = TOP},
        {.length = TOP, .align = 1, .last = TOP},
        {.length = PAGE, .align = 0, .last = TOP},
        {.length = PAGE, .align = 3, .last = TOP},
        {.length = PAGE, .align = PAGE + 1, .last = TOP},
        {.length = PAGE, .align = TOP, .last = TOP},
        {.length = PAGE, .align = 1, .low = 1, .last = 0},
        {.length = PAGE, .align = 1, .low = TOP, .last = 40 * PAGE},
        {.length = PAGE, .align = 1, .last = TOP, .policy = (enum mf_policy)3},
        {.length = PAGE, .align = 1, .last = TOP, .policy = (enum mf_policy)99},
        {.length = 100 * PAGE, .align = 6, .last = TOP}, /* bad before too long */
        {.length = 100 * PAGE, .align = 1, .last = TOP, .policy = (enum mf_policy)3},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct mf_area area = {1, 2, 3, 4};
        assert_int_equal(gap(&f, bad[i]), INVALID);
        assert_int_equal(mf_space_place(f.space, &bad[i], 1, 0, &area), -EINVAL);
        assert_int_equal(mf_space_place(f.space, &bad[i], 1, 0, NULL), -EINVAL);
        assert_same_area(&area, &(struct mf_area){1, 2, 3, 4});
    }
    assert_unchanged(&before, f.space);
    close_space(&f);
}

static void a_placed_piece_has_its_offset_as_delta_and_may_go_unreported(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 16 * PAGE, TOP, PAGE);
    struct mf_fit fit = fit_of(MF_FIT_LOWEST, PAGE);
    struct mf_area got;
    assert_int_equal(mf_space_place(f.space, &fit, 5, 3 * PAGE, &got), 0);
    assert_same_area(&got, &(struct mf_area){16 * PAGE, PAGE, 5, UINT64_C(0) - 13 * PAGE});
    assert_int_equal(mf_space_place(f.space, &fit, 5, 100, NULL), 0);
    assert_int_equal(mf_space_find(f.space, 17 * PAGE, &got), 0);
    assert_same_area(&got, &(struct mf_area){17 * PAGE, PAGE, 5, 100 - 17 * PAGE});
    close_space(&f);
}

/* Every gap of a space of 40 granules in 300 random fillings, asked in every way. */
static void small_spaces_answer_every_question_as_the_linear_reference(void **state)
{
    (void)state;
    const uint64_t low = TOP - 39;
    uint64_t seed = 99;
    for (unsigned filling = 0; filling < 300; filling++) {
        struct fixture f;
        struct model model;
        open_space(&f, low, TOP, 1);
        assert_int_equal(model_create(&model, low, TOP, 1), 0);
        for (unsigned i = 0; i < 40; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const struct mf_area area = {low + i, 1 + (seed >> 60) % (40 - i), seed >> 40 & 1, 0};
            if (seed >> 62 < filling % 4)
                assert_int_equal(mf_space_insert(f.space, &area), model_insert(&model, &area));
        }
        for (uint64_t from = 0; from < 40; from += 1 + filling % 3) {
            for (unsigned way = 0; way < 3 * 6 * 4; way++) {
                struct mf_fit fit = fit_of(policies[way % 3], 1 + way / 3 % 6);
                fit.align = UINT64_C(1) << way / 18;
                fit.hint = low + from;
                if (fit.policy != MF_FIT_HINT)
                    fit.low = low + from;
                fit.last = filling % 2 ? TOP : TOP - from / 2;
                uint64_t got = 1, want = 1;
                assert_int_equal(mf_space_find_gap(f.space, &fit, &got),
                                 model_find_gap(&model, &fit, &want));
                assert_int_equal(got, want);
            }
        }
        model_destroy(&model);
        close_space(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_gives_the_first_gap_that_is_long_enough),
        cmocka_unit_test(highest_gives_the_end_of_the_last_gap_that_is_long_enough),
        cmocka_unit_test(a_hint_gives_the_first_fit_at_or_above_it_or_else_the_lowest_of_all),
        cmocka_unit_test(a_hint_counts_only_within_the_bounds),
        cmocka_unit_test(bounds_cut_gaps_at_both_ends_and_need_not_be_aligned),
        cmocka_unit_test(a_piece_fills_the_largest_gap_to_its_last_page_under_every_policy),
        cmocka_unit_test(every_alignment_from_one_byte_to_half_of_everything_is_kept),
        cmocka_unit_test(alignments_below_the_granule_ask_for_nothing_more),
        cmocka_unit_test(alignment_is_of_the_address_and_not_from_the_start_of_the_space),
        cmocka_unit_test(zero_is_aligned_to_everything),
        cmocka_unit_test(a_long_gap_without_an_aligned_address_is_passed_over),
        cmocka_unit_test(a_terabyte_gap_beside_a_page_is_used_for_what_is_asked),
        cmocka_unit_test(bad_fits_are_refused_and_change_nothing),
        cmocka_unit_test(a_placed_piece_has_its_offset_as_delta_and_may_go_unreported),
        cmocka_unit_test(small_spaces_answer_every_question_as_the_linear_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
