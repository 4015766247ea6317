/* SPDX-License-Identifier: MIT */
/*
 * The four directories stand together, so that they are one array by address >> 21. Everything is
 * mapped at the start or reserved: afterwards only the lowest level changes.
 */
#include "kernel/paging.h"
#include "kernel/console.h"

enum { TABLE_PAGES = 512, TABLE_SHIFT = 21 };

static uint64_t directories[4 * 512] __attribute__((aligned(4096)));
static uint64_t pointers[4] __attribute__((aligned(32)));
static uint64_t *direct_entries;

uint64_t *paging_reserve(uintptr_t address, uint32_t pages)
{
    const uint32_t tables = (pages + TABLE_PAGES - 1) / TABLE_PAGES;
    size_t bytes = PAGE;
    while (bytes < tables * PAGE)
        bytes *= 2;
    char *entries = lowmem_zeroed(bytes);
    if (!entries)
        panic("no memory for page tables");
    for (uint32_t i = 0; i < tables; i++)
        directories[(address >> TABLE_SHIFT) + i] =
            physical(entries + i * PAGE) | ENTRY_PRESENT | ENTRY_WRITE;
    return (uint64_t *)entries;
}

uint64_t *paging_direct_entry(uintptr_t physical)
{
    return &direct_entries[physical >> PAGE_SHIFT];
}

void paging_start(void)
{
    direct_entries = paging_reserve(DIRECT, LOWMEM_MAX >> PAGE_SHIFT);
    for (uint32_t frame = 0; frame < LOWMEM_MAX >> PAGE_SHIFT; frame++)
        direct_entries[frame] = entry_make(frame);
    uint64_t *apic = paging_reserve(APIC_PAGE & ~(BLOCK - 1), TABLE_PAGES);
    apic[APIC_PAGE >> PAGE_SHIFT & (TABLE_PAGES - 1)] =
        entry_make(APIC_PAGE >> PAGE_SHIFT) | ENTRY_UNCACHED;
    for (unsigned i = 0; i < 4; i++)
        pointers[i] = physical(directories + i * (size_t)512) | ENTRY_PRESENT;
    paging_enter();
}

void paging_enter(void)
{
    __asm__ volatile("movl %0, %%cr3" ::"r"(physical(pointers)) : "memory");
}
