/* SPDX-License-Identifier: MIT */
/* Limits of the process, and requests that are wrong: folding never makes them worse. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE };

static void map_fails(void *address, size_t length, int flags, int fd, off_t offset, int error)
{
    assert_ptr_equal(mf_mmap(address, length, PROT_READ, flags, fd, offset), MAP_FAILED);
    assert_int_equal(errno, error);
}

/* CASES 56, 57, 60 */
static void wrong_requests_fail_as_the_kernel_says(void **state)
{
    (void)state;
    const int fd = file_make(4);
    char *keeper = map_pages(fd, PROT_READ, MAP_PRIVATE, 0, 1);
    const off_t far = (off_t)(INT64_MAX & ~(int64_t)(P - 1));
    map_fails(NULL, 0, MAP_PRIVATE, fd, 0, EINVAL);
    map_fails(NULL, 0, MAP_PRIVATE, 9999, 0, EBADF);
    map_fails(NULL, P, MAP_PRIVATE, 9999, 1, EINVAL);
    map_fails(NULL, P, MAP_PRIVATE, fd, 1, EINVAL);
    map_fails(NULL, SIZE_MAX, MAP_PRIVATE, fd, 0, ENOMEM);
    map_fails(NULL, SIZE_MAX - 4095, MAP_PRIVATE, fd, 0, ENOMEM);
    map_fails(NULL, (size_t)1 << 47, MAP_PRIVATE, fd, 0, ENOMEM);
    map_fails(NULL, 2 * P, MAP_PRIVATE, fd, far, EOVERFLOW);
    map_fails(NULL, P, MAP_PRIVATE, fd, -P, EOVERFLOW);
    assert_int_equal(mf_munmap(keeper, SIZE_MAX), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mf_munmap(keeper, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mf_munmap(keeper + 1, P), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mf_msync(keeper + 8, P, MS_SYNC), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mf_mprotect(keeper, P, 0x1000000), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mf_madvise(keeper, P, 12345), -1);
    assert_int_equal(errno, EINVAL);
    assert_true(page_is(keeper, 0));
    unmap_pages(keeper, 1);
    close(fd);
}

/* CASES 56 */
static void an_empty_file_can_be_mapped_and_not_read(void **state)
{
    (void)state;
    const int fd = file_make(0), other = file_make(1);
    char *piece = map_pages(fd, PROT_READ, MAP_SHARED, 0, 1);
    map_fails(NULL, 0, MAP_SHARED, fd, 0, EINVAL);
    assert_int_equal(signal_of_reading(piece), SIGBUS);
    assert_int_equal(pwrite(other, piece, 1, 0), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(piece[99], 0);
    unmap_pages(piece, 1);
    close(fd), close(other);
}

/* CASES 55 */
static void behind_the_end_of_the_file_are_zeros_and_behind_its_last_page_a_fault(void **state)
{
    (void)state;
    static const unsigned sizes[] = {0, P - 1, P, P + 1, 3 * P + 100};
    for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
        const unsigned size = sizes[i / 2], end = (size + P - 1) / P * P;
        const int fd = file_make(4);
        assert_int_equal(ftruncate(fd, size), 0);
        char *piece = map_pages(fd, PROT_READ, i % 2 ? MAP_SHARED : MAP_PRIVATE, 0, 5);
        assert_int_equal(kind_at(piece), MF_MAP_CARVED);
        for (unsigned byte = size; byte < end; byte++)
            assert_int_equal(piece[byte], 0);
        assert_int_equal(signal_of_reading(piece + end), SIGBUS);
        unmap_pages(piece, 5);
        close(fd);
    }
}

/* CASES 62 */
static void huge_pages_are_the_kernels(void **state)
{
    (void)state;
    const size_t huge = 2 << 20;
    const int fd = file_make(1), flags = MAP_PRIVATE | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;
    char *keeper = map_pages(fd, PROT_READ, MAP_PRIVATE, 0, 1);
    map_fails(NULL, P, flags, fd, 0, EINVAL);
    char *memory = mf_mmap(NULL, huge + P, RW, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) { /* this kernel has them; none need be there */
        assert_int_equal(mf_mprotect(memory, huge + P, PROT_READ), -1);
        assert_int_equal(errno, EINVAL);
        assert_int_equal(mf_munmap(memory, huge + P), -1);
        assert_int_equal(errno, EINVAL);
        assert_int_equal(mf_munmap(memory, 2 * huge), 0);
    }
    unmap_pages(keeper, 1);
    close(fd);
}

/* CASES 53 */
static void truncation_and_growth_show_as_in_the_kernel(void **state)
{
    (void)state;
    const int fd = file_make(2), other = file_make(1);
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 0, 2);
    piece[P] = 'd';
    assert_int_equal(pwrite(fd, "clean", 5, 0), 5);
    assert_int_equal(pwrite(fd, "lost", 4, P + 1), 4);
    assert_memory_equal(piece, "clean", 5);
    assert_memory_not_equal(piece + P + 1, "lost", 4);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(other, piece + P, 1, 0), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(signal_of_reading(piece), SIGBUS);
    assert_int_equal(signal_of_reading(piece + P), SIGBUS);
    assert_int_equal(ftruncate(fd, 2 * P), 0);
    assert_int_equal(piece[P], 0);
    assert_int_equal(piece[0], 0);
    unmap_pages(piece, 2);
    close(fd), close(other);
}

