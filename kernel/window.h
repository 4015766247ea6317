/* SPDX-License-Identifier: MIT */
/*
 * window: the part of the address space that the kmap pool hands out, a page a slot. Whichever pool
 * runs, its slots' entries are here, and only it writes them.
 */
#ifndef MF_KERNEL_WINDOW_H
#define MF_KERNEL_WINDOW_H

#include "kernel/cpu.h"
#include "kernel/memory.h"
#include "kernel/round.h"

extern uint64_t *window_entries; /* SLOTS_MAX, of which as many are used as there are slots */

static inline uintptr_t window_address(uint32_t slot)
{
    return WINDOW + ((uintptr_t)slot << PAGE_SHIFT);
}

static inline uint32_t window_slot(uintptr_t address)
{
    return (address - WINDOW) >> PAGE_SHIFT;
}

/* Before an entry is written again that was cleared at that time: has everybody flushed it? */
static inline void window_check_flushed(uint32_t slot, bool used, uint32_t cleared)
{
    if (used && !round_all_flushed(slot, cleared))
        this_cpu()->counts.stale++;
}

#endif
