/* SPDX-License-Identifier: MIT */
/*
 * Files that are touched seldom, many more than there are descriptors: which descriptors stay open,
 * that a file is recognised when it is opened again, and what is mapped. With an argument as on a
 * kernel before 6.12, which does not tell a mount's number with a file handle.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

#include "linux/system.h"

static struct {
    enum system_call call;
    int err;
    unsigned countdown; /* 0: none fails */
} plan;
static _Atomic unsigned calls[SYSTEM_CALLS];

int system_inject(enum system_call call)
{
    atomic_fetch_add(&calls[call], 1);
    if (call != plan.call || !plan.countdown || --plan.countdown)
        return 0;
    return plan.err;
}

size_t system_read_at_most(void)
{
    return SIZE_MAX;
}

enum { FILES = 200, LIMIT = 64 };
static struct mf_pool *pool;
static struct mf_file *files[FILES];
static unsigned descriptors;
static bool looks_failed; /* then up to four descriptors are never closed */

static const char *name_of(unsigned i)
{
    char name[16];
    snprintf(name, sizeof(name), "cold%u", i);
    return path_of(name);
}

/* Every touch is a copy. */
static int begin(void **state)
{
    (void)state;
    descriptors = open_descriptors();
    looks_failed = false;
    pool = make_pool(64 * page, 8, LIMIT, 4 * page);
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "cold%u", i);
        files[i] = open_file(pool, make_bytes(name, page, i), MF_FILE_COPY);
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    plan.countdown = 0;
    assert_true(open_descriptors() - descriptors <= LIMIT);
    assert_int_equal(mf_file_close_many(files, FILES), 0);
    const uint32_t left = stats_of(pool).files_open;
    assert_true(left <= (looks_failed ? 4 : 0));
    assert_int_equal(stats_of(pool).bytes_copied, 0);
    assert_int_equal(open_descriptors(), descriptors + left);
    return mf_pool_destroy(pool);
}

static int try(unsigned i)
{
    struct mf_window w = {0};
    const int err = mf_window_pin(files[i], 1, 10, 0, MF_NOWAIT, &w);
    if (!err) {
        assert_bytes(w.data, 1, 10, i);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    return err;
}

static void touch(unsigned i)
{
    assert_int_equal(try(i), 0);
}

static void a_pass_over_many_files_leaves_warm_descriptors_open(void **state)
{
    (void)state;
    enum { WARM = 30 };
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < WARM; i++)
            touch(i);
    const uint64_t before = stats_of(pool).reopened;
    for (unsigned i = WARM; i < FILES; i++) {
        touch(i);
        assert_true(stats_of(pool).files_open <= LIMIT);
        assert_true(open_descriptors() - descriptors <= LIMIT);
    }
    const uint64_t between = stats_of(pool).reopened;
    assert_true(between - before > FILES - LIMIT - WARM);
    for (unsigned i = 0; i < WARM; i++)
        touch(i);
    assert_int_equal(stats_of(pool).reopened, between);
}

static void a_cold_touch_needs_no_look_at_other_files(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FILES; i++)
        touch(i);
    const unsigned looks = atomic_load(&calls[SYSTEM_FSTAT]),
                   opens = atomic_load(&calls[SYSTEM_OPEN]);
    const unsigned closes = atomic_load(&calls[SYSTEM_CLOSE_RANGE]);
    for (unsigned i = 0; i < FILES / 2; i++)
        touch(i);
    const unsigned opened = atomic_load(&calls[SYSTEM_OPEN]) - opens;
    assert_true(opened > 0);
    /* An old kernel asks for the device, of the file itself. */
    assert_true(atomic_load(&calls[SYSTEM_FSTAT]) - looks <= opened);
    assert_true(atomic_load(&calls[SYSTEM_CLOSE_RANGE]) - closes <= opened / 2);
}

static void a_file_used_twice_that_loses_its_links_keeps_its_descriptor(void **state)
{
    (void)state;
    touch(5);
    touch(5);
    assert_int_equal(unlink(name_of(5)), 0);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 6; i < FILES; i++) {
            touch(i);
            touch(i);
        }
    touch(5);
    assert_true(stats_of(pool).files_open <= LIMIT);
}

static void a_path_that_leads_elsewhere_is_stale_though_the_inode_number_is_the_same(void **state)
{
    (void)state;
    unsigned alike = 0;
    for (unsigned i = 0; i < 100; i++) {
        struct stat old, new;
        assert_int_equal(stat(name_of(i), &old), 0);
        assert_int_equal(unlink(name_of(i)), 0);
        char name[16];
        snprintf(name, sizeof(name), "cold%u", i);
        make_bytes(name, page, 99);
        assert_int_equal(stat(name_of(i), &new), 0);
        alike += old.st_ino == new.st_ino;
        const int err = try(i);
        assert_true(!err || err == -ESTALE); /* its descriptor may be open */
    }
    for (unsigned i = 0; i < 100; i++) /* on trial no more, and never recognised */
        try(i);
    print_message("%u of 100 inode numbers were used again at once\n", alike);
    assert_int_equal(unlink(name_of(150)), 0);
    for (unsigned i = 0; i < 100; i++)
        touch(100 + i % 50);
    if (try(150))
        assert_int_equal(try(150), -ESTALE);
}

