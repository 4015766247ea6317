/* SPDX-License-Identifier: MIT */
/*
 * Want of memory: every allocation is made to fail, at each call in turn, in many states; and what
 * has been reserved is never asked for again.
 */
#include "space_fixture.h"
#include "space_pair.h"

/* How a state is built: the areas' lengths, tags and deltas, in ways that a space may store apart.
 */
struct manner {
    const char *name;
    uint64_t step; /* from start to start, bytes */
    uint64_t length;
    bool tags_differ, deltas_differ, downwards;
};

static const struct manner manners[] = {
    {"pages, one tag", 3 * 4096, 2 * 4096, false, false, false},
    {"pages downwards", 3 * 4096, 2 * 4096, false, false, true},
    {"a tag each", 3 * 4096, 3 * 4096, true, false, false},
    {"a tag and a delta each", 4 * 4096, 3 * 4096, true, true, true},
    {"far apart", UINT64_C(1) << 45, 3 * 4096, true, true, false},
    {"gigabytes", UINT64_C(1) << 42, UINT64_C(1) << 41, false, true, false},
};

static struct mf_area area_of(const struct manner *manner, uint64_t i, uint64_t count)
{
    const uint64_t place = 1 + (manner->downwards ? count - 1 - i : i);
    return (struct mf_area){place * manner->step, manner->length,
                            MF_TAG_MERGE | (manner->tags_differ ? i : 0),
                            manner->deltas_differ ? i << 20 : 0};
}

static void build(struct pair *pair, const struct manner *manner, uint64_t count)
{
    assert_true(pair_create(pair, 0, TOP, PAGE));
    pair->full_every = 1 << 30;
    for (uint64_t i = 0; i < count; i++) {
        const struct mf_area area = area_of(manner, i, count);
        assert_int_equal(mf_space_insert(pair->space, &area), 0);
        assert_int_equal(model_insert(&pair->model, &area), 0);
    }
}

static void tear_down(struct pair *pair)
{
    assert_true(pair_compare(pair));
    assert_true(pair_destroy(pair));
}

enum { OPERATIONS = 7 };

/* One operation of each kind that may need memory, in the middle of the areas. */
static struct op operation_of(unsigned which, const struct manner *manner, uint64_t count)
{
    const struct mf_area middle = area_of(manner, count / 2, count);
    struct op op = {.start = middle.start, .length = middle.length, .tag = 99, .delta = 77};
    switch (which) {
    case 0: /* a new area, with tag and delta of its own, at the top */
        op.kind = OP_INSERT;
        op.start = TOP - PAGE + 1;
        op.length = PAGE;
        break;
    case 1: /* the lowest */
        op.kind = OP_PLACE;
        op.fit = (struct mf_fit){.length = PAGE, .align = 1, .last = TOP};
        break;
    case 2: /* between two */
        op.kind = OP_PLACE;
        op.fit = (struct mf_fit){
            .length = PAGE, .align = 1, .last = TOP, .hint = middle.start, .policy = MF_FIT_HINT};
        break;
    case 3: /* one becomes two */
        op.kind = OP_REMOVE;
        op.start += middle.length > 2 * PAGE ? PAGE : 0;
        op.length = PAGE;
        break;
    case 4: /* one becomes three */
        op.kind = OP_RETAG;
        op.start += middle.length > 2 * PAGE ? PAGE : 0;
        op.length = PAGE;
        op.clear = TOP;
        op.set = 5;
        break;
    case 5: /* from the middle of one to the middle of another, far off */
        op.kind = OP_RETAG;
        op.start =
            (manner->downwards ? area_of(manner, count - 1, count) : area_of(manner, 0, count))
                .start +
            PAGE;
        op.length = middle.start > op.start ? middle.start - op.start + PAGE : PAGE;
        op.clear = 3;
        op.set = 4;
        break;
    default:
        op.kind = OP_RESERVE;
        op.operations = 20;
        break;
    }
    return op;
}

/* Applies an operation to a new state; whether it asked for memory in vain is told in *failed. */
static void try_in_state(const struct manner *manner, uint64_t count, const struct op *op,
                         size_t reserve, bool *failed, uint64_t *denied)
{
    struct pair pair;
    build(&pair, manner, count);
    const struct op first = {.kind = OP_RESERVE, .operations = reserve};
    if ((reserve && !pair_apply(&pair, &first)) || !pair_apply(&pair, op)) {
        char text[512];
        op_print(op, text, sizeof(text));
        fail_msg("%s, %u areas, %u reserved, %s: %s", manner->name, (unsigned)count,
                 (unsigned)reserve, text, pair.why);
    }
    *failed = pair.memory.failures > 0;
    *denied += pair.denied;
    tear_down(&pair);
}

