/* SPDX-License-Identifier: MIT */
/*
 * The system calls that the window layer can do without, or must survive the loss of, each behind
 * a name of its own. A test build (MF_INJECT) asks before each whether it shall fail; the function
 * that answers is the test's.
 */
#ifndef MF_LINUX_SYSTEM_H
#define MF_LINUX_SYSTEM_H

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Younger than some headers. */
enum {
    HANDLE_MOUNT_UNIQUE = 1,     /* AT_HANDLE_MNT_ID_UNIQUE, Linux 6.12 */
    STATX_MOUNT_UNIQUE = 0x4000, /* STATX_MNT_ID_UNIQUE, 6.8 */
};

enum system_call {
    SYSTEM_MMAP,
    SYSTEM_MUNMAP,
    SYSTEM_MADVISE,
    SYSTEM_MEMBARRIER,
    SYSTEM_OPEN,
    SYSTEM_PREAD,
    SYSTEM_FSTAT,
    SYSTEM_HANDLE,
    SYSTEM_CLOSE_RANGE,
    SYSTEM_CALLS,
};

#ifdef MF_INJECT
/* The errno to fail with, or 0. */
int system_inject(enum system_call call);
/* Bytes that a read gives at most. */
size_t system_read_at_most(void);
#else
static inline int system_inject(enum system_call call)
{
    (void)call;
    return 0;
}

static inline size_t system_read_at_most(void)
{
    return SIZE_MAX;
}
#endif

static inline bool system_fails(enum system_call call)
{
    const int err = system_inject(call);
    if (err)
        errno = err;
    return err != 0;
}

static inline void *system_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    return system_fails(SYSTEM_MMAP) ? MAP_FAILED : mmap(at, length, prot, flags, fd, offset);
}

static inline int system_munmap(void *at, size_t length)
{
    return system_fails(SYSTEM_MUNMAP) ? -1 : munmap(at, length);
}

static inline int system_madvise(void *at, size_t length, int advice)
{
    return system_fails(SYSTEM_MADVISE) ? -1 : madvise(at, length, advice);
}

static inline ssize_t system_process_madvise(int pidfd, const struct iovec *ranges, size_t count,
                                             int advice)
{
    if (system_fails(SYSTEM_MADVISE))
        return -1;
    return syscall(SYS_process_madvise, pidfd, ranges, count, advice, 0);
}

static inline int system_membarrier(int command)
{
    return system_fails(SYSTEM_MEMBARRIER) ? -1 : (int)syscall(SYS_membarrier, command, 0, 0);
}

static inline int system_open(const char *path, int flags)
{
    return system_fails(SYSTEM_OPEN) ? -1 : open(path, flags | O_CLOEXEC);
}

static inline ssize_t system_pread(int fd, void *to, size_t length, off_t offset)
{
    const size_t most = system_read_at_most();
    return system_fails(SYSTEM_PREAD) ? -1 : pread(fd, to, length < most ? length : most, offset);
}

/* Descriptors first to last, all of them. */
static inline int system_close_range(int first, int last)
{
    return system_fails(SYSTEM_CLOSE_RANGE) ? -1 : (int)syscall(SYS_close_range, first, last, 0);
}

/* Of a descriptor, or of what a path leads to (then fd is AT_FDCWD). With HANDLE_MOUNT_UNIQUE mount
 * is of 64 bits. */
static inline int system_handle(int fd, const char *path, struct file_handle *handle, int *mount,
                                int flags)
{
    flags |= path ? AT_SYMLINK_FOLLOW : AT_EMPTY_PATH;
    return system_fails(SYSTEM_HANDLE)
               ? -1
               : name_to_handle_at(fd, path ? path : "", handle, mount, flags);
}

static inline int system_fstat(int fd, struct stat *st)
{
    return system_fails(SYSTEM_FSTAT) ? -1 : fstat(fd, st);
}

#endif
