/* SPDX-License-Identifier: MIT */
/* Retagging: what mprotect and madvise do to a range, in terms of areas. */
#include "space_fixture.h"

static const uint64_t MERGE = MF_TAG_MERGE;

static void a_part_of_an_area_gets_a_tag_of_its_own(void **state)
{
    (void)state;
    const struct {
        uint64_t first, pages;
        size_t areas;
    } parts[] = {{10, 10, 1}, {10, 3, 2}, {17, 3, 2}, {12, 5, 3}};
    for (size_t i = 0; i < COUNT(parts); i++) {
        for (uint64_t merge = 0; merge < 2; merge++) {
            struct fixture f;
            open_space(&f, 0, TOP, PAGE);
            const uint64_t tag = merge * MERGE | 1;
            const uint64_t start = parts[i].first * PAGE, length = parts[i].pages * PAGE;
            assert_int_equal(insert(&f, 10 * PAGE, 10 * PAGE, tag, 7), 0);
            assert_int_equal(mf_space_retag(f.space, start, length, 1, 2), 0);
            struct mf_area want[3];
            size_t count = 0;
            if (start > 10 * PAGE)
                want[count++] = (struct mf_area){10 * PAGE, start - 10 * PAGE, tag, 7};
            want[count++] = (struct mf_area){start, length, (tag & ~UINT64_C(1)) | 2, 7};
            if (start + length < 20 * PAGE)
                want[count++] =
                    (struct mf_area){start + length, 20 * PAGE - start - length, tag, 7};
            assert_int_equal(count, parts[i].areas);
            assert_areas(&f, want, count);

            /* and back: one again if it may merge */
            assert_int_equal(mf_space_retag(f.space, start, length, 2, 1), 0);
            if (merge)
                assert_areas(&f, &(struct mf_area){10 * PAGE, 10 * PAGE, tag, 7}, 1);
            else
                for (size_t j = 0; j < count; j++)
                    want[j].tag = tag;
            if (!merge)
                assert_areas(&f, want, count);
            close_space(&f);
        }
    }
}

static void clear_and_set_work_on_each_area_by_itself(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    const struct mf_area before[] = {
        {PAGE, PAGE, 0x0f, 1}, {2 * PAGE, PAGE, 0xf0, 2}, {5 * PAGE, 2 * PAGE, TOP, 3}};
    for (size_t i = 0; i < COUNT(before); i++)
        assert_int_equal(mf_space_insert(f.space, &before[i]), 0);
    assert_int_equal(mf_space_retag(f.space, 0, 16 * PAGE, 0x3c, 0x100), 0);
    const struct mf_area after[] = {{PAGE, PAGE, 0x103, 1},
                                    {2 * PAGE, PAGE, 0x1c0, 2},
                                    {5 * PAGE, 2 * PAGE, TOP & ~UINT64_C(0x3c), 3}};
    assert_areas(&f, after, 3);
    assert_int_equal(mf_space_retag(f.space, 0, 16 * PAGE, TOP, 0x42), 0);
    for (size_t i = 0; i < COUNT(before); i++) {
        struct mf_area got;
        assert_int_equal(mf_space_find(f.space, before[i].start, &got), 0);
        assert_int_equal(got.tag, 0x42);
        assert_int_equal(got.delta, before[i].delta);
    }
    close_space(&f);
}

static void setting_a_bit_that_is_cleared_too_sets_it(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(insert(&f, 0, PAGE, 0, 0), 0);
    assert_int_equal(mf_space_retag(f.space, 0, PAGE, TOP, 6), 0);
    assert_areas(&f, &(struct mf_area){0, PAGE, 6, 0}, 1);
    close_space(&f);
}

