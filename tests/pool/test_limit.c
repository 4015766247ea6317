/* SPDX-License-Identifier: MIT */
/* Limits: those of a pool, of all pools, and of the process. */
#include "common.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* CASES 21, 34: limits are hard, per pool, exact, and change at run time. */
static void limits_hold_exactly_and_agree_with_proc(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 10, 3, 8 * page);
    struct mf_pool *other = make_pool(8 * page, 2, 1, 4 * page);
    struct mf_file *files[8], *others[2];
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "limit%d", i);
        files[i] = open_file(pool, make_bytes(name, 64 * page, (unsigned)i), 0);
        if (i < 2)
            others[i] = open_file(other, path_of(name), 0);
    }
    srand(1);
    for (int step = 0; step < 3000; step++) {
        const unsigned which = (unsigned)rand() % 8;
        const uint64_t length = 1 + (uint64_t)rand() % (step % 10 ? page : 12 * page);
        const uint64_t offset = (uint64_t)rand() % (64 * page - length);
        struct mf_window w = {0}, v = {0};
        assert_int_equal(mf_window_pin(files[which], offset, length, 0, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, offset, 1, which);
        assert_bytes((const char *)w.data + length - 1, offset + length - 1, 1, which);
        if (length < page) {
            assert_int_equal(mf_window_pin(others[which % 2], offset, length, 0, MF_NOWAIT, &v), 0);
            assert_int_equal(mf_window_unpin(&v), 0);
        }
        assert_int_equal(mf_window_unpin(&w), 0);
        const struct mf_pool_stats a = stats_of(pool), b = stats_of(other);
        assert_true(a.bytes_mapped <= 64 * page && b.bytes_mapped <= 8 * page);
        assert_true(a.maps <= 10 && b.maps <= 2);
        assert_true(a.files_open <= 3 && b.files_open <= 1);
        assert_int_equal(a.pinned + b.pinned, 0);
        if (step % 64 == 0) {
            unsigned lines;
            assert_int_equal(mapped_bytes(&lines), a.bytes_mapped + b.bytes_mapped);
            assert_true(lines <= a.maps + b.maps);
        }
    }
    const struct mf_pool_limits small = {16 * page, 2, 1}, large = {128 * page, 100, 9};
    assert_int_equal(mf_pool_set_limits(pool, &small), 0);
    struct mf_pool_stats stats = stats_of(pool);
    assert_true(stats.bytes_mapped <= 16 * page && stats.maps <= 2 && stats.files_open <= 1);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(files[0], 0, 9 * page, 0, MF_NOWAIT, &w), 0);
    const struct mf_pool_limits least = {8 * page, 1, 1};
    assert_int_equal(mf_pool_set_limits(pool, &least), -EBUSY);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_pool_set_limits(pool, &least), 0);
    assert_int_equal(mf_pool_set_limits(pool, &large), 0);
    const struct mf_pool_limits none = {page, 1, 1};
    assert_int_equal(mf_pool_set_limits(pool, &none), -EINVAL); /* below one extent */
    for (int i = 0; i < 8; i++)
        mf_file_close(files[i]);
    for (int i = 0; i < 2; i++)
        mf_file_close(others[i]);
    assert_int_equal(mf_pool_destroy(pool), 0);
    assert_int_equal(mf_pool_destroy(other), 0);
}

