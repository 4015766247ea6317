/* SPDX-License-Identifier: MIT */
/* Files of a pool: their descriptors, paths, locks and ends. */
#include "common.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

/* CASES 16, 17, 30 */
static void a_replaced_file_keeps_its_old_windows_and_a_new_one_sees_the_new_file(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
    const char *path = make_bytes("replaced", 4 * page, 1);
    struct mf_file *a = open_file(pool, path, 0);
    struct mf_window wa = {0}, wb = {0}, none = {0};
    assert_int_equal(mf_window_pin(a, 0, 4 * page, 0, MF_NOWAIT, &wa), 0);
    assert_int_equal(rename(make_bytes("new", 2 * page, 2), path), 0);
    struct mf_file *b = open_file(pool, path, 0);
    assert_int_equal(mf_window_pin(b, 0, 2 * page, 0, MF_NOWAIT, &wb), 0);
    assert_bytes(wa.data, 0, 4 * page, 1);
    assert_bytes(wb.data, 0, 2 * page, 2);
    assert_int_equal(mf_window_pin(b, 2 * page, 1, 0, MF_NOWAIT, &none), -ERANGE);
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

/* CASES 27: two windows of one extent, given back in either order after file and descriptor. */
static void windows_that_share_an_extent_go_in_any_order_after_their_file(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 1, 4 * page);
    for (unsigned order = 0; order < 2; order++) {
        const int fd = open(make_bytes("shared", 4 * page, 1), O_RDONLY | O_CLOEXEC);
        struct mf_file *file, *next;
        assert_int_equal(mf_file_from_fd(pool, fd, 0, &file), 0);
        struct mf_window w[2] = {{0}}, v = {0};
        assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w[0]), 0);
        assert_int_equal(mf_window_pin(file, page, page, 0, MF_NOWAIT, &w[1]), 0);
        assert_int_equal(stats_of(pool).maps, 1);
        assert_int_equal(mf_file_close(file), 0);
        close(fd);
        assert_int_equal(mf_window_unpin(&w[order]), 0);
        assert_int_equal(stats_of(pool).maps, 1);
        assert_bytes(w[!order].data, !order * page, page, 1);
        const int again = open(make_bytes("next", page, 2), O_RDONLY | O_CLOEXEC);
        assert_int_equal(again, fd); /* the number is another file's now */
        assert_int_equal(mf_file_from_fd(pool, again, 0, &next), 0);
        assert_int_equal(mf_window_pin(next, 0, page, 0, MF_NOWAIT, &v), 0);
        assert_int_equal(mf_window_unpin(&w[!order]), 0);
        assert_int_equal(stats_of(pool).maps, 1);
        assert_bytes(v.data, 0, page, 2);
        assert_int_equal(mf_window_unpin(&v), 0);
        assert_int_equal(mf_file_close(next), 0);
        close(again);
    }
    assert_int_equal(mf_pool_destroy(pool), 0);
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

/* The file that has taken the path's place is the program's, which has it open and locked. */
static void a_file_found_in_another_ones_place_keeps_the_process_locks(void **state)
{
    (void)state;
    for (uint32_t limit = 1; limit <= 3; limit++) {
        struct mf_pool *pool = make_pool(16 * page, 4, limit, 4 * page);
        make_bytes("rotated", 4 * page, 1);
        char path[128];
        snprintf(path, sizeof(path), "%s", path_of("rotated"));
        struct mf_file *file = open_file(pool, path, 0), *others[6], *lent;
        for (uint32_t i = 0; i < 6; i++)
            others[i] = open_file(pool, make_bytes("another", page, 1), 0);
        assert_int_equal(rename(make_bytes("rotated.new", 4 * page, 2), path), 0);
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
        assert_int_equal(mf_file_from_fd(pool, fd, 0, &lent), 0);
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), -ESTALE);
        assert_int_equal(mf_file_size(file), -ESTALE);
        assert_true(lock_is_held(path));
        assert_int_equal(mf_window_pin(lent, 0, page, 0, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, 0, page, 2);
        assert_int_equal(mf_window_unpin(&w), 0);
        assert_int_equal(mf_file_close_many(others, 6), 0);
        mf_file_close(file);
        mf_file_close(lent);
        assert_true(lock_is_held(path));
        close(fd);
        assert_int_equal(mf_pool_destroy(pool), 0);
    }
}

