/* SPDX-License-Identifier: MIT */
/*
 * The drop-in: libc's names of the mapping calls, over the mapping layer. `mapfold run` puts this
 * library in LD_PRELOAD and its options in MAPFOLD_OPTIONS; a program inherits both to those it
 * executes.
 *
 * The calls work before this library's constructor has run, and need nothing of it: until then the
 * layer has its defaults. The constructor reads the options, and the destructor prints what was
 * counted, if it is asked to.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include <mapfold/mmap.h>

#include "preload/options.h"

#ifdef __USE_FILE_OFFSET64
#error "with 64-bit offsets by macro, mmap and mmap64 would be one name here"
#endif

/* libc's headers name the parameters otherwise. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

MF_PUBLIC void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mf_mmap(address, length, protection, flags, fd, offset);
}

MF_PUBLIC void *mmap64(void *address, size_t length, int protection, int flags, int fd,
                       off64_t offset)
{
    return mf_mmap(address, length, protection, flags, fd, offset);
}

MF_PUBLIC int munmap(void *address, size_t length)
{
    return mf_munmap(address, length);
}

MF_PUBLIC int mprotect(void *address, size_t length, int protection)
{
    return mf_mprotect(address, length, protection);
}

MF_PUBLIC int pkey_mprotect(void *address, size_t length, int protection, int key)
{
    return mf_pkey_mprotect(address, length, protection, key);
}

MF_PUBLIC void *mremap(void *address, size_t old_length, size_t new_length, int flags, ...)
{
    void *new_address = NULL;
    if (flags & ~MREMAP_MAYMOVE) {
        va_list more;
        va_start(more, flags);
        new_address = va_arg(more, void *);
        va_end(more);
    }
    return mf_mremap(address, old_length, new_length, flags, new_address);
}

MF_PUBLIC int madvise(void *address, size_t length, int advice)
{
    return mf_madvise(address, length, advice);
}

/* An error is the result, and errno stays; DONTNEED would lose data that POSIX wants kept. */
MF_PUBLIC int posix_madvise(void *address, size_t length, int advice)
{
    if (advice == POSIX_MADV_DONTNEED)
        return 0;
    const int saved = errno;
    const int result = mf_madvise(address, length, advice) == 0 ? 0 : errno;
    errno = saved;
    return result;
}

MF_PUBLIC int msync(void *address, size_t length, int flags)
{
    return mf_msync(address, length, flags);
}

MF_PUBLIC int mincore(void *address, size_t length, unsigned char *vector)
{
    return mf_mincore(address, length, vector);
}

MF_PUBLIC int mlock(const void *address, size_t length)
{
    return mf_mlock(address, length);
}

MF_PUBLIC int mlock2(const void *address, size_t length, unsigned flags)
{
    return mf_mlock2(address, length, flags);
}

MF_PUBLIC int munlock(const void *address, size_t length)
{
    return mf_munlock(address, length);
}

MF_PUBLIC int mlockall(int flags)
{
    return mf_mlockall(flags);
}

MF_PUBLIC int munlockall(void)
{
    return mf_munlockall();
}

MF_PUBLIC void *shmat(int segment, const void *address, int flags)
{
    return mf_shmat(segment, address, flags);
}

MF_PUBLIC int remap_file_pages(void *address, size_t length, int protection, size_t page, int flags)
{
    return mf_remap_file_pages(address, length, protection, page, flags);
}

__attribute__((constructor)) static void preload_begin(int argc, char **argv, char **environment)
{
    options_read(argc > 0 ? argv[0] : "", environment);
}

__attribute__((destructor)) static void preload_end(void)
{
    options_report();
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
