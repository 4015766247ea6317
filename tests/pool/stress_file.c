/* SPDX-License-Identifier: MIT */
/*
 * Files that come, go and become others while threads read them: rotated, replaced, deleted and
 * made again, cut to nothing; and the first calls of a process, made by all its threads at once.
 */
#include "stress.h"

#include <sched.h>

static struct mf_pool *pool;

static void end_pool(void)
{
    const struct mf_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.pinned, 0);
    assert_int_equal(stats.bytes_mapped, 0);
    assert_int_equal(stats.bytes_copied, 0);
    assert_int_equal(stats.files_open, 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/*
 * CASES 16, 17, 23, 30: logs are rotated under their readers. Each has bytes of its own, so what an
 * mf_file shows, in however many looks, must be one log's; or else it is -ESTALE.
 */
enum { LOGS = 3, LOG_PAGES = 8, ANY_LOG = 255 };
static _Atomic unsigned looks;

static const char *log_name(unsigned which)
{
    static const char *const names[LOGS] = {"log0", "log1", "log2"};
    return names[which];
}

/* Whether all is of one log, which is found out at the first byte. */
static bool one_log(const unsigned char *bytes, uint64_t offset, uint64_t length, unsigned *salt)
{
    if (length && *salt == ANY_LOG)
        *salt = (unsigned)(bytes[0] + 255 - byte_at(offset, 0)) % 255;
    for (uint64_t i = 0; i < length; i++)
        if (bytes[i] != byte_at(offset + i, *salt))
            return false;
    return true;
}

static void look(struct mf_file *file, unsigned *seed, unsigned *salt)
{
    static const uint32_t flags[] = {0, MF_MAY_COPY, MF_CHECK_SIZE, MF_ZERO_END};
    const unsigned way = (unsigned)rand_r(seed) % 8;
    const uint64_t length = 1 + (uint64_t)rand_r(seed) % 200;
    const uint64_t offset = (uint64_t)rand_r(seed) % (LOG_PAGES * page - length);
    struct mf_window w = {0};
    unsigned char bytes[200];
    ssize_t result;
    if (way == 0) {
        result = mf_read(file, offset, bytes, length, 0);
        expect(result < 0 || one_log(bytes, offset, (uint64_t)result, salt));
    } else if (way == 1) {
        result = mf_local_pin(file, offset, length, &w);
        expect(result < 0 || one_log(w.data, offset, length, salt));
        expect(result < 0 || mf_local_unpin(&w) == 0);
    } else {
        result = mf_window_pin(file, offset, length, flags[way % 4], MF_FOREVER, &w);
        expect(result < 0 || one_log(w.data, offset, length, salt));
        expect(result < 0 || mf_window_unpin(&w) == 0);
    }
    expect(result >= 0 || result == -ERANGE || result == -ESTALE || result == -EMFILE);
    atomic_fetch_add_explicit(&looks, result >= 0, memory_order_relaxed);
}

static void *log_reader(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!atomic_load(&stop)) {
        struct mf_file *file;
        struct mf_window held = {0};
        const int err =
            mf_file_open(pool, path_of(log_name((unsigned)rand_r(&seed) % LOGS)), 0, &file);
        expect(!err || err == -ENOENT || err == -EMFILE);
        if (err)
            continue;
        unsigned salt = ANY_LOG;
        const bool holds = mf_window_pin(file, 0, 100, 0, MF_NOWAIT, &held) == 0;
        for (unsigned n = (unsigned)rand_r(&seed) % 16; n; n--)
            look(file, &seed, &salt);
        if (rand_r(&seed) % 4 == 0)
            expect(mf_file_forget(file) == 0);
        expect(mf_file_close(file) == 0);
        if (holds) {
            expect(one_log(held.data, 0, 100, &salt));
            expect(mf_window_unpin(&held) == 0);
        }
    }
    return NULL;
}

static void rotate(unsigned round)
{
    const char *name = log_name(round % LOGS), *path = path_of(name);
    const uint64_t size = (1 + round * 5 % LOG_PAGES) * page;
    switch (round / LOGS % 3) {
    case 0: /* another renamed over it */
        assert_int_equal(rename(make_bytes("next", size, round % 255), path), 0);
        break;
    case 1: /* deleted and made again */
        assert_int_equal(unlink(path), 0);
        make_bytes(name, size, round % 255);
        break;
    case 2: /* moved away and made again */
        assert_int_equal(rename(path, path_of("old")), 0);
        make_bytes(name, size, round % 255);
        break;
    }
}

static void files_may_be_rotated_and_replaced_under_eight_readers(void **state)
{
    (void)state;
    begin();
    const unsigned descriptors = open_descriptors();
    pool = make_pool(40 * page, 10, 6, 4 * page);
    for (unsigned i = 0; i < LOGS; i++)
        make_bytes(log_name(i), LOG_PAGES * page, i);
    atomic_store(&looks, 0);
    pthread_t threads[8];
    start_threads(8, log_reader, threads);
    for (unsigned i = 0; i < rounds / 4 || atomic_load(&looks) < rounds; i++) {
        rotate(i);
        sched_yield();
    }
    atomic_store(&stop, true);
    join_threads(8, threads);
    assert_int_equal(open_descriptors(), descriptors);
    end_pool();
}

