/* SPDX-License-Identifier: MIT */
/* Copies: what deep overlap gives, and each listed difference. */
#include <sys/resource.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE, DEEP = 40 };

static uint64_t copied(void)
{
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    return stats.copied;
}

/* Maps the same pages until they are copied; the last piece is. */
static void map_deep(int fd, int protection, unsigned page, unsigned pages, char **pieces)
{
    for (int i = 0; i < DEEP; i++)
        pieces[i] = map_pages(fd, protection, MAP_PRIVATE, page, pages);
    assert_int_equal(kind_at(pieces[DEEP - 1]), MF_MAP_COPIED);
}

static void unmap_deep(char **pieces, unsigned pages)
{
    for (int i = 0; i < DEEP; i++)
        unmap_pages(pieces[i], pages);
    assert_int_equal(mf_map_query(pieces[DEEP - 1], &(struct mf_map_info){0}), -ENOENT);
}

static void deep_overlap_is_copied_and_each_piece_has_its_own_bytes(void **state)
{
    (void)state;
    const int fd = file_make(4);
    char *pieces[DEEP];
    for (int round = 0; round < 3; round++) {
        map_deep(fd, RW, 0, 3, pieces);
        for (int i = 0; i < DEEP; i++) {
            assert_true(page_is(pieces[i], 0));
            assert_true(page_is(pieces[i] + 2 * P, 2));
            memset(pieces[i] + P, i + 1, P);
        }
        for (int i = 0; i < DEEP; i++)
            assert_int_equal(pieces[i][P + 9], i + 1);
        unmap_deep(pieces, 3);
    }
    close(fd);
}

static void read_only_copies_may_not_be_written(void **state)
{
    (void)state;
    const int fd = file_make(4);
    char *pieces[DEEP];
    map_deep(fd, PROT_READ, 1, 2, pieces);
    char *piece = pieces[DEEP - 1];
    assert_true(page_is(piece, 1) && page_is(piece + P, 2));
    assert_int_equal(pread(fd, piece, 1, 0), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(mf_mprotect(piece, P, RW), 0);
    piece[0] = 'w';
    unmap_deep(pieces, 2);
    map_deep(fd, PROT_READ, 1, 2, pieces);
    for (int i = 0; i < DEEP; i++)
        assert_true(page_is(pieces[i], 1));
    unmap_deep(pieces, 2);
    close(fd);
}

static void the_bytes_behind_the_end_of_the_file_are_zero(void **state)
{
    (void)state;
    const int fd = file_make(2);
    char *pieces[DEEP], dirty[P];
    memset(dirty, 'd', P);
    for (int protection = PROT_READ; protection <= RW; protection += PROT_WRITE) {
        assert_int_equal(ftruncate(fd, 2 * P), 0);
        assert_int_equal(pwrite(fd, dirty, P, P), P);
        map_deep(fd, protection, 1, 1, pieces);
        unmap_deep(pieces, 1);
        assert_int_equal(ftruncate(fd, P + 100), 0);
        map_deep(fd, protection, 1, 1, pieces);
        for (int i = 100; i < P; i++)
            assert_int_equal(pieces[DEEP - 1][i], 0);
        unmap_deep(pieces, 1);
    }
    close(fd);
}

static void a_piece_that_reaches_past_the_end_is_not_copied(void **state)
{
    (void)state;
    const int fd = file_make(1);
    const uint64_t before = copied();
    char *pieces[DEEP];
    for (int i = 0; i < DEEP; i++)
        pieces[i] = map_pages(fd, RW, MAP_PRIVATE, 0, 2);
    assert_int_equal(copied(), before);
    assert_int_equal(pwrite(fd, pieces[DEEP - 1] + P, 1, 0), -1);
    assert_int_equal(errno, EFAULT);
    unmap_deep(pieces, 2);
    close(fd);
}

static void dontneed_brings_the_bytes_of_the_file_back(void **state)
{
    (void)state;
    const int fd = file_make(4);
    char *pieces[DEEP];
    map_deep(fd, RW, 0, 3, pieces);
    close(fd);
    char *piece = pieces[DEEP - 1];
    memset(piece, 'x', 3 * P);
    assert_int_equal(mf_madvise(piece + P, P, MADV_DONTNEED), 0);
    assert_int_equal(piece[0], 'x');
    assert_true(page_is(piece + P, 1));
    assert_int_equal(piece[2 * P], 'x');
    unmap_deep(pieces, 3);
}

/* The extent of the file in which no piece lies, which the layer keeps for its bytes. */
static char *original_of(int fd, char **pieces)
{
    struct stat stat_of;
    assert_int_equal(fstat(fd, &stat_of), 0);
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    char line[4096], *original = NULL;
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long start, end, inode;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) != 3 ||
            inode != stat_of.st_ino)
            continue;
        bool used = false;
        for (int i = 0; i < DEEP; i++)
            used = used || ((uintptr_t)pieces[i] >= start && (uintptr_t)pieces[i] < end);
        if (!used)
            original = (char *)start; // NOLINT(performance-no-int-to-ptr)
    }
    fclose(maps);
    return original;
}

