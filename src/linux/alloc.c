/* SPDX-License-Identifier: MIT */
/*
 * Anonymous memory for metadata, straight from the kernel: usable where malloc is not (inside an
 * interposed mmap, in a signal handler), and on huge pages from 2 MiB up, since a tree of a million
 * areas is read at random and would otherwise miss the TLB at each step.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mapfold/base.h>

enum { HUGE = 2 << 20 };

static void *system_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    const int saved = errno;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size = (size + page - 1) & ~(page - 1);
    if (size >= HUGE && align < HUGE)
        align = HUGE;
    const size_t slack = align > page ? align - page : 0;
    char *raw = size + slack < size ? MAP_FAILED
                                    : mmap(NULL, size + slack, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        errno = saved;
        return NULL;
    }
    char *memory = (char *)(((uintptr_t)raw + align - 1) & ~(uintptr_t)(align - 1));
    if (memory != raw)
        munmap(raw, (size_t)(memory - raw));
    if (raw + slack != memory)
        munmap(memory + size, (size_t)(raw + slack - memory));
    if (size >= HUGE)
        madvise(memory, size, MADV_HUGEPAGE);
    errno = saved;
    return memory;
}

static void system_free(void *context, void *memory, size_t size)
{
    (void)context;
    const int saved = errno;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(memory, (size + page - 1) & ~(page - 1));
    errno = saved;
}

const struct mf_alloc *mf_alloc_system(void)
{
    static const struct mf_alloc system_allocator = {system_alloc, system_free, NULL};
    return &system_allocator;
}