/* Runs the test in a child, since limits cannot be raised again by everybody. */
static void in_child(bool (*test)(void))
{
    const pid_t child = fork();
    if (child == 0)
        _exit(test() ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static bool map_and_check(int fd, enum mf_map_kind kind)
{
    char *piece = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, fd, P);
    struct mf_map_info info;
    return piece != MAP_FAILED && page_is(piece, 1) && mf_map_query(piece, &info) == 0 &&
           info.kind == kind && mf_munmap(piece, 2 * P) == 0;
}

__attribute__((unused)) static bool with_little_address_space(void)
{
    const int fd = file_make(4);
    const struct rlimit limit = {256 << 20, 256 << 20};
    bool right = setrlimit(RLIMIT_AS, &limit) == 0;
    for (int i = 0; i < 20; i++)
        right = right && map_and_check(fd, MF_MAP_PASSED);
    return right;
}

__attribute__((unused)) static bool with_little_data(void)
{
    const int fd = file_make(4);
    const struct rlimit limit = {64 << 20, 64 << 20};
    return setrlimit(RLIMIT_DATA, &limit) == 0 && map_and_check(fd, MF_MAP_PASSED);
}

static bool without_spare_descriptors(void)
{
    const int fd = file_make(4);
    const struct rlimit limit = {(rlim_t)fd + 1, (rlim_t)fd + 1};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    while (dup(fd) >= 0)
        ;
    char *piece = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, fd, P);
    if (piece == MAP_FAILED || !page_is(piece, 1))
        return false;
    piece[0] = 'x';
    char *keeper = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, 0);
    return keeper != MAP_FAILED && mf_munmap(piece, 2 * P) == 0 &&
           (piece = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, fd, P)) != MAP_FAILED &&
           page_is(piece, 1) && fcntl(fd, F_GETFD) >= 0;
}

static int descriptors_open(void)
{
    int open = 0;
    for (int fd = 0; fd < 1024; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

/* As daemons do when they start. */
static bool with_all_descriptors_closed(void)
{
    const int fd = file_make(4), before = descriptors_open();
    char *old = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, fd, P);
    struct mf_map_info info;
    if (old == MAP_FAILED || mf_map_query(old, &info) != 0 || info.kind != MF_MAP_CARVED ||
        descriptors_open() != before)
        return false;
    old[P] = 'x';
    for (int i = 3; i < 1024; i++)
        close(i);
    const int other = file_make(4);
    return other == 3 && map_and_check(other, MF_MAP_CARVED) && page_is(old, 1) && old[P] == 'x' &&
           mf_msync(old, 2 * P, MS_SYNC) == 0 && mf_munmap(old, 2 * P) == 0 &&
           map_and_check(other, MF_MAP_CARVED) && fcntl(other, F_GETFD) >= 0;
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
/* Where other run-time systems want to be. */
static bool with_a_place_that_another_wants(void)
{
    const int fd = file_make(4);
    char *piece = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, 0);
    char *wanted = (char *)0x100100000000; // NOLINT(performance-no-int-to-ptr)
    const size_t length = (size_t)1 << 30;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (piece == MAP_FAILED || mf_mmap(wanted, length, RW, flags, -1, 0) != wanted)
        return false;
    wanted[length - 1] = 'w';
    return page_is(piece, 0) && map_and_check(fd, MF_MAP_CARVED) && mf_munmap(wanted, length) == 0;
}
#endif

__attribute__((unused)) static bool with_all_memory_locked(void)
{
    const int fd = file_make(4);
    char *before = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, 0);
    if (before == MAP_FAILED)
        return false;
    if (mf_mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        return true; /* not allowed here */
    char *piece = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, P);
    struct mf_map_info info;
    bool right = piece != MAP_FAILED && mf_map_query(piece, &info) == 0 &&
                 info.kind == MF_MAP_PASSED && mf_map_query(before, &info) == 0 &&
                 info.kind == MF_MAP_PASSED && info.length == P && page_is(before, 0);
    right = right && mf_munlockall() == 0 && map_and_check(fd, MF_MAP_CARVED);
    return right && mf_munmap(before, P) == 0 && mf_munmap(piece, P) == 0;
}

/* A child of fork inherits no lock. */
__attribute__((unused)) static bool with_a_parent_that_locks(void)
{
    const int fd = file_make(4);
    if (mf_mlockall(MCL_FUTURE) != 0)
        return true; /* not allowed here */
    const pid_t child = fork();
    if (child == 0)
        _exit(map_and_check(fd, MF_MAP_CARVED) ? 0 : 1);
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0 && map_and_check(fd, MF_MAP_PASSED);
}

