/* SPDX-License-Identifier: MIT */
/*
 * A file system of which one page cannot be read, in a process of its own: what a bad sector, or a
 * file that another host has replaced, does to windows. CASES 14, 18.
 */
#include "common.h"

#ifndef WITH_FUSE
int main(void)
{
    printf("1..1\nok 1 # SKIP built without libfuse3 (apt-get install libfuse3-dev pkg-config)\n");
    return 0;
}
#else
#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/vfs.h>

enum { PAGES = 64, BAD = 3, FUSE_MAGIC = 0x65735546 };

static struct sigaction ours;
static char mount_point[128], eio_path[160], stale_path[160], odd_path[160];
static pid_t server;

/* The server. All its files have the bytes of make_bytes with salt 1. */

static int get_attributes(const char *path, struct stat *st, struct fuse_file_info *info)
{
    (void)info;
    const bool top = strcmp(path, "/") == 0;
    *st = (struct stat){.st_mode = top ? S_IFDIR | 0755 : S_IFREG | 0644,
                        .st_nlink = top ? 2 : 1,
                        .st_size = top ? 0 : (off_t)(PAGES * page)};
    return 0;
}

/* Of the file "odd" every second page is bad, but for the last; of the others one is. */
static bool is_bad(const char *path, uint64_t index)
{
    return strcmp(path, "/odd") == 0 ? index % 2 && index < PAGES - 1 : index == BAD;
}

/* A request that touches a bad page fails as a whole: the kernel then asks page by page. */
static int read_bytes(const char *path, char *to, size_t length, off_t offset,
                      struct fuse_file_info *info)
{
    (void)info;
    const uint64_t from = (uint64_t)offset, size = PAGES * page;
    if (from >= size)
        return 0;
    if (length > size - from)
        length = size - from;
    for (uint64_t i = from / page; i * page < from + length; i++)
        if (is_bad(path, i))
            return strcmp(path, "/stale") == 0 ? -ESTALE : -EIO;
    for (size_t i = 0; i < length; i++)
        to[i] = (char)byte_at(from + i, 1);
    return (int)length;
}

static void serve(void)
{
    const struct fuse_operations operations = {.getattr = get_attributes, .read = read_bytes};
    char program[] = "bad", foreground[] = "-f", single[] = "-s";
    char *arguments[] = {program, foreground, single, mount_point, NULL};
    _exit(fuse_main(4, arguments, &operations, NULL));
}

static bool is_mounted(void)
{
    struct statfs fs;
    return statfs(mount_point, &fs) == 0 && fs.f_type == FUSE_MAGIC;
}

static int begin_server(void **state)
{
    if (begin_directory(state) != 0)
        return -1;
    snprintf(mount_point, sizeof(mount_point), "%s/mount", directory);
    snprintf(eio_path, sizeof(eio_path), "%s/eio", mount_point);
    snprintf(odd_path, sizeof(odd_path), "%s/odd", mount_point);
    snprintf(stale_path, sizeof(stale_path), "%s/stale", mount_point);
    if (mkdir(mount_point, 0700) != 0)
        return -1;
    fflush(NULL);
    server = fork();
    if (server == 0)
        serve();
    for (int i = 0; i < 1000 && !is_mounted(); i++) {
        int status;
        if (waitpid(server, &status, WNOHANG) == server) {
            server = 0;
            break;
        }
        usleep(10000);
    }
    return 0;
}

static int end_server(void **state)
{
    if (server > 0) {
        kill(server, SIGTERM); /* it unmounts */
        waitpid(server, NULL, 0);
    }
    umount2(mount_point, MNT_DETACH);
    return end_directory(state);
}

