/* SPDX-License-Identifier: MIT */
/*
 * Windows under threads: tiny pools, files that are cut, grown and replaced underneath, pins that
 * wander between threads, threads that come and go, fork at any moment.
 */
#include "stress.h"

#include <sched.h>
#include <time.h>

enum { FILES = 4, FILE_PAGES = 32 };
static struct mf_pool *pool;
static struct mf_file *files[FILES];

static void open_all(uint32_t flags)
{
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "file%u", i);
        files[i] = open_file(pool, make_bytes(name, FILE_PAGES * page, i), flags);
    }
}

static void close_all(void)
{
    assert_int_equal(mf_file_close_many(files, FILES), 0);
    const struct mf_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.pinned, 0);
    assert_int_equal(stats.bytes_copied, 0);
    assert_int_equal(stats.bytes_mapped, 0);
    assert_int_equal(stats.maps, 0);
    assert_int_equal(stats.files_open, 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static bool right(const void *data, uint64_t offset, uint64_t length, unsigned salt)
{
    const unsigned char *p = data;
    return p[0] == byte_at(offset, salt) && p[length - 1] == byte_at(offset + length - 1, salt) &&
           p[length / 2] == byte_at(offset + length / 2, salt);
}

/* A window left by one thread for another to unpin. */
static struct {
    pthread_mutex_t mutex;
    struct mf_window *window;
} shelf = {PTHREAD_MUTEX_INITIALIZER, NULL};

static struct mf_window *exchange(struct mf_window *w)
{
    pthread_mutex_lock(&shelf.mutex);
    struct mf_window *other = shelf.window;
    shelf.window = w;
    pthread_mutex_unlock(&shelf.mutex);
    return other;
}

static void clear_shelf(void)
{
    struct mf_window *left = exchange(NULL);
    expect(!left || mf_window_unpin(left) == 0);
    free(left);
}

static bool tiny; /* a window that is left would keep much of the pool */

static void *reader(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < rounds; i++) {
        if (tiny)
            clear_shelf();
        const unsigned draw = (unsigned)rand_r(&seed), which = draw % FILES;
        const uint64_t length = 1 + (uint64_t)rand_r(&seed) % (draw % 7 ? 100 : 6 * page);
        const uint64_t offset = (uint64_t)rand_r(&seed) % (FILE_PAGES * page - length);
        char bytes[64];
        struct mf_window local = {0}, *w = calloc(1, sizeof(*w));
        switch (draw / 16 % 8) {
        case 0:
            if (mf_local_pin(files[which], offset, length, &local) == 0) {
                expect(right(local.data, offset, length, which));
                expect(mf_local_unpin(&local) == 0);
            }
            break;
        case 1:
            expect(mf_read(files[which], offset, bytes, 1, 0) == 1 &&
                   right(bytes, offset, 1, which));
            break;
        case 2:
            if (draw % 5 == 0)
                mf_file_forget(files[which]);
            break;
        default: {
            const uint64_t deadline =
                draw % 3 ? MF_NOWAIT : mf_deadline_in(tiny ? 20000000 : 200000);
            const int err = mf_window_pin(files[which], offset, length, draw % 2 ? MF_MAY_COPY : 0,
                                          deadline, w);
            expect(!err || err == -EAGAIN || err == -ETIMEDOUT);
            if (!err) {
                expect(right(w->data, offset, length, which));
                if (draw % 11 == 0)
                    w = exchange(w);
                expect(!w || mf_window_check(w) == 0);
                expect(!w || mf_window_unpin(w) == 0);
            }
        }
        }
        free(w);
    }
    return NULL;
}

static void pools_of_two_extents_serve_sixteen_threads(void **state)
{
    (void)state;
    begin();
    pool = make_pool(8 * page, 2, 2, 4 * page);
    open_all(0);
    tiny = true;
    run_threads(16, reader);
    tiny = false;
    clear_shelf();
    assert_int_equal(atomic_load(&wrong), 0);
    close_all();
}

