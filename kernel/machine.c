/* SPDX-License-Identifier: MIT */
/* The machine's functions that are not a few instructions: what a port to another kernel writes. */
#include "core/pool.h"

#include "kernel/paging.h"
#include "kernel/round.h"
#include "kernel/window.h"

bool machine_fences;
uint32_t machine_inject;

bool machine_barrier_heavy(void)
{
    if (machine_fences)
        machine_fence();
    else
        round_barrier();
    return true;
}

/* The counters of a processor lie in pages of its own. The caller has given its own block. */
void *machine_chunk(struct pool *pool, size_t bytes)
{
    (void)pool;
    struct cpu *cpu = this_cpu();
    if (cpu->chunk_left < bytes) {
        char *page = lowmem_zeroed(PAGE);
        if (!page)
            return NULL;
        cpu->chunk = page;
        cpu->chunk_left = PAGE;
    }
    char *chunk = cpu->chunk;
    cpu->chunk += bytes;
    cpu->chunk_left -= (uint32_t)bytes;
    return chunk;
}

static void set_present(struct pool *pool, uint32_t slot)
{
    struct machine_slot *machine = &pool->slots[slot].machine;
    window_check_flushed(slot, machine->used, machine->cleared);
    entry_set(&window_entries[slot], entry_make(machine->frame));
    machine->present = machine->used = true;
}

int machine_install(struct pool *pool, uint32_t slot, void *request)
{
    static _Atomic uint32_t installs;
    if (machine_inject &&
        atomic_fetch_add_explicit(&installs, 1, memory_order_relaxed) % machine_inject == 0)
        return -MF_ENOMEM;
    struct page *page = request;
    pool->slots[slot].machine.frame = page_frame(page);
    set_present(pool, slot);
    /* For kunmap. relaxed: only who has the page pinned reads it, after the pin. */
    atomic_store_explicit(&page->virtual, window_address(slot), memory_order_relaxed);
    return 0;
}

void machine_restore(struct pool *pool, uint32_t slot)
{
    set_present(pool, slot);
}

static void set_absent(struct pool *pool, uint32_t slot)
{
    struct machine_slot *machine = &pool->slots[slot].machine;
    entry_clear(&window_entries[slot]);
    machine->present = false;
    machine->cleared = round_begun();
}

void machine_drop(struct pool *pool, const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        set_absent(pool, slots[i]);
    round_flush(WINDOW, slots, count);
}

void machine_retire(struct pool *pool, uint32_t slot)
{
    if (!pool->slots[slot].machine.present)
        return;
    set_absent(pool, slot);
    round_flush(WINDOW, &slot, 1);
}