static void a_window_of_a_file_without_a_path_is_believed(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(16 * page, 4, 1, 4 * page);
    struct mf_file *file = open_file(pool, make_bytes("away", 4 * page, 1), 0);
    struct mf_window w = {0}, v = {0};
    assert_int_equal(mf_window_pin(file, 0, page, MF_CHECK_SIZE, MF_NOWAIT, &w), 0);
    struct mf_file *other = open_file(pool, make_bytes("other", page, 1), 0);
    assert_int_equal(mf_window_check(&w), 0); /* the path still leads to it */
    assert_int_equal(mf_file_size(other), page);
    assert_int_equal(rename(make_bytes("away.new", page, 2), path_of("away")), 0);
    assert_int_equal(mf_window_check(&w), 0);
    assert_bytes(w.data, 0, page, 1);
    assert_int_equal(mf_window_pin(file, 0, page, MF_CHECK_SIZE, MF_NOWAIT, &v), -ESTALE);
    assert_int_equal(unlink(path_of("away")), 0);
    assert_int_equal(mf_window_check(&w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(file);
    mf_file_close(other);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* Another process has the file to itself, as a file server for a client, and gives it up when it is
 * told that somebody else wants it. */
static pid_t hold_lease(const char *path, int kind)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
        sigset_t asked;
        sigemptyset(&asked);
        sigaddset(&asked, SIGIO);
        sigprocmask(SIG_BLOCK, &asked, NULL);
        const int fd = open(path, (kind == F_RDLCK ? O_RDONLY : O_RDWR) | O_CLOEXEC);
        if (fd < 0 || fcntl(fd, F_SETLEASE, kind) != 0 || write(ready[1], "y", 1) != 1)
            _exit(1);
        alarm(60);
        siginfo_t info;
        sigwaitinfo(&asked, &info);
        usleep(50000);
        _exit(fcntl(fd, F_SETLEASE, F_UNLCK) == 0 ? 0 : 2);
    }
    close(ready[1]);
    const bool held = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    int status;
    if (!held)
        waitpid(child, &status, 0);
    return held ? child : 0;
}

static void assert_given_up(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_file_that_another_process_has_a_lease_on_is_waited_for(void **state)
{
    (void)state;
    const char *path = make_bytes("leased", 4 * page, 1);
    pid_t child = hold_lease(path, F_WRLCK);
    if (!child)
        skip(); /* this file system has none */
    struct mf_pool *pool = make_pool(16 * page, 4, 1, 4 * page);
    struct mf_file *file = open_file(pool, path, 0);
    assert_given_up(child);
    struct mf_file *other = open_file(pool, make_bytes("unleased", page, 1), 0);
    child = hold_lease(path, F_WRLCK);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), 0); /* opened again */
    assert_given_up(child);
    assert_bytes(w.data, 0, page, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(file);
    child = hold_lease(path, F_RDLCK);
    file = open_file(pool, path, MF_FILE_WRITE);
    assert_given_up(child);
    mf_file_close(file);
    mf_file_close(other);
    assert_int_equal(mf_pool_destroy(pool), 0);
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

/* CASES 33: a small file system, where the blocks of deleted files would be missed. */
static int mount_small(void **state)
{
    (void)state;
    return mkdir(path_of("small"), 0700);
}

static int unmount_small(void **state)
{
    (void)state;
    umount2(path_of("small"), MNT_DETACH);
    return rmdir(path_of("small"));
}

static uint64_t free_blocks(void)
{
    struct statfs fs = {0};
    assert_int_equal(statfs(path_of("small"), &fs), 0);
    return fs.f_bfree * (uint64_t)fs.f_bsize;
}

static void deleted_files_give_back_their_blocks_when_closed(void **state)
{
    (void)state;
    enum { FILES = 50, PAGES = 64 };
    if (mount("none", path_of("small"), "tmpfs", 0, "size=64m") != 0)
        skip();
    struct mf_pool *pool = make_pool(FILES * PAGES * page, FILES, 8, PAGES * page);
    struct mf_file *files[FILES];
    struct mf_window w = {0}, held = {0};
    const uint64_t before = free_blocks();
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "small/%u", i);
        files[i] = open_file(pool, make_bytes(name, PAGES * page, i), 0);
        assert_int_equal(mf_window_pin(files[i], 0, PAGES * page, 0, MF_NOWAIT, &w), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
        if (i == 7)
            assert_int_equal(mf_window_pin(files[i], 0, PAGES * page, 0, MF_NOWAIT, &held), 0);
    }
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "small/%u", i);
        assert_int_equal(unlink(path_of(name)), 0);
    }
    assert_true(before - free_blocks() >= FILES * PAGES * page); /* idle extents hold them */
    for (unsigned i = 0; i < FILES / 2; i++)
        assert_int_equal(mf_file_forget(files[i]), 0);
    /* Beside those forgotten whose descriptor is open. */
    assert_true(before - free_blocks() <= (FILES / 2 + 8 + 1) * PAGES * page);
    assert_int_equal(mf_file_close_many(files, FILES), 0);
    assert_int_equal(before - free_blocks(), PAGES * page);
    assert_bytes(held.data, 0, PAGES * page, 7);
    assert_int_equal(mf_window_unpin(&held), 0);
    assert_int_equal(free_blocks(), before);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 18: the file system is said to be another one. The library asks this function too. */
