/* SPDX-License-Identifier: MIT */
/* Windows and local windows, as their user meets them. */
#include <pthread.h>

#include "common.h"

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
    assert_int_equal(mf_file_open(pool, "", 0, &none), -ENOENT);
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
    fd = open(path_of("b"), O_RDWR | O_APPEND | O_CLOEXEC);
    assert_int_equal(mf_file_from_fd(pool, fd, MF_FILE_WRITE, &none), -EINVAL);
    struct mf_file *lent; /* to read from it is no trouble */
    assert_int_equal(mf_file_from_fd(pool, fd, 0, &lent), 0);
    mf_file_close(lent);
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

static void what_is_to_be_written_is_never_a_copy(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("cold-writer", page, 1), MF_FILE_WRITE);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, MF_WRITE | MF_MAY_COPY, MF_NOWAIT, &w), 0);
    assert_false(w.flags & MF_WINDOW_COPY);
    memcpy(mf_window_data_mut(&w), "writer", 6);
    assert_int_equal(mf_window_unpin(&w), 0);
    char bytes[6];
    const int fd = open(path_of("cold-writer"), O_RDONLY);
    assert_int_equal(pread(fd, bytes, 6, 0), 6);
    assert_memory_equal(bytes, "writer", 6);
    close(fd);
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

static void *pin_if_mapped(void *file)
{
    struct mf_window w = {0};
    const int err = mf_window_pin(file, 0, page, MF_IF_MAPPED, MF_NOWAIT, &w);
    return (void *)(intptr_t)(err ? err : mf_window_unpin(&w));
}

static void a_new_thread_finds_what_is_mapped(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("new-thread", 4 * page, 1), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), 0);
    pthread_t thread;
    void *err;
    assert_int_equal(pthread_create(&thread, NULL, pin_if_mapped, file), 0);
    assert_int_equal(pthread_join(thread, &err), 0);
    assert_null(err);
    assert_int_equal(mf_window_unpin(&w), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_piece_of_any_length_is_contiguous),
        cmocka_unit_test(empty_windows_and_files_are_fine),
        cmocka_unit_test(bad_input_is_refused_and_changes_nothing),
        cmocka_unit_test(a_second_unpin_or_a_moved_window_is_refused),
        cmocka_unit_test(when_all_is_pinned_the_caller_is_told_and_the_next_try_works),
        cmocka_unit_test(growth_neither_moves_nor_waits_for_a_pinned_window),
        cmocka_unit_test(what_is_written_through_a_window_is_in_the_file),
        cmocka_unit_test(what_is_to_be_written_is_never_a_copy),
        cmocka_unit_test(one_zero_byte_can_be_read_after_the_end),
        cmocka_unit_test(a_small_file_is_copied_at_first_touch_and_mapped_at_the_second),
        cmocka_unit_test(a_file_that_must_not_be_mapped_is_copied),
        cmocka_unit_test(asked_to_check_the_size_pin_check_and_read_see_a_cut),
        cmocka_unit_test(local_windows_nest_and_never_wait),
        cmocka_unit_test(a_debug_pool_unmaps_at_once),
        cmocka_unit_test(a_debug_pool_is_one_in_the_child_too),
        cmocka_unit_test(a_new_thread_finds_what_is_mapped),
        cmocka_unit_test(asked_for_what_is_mapped_pin_maps_and_copies_nothing),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
