/* SPDX-License-Identifier: MIT */
/* The space layer, as its header describes it: what a user asks and what he must be told. */
#include "space_fixture.h"

static void an_empty_space_is_one_gap_and_holds_no_area(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 16 * PAGE, 32 * PAGE - 1, PAGE);
    assert_areas(&f, NULL, 0);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.used, 0);
    assert_int_equal(stats.free, 16 * PAGE);
    assert_int_equal(stats.largest_gap, 16 * PAGE);
    assert_int_equal(stats.fragmentation, 0);
    close_space(&f);
}

static void bad_bounds_granules_and_allocators_are_refused_and_take_no_memory(void **state)
{
    (void)state;
    const struct {
        uint64_t low, last, granule;
    } bad[] = {
        {0, TOP, 0},
        {0, TOP, 3},
        {0, TOP, PAGE + 1},
        {0, PAGE, PAGE},
        {0, PAGE - 2, PAGE},
        {1, PAGE - 1, PAGE},
        {PAGE / 2, TOP, PAGE},
        {PAGE, PAGE - 1, PAGE},
        {2 * PAGE, PAGE - 1, PAGE},
        {1, 0, 1},
        {0, TOP - 1, 2},
        {0, TOP - PAGE + 2, PAGE},
        {UINT64_C(1) << 62, TOP, UINT64_C(1) << 63},
    };
    struct checked_alloc memory;
    checked_alloc_init(&memory);
    struct mf_space *const before = (struct mf_space *)&memory;
    struct mf_space *space = before;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(
            mf_space_create(bad[i].low, bad[i].last, bad[i].granule, &memory.alloc, &space),
            -EINVAL);
    const struct mf_alloc no_alloc = {NULL, memory.alloc.free, &memory};
    const struct mf_alloc no_free = {memory.alloc.alloc, NULL, &memory};
    assert_int_equal(mf_space_create(0, TOP, 1, NULL, &space), -EINVAL);
    assert_int_equal(mf_space_create(0, TOP, 1, &no_alloc, &space), -EINVAL);
    assert_int_equal(mf_space_create(0, TOP, 1, &no_free, &space), -EINVAL);
    assert_ptr_equal(space, before);
    assert_int_equal(memory.calls, 0);
}

static void destroying_nothing_is_allowed(void **state)
{
    (void)state;
    mf_space_destroy(NULL);
}

static void the_top_granule_of_all_addresses_can_be_used(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    const struct mf_area top = {TOP - PAGE + 1, PAGE, 7, 8};
    struct mf_area got;
    struct mf_fit fit = {.length = PAGE, .align = 1, .last = TOP, .policy = MF_FIT_HIGHEST};
    assert_int_equal(mf_space_place(f.space, &fit, 7, top.start + 8, &got), 0);
    assert_same_area(&got, &top);
    assert_areas(&f, &top, 1);
    assert_int_equal(mf_space_find(f.space, TOP, &got), 0);
    assert_same_area(&got, &top);
    assert_int_equal(mf_space_next(f.space, TOP, &got), 0);
    assert_int_equal(mf_space_insert(f.space, &top), -EEXIST);
    assert_int_equal(insert(&f, top.start, 2 * PAGE, 0, 0), -EOVERFLOW);

    assert_int_equal(mf_space_retag(f.space, top.start, PAGE, 1, 16), 0);
    assert_int_equal(mf_space_find(f.space, TOP, &got), 0);
    assert_int_equal(got.tag, 22);
    assert_int_equal(mf_space_remove(f.space, top.start, PAGE), 0);
    assert_int_equal(mf_space_find(f.space, TOP, &got), -ENOENT);
    assert_areas(&f, NULL, 0);
    close_space(&f);
}

static void a_space_of_the_top_granule_alone_works(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, TOP, TOP, 1);
    struct mf_fit fit = {.length = 1, .align = 1, .last = TOP};
    uint64_t start = 0;
    assert_int_equal(mf_space_find_gap(f.space, &fit, &start), 0);
    assert_int_equal(start, TOP);
    assert_int_equal(insert(&f, TOP, 1, 1, 2), 0);
    assert_int_equal(mf_space_find_gap(f.space, &fit, &start), -ENOSPC);
    assert_int_equal(insert(&f, TOP, 2, 1, 2), -EOVERFLOW);
    assert_int_equal(insert(&f, TOP - 1, 1, 1, 2), -ERANGE);
    assert_areas(&f, &(struct mf_area){TOP, 1, 1, 2}, 1);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.used, 1);
    assert_int_equal(stats.free, 0);
    assert_int_equal(stats.largest_gap, 0);
    assert_int_equal(stats.fragmentation, 0);
    assert_int_equal(mf_space_remove(f.space, TOP, 1), 0);
    assert_areas(&f, NULL, 0);
    close_space(&f);
}

