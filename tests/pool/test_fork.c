/* SPDX-License-Identifier: MIT */
/*
 * A fork at any moment of what another thread does with one window, or one read. The child unpins
 * that thread's window if it is pinned, and then nothing may be left, or missing. And a fork while
 * threads pin for the first time: the child's new threads pin as if there had been no others.
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

enum { FIRSTS = 8 };
static pthread_barrier_t turn;
static struct mf_window held[FIRSTS];

/* Each round has a pool of its own, in which no thread has pinned. */
static void *pin_for_the_first_time(void *number)
{
    unsigned state = (unsigned)(uintptr_t)number;
    for (;;) {
        pthread_barrier_wait(&turn);
        if (atomic_load(&stop))
            return NULL;
        usleep((unsigned)rand_r(&state) % 60);
        struct mf_window w = {0};
        if (mf_window_pin(file, 0, 10, 0, MF_FOREVER, &w) == 0)
            mf_window_unpin(&w);
        pthread_barrier_wait(&turn);
    }
}

static void *pin_a_page(void *window)
{
    struct mf_window *w = window;
    const uint64_t number = (uint64_t)(w - held);
    if (mf_window_pin(file, number * page, page, 0, MF_FOREVER, w))
        _exit(11);
    pthread_barrier_wait(&turn); /* all at one time, so that each has counters of its own */
    return NULL;
}

static int pin_with_threads_of_the_child(void)
{
    alarm(20);
    pthread_t threads[FIRSTS];
    pthread_barrier_init(&turn, NULL, FIRSTS);
    for (unsigned i = 0; i < FIRSTS; i++)
        if (pthread_create(&threads[i], NULL, pin_a_page, &held[i]))
            return 12;
    for (unsigned i = 0; i < FIRSTS; i++)
        pthread_join(threads[i], NULL);
    if (stats_of(pool).pinned != FIRSTS)
        return 13;
    /* One extent is left, and serves all others. */
    for (unsigned i = FIRSTS; i < 3 * FIRSTS; i++) {
        struct mf_window w = {0};
        if (mf_window_pin(file, i * page, page, 0, MF_NOWAIT, &w) || mf_window_unpin(&w))
            return 14;
    }
    for (unsigned i = 0; i < FIRSTS; i++) {
        const unsigned char *data = held[i].data;
        if (data[0] != byte_at(i * page, 1) || data[page - 1] != byte_at((i + 1) * page - 1, 1))
            return 15;
        if (mf_window_unpin(&held[i]))
            return 16;
    }
    return stats_of(pool).pinned ? 17 : 0;
}

static void first_pins_of_other_threads_leave_the_childs_threads_sound(void **state)
{
    (void)state;
    if (SANITIZED || emulated())
        skip(); /* no threads in the child of a fork beside threads */
    pthread_t threads[FIRSTS];
    const char *path = make_bytes("first", 3 * FIRSTS * page, 1);
    pthread_barrier_init(&turn, NULL, FIRSTS + 1);
    atomic_store(&stop, false);
    for (uintptr_t i = 0; i < FIRSTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pin_for_the_first_time, (void *)i), 0);
    int status = 0;
    for (unsigned i = 0; i < 200 && !status; i++) {
        pool = make_pool((FIRSTS + 1) * page, FIRSTS + 1, 4, page);
        file = open_file(pool, path, 0);
        pthread_barrier_wait(&turn);
        usleep(i % 60);
        const pid_t child = fork();
        if (child == 0)
            _exit(pin_with_threads_of_the_child());
        assert_int_equal(waitpid(child, &status, 0), child);
        pthread_barrier_wait(&turn);
        assert_int_equal(mf_file_close(file), 0);
        assert_int_equal(mf_pool_destroy(pool), 0);
    }
    atomic_store(&stop, true);
    pthread_barrier_wait(&turn);
    for (unsigned i = 0; i < FIRSTS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&turn);
    assert_int_equal(status, 0);
}

/* The thread's function has returned, and the memory of its window is gone; its pin is not. */
static pthread_key_t late;

static void lose_memory(void *memory)
{
    munmap(memory, page);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
}

static void *pin_locally_and_return(void *unused)
{
    (void)unused;
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mf_local_pin(file, 0, 10, memory) ||
        pthread_setspecific(late, memory))
        abort(); /* no assertion of cmocka's: this is not its thread */
    return NULL;
}

static void make_one_extent(const char *name)
{
    pool = make_pool(4 * page, 4, 4, page);
    file = open_file(pool, make_bytes(name, page, 1), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 10, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
}

static void close_one_extent(void)
{
    assert_int_equal(stats_of(pool).pinned, 0);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static int count_in_child(void)
{
    alarm(20);
    if (stats_of(pool).pinned)
        return 3;
    return mf_file_close(file) || mf_pool_destroy(pool) ? 6 : 0;
}

static void a_local_window_whose_memory_is_gone_is_given_back(void **state)
{
    (void)state;
    make_one_extent("late");
    assert_int_equal(pthread_key_create(&late, lose_memory), 0);
    pthread_barrier_init(&turn, NULL, 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pin_locally_and_return, NULL), 0);
    pthread_barrier_wait(&turn);
    const pid_t child = fork();
    if (child == 0)
        _exit(count_in_child());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turn);
    pthread_key_delete(late);
    assert_int_equal(status, 0);
    close_one_extent();
}

static void *pin_all_locally_and_return(void *unused)
{
    (void)unused;
    struct mf_window windows[16] = {0};
    for (unsigned i = 0; i < 16; i++)
        mf_local_pin(file, 0, 10, &windows[i]);
    return NULL;
}

static void *let_threads_end(void *unused)
{
    (void)unused;
    pthread_t thread;
    while (!atomic_load(&stop))
        if (pthread_create(&thread, NULL, pin_all_locally_and_return, NULL) == 0)
            pthread_join(thread, NULL);
    return NULL;
}

static void local_windows_of_ending_threads_are_given_back(void **state)
{
    (void)state;
    if (SANITIZED) /* they do not look after a fork beside a thread that begins or ends */
        skip();
    make_one_extent("ending");
    atomic_store(&stop, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, let_threads_end, NULL), 0);
    int status = 0;
    for (unsigned i = 0, n = forks(); i < n && !status; i++) {
        usleep(i % 37 * 7);
        const pid_t child = fork();
        if (child == 0)
            _exit(count_in_child());
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(status, 0);
    close_one_extent();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_of_another_thread_is_pinned_or_not),
        cmocka_unit_test(a_copy_of_another_thread_is_pinned_or_not),
        cmocka_unit_test(a_read_of_another_thread_leaves_nothing),
        cmocka_unit_test(local_windows_of_other_threads_are_given_back),
        cmocka_unit_test(a_local_window_whose_memory_is_gone_is_given_back),
        cmocka_unit_test(local_windows_of_ending_threads_are_given_back),
        cmocka_unit_test(first_pins_of_other_threads_leave_the_childs_threads_sound),
    };
    return mf_fault_install() || cmocka_run_group_tests(tests, begin_directory, end_directory);
}