static void begin(void)
{
    if (!is_mounted()) {
        print_message("# this machine mounts no FUSE file system\n");
        skip();
    }
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

static void a_page_that_cannot_be_read_is_told_and_its_neighbours_are_right(void **state)
{
    (void)state;
    begin();
    struct mf_pool *pool = make_pool(4 * PAGES * page, 64, 4, PAGES * page);
    struct mf_file *file = open_file(pool, eio_path, 0);
    struct mf_window w = {0}, v = {0};
    assert_int_equal(mf_window_pin(file, 0, PAGES * page, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, 0, BAD * page, 1);
    assert_int_equal(mf_window_check(&w), 0);
    assert_int_equal(((volatile const char *)w.data)[BAD * page], 0);
    assert_int_equal(mf_window_check(&w), -EIO);
    const uint64_t after = (BAD + 1) * page;
    assert_bytes((const char *)w.data + after, after, (PAGES - BAD - 1) * page, 1);
    /* A new pin has an extent of its own, and is as good as what it touches. */
    assert_int_equal(mf_window_pin(file, after, page, 0, MF_NOWAIT, &v), 0);
    assert_ptr_not_equal((const char *)v.data - after, w.data);
    assert_bytes(v.data, after, page, 1);
    assert_int_equal(mf_window_unpin(&v), 0);
    assert_int_equal(mf_window_unpin(&w), -EIO);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* Sixteen are repaired one by one, whether the descriptor is open or not; then all is given up. */
static void many_bad_pages_cost_few_maps(void **state)
{
    (void)state;
    begin();
    for (unsigned closed = 0; closed < 2; closed++) {
        struct mf_pool *pool = make_pool(4 * PAGES * page, 64, 4, PAGES * page);
        struct mf_file *file = open_file(pool, odd_path, 0);
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, 0, PAGES * page, 0, MF_NOWAIT, &w), 0);
        if (closed)
            mf_file_close(file);
        const volatile char *data = w.data;
        for (unsigned i = 0; i < 16; i++) {
            assert_int_equal(data[(2 * i + 1) * page], 0);
            assert_int_equal(stats_of(pool).maps, 1 + 2 * (i + 1));
        }
        for (unsigned i = 0; i < PAGES; i += 2)
            assert_bytes((const char *)w.data + i * page, i * page, page, 1);
        assert_int_equal(data[33 * page], 0); /* the seventeenth */
        assert_int_equal(stats_of(pool).maps, 33);
        for (unsigned i = 0; i < PAGES; i++)
            assert_int_equal(data[i * page], 0);
        assert_int_equal(mf_window_unpin(&w), -EIO);
        if (!closed)
            mf_file_close(file);
        assert_int_equal(mf_pool_destroy(pool), 0);
    }
}

static void reads_and_copies_give_the_error_of_the_file_system(void **state)
{
    (void)state;
    begin();
    struct mf_pool *pool = make_pool(4 * PAGES * page, 64, 4, PAGES * page);
    struct mf_file *file = open_file(pool, eio_path, 0);
    struct mf_file *stale = open_file(pool, stale_path, MF_FILE_COPY);
    struct mf_window w = {0};
    char *buffer = malloc(PAGES * page);
    for (int mapped = 0; mapped < 2; mapped++) {
        assert_int_equal(mf_read(file, 0, buffer, BAD * page, 0), BAD * page);
        assert_bytes(buffer, 0, BAD * page, 1);
        assert_int_equal(mf_read(file, BAD * page + 9, buffer, 9, 0), -EIO);
        const ssize_t n = mf_read(file, page, buffer, 8 * page, 0);
        assert_int_equal(n, (BAD - 1) * page);
        assert_bytes(buffer, page, (uint64_t)n, 1);
        if (!mapped)
            assert_int_equal(mf_window_pin(file, 0, 1, 0, MF_NOWAIT, &w), 0);
    }
    assert_int_equal(mf_window_unpin(&w), -EIO);
    assert_int_equal(mf_window_pin(stale, BAD * page, 9, 0, MF_NOWAIT, &w), -ESTALE);
    assert_int_equal(mf_window_pin(stale, 0, 9, 0, MF_NOWAIT, &w), 0);
    assert_true(w.flags & MF_WINDOW_COPY);
    assert_bytes(w.data, 0, 9, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_local_pin(stale, BAD * page, 9, &w), -ESTALE);
    assert_int_equal(stats_of(pool).bytes_copied, 0);
    free(buffer);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_file_close(stale), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

int main(void)
{
    if (mf_fault_install() != 0 || sigaction(SIGBUS, NULL, &ours) != 0)
        return 9;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_that_cannot_be_read_is_told_and_its_neighbours_are_right),
        cmocka_unit_test(many_bad_pages_cost_few_maps),
        cmocka_unit_test(reads_and_copies_give_the_error_of_the_file_system),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, begin_server, end_server);
}
#endif
