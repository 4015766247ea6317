/* SPDX-License-Identifier: MIT */
/*
 * Anonymous memory for metadata, straight from the kernel: usable where malloc is not (inside an
 * interposed mmap, in a signal handler), and on huge pages from 2 MiB up, since a tree of a million
 * areas is read at random and would otherwise miss the TLB at each step.
 */
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <mapfold/base.h>

#include "linux/sys.h"

enum { HUGE = 2 << 20 };

static void *system_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    const size_t page = getauxval(AT_PAGESZ);
    size = (size + page - 1) & ~(page - 1);
    if (size >= HUGE && align < HUGE)
        align = HUGE;
    const size_t slack = align > page ? align - page : 0;
    if (size + slack < size)
        return NULL;
    const long raw =
        sys_mmap(0, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sys_failed(raw))
        return NULL;
    const uintptr_t start = (uintptr_t)raw;
    const uintptr_t memory = (start + align - 1) & ~(uintptr_t)(align - 1);
    if (memory != start)
        sys_munmap(start, memory - start);
    if (start + slack != memory)
        sys_munmap(memory + size, start + slack - memory);
    if (size >= HUGE)
        sys_madvise(memory, size, MADV_HUGEPAGE);
    return (void *)memory;
}

static void system_free(void *context, void *memory, size_t size)
{
    (void)context;
    const size_t page = getauxval(AT_PAGESZ);
    sys_munmap((uintptr_t)memory, (size + page - 1) & ~(page - 1));
}

const struct mf_alloc *mf_alloc_system(void)
{
    static const struct mf_alloc system_allocator = {system_alloc, system_free, NULL};
    return &system_allocator;
}
