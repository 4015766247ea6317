/* SPDX-License-Identifier: MIT */
/*
 * Every system call made to fail in turn: the n-th of its kind, or all from the n-th on. Whatever
 * fails, the answer is an honest error or the right bytes, the figures stay right, and once the
 * calls work again so does the pool.
 */
#include "common.h"

#include <stdatomic.h>

#include "linux/system.h"

static struct {
    enum system_call call;
    int err;
    unsigned countdown; /* 0: none fails */
    bool forever;
    unsigned failed;
    void *hole;              /* a page that the call unmaps as it fails, and another thread gets */
    void (*meanwhile)(void); /* happens just before the call, which does not fail then */
} plan;

static void take_hole(void *hole)
{
    char *taken =
        mmap(hole, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    assert_ptr_equal(taken, hole);
    taken[0] = 'T';
}

int system_inject(enum system_call call)
{
    if (call != plan.call || !plan.countdown)
        return 0;
    if (plan.countdown > 1) {
        plan.countdown--;
        return 0;
    }
    if (!plan.forever)
        plan.countdown = 0;
    plan.failed++;
    if (plan.meanwhile)
        plan.meanwhile();
    if (plan.hole)
        take_hole(plan.hole);
    return plan.err;
}

static bool short_reads;

size_t system_read_at_most(void)
{
    return short_reads ? 100 : SIZE_MAX;
}

enum { FILES = 6, FILE_PAGES = 40 };
static unsigned answers, honest_errors;

static bool accept(int err)
{
    if (err < 0)
        honest_errors++;
    else
        answers++;
    return err >= 0;
}

static void use(struct mf_file *file, unsigned salt, uint64_t offset, uint64_t length,
                uint32_t flags)
{
    struct mf_window w = {0};
    char byte;
    if (accept(mf_window_pin(file, offset, length, flags, MF_NOWAIT, &w))) {
        assert_bytes(w.data, offset, length, salt);
        const int err = mf_window_check(&w);
        assert_true(!err || flags & MF_CHECK_SIZE);
        assert_int_equal(mf_window_unpin(&w), 0);
    } else {
        assert_null(w.data);
    }
    if (accept(mf_local_pin(file, offset, 1, &w))) {
        assert_bytes(w.data, offset, 1, salt);
        assert_int_equal(mf_local_unpin(&w), 0);
    }
    if (accept((int)mf_read(file, offset, &byte, 1, 0)))
        assert_bytes(&byte, offset, 1, salt);
}

/* One life of a pool: opened, thrashed, limits changed, forgotten, closed. */
static void live(void)
{
    const struct mf_pool_limits limits = {24 * page, 6, 2}, lower = {16 * page, 3, 1};
    struct mf_pool *pool;
    if (!accept(mf_pool_create(&limits, 4 * page, 0, &pool)))
        return;
    struct mf_file *files[FILES] = {NULL};
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "inject%u", i);
        if (!accept(mf_file_open(pool, path_of(name), i % 2 ? MF_FILE_WRITE : 0, &files[i])))
            files[i] = NULL;
    }
    static const uint32_t flags[] = {0, MF_MAY_COPY, MF_CHECK_SIZE, MF_ZERO_END | MF_MAY_COPY};
    for (unsigned step = 0; step < 48; step++) {
        const unsigned which = step * 5 % FILES;
        if (files[which])
            use(files[which], which, step * 7 % (FILE_PAGES - 6) * page + step, 1 + step % 5 * page,
                flags[step % 4]);
        if (step == 20)
            mf_pool_set_limits(pool, &lower);
        if (step == 30 && files[0])
            mf_file_forget(files[0]);
        const struct mf_pool_stats stats = stats_of(pool);
        assert_true(stats.bytes_mapped + stats.bytes_copied <= 24 * page);
        assert_true(stats.maps <= 6 && stats.files_open <= 2);
        assert_int_equal(stats.pinned, 0);
    }
    plan.countdown = 0;
    unsigned lines;
    assert_int_equal(mapped_bytes(&lines), stats_of(pool).bytes_mapped);
    for (unsigned i = 0; i < FILES; i++)
        if (files[i])
            use(files[i], i, 3 * page, page, 0);
    assert_int_equal(mf_file_close_many(files, FILES), 0);
    assert_int_equal(stats_of(pool).bytes_copied, 0);
    assert_int_equal(stats_of(pool).files_open, 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
    assert_int_equal(mapped_bytes(&lines), 0);
}

static void fail_in_turn(enum system_call call, int err)
{
    const unsigned before = open_descriptors();
    for (int forever = 0; forever < 2; forever++)
        for (unsigned n = 1; n < 400; n += n < 12 ? 1 : n) {
            plan = (typeof(plan)){call, err, n, forever, 0, NULL, NULL};
            live();
            const bool reached = plan.failed != 0;
            plan.countdown = 0;
            assert_int_equal(open_descriptors(), before);
            if (!reached)
                break;
        }
    assert_true(answers > 100);
}

