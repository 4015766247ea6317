/* SPDX-License-Identifier: MIT */
/* Functions that take a const space only read: many threads may be in them at once. */
#include <pthread.h>

#include "scale.h"
#include "space_fixture.h"

enum { READERS = 4, AREAS = 5000 };

static void *read_all(void *argument)
{
    const struct mf_space *space = argument;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < scaled(40000); i++) {
        const uint64_t page = i * 7919 % (2 * AREAS);
        const struct mf_fit fit = {
            .length = PAGE, .align = PAGE, .last = TOP, .hint = page * PAGE, .policy = MF_FIT_HINT};
        struct mf_area area;
        struct mf_space_stats stats;
        uint64_t start;
        wrong += mf_space_find(space, page * PAGE, &area) != (page % 2 ? -ENOENT : 0);
        wrong += mf_space_next(space, page * PAGE, &area) != (page < 2 * AREAS - 1 ? 0 : -ENOENT);
        wrong += mf_space_find_gap(space, &fit, &start) != 0 || start != (page | 1) * PAGE;
        mf_space_stats(space, &stats);
        wrong += stats.areas != AREAS;
    }
    return (void *)(uintptr_t)wrong;
}

static void readers_run_side_by_side_and_all_get_right_answers(void **state)
{
    (void)state;
    struct fixture f;
    open_space(&f, 0, TOP, PAGE);
    for (uint64_t i = 0; i < AREAS; i++)
        assert_int_equal(insert(&f, 2 * i * PAGE, PAGE, i, 0), 0);
    pthread_t readers[READERS];
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_all, f.space), 0);
    for (unsigned i = 0; i < READERS; i++) {
        void *wrong;
        assert_int_equal(pthread_join(readers[i], &wrong), 0);
        assert_null(wrong);
    }
    close_space(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_run_side_by_side_and_all_get_right_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
