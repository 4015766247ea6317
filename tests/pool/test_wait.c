/* SPDX-License-Identifier: MIT */
/* Who waits for room, and what makes it: copies given back, limits changed, other pools' extents.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

enum { EXTENT_PAGES = 4 };

struct pinner {
    struct mf_file *file;
    size_t length;
    int result;
    pthread_t thread;
};

static void *pin_for_ever(void *argument)
{
    struct pinner *p = argument;
    struct mf_window w = {0};
    p->result = mf_window_pin(p->file, 0, p->length, 0, MF_FOREVER, &w);
    if (!p->result)
        mf_window_unpin(&w);
    return NULL;
}

/* Returns when the thread stands in the queue. */
static void start(struct pinner *p, struct mf_pool *pool)
{
    const uint64_t waits = stats_of(pool).waits;
    assert_int_equal(pthread_create(&p->thread, NULL, pin_for_ever, p), 0);
    while (stats_of(pool).waits == waits)
        usleep(1000);
    usleep(20000); /* most likely asleep by now; if not, the test proves less */
}

static int result_of(struct pinner *p)
{
    pthread_join(p->thread, NULL); /* a lost wake-up: the alarm ends it */
    return p->result;
}

static void a_copy_given_back_wakes_who_waits_for_its_bytes(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(EXTENT_PAGES * page, 16, 4, EXTENT_PAGES * page);
    struct mf_file *copied = open_file(pool, make_bytes("a", 100, 1), MF_FILE_COPY);
    struct mf_file *mapped = open_file(pool, make_bytes("b", EXTENT_PAGES * page, 2), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(copied, 0, 100, 0, MF_NOWAIT, &w), 0);
    struct pinner p = {.file = mapped, .length = EXTENT_PAGES * page};
    start(&p, pool);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(result_of(&p), 0);
    mf_file_close(copied);
    mf_file_close(mapped);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void raised_limits_wake_who_waits(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(EXTENT_PAGES * page, 1, 4, EXTENT_PAGES * page);
    struct mf_file *a = open_file(pool, make_bytes("a", EXTENT_PAGES * page, 1), 0);
    struct mf_file *b = open_file(pool, make_bytes("b", EXTENT_PAGES * page, 2), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(a, 0, 1, 0, MF_NOWAIT, &w), 0);
    struct pinner p = {.file = b, .length = page};
    start(&p, pool);
    const struct mf_pool_limits more = {8 * EXTENT_PAGES * page, 8, 4};
    assert_int_equal(mf_pool_set_limits(pool, &more), 0);
    assert_int_equal(result_of(&p), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(a);
    mf_file_close(b);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void who_waits_for_more_than_lowered_limits_allow_is_refused(void **state)
{
    (void)state;
    const uint64_t extent = EXTENT_PAGES * page;
    struct mf_pool *pool = make_pool(8 * extent, 16, 4, extent);
    struct mf_file *a = open_file(pool, make_bytes("a", 8 * extent, 1), 0);
    struct mf_file *b = open_file(pool, make_bytes("b", 8 * extent, 2), 0);
    struct mf_window w[3] = {{0}}, other = {0};
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(mf_window_pin(a, i * extent, 1, 0, MF_NOWAIT, &w[i]), 0);
    struct pinner large = {.file = b, .length = 6 * extent};
    start(&large, pool);
    const struct mf_pool_limits less = {4 * extent, 16, 4};
    assert_int_equal(mf_pool_set_limits(pool, &less), 0);
    assert_int_equal(result_of(&large), -E2BIG);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(mf_window_unpin(&w[i]), 0);
    assert_int_equal(mf_window_pin(a, 5 * extent, 1, 0, MF_FOREVER, &other), 0);
    assert_int_equal(mf_window_unpin(&other), 0);
    mf_file_close(a);
    mf_file_close(b);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static _Atomic bool limits_stop;

static void *set_limits_in_vain(void *pool)
{
    const struct mf_pool_limits too_low = {EXTENT_PAGES * page, 16, 4};
    while (!atomic_load(&limits_stop))
        if (mf_pool_set_limits(pool, &too_low) != -EBUSY)
            return pool;
    return NULL;
}

static void limits_tried_in_vain_refuse_nobody(void **state)
{
    (void)state;
    const uint64_t extent = EXTENT_PAGES * page;
    struct mf_pool *pool = make_pool(8 * extent, 16, 4, extent);
    struct mf_file *file = open_file(pool, make_bytes("a", 8 * extent, 1), 0);
    struct mf_window held[2] = {{0}}, w = {0};
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(mf_window_pin(file, i * extent, 1, 0, MF_NOWAIT, &held[i]), 0);
    atomic_store(&limits_stop, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_limits_in_vain, pool), 0);
    for (unsigned i = 0; i < 2000; i++) {
        /* Of two extents: evicted and mapped again all the time. */
        assert_int_equal(mf_window_pin(file, (3 + i % 4) * extent, 2 * extent - i % 4 * extent / 3,
                                       0, MF_FOREVER, &w),
                         0);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    atomic_store(&limits_stop, true);
    void *result;
    pthread_join(thread, &result);
    assert_null(result);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(mf_window_unpin(&held[i]), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static const struct mf_pool_limits no_cap = {UINT64_MAX, 65536, 1};

static void idle_extents_of_other_pools_go_for_the_process_wide_cap(void **state)
{
    (void)state;
    const uint64_t extent = EXTENT_PAGES * page;
    struct mf_pool *first = make_pool(16 * extent, 16, 4, extent);
    struct mf_pool *second = make_pool(16 * extent, 16, 4, extent);
    struct mf_file *a = open_file(first, make_bytes("a", 8 * extent, 1), 0);
    struct mf_file *b = open_file(second, make_bytes("b", extent, 2), 0);
    struct mf_file *c = open_file(second, make_bytes("c", extent - 1, 3), MF_FILE_COPY);
    const struct mf_pool_limits cap = {4 * extent, 64, 1};
    assert_int_equal(mf_pool_set_limits(NULL, &cap), 0);
    struct mf_window w[4] = {{0}}, x = {0};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(mf_window_pin(a, i * extent, 1, 0, MF_NOWAIT, &w[i]), 0);
        assert_int_equal(mf_window_unpin(&w[i]), 0);
    }
    assert_int_equal(mf_window_pin(b, 0, 1, 0, MF_NOWAIT, &x), 0);
    assert_bytes(x.data, 0, 1, 2);
    assert_int_equal(mf_window_unpin(&x), 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(mf_window_pin(a, i * extent, 1, 0, MF_NOWAIT, &w[i]), 0);
        assert_int_equal(mf_window_unpin(&w[i]), 0);
    }
    assert_int_equal(mf_window_pin(c, 0, extent - 1, 0, MF_NOWAIT, &x), 0);
    assert_int_equal(mf_window_unpin(&x), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(mf_window_pin(a, i * extent, 1, 0, MF_NOWAIT, &w[i]), 0);
    assert_int_equal(mf_window_pin(b, 0, 1, 0, MF_NOWAIT, &x), -ENOMEM); /* all is pinned */
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(mf_window_unpin(&w[i]), 0);
    assert_int_equal(mf_pool_set_limits(NULL, &no_cap), 0);
    mf_file_close(a);
    mf_file_close(b);
    mf_file_close(c);
    assert_int_equal(mf_pool_destroy(first), 0);
    assert_int_equal(mf_pool_destroy(second), 0);
}

static _Atomic bool stop;

static void *change_the_cap(void *unused)
{
    (void)unused;
    const struct mf_pool_limits low = {EXTENT_PAGES * page, 64, 1};
    while (!atomic_load(&stop)) {
        mf_pool_set_limits(NULL, &low);
        mf_pool_set_limits(NULL, &no_cap);
    }
    return NULL;
}

static void pools_may_be_destroyed_while_the_process_wide_cap_changes(void **state)
{
    (void)state;
    const char *path = make_bytes("a", 8 * EXTENT_PAGES * page, 1);
    atomic_store(&stop, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change_the_cap, NULL), 0);
    for (unsigned i = 0; i < 400; i++) {
        struct mf_pool *pool = make_pool(64 * page, 16, 4, EXTENT_PAGES * page);
        struct mf_file *file = open_file(pool, path, 0);
        for (unsigned k = 0; k < 8; k++) {
            struct mf_window w = {0};
            if (mf_window_pin(file, k * EXTENT_PAGES * page, 1, 0, MF_NOWAIT, &w) == 0)
                assert_int_equal(mf_window_unpin(&w), 0);
        }
        mf_file_close(file);
        assert_int_equal(mf_pool_destroy(pool), 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(mf_pool_set_limits(NULL, &no_cap), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_given_back_wakes_who_waits_for_its_bytes),
        cmocka_unit_test(raised_limits_wake_who_waits),
        cmocka_unit_test(who_waits_for_more_than_lowered_limits_allow_is_refused),
        cmocka_unit_test(limits_tried_in_vain_refuse_nobody),
        cmocka_unit_test(idle_extents_of_other_pools_go_for_the_process_wide_cap),
        cmocka_unit_test(pools_may_be_destroyed_while_the_process_wide_cap_changes),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