static void any_mmap_may_fail(void **state)
{
    (void)state;
    fail_in_turn(SYSTEM_MMAP, ENOMEM);
    fail_in_turn(SYSTEM_MMAP, EAGAIN);
    fail_in_turn(SYSTEM_MMAP, EIO);
}

/* A file's own mmap fails after the kernel has removed what was there: a file system shut down. */
static void a_failed_map_leaves_alone_who_has_got_its_place(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(page, 1, 4, page);
    struct mf_file *file = open_file(pool, path_of("inject0"), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 10, 0, MF_NOWAIT, &w), 0);
    char *place = (char *)(uintptr_t)w.data;
    assert_int_equal(mf_window_unpin(&w), 0);
    plan = (typeof(plan)){SYSTEM_MMAP, EIO, 1, false, 0, place, NULL};
    assert_int_equal(mf_window_pin(file, page, 10, 0, MF_NOWAIT, &w), -EIO);
    assert_int_equal(plan.failed, 1);
    assert_int_equal(place[0], 'T');
    assert_int_equal(stats_of(pool).maps, 0);
    assert_int_equal(mf_window_pin(file, page, 10, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, page, 10, 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
    assert_int_equal(place[0], 'T');
    assert_int_equal(munmap(place, page), 0);
}

static void any_madvise_may_fail(void **state)
{
    (void)state;
    honest_errors = 0;
    fail_in_turn(SYSTEM_MADVISE, EPERM);
    assert_int_equal(honest_errors, 0); /* nobody needs to know */
}

static void any_munmap_may_fail(void **state)
{
    (void)state;
    fail_in_turn(SYSTEM_MUNMAP, ENOMEM);
}

static void what_could_not_be_unmapped_goes_when_room_is_needed(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(4 * page, 4, 4, page);
    struct mf_file *file = open_file(pool, path_of("inject0"), 0);
    const struct mf_pool_limits lower = {2 * page, 2, 4};
    struct mf_window w = {0};
    for (int way = 0; way < 2; way++) {
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(mf_window_pin(file, i * page, 10, 0, MF_NOWAIT, &w), 0);
            assert_int_equal(mf_window_unpin(&w), 0);
        }
        plan = (typeof(plan)){SYSTEM_MUNMAP, ENOMEM, 1, true, 0, NULL, NULL};
        assert_int_equal(mf_file_forget(file), 0);
        assert_int_equal(plan.failed, 4);
        /* Nobody has anything pinned: so nobody is waited for. */
        assert_int_equal(mf_window_pin(file, 100, 3 * page, 0, MF_FOREVER, &w), -ENOMEM);
        assert_int_equal(mf_pool_set_limits(pool, &lower), -EBUSY);
        unsigned lines;
        assert_int_equal(stats_of(pool).maps, 4);
        assert_int_equal(mapped_bytes(&lines), 4 * page);
        plan.countdown = 0;
        if (way) {
            assert_int_equal(mf_pool_set_limits(pool, &lower), 0);
        } else {
            assert_int_equal(mf_window_pin(file, 100, 3 * page, 0, MF_NOWAIT, &w), 0);
            assert_bytes(w.data, 100, 3 * page, 0);
            assert_int_equal(mf_window_unpin(&w), 0);
        }
        assert_int_equal(mapped_bytes(&lines), stats_of(pool).bytes_mapped);
        assert_int_equal(mf_file_forget(file), 0);
        assert_int_equal(stats_of(pool).maps, 0);
    }
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* The mmap for the thread's counters fails, and the next one does not: the pin is kept. */
static void a_pin_without_counters_is_kept_when_there_are_some_later(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(2 * page, 2, 4, page);
    struct mf_file *file = open_file(pool, path_of("inject0"), 0);
    struct mf_window w[3] = {{0}};
    plan = (typeof(plan)){SYSTEM_MMAP, ENOMEM, 1, false, 0, NULL, NULL};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w[0]), 0);
    assert_int_equal(plan.failed, 1);
    assert_int_equal(mf_window_pin(file, page, page, 0, MF_NOWAIT, &w[1]), 0);
    assert_int_equal(mf_window_pin(file, 2 * page, page, 0, MF_NOWAIT, &w[2]), -EAGAIN);
    assert_bytes(w[0].data, 0, page, 0);
    assert_int_equal(mf_window_unpin(&w[0]), 0);
    assert_int_equal(mf_window_unpin(&w[1]), 0);
    assert_int_equal(stats_of(pool).pinned, 0);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void any_membarrier_may_fail(void **state)
{
    (void)state;
    fail_in_turn(SYSTEM_MEMBARRIER, EPERM);
}

static void any_open_may_fail(void **state)
{
    (void)state;
    fail_in_turn(SYSTEM_OPEN, EACCES);
    fail_in_turn(SYSTEM_OPEN, EMFILE);
}

static void rotate(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s", path_of("inject0.new"));
    assert_int_equal(rename(path, path_of("inject0")), 0);
}