static void
every_failing_allocation_leaves_the_space_unchanged_and_the_next_try_succeeds(void **state)
{
    (void)state;
    uint64_t denied = 0, states = 0;
    for (size_t m = 0; m < COUNT(manners); m++) {
        for (uint64_t count = 1; count < 900; count += 1 + count / 12) {
            for (unsigned which = 0; which < OPERATIONS; which++) {
                bool failed = true;
                struct op op = operation_of(which, &manners[m], count);
                for (op.fail_at = 1; failed; op.fail_at++, states++)
                    try_in_state(&manners[m], count, &op, 0, &failed, &denied);
                /* Reserved, it needs no more; a retag counts once for each 2^32 granules. */
                const size_t reserve = op.kind == OP_RETAG ? 1 + (op.length >> 44) + 1 : 1;
                if (op.fail_at > 2 && op.kind != OP_RESERVE)
                    try_in_state(&manners[m], count, &op, reserve, &failed, &denied);
            }
        }
    }
    print_message("%u operations were refused for want of memory, of %u\n", (unsigned)denied,
                  (unsigned)states);
    assert_in_range(denied, 100, states);
}

static void a_space_that_cannot_be_made_for_want_of_memory_leaks_nothing(void **state)
{
    (void)state;
    struct checked_alloc memory;
    checked_alloc_init(&memory);
    int result = -ENOMEM;
    for (size_t k = 1; result != 0; k++) {
        struct mf_space *const before = (struct mf_space *)&memory;
        struct mf_space *space = before;
        memory.fail_at = k;
        result = mf_space_create(0, TOP, PAGE, &memory.alloc, &space);
        assert_in_range(k, 1, 16);
        if (result == 0) {
            assert_int_not_equal(memory.failures, 0);
            mf_space_destroy(space);
        } else {
            assert_int_equal(result, -ENOMEM);
            assert_ptr_equal(space, before);
        }
        assert_int_equal(memory.live_blocks, 0);
    }
}

static void errors_in_the_question_are_told_even_where_memory_is_out(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, 1024 * PAGE - 1, PAGE);
    for (uint64_t i = 0; i < 512; i++)
        assert_int_equal(insert(&f, 2 * i * PAGE, PAGE, i, i), 0);
    f.memory.fail_at = 1;
    f.memory.fail_forever = true;
    const struct mf_fit too_long = {.length = 2 * PAGE, .align = 1, .last = TOP};
    const struct mf_fit bad = {.length = PAGE, .align = 0, .last = TOP};
    for (uint64_t i = 0; i < 512; i++) {
        assert_int_equal(insert(&f, 2 * i * PAGE, PAGE, 0, 0), -EEXIST);
        assert_int_equal(insert(&f, 2 * i * PAGE, 0, 0, 0), -EINVAL);
        assert_int_equal(insert(&f, (1024 + i) * PAGE, PAGE, 0, 0), -ERANGE);
        assert_int_equal(mf_space_place(f.space, &too_long, 0, 0, NULL), -ENOSPC);
        assert_int_equal(mf_space_place(f.space, &bad, 0, 0, NULL), -EINVAL);
    }
    close_space(&f);
}

static void whole_areas_and_ends_are_removed_without_memory(void **state)
{
    (void)state;
    for (size_t m = 0; m < COUNT(manners); m++) {
        for (unsigned order = 0; order < 3; order++) {
            struct pair pair;
            const uint64_t count = 1000;
            build(&pair, &manners[m], count);
            pair.full_every = 500;
            pair.memory.forbidden = true;
            for (uint64_t i = 0; i < count; i++) {
                const uint64_t which = order == 0   ? i
                                       : order == 1 ? count - 1 - i
                                                    : (i * 1009 + 7) % count;
                const struct mf_area area = area_of(&manners[m], which, count);
                const uint64_t end = area.start + area.length - PAGE;
                assert_int_equal(mf_space_remove(pair.space, area.start, PAGE), 0);
                assert_int_equal(mf_space_remove(pair.space, end, PAGE), 0);
                assert_int_equal(mf_space_remove(pair.space, area.start, area.length), 0);
            }
            assert_int_equal(pair.memory.forbidden_calls, 0);
            pair.model.count = 0;
            tear_down(&pair);
        }
    }
}