/* CASES 11: a large sparse file is cut to nothing under eight threads. */
enum { SCANNERS = 8, SPARSE = 1 << 30, STEP = 64 << 10 };
static struct mf_file *sparse, *whole;
static _Atomic unsigned begun;

/* The error that ended it. */
static int scan(uint64_t from, uint64_t to)
{
    for (uint64_t at = from;; at = at + STEP < to ? at + STEP : from) {
        struct mf_window w = {0};
        int err = mf_window_pin(sparse, at, STEP, 0, MF_FOREVER, &w);
        if (err)
            return err;
        for (uint64_t i = 0; i < STEP; i += 4 * page)
            expect(((const volatile char *)w.data)[i] == 0);
        const int told = mf_window_check(&w);
        err = mf_window_unpin(&w);
        expect(!told || err == told);
        if (err)
            return err;
        if (at == from)
            atomic_fetch_add(&begun, 1);
    }
}

static void *scanner(void *argument)
{
    const uint64_t part = SPARSE / SCANNERS, from = ((uintptr_t)argument - 1) * part;
    struct mf_window other = {0};
    expect(mf_window_pin(whole, 0, 100, 0, MF_FOREVER, &other) == 0);
    const int err = scan(from, from + part);
    expect(err == -EIO || err == -ERANGE);
    unsigned salt = ANY_LOG;
    expect(other.data && one_log(other.data, 0, 100, &salt) && salt == 1);
    expect(mf_window_unpin(&other) == 0); /* that file has lost nothing */
    return NULL;
}

static void a_file_cut_to_nothing_is_told_to_each_thread_that_reads_it(void **state)
{
    (void)state;
    begin();
    pool = make_pool(32 << 20, 32, 4, 1 << 20);
    const char *path = make_bytes("sparse", 0, 0);
    assert_int_equal(truncate(path, SPARSE), 0);
    sparse = open_file(pool, path, 0);
    whole = open_file(pool, make_bytes("whole", page, 1), 0);
    atomic_store(&begun, 0);
    pthread_t threads[SCANNERS];
    start_threads(SCANNERS, scanner, threads);
    while (atomic_load(&begun) < SCANNERS)
        sched_yield();
    assert_int_equal(truncate(path, 0), 0);
    join_threads(SCANNERS, threads);
    make_bytes("sparse", 2 * page, 3);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(sparse, 0, 2 * page, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, 0, 2 * page, 3);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(sparse);
    mf_file_close(whole);
    end_pool();
}

/* CASES 38: whoever has a window pinned finds its extent mapped, whatever else comes and goes. */
enum { HOT = 4, GROUP = 16 };
static struct mf_file *hot[HOT];

static void *hot_reader(void *argument)
{
    const unsigned which = (unsigned)(uintptr_t)argument % HOT;
    struct mf_window held = {0};
    expect(mf_window_pin(hot[which], 0, page, 0, MF_FOREVER, &held) == 0);
    for (uint64_t i = 0; !atomic_load(&stop); i++) {
        struct mf_window w = {0};
        const uint64_t at = i * 64 % (4 * page);
        expect(mf_window_pin(hot[which], at, 8, MF_IF_MAPPED, MF_NOWAIT, &w) == 0);
        if (!w.data)
            break;
        expect(*(const unsigned char *)w.data == byte_at(at, which));
        expect((const char *)w.data == (const char *)held.data + at);
        expect(mf_window_unpin(&w) == 0);
        expect(mf_local_pin(hot[which], at, 8, &w) == 0);
        expect((const char *)w.data == (const char *)held.data + at);
        expect(mf_local_unpin(&w) == 0);
    }
    expect(mf_window_unpin(&held) == 0);
    return NULL;
}

static void open_and_close_a_group(void)
{
    struct mf_file *group[GROUP];
    struct mf_window w = {0}, held[2] = {{0}};
    for (unsigned i = 0; i < GROUP; i++) {
        char name[16];
        snprintf(name, sizeof(name), "member%u", i);
        group[i] = open_file(pool, path_of(name), 0);
        const uint32_t flags = i % 3 ? 0 : MF_MAY_COPY;
        assert_int_equal(mf_window_pin(group[i], 0, 10, flags, MF_FOREVER, &w), 0);
        assert_bytes(w.data, 0, 10, i);
        assert_int_equal(mf_window_unpin(&w), 0);
        if (i < 2)
            assert_int_equal(mf_window_pin(group[i], 0, 10, 0, MF_FOREVER, &held[i]), 0);
    }
    assert_int_equal(mf_file_close_many(group, GROUP), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_bytes(held[i].data, 0, 10, i);
        assert_int_equal(mf_window_unpin(&held[i]), 0);
    }
}