/* One inode number and one tick of the clock for both: only the generation tells them apart. */
static void a_file_is_not_taken_for_one_born_in_the_same_tick(void **state)
{
    (void)state;
    const struct mf_pool_limits one = {64 * page, 8, 1};
    struct mf_pool *small;
    assert_int_equal(mf_pool_create(&one, 4 * page, 0, &small), 0);
    unsigned twins = 0;
    for (unsigned i = 0; i < 300; i++) {
        struct statx a = {0}, b = {0};
        struct mf_window w = {0};
        const char *path = make_bytes("twin", 16, 1);
        struct mf_file *file = open_file(small, path, MF_FILE_COPY);
        assert_int_equal(statx(AT_FDCWD, path, 0, STATX_BTIME | STATX_INO, &a), 0);
        struct mf_file *other = open_file(small, name_of(0), MF_FILE_COPY);
        assert_int_equal(unlink(path), 0);
        make_bytes("twin", 16, 2);
        assert_int_equal(statx(AT_FDCWD, path, 0, STATX_BTIME | STATX_INO, &b), 0);
        twins += a.stx_ino == b.stx_ino && a.stx_btime.tv_sec == b.stx_btime.tv_sec &&
                 a.stx_btime.tv_nsec == b.stx_btime.tv_nsec;
        assert_int_equal(mf_window_pin(file, 0, 10, 0, MF_NOWAIT, &w), -ESTALE);
        mf_file_close(file);
        mf_file_close(other);
        assert_int_equal(unlink(path), 0);
    }
    print_message("%u of 300 had the inode number and time of birth of the one before\n", twins);
    assert_int_equal(mf_pool_destroy(small), 0);
}

static void each_call_may_fail(void **state)
{
    (void)state;
    static const struct {
        enum system_call call;
        int err;
        unsigned least, most; /* touches that it is told to */
    } failures[] = {
        /* Of the open and the first look there mostly is another way. */
        {SYSTEM_OPEN, EACCES, 0, 1},       {SYSTEM_OPEN, EMFILE, 0, 0},
        {SYSTEM_HANDLE, ENOMEM, 0, 1},     {SYSTEM_HANDLE, EPERM, 0, 1},
        {SYSTEM_PREAD, EIO, 1, 1},         {SYSTEM_CLOSE_RANGE, ENOSYS, 0, 0},
        {SYSTEM_CLOSE_RANGE, EPERM, 0, 0},
    };
    for (unsigned f = 0; f < sizeof(failures) / sizeof(failures[0]); f++)
        for (unsigned n = 1; n <= 20; n++) {
            unsigned told = 0;
            plan = (typeof(plan)){failures[f].call, failures[f].err, n};
            looks_failed |= failures[f].call == SYSTEM_HANDLE;
            for (unsigned i = 0; i < FILES; i++) {
                const int err = try((i + n * 70) % FILES);
                assert_true(!err || err == -failures[f].err);
                told += err != 0;
            }
            assert_int_equal(plan.countdown, 0); /* it was reached */
            assert_in_range(told, failures[f].least, failures[f].most);
            assert_true(stats_of(pool).files_open <= LIMIT);
            assert_int_equal(stats_of(pool).bytes_copied, 0);
            assert_int_equal(open_descriptors() - descriptors, stats_of(pool).files_open);
        }
}

/* Looked at, closed, opened by its path, and looked at again. */
static void a_file_is_opened_again_without_proc(void **state)
{
    (void)state;
    unsigned without = 0, stale = 0;
    /* So few that none may be left open for good: every path is looked at by a descriptor. */
    const struct mf_pool_limits few = {64 * page, 8, 7};
    assert_int_equal(mf_pool_set_limits(pool, &few), 0);
    for (unsigned i = 0; i < FILES / 2; i++) {
        touch(i + FILES / 2); /* so that others are closed */
        if (i % 2) {
            char name[16];
            snprintf(name, sizeof(name), "cold%u", i);
            assert_int_equal(unlink(name_of(i)), 0);
            make_bytes(name, page, 99);
        }
        const unsigned opens = atomic_load(&calls[SYSTEM_OPEN]);
        plan = (typeof(plan)){SYSTEM_OPEN, ENOENT, 2};
        const int err = try(i);
        const unsigned opened = atomic_load(&calls[SYSTEM_OPEN]) - opens;
        plan.countdown = 0;
        assert_true(!err || (err == -ESTALE && i % 2));
        without += opened == 3;
        stale += err != 0;
        assert_int_equal(open_descriptors() - descriptors, stats_of(pool).files_open);
    }
    assert_true(without > FILES / 8 && stale > FILES / 8);
}

