/* SPDX-License-Identifier: MIT */
/*
 * Each system call of the layer fails in turn, at each of its places: what a program maps is right or
 * refused, and when the failures end all goes on. The sources are built with MF_SYS_INJECT for it.
 */
#include <sys/syscall.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE, DEEP = 12, NEVER = -1 };

long mf_sys_inject(long number);

static long target = NEVER;
static int countdown, error;
static bool again, reached; /* again: every later call fails, too */

long mf_sys_inject(long number)
{
    if (number != target || countdown < 0)
        return 0;
    if (countdown > 0) {
        countdown--;
        return 0;
    }
    reached = true;
    if (!again)
        countdown = -1;
    return -error;
}

/* A piece that is right, or none. */
static char *map_or_not(int fd, int protection, int flags, unsigned page, unsigned pages)
{
    char *piece = mf_mmap(NULL, (size_t)pages * P, protection, flags, fd, (off_t)page * P);
    if (piece == MAP_FAILED)
        return NULL;
    for (unsigned i = 0; i < pages; i++)
        if (!page_is(piece + i * P, page + i))
            _exit(10);
    return piece;
}

static void unmap_or_not(char *piece, unsigned pages)
{
    if (piece != NULL && mf_munmap(piece, (size_t)pages * P) != 0 && errno == EINVAL)
        _exit(11);
}

/* A bit of everything; ends the process if a byte is wrong. */
static void program(int fd)
{
    char *pieces[DEEP];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < DEEP; i++) {
            pieces[i] = map_or_not(fd, i % 3 ? RW : PROT_READ, MAP_PRIVATE, 1, 2);
            if (pieces[i] != NULL && i % 3)
                pieces[i][P] = (char)i;
        }
        char *shared = map_or_not(fd, RW, MAP_SHARED, 4, 3);
        if (shared != NULL) {
            mf_mprotect(shared + P, P, PROT_READ);
            mf_madvise(shared, P, MADV_RANDOM);
            mf_mlock(shared, 3 * P);
            mf_msync(shared, 3 * P, MS_ASYNC);
            unmap_or_not(shared + P, 1);
        }
        for (int i = 0; i < DEEP; i++)
            if (pieces[i] != NULL && i % 3 && pieces[i][P] != (char)i)
                _exit(12);
        if (pieces[1] != NULL) {
            mf_madvise(pieces[1], 2 * P, MADV_DONTNEED);
            char *grown = mf_mremap(pieces[1], 2 * P, 4 * P, MREMAP_MAYMOVE, NULL);
            unmap_or_not(grown != MAP_FAILED ? grown : pieces[1], grown != MAP_FAILED ? 4 : 2);
        }
        if (shared != NULL)
            mf_mmap(shared, P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int i = 0; i < DEEP; i++)
            if (i != 1)
                unmap_or_not(pieces[i], 2);
        unmap_or_not(shared, 3);
    }
}

/* In a child: the program while calls fail, and once more when they have ceased to. */
static bool survives(long number, int at, bool for_good, int with)
{
    const pid_t child = fork();
    if (child == 0) {
        const int fd = file_make(16);
        target = number;
        countdown = at;
        error = with;
        again = for_good;
        program(fd);
        const bool was_reached = reached;
        target = NEVER;
        again = false;
        program(fd);
        _exit(was_reached ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
        fail_msg("system call %ld failing at %d%s with %d: status %#x", number, at,
                 for_good ? " and on" : "", with, (unsigned)status);
    return WEXITSTATUS(status) == 0;
}

static void each_failing_system_call_is_survived(void **state)
{
    (void)state;
    static const struct {
        long number;
        int with;
    } calls[] = {
        {SYS_mmap, ENOMEM},          {SYS_munmap, ENOMEM},      {SYS_mprotect, ENOMEM},
        {SYS_madvise, EAGAIN},       {SYS_clone, EPERM},        {SYS_openat, EMFILE},
        {SYS_openat, EACCES},        {SYS_statx, ENOSYS},       {SYS_fcntl, EPERM},
        {SYS_fstatfs, EACCES},       {SYS_pread64, EIO},        {SYS_pwrite64, EIO},
        {SYS_ioctl, ENOTTY},         {SYS_process_madvise, 38}, {SYS_process_vm_readv, EPERM},
        {SYS_mremap, ENOMEM},        {SYS_readlinkat, ENOENT},  {SYS_prlimit64, EPERM},
        {SYS_rt_sigprocmask, EPERM}, {SYS_wait4, ECHILD},       {SYS_munlock, ENOMEM},
        {SYS_sysinfo, EPERM},        {SYS_mincore, EAGAIN},
    };
    for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        for (int at = 0; at < 8 && survives(calls[i].number, at, false, calls[i].with); at++)
            ;
        survives(calls[i].number, 0, true, calls[i].with);
        survives(calls[i].number, 3, true, calls[i].with);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failing_system_call_is_survived)};
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