/* The layer reads 2 where it looks; the machine is left as it is. */
static bool where_memory_is_never_overcommitted(void)
{
    char name[] = "./mode-XXXXXX";
    const int mode = mkstemp(name);
    const int fd = file_make(4);
    if (write(mode, "2\n", 2) != 2 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(name, "/proc/sys/vm/overcommit_memory", NULL, MS_BIND, NULL) != 0)
        return unlink(name) == 0; /* not allowed here */
    unlink(name);
    char *reading = mf_mmap(NULL, P, PROT_READ, MAP_PRIVATE, fd, P);
    return map_and_check(fd, MF_MAP_PASSED) && reading != MAP_FAILED &&
           kind_at(reading) == MF_MAP_CARVED && mf_munmap(reading, P) == 0;
}

static bool after_unshared_pids(void)
{
    const int fd = file_make(4);
    if (unshare(CLONE_NEWPID) != 0)
        return true; /* not allowed here */
    if (!map_and_check(fd, MF_MAP_PASSED))
        return false;
    const pid_t child = fork(); /* fails if the namespace's init has come and gone */
    if (child == 0)
        _exit(0);
    return child > 0 && waitpid(child, NULL, 0) == child;
}

/* CASES 50, 51 */
static void limits_are_respected(void **state)
{
    (void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* Sanitizers need much of all three. */
    in_child(with_little_address_space);
    in_child(with_little_data);
    in_child(with_all_memory_locked);
    in_child(with_a_parent_that_locks);
#endif
    in_child(without_spare_descriptors);
    in_child(with_all_descriptors_closed);
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    in_child(with_a_place_that_another_wants);
#endif
    in_child(after_unshared_pids);
    in_child(where_memory_is_never_overcommitted);
}

static void a_strict_layer_makes_unmapped_memory_fault(void **state)
{
    (void)state;
    struct mf_map_options options, before;
    mf_map_get_options(&before);
    options = before;
    options.strict = 1;
    assert_int_equal(mf_map_set_options(&options), 0);
    const int fd = file_make(4), other = file_make(1);
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 0, 4);
    unmap_pages(piece + P, 1);
    assert_int_equal(pwrite(other, piece + P, 1, 0), -1);
    assert_int_equal(errno, EFAULT);
    assert_true(page_is(piece + 2 * P, 2));
    unmap_pages(piece, 4);
    assert_int_equal(extents(), 0);
    assert_int_equal(mf_map_set_options(&before), 0);
    close(fd), close(other);
}

static void an_extent_lingers_if_it_is_told_to(void **state)
{
    (void)state;
    struct mf_map_options options, before;
    mf_map_get_options(&before);
    options = before;
    options.linger_ms = UINT32_MAX;
    assert_int_equal(mf_map_set_options(&options), 0);
    const int fd = file_make(4);
    unmap_pages(map_pages(fd, RW, MAP_PRIVATE, 0, 4), 4);
    assert_int_equal(extents(), 1);
    unmap_pages(map_pages(fd, RW, MAP_PRIVATE, 0, 4), 4);
    assert_int_equal(extents(), 1);
    options.linger_ms = 1;
    assert_int_equal(mf_map_set_options(&options), 0);
    usleep(100000);
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    assert_int_equal(extents(), 0);
    assert_int_equal(mf_map_set_options(&before), 0);
    close(fd);
}

static void few_pieces_are_left_to_the_kernel(void **state)
{
    (void)state;
    struct mf_map_options options, before;
    mf_map_get_options(&before);
    options = before;
    options.promote_pieces = 8;
    assert_int_equal(mf_map_set_options(&options), 0);
    const int fd = file_make(64);
    char *pieces[32];
    for (unsigned i = 0; i < 4; i++) {
        pieces[i] = map_pages(fd, RW, MAP_SHARED, i, 1);
        assert_int_equal(kind_at(pieces[i]), MF_MAP_PASSED);
    }
    for (int i = 0; i < 1000; i++)
        unmap_pages(map_pages(fd, RW, MAP_SHARED, 60, 1), 1);
    assert_int_equal(extents(), 0);
    for (unsigned i = 4; i < 32; i++)
        pieces[i] = map_pages(fd, RW, MAP_SHARED, i, 1);
    assert_int_equal(kind_at(pieces[31]), MF_MAP_CARVED);
    for (unsigned i = 0; i < 32; i++) {
        assert_true(page_is(pieces[i], i));
        unmap_pages(pieces[i], 1);
    }
    assert_int_equal(extents(), 0);
    assert_int_equal(mf_map_set_options(&before), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_requests_fail_as_the_kernel_says),
        cmocka_unit_test(an_empty_file_can_be_mapped_and_not_read),
        cmocka_unit_test(behind_the_end_of_the_file_are_zeros_and_behind_its_last_page_a_fault),
        cmocka_unit_test(huge_pages_are_the_kernels),
        cmocka_unit_test(truncation_and_growth_show_as_in_the_kernel),
        cmocka_unit_test(limits_are_respected),
        cmocka_unit_test(a_strict_layer_makes_unmapped_memory_fault),
        cmocka_unit_test(an_extent_lingers_if_it_is_told_to),
        cmocka_unit_test(few_pieces_are_left_to_the_kernel),
    };
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
