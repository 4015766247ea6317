/* SPDX-License-Identifier: MIT */
/*
 * paging: the kernel's one address space, three levels of PAE tables.
 *
 *  - All pages are of 4 KiB, the direct map's too: no large page lies near the windows, whose
 *    invalidation could take more with it than it names, and dirty bits tell single pages.
 *  - Entries have A and D set from the start where pages are mapped and unmapped often
 *    (entry_make), so that the processor's walk writes nothing to them: a hit shall write no shared
 *    line, and an entry in a page table is one.
 *  - None is global: reloading CR3 flushes all.
 *  - Who changes an entry that was present sees to the flushing (round.h). Not present to present
 *    needs none.
 */
#ifndef MF_KERNEL_PAGING_H
#define MF_KERNEL_PAGING_H

#include "kernel/memory.h"

enum {
    ENTRY_PRESENT = 1 << 0,
    ENTRY_WRITE = 1 << 1,
    ENTRY_UNCACHED = 3 << 3,
    ENTRY_ACCESSED = 1 << 5,
    ENTRY_DIRTY = 1 << 6,
    ENTRY_COMING = 1 << 9, /* not present: a thread is bringing the page in (user.c) */
};

/* Builds the tables and goes over to them: processor 0 once; the others only go over. */
void paging_start(void);
void paging_enter(void);

/* The entries for this many pages from address (a multiple of 2 MiB) on, zeroed, as one array. */
uint64_t *paging_reserve(uintptr_t address, uint32_t pages);

/* The entry of a page of lowmem in the direct map. */
uint64_t *paging_direct_entry(uintptr_t physical);

static inline uint64_t entry_make(uint32_t frame)
{
    return (uint64_t)frame << PAGE_SHIFT | ENTRY_PRESENT | ENTRY_WRITE | ENTRY_ACCESSED |
           ENTRY_DIRTY;
}

/* The half with the present bit comes last when an entry begins and first when it ends: a walk
 * in between finds it not present, never half of one page and half of another. */
static inline void entry_set(uint64_t *entry, uint64_t value)
{
    volatile uint32_t *half = (volatile uint32_t *)entry;
    half[1] = (uint32_t)(value >> 32);
    half[0] = (uint32_t)value;
}

static inline void entry_clear(uint64_t *entry)
{
    volatile uint32_t *half = (volatile uint32_t *)entry;
    half[0] = 0;
    half[1] = 0;
}

static inline void flush_page(uintptr_t address)
{
    __asm__ volatile("invlpg (%0)" ::"r"(address) : "memory");
}

static inline void flush_all(void)
{
    uint32_t tables;
    __asm__ volatile("movl %%cr3, %0\n\tmovl %0, %%cr3" : "=r"(tables)::"memory");
}

#endif