static void lowered_limits_close_what_is_on_trial(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FILES; i++)
        touch(i);
    const struct mf_pool_limits low = {64 * page, 8, 3}, high = {64 * page, 8, LIMIT};
    assert_int_equal(mf_pool_set_limits(pool, &low), 0);
    assert_true(stats_of(pool).files_open <= 3);
    assert_int_equal(open_descriptors() - descriptors, stats_of(pool).files_open);
    for (unsigned i = 0; i < FILES; i++) {
        touch(i);
        assert_true(open_descriptors() - descriptors <= 3);
    }
    assert_int_equal(mf_pool_set_limits(pool, &high), 0);
    for (unsigned i = 0; i < FILES; i++)
        touch(i);
}

static void *touch_at_random(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    for (unsigned i = 0; i < (SANITIZED || emulated() ? 3000 : 20000); i++)
        if (i % 100 == 99)
            assert_true(mf_file_size(files[(unsigned)rand_r(&seed) % FILES]) == (int64_t)page);
        else
            touch(i % 3 ? (unsigned)rand_r(&seed) % FILES : (unsigned)rand_r(&seed) % 40);
    return NULL;
}

static void threads_share_few_descriptors(void **state)
{
    (void)state;
    pthread_t threads[4];
    unsigned seeds[4] = {1, 2, 3, 4};
    for (unsigned limit = LIMIT; limit >= 4; limit /= 4) {
        const struct mf_pool_limits limits = {64 * page, 8, limit};
        assert_int_equal(mf_pool_set_limits(pool, &limits), 0);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, touch_at_random, &seeds[i]), 0);
        for (unsigned i = 0; i < 100; i++) {
            assert_true(stats_of(pool).files_open <= limit);
            usleep(100);
        }
        for (unsigned i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(open_descriptors() - descriptors, stats_of(pool).files_open);
    }
}

/* A window outlives its file, and asks for the size as long as it can. */
static void *check_sizes(void *argument)
{
    struct mf_window *w = argument;
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(mf_window_check(w), 0);
    return NULL;
}

static void a_file_may_be_closed_while_its_descriptor_is_opened_again(void **state)
{
    (void)state;
    const struct mf_pool_limits one = {64 * page, 8, 1};
    struct mf_pool *small;
    assert_int_equal(mf_pool_create(&one, 4 * page, 0, &small), 0);
    for (unsigned i = 0; i < 20; i++) {
        struct mf_file *file = open_file(small, name_of(1), 0);
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, 0, 10, MF_CHECK_SIZE, MF_NOWAIT, &w), 0);
        struct mf_file *other = open_file(small, name_of(2), MF_FILE_COPY);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, check_sizes, &w), 0);
        for (unsigned k = 0; k < i; k++)
            assert_int_equal(mf_file_size(other), page); /* takes the descriptor away */
        assert_int_equal(mf_file_close(file), 0);
        pthread_join(thread, NULL);
        assert_int_equal(mf_window_unpin(&w), 0);
        assert_int_equal(mf_file_close(other), 0);
        assert_int_equal(stats_of(small).files_open, 0);
    }
    assert_int_equal(mf_pool_destroy(small), 0);
}

static bool touch_is_mapped(struct mf_file *file)
{
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, MF_MAY_COPY, MF_NOWAIT, &w), 0);
    const bool mapped = !(w.flags & MF_WINDOW_COPY);
    assert_int_equal(mf_window_unpin(&w), 0);
    return mapped;
}

static void what_would_send_another_extent_away_is_mapped_on_the_fourth_touch(void **state)
{
    (void)state;
    struct mf_pool *two = make_pool(64 * page, 2, 8, 4 * page);
    struct mf_file *file[3];
    for (unsigned i = 0; i < 3; i++)
        file[i] = open_file(two, name_of(i), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(touch_is_mapped(file[i]));
        assert_true(touch_is_mapped(file[i]));
    }
    for (unsigned n = 1; n <= 3; n++)
        assert_false(touch_is_mapped(file[2]));
    assert_true(touch_is_mapped(file[2]));
    assert_int_equal(mf_file_close_many(file, 3), 0);
    assert_int_equal(mf_pool_destroy(two), 0);
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_pass_over_many_files_leaves_warm_descriptors_open, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_cold_touch_needs_no_look_at_other_files, begin, end),
        cmocka_unit_test_setup_teardown(a_file_used_twice_that_loses_its_links_keeps_its_descriptor,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            a_path_that_leads_elsewhere_is_stale_though_the_inode_number_is_the_same, begin, end),
        cmocka_unit_test_setup_teardown(a_file_is_not_taken_for_one_born_in_the_same_tick, begin,
                                        end),
        cmocka_unit_test_setup_teardown(each_call_may_fail, begin, end),
        cmocka_unit_test_setup_teardown(a_file_is_opened_again_without_proc, begin, end),
        cmocka_unit_test_setup_teardown(lowered_limits_close_what_is_on_trial, begin, end),
        cmocka_unit_test_setup_teardown(threads_share_few_descriptors, begin, end),
        cmocka_unit_test_setup_teardown(a_file_may_be_closed_while_its_descriptor_is_opened_again,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            what_would_send_another_extent_away_is_mapped_on_the_fourth_touch, begin, end),
    };
    if (argc > 1)
        plan = (typeof(plan)){SYSTEM_HANDLE, EINVAL, 1};
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
