/* SPDX-License-Identifier: MIT */
/*
 * Random windows against pread: any piece, any flags, local windows and reads, in pools and with
 * extents of all sizes, while the files are written, grown and cut between the looks.
 * usage: diff_window [SEEDS]
 */
#include "common.h"

#include <time.h>

enum { FILES = 5, LONGEST = 200000, HELD = 6 };

static struct mf_pool *pool;
static struct mf_file *files[FILES];
static int fds[FILES];
static unsigned char expected[LONGEST + 1];

static uint64_t draw(uint64_t below)
{
    return below ? (((uint64_t)rand() << 31) ^ (uint64_t)rand()) % below : 0;
}

static uint64_t size_of(unsigned which)
{
    struct stat st;
    assert_int_equal(fstat(fds[which], &st), 0);
    return (uint64_t)st.st_size;
}

/* Writes somewhere, perhaps beyond the end; or cuts, at a page so that no fault is involved. */
static void change(unsigned which)
{
    const uint64_t size = size_of(which);
    if (draw(8) == 0) {
        const uint64_t to = draw(size + 1);
        assert_int_equal(ftruncate(fds[which], (off_t)to), 0);
        mf_file_size(files[which]);
        mf_file_forget(files[which]);
        return;
    }
    unsigned char bytes[3000];
    const uint64_t n = 1 + draw(sizeof(bytes)), at = draw(size + 2 * page);
    for (uint64_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)rand();
    if (at + n > LONGEST)
        return;
    if (draw(2))
        assert_int_equal(mf_write(files[which], at, bytes, n), n);
    else
        assert_int_equal(pwrite(fds[which], bytes, n, (off_t)at), n);
}

struct held {
    struct mf_window w;
    unsigned which;
    uint64_t offset;
};

static void compare(const struct held *held, const struct mf_window *w)
{
    assert_int_equal(pread(fds[held->which], expected, w->length, (off_t)held->offset), w->length);
    assert_memory_equal(w->data, expected, w->length);
}

static void pin_one(struct held *held, uint64_t limit)
{
    held->which = (unsigned)draw(FILES);
    const uint64_t size = size_of(held->which);
    held->offset = draw(size + 10);
    const uint64_t length = draw(draw(4) ? 300 : size + 10);
    static const uint32_t flags[] = {0, 0, MF_MAY_COPY, MF_CHECK_SIZE, MF_ZERO_END, MF_WRITE};
    const uint32_t with = flags[draw(6)];
    const int err =
        mf_window_pin(files[held->which], held->offset, length, with, MF_NOWAIT, &held->w);
    if (held->offset + length > size) {
        assert_int_equal(err, -ERANGE);
    } else if (err) {
        assert_true(err == -EAGAIN || (err == -E2BIG && length + 2 * page > limit));
    } else {
        assert_int_equal(held->w.length, length);
        compare(held, &held->w);
        if (with & MF_ZERO_END && held->offset + length == size)
            assert_int_equal(((const char *)held->w.data)[length], 0);
        if (with == MF_WRITE && length) {
            unsigned char *data = mf_window_data_mut(&held->w);
            data[length / 2] ^= 0x55;
            compare(held, &held->w);
        }
    }
}

static void read_one(void)
{
    static unsigned char bytes[LONGEST];
    const unsigned which = (unsigned)draw(FILES);
    const uint64_t size = size_of(which), offset = draw(size + 100);
    const uint64_t length = draw(draw(4) ? 200 : 50000);
    const ssize_t want = pread(fds[which], expected, length, (off_t)offset);
    assert_int_equal(mf_read(files[which], offset, bytes, length, draw(2) ? MF_CHECK_SIZE : 0),
                     want);
    assert_memory_equal(bytes, expected, (size_t)want);
}

static void local_one(void)
{
    struct held held = {.which = (unsigned)draw(FILES)};
    const uint64_t size = size_of(held.which), length = draw(draw(4) ? 200 : 50000);
    held.offset = draw(size + 1);
    const int err = mf_local_pin(files[held.which], held.offset, length, &held.w);
    if (held.offset + length > size) {
        assert_int_equal(err, -ERANGE);
        return;
    }
    assert_int_equal(err, 0);
    compare(&held, &held.w);
    assert_int_equal(mf_local_unpin(&held.w), 0);
}

static void one_seed(unsigned seed)
{
    srand(seed);
    const size_t extent = page << draw(5);
    const uint64_t limit = extent * (1 + draw(12));
    pool = make_pool(limit, 1 + (uint32_t)draw(12), 1 + (uint32_t)draw(FILES), extent);
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "diff%u", i);
        const char *path = make_bytes(name, draw(20) * page + draw(2) * draw(page), i);
        fds[i] = open(path, O_RDWR | O_CLOEXEC);
        if (draw(3))
            files[i] = open_file(pool, path, MF_FILE_WRITE);
        else
            assert_int_equal(mf_file_from_fd(pool, fds[i], MF_FILE_WRITE, &files[i]), 0);
    }
    static struct held held[HELD];
    for (unsigned step = 0; step < 300; step++) {
        struct held *one = &held[draw(HELD)];
        if (one->w.data || one->w.opaque[0]) {
            assert_int_equal(mf_window_unpin(&one->w), 0);
            continue;
        }
        switch (draw(6)) {
        case 0:
            change((unsigned)draw(FILES));
            break;
        case 1:
            read_one();
            break;
        case 2:
            local_one();
            break;
        default:
            pin_one(one, limit);
        }
        const struct mf_pool_stats stats = stats_of(pool);
        assert_true(stats.bytes_mapped + stats.bytes_copied <= limit);
    }
    for (unsigned i = 0; i < HELD; i++)
        if (held[i].w.opaque[0])
            assert_int_equal(mf_window_unpin(&held[i].w), 0);
    assert_int_equal(mf_file_close_many(files, FILES), 0);
    assert_int_equal(stats_of(pool).bytes_copied, 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
    for (unsigned i = 0; i < FILES; i++)
        close(fds[i]);
}

static unsigned seeds = 150;

static void random_windows_read_what_pread_reads(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        printf("# seed %u\r", seed);
        one_seed(seed);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seeds = (unsigned)strtoul(argv[1], NULL, 10);
    if (mf_fault_install() != 0)
        return 9;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_windows_read_what_pread_reads),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