static void a_space_of_single_bytes_over_all_addresses_fills_and_empties(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, 1);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.free, TOP); /* 2^64 cannot be said */
    assert_int_equal(stats.largest_gap, TOP);
    assert_int_equal(stats.used, 0);

    /* all but the last byte: the longest length that there is */
    assert_int_equal(insert(&f, 0, TOP, MF_TAG_MERGE, 0), 0);
    struct mf_fit fit = {.length = 1, .align = 1, .last = TOP, .policy = MF_FIT_LOWEST};
    struct mf_area got;
    assert_int_equal(mf_space_place(f.space, &fit, MF_TAG_MERGE, TOP, &got), 0);
    assert_same_area(&got, &(struct mf_area){TOP, 1, MF_TAG_MERGE, 0});
    assert_int_equal(mf_space_find_gap(f.space, &fit, &got.start), -ENOSPC);

    /* no length says 2^64, so the two stay apart */
    const struct mf_area both[] = {{0, TOP, MF_TAG_MERGE, 0}, {TOP, 1, MF_TAG_MERGE, 0}};
    assert_areas(&f, both, 2);
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.used, TOP);
    assert_int_equal(stats.free, 0);
    assert_int_equal(stats.largest_gap, 0);

    assert_int_equal(mf_space_remove(f.space, 0, TOP), 0);
    assert_areas(&f, &both[1], 1);
    assert_int_equal(mf_space_remove(f.space, 5, TOP - 4), 0);
    assert_areas(&f, NULL, 0);
    close_space(&f);
}

static void the_largest_granule_divides_everything_in_two(void **state)
{
    (void)state;
    struct fixture f;
    const uint64_t half = UINT64_C(1) << 63;
    open_space(&f, 0, TOP, half);
    assert_int_equal(insert(&f, 0, half / 2, 1, 1), -EINVAL);
    const struct mf_area both[] = {{0, half, MF_TAG_MERGE, 3}, {half, half, MF_TAG_MERGE, 3}};
    assert_int_equal(mf_space_insert(f.space, &both[1]), 0);
    struct mf_fit fit = {.length = half, .align = 1, .last = TOP, .policy = MF_FIT_HIGHEST};
    struct mf_area got;
    assert_int_equal(mf_space_place(f.space, &fit, MF_TAG_MERGE, 3, &got), 0);
    assert_same_area(&got, &both[0]);
    assert_areas(&f, both, 2);
    assert_int_equal(mf_space_remove(f.space, 0, half), 0);
    assert_areas(&f, &both[1], 1);
    close_space(&f);
}

static void three_areas_that_would_fill_all_addresses_join_from_below(void **state)
{
    (void)state;
    struct fixture f;
    const uint64_t quarter = UINT64_C(1) << 62;
    open_space(&f, 0, TOP, quarter);
    assert_int_equal(insert(&f, 0, quarter, MF_TAG_MERGE, 0), 0);
    assert_int_equal(insert(&f, 3 * quarter, quarter, MF_TAG_MERGE, 0), 0);
    assert_int_equal(insert(&f, quarter, 2 * quarter, MF_TAG_MERGE, 0), 0);
    const struct mf_area want[] = {{0, 3 * quarter, MF_TAG_MERGE, 0},
                                   {3 * quarter, quarter, MF_TAG_MERGE, 0}};
    assert_areas(&f, want, 2);
    close_space(&f);
}

