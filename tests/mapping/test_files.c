/* SPDX-License-Identifier: MIT */
/* What other processes, and the file system, can see of folding: nothing that a plain program shows
 * not. */
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE };

/* What a second process finds when it asks: 'l' locked by somebody else, 'f' free. */
static char ask_another(int (*ask)(const char *), const char *name)
{
    const pid_t child = fork();
    if (child == 0)
        _exit(ask(name));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (char)WEXITSTATUS(status);
}

static int ask_fcntl(const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    const int fd = open(name, O_RDWR);
    if (fd < 0 || fcntl(fd, F_GETLK, &lock) != 0)
        return '?';
    return lock.l_type == F_UNLCK ? 'f' : 'l';
}

static int ask_flock(const char *name)
{
    const int fd = open(name, O_RDWR);
    if (fd < 0)
        return '?';
    return flock(fd, LOCK_EX | LOCK_NB) == 0 ? 'f' : 'l';
}

static int named_file(char *name, unsigned pages)
{
    strcpy(name, "./file-XXXXXX");
    return file_fill(mkstemp(name), pages);
}

static void posix_locks_stay_while_extents_come_and_go(void **state)
{
    (void)state;
    char name[32];
    const int fd = named_file(name, 8);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
    for (int i = 0; i < 3; i++) {
        char *piece = map_pages(fd, RW, MAP_SHARED, 1, 2);
        assert_int_equal(kind_at(piece), MF_MAP_CARVED);
        assert_int_equal(ask_another(ask_fcntl, name), 'l');
        unmap_pages(piece, 2);
        assert_int_equal(ask_another(ask_fcntl, name), 'l');
    }
    close(fd);
    assert_int_equal(ask_another(ask_fcntl, name), 'f');
    unlink(name);
}

static void a_piece_does_not_prolong_a_flock(void **state)
{
    (void)state;
    char name[32];
    const int fd = named_file(name, 8);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    char *piece = map_pages(fd, PROT_READ, MAP_PRIVATE, 0, 2);
    assert_int_equal(kind_at(piece), MF_MAP_CARVED);
    assert_int_equal(ask_another(ask_flock, name), 'l');
    close(fd);
    assert_int_equal(ask_another(ask_flock, name), 'f');
    unmap_pages(piece, 2);
    unlink(name);
}

static void a_leased_file_is_left_to_the_kernel(void **state)
{
    (void)state;
    char name[32];
    close(named_file(name, 8));
    const int fd = open(name, O_RDONLY);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    char *piece = map_pages(fd, PROT_READ, MAP_PRIVATE, 0, 2);
    assert_int_equal(kind_at(piece), MF_MAP_PASSED);
    assert_int_equal(fcntl(fd, F_GETLEASE), F_WRLCK);
    unmap_pages(piece, 2);
    close(fd), unlink(name);
}

static void a_program_can_be_executed_once_its_last_piece_has_gone(void **state)
{
    (void)state;
    char name[32];
    strcpy(name, "./program-XXXXXX");
    const int to = mkstemp(name), from = open("/bin/true", O_RDONLY);
    struct stat size;
    assert_int_equal(fstat(from, &size), 0);
    char *bytes = mmap(NULL, (size_t)size.st_size, PROT_READ, MAP_PRIVATE, from, 0);
    assert_int_equal(write(to, bytes, (size_t)size.st_size), size.st_size);
    munmap(bytes, (size_t)size.st_size);
    close(from);
    assert_int_equal(fchmod(to, 0700), 0);
    char *piece = map_pages(to, RW, MAP_SHARED, 0, 1);
    assert_int_equal(kind_at(piece), MF_MAP_CARVED);
    close(to);
    for (int round = 0; round < 2; round++) {
        const pid_t child = fork();
        if (child == 0) {
            execl(name, name, (char *)NULL);
            _exit(errno == ETXTBSY ? 26 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), round == 0 ? 26 : 0);
        if (round == 0)
            unmap_pages(piece, 1);
    }
    unlink(name);
}

static void a_memfd_can_be_sealed_once_its_last_piece_has_gone(void **state)
{
    (void)state;
    const int fd = memfd_create("sealable", MFD_ALLOW_SEALING);
    file_fill(fd, 4);
    char *piece = map_pages(fd, RW, MAP_SHARED, 0, 2);
    assert_int_equal(kind_at(piece), MF_MAP_PASSED);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EBUSY);
    unmap_pages(piece, 2);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    close(fd);
    const int plain = file_fill(memfd_create("plain", 0), 4);
    piece = map_pages(plain, RW, MAP_SHARED, 1, 2);
    assert_int_equal(kind_at(piece), MF_MAP_CARVED);
    assert_true(page_is(piece, 1));
    unmap_pages(piece, 2);
    close(plain);
}