static void a_range_that_becomes_equal_merges_with_both_neighbours(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < 9; i++)
        assert_int_equal(insert(&f, i * PAGE, PAGE, MERGE | i, 0), 0);
    assert_int_equal(mf_space_retag(f.space, 3 * PAGE, 3 * PAGE, TOP, MERGE | 2), 0);
    const struct mf_area want[] = {{0, PAGE, MERGE, 0},
                                   {PAGE, PAGE, MERGE | 1, 0},
                                   {2 * PAGE, 4 * PAGE, MERGE | 2, 0},
                                   {6 * PAGE, PAGE, MERGE | 6, 0},
                                   {7 * PAGE, PAGE, MERGE | 7, 0},
                                   {8 * PAGE, PAGE, MERGE | 8, 0}};
    assert_areas(&f, want, COUNT(want));
    assert_int_equal(mf_space_retag(f.space, 3 * PAGE, 2 * PAGE, TOP, MERGE | 9), 0);
    assert_int_equal(mf_space_retag(f.space, 0, 9 * PAGE, TOP, MERGE | 2), 0);
    assert_areas(&f, &(struct mf_area){0, 9 * PAGE, MERGE | 2, 0}, 1);
    close_space(&f);
}

static void equal_tags_with_unequal_deltas_or_holes_between_stay_apart(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    const struct mf_area before[] = {
        {0, PAGE, MERGE, 0}, {PAGE, PAGE, MERGE | 1, 8}, {3 * PAGE, PAGE, MERGE | 2, 8}};
    for (size_t i = 0; i < COUNT(before); i++)
        assert_int_equal(mf_space_insert(f.space, &before[i]), 0);
    assert_int_equal(mf_space_retag(f.space, 0, 4 * PAGE, 3, 0), 0);
    const struct mf_area after[] = {
        {0, PAGE, MERGE, 0}, {PAGE, PAGE, MERGE, 8}, {3 * PAGE, PAGE, MERGE, 8}};
    assert_areas(&f, after, 3);
    close_space(&f);
}

static void setting_the_merge_bit_merges_and_clearing_it_splits_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(insert(&f, i * PAGE, PAGE, 4, 0), 0);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, 1000);
    assert_int_equal(mf_space_retag(f.space, 0, 1000 * PAGE, 0, MERGE), 0);
    assert_areas(&f, &(struct mf_area){0, 1000 * PAGE, MERGE | 4, 0}, 1);
    assert_int_equal(mf_space_retag(f.space, 0, 1000 * PAGE, MERGE, 0), 0);
    assert_areas(&f, &(struct mf_area){0, 1000 * PAGE, 4, 0}, 1);
    close_space(&f);
}

static void a_tag_that_does_not_change_leaves_its_area_whole(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    const struct mf_area area = {0, 10 * PAGE, 5, 0}; /* may not merge: a split would show */
    assert_int_equal(mf_space_insert(f.space, &area), 0);
    assert_int_equal(mf_space_retag(f.space, 3 * PAGE, 2 * PAGE, TOP, 5), 0);
    assert_int_equal(mf_space_retag(f.space, 3 * PAGE, 2 * PAGE, 0, 0), 0);
    assert_int_equal(mf_space_retag(f.space, 3 * PAGE, 2 * PAGE, 2, 4), 0);
    assert_areas(&f, &area, 1);
    close_space(&f);
}

static void retagging_a_hole_is_no_error(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(mf_space_retag(f.space, 0, PAGE, TOP, 1), 0);
    assert_int_equal(insert(&f, 2 * PAGE, PAGE, 9, 0), 0);
    assert_int_equal(mf_space_retag(f.space, 0, 2 * PAGE, TOP, 1), 0);
    assert_int_equal(mf_space_retag(f.space, 3 * PAGE, 2 * PAGE, TOP, 1), 0);
    assert_areas(&f, &(struct mf_area){2 * PAGE, PAGE, 9, 0}, 1);
    close_space(&f);
}

