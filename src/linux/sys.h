/* SPDX-License-Identifier: MIT */
/*
 * Raw system calls: they return a negative errno, touch no errno of their own, take no lock and are
 * no cancellation point, so they serve inside an interposed mmap, in a signal handler and in a
 * child that shares its parent's memory. Rule: nothing in the mapping layer calls the kernel by
 * another way.
 *
 * A test build with MF_SYS_INJECT asks mf_sys_inject(number) before each call and takes what it
 * returns, if that is not 0, for the kernel's answer.
 */
#ifndef MF_LINUX_SYS_H
#define MF_LINUX_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#ifdef MF_SYS_INJECT
long mf_sys_inject(long number);
#endif

#if defined(__x86_64__)
static inline long sys_raw(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long sys_raw(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "mapfold knows the system call instruction of x86-64 and aarch64 only"
#endif

static inline long sys_call(long number, long a, long b, long c, long d, long e, long f)
{
#ifdef MF_SYS_INJECT
    const long injected = mf_sys_inject(number);
    if (injected != 0)
        return injected;
#endif
    return sys_raw(number, a, b, c, d, e, f);
}

/* A result of the kernel that is an error: the last page of the address space. */
static inline int sys_failed(long result)
{
    return (unsigned long)result >= (unsigned long)-4095;
}

static inline long sys_mmap(uintptr_t address, size_t length, int protection, int flags, int fd,
                            uint64_t offset)
{
    return sys_call(SYS_mmap, (long)address, (long)length, protection, flags, fd, (long)offset);
}

static inline long sys_munmap(uintptr_t address, size_t length)
{
    return sys_call(SYS_munmap, (long)address, (long)length, 0, 0, 0, 0);
}

static inline long sys_mprotect(uintptr_t address, size_t length, int protection)
{
    return sys_call(SYS_mprotect, (long)address, (long)length, protection, 0, 0, 0);
}

static inline long sys_mremap(uintptr_t old_address, size_t old_length, size_t new_length,
                              int flags, uintptr_t new_address)
{
    return sys_call(SYS_mremap, (long)old_address, (long)old_length, (long)new_length, flags,
                    (long)new_address, 0);
}

static inline long sys_madvise(uintptr_t address, size_t length, int advice)
{
    return sys_call(SYS_madvise, (long)address, (long)length, advice, 0, 0, 0);
}

static inline long sys_close(int fd)
{
    return sys_call(SYS_close, fd, 0, 0, 0, 0, 0);
}

static inline long sys_openat(int directory, const char *path, int flags)
{
    return sys_call(SYS_openat, directory, (long)path, flags, 0, 0, 0);
}

static inline long sys_read(int fd, void *buffer, size_t length)
{
    return sys_call(SYS_read, fd, (long)buffer, (long)length, 0, 0, 0);
}

static inline long sys_write(int fd, const void *buffer, size_t length)
{
    return sys_call(SYS_write, fd, (long)buffer, (long)length, 0, 0, 0);
}

static inline long sys_pread(int fd, void *buffer, size_t length, uint64_t offset)
{
    return sys_call(SYS_pread64, fd, (long)buffer, (long)length, (long)offset, 0, 0);
}

static inline long sys_pwrite(int fd, const void *buffer, size_t length, uint64_t offset)
{
    return sys_call(SYS_pwrite64, fd, (long)buffer, (long)length, (long)offset, 0, 0);
}

static inline long sys_fcntl(int fd, int command, long argument)
{
    return sys_call(SYS_fcntl, fd, command, argument, 0, 0, 0);
}

static inline long sys_statx(int fd, const char *path, int flags, unsigned mask, void *result)
{
    return sys_call(SYS_statx, fd, (long)path, flags, mask, (long)result, 0);
}

#endif