/* A file system of our own, or a skipped test. */
static void mount_or_skip(const char *type, unsigned long flags, const char *options)
{
    mkdir("./mounted", 0700);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(type, "./mounted", type, flags, options) != 0)
        skip();
}

/* CASES 5 */
static void a_deleted_file_gives_its_blocks_back_with_its_last_piece(void **state)
{
    (void)state;
    mount_or_skip("tmpfs", 0, "size=64m");
    const int fd = file_fill(open("./mounted/file", O_RDWR | O_CREAT, 0600), 2000);
    struct statfs before, after;
    char *piece = map_pages(fd, RW, MAP_SHARED, 100, 2);
    assert_int_equal(kind_at(piece), MF_MAP_CARVED);
    unlink("./mounted/file");
    close(fd);
    assert_int_equal(statfs("./mounted", &before), 0);
    assert_int_equal(umount("./mounted"), -1);
    assert_int_equal(errno, EBUSY);
    unmap_pages(piece, 2);
    assert_int_equal(statfs("./mounted", &after), 0);
    assert_true(after.f_bfree >= before.f_bfree + 2000);
    assert_int_equal(umount("./mounted"), 0);
}

/* CASES 5: tiny files, deleted and kept mapped, each in more pieces than are carved. */
static void many_deleted_files_give_their_blocks_back_however_they_were_folded(void **state)
{
    (void)state;
    enum { FILES = 100, DEEP = 12 };
    static char *pieces[FILES][DEEP];
    mount_or_skip("tmpfs", 0, "size=64m");
    struct statfs before, after;
    assert_int_equal(statfs("./mounted", &before), 0);
    for (int way = 0; way < 3; way++) { /* shared, private and read, private and written */
        for (unsigned i = 0; i < FILES; i++) {
            const int fd = file_fill(open("./mounted/file", O_RDWR | O_CREAT | O_EXCL, 0600), 2);
            for (unsigned j = 0; j < DEEP; j++) {
                pieces[i][j] = map_pages(fd, RW, way ? MAP_PRIVATE : MAP_SHARED, 0, 2);
                assert_true(page_is(pieces[i][j] + P, 1));
                if (way == 2)
                    pieces[i][j][0] = 'x';
            }
            assert_int_equal(unlink("./mounted/file"), 0);
            close(fd);
        }
        for (unsigned j = 0; j < DEEP; j++)
            for (unsigned i = 0; i < FILES; i++)
                unmap_pages(pieces[i][j], 2);
        assert_int_equal(statfs("./mounted", &after), 0);
        assert_int_equal(after.f_bfree, before.f_bfree);
        assert_int_equal(after.f_ffree, before.f_ffree);
    }
    assert_int_equal(umount("./mounted"), 0);
}

static void protect_all(char *const *pieces, unsigned count, int protection, int error)
{
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(mf_mprotect(pieces[i], P, protection), error ? -1 : 0);
        if (error)
            assert_int_equal(errno, error);
        assert_true(page_is(pieces[i], 1));
    }
}

/* CASES 63: neither what is carved nor what is copied, and only there. */
static void what_a_mount_forbids_to_execute_does_not_become_executable(void **state)
{
    (void)state;
    enum { DEEP = 40 };
    mount_or_skip("tmpfs", MS_NOEXEC, NULL);
    const int forbidden = file_fill(open("./mounted/file", O_RDWR | O_CREAT, 0600), 4);
    const int allowed = file_make(4);
    char *pieces[DEEP];
    assert_ptr_equal(mf_mmap(NULL, P, PROT_READ | PROT_EXEC, MAP_PRIVATE, forbidden, 0),
                     MAP_FAILED);
    assert_int_equal(errno, EPERM);
    for (int way = 0; way < 6; way++) {
        const int fd = way % 2 ? allowed : forbidden, deep = way < 4 ? DEEP : 2;
        for (int i = 0; i < deep; i++)
            pieces[i] = map_pages(fd, way % 4 < 2 ? PROT_READ : RW,
                                  way < 4 ? MAP_PRIVATE : MAP_SHARED, 1, 1);
        assert_int_equal(kind_at(pieces[0]), MF_MAP_CARVED);
        assert_int_equal(kind_at(pieces[deep - 1]), way < 4 ? MF_MAP_COPIED : MF_MAP_CARVED);
        protect_all(pieces, (unsigned)deep, PROT_READ | PROT_EXEC, way % 2 ? 0 : EACCES);
        protect_all(pieces, (unsigned)deep, PROT_READ, 0);
        for (int i = 0; i < deep; i++)
            unmap_pages(pieces[i], 1);
    }
    close(forbidden), close(allowed);
    assert_int_equal(umount("./mounted"), 0);
}