static void larger_pools_evict_in_batches_beside_eight_threads(void **state)
{
    (void)state;
    begin();
    pool = make_pool(64 * page, 24, 3, 2 * page);
    open_all(0);
    run_threads(8, reader);
    clear_shelf();
    assert_int_equal(atomic_load(&wrong), 0);
    close_all();
}

/* CASES 10, 11: cut, grow, punch, replace, under 8 readers. What a reader is told to be right must
 * be right: each byte is the file's, or 0 where a hole was punched or the file regrew. */
static void *scanner(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load(&stop)) {
        struct mf_window w = {0};
        const uint64_t offset = (uint64_t)rand_r(&seed) % (FILE_PAGES * page);
        const unsigned which = (unsigned)rand_r(&seed) % FILES;
        const uint32_t flags = rand_r(&seed) % 4 ? 0 : MF_CHECK_SIZE;
        unsigned char bytes[100];
        if (rand_r(&seed) % 4 == 0) {
            const ssize_t n = mf_read(files[which], offset, bytes, sizeof(bytes), flags);
            expect(n >= 0);
            for (ssize_t i = 0; i < n; i++)
                expect(bytes[i] == 0 || bytes[i] == byte_at(offset + (uint64_t)i, which));
            continue;
        }
        const int err = mf_window_pin(files[which], offset, 100, flags, MF_FOREVER, &w);
        expect(!err || err == -ERANGE || err == -ESTALE);
        if (err)
            continue;
        bool good = true;
        for (unsigned i = 0; i < 100; i++) {
            const unsigned char b = ((const volatile unsigned char *)w.data)[i];
            good &= b == 0 || b == byte_at(offset + i, which);
        }
        const int told = mf_window_check(&w);
        expect(told == 0 || told == -EIO || told == -ERANGE);
        expect(good);
        const int end = mf_window_unpin(&w);
        expect(end == 0 || end == -EIO);
    }
    return NULL;
}

static void *vandal(void *argument)
{
    (void)argument;
    unsigned seed = 99;
    for (unsigned i = 0; i < rounds; i++) {
        const unsigned which = (unsigned)rand_r(&seed) % FILES;
        char name[16];
        snprintf(name, sizeof(name), "file%u", which);
        const int fd = open(path_of(name), O_RDWR | O_CLOEXEC);
        const off_t at = rand_r(&seed) % (FILE_PAGES * (int)page);
        switch (rand_r(&seed) % 4) {
        case 0:
            expect(ftruncate(fd, 0) == 0);
            break;
        case 1:
            expect(ftruncate(fd, at) == 0);
            break;
        case 2:
            fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 3 * (off_t)page);
            break;
        case 3:
            write_bytes(fd, 0, FILE_PAGES * page, which);
            break;
        }
        close(fd);
        if (i % 16 == 0)
            sched_yield();
    }
    atomic_store(&stop, true);
    return NULL;
}

static void files_may_be_cut_grown_and_punched_under_eight_readers(void **state)
{
    (void)state;
    begin();
    pool = make_pool(48 * page, 12, 2, 4 * page);
    open_all(0);
    pthread_t enemy;
    assert_int_equal(pthread_create(&enemy, NULL, vandal, NULL), 0);
    run_threads(8, scanner);
    pthread_join(enemy, NULL);
    close_all();
}

/* CASES 26: the first call of each thread. */
static pthread_barrier_t gate;
static void *first_call(void *argument)
{
    const unsigned which = (unsigned)(uintptr_t)argument % FILES;
    struct mf_window *w = calloc(1, sizeof(*w));
    pthread_barrier_wait(&gate);
    expect(mf_window_pin(files[which], 0, page, 0, MF_FOREVER, w) == 0);
    expect(right(w->data, 0, page, which));
    return w; /* the thread ends with the pin held */
}