static void the_process_wide_cap_sends_further_reads_to_copies(void **state)
{
    (void)state;
    struct mf_pool *a = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_pool *b = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *fa = open_file(a, make_bytes("cap", 64 * page, 3), 0);
    struct mf_file *fb = open_file(b, path_of("cap"), 0);
    const struct mf_pool_limits cap = {64 * page, 4, 100}, off = {INT64_MAX, 65536, 65536};
    assert_int_equal(mf_pool_set_limits(NULL, &cap), 0);
    struct mf_window w[4] = {{0}}, v = {0};
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(mf_window_pin(fa, i * 4 * page, page, 0, MF_NOWAIT, &w[i]), 0);
    assert_int_equal(mf_window_pin(fb, 0, page, 0, MF_NOWAIT, &v), -ENOMEM);
    assert_int_equal(mf_window_pin(fb, 0, page, MF_MAY_COPY, MF_NOWAIT, &v), 0);
    if (!(v.flags & MF_WINDOW_COPY)) /* a first touch of a small file is one anyway */
        fail();
    assert_bytes(v.data, 0, page, 3);
    assert_int_equal(stats_of(b).bytes_copied, page + 1);
    const struct mf_pool_limits lower = {8 * page, 4, 100};
    assert_int_equal(mf_pool_set_limits(NULL, &lower), -EBUSY);
    assert_int_equal(mf_window_unpin(&v), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(mf_window_unpin(&w[i]), 0);
    assert_int_equal(mf_pool_set_limits(NULL, &lower), 0);
    assert_int_equal(mf_pool_set_limits(NULL, &off), 0);
    mf_file_close(fa);
    mf_file_close(fb);
    assert_int_equal(mf_pool_destroy(a), 0);
    assert_int_equal(mf_pool_destroy(b), 0);
}

/* CASES 9, in a child, since limits stay. */
static void at_the_limit_of_address_space(void)
{
    struct mf_pool *pool = make_pool(1 << 30, 1024, 4, 1 << 20);
    const char *path = make_bytes("huge", 256 << 20, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct rlimit limit = {.rlim_cur = 192 << 20, .rlim_max = 192 << 20};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    struct mf_window pinned[192], w = {0};
    memset(pinned, 0, sizeof(pinned));
    int err = 0;
    unsigned n = 0;
    /* Idle extents are given up as long as there are any. */
    for (uint64_t i = 0; i < 256; i++) {
        assert_int_equal(mf_window_pin(file, i << 20, page, 0, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, i << 20, page, 1);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    while (n < 192 &&
           !(err = mf_window_pin(file, (uint64_t)n << 20, page, 0, MF_NOWAIT, &pinned[n])))
        n++;
    assert_int_equal(err, -ENOMEM);
    assert_int_equal(mf_window_pin(file, 200 << 20, page, MF_MAY_COPY, MF_NOWAIT, &w), 0);
    assert_true(w.flags & MF_WINDOW_COPY);
    assert_bytes(w.data, 200 << 20, page, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    while (n)
        assert_int_equal(mf_window_unpin(&pinned[--n]), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void out_of_address_space_idle_extents_go_and_then_copies_serve(void **state)
{
    (void)state;
    if (SANITIZED || emulated()) /* they map too much themselves */
        skip();
    assert_int_equal(in_child(at_the_limit_of_address_space), 0);
}

static void at_the_limit_of_maps(void)
{
    struct mf_pool *pool = make_pool(1 << 30, 1024, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("maps", 256 * page, 1), 0);
    struct mf_window w = {0};
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(mf_window_pin(file, i * 8 * page, page, 0, MF_NOWAIT, &w), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    for (unsigned i = 0;; i++) { /* alternating protections do not merge */
        void *p =
            mmap(NULL, page, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            break;
    }
    assert_int_equal(errno, ENOMEM);
    struct mf_window pinned[16];
    memset(pinned, 0, sizeof(pinned));
    unsigned n = 0;
    int err = 0;
    while (n < 16 &&
           !(err = mf_window_pin(file, (n * 8 + 4) * page, page, 0, MF_NOWAIT, &pinned[n])))
        n++;
    assert_int_equal(err, -ENOMEM);
    assert_int_equal(mf_window_pin(file, 200 * page, page, MF_MAY_COPY, MF_NOWAIT, &w), 0);
    assert_true(w.flags & MF_WINDOW_COPY);
    assert_bytes(w.data, 200 * page, page, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    while (n)
        assert_int_equal(mf_window_unpin(&pinned[--n]), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void out_of_kernel_maps_idle_extents_go_and_then_copies_serve(void **state)
{
    (void)state;
    if (SANITIZED || emulated()) /* they map too much themselves */
        skip();
    assert_int_equal(in_child(at_the_limit_of_maps), 0);
}

static void at_the_limit_of_descriptors(void)
{
    struct mf_pool *pool = make_pool(64 * page, 16, 64, 4 * page);
    struct mf_file *files[32];
    for (unsigned i = 0; i < 32; i++) {
        char name[16];
        snprintf(name, sizeof(name), "nofile%u", i);
        make_bytes(name, page, i);
    }
    for (unsigned i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "nofile%u", i);
        files[i] = open_file(pool, path_of(name), 0);
    }
    const struct rlimit limit = {.rlim_cur = open_descriptors(), .rlim_max = 1024};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (unsigned i = 8; i < 32; i++) {
        char name[16];
        snprintf(name, sizeof(name), "nofile%u", i);
        files[i] = open_file(pool, path_of(name), 0);
    }
    for (unsigned i = 0; i < 32; i++) {
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(files[i], 0, page, 0, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, 0, page, i);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    assert_int_equal(mf_file_close_many(files, 32), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void out_of_descriptors_the_pools_own_are_closed(void **state)
{
    (void)state;
    if (emulated())
        skip();
    assert_int_equal(in_child(at_the_limit_of_descriptors), 0);
}

/* CASES 35 */
static void a_thousand_hits_take_no_lock_and_map_nothing(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("hot", 16 * page, 1), 0);
    struct mf_window w = {0};
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(mf_window_pin(file, i * 4 * page, page, 0, MF_NOWAIT, &w), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    const struct mf_pool_stats before = stats_of(pool);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(mf_window_pin(file, i % 16 * page, page, 0, MF_NOWAIT, &w), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    const struct mf_pool_stats after = stats_of(pool);
    assert_int_equal(after.hits - before.hits, 1000);
    assert_int_equal(after.misses, before.misses);
    assert_int_equal(after.lock_taken - before.lock_taken, 1); /* that of the figures */
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* The kernel kills whoever makes any system call but read, write and exit. */
static void hit_a_thousand_times_without_the_kernel(void)
{
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("hot", 16 * page, 1), 0);
    struct mf_window w = {0};
    char byte;
    assert_int_equal(mf_fault_install(), 0);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(mf_window_pin(file, i * 4 * page, page, 0, MF_NOWAIT, &w), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
        assert_int_equal(mf_local_pin(file, i * 4 * page, page, &w), 0);
        assert_int_equal(mf_local_unpin(&w), 0);
    }
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), 0);
    unsigned wrong = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t at = i % 16 * page;
        wrong += mf_window_pin(file, at, page, i % 2 ? MF_MAY_COPY : 0, MF_FOREVER, &w) != 0;
        wrong += *(const unsigned char *)w.data != byte_at(at, 1);
        wrong += mf_window_check(&w) != 0;
        wrong += mf_window_unpin(&w) != 0;
        wrong += mf_local_pin(file, at, page, &w) != 0;
        wrong += mf_local_unpin(&w) != 0;
        wrong += mf_read(file, at, &byte, 1, 0) != 1;
    }
    syscall(SYS_exit, wrong != 0);
}

static void a_thousand_hits_make_no_system_call(void **state)
{
    (void)state;
    if (SANITIZED || emulated()) /* they make system calls of their own */
        skip();
    assert_int_equal(in_child(hit_a_thousand_times_without_the_kernel), 0);
}

static void sixty_four_pools_exist_and_no_more(void **state)
{
    (void)state;
    struct mf_pool *pools[64], *one_more;
    const struct mf_pool_limits limits = {1 << 20, 4, 4};
    for (int i = 0; i < 64; i++)
        assert_int_equal(mf_pool_create(&limits, 0, 0, &pools[i]), 0);
    assert_int_equal(mf_pool_create(&limits, 0, 0, &one_more), -ENOSPC);
    for (int i = 0; i < 64; i++)
        assert_int_equal(mf_pool_destroy(pools[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_hold_exactly_and_agree_with_proc),
        cmocka_unit_test(the_process_wide_cap_sends_further_reads_to_copies),
        cmocka_unit_test(out_of_address_space_idle_extents_go_and_then_copies_serve),
        cmocka_unit_test(out_of_kernel_maps_idle_extents_go_and_then_copies_serve),
        cmocka_unit_test(out_of_descriptors_the_pools_own_are_closed),
        cmocka_unit_test(a_thousand_hits_take_no_lock_and_map_nothing),
        cmocka_unit_test(a_thousand_hits_make_no_system_call),
        cmocka_unit_test(sixty_four_pools_exist_and_no_more),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