static void two_areas_that_fill_all_addresses_become_one_when_something_is_taken_away(void **state)
{
    (void)state;
    const uint64_t q = UINT64_C(1) << 60;
    const uint64_t holes[][2] = {{0, 1}, {15, 1}, {5, 1}, {11, 4}, {12, 1}, {9, 2}};
    for (size_t i = 0; i < COUNT(holes); i++) {
        struct fixture f;
        open_space(&f, 0, TOP, q);
        assert_int_equal(insert(&f, 0, 12 * q, MF_TAG_MERGE, 7), 0);
        assert_int_equal(insert(&f, 12 * q, 4 * q, MF_TAG_MERGE, 7), 0);
        const uint64_t hole = holes[i][0] * q, length = holes[i][1] * q, end = hole + length;
        assert_int_equal(mf_space_remove(f.space, hole, length), 0);
        struct mf_area want[2];
        size_t count = 0;
        if (hole > 0)
            want[count++] = (struct mf_area){0, hole, MF_TAG_MERGE, 7};
        if (end != 0)
            want[count++] = (struct mf_area){end, ~end + 1, MF_TAG_MERGE, 7};
        assert_areas(&f, want, count);
        close_space(&f);
    }
}

static void the_end_of_the_space_bounds_what_can_be_inserted(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 4 * PAGE, 8 * PAGE - 1, PAGE);
    assert_int_equal(insert(&f, 3 * PAGE, PAGE, 1, 0), -ERANGE);
    assert_int_equal(insert(&f, 3 * PAGE, 2 * PAGE, 1, 0), -ERANGE);
    assert_int_equal(insert(&f, 7 * PAGE, 2 * PAGE, 1, 0), -ERANGE);
    assert_int_equal(insert(&f, 8 * PAGE, PAGE, 1, 0), -ERANGE);
    assert_int_equal(insert(&f, 0, 64 * PAGE, 1, 0), -ERANGE);
    assert_areas(&f, NULL, 0);
    assert_int_equal(insert(&f, 4 * PAGE, 4 * PAGE, 1, 0), 0);
    assert_areas(&f, &(struct mf_area){4 * PAGE, 4 * PAGE, 1, 0}, 1);
    close_space(&f);
}

static void any_overlap_with_an_area_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(insert(&f, 10 * PAGE, 4 * PAGE, MF_TAG_MERGE, 0), 0);
    for (uint64_t start = 0; start < 20; start++) {
        for (uint64_t length = 1; length < 20; length++) {
            const bool overlaps = start < 14 && start + length > 10;
            const int result = insert(&f, start * PAGE, length * PAGE, MF_TAG_MERGE, 0);
            assert_int_equal(result, overlaps ? -EEXIST : 0);
            if (result == 0)
                assert_int_equal(mf_space_remove(f.space, start * PAGE, length * PAGE), 0);
            assert_areas(&f, &(struct mf_area){10 * PAGE, 4 * PAGE, MF_TAG_MERGE, 0}, 1);
        }
    }
    close_space(&f);
}

static void touching_areas_merge_if_tag_and_delta_are_equal_and_the_tag_allows_it(void **state)
{
    (void)state;
    const uint64_t merge = MF_TAG_MERGE | 5;
    const struct {
        uint64_t tag, delta, upper_tag, upper_delta;
        size_t areas;
    } cases[] = {
        {merge, 9, merge, 9, 1},
        {merge, 9, merge, 10, 2},
        {merge, 9, merge, 9 + PAGE, 2},
        {merge, 9, MF_TAG_MERGE | 4, 9, 2},
        {merge, 9, 5, 9, 2},
        {5, 9, 5, 9, 2},
        {5, 9, merge, 9, 2},
        {MF_TAG_MERGE, 0, MF_TAG_MERGE, 0, 1},
        {0, 0, 0, 0, 2},
        {TOP, TOP, TOP, TOP, 1},
        {merge, 9, merge, 9 + (UINT64_C(1) << 32), 2},
        {merge, 9, merge | UINT64_C(1) << 62, 9, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (int upper_first = 0; upper_first < 2; upper_first++) {
            struct fixture f;
            open_space(&f, 0, TOP, PAGE);
            const struct mf_area pieces[] = {
                {PAGE, PAGE, cases[i].tag, cases[i].delta},
                {2 * PAGE, 3 * PAGE, cases[i].upper_tag, cases[i].upper_delta}};
            assert_int_equal(mf_space_insert(f.space, &pieces[upper_first]), 0);
            assert_int_equal(mf_space_insert(f.space, &pieces[!upper_first]), 0);
            if (cases[i].areas == 2)
                assert_areas(&f, pieces, 2);
            else
                assert_areas(&f, &(struct mf_area){PAGE, 4 * PAGE, cases[i].tag, cases[i].delta},
                             1);
            close_space(&f);
        }
    }
}

static void an_area_between_two_equal_ones_makes_them_one(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(insert(&f, 0, PAGE, MF_TAG_MERGE, 7), 0);
    assert_int_equal(insert(&f, 2 * PAGE, PAGE, MF_TAG_MERGE, 7), 0);
    struct mf_fit fit = {.length = PAGE, .align = PAGE, .last = TOP, .policy = MF_FIT_LOWEST};
    struct mf_area placed;
    assert_int_equal(mf_space_place(f.space, &fit, MF_TAG_MERGE, PAGE + 7, &placed), 0);
    assert_same_area(&placed, &(struct mf_area){PAGE, PAGE, MF_TAG_MERGE, 7}); /* unmerged */
    assert_areas(&f, &(struct mf_area){0, 3 * PAGE, MF_TAG_MERGE, 7}, 1);
    close_space(&f);
}

static void areas_that_do_not_touch_never_merge(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, 1);
    const struct mf_area want[] = {{10, 5, MF_TAG_MERGE, 0}, {16, 5, MF_TAG_MERGE, 0}};
    assert_int_equal(mf_space_insert(f.space, &want[0]), 0);
    assert_int_equal(mf_space_insert(f.space, &want[1]), 0);
    assert_areas(&f, want, 2);
    close_space(&f);
}

