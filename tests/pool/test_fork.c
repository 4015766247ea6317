/* SPDX-License-Identifier: MIT */
/*
 * A fork at any moment of what another thread does with one window, or one read. The child unpins
 * that thread's window if it is pinned, and then nothing may be left, or missing.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LENGTH = 50000 };

static struct mf_pool *pool;
static struct mf_file *file;
static struct mf_window shared;
static char buffer[LENGTH];
static _Atomic bool stop;

static void *pin_and_unpin(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (mf_window_pin(file, 0, LENGTH, 0, MF_NOWAIT, &shared) == 0)
            mf_window_unpin(&shared);
    }
    return NULL;
}

static void *read_again_and_again(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        mf_read(file, 0, buffer, LENGTH, 0);
    return NULL;
}

static void *pin_and_unpin_locally(void *unused)
{
    (void)unused;
    struct mf_window outer = {0}, inner = {0};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (mf_local_pin(file, 0, 10, &outer))
            continue;
        if (mf_local_pin(file, 100, 10, &inner) == 0)
            mf_local_unpin(&inner);
        mf_local_unpin(&outer);
    }
    return NULL;
}

/* 0, or what is wrong. */
static int settle_in_child(void)
{
    alarm(20);
    const bool pinned = mf_window_check(&shared) == 0;
    if ((mf_window_unpin(&shared) == 0) != pinned)
        return 2;
    const struct mf_pool_stats stats = stats_of(pool);
    if (stats.pinned || stats.bytes_copied)
        return stats.pinned ? 3 : 4;
    struct mf_window w = {0};
    if (mf_window_pin(file, 0, LENGTH, 0, MF_NOWAIT, &w) || mf_window_unpin(&w))
        return 5;
    if (mf_file_close(file) || mf_pool_destroy(pool))
        return 6;
    return 0;
}

/* An emulator and the sanitizers fork slowly. */
static unsigned forks(void)
{
    return emulated() ? 20 : SANITIZED ? 80 : 300;
}

static void fork_beside(void *(*deed)(void *), uint32_t flags)
{
    const uint64_t extent = 16 * page;
    pool = make_pool(4 * extent, 8, 4, extent);
    file = open_file(pool, make_bytes("a", 16 * 4096, 1), flags);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, LENGTH, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    atomic_store(&stop, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, deed, NULL), 0);
    for (unsigned i = 0, n = forks(); i < n; i++) {
        usleep(i % 37 * 7);
        const pid_t child = fork();
        if (child == 0)
            _exit(settle_in_child());
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status) {
            atomic_store(&stop, true);
            pthread_join(thread, NULL);
        }
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(stats_of(pool).pinned, 0);
    assert_int_equal(stats_of(pool).bytes_copied, 0);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_window_of_another_thread_is_pinned_or_not(void **state)
{
    (void)state;
    fork_beside(pin_and_unpin, 0);
}

static void a_copy_of_another_thread_is_pinned_or_not(void **state)
{
    (void)state;
    if (SANITIZED) /* their allocators do not look after a fork beside a malloc */
        skip();
    fork_beside(pin_and_unpin, MF_FILE_COPY);
}

static void a_read_of_another_thread_leaves_nothing(void **state)
{
    (void)state;
    fork_beside(read_again_and_again, 0);
}

static void local_windows_of_other_threads_are_given_back(void **state)
{
    (void)state;
    fork_beside(pin_and_unpin_locally, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_of_another_thread_is_pinned_or_not),
        cmocka_unit_test(a_copy_of_another_thread_is_pinned_or_not),
        cmocka_unit_test(a_read_of_another_thread_leaves_nothing),
        cmocka_unit_test(local_windows_of_other_threads_are_given_back),
    };
    return mf_fault_install() || cmocka_run_group_tests(tests, begin_directory, end_directory);
}