static uint32_t said_to_be;

int fstatfs(int fd, struct statfs *fs)
{
    const int result = (int)syscall(SYS_fstatfs, fd, fs);
    if (said_to_be)
        fs->f_type = (typeof(fs->f_type))said_to_be;
    return result;
}

static void files_of_network_file_systems_are_copied_and_never_mapped(void **state)
{
    (void)state;
    const uint32_t kinds[] = {
        NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC,  AFS_SUPER_MAGIC,
        CODA_SUPER_MAGIC, V9FS_MAGIC,      CEPH_SUPER_MAGIC, OCFS2_SUPER_MAGIC, HUGETLBFS_MAGIC};
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    const char *path = make_bytes("far", 40 * page, 1);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct mf_file *files[2];
        said_to_be = kinds[i];
        files[0] = open_file(pool, path, 0);
        assert_int_equal(mf_file_from_fd(pool, fd, 0, &files[1]), 0);
        said_to_be = 0;
        for (unsigned k = 0; k < 4; k++) {
            struct mf_window w = {0};
            assert_int_equal(mf_window_pin(files[k % 2], 9, 2 * page, 0, MF_NOWAIT, &w), 0);
            assert_true(w.flags & MF_WINDOW_COPY);
            assert_bytes(w.data, 9, 2 * page, 1);
            assert_int_equal(mf_window_unpin(&w), 0);
            assert_int_equal(mf_local_pin(files[k % 2], 9, page, &w), 0);
            assert_bytes(w.data, 9, page, 1);
            assert_int_equal(mf_local_unpin(&w), 0);
            assert_int_equal(stats_of(pool).maps, 0);
        }
        assert_int_equal(mf_file_close_many(files, 2), 0);
    }
    close(fd);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* Their pages are 2 MiB and more, and mmap(2) of a part of one fails, or maps all of it. */
static void files_of_huge_pages_are_copied(void **state)
{
    (void)state;
    const int fd = memfd_create("huge", MFD_HUGETLB | MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 8 << 20) != 0)
        skip();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 4 * page);
    struct mf_file *file;
    assert_int_equal(mf_file_from_fd(pool, fd, MF_FILE_WRITE, &file), 0);
    for (uint64_t i = 0; i < 8; i++) {
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, i * (1 << 20) + 5 * page, page, 0, MF_NOWAIT, &w), 0);
        assert_true(w.flags & MF_WINDOW_COPY);
        assert_int_equal(((const char *)w.data)[page - 1], 0);
        assert_int_equal(mf_window_unpin(&w), 0);
        assert_int_equal(mf_window_pin(file, 0, page, MF_WRITE, MF_NOWAIT, &w), -ENOTSUP);
    }
    assert_int_equal(stats_of(pool).maps, 0);
    mf_file_close(file);
    close(fd);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* The first write to a file of the lower layer makes another one in the upper. */
static int mount_layers(void **state)
{
    (void)state;
    return mkdir(path_of("lower"), 0700) || mkdir(path_of("upper"), 0700) ||
           mkdir(path_of("work"), 0700) || mkdir(path_of("both"), 0700);
}

static int unmount_layers(void **state)
{
    (void)state;
    umount2(path_of("both"), MNT_DETACH);
    return 0;
}

