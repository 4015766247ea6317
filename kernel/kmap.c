/* SPDX-License-Identifier: MIT */
/*
 * The key of a page is its frame number, which never means another page: so a slot is doomed only
 * for a page that goes away, which nobody has mapped, and a page keeps its slot as long as it is
 * pinned. That slot's address stands in struct page, written by whoever installs the translation;
 * so kunmap need not search.
 */
#include "core/pool.h"

#include "kernel/console.h"
#include "kernel/kmap.h"
#include "kernel/paging.h"
#include "kernel/pool2002.h"
#include "kernel/window.h"

uint64_t *window_entries;

static bool is_2002; /* constant after the start */
static struct pool pool;

/* Memory for the start: whole pages, zeroed. */
static void *need(size_t bytes)
{
    size_t size = PAGE;
    while (size < bytes)
        size *= 2;
    void *memory = lowmem_zeroed(size);
    if (!memory)
        panic("no memory for the pool");
    return memory;
}

static void start_core(const struct kmap_options *options)
{
    unsigned bits = 1;
    while (1u << bits < 2 * options->slots)
        bits++;
    const size_t buckets = sizeof(uint32_t) << bits;
    const struct pool_memory memory = {
        .slots = need(options->slots * sizeof(struct pool_slot)),
        .buckets = need(buckets),
        .batch = need(POOL_BATCH_ROOM(options->batch) * sizeof(uint32_t)),
        .common_counters = need(options->slots * sizeof(struct pool_counter)),
        .capacity = options->slots,
        .bucket_bits = bits,
        .batch_max = options->batch,
    };
    __builtin_memset((void *)memory.buckets, 0xff, buckets); /* POOL_NONE */
    machine_fences = options->fences;
    machine_inject = options->inject;
    pool_init(&pool, &memory);
    for (unsigned i = 0; i < cpu_count; i++) {
        cpus[i]->block = need(sizeof(struct pool_block));
        pool_block_add(&pool, cpus[i]->block);
    }
}

void kmap_start(const struct kmap_options *options)
{
    window_entries = paging_reserve(WINDOW, SLOTS_MAX);
    for (unsigned i = 0; i < cpu_count; i++)
        cpus[i]->slot_flushed = need(options->slots * sizeof(*cpus[i]->slot_flushed));
    is_2002 = options->pool2002;
    if (is_2002)
        pool2002_start(options->slots);
    else
        start_core(options);
}

static struct pool_key key_of(const struct page *page)
{
    return (struct pool_key){0, page_frame(page)};
}

void *kmap_until(struct page *page, uint64_t deadline)
{
    if (!page_is_high(page))
        return direct((uintptr_t)page_frame(page) << PAGE_SHIFT);
    if (is_2002)
        return pool2002_map(page);
    struct pool_block *block = this_cpu()->block;
    uint32_t slot;
    if (pool_pin(&pool, block, key_of(page), page, deadline, &slot))
        return NULL;
    pool_settle(block);
    return (void *)window_address(slot);
}

/* For ever: what comes back without a slot had an install fail (machine_inject), and tries again.
 */
void *kmap(struct page *page)
{
    void *address;
    while (!(address = kmap_until(page, UINT64_MAX)))
        thread_yield();
    return address;
}

void kunmap(struct page *page)
{
    if (!page_is_high(page))
        return;
    if (is_2002) {
        pool2002_unmap(page);
        return;
    }
    /* relaxed: written before the pin that ends here was made */
    const uintptr_t address = atomic_load_explicit(&page->virtual, memory_order_relaxed);
    pool_unpin(&pool, this_cpu()->block, window_slot(address));
}

void kmap_forget(struct page *page)
{
    const uintptr_t address = atomic_load_explicit(&page->virtual, memory_order_relaxed);
    if (is_2002 || !address)
        return;
    const uint32_t slot = window_slot(address);
    const struct pool_victim victim = {slot, pool_generation(&pool, slot)};
    if (pool_slot_holds(&pool.slots[slot], key_of(page)))
        pool_doom(&pool, &victim, 1);
}

bool kmap_is_mapped(struct page *page)
{
    const uintptr_t address = atomic_load_explicit(&page->virtual, memory_order_acquire);
    if (!address)
        return false;
    if (is_2002)
        return pool2002_is_mapped(page);
    const uint32_t slot = window_slot(address);
    return pool_slot_holds(&pool.slots[slot], key_of(page)) && pool_pinned(&pool, slot);
}

/* Local mappings. The section's number is odd while there is one: others may wait for its end. */

void *kmap_local(struct page *page)
{
    struct cpu *cpu = this_cpu();
    const uint32_t depth = cpu->local_depth++;
    if (depth == LOCAL_DEPTH)
        panic("local mappings nest too deep");
    if (depth == 0)
        atomic_store_explicit(&cpu->local_section,
                              atomic_load_explicit(&cpu->local_section, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    cpu->counts.local_maps++;
    entry_set(&cpu->local_entries[depth], entry_make(page_frame(page)));
    return (void *)(LOCAL + cpu->number * LOCAL_STRIDE + depth * PAGE);
}

void kunmap_local(void)
{
    struct cpu *cpu = this_cpu();
    const uint32_t depth = --cpu->local_depth;
    entry_clear(&cpu->local_entries[depth]);
    flush_page(LOCAL + cpu->number * LOCAL_STRIDE + depth * PAGE);
    cpu->counts.invalidations++;
    if (depth == 0)
        /* release: what was read through the mapping comes before; pairs with kmap_wait_local */
        atomic_store_explicit(&cpu->local_section,
                              atomic_load_explicit(&cpu->local_section, memory_order_relaxed) + 1,
                              memory_order_release);
}

void kmap_wait_local(void)
{
    for (unsigned i = 0; i < cpu_count; i++) {
        const uint32_t section =
            atomic_load_explicit(&cpus[i]->local_section, memory_order_acquire);
        while (section & 1 &&
               atomic_load_explicit(&cpus[i]->local_section, memory_order_acquire) == section)
            cpu_pause();
    }
}

struct kmap_counts kmap_counts(void)
{
    if (is_2002)
        return pool2002_counts();
    struct pool_counts counts;
    pool_count(&pool, &counts);
    return (struct kmap_counts){
        .hits = counts.hits,
        .misses = counts.misses,
        .revived = counts.revived,
        .waits = counts.waits,
        .locks = counts.lock_taken,
        .lock_steps = counts.lock_steps,
        .passed = counts.passed,
        .lock_steps_max = counts.lock_steps_max,
        .passed_max = counts.passed_max,
    };
}

void kmap_forget_worst(void)
{
    if (is_2002)
        pool2002_forget_worst();
    else
        pool.counts.lock_steps_max = pool.counts.passed_max = 0;
}