static void ten_thousand_areas_are_retagged_by_one_call_and_the_ends_are_cut(void **state)
{
    (void)state;
    enum { AREAS = 10000 };
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    static struct mf_area want[AREAS + 2];
    size_t count = 0;
    for (uint64_t i = 0; i < AREAS; i++)
        assert_int_equal(insert(&f, 3 * i * PAGE, (2 + i % 2) * PAGE, MERGE | i, i), 0);
    assert_int_equal(mf_space_retag(f.space, PAGE, 3 * (AREAS - 1) * PAGE, 7, UINT64_C(1) << 50),
                     0);
    want[count++] = (struct mf_area){0, PAGE, MERGE, 0};
    want[count++] = (struct mf_area){PAGE, PAGE, MERGE | UINT64_C(1) << 50, 0};
    for (uint64_t i = 1; i < AREAS - 1; i++)
        want[count++] = (struct mf_area){3 * i * PAGE, (2 + i % 2) * PAGE,
                                         ((MERGE | i) & ~UINT64_C(7)) | UINT64_C(1) << 50, i};
    const uint64_t i = AREAS - 1;
    want[count++] =
        (struct mf_area){3 * i * PAGE, PAGE, ((MERGE | i) & ~UINT64_C(7)) | UINT64_C(1) << 50, i};
    want[count++] = (struct mf_area){(3 * i + 1) * PAGE, (1 + i % 2) * PAGE, MERGE | i, i};
    assert_areas(&f, want, count);
    close_space(&f);
}

static void a_whole_range_of_alternating_tags_melts_into_one_area(void **state)
{
    (void)state;
    enum { AREAS = 5000 };
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < AREAS; i++)
        assert_int_equal(insert(&f, i * PAGE, PAGE, MERGE | (i % 2), 3), 0);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, AREAS);
    assert_int_equal(mf_space_retag(f.space, 7 * PAGE, (AREAS - 14) * PAGE, 1, 0), 0);
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, 7 + 7 + 1 - 1); /* page 6 has tag 0 too and joins */
    assert_int_equal(mf_space_retag(f.space, 0, AREAS * PAGE, 1, 0), 0);
    assert_areas(&f, &(struct mf_area){0, AREAS * PAGE, MERGE, 3}, 1);
    assert_int_equal(mf_space_remove(f.space, 0, AREAS * PAGE), 0);
    assert_areas(&f, NULL, 0);
    close_space(&f);
}

static void retagging_to_the_top_of_all_addresses_works(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, 1);
    assert_int_equal(insert(&f, TOP - 9, 10, MERGE, 0), 0);
    assert_int_equal(mf_space_retag(f.space, TOP, 1, 0, 1), 0);
    const struct mf_area want[] = {{TOP - 9, 9, MERGE, 0}, {TOP, 1, MERGE | 1, 0}};
    assert_areas(&f, want, 2);
    assert_int_equal(mf_space_retag(f.space, 1, TOP, 1, 0), 0);
    assert_areas(&f, &(struct mf_area){TOP - 9, 10, MERGE, 0}, 1);
    close_space(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_of_an_area_gets_a_tag_of_its_own),
        cmocka_unit_test(clear_and_set_work_on_each_area_by_itself),
        cmocka_unit_test(setting_a_bit_that_is_cleared_too_sets_it),
        cmocka_unit_test(a_range_that_becomes_equal_merges_with_both_neighbours),
        cmocka_unit_test(equal_tags_with_unequal_deltas_or_holes_between_stay_apart),
        cmocka_unit_test(setting_the_merge_bit_merges_and_clearing_it_splits_nothing),
        cmocka_unit_test(a_tag_that_does_not_change_leaves_its_area_whole),
        cmocka_unit_test(retagging_a_hole_is_no_error),
        cmocka_unit_test(ten_thousand_areas_are_retagged_by_one_call_and_the_ends_are_cut),
        cmocka_unit_test(a_whole_range_of_alternating_tags_melts_into_one_area),
        cmocka_unit_test(retagging_to_the_top_of_all_addresses_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
