/* SPDX-License-Identifier: MIT */
/* Windows, local windows and files, as their user meets them. */
#include "common.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

static void any_piece_of_any_length_is_contiguous(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("a", 20 * page + 123, 1), 0);
    const uint64_t pieces[][2] = {
        {0, 1},
        {0, page},
        {8, 200},
        {4 * page - 1, 2},
        {3 * page + 7, 9 * page},
        {0, 20 * page + 123},
        {20 * page + 122, 1},
    };
    for (unsigned i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, pieces[i][0], pieces[i][1], 0, MF_NOWAIT, &w), 0);
        assert_int_equal(w.length, pieces[i][1]);
        assert_bytes(w.data, pieces[i][0], w.length, 1);
        assert_int_equal(mf_window_check(&w), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void empty_windows_and_files_are_fine(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("empty", 0, 0), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 0, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_check(&w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_window_pin(file, 0, 1, 0, MF_NOWAIT, &w), -ERANGE);
    assert_int_equal(mf_window_pin(file, 1, 0, 0, MF_NOWAIT, &w), -ERANGE);
    assert_int_equal(mf_window_pin(file, 0, 0, MF_ZERO_END, MF_NOWAIT, &w), 0);
    assert_int_equal(*(const char *)w.data, 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_local_pin(file, 0, 0, &w), 0);
    assert_int_equal(mf_local_unpin(&w), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void bad_input_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    const struct {
        struct mf_pool_limits limits;
        size_t extent;
        uint32_t flags;
    } bad[] = {
        {{0, 4, 4}, 0, 0},           {{1 << 20, 0, 4}, 0, 0},        {{1 << 20, 4, 0}, 0, 0},
        {{1 << 20, 65537, 4}, 0, 0}, {{page - 1, 4, 4}, 0, 0},       {{1 << 20, 4, 4}, 2 << 20, 0},
        {{1 << 20, 4, 4}, 12345, 0}, {{1 << 20, 4, 4}, page / 2, 0}, {{1 << 20, 4, 4}, 0, 2},
    };
    struct mf_pool *pool;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(mf_pool_create(&bad[i].limits, bad[i].extent, bad[i].flags, &pool),
                         -EINVAL);
    pool = make_pool(16 * page, 4, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("b", 40 * page, 1), 0), *none;
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 1, 1u << 20, MF_NOWAIT, &w), -EINVAL);
    assert_int_equal(mf_window_pin(file, UINT64_MAX, 1, 0, MF_NOWAIT, &w), -EINVAL);
    assert_int_equal(mf_window_pin(file, INT64_MAX, 1, 0, MF_NOWAIT, &w), -EINVAL);
    assert_int_equal(mf_window_pin(file, 1, SIZE_MAX, 0, MF_NOWAIT, &w), -EINVAL);
    assert_int_equal(mf_window_pin(file, 40 * page, 1, 0, MF_NOWAIT, &w), -ERANGE);
    assert_int_equal(mf_window_pin(file, 0, 17 * page, 0, MF_NOWAIT, &w), -E2BIG);
    assert_int_equal(mf_window_pin(file, 0, 1, MF_WRITE, MF_NOWAIT, &w), -EACCES);
    assert_int_equal(mf_window_unpin(&w), -EINVAL);
    assert_int_equal(mf_window_check(&w), -EINVAL);
    assert_int_equal(mf_window_sync(&w), -EINVAL);
    assert_null(mf_window_data_mut(&w));
    assert_int_equal(mf_file_open(pool, path_of("b"), 1u << 9, &none), -EINVAL);
    assert_int_equal(mf_file_open(pool, path_of("missing"), 0, &none), -ENOENT);
    assert_int_equal(mf_file_open(pool, directory, 0, &none), -EISDIR);
    assert_int_equal(mf_file_open(pool, directory, MF_FILE_WRITE, &none), -EISDIR);
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    assert_int_equal(mf_file_open(pool, path_of("fifo"), 0, &none), -ENODEV);
    assert_int_equal(mf_file_open(pool, "/dev/null", 0, &none), -ENODEV);
    assert_int_equal(mf_file_from_fd(pool, 9999, 0, &none), -EBADF);
    int fd = open(path_of("b"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(mf_file_from_fd(pool, fd, 0, &none), -EACCES);
    close(fd);
    fd = open(path_of("b"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(mf_file_from_fd(pool, fd, MF_FILE_WRITE, &none), -EACCES);
    close(fd);
    fd = open(path_of("b"), O_PATH | O_CLOEXEC);
    assert_int_equal(mf_file_from_fd(pool, fd, 0, &none), -EBADF);
    close(fd);
    char byte;
    assert_int_equal(mf_read(file, 0, &byte, 1, MF_WRITE), -EINVAL);
    assert_int_equal(mf_write(file, 0, &byte, 1), -EBADF);
    const struct mf_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.bytes_mapped, 0);
    assert_int_equal(stats.files_open, 1);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
    assert_int_equal(mf_pool_destroy(NULL), 0);
}

static void a_second_unpin_or_a_moved_window_is_refused(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("c", 4 * page, 1), 0);
    struct mf_window w = {0}, moved;
    assert_int_equal(mf_window_pin(file, 0, 1, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_pin(file, 0, 1, 0, MF_NOWAIT, &w), -EINVAL);
    moved = w;
    assert_int_equal(mf_window_unpin(&moved), -EINVAL);
    assert_int_equal(mf_pool_destroy(pool), -EBUSY);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_window_unpin(&w), -EINVAL);
    assert_null(w.data);
    assert_int_equal(mf_pool_destroy(pool), -EBUSY); /* the file */
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

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

/* CASES 22 */
static void when_all_is_pinned_the_caller_is_told_and_the_next_try_works(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("full", 64 * page, 3), 0);
    struct mf_window w[5] = {{0}};
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(mf_window_pin(file, i * 4 * page, page, 0, MF_NOWAIT, &w[i]), 0);
    assert_int_equal(mf_window_pin(file, 16 * page, page, 0, MF_NOWAIT, &w[4]), -EAGAIN);
    assert_int_equal(mf_window_pin(file, 16 * page, page, 0, mf_deadline_in(2000000), &w[4]),
                     -ETIMEDOUT);
    assert_int_equal(mf_window_pin(file, 3 * page, page, 0, MF_NOWAIT, &w[4]), 0); /* a hit */
    assert_int_equal(mf_window_unpin(&w[4]), 0);
    assert_int_equal(mf_window_unpin(&w[1]), 0);
    errno = 77;
    assert_int_equal(mf_window_pin(file, 16 * page, page, 0, MF_NOWAIT, &w[4]), 0);
    assert_int_equal(errno, 77);
    assert_bytes(w[4].data, 16 * page, page, 3);
    for (int i = 0; i < 5; i++)
        if (i != 1)
            assert_int_equal(mf_window_unpin(&w[i]), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 17, 32 */
static void growth_neither_moves_nor_waits_for_a_pinned_window(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 8 * page);
    const char *path = make_bytes("grow", page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct mf_window old = {0}, w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &old), 0);
    for (uint64_t n = 1; n < 30; n++) {
        assert_int_equal(mf_window_pin(file, 0, (n + 1) * page, 0, MF_NOWAIT, &w), -ERANGE);
        write_bytes(fd, n * page, (n + 1) * page, 1);
        assert_int_equal(mf_window_pin(file, 0, (n + 1) * page, 0, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, 0, w.length, 1);
        assert_int_equal(mf_window_unpin(&w), 0);
        assert_bytes(old.data, 0, page, 1);
    }
    assert_int_equal(mf_window_unpin(&old), 0);
    close(fd);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 16, 30 */
static void a_replaced_file_keeps_its_old_windows_and_a_new_one_sees_the_new_file(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
    const char *path = make_bytes("replaced", 4 * page, 1);
    struct mf_file *a = open_file(pool, path, 0);
    struct mf_window wa = {0}, wb = {0};
    assert_int_equal(mf_window_pin(a, 0, 4 * page, 0, MF_NOWAIT, &wa), 0);
    assert_int_equal(rename(make_bytes("new", 2 * page, 2), path), 0);
    struct mf_file *b = open_file(pool, path, 0);
    assert_int_equal(mf_window_pin(b, 0, 2 * page, 0, MF_NOWAIT, &wb), 0);
    assert_bytes(wa.data, 0, 4 * page, 1);
    assert_bytes(wb.data, 0, 2 * page, 2);
    mf_file_close(a);
    assert_bytes(wa.data, 0, 4 * page, 1);
    assert_int_equal(stats_of(pool).maps, 2);
    assert_int_equal(mf_window_unpin(&wa), 0);
    assert_int_equal(stats_of(pool).maps, 1);
    assert_bytes(wb.data, 0, 2 * page, 2);
    assert_int_equal(mf_window_unpin(&wb), 0);
    mf_file_close(b);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 23: hundreds of files, few descriptors, and a path that leads elsewhere. */
static void descriptors_stay_within_the_limit_and_files_are_recognised(void **state)
{
    (void)state;
    enum { FILES = 300 };
    struct mf_pool *pool = make_pool(16 * page, 4, 5, 4 * page);
    struct mf_file *files[FILES];
    const unsigned before = open_descriptors();
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "many%u", i);
        files[i] = open_file(pool, make_bytes(name, page, i), 0);
    }
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < FILES; i++) {
            struct mf_window w = {0};
            const uint32_t flags = round == 1 ? MF_MAY_COPY : 0;
            assert_int_equal(mf_window_pin(files[i], 0, page, flags, MF_NOWAIT, &w), 0);
            assert_bytes(w.data, 0, page, i);
            assert_int_equal(mf_window_unpin(&w), 0);
            assert_true(stats_of(pool).files_open <= 5);
            assert_true(open_descriptors() - before <= 5);
        }
    assert_true(stats_of(pool).reopened > FILES);
    /* Replaced: same path, perhaps the same inode number. */
    assert_int_equal(unlink(path_of("many7")), 0);
    make_bytes("many7", page, 99);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(files[7], 0, page, 0, MF_NOWAIT, &w), -ESTALE);
    assert_int_equal(unlink(path_of("many8")), 0);
    assert_int_equal(mf_window_pin(files[8], 0, page, 0, MF_NOWAIT, &w), -ESTALE);
    /* Unlinked while open: keeps its descriptor. */
    assert_int_equal(mf_window_pin(files[9], 0, page, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(unlink(path_of("many9")), 0);
    for (unsigned i = 20; i < 60; i++) {
        assert_int_equal(mf_window_pin(files[i], 0, page, 0, MF_NOWAIT, &w), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    assert_int_equal(mf_window_pin(files[9], 0, page, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, 0, page, 9);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_file_close_many(files, FILES), 0);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void files_without_links_use_up_the_limit(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 2, 4 * page);
    struct mf_file *a = open_file(pool, make_bytes("gone1", page, 1), 0);
    struct mf_file *b = open_file(pool, make_bytes("gone2", page, 1), 0), *c;
    unlink(path_of("gone1"));
    unlink(path_of("gone2"));
    make_bytes("stays", page, 1);
    assert_int_equal(mf_file_open(pool, path_of("stays"), 0, &c), -EMFILE);
    mf_file_close(a);
    assert_int_equal(mf_file_open(pool, path_of("stays"), 0, &c), 0);
    mf_file_close(b);
    mf_file_close(c);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 27: a borrowed descriptor is never closed nor duplicated, and keeps its locks. */
static void a_borrowed_descriptor_is_left_alone(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 1, 4 * page);
    const char *path = make_bytes("lent", 4 * page, 1);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(lseek(fd, 10, SEEK_SET), 10);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
    const unsigned before = open_descriptors();
    struct mf_file *file;
    assert_int_equal(mf_file_from_fd(pool, fd, MF_FILE_WRITE, &file), 0);
    struct mf_window w = {0}, v = {0};
    assert_int_equal(mf_window_pin(file, 1, 100, MF_WRITE, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_pin(file, 1, 100, 0, MF_NOWAIT, &v), 0);
    assert_int_equal(open_descriptors(), before);
    mf_file_close(file);
    close(fd);
    const int again = open(make_bytes("other", page, 2), O_RDWR | O_CLOEXEC);
    assert_int_equal(again, fd); /* the number is another file's now */
    memset(mf_window_data_mut(&w), 'x', 100);
    assert_int_equal(((const char *)v.data)[5], 'x');
    assert_int_equal(mf_window_sync(&w), 0);
    assert_int_equal(mf_window_unpin(&v), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_file_from_fd(pool, again, 0, &file), 0);
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, 0, page, 2);
    assert_int_equal(mf_window_unpin(&w), 0);
    /* Closed by its owner too early, and the number taken by another file. */
    close(again);
    assert_int_equal(mf_file_forget(file), 0);
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), -EBADF);
    const int third = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(third, again);
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), -ESTALE);
    close(third);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static bool lock_is_held(const char *path)
{
    const pid_t child = fork();
    if (child == 0) {
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        _exit(fcntl(fd, F_SETLK, &lock) == 0 ? 1 : 0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void borrowing_keeps_the_process_locks(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 1, 4 * page);
    const char *path = make_bytes("locked", 4 * page, 1);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
    struct mf_file *file;
    assert_int_equal(mf_file_from_fd(pool, fd, 0, &file), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
    assert_true(lock_is_held(path));
    close(fd);
    assert_false(lock_is_held(path));
}

/* CASES 33 */
static void a_forgotten_file_holds_nothing(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    const char *path = make_bytes("forget", 16 * page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(mf_window_pin(file, i * 4 * page, page, 0, MF_NOWAIT, &w), 0);
        if (i < 3)
            assert_int_equal(mf_window_unpin(&w), 0);
    }
    unsigned lines;
    assert_int_equal(mf_file_forget(file), 0);
    assert_int_equal(mapped_bytes(&lines), 4 * page); /* the pinned one */
    assert_bytes(w.data, 12 * page, page, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mapped_bytes(&lines), 0);
    assert_int_equal(stats_of(pool).bytes_mapped, 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void what_is_written_through_a_window_is_in_the_file(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    const char *path = make_bytes("written", 8 * page, 1);
    struct mf_file *file = open_file(pool, path, MF_FILE_WRITE);
    struct mf_window w = {0}, v = {0};
    assert_int_equal(mf_window_pin(file, 4 * page - 3, 6, MF_WRITE, MF_NOWAIT, &w), 0);
    memcpy(mf_window_data_mut(&w), "mapped", 6);
    assert_int_equal(mf_window_pin(file, 4 * page - 3, 6, 0, MF_NOWAIT, &v), 0);
    assert_memory_equal(v.data, "mapped", 6);
    assert_null(mf_window_data_mut(&v));
    assert_int_equal(mf_window_sync(&v), -EACCES);
    assert_int_equal(mf_window_sync(&w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_write(file, 4 * page - 3, "writer", 6), 6);
    assert_memory_equal(v.data, "writer", 6);
    assert_int_equal(mf_window_unpin(&v), 0);
    assert_int_equal(mf_write(file, 9 * page, "end", 3), 3);
    assert_int_equal(mf_file_size(file), 9 * page + 3);
    char bytes[6];
    assert_int_equal(mf_read(file, 4 * page - 3, bytes, 6, 0), 6);
    assert_memory_equal(bytes, "writer", 6);
    assert_int_equal(mf_window_pin(file, 0, 1, MF_WRITE | MF_ZERO_END, MF_NOWAIT, &w), -ENOTSUP);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 20, 55 */
static void one_zero_byte_can_be_read_after_the_end(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    for (uint64_t size = 4 * page - 1; size <= 4 * page + 1; size++) {
        struct mf_file *file = open_file(pool, make_bytes("zero", size, 1), 0);
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, 1, size - 1, MF_ZERO_END, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, 1, size - 1, 1);
        assert_int_equal(((const char *)w.data)[w.length], 0);
        assert_int_equal(mf_window_unpin(&w), 0);
        assert_int_equal(mf_window_pin(file, 0, size + 1, 0, MF_NOWAIT, &w), -ERANGE);
        mf_file_close(file);
    }
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_small_file_is_copied_at_first_touch_and_mapped_at_the_second(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("cold", 2 * page, 1), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 5, 100, MF_MAY_COPY, MF_NOWAIT, &w), 0);
    assert_true(w.flags & MF_WINDOW_COPY);
    assert_bytes(w.data, 5, 100, 1);
    assert_int_equal(stats_of(pool).maps, 0);
    assert_int_equal(stats_of(pool).bytes_copied, 101);
    assert_int_equal(mf_window_check(&w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_window_pin(file, 5, 100, MF_MAY_COPY, MF_NOWAIT, &w), 0);
    assert_false(w.flags & MF_WINDOW_COPY);
    assert_int_equal(mf_window_unpin(&w), 0);
    const struct mf_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.copies, 1);
    assert_int_equal(stats.bytes_copied, 0);
    assert_int_equal(stats.maps, 1);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_file_that_must_not_be_mapped_is_copied(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *file =
        open_file(pool, make_bytes("copy", 40 * page, 1), MF_FILE_COPY | MF_FILE_WRITE);
    struct mf_window w = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mf_window_pin(file, 7, 20 * page, 0, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, 7, 20 * page, 1);
        assert_true(w.flags & MF_WINDOW_COPY);
        assert_int_equal(truncate(path_of("copy"), 10 * (off_t)page), 0);
        assert_bytes(w.data, 7, 20 * page, 1); /* keeps what it had */
        assert_int_equal(mf_window_unpin(&w), 0);
        make_bytes("copy", 40 * page, 1);
    }
    assert_int_equal(mf_window_pin(file, 0, 1, MF_WRITE, MF_NOWAIT, &w), -ENOTSUP);
    assert_int_equal(stats_of(pool).maps, 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void asked_to_check_the_size_pin_check_and_read_see_a_cut(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    const char *path = make_bytes("cut", 4 * page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, page, page, MF_CHECK_SIZE, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_check(&w), 0);
    assert_int_equal(truncate(path, (off_t)page), 0);
    assert_int_equal(mf_window_check(&w), -ERANGE);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_window_pin(file, page, page, MF_CHECK_SIZE, MF_NOWAIT, &w), -ERANGE);
    char byte;
    assert_int_equal(mf_read(file, page, &byte, 1, MF_CHECK_SIZE), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void local_windows_nest_and_never_wait(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(4 * page, 1, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("local", 64 * page, 1), 0);
    struct mf_window hold = {0}, w[17] = {{0}};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &hold), 0);
    for (uint64_t i = 0; i < 16; i++) {
        assert_int_equal(mf_local_pin(file, i * 2 * page + 3, page / 2, &w[i]), 0);
        assert_bytes(w[i].data, i * 2 * page + 3, page / 2, 1);
    }
    assert_int_equal(mf_local_pin(file, 0, 1, &w[16]), -ENOSPC);
    assert_int_equal(mf_local_unpin(&w[14]), -EINVAL);
    assert_int_equal(mf_window_unpin(&w[15]), -EINVAL);
    for (int i = 15; i >= 0; i--)
        assert_int_equal(mf_local_unpin(&w[i]), 0);
    assert_int_equal(mf_local_unpin(&w[0]), -EINVAL);
    assert_int_equal(mf_local_pin(file, 0, 65 << 10, &w[0]), -E2BIG);
    assert_int_equal(mf_local_pin(file, 64 * page, 1, &w[0]), -ERANGE);
    assert_int_equal(mf_local_pin(file, 3, 5, &w[0]), 0); /* borrows what is mapped */
    assert_ptr_equal(w[0].data, (const char *)hold.data + 3);
    assert_int_equal(mf_local_unpin(&w[0]), 0);
    assert_int_equal(mf_window_unpin(&hold), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_debug_pool_unmaps_at_once(void **state)
{
    (void)state;
    const struct mf_pool_limits limits = {64 * page, 16, 4};
    struct mf_pool *pool;
    assert_int_equal(mf_pool_create(&limits, 0, MF_POOL_DEBUG, &pool), 0);
    struct mf_file *file = open_file(pool, make_bytes("debug", 8 * page, 1), 0);
    struct mf_window w = {0}, v = {0};
    assert_int_equal(mf_window_pin(file, 10, page, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_pin(file, 10, page, 0, MF_NOWAIT, &v), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_bytes(v.data, 10, page, 1);
    const void *data = v.data;
    assert_int_equal(mf_window_unpin(&v), 0);
    unsigned char resident;
    assert_int_equal(mincore((void *)((uintptr_t)data & ~(page - 1)), page, &resident), -1);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
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

static void asked_for_what_is_mapped_pin_maps_and_copies_nothing(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("if-mapped", 32 * page, 1), 0);
    struct mf_window w = {0}, v = {0};
    const uint32_t ways[] = {0, MF_MAY_COPY, MF_ZERO_END, MF_CHECK_SIZE};
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        const uint32_t flags = MF_IF_MAPPED | ways[i];
        assert_int_equal(mf_window_pin(file, 0, page, flags, MF_FOREVER, &w), -EAGAIN);
        assert_int_equal(mf_window_pin(file, 31 * page, page, flags, MF_FOREVER, &w), -EAGAIN);
        assert_int_equal(mf_window_pin(file, 31 * page, 2 * page, flags, MF_FOREVER, &w), -ERANGE);
    }
    assert_int_equal(mf_window_pin(file, 0, page, MF_IF_MAPPED | MF_WRITE, MF_FOREVER, &w),
                     -EACCES);
    assert_int_equal(stats_of(pool).maps, 0);
    assert_int_equal(stats_of(pool).copies, 0);

    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &v), 0);
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        assert_int_equal(mf_window_pin(file, page, 2 * page, MF_IF_MAPPED | ways[i], MF_NOWAIT, &w),
                         0);
        assert_bytes(w.data, page, 2 * page, 1);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    assert_int_equal(mf_window_pin(file, page, 4 * page, MF_IF_MAPPED, MF_NOWAIT, &w), -EAGAIN);
    assert_int_equal(mf_window_unpin(&v), 0);
    assert_int_equal(stats_of(pool).maps, 1);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_path_is_found_again_after_the_directory_has_changed(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 1, 4 * page);
    make_bytes("relative", page, 1);
    char *back = getcwd(NULL, 0);
    assert_int_equal(chdir(directory), 0);
    struct mf_file *file = open_file(pool, "relative", 0);
    assert_int_equal(chdir(back), 0);
    struct mf_file *other = open_file(pool, make_bytes("push", page, 2), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, 0, page, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_file_prefetch(other, 0, page), 0);
    assert_int_equal(mf_file_prefetch(other, UINT64_MAX, page), -EINVAL);
    mf_file_close(file);
    mf_file_close(other);
    free(back);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 38 */
static void files_of_several_pools_are_closed_in_one_call(void **state)
{
    (void)state;
    struct mf_pool *a = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_pool *b = make_pool(64 * page, 16, 4, 4 * page);
    const char *path = make_bytes("group", 4 * page, 1);
    struct mf_file *files[6] = {NULL};
    files[1] = open_file(a, path, 0);
    files[2] = open_file(b, path, 0);
    files[4] = open_file(b, path, 0);
    struct mf_window w = {0}, held = {0};
    for (unsigned i = 0; i < 6; i++)
        if (files[i]) {
            assert_int_equal(mf_window_pin(files[i], 0, page, 0, MF_NOWAIT, &w), 0);
            assert_int_equal(mf_window_unpin(&w), 0);
        }
    assert_int_equal(mf_window_pin(files[4], 0, page, 0, MF_NOWAIT, &held), 0);
    assert_int_equal(mf_file_close_many(files, 6), 0);
    unsigned lines;
    assert_int_equal(mapped_bytes(&lines), 4 * page);
    assert_bytes(held.data, 0, page, 1);
    assert_int_equal(mf_window_unpin(&held), 0);
    assert_int_equal(mapped_bytes(&lines), 0);
    assert_int_equal(mf_pool_destroy(a), 0);
    assert_int_equal(mf_pool_destroy(b), 0);
}

static struct mf_pool *debug_pool;
static struct mf_file *debug_file;
static void unpin_in_a_debug_pool(void)
{
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(debug_file, 0, page, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(stats_of(debug_pool).maps, 0);
}

static void a_debug_pool_is_one_in_the_child_too(void **state)
{
    (void)state;
    const struct mf_pool_limits limits = {64 * page, 16, 4};
    assert_int_equal(mf_pool_create(&limits, 0, MF_POOL_DEBUG, &debug_pool), 0);
    debug_file = open_file(debug_pool, make_bytes("debug2", 8 * page, 1), 0);
    assert_int_equal(in_child(unpin_in_a_debug_pool), 0);
    mf_file_close(debug_file);
    assert_int_equal(mf_pool_destroy(debug_pool), 0);
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
        cmocka_unit_test(any_piece_of_any_length_is_contiguous),
        cmocka_unit_test(empty_windows_and_files_are_fine),
        cmocka_unit_test(bad_input_is_refused_and_changes_nothing),
        cmocka_unit_test(a_second_unpin_or_a_moved_window_is_refused),
        cmocka_unit_test(limits_hold_exactly_and_agree_with_proc),
        cmocka_unit_test(the_process_wide_cap_sends_further_reads_to_copies),
        cmocka_unit_test(when_all_is_pinned_the_caller_is_told_and_the_next_try_works),
        cmocka_unit_test(growth_neither_moves_nor_waits_for_a_pinned_window),
        cmocka_unit_test(a_replaced_file_keeps_its_old_windows_and_a_new_one_sees_the_new_file),
        cmocka_unit_test(descriptors_stay_within_the_limit_and_files_are_recognised),
        cmocka_unit_test(files_without_links_use_up_the_limit),
        cmocka_unit_test(a_borrowed_descriptor_is_left_alone),
        cmocka_unit_test(borrowing_keeps_the_process_locks),
        cmocka_unit_test(a_forgotten_file_holds_nothing),
        cmocka_unit_test(what_is_written_through_a_window_is_in_the_file),
        cmocka_unit_test(one_zero_byte_can_be_read_after_the_end),
        cmocka_unit_test(a_small_file_is_copied_at_first_touch_and_mapped_at_the_second),
        cmocka_unit_test(a_file_that_must_not_be_mapped_is_copied),
        cmocka_unit_test(asked_to_check_the_size_pin_check_and_read_see_a_cut),
        cmocka_unit_test(local_windows_nest_and_never_wait),
        cmocka_unit_test(a_debug_pool_unmaps_at_once),
        cmocka_unit_test(out_of_address_space_idle_extents_go_and_then_copies_serve),
        cmocka_unit_test(out_of_kernel_maps_idle_extents_go_and_then_copies_serve),
        cmocka_unit_test(out_of_descriptors_the_pools_own_are_closed),
        cmocka_unit_test(a_thousand_hits_take_no_lock_and_map_nothing),
        cmocka_unit_test(asked_for_what_is_mapped_pin_maps_and_copies_nothing),
        cmocka_unit_test(a_path_is_found_again_after_the_directory_has_changed),
        cmocka_unit_test(files_of_several_pools_are_closed_in_one_call),
        cmocka_unit_test(a_debug_pool_is_one_in_the_child_too),
        cmocka_unit_test(sixty_four_pools_exist_and_no_more),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
