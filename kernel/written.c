/* SPDX-License-Identifier: MIT */
/*
 * A processor keeps an entry's dirty bit in its TLB once it is set. So after the bits are cleared
 * the TLB is flushed, and the next write to a page sets its bit anew.
 */
#include "kernel/written.h"
#include "kernel/console.h"
#include "kernel/cpu.h"
#include "kernel/paging.h"

static uint32_t *writers; /* for each page the processors that wrote it, a bit each */
static uint32_t pages;
enum { MAP_BYTES = 1 << 20 };

void written_start(void)
{
    if (!writers)
        writers = lowmem_alloc(MAP_BYTES);
    pages = lowmem_top() >> PAGE_SHIFT;
    if (!writers || pages * sizeof(*writers) > MAP_BYTES)
        panic("too much lowmem in use to tell who writes it");
    __builtin_memset(writers, 0, MAP_BYTES);
}

void written_begin(void)
{
    volatile uint32_t *entry = (volatile uint32_t *)paging_direct_entry(0);
    for (uint32_t i = 0; i < pages; i++)
        entry[2 * i] &= ~(uint32_t)ENTRY_DIRTY;
    flush_all();
}

void written_end(void)
{
    const volatile uint32_t *entry = (const volatile uint32_t *)paging_direct_entry(0);
    const uint32_t own = 1u << this_cpu()->number;
    for (uint32_t i = 0; i < pages; i++)
        if (entry[2 * i] & ENTRY_DIRTY)
            writers[i] |= own;
}

/* The table of writers and the direct map's entries are written by this file alone. */
static bool is_ours(uint32_t frame)
{
    const uint32_t table = physical(writers) >> PAGE_SHIFT;
    const uint32_t map = physical(paging_direct_entry(0)) >> PAGE_SHIFT;
    const uint32_t map_pages = (LOWMEM_MAX >> PAGE_SHIFT) * sizeof(uint64_t) >> PAGE_SHIFT;
    return frame - table < MAP_BYTES >> PAGE_SHIFT || frame - map < map_pages;
}

struct written written_result(void)
{
    struct written result = {0, 0};
    for (uint32_t i = 0; i < pages; i++)
        if (!is_ours(i)) {
            result.pages += writers[i] != 0;
            result.shared += (writers[i] & (writers[i] - 1)) != 0;
        }
    return result;
}