static void on_overlayfs_files_opened_to_write_or_copy_see_later_writes(void **state)
{
    (void)state;
    static const uint32_t flags[] = {MF_FILE_WRITE, MF_FILE_COPY};
    char options[512];
    snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", path_of("lower"),
             path_of("upper"), path_of("work"));
    make_bytes("lower/0", 4 * page, 1);
    make_bytes("lower/1", 4 * page, 1);
    if (mount("none", path_of("both"), "overlay", 0, options) != 0)
        skip();
    for (unsigned i = 0; i < 2; i++) {
        struct mf_pool *pool = make_pool(16 * page, 4, 4, 4 * page);
        const char *path = path_of(i ? "both/1" : "both/0");
        struct mf_file *file = open_file(pool, path, flags[i]);
        for (unsigned salt = 1; salt < 3; salt++) {
            struct mf_window w = {0};
            assert_int_equal(mf_window_pin(file, 0, 4 * page, 0, MF_NOWAIT, &w), 0);
            assert_bytes(w.data, 0, 4 * page, salt);
            assert_int_equal(mf_window_unpin(&w), 0);
            const int fd = open(path, O_RDWR | O_CLOEXEC);
            assert_true(fd >= 0);
            write_bytes(fd, 0, 4 * page, 2);
            close(fd);
        }
        mf_file_close(file);
        assert_int_equal(mf_pool_destroy(pool), 0);
    }
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

/* Pins the piece and unpins it; how often the pool's lock was taken meanwhile. */
static uint64_t locks_of_pin(struct mf_pool *pool, struct mf_file *file, uint64_t offset,
                             size_t length)
{
    struct mf_pool_stats before, after;
    struct mf_window w = {0};
    mf_pool_stats(pool, &before);
    assert_int_equal(mf_window_pin(file, offset, length, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_pool_stats(pool, &after);
    return after.lock_taken - before.lock_taken - 1; /* for the figures itself */
}

static void a_hit_keeps_to_the_size_last_seen_however_it_changes(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 8 * page);
    const char *path = make_bytes("resized", 4 * page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    locks_of_pin(pool, file, 0, 4 * page);
    assert_int_equal(locks_of_pin(pool, file, 0, 4 * page), 0);

    assert_int_equal(truncate(path, (off_t)(3 * page + 10)), 0);
    assert_int_equal(mf_file_size(file), 3 * page + 10);
    assert_int_equal(mf_window_pin(file, 0, 4 * page, 0, MF_NOWAIT, &w), -ERANGE);
    assert_int_equal(mf_window_pin(file, 3 * page, 11, 0, MF_NOWAIT, &w), -ERANGE);
    assert_int_equal(mf_window_pin(file, 3 * page, SIZE_MAX, 0, MF_NOWAIT, &w), -EINVAL);
    assert_int_equal(locks_of_pin(pool, file, 3 * page, 10), 0);

    /* It grows within what is mapped: that is found out once. */
    assert_int_equal(truncate(path, (off_t)(4 * page)), 0);
    assert_int_equal(mf_file_size(file), 4 * page);
    assert_int_equal(mf_local_pin(file, 0, 4 * page, &w), 0);
    assert_int_equal(w.flags & MF_WINDOW_COPY, 0);
    assert_int_equal(mf_local_unpin(&w), 0);
    assert_int_equal(locks_of_pin(pool, file, 0, 4 * page), 0);
    struct mf_pool_stats stats;
    mf_pool_stats(pool, &stats);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_file_keeps_its_old_windows_and_a_new_one_sees_the_new_file),
        cmocka_unit_test(descriptors_stay_within_the_limit_and_files_are_recognised),
        cmocka_unit_test(files_without_links_use_up_the_limit),
        cmocka_unit_test(a_borrowed_descriptor_is_left_alone),
        cmocka_unit_test(windows_that_share_an_extent_go_in_any_order_after_their_file),
        cmocka_unit_test(borrowing_keeps_the_process_locks),
        cmocka_unit_test(a_file_found_in_another_ones_place_keeps_the_process_locks),
        cmocka_unit_test(a_window_of_a_file_without_a_path_is_believed),
        cmocka_unit_test(a_file_that_another_process_has_a_lease_on_is_waited_for),
        cmocka_unit_test(a_forgotten_file_holds_nothing),
        cmocka_unit_test_setup_teardown(deleted_files_give_back_their_blocks_when_closed,
                                        mount_small, unmount_small),
        cmocka_unit_test(files_of_network_file_systems_are_copied_and_never_mapped),
        cmocka_unit_test(files_of_huge_pages_are_copied),
        cmocka_unit_test_setup_teardown(on_overlayfs_files_opened_to_write_or_copy_see_later_writes,
                                        mount_layers, unmount_layers),
        cmocka_unit_test(a_path_is_found_again_after_the_directory_has_changed),
        cmocka_unit_test(files_of_several_pools_are_closed_in_one_call),
        cmocka_unit_test(a_hit_keeps_to_the_size_last_seen_however_it_changes),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
