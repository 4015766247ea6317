/* SPDX-License-Identifier: MIT */
/* Ten million areas, a billion pages: what a space must carry, and give back. */
#include "scale.h"
#include "space_fixture.h"

static const uint64_t TEN_MILLION = 10000000;

/* Each number below count once, in disorder: a walk by a prime that is above any count here. */
static uint64_t scattered(uint64_t i, uint64_t count)
{
    return (i * 2654435761u + 12345) % count;
}

static void assert_one_gap_and_little_memory(const struct fixture *fixture, uint64_t bytes,
                                             uint64_t empty_metadata)
{
    assert_areas(fixture, NULL, 0);
    assert_int_equal(mf_space_reserve(fixture->space, 0), 0);
    struct mf_space_stats stats;
    mf_space_stats(fixture->space, &stats);
    assert_int_equal(stats.free, bytes);
    assert_int_equal(stats.largest_gap, bytes);
    assert_int_equal(stats.fragmentation, 0);
    assert_in_range(stats.metadata_bytes, 0, empty_metadata + 65536);
}

static void ten_million_pages_apart_fill_a_space_and_leave_it_as_it_was(void **state)
{
    (void)state;
    const uint64_t count = scaled(TEN_MILLION), bytes = 2 * count * PAGE;
    struct fixture f;
    open_space(&f, 0, bytes - 1, PAGE);
    const uint64_t empty_metadata = f.memory.live_bytes;
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(insert(&f, 2 * scattered(i, count) * PAGE, PAGE, MF_TAG_MERGE, 0), 0);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, count);
    assert_int_equal(stats.used, bytes / 2);
    assert_int_equal(stats.free, bytes / 2);
    assert_int_equal(stats.largest_gap, PAGE);
    assert_int_equal(stats.fragmentation, 1000 - 1000 / count);
    print_message("%llu areas: %.1f bytes of metadata each\n", (unsigned long long)count,
                  (double)stats.metadata_bytes / (double)count);

    struct mf_area got;
    for (uint64_t i = 0; i < count; i += 1 + count / 1000) {
        assert_int_equal(mf_space_find(f.space, 2 * i * PAGE + 77, &got), 0);
        assert_same_area(&got, &(struct mf_area){2 * i * PAGE, PAGE, MF_TAG_MERGE, 0});
        assert_int_equal(mf_space_find(f.space, (2 * i + 1) * PAGE, &got), -ENOENT);
    }
    struct mf_fit fit = {.length = 2 * PAGE, .align = 1, .last = TOP, .policy = MF_FIT_LOWEST};
    assert_int_equal(mf_space_find_gap(f.space, &fit, &got.start), -ENOSPC);

    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(mf_space_remove(f.space, 2 * scattered(i, count) * PAGE, PAGE), 0);
    assert_one_gap_and_little_memory(&f, bytes, empty_metadata);
    close_space(&f);
}

static void ten_million_touching_pages_placed_one_by_one_leave_in_the_order_they_came(void **state)
{
    (void)state;
    const uint64_t count = scaled(TEN_MILLION), bytes = count * PAGE;
    struct fixture f;
    open_space(&f, PAGE, PAGE + bytes - 1, PAGE);
    const uint64_t empty_metadata = f.memory.live_bytes;
    /* pages of one file at the same offset: no two may merge */
    const struct mf_fit fit = {.length = PAGE, .align = 1, .last = TOP, .policy = MF_FIT_LOWEST};
    struct mf_area got;
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(mf_space_place(f.space, &fit, MF_TAG_MERGE, 0, &got), 0);
        assert_int_equal(got.start, (i + 1) * PAGE);
    }
    assert_int_equal(mf_space_place(f.space, &fit, MF_TAG_MERGE, 0, &got), -ENOSPC);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, count);
    assert_int_equal(stats.free, 0);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(mf_space_remove(f.space, (i + 1) * PAGE, PAGE), 0);
    assert_one_gap_and_little_memory(&f, bytes, empty_metadata);
    close_space(&f);
}

static void a_range_over_ten_million_areas_goes_in_one_call(void **state)
{
    (void)state;
    const uint64_t count = scaled(TEN_MILLION), bytes = 2 * count * PAGE;
    struct fixture f;
    open_space(&f, 0, bytes - 1, PAGE);
    const uint64_t empty_metadata = f.memory.live_bytes;
    for (uint64_t i = count; i-- > 0;)
        assert_int_equal(insert(&f, 2 * i * PAGE, PAGE, i & 7, 0), 0);
    const size_t calls = f.memory.calls;
    assert_int_equal(mf_space_remove(f.space, 0, bytes), 0);
    assert_int_equal(f.memory.calls, calls);
    assert_one_gap_and_little_memory(&f, bytes, empty_metadata);
    close_space(&f);
}

static void a_space_that_has_shrunk_to_a_hundredth_gives_most_memory_back(void **state)
{
    (void)state;
    const uint64_t count = scaled(1000000);
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(insert(&f, 2 * i * PAGE, PAGE, 0, 0), 0);
    const size_t full = f.memory.live_bytes;
    for (uint64_t i = count / 100; i < count; i++)
        assert_int_equal(mf_space_remove(f.space, 2 * i * PAGE, PAGE), 0);
    assert_int_equal(mf_space_reserve(f.space, 0), 0);
    assert_in_range(f.memory.live_bytes, 0, full / 2);
    close_space(&f);
}