static void hot_windows_stay_mapped_while_groups_of_files_come_and_go(void **state)
{
    (void)state;
    begin();
    pool = make_pool(64 * page, HOT + 6, 8, 4 * page);
    for (unsigned i = 0; i < GROUP; i++) {
        char name[16];
        snprintf(name, sizeof(name), "member%u", i);
        make_bytes(name, page, i);
        snprintf(name, sizeof(name), "hot%u", i);
        if (i < HOT)
            hot[i] = open_file(pool, make_bytes(name, 4 * page, i), 0);
    }
    pthread_t threads[8];
    start_threads(8, hot_reader, threads);
    for (unsigned i = 0; i < rounds / 8; i++)
        open_and_close_a_group();
    atomic_store(&stop, true);
    join_threads(8, threads);
    assert_int_equal(mf_file_close_many(hot, HOT), 0);
    end_pool();
}

/* CASES 29: one extent, three pieces, and nobody finds another's bytes while a pin is held. */
static void *only_one(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < rounds / 4; i++) {
        struct mf_window w = {0};
        const uint64_t at = (uint64_t)rand_r(&seed) % 3 * 4 * page;
        expect(mf_window_pin(whole, at, 200, 0, MF_FOREVER, &w) == 0);
        if (!w.data)
            break;
        for (unsigned k = 0; k < 3; k++) {
            unsigned salt = 5;
            expect(one_log(w.data, at, 200, &salt));
            sched_yield();
        }
        expect(mf_window_unpin(&w) == 0);
    }
    return NULL;
}

static void the_only_extent_serves_sixteen_threads_in_turn(void **state)
{
    (void)state;
    begin();
    pool = make_pool(4 * page, 1, 1, 4 * page);
    whole = open_file(pool, make_bytes("three", 12 * page, 5), 0);
    run_threads(16, only_one);
    mf_file_close(whole);
    end_pool();
}

/* CASES 26: in a process that has called nothing yet. */
enum { MANY = 900, POOLS = 64 };
static pthread_barrier_t gate;
static sig_atomic_t chained;

static void was_there(int signal)
{
    (void)signal;
    chained++;
}

static void *first_call(void *argument)
{
    const unsigned number = (unsigned)(uintptr_t)argument;
    const struct mf_pool_limits limits = {16 * page, 4, 1};
    struct mf_pool *own = NULL;
    struct mf_file *file;
    struct mf_window w = {0};
    char byte = 0;
    pthread_barrier_wait(&gate);
    if (number % 3 == 0)
        expect(mf_fault_install() == 0);
    if (number % 3 == 1)
        expect(mf_copy(&byte, "y", 1) == 1 && byte == 'y');
    const int err = mf_pool_create(&limits, 4 * page, 0, &own);
    expect(!err || err == -ENOSPC);
    expect(mf_fault_install() == 0);
    if (err)
        return NULL;
    expect(mf_file_open(own, path_of("first"), 0, &file) == 0);
    expect(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w) == 0);
    unsigned salt = 1;
    expect(w.data && one_log(w.data, 0, page, &salt));
    expect(mf_window_unpin(&w) == 0);
    expect(mf_file_close(file) == 0);
    return own;
}

static int first_main(void)
{
    const char *path = make_bytes("first", page, 1);
    const struct sigaction before = {.sa_handler = was_there};
    sigaction(SIGBUS, &before, NULL);
    static pthread_t threads[MANY];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_barrier_init(&gate, NULL, MANY);
    for (uintptr_t i = 0; i < MANY; i++)
        if (pthread_create(&threads[i], &small, first_call, (void *)i) != 0)
            return 2;
    unsigned made = 0;
    void *pools[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        pthread_join(threads[i], &pools[i]);
        made += pools[i] != NULL;
    }
    if (atomic_load(&wrong) || made != POOLS)
        return 3;
    for (unsigned i = 0; i < MANY; i++)
        if (mf_pool_destroy(pools[i]) != 0)
            return 4;
    raise(SIGBUS); /* ours is before the one that was there, once */
    if (chained != 1)
        return 5;
    pool = make_pool(16 * page, 4, 1, 4 * page);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    if (mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w) != 0 || truncate(path, 0) != 0)
        return 6;
    return *(const volatile char *)w.data == 0 && mf_window_unpin(&w) == -EIO ? 0 : 7;
}

static void nine_hundred_threads_may_make_a_process_s_first_calls(void **state)
{
    (void)state;
    if (emulated())
        skip();
    assert_int_equal(run_self("first"), 0);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        if (begin_directory(NULL) != 0)
            return 9;
        const int status = first_main();
        end_directory(NULL);
        _exit(status); /* what is open stays open: no leak to look for */
    }
    if (!prepare())
        return 9;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_may_be_rotated_and_replaced_under_eight_readers),
        cmocka_unit_test(a_file_cut_to_nothing_is_told_to_each_thread_that_reads_it),
        cmocka_unit_test(hot_windows_stay_mapped_while_groups_of_files_come_and_go),
        cmocka_unit_test(the_only_extent_serves_sixteen_threads_in_turn),
        cmocka_unit_test(nine_hundred_threads_may_make_a_process_s_first_calls),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