static void one_file_mapped_page_by_page_in_any_order_is_one_area(void **state)
{
    (void)state;
    enum { PAGES = 3000 };
    static unsigned order[PAGES];
    uint64_t seed = 12345;
    for (unsigned i = 0; i < PAGES; i++) {
        const unsigned j = (unsigned)((seed = seed * 6364136223846793005u + 1) >> 33) % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (unsigned i = 0; i < PAGES; i++)
        assert_int_equal(insert(&f, order[i] * PAGE, PAGE, MF_TAG_MERGE | 1, 77), 0);
    assert_areas(&f, &(struct mf_area){0, PAGES * PAGE, MF_TAG_MERGE | 1, 77}, 1);
    close_space(&f);
}

static void removing_the_middle_of_an_area_leaves_both_ends_with_its_tag_and_delta(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(insert(&f, 10 * PAGE, 10 * PAGE, 3, TOP - 5), 0);
    assert_int_equal(mf_space_remove(f.space, 13 * PAGE, 2 * PAGE), 0);
    const struct mf_area want[] = {{10 * PAGE, 3 * PAGE, 3, TOP - 5},
                                   {15 * PAGE, 5 * PAGE, 3, TOP - 5}};
    assert_areas(&f, want, 2);
    assert_int_equal(mf_space_remove(f.space, 10 * PAGE, PAGE), 0);
    assert_int_equal(mf_space_remove(f.space, 19 * PAGE, PAGE), 0);
    const struct mf_area ends[] = {{11 * PAGE, 2 * PAGE, 3, TOP - 5},
                                   {15 * PAGE, 4 * PAGE, 3, TOP - 5}};
    assert_areas(&f, ends, 2);
    close_space(&f);
}

static void a_range_over_many_areas_and_holes_is_removed_at_once(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < 5000; i++)
        assert_int_equal(insert(&f, 4 * i * PAGE, 3 * PAGE, i, 0), 0);
    const size_t calls = f.memory.calls;
    assert_int_equal(mf_space_remove(f.space, PAGE, 4 * 4999 * PAGE), 0);
    assert_int_equal(f.memory.calls, calls); /* nothing is cut in two */
    const struct mf_area want[] = {{0, PAGE, 0, 0}, {(4 * 4999 + 1) * PAGE, 2 * PAGE, 4999, 0}};
    assert_areas(&f, want, 2);
    assert_int_equal(mf_space_remove(f.space, 0, TOP - PAGE + 1), 0);
    assert_areas(&f, NULL, 0);
    close_space(&f);
}

static void removing_a_hole_is_no_error(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(mf_space_remove(f.space, 0, PAGE), 0);
    assert_int_equal(insert(&f, 10 * PAGE, PAGE, 3, 0), 0);
    assert_int_equal(mf_space_remove(f.space, 0, 10 * PAGE), 0);
    assert_int_equal(mf_space_remove(f.space, 11 * PAGE, PAGE), 0);
    assert_areas(&f, &(struct mf_area){10 * PAGE, PAGE, 3, 0}, 1);
    close_space(&f);
}