static void nine_hundred_threads_start_at_once_and_end_with_pins_held(void **state)
{
    (void)state;
    enum { MANY = 900 };
    begin();
    pool = make_pool(64 * page, 16, 4, 4 * page);
    open_all(0);
    static pthread_t threads[MANY];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    for (int round = 0; round < 2; round++) {
        pthread_barrier_init(&gate, NULL, MANY);
        for (uintptr_t i = 0; i < MANY; i++)
            assert_int_equal(pthread_create(&threads[i], &small, first_call, (void *)i), 0);
        void *windows[MANY];
        for (int i = 0; i < MANY; i++)
            pthread_join(threads[i], &windows[i]);
        assert_int_equal(stats_of(pool).pinned, MANY);
        assert_int_equal(mf_pool_destroy(pool), -EBUSY);
        for (int i = 0; i < MANY; i++) {
            expect(mf_window_unpin(windows[i]) == 0);
            free(windows[i]);
        }
        pthread_barrier_destroy(&gate);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    close_all();
}

/* Destructors of thread-specific data run in any order: some after ours. */
static pthread_key_t keys[8];
static void unpin_at_exit(void *w)
{
    struct mf_window again = {0};
    expect(mf_window_unpin(w) == 0);
    expect(mf_window_pin(files[0], 0, 1, 0, MF_FOREVER, &again) == 0);
    expect(mf_window_unpin(&again) == 0);
    free(w);
}

static void *ender(void *argument)
{
    (void)argument;
    for (int i = 0; i < 8; i++) {
        struct mf_window *w = calloc(1, sizeof(*w));
        expect(mf_window_pin(files[i % FILES], 0, page, 0, MF_FOREVER, w) == 0);
        pthread_setspecific(keys[i], w);
    }
    return NULL;
}

static void thread_exit_destructors_may_unpin_and_pin(void **state)
{
    (void)state;
    begin();
    pool = make_pool(64 * page, 16, 4, 4 * page);
    open_all(0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_key_create(&keys[i], unpin_at_exit), 0);
    for (int i = 0; i < 20; i++)
        run_threads(8, ender);
    for (int i = 0; i < 8; i++)
        pthread_key_delete(keys[i]);
    close_all();
}

/* Fork at any moment: threads pin and unpin, the child finds no pin of theirs but those that were
 * whole, and can use every slot. */
static void *pinner(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load(&stop)) {
        struct mf_window w = {0};
        const unsigned which = (unsigned)rand_r(&seed) % FILES;
        const uint64_t offset = (uint64_t)rand_r(&seed) % (FILE_PAGES * page - 8);
        const uint32_t flags = rand_r(&seed) % 4 ? 0 : MF_MAY_COPY;
        if (mf_window_pin(files[which], offset, 8, flags, MF_NOWAIT, &w) == 0) {
            expect(right(w.data, offset, 8, which));
            expect(mf_window_unpin(&w) == 0);
        }
    }
    return NULL;
}

static int use_all_in_child(struct mf_window *mine)
{
    if (!right(mine->data, 5, 8, 0))
        return 2;
    /* At most one window of each other thread was whole at the fork. */
    if (stats_of(pool).pinned > 1 + 4)
        return 3;
    for (unsigned i = 0; i < FILES; i++)
        for (uint64_t at = 0; at < FILE_PAGES; at += 2) {
            struct mf_window w = {0};
            const int err = mf_window_pin(files[i], at * page, 8, 0, mf_deadline_in(50000000), &w);
            if (err || !right(w.data, at * page, 8, i) || mf_window_unpin(&w) != 0)
                return 4;
        }
    char byte;
    if (mf_read(files[1], 7, &byte, 1, 0) != 1 || mf_window_unpin(mine) != 0)
        return 5;
    if (stats_of(pool).bytes_copied > 4 * 9)
        return 6;
    return 0;
}