/* One operation of a kind at an area, which needs no memory that was not reserved. */
static void apply_reserved(struct pair *pair, unsigned which, struct mf_area area, uint64_t i)
{
    int result;
    if (which == 0) {
        result = mf_space_remove(pair->space, area.start + PAGE, PAGE);
        model_remove(&pair->model, area.start + PAGE, PAGE);
    } else if (which == 1) {
        result = mf_space_retag(pair->space, area.start + PAGE, PAGE, TOP, i);
        model_retag(&pair->model, area.start + PAGE, PAGE, TOP, i);
    } else if (which == 2) {
        const struct mf_fit fit = {
            .length = PAGE, .align = 1, .last = TOP, .hint = area.start, .policy = MF_FIT_HINT};
        result = mf_space_place(pair->space, &fit, i, i << 30, &area);
        model_place(&pair->model, &fit, i, i << 30, &area);
    } else {
        const uint64_t length = area.length + 200 * PAGE;
        result = mf_space_retag(pair->space, area.start + PAGE, length, 3, i << 2);
        model_retag(&pair->model, area.start + PAGE, length, 3, i << 2);
    }
    assert_int_equal(result, 0);
}

/* Each of them in another leaf of a tree whose leaves are full, with so many reserved at a time. */
static void apply_many_reserved(const struct manner *manner, unsigned which, uint64_t count,
                                uint64_t reserved)
{
    enum { OPERATIONS_IN_ALL = 300 };
    struct pair pair;
    build(&pair, manner, count);
    for (uint64_t i = 0; i < OPERATIONS_IN_ALL; i++) {
        if (i % reserved == 0)
            assert_int_equal(mf_space_reserve(pair.space, reserved), 0);
        pair.memory.forbidden = true;
        apply_reserved(&pair, which, area_of(manner, (i * 7919 + 3) % count, count), i);
        pair.memory.forbidden = false;
    }
    assert_int_equal(pair.memory.forbidden_calls, 0);
    tear_down(&pair);
}

static void reserved_operations_never_allocate_wherever_they_are(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 40, 1100, 5000};
    for (size_t m = 0; m < COUNT(manners); m++) {
        /* A long retag is one operation only where it does not reach far. */
        const unsigned kinds = manners[m].step < UINT64_C(1) << 32 ? 4 : 3;
        for (unsigned which = 0; which < kinds; which++) {
            apply_many_reserved(&manners[m], which, 2000, which < 3 ? 300 : 1);
            for (size_t c = 0; c < COUNT(counts); c++)
                apply_many_reserved(&manners[m], which, counts[c], 1);
        }
    }
}

static void a_small_space_is_a_page_and_what_it_reserves_is_in_it(void **state)
{
    (void)state;
    struct fixture f;
    struct mf_space_stats stats;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(insert(&f, 3 * i * PAGE, 2 * PAGE, 0, 0), 0);
        assert_int_equal(mf_space_reserve(f.space, 1), 0);
    }
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.metadata_bytes, 4096);
    assert_int_equal(f.memory.live_bytes, 4096);
    close_space(&f);
}

/* Areas that meet at every multiple of 2^32 granules, in leaves that are full, and become one: what
 * is stored as narrow numbers must be stored as wide ones in many places at once. */
static void a_reserved_retag_over_many_areas_far_apart_never_allocates(void **state)
{
    (void)state;
    const uint64_t window = UINT64_C(1) << 32, windows = 60;
    struct pair pair;
    assert_true(pair_create(&pair, 0, TOP, 1));
    pair.full_every = 1 << 30;
    for (uint64_t w = 1; w <= windows; w++) {
        for (int64_t i = -100; i < 100; i++) {
            const struct mf_area area = {w * window + (uint64_t)(i * 10),
                                         i == -1 || i == 0 ? 10 : 5,
                                         MF_TAG_MERGE | (i == 0 ? 2 : 0), 0};
            assert_int_equal(mf_space_insert(pair.space, &area), 0);
            assert_int_equal(model_insert(&pair.model, &area), 0);
        }
    }
    assert_true(pair_compare(&pair));
    const struct op reserve = {.kind = OP_RESERVE, .operations = windows + 1};
    const struct op retag = {.kind = OP_RETAG, .length = (windows + 1) * window, .clear = 2};
    assert_true(pair_apply(&pair, &reserve));
    if (!pair_apply(&pair, &retag))
        fail_msg("%s", pair.why);
    struct mf_area merged;
    assert_int_equal(mf_space_find(pair.space, window, &merged), 0);
    assert_same_area(&merged, &(struct mf_area){window - 10, 25, MF_TAG_MERGE, 0});
    tear_down(&pair);
}