static void find_gives_the_area_of_every_byte_and_nothing_for_a_hole(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, PAGE, 16 * PAGE - 1, PAGE);
    const struct mf_area area = {4 * PAGE, 2 * PAGE, 1, 2};
    assert_int_equal(mf_space_insert(f.space, &area), 0);
    const struct mf_area before = {1, 2, 3, 4};
    for (uint64_t address = 3 * PAGE; address < 7 * PAGE; address += 1 + address % 5) {
        struct mf_area got = before;
        const bool inside = address >= 4 * PAGE && address < 6 * PAGE;
        assert_int_equal(mf_space_find(f.space, address, &got), inside ? 0 : -ENOENT);
        assert_same_area(&got, inside ? &area : &before);
    }
    struct mf_area got = before;
    const uint64_t outside[] = {0, PAGE - 1, 16 * PAGE, TOP};
    for (size_t i = 0; i < COUNT(outside); i++)
        assert_int_equal(mf_space_find(f.space, outside[i], &got), -ENOENT);
    assert_same_area(&got, &before);
    close_space(&f);
}

static void next_walks_all_areas_upwards_and_ends_at_zero_or_with_an_error(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 2 * PAGE, TOP, PAGE);
    const struct mf_area areas[] = {{4 * PAGE, PAGE, 1, 1},
                                    {5 * PAGE, PAGE, 2, 2},
                                    {1000 * MIB, 7 * PAGE, 3, 3},
                                    {TOP - 2 * PAGE + 1, PAGE, 4, 4},
                                    {TOP - PAGE + 1, PAGE, 5, 5}};
    for (size_t i = 0; i < COUNT(areas); i++)
        assert_int_equal(mf_space_insert(f.space, &areas[i]), 0);
    struct mf_area got;
    assert_int_equal(mf_space_next(f.space, 0, &got), 0); /* below the space */
    assert_same_area(&got, &areas[0]);
    assert_int_equal(mf_space_next(f.space, 5 * PAGE - 1, &got), 0);
    assert_same_area(&got, &areas[0]);
    assert_int_equal(mf_space_next(f.space, 6 * PAGE, &got), 0);
    assert_same_area(&got, &areas[2]);
    uint64_t address = 0;
    for (size_t i = 0; i < COUNT(areas); i++) {
        assert_int_equal(mf_space_next(f.space, address, &got), 0);
        assert_same_area(&got, &areas[i]);
        address = got.start + got.length;
    }
    assert_int_equal(address, 0); /* wrapped: the walk is over */

    assert_int_equal(mf_space_remove(f.space, areas[4].start, PAGE), 0);
    const struct mf_area before = got;
    assert_int_equal(mf_space_next(f.space, areas[4].start, &got), -ENOENT);
    assert_int_equal(mf_space_next(f.space, TOP, &got), -ENOENT);
    assert_same_area(&got, &before);
    close_space(&f);
}

static void stats_tell_used_free_largest_gap_and_fragmentation_exactly(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, 1000 * PAGE - 1, PAGE);
    struct mf_space_stats stats;
    assert_int_equal(insert(&f, 100 * PAGE, 100 * PAGE, 1, 0), 0);
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, 1);
    assert_int_equal(stats.used, 100 * PAGE);
    assert_int_equal(stats.free, 900 * PAGE);
    assert_int_equal(stats.largest_gap, 800 * PAGE);
    assert_int_equal(stats.fragmentation, 112); /* 1000 - 888 */
    assert_int_equal(insert(&f, 600 * PAGE, 400 * PAGE, 1, 0), 0);
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, 2);
    assert_int_equal(stats.used, 500 * PAGE);
    assert_int_equal(stats.free, 500 * PAGE);
    assert_int_equal(stats.largest_gap, 400 * PAGE);
    assert_int_equal(stats.fragmentation, 200);
    close_space(&f);

    /* one byte beside nearly all of 2^64 is fragmentation too */
    open_space(&f, 0, TOP, 1);
    assert_int_equal(insert(&f, 1, 1, 1, 0), 0);
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.used, 1);
    assert_int_equal(stats.free, TOP);
    assert_int_equal(stats.largest_gap, TOP - 1);
    assert_int_equal(stats.fragmentation, 1);
    assert_int_equal(insert(&f, 0, 1, 1, 0), 0);
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.fragmentation, 0);
    close_space(&f);
}