/* Whoever opens what another file has taken the place of just now must not close it again: that
 * would drop the locks which the process has on it. */
static void a_file_that_takes_the_place_at_the_last_moment_keeps_its_locks(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 8, 4 * page);
    for (unsigned turn = 0; turn < 6; turn++) {
        struct mf_file *file = open_file(pool, make_bytes("inject0", page, 0), 0), *others[12];
        for (unsigned i = 0; i < 12; i++)
            others[i] = open_file(pool, path_of("inject1"), 0);
        const int fd = open(make_bytes("inject0.new", page, 1), O_RDWR | O_CLOEXEC);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
        plan = (typeof(plan)){SYSTEM_OPEN, 0, 1, false, 0, NULL, rotate};
        assert_int_equal(mf_file_size(file), -ESTALE);
        assert_int_equal(plan.failed, 1);
        assert_true(lock_is_held(path_of("inject0")));
        /* Four times its descriptor is left open for that; then another way is gone. */
        assert_int_equal(mf_file_close_many(others, 12), 0);
        assert_int_equal(mf_file_close(file), 0);
        assert_int_equal(stats_of(pool).files_open, turn < 4 ? turn + 1 : 4);
        assert_true(lock_is_held(path_of("inject0")));
        close(fd);
    }
    const struct mf_pool_limits limits = {16 * page, 4, 4};
    assert_int_equal(mf_pool_set_limits(pool, &limits), -EBUSY);
    assert_int_equal(mf_pool_destroy(pool), 0);
    make_bytes("inject0", FILE_PAGES * page, 0);
}

static void any_pread_may_fail(void **state)
{
    (void)state;
    fail_in_turn(SYSTEM_PREAD, EIO);
}

static void an_error_after_the_first_bytes_is_told_as_such(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 8, 4, 4 * page);
    struct mf_file *file = open_file(pool, path_of("inject0"), MF_FILE_COPY);
    struct mf_window w = {0};
    char buffer[2 * 4096];
    short_reads = true;
    plan = (typeof(plan)){SYSTEM_PREAD, EIO, 2, false, 0, NULL, NULL};
    assert_int_equal(mf_window_pin(file, 0, 3 * page, 0, MF_NOWAIT, &w), -EIO);
    plan = (typeof(plan)){SYSTEM_PREAD, EIO, 2, false, 0, NULL, NULL};
    assert_int_equal(mf_local_pin(file, 0, 3 * page, &w), -EIO);
    plan = (typeof(plan)){SYSTEM_PREAD, EIO, 2, false, 0, NULL, NULL};
    assert_int_equal(mf_read(file, 0, buffer, sizeof(buffer), 0), 100);
    assert_int_equal(plan.failed, 1);
    short_reads = false;
    assert_int_equal(stats_of(pool).bytes_copied, 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void any_fstat_may_fail(void **state)
{
    (void)state;
    fail_in_turn(SYSTEM_FSTAT, EIO);
}

/* With fences too, what is mapped is not read by a copy first. */
static bool what_is_mapped_is_borrowed(void)
{
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 8 * page);
    struct mf_file *file = open_file(pool, path_of("inject0"), 0);
    struct mf_window w = {0};
    bool borrowed = mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w) == 0 &&
                    mf_window_unpin(&w) == 0 && mf_local_pin(file, 0, page, &w) == 0;
    borrowed = borrowed && !(w.flags & MF_WINDOW_COPY) && mf_local_unpin(&w) == 0;
    return mf_file_close(file) == 0 && mf_pool_destroy(pool) == 0 && borrowed;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) /* a kernel without membarrier: the whole life runs on fences */
        plan = (typeof(plan)){SYSTEM_MEMBARRIER, ENOSYS, 1, true, 0, NULL, NULL};
    if (mf_fault_install() != 0 || begin_directory(NULL) != 0)
        return 9;
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "inject%u", i);
        make_bytes(name, FILE_PAGES * page, i);
    }
    if (argc > 1) {
        live();
        const bool asked = plan.failed > 0 && honest_errors == 0 && what_is_mapped_is_borrowed();
        end_directory(NULL);
        return asked ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mmap_may_fail),
        cmocka_unit_test(a_failed_map_leaves_alone_who_has_got_its_place),
        cmocka_unit_test(any_munmap_may_fail),
        cmocka_unit_test(what_could_not_be_unmapped_goes_when_room_is_needed),
        cmocka_unit_test(any_madvise_may_fail),
        cmocka_unit_test(a_pin_without_counters_is_kept_when_there_are_some_later),
        cmocka_unit_test(any_membarrier_may_fail),
        cmocka_unit_test(any_open_may_fail),
        cmocka_unit_test(a_file_that_takes_the_place_at_the_last_moment_keeps_its_locks),
        cmocka_unit_test(any_pread_may_fail),
        cmocka_unit_test(any_fstat_may_fail),
        cmocka_unit_test(an_error_after_the_first_bytes_is_told_as_such),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return end_directory(NULL) || failed;
}