static void a_reservation_is_set_anew_and_given_back(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(insert(&f, 0, PAGE, 1, 1), 0);
    const size_t before = f.memory.live_bytes;
    assert_int_equal(mf_space_reserve(f.space, 5000), 0);
    assert_in_range(f.memory.live_bytes, before + 1, SIZE_MAX);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.metadata_bytes, f.memory.live_bytes);
    const size_t large = f.memory.live_bytes;
    assert_int_equal(mf_space_reserve(f.space, 100), 0);
    assert_in_range(f.memory.live_bytes, before, large - 1);
    assert_int_equal(mf_space_reserve(f.space, 0), 0);
    assert_in_range(f.memory.live_bytes, 0, before + 16384);
    assert_areas(&f, &(struct mf_area){0, PAGE, 1, 1}, 1);
    close_space(&f);
}

static void a_reservation_that_fails_keeps_the_earlier_one_and_no_memory(void **state)
{
    (void)state;
    enum { EARLIER = 50 };
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < 3000; i++)
        assert_int_equal(insert(&f, 3 * i * PAGE, 3 * PAGE, i, i), 0);
    assert_int_equal(mf_space_reserve(f.space, EARLIER), 0);
    const size_t before = f.memory.live_bytes;
    for (size_t k = 1; k < 6; k++) {
        f.memory.fail_at = k;
        f.memory.fail_forever = true;
        assert_int_equal(mf_space_reserve(f.space, 100000), -ENOMEM);
        assert_int_equal(f.memory.live_bytes, before);
        f.memory.fail_forever = false;
        f.memory.fail_at = 0;
    }
    f.memory.fail_at = 1;
    f.memory.fail_forever = true;
#if SIZE_MAX > UINT32_MAX
    assert_int_equal(mf_space_reserve(f.space, (size_t)1 << 32), -ENOMEM);
    assert_int_equal(mf_space_reserve(f.space, ((size_t)1 << 32) + 1), -EINVAL);
#endif
    assert_int_equal(f.memory.live_bytes, before);
    f.memory.fail_at = 0;
    f.memory.forbidden = true;
    for (uint64_t i = 0; i < EARLIER; i++)
        assert_int_equal(mf_space_remove(f.space, (3 * i * 60 + 1) * PAGE, PAGE), 0);
    assert_int_equal(f.memory.forbidden_calls, 0);
    close_space(&f);
}

static void an_operation_beyond_the_reserved_ones_may_fail_and_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    assert_int_equal(mf_space_reserve(f.space, 10), 0);
    f.memory.fail_at = 1;
    f.memory.fail_forever = true;
    int result = 0;
    uint64_t i = 0;
    while (result == 0) {
        assert_in_range(i, 0, 1000000);
        result = insert(&f, 2 * i * PAGE, PAGE, i, i << 13);
        i += result == 0;
    }
    assert_int_equal(result, -ENOMEM);
    assert_in_range(i, 10, 1000000);
    struct mf_space_stats stats;
    mf_space_stats(f.space, &stats);
    assert_int_equal(stats.areas, i);
    struct dump before;
    take_dump(&before, f.space);
    for (unsigned again = 0; again < 3; again++)
        assert_int_equal(insert(&f, 2 * i * PAGE, PAGE, i, i << 13), -ENOMEM);
    assert_unchanged(&before, f.space);
    assert_int_equal(mf_space_remove(f.space, 0, TOP - PAGE + 1), 0); /* needs none */
    f.memory.fail_at = 0;
    f.memory.fail_forever = false;
    assert_areas(&f, NULL, 0);
    assert_int_equal(insert(&f, 0, PAGE, 1, 1), 0);
    close_space(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            every_failing_allocation_leaves_the_space_unchanged_and_the_next_try_succeeds),
        cmocka_unit_test(a_space_that_cannot_be_made_for_want_of_memory_leaks_nothing),
        cmocka_unit_test(errors_in_the_question_are_told_even_where_memory_is_out),
        cmocka_unit_test(whole_areas_and_ends_are_removed_without_memory),
        cmocka_unit_test(reserved_operations_never_allocate_wherever_they_are),
        cmocka_unit_test(a_small_space_is_a_page_and_what_it_reserves_is_in_it),
        cmocka_unit_test(a_reserved_retag_over_many_areas_far_apart_never_allocates),
        cmocka_unit_test(a_reservation_is_set_anew_and_given_back),
        cmocka_unit_test(a_reservation_that_fails_keeps_the_earlier_one_and_no_memory),
        cmocka_unit_test(an_operation_beyond_the_reserved_ones_may_fail_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