static void bad_ranges_are_refused_by_all_and_change_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 16 * PAGE, TOP - 16 * PAGE, PAGE);
    for (uint64_t i = 0; i < 200; i++)
        assert_int_equal(insert(&f, (32 + 3 * i) * PAGE, 2 * PAGE, MF_TAG_MERGE | i, 5), 0);
    struct dump before;
    take_dump(&before, f.space);
    const size_t calls = f.memory.calls;
    /* in the order in which errors are looked for: the first that applies is told */
    const struct {
        uint64_t start, length;
        int error;
    } bad[] = {
        {32 * PAGE, 0, -EINVAL},
        {32 * PAGE + 1, PAGE, -EINVAL},
        {32 * PAGE, PAGE + 1, -EINVAL},
        {32 * PAGE, 1, -EINVAL},
        {0, 0, -EINVAL},
        {TOP, TOP, -EINVAL},
        {32 * PAGE, TOP, -EINVAL},
        {32 * PAGE, TOP - PAGE + 1, -EOVERFLOW},
        {TOP - PAGE + 1, 2 * PAGE, -EOVERFLOW},
        {2 * PAGE, TOP - PAGE + 1, -EOVERFLOW},
        {PAGE, TOP - PAGE + 1, -ERANGE},
        {TOP - PAGE + 1, PAGE, -ERANGE},
        {0, PAGE, -ERANGE},
        {15 * PAGE, 2 * PAGE, -ERANGE},
        {0, TOP - PAGE + 1, -ERANGE},
        {TOP - 16 * PAGE + 1, PAGE, -ERANGE},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(insert(&f, bad[i].start, bad[i].length, 1, 0), bad[i].error);
        assert_int_equal(mf_space_remove(f.space, bad[i].start, bad[i].length), bad[i].error);
        assert_int_equal(mf_space_retag(f.space, bad[i].start, bad[i].length, TOP, 1),
                         bad[i].error);
    }
    assert_int_equal(insert(&f, 34 * PAGE, 2 * PAGE, 1, 0), -EEXIST);
    assert_int_equal(f.memory.calls, calls);
    assert_unchanged(&before, f.space);
    close_space(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_space_is_one_gap_and_holds_no_area),
        cmocka_unit_test(bad_bounds_granules_and_allocators_are_refused_and_take_no_memory),
        cmocka_unit_test(destroying_nothing_is_allowed),
        cmocka_unit_test(the_top_granule_of_all_addresses_can_be_used),
        cmocka_unit_test(a_space_of_the_top_granule_alone_works),
        cmocka_unit_test(a_space_of_single_bytes_over_all_addresses_fills_and_empties),
        cmocka_unit_test(the_largest_granule_divides_everything_in_two),
        cmocka_unit_test(three_areas_that_would_fill_all_addresses_join_from_below),
        cmocka_unit_test(two_areas_that_fill_all_addresses_become_one_when_something_is_taken_away),
        cmocka_unit_test(the_end_of_the_space_bounds_what_can_be_inserted),
        cmocka_unit_test(any_overlap_with_an_area_is_refused),
        cmocka_unit_test(touching_areas_merge_if_tag_and_delta_are_equal_and_the_tag_allows_it),
        cmocka_unit_test(an_area_between_two_equal_ones_makes_them_one),
        cmocka_unit_test(areas_that_do_not_touch_never_merge),
        cmocka_unit_test(one_file_mapped_page_by_page_in_any_order_is_one_area),
        cmocka_unit_test(removing_the_middle_of_an_area_leaves_both_ends_with_its_tag_and_delta),
        cmocka_unit_test(a_range_over_many_areas_and_holes_is_removed_at_once),
        cmocka_unit_test(removing_a_hole_is_no_error),
        cmocka_unit_test(find_gives_the_area_of_every_byte_and_nothing_for_a_hole),
        cmocka_unit_test(next_walks_all_areas_upwards_and_ends_at_zero_or_with_an_error),
        cmocka_unit_test(stats_tell_used_free_largest_gap_and_fragmentation_exactly),
        cmocka_unit_test(bad_ranges_are_refused_by_all_and_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
