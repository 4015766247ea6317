/* SPDX-License-Identifier: MIT */
/*
 * Memory for the layer's tables, out of a region that is reserved ahead, in calls that may map
 * anything.
 *
 * It must not come from the kernel piece by piece: the kernel would put a piece into the hole that
 * the program has just made, in a call that has no business to map anything, and a program may
 * rightly expect that hole to be there for its next MAP_FIXED. So memory_prepare, which every mmap
 * of a file calls first, keeps the region at least half free; the next one is twice as large.
 *
 * Sizes are powers of two; what is given back stands in a list of its size. A region is
 * reserved without access and opened as it is used up, so that it counts for nothing until then.
 * Needs the lock of layer_lock.h.
 */
#include <sys/mman.h>
#include <sys/resource.h>

#include "linux/layer.h"

#define REGION (UINT64_C(64) << 20)      /* the first one */
#define SMALL_REGION (UINT64_C(1) << 20) /* where the address space is limited */
enum { STEP = 256 << 10, HUGE = 2 << 20, MIN_SHIFT = 12, SIZES = 40 };

struct free_block {
    struct free_block *next;
};

static uintptr_t region_end, opened, taken;
static uint64_t region_length;
static size_t refused; /* the size for which there was no room */
static struct free_block *blocks[SIZES];

/* The rest of the old region is given up: at most half of it, and never opened. */
void memory_prepare(void)
{
    if (refused == 0 && region_end - taken > region_length / 2)
        return;
    struct rlimit64 limit = {.rlim_cur = 0};
    sys_call(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0);
    uint64_t length = region_length != 0 ? region_length * 2 : REGION;
    if (limit.rlim_cur != RLIM64_INFINITY || address_space_left() / 16 < length)
        length = SMALL_REGION;
    while (length < refused * 4)
        length *= 2;
    const long start =
        sys_mmap(0, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sys_failed(start))
        return;
    opened = taken = (uintptr_t)start;
    region_end = opened + length;
    region_length = length;
    refused = 0;
}

static unsigned size_index(size_t size)
{
    unsigned index = MIN_SHIFT;
    while (((size_t)1 << index) < size)
        index++;
    return index;
}

static void *memory_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    const unsigned index = size_index(size);
    if (index >= SIZES)
        return NULL;
    if (blocks[index] != NULL) {
        void *memory = blocks[index];
        blocks[index] = blocks[index]->next;
        return memory;
    }
    size = (size_t)1 << index;
    const size_t natural = size < HUGE ? size : HUGE;
    align = align > natural ? align : natural;
    const uintptr_t start = (taken + align - 1) & ~(uintptr_t)(align - 1), end = start + size;
    if (end < start || end > region_end) {
        refused = size;
        return NULL;
    }
    if (end > opened) {
        uintptr_t until = (end + STEP - 1) & ~(uintptr_t)(STEP - 1);
        until = until < region_end ? until : region_end;
        if (sys_failed(sys_mprotect(opened, until - opened, PROT_READ | PROT_WRITE)))
            return NULL;
        opened = until;
    }
    if (size >= HUGE)
        sys_madvise(start, size, MADV_HUGEPAGE);
    taken = end;
    return (void *)start;
}

/* Large blocks give their pages back at once. */
static void memory_free(void *context, void *memory, size_t size)
{
    (void)context;
    const unsigned index = size_index(size);
    if (index >= 16)
        sys_madvise((uintptr_t)memory, (size_t)1 << index, MADV_DONTNEED);
    struct free_block *block = memory;
    block->next = blocks[index];
    blocks[index] = block;
}

const struct mf_alloc *layer_memory(void)
{
    static const struct mf_alloc allocator = {memory_alloc, memory_free, NULL};
    return &allocator;
}