static void an_area_of_a_billion_pages_is_one_area_like_any_other(void **state)
{
    (void)state;
    const uint64_t billion = 1000000000;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    const uint64_t empty_metadata = f.memory.live_bytes;
    const uint64_t start = UINT64_C(1) << 40;
    assert_int_equal(insert(&f, start, billion * PAGE, MF_TAG_MERGE, 0), 0);
    assert_areas(&f, &(struct mf_area){start, billion * PAGE, MF_TAG_MERGE, 0}, 1);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.used, billion * PAGE);
    assert_int_equal(stats.metadata_bytes, f.memory.live_bytes);
    assert_in_range(stats.metadata_bytes, 0, empty_metadata + 65536);
    struct mf_area got;
    assert_int_equal(mf_space_find(f.space, start + billion * PAGE - 1, &got), 0);
    assert_int_equal(mf_space_find(f.space, start + billion * PAGE, &got), -ENOENT);

    /* a thousand pages out of it, retag between them, and everything back */
    const uint64_t step = billion / 1000;
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(mf_space_remove(f.space, start + (i * step + 1) * PAGE, PAGE), 0);
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, 1001);
    assert_int_equal(stats.used, (billion - 1000) * PAGE);
    assert_int_equal(mf_space_retag(f.space, start, billion * PAGE, 0, 6), 0);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(insert(&f, start + (i * step + 1) * PAGE, PAGE, MF_TAG_MERGE | 6, 0), 0);
    assert_areas(&f, &(struct mf_area){start, billion * PAGE, MF_TAG_MERGE | 6, 0}, 1);
    assert_int_equal(mf_space_remove(f.space, start, billion * PAGE), 0);
    assert_areas(&f, NULL, 0);
    close_space(&f);
}

static void areas_of_a_page_and_of_a_billion_pages_stand_side_by_side(void **state)
{
    (void)state;
    const uint64_t huge = UINT64_C(1000000000) * PAGE, count = scaled(1000000) / 1000 + 2;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    const struct mf_fit long_fit = {.length = huge, .align = 1, .last = TOP};
    const struct mf_fit page_fit = {.length = PAGE, .align = 1, .last = TOP};
    struct mf_area got;
    uint64_t end = 0;
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(mf_space_place(f.space, i % 2 ? &long_fit : &page_fit, i, 0, &got), 0);
        assert_int_equal(got.start, end);
        end += got.length;
    }
    for (uint64_t i = 0, start = 0; i < count; i++) {
        assert_int_equal(mf_space_find(f.space, start, &got), 0);
        assert_int_equal(got.start, start);
        assert_int_equal(got.tag, i);
        start += got.length;
        if (i % 2 == 0)
            assert_int_equal(mf_space_remove(f.space, got.start, PAGE), 0);
    }
    assert_int_equal(mf_space_find_gap(f.space, &page_fit, &got.start), 0);
    assert_int_equal(got.start, 0);
    assert_int_equal(mf_space_find_gap(f.space, &long_fit, &got.start), 0);
    assert_int_equal(got.start, count % 2 ? end - PAGE : end);
    close_space(&f);
}

/* Sizes of 1 to 64 pages, a random area out, a new one in at the lowest fit, until all have changed
 * several times over. */
static void metadata_stay_within_forty_bytes_an_area_under_steady_churn(void **state)
{
    (void)state;
    const uint64_t count = scaled(1000000);
    struct fixture f;
    open_space(&f, 0, (UINT64_C(1) << 47) - 1, PAGE);
    struct mf_area *areas = calloc(count, sizeof(*areas));
    assert_non_null(areas);
    struct mf_fit fit = {.align = 1, .last = TOP, .policy = MF_FIT_LOWEST};
    uint64_t seed = 1;
    for (uint64_t i = 0; i < 5 * count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        struct mf_area *area = &areas[i < count ? i : (seed >> 20) % count];
        if (i >= count)
            assert_int_equal(mf_space_remove(f.space, area->start, area->length), 0);
        fit.length = area->length = (1 + (seed >> 58)) * PAGE;
        assert_int_equal(mf_space_find_gap(f.space, &fit, &area->start), 0);
        assert_int_equal(mf_space_insert(f.space, area), 0);
    }
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    print_message("%llu areas after churn: %.1f bytes of metadata each\n",
                  (unsigned long long)count, (double)stats.metadata_bytes / (double)count);
    assert_int_equal(stats.areas, count);
    assert_in_range(stats.metadata_bytes, 0, 40 * count + 65536);
    free(areas);
    close_space(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_million_pages_apart_fill_a_space_and_leave_it_as_it_was),
        cmocka_unit_test(ten_million_touching_pages_placed_one_by_one_leave_in_the_order_they_came),
        cmocka_unit_test(a_range_over_ten_million_areas_goes_in_one_call),
        cmocka_unit_test(a_space_that_has_shrunk_to_a_hundredth_gives_most_memory_back),
        cmocka_unit_test(an_area_of_a_billion_pages_is_one_area_like_any_other),
        cmocka_unit_test(areas_of_a_page_and_of_a_billion_pages_stand_side_by_side),
        cmocka_unit_test(metadata_stay_within_forty_bytes_an_area_under_steady_churn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