/* There one device and inode stand for two files, before and after the copy is made. */
static void nothing_is_folded_on_overlayfs(void **state)
{
    (void)state;
    mount_or_skip("tmpfs", 0, NULL);
    mkdir("./mounted/lower", 0700), mkdir("./mounted/upper", 0700);
    mkdir("./mounted/work", 0700), mkdir("./mounted/over", 0700);
    close(file_fill(open("./mounted/lower/file", O_RDWR | O_CREAT, 0600), 4));
    if (mount("overlay", "./mounted/over", "overlay", 0,
              "lowerdir=./mounted/lower,upperdir=./mounted/upper,workdir=./mounted/work") != 0) {
        umount("./mounted");
        skip();
    }
    const int old = open("./mounted/over/file", O_RDONLY);
    char *before = map_pages(old, PROT_READ, MAP_SHARED, 0, 1);
    const int new = open("./mounted/over/file", O_RDWR);
    assert_int_equal(pwrite(new, "new", 3, 0), 3);
    const int again = open("./mounted/over/file", O_RDONLY);
    char *after = map_pages(again, PROT_READ, MAP_SHARED, 0, 1);
    assert_int_equal(kind_at(before), MF_MAP_PASSED);
    assert_int_equal(kind_at(after), MF_MAP_PASSED);
    assert_memory_equal(after, "new", 3);
    unmap_pages(before, 1);
    unmap_pages(after, 1);
    close(old), close(new), close(again);
    assert_int_equal(umount("./mounted/over"), 0);
    assert_int_equal(umount("./mounted"), 0);
}

static void pseudo_files_are_left_to_the_kernel(void **state)
{
    (void)state;
    const int fd = open("/proc/self/maps", O_RDONLY);
    assert_ptr_equal(mf_mmap(NULL, P, PROT_READ, MAP_PRIVATE, fd, 0), MAP_FAILED);
    assert_int_equal(errno, ENODEV);
    close(fd);
    const int zero = open("/dev/zero", O_RDWR);
    char *piece = map_pages(zero, RW, MAP_PRIVATE, 0, 1);
    assert_int_equal(piece[0], 0);
    unmap_pages(piece, 1);
    close(zero);
}

/* CASES 50 */
static void the_descriptor_is_not_touched(void **state)
{
    (void)state;
    char name[32];
    const int fd = named_file(name, 8);
    assert_int_equal(lseek(fd, 10, SEEK_SET), 10);
    errno = 77;
    char *piece = map_pages(fd, RW, MAP_SHARED, 0, 2);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 10);
    assert_int_equal(errno, 77);
    const int flags = fcntl(fd, F_GETFL);
    close(fd);
    char other[32];
    const int reused = named_file(other, 2);
    assert_int_equal(reused, fd);
    assert_int_equal(fcntl(reused, F_GETFL), flags);
    memcpy(piece, "changed", 7);
    assert_int_equal(mf_msync(piece, 2 * P, MS_SYNC), 0);
    unmap_pages(piece, 2);
    char bytes[7];
    assert_int_equal(pread(reused, bytes, 7, 0), 7);
    assert_memory_not_equal(bytes, "changed", 7);
    const int first = open(name, O_RDONLY);
    assert_int_equal(pread(first, bytes, 7, 0), 7);
    assert_memory_equal(bytes, "changed", 7);
    close(first), close(reused), unlink(name), unlink(other);
}

static void a_replaced_file_is_another_file(void **state)
{
    (void)state;
    char name[32], other[32];
    const int old = named_file(name, 4);
    char *before = map_pages(old, PROT_READ, MAP_SHARED, 0, 1);
    close(old);
    const int new = named_file(other, 0);
    assert_int_equal(pwrite(new, "other", 5, 0), 5);
    close(new);
    assert_int_equal(rename(other, name), 0);
    const int fd = open(name, O_RDWR);
    char *after = map_pages(fd, PROT_READ, MAP_SHARED, 0, 1);
    assert_true(page_is(before, 0));
    assert_memory_equal(after, "other", 5);
    unmap_pages(before, 1);
    unmap_pages(after, 1);
    close(fd), unlink(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posix_locks_stay_while_extents_come_and_go),
        cmocka_unit_test(a_piece_does_not_prolong_a_flock),
        cmocka_unit_test(a_leased_file_is_left_to_the_kernel),
        cmocka_unit_test(a_program_can_be_executed_once_its_last_piece_has_gone),
        cmocka_unit_test(a_memfd_can_be_sealed_once_its_last_piece_has_gone),
        cmocka_unit_test(pseudo_files_are_left_to_the_kernel),
        cmocka_unit_test(the_descriptor_is_not_touched),
        cmocka_unit_test(a_replaced_file_is_another_file),
        cmocka_unit_test(a_deleted_file_gives_its_blocks_back_with_its_last_piece),
        cmocka_unit_test(many_deleted_files_give_their_blocks_back_however_they_were_folded),
        cmocka_unit_test(what_a_mount_forbids_to_execute_does_not_become_executable),
        cmocka_unit_test(nothing_is_folded_on_overlayfs),
    };
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