static void fork_at_any_moment_leaves_parent_and_child_sound(void **state)
{
    (void)state;
    begin();
    pool = make_pool(48 * page, 12, 2, 2 * page);
    open_all(0);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pinner, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < rounds / 40 + 5; i++) {
        struct mf_window mine = {0};
        assert_int_equal(mf_window_pin(files[0], 5, 8, 0, MF_FOREVER, &mine), 0);
        const pid_t child = fork();
        if (child == 0)
            _exit(use_all_in_child(&mine));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(mf_window_unpin(&mine), 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
    close_all();
}

/* CASES 22, and "waiters are served": more pinners than extents, each waits for ever. */
static void *patient(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < rounds; i++) {
        struct mf_window w = {0};
        const uint64_t offset = (uint64_t)rand_r(&seed) % (FILE_PAGES * page - 8);
        expect(mf_window_pin(files[0], offset, 8, 0, MF_FOREVER, &w) == 0);
        if (w.data) {
            expect(right(w.data, offset, 8, 0));
            sched_yield();
            expect(mf_window_unpin(&w) == 0);
        }
    }
    return NULL;
}

static void whoever_waits_for_ever_is_served_in_the_end(void **state)
{
    (void)state;
    begin();
    pool = make_pool(8 * page, 2, 4, 4 * page);
    open_all(0);
    run_threads(8, patient);
    close_all();
}

/* CASES 30, 38: the same path opened and closed by all. */
static void *opener(void *argument)
{
    char name[32];
    snprintf(name, sizeof(name), "own%u", (unsigned)(uintptr_t)argument);
    for (unsigned i = 0; i < rounds; i++) {
        struct mf_file *file;
        struct mf_window w = {0};
        expect(mf_file_open(pool, path_of("shared"), 0, &file) == 0);
        expect(mf_window_pin(file, 0, 10, i % 2 ? MF_MAY_COPY : 0, MF_FOREVER, &w) == 0);
        expect(right(w.data, 0, 10, 7));
        if (i % 3) {
            expect(mf_window_unpin(&w) == 0);
            expect(mf_file_close(file) == 0);
        } else {
            expect(mf_file_close(file) == 0);
            expect(right(w.data, 0, 10, 7));
            expect(mf_window_unpin(&w) == 0);
        }
    }
    return NULL;
}

static void files_come_and_go_beside_each_other(void **state)
{
    (void)state;
    begin();
    pool = make_pool(64 * page, 16, 16, 4 * page);
    open_all(0);
    make_bytes("shared", page, 7);
    run_threads(8, opener);
    close_all();
}

/* Limits change, figures are asked for, while others pin. */
static void *governor(void *argument)
{
    (void)argument;
    uint64_t pins = 0; /* of those who are to notice */
    for (unsigned i = 0; i < rounds / 4 || pins < rounds; i++) {
        const struct mf_pool_limits limits = {(8 + i % 48) * page, 2 + i % 20, 1 + i % 4};
        const int err = mf_pool_set_limits(pool, &limits);
        expect(err == 0 || err == -EBUSY);
        const struct mf_pool_stats stats = stats_of(pool);
        expect(stats.bytes_mapped <= 64 * page && stats.files_open <= 4);
        pins = stats.hits + stats.misses + stats.copies;
        sched_yield();
    }
    atomic_store(&stop, true);
    return NULL;
}

static void limits_may_change_beside_pinning_threads(void **state)
{
    (void)state;
    begin();
    pool = make_pool(64 * page, 24, 4, 4 * page);
    open_all(0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, governor, NULL), 0);
    run_threads(6, pinner);
    pthread_join(thread, NULL);
    close_all();
}

int main(void)
{
    if (!prepare())
        return 9;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_of_two_extents_serve_sixteen_threads),
        cmocka_unit_test(larger_pools_evict_in_batches_beside_eight_threads),
        cmocka_unit_test(files_may_be_cut_grown_and_punched_under_eight_readers),
        cmocka_unit_test(nine_hundred_threads_start_at_once_and_end_with_pins_held),
        cmocka_unit_test(thread_exit_destructors_may_unpin_and_pin),
        cmocka_unit_test(fork_at_any_moment_leaves_parent_and_child_sound),
        cmocka_unit_test(whoever_waits_for_ever_is_served_in_the_end),
        cmocka_unit_test(files_come_and_go_beside_each_other),
        cmocka_unit_test(limits_may_change_beside_pinning_threads),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