static void what_a_program_maps_over_the_original_never_shows_in_a_copy(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *pieces[DEEP];
    map_deep(fd, RW, 1, 2, pieces);
    char *piece = pieces[DEEP - 1], *original = original_of(fd, pieces);
    assert_non_null(original);
    char *stranger =
        mf_mmap(original + 2 * P, P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(stranger, original + 2 * P);
    memset(stranger, '!', P);
    piece[P] = 'x';
    assert_int_equal(mf_madvise(piece + P, P, MADV_DONTNEED), 0);
    assert_int_equal(piece[P], 'x');
    piece[0] = 'x';
    assert_int_equal(mf_madvise(piece, P, MADV_DONTNEED), 0);
    assert_true(page_is(piece, 1));
    unmap_pages(stranger, 1);
    unmap_deep(pieces, 2);
    close(fd);
}

static void dontneed_brings_back_what_may_not_be_written(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *pieces[DEEP];
    for (int protection = PROT_READ; protection <= RW; protection += PROT_WRITE) {
        map_deep(fd, protection, 1, 2, pieces);
        char *piece = pieces[DEEP - 1];
        assert_int_equal(mf_mprotect(piece, 2 * P, RW), 0);
        memset(piece, 'x', 2 * P);
        assert_int_equal(mf_mprotect(piece, P, PROT_READ), 0);
        assert_int_equal(mf_madvise(piece, 2 * P, MADV_DONTDUMP), 0);
        assert_int_equal(mf_madvise(piece, 2 * P, MADV_DONTNEED), 0);
        assert_true(page_is(piece, 1) && page_is(piece + P, 2));
        assert_int_equal(pread(fd, piece, 1, 0), -1);
        assert_int_equal(errno, EFAULT);
        unmap_deep(pieces, 2);
    }
    close(fd);
}

static void advice_stops_at_what_is_locked_as_in_the_kernel(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *pieces[DEEP];
    map_deep(fd, RW, 0, 4, pieces);
    char *piece = pieces[DEEP - 1];
    assert_int_equal(mf_mlock(piece + 2 * P, P), 0);
    assert_int_equal(mf_madvise(piece, 4 * P, MADV_REMOVE), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(mf_madvise(piece + 2 * P, 2 * P, MADV_REMOVE), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(mf_madvise(piece, 4 * P, MADV_DONTNEED), -1);
    assert_int_equal(errno, EINVAL);
    unmap_deep(pieces, 4);
    close(fd);
}

static void a_copy_grows_into_the_bytes_of_the_file(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *pieces[DEEP];
    map_deep(fd, RW, 1, 2, pieces);
    close(fd);
    char *piece = pieces[DEEP - 1];
    piece[0] = 'g';
    assert_ptr_equal(mf_mremap(piece, 2 * P, 4 * P, 0, NULL), MAP_FAILED);
    assert_int_equal(errno, ENOMEM);
    char *grown = mf_mremap(piece, 2 * P, 4 * P, MREMAP_MAYMOVE, NULL);
    assert_ptr_not_equal(grown, MAP_FAILED);
    assert_int_equal(grown[0], 'g');
    for (unsigned i = 1; i < 4; i++)
        assert_true(page_is(grown + i * P, i + 1));
    unmap_pages(grown, 4);
    for (int i = 0; i < DEEP - 1; i++)
        unmap_pages(pieces[i], 2);
}

static void what_would_leave_zeros_in_a_copy_is_refused(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *pieces[DEEP];
    map_deep(fd, RW, 1, 2, pieces);
    close(fd);
    char *piece = pieces[DEEP - 1];
    char *target = mmap(NULL, 4 * P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_equal(mf_mremap(piece, 2 * P, 4 * P, MREMAP_MAYMOVE | MREMAP_FIXED, target),
                     MAP_FAILED);
    assert_int_equal(errno, ENOMEM);
    assert_ptr_equal(mf_mremap(piece, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL),
                     MAP_FAILED);
    assert_int_equal(errno, EINVAL);
    for (unsigned i = 0; i < 2; i++)
        assert_true(page_is(piece + i * P, i + 1));
    munmap(target, 4 * P);
    for (int i = 0; i < DEEP; i++)
        unmap_pages(pieces[i], 2);
}

static void advice_does_not_keep_a_copy_from_being_refreshed(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *pieces[DEEP];
    map_deep(fd, RW, 1, 2, pieces);
    close(fd);
    char *piece = pieces[DEEP - 1];
    assert_int_equal(mf_madvise(piece, 2 * P, MADV_RANDOM), 0);
    piece[0] ^= 1;
    assert_int_equal(mf_madvise(piece, 2 * P, MADV_DONTNEED), 0);
    assert_true(page_is(piece, 1));
    for (int i = 0; i < DEEP; i++)
        unmap_pages(pieces[i], 2);
}

static void copies_respect_their_limit(void **state)
{
    (void)state;
    struct mf_map_options options, before;
    mf_map_get_options(&before);
    options = before;
    options.max_copy_bytes = 8 * P;
    assert_int_equal(mf_map_set_options(&options), 0);
    const int fd = file_make(1);
    char *pieces[DEEP];
    for (int i = 0; i < DEEP; i++)
        pieces[i] = map_pages(fd, RW, MAP_PRIVATE, 0, 1);
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    assert_true(stats.copies_live_bytes <= 8 * P);
    assert_int_equal(kind_at(pieces[DEEP - 1]), MF_MAP_PASSED);
    for (int i = 0; i < DEEP; i++)
        unmap_pages(pieces[i], 1);
    assert_int_equal(mf_map_set_options(&before), 0);
    close(fd);
}

static void a_child_and_its_parent_have_their_own_copies(void **state)
{
    (void)state;
    const int fd = file_make(2);
    char *pieces[DEEP];
    map_deep(fd, RW, 0, 1, pieces);
    char *piece = pieces[DEEP - 1];
    piece[0] = 'p';
    const pid_t child = fork();
    if (child == 0) {
        bool right = piece[0] == 'p';
        piece[0] = 'c';
        for (int i = 0; i < DEEP; i++)
            right = right && mf_munmap(pieces[i], P) == 0;
        for (int i = 0; i < DEEP && right; i++) {
            char *mine = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, P);
            right = mine != MAP_FAILED && page_is(mine, 1);
        }
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(piece[0], 'p');
    unmap_deep(pieces, 1);
    close(fd);
}

static void a_query_tells_the_file_and_offset_of_a_copy(void **state)
{
    (void)state;
    const int fd = file_make(8);
    struct stat stat_of;
    assert_int_equal(fstat(fd, &stat_of), 0);
    char *pieces[DEEP];
    map_deep(fd, RW, 3, 2, pieces);
    struct mf_map_info info;
    assert_int_equal(mf_map_query(pieces[DEEP - 1] + P + 5, &info), 0);
    assert_int_equal(info.inode, stat_of.st_ino);
    assert_int_equal(info.device, stat_of.st_dev);
    assert_int_equal(info.offset, 4 * P + 5);
    unmap_deep(pieces, 2);
    close(fd);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Not under a sanitizer, whose shadow of the whole address space mlockall would fill. */
static void no_copy_lands_in_a_file_after_mlockall(void **state)
{
    (void)state;
    const int fd = file_make(2), other = file_make(8);
    char *pieces[DEEP];
    map_deep(fd, RW, 0, 1, pieces);
    if (mf_mlockall(MCL_CURRENT) != 0)
        skip();
    assert_int_equal(mf_munlockall(), 0);
    for (int i = 0; i < DEEP; i++)
        assert_int_equal(mf_munmap(pieces[i], P), 0);
    char *shared = map_pages(other, RW, MAP_SHARED, 7, 1);
    map_deep(fd, RW, 0, 1, pieces);
    for (int i = 0; i < DEEP; i++)
        memset(pieces[i], 'x', P);
    char page[P];
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(pread(other, page, P, (off_t)i * P), P);
        assert_true(page_is(page, i));
    }
    unmap_deep(pieces, 1);
    unmap_pages(shared, 1);
    close(fd), close(other);
}

/* The originals are gone, and copies are still no anonymous memory. */
static bool copies_keep_their_bytes(char **pieces)
{
    char *piece = pieces[DEEP - 1];
    struct mf_map_info info;
    if (mf_map_query(piece, &info) != 0 || info.kind != MF_MAP_COPIED)
        return false;
    piece[P] = 'k';
    if (mf_madvise(piece, 2 * P, MADV_DONTNEED) != 0 || !page_is(piece, 1) || piece[P] != 'k')
        return false;
    if (mf_mremap(piece, 2 * P, 4 * P, MREMAP_MAYMOVE, NULL) != MAP_FAILED || errno != ENOMEM)
        return false;
    for (int i = 0; i < DEEP; i++)
        if (mf_munmap(pieces[i], 2 * P) != 0)
            return false;
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    return stats.live_bytes == 0 && stats.copies_live_bytes == 0 && stats.extents == 0;
}

static bool after_locking(void)
{
    char *pieces[DEEP], *again[DEEP];
    const int fd = file_make(8);
    map_deep(fd, RW, 1, 2, pieces);
    if (mf_mlockall(MCL_CURRENT) != 0 || mf_munlockall() != 0)
        return true; /* not allowed here */
    if (!copies_keep_their_bytes(pieces))
        return false;
    map_deep(fd, RW, 1, 2, again);
    return true;
}

static bool after_a_limit_of_address_space(void)
{
    char *pieces[DEEP];
    const int fd = file_make(8);
    map_deep(fd, RW, 1, 2, pieces);
    const struct rlimit limit = {256 << 20, 256 << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return false;
    char *memory = mf_mmap(NULL, 64 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED && copies_keep_their_bytes(pieces);
}

static void copies_outlive_the_extents_that_a_limit_dissolves(void **state)
{
    (void)state;
    bool (*const tests[])(void) = {after_locking, after_a_limit_of_address_space};
    for (int i = 0; i < 2; i++) {
        const pid_t child = fork();
        if (child == 0)
            _exit(tests[i]() ? 0 : 1);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}
#endif

enum { SCARCE = 40000 };

/* Half of the kernel maps that the process may have, so that small pieces are copied. */
static char *maps_use_up(void)
{
    char *memory = mf_mmap(NULL, (size_t)SCARCE * P, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    for (size_t i = 0; i < SCARCE; i += 2)
        if (mprotect(memory + i * P, P, PROT_READ) != 0)
            skip();
    return memory;
}

static int file_of_inode(ino_t inode)
{
    for (int i = 0; i < 200; i++) {
        char name[] = "test_copy.XXXXXX";
        const int fd = file_fill(mkstemp(name), 40);
        struct stat stat_of;
        assert_int_equal(fstat(fd, &stat_of), 0);
        assert_int_equal(unlink(name), 0);
        if (stat_of.st_ino == inode)
            return fd;
        close(fd);
    }
    return -1;
}

static void a_copy_of_a_deleted_file_never_gets_the_bytes_of_its_successor(void **state)
{
    (void)state;
    struct mf_map_options options, before;
    mf_map_get_options(&before);
    options = before;
    options.promote_pieces = 8;
    assert_int_equal(mf_map_set_options(&options), 0);
    char *used = maps_use_up();
    const int other = file_make(20);
    char *pieces[20], name[] = "test_copy.XXXXXX";
    for (unsigned i = 0; i < 20; i++)
        pieces[i] = map_pages(other, PROT_READ, MAP_SHARED, i, 1);
    int fd = mkstemp(name);
    struct stat stat_of;
    assert_true(fd >= 0 && fstat(fd, &stat_of) == 0 && ftruncate(fd, P) == 0);
    assert_int_equal(pwrite(fd, "first", 5, 0), 5);
    char *copy = map_pages(fd, RW, MAP_PRIVATE, 0, 1);
    const enum mf_map_kind kind = kind_at(copy);
    assert_int_equal(unlink(name), 0);
    close(fd);
    fd = file_of_inode(stat_of.st_ino);
    if (kind == MF_MAP_COPIED && fd >= 0) {
        enum { MANY = 200 };
        char *deep[MANY];
        for (int i = 0; i < MANY; i++)
            deep[i] = map_pages(fd, RW, MAP_PRIVATE, 0, 17);
        assert_int_equal(mf_madvise(copy, P, MADV_DONTNEED), 0);
        assert_memory_equal(copy, "first", 5);
        for (int i = 0; i < MANY; i++)
            unmap_pages(deep[i], 17);
    }
    unmap_pages(copy, 1);
    for (int i = 0; i < 20; i++)
        unmap_pages(pieces[i], 1);
    unmap_pages(used, SCARCE);
    close(other);
    if (fd >= 0)
        close(fd);
    assert_int_equal(mf_map_set_options(&before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_overlap_is_copied_and_each_piece_has_its_own_bytes),
        cmocka_unit_test(read_only_copies_may_not_be_written),
        cmocka_unit_test(the_bytes_behind_the_end_of_the_file_are_zero),
        cmocka_unit_test(a_piece_that_reaches_past_the_end_is_not_copied),
        cmocka_unit_test(dontneed_brings_the_bytes_of_the_file_back),
        cmocka_unit_test(what_a_program_maps_over_the_original_never_shows_in_a_copy),
        cmocka_unit_test(dontneed_brings_back_what_may_not_be_written),
        cmocka_unit_test(advice_stops_at_what_is_locked_as_in_the_kernel),
        cmocka_unit_test(a_copy_grows_into_the_bytes_of_the_file),
        cmocka_unit_test(what_would_leave_zeros_in_a_copy_is_refused),
        cmocka_unit_test(advice_does_not_keep_a_copy_from_being_refreshed),
        cmocka_unit_test(copies_respect_their_limit),
        cmocka_unit_test(a_child_and_its_parent_have_their_own_copies),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(no_copy_lands_in_a_file_after_mlockall),
        cmocka_unit_test(copies_outlive_the_extents_that_a_limit_dissolves),
#endif
        cmocka_unit_test(a_query_tells_the_file_and_offset_of_a_copy),
        cmocka_unit_test(a_copy_of_a_deleted_file_never_gets_the_bytes_of_its_successor),
    };
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
