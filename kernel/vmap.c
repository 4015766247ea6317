/* SPDX-License-Identifier: MIT */
/*
 * An area leaves the space last: after its entries are cleared and flushed everywhere, since then
 * another may be placed there.
 */
#include <mapfold/space.h>

#include "kernel/console.h"
#include "kernel/lock.h"
#include "kernel/paging.h"
#include "kernel/round.h"
#include "kernel/vmap.h"

static struct spin lock; /* of the space */
static struct mf_space *areas;
static uint64_t *entries;

void vmap_start(void)
{
    if (areas)
        return;
    entries = paging_reserve(VMAP, (VMAP_END - VMAP) >> PAGE_SHIFT);
    if (mf_space_create(VMAP, VMAP_END - 1, PAGE, &memory_alloc, &areas))
        panic("no memory for areas");
}

void *vmap(uint32_t highmem, uint32_t count)
{
    const struct mf_fit fit = {.length = (uint64_t)(count + 1) << PAGE_SHIFT,
                               .align = PAGE,
                               .last = UINT64_MAX,
                               .policy = MF_FIT_LOWEST};
    struct mf_area area;
    spin_lock(&lock);
    const int err = mf_space_place(areas, &fit, 0, 0, &area);
    spin_unlock(&lock);
    if (err)
        return NULL;
    uint64_t *entry = &entries[((uintptr_t)area.start - VMAP) >> PAGE_SHIFT];
    for (uint32_t i = 0; i < count; i++)
        entry_set(&entry[i], entry_make(page_frame(highmem_page(highmem + i))));
    return (void *)(uintptr_t)area.start;
}

void vunmap(void *at)
{
    struct mf_area area;
    spin_lock(&lock);
    const int err = mf_space_find(areas, (uintptr_t)at, &area);
    spin_unlock(&lock);
    if (err || area.start != (uintptr_t)at)
        panic("vunmap of %x, where no area begins", (unsigned)at);
    const uint32_t count = (uint32_t)(area.length >> PAGE_SHIFT) - 1;
    uint64_t *entry = &entries[((uintptr_t)at - VMAP) >> PAGE_SHIFT];
    for (uint32_t i = 0; i < count; i++)
        entry_clear(&entry[i]);
    round_flush((uintptr_t)at, NULL, count);
    spin_lock(&lock);
    mf_space_remove(areas, area.start, area.length);
    spin_unlock(&lock);
}
