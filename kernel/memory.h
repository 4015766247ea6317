/* SPDX-License-Identifier: MIT */
/*
 * memory: what there is, and who has it.
 *
 * Lowmem is the first LOWMEM_MAX bytes: always mapped, at DIRECT + physical address. It is given
 * out in powers of two from a page to 2 MiB. Highmem is all other memory, mostly above 4 GiB: it
 * can be reached only through a mapping. Its pages are given out by number, 0 to highmem_pages() -
 * 1, by whoever plans a workload.
 *
 * Lock: its own, a spin lock; nothing here sleeps.
 */
#ifndef MF_KERNEL_MEMORY_H
#define MF_KERNEL_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mapfold/base.h>

#include "kernel/layout.h"

enum { PAGE = 4096, PAGE_SHIFT = 12, BLOCK = 2 << 20 };

/* One for each page frame; its number is its place in the array. */
struct page {
    _Atomic uintptr_t virtual; /* where the kmap pool has it, or had it last */
};

/* Reads the map of memory that the boot loader gives. */
void memory_start(uint32_t multiboot);

/* size: a power of two from PAGE to BLOCK; aligned to it; contents are anything. NULL: none. */
void *lowmem_alloc(size_t size);
void *lowmem_zeroed(size_t size);
void lowmem_free(void *memory, size_t size);

/* The same for spaces. */
extern const struct mf_alloc memory_alloc;

/* Bytes of lowmem that have ever been given out, counted from the start of memory. */
size_t lowmem_top(void);

uint32_t highmem_pages(void);
struct page *highmem_page(uint32_t number);

uint32_t page_frame(const struct page *page);
bool page_is_high(const struct page *page);

static inline void *direct(uintptr_t physical)
{
    return (void *)(physical + DIRECT);
}

static inline uintptr_t physical(const void *lowmem)
{
    return (uintptr_t)lowmem - DIRECT;
}

#endif
