/* SPDX-License-Identifier: MIT */
/*
 * Lowmem comes from the top of what is in use upwards, in blocks of 2 MiB that are halved as
 * needed; what comes back waits in a list of its size. Halves are never joined again: the kernel
 * asks for the same sizes over and over.
 */
#include "kernel/memory.h"
#include "kernel/console.h"
#include "kernel/lock.h"

enum { ORDERS = 10, RANGES_MAX = 8, MULTIBOOT_HAS_MAP = 1 << 6, MULTIBOOT_IS_RAM = 1 };

struct multiboot {
    uint32_t flags, unused[10], map_length, map_address;
};

struct multiboot_range {
    uint32_t size; /* of what follows */
    uint64_t base, length;
    uint32_t type;
} __attribute__((packed));

struct free_block {
    struct free_block *next;
};

extern char kernel_end[];

static struct spin lowmem_lock;
static struct free_block *freed[ORDERS];
static uintptr_t top, end; /* physical: lowmem not given out yet */

static struct page *pages; /* by frame */
static uint32_t high_pages;
static unsigned high_ranges;
static struct {
    uint32_t first, count; /* frames */
} high[RANGES_MAX];

static void add_highmem(uint64_t from, uint64_t to)
{
    if (from < LOWMEM_MAX)
        from = LOWMEM_MAX;
    const uint32_t first = (uint32_t)((from + PAGE - 1) >> PAGE_SHIFT);
    const uint32_t last = (uint32_t)(to >> PAGE_SHIFT);
    if (to <= from || first >= last || high_ranges == RANGES_MAX)
        return;
    high[high_ranges].first = first;
    high[high_ranges++].count = last - first;
    high_pages += last - first;
}

void memory_start(uint32_t multiboot)
{
    const struct multiboot *info = direct(multiboot);
    if (!(info->flags & MULTIBOOT_HAS_MAP))
        panic("the boot loader gives no map of memory");
    top = (physical(kernel_end) + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1);
    uint32_t offset = 0;
    while (offset < info->map_length) {
        const struct multiboot_range *range = direct(info->map_address + offset);
        const uint64_t to = range->base + range->length;
        if (range->type == MULTIBOOT_IS_RAM) {
            if (range->base <= top && to > top)
                end = to < LOWMEM_MAX ? (uintptr_t)to : LOWMEM_MAX;
            add_highmem(range->base, to);
        }
        offset += range->size + sizeof(range->size);
    }
    if (!high_pages)
        panic("there is no memory beyond the first %u MiB", LOWMEM_MAX >> 20);

    uint32_t frames = 0;
    for (unsigned i = 0; i < high_ranges; i++)
        if (frames < high[i].first + high[i].count)
            frames = high[i].first + high[i].count;
    pages = direct(top);
    top += (frames * sizeof(*pages) + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1);
    __builtin_memset(pages, 0, frames * sizeof(*pages));
}

static unsigned order_of(size_t size)
{
    return (unsigned)__builtin_ctz(size) - PAGE_SHIFT;
}

static void push(void *memory, unsigned order)
{
    struct free_block *block = memory;
    block->next = freed[order];
    freed[order] = block;
}

static void *take(unsigned order)
{
    unsigned from = order;
    while (from < ORDERS && !freed[from])
        from++;
    if (from == ORDERS) {
        if (top + BLOCK > end)
            return NULL;
        push(direct(top), --from);
        top += BLOCK;
    }
    char *memory = (char *)freed[from];
    freed[from] = freed[from]->next;
    while (from > order) {
        from--;
        push(memory + ((size_t)PAGE << from), from);
    }
    return memory;
}

void *lowmem_alloc(size_t size)
{
    spin_lock(&lowmem_lock);
    void *memory = take(order_of(size));
    spin_unlock(&lowmem_lock);
    return memory;
}

void *lowmem_zeroed(size_t size)
{
    void *memory = lowmem_alloc(size);
    if (memory)
        __builtin_memset(memory, 0, size);
    return memory;
}

void lowmem_free(void *memory, size_t size)
{
    spin_lock(&lowmem_lock);
    push(memory, order_of(size));
    spin_unlock(&lowmem_lock);
}

static void *space_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    (void)align; /* never above the size */
    return lowmem_alloc(size);
}

static void space_free(void *context, void *memory, size_t size)
{
    (void)context;
    lowmem_free(memory, size);
}

const struct mf_alloc memory_alloc = {space_alloc, space_free, NULL};

size_t lowmem_top(void)
{
    return top;
}

uint32_t highmem_pages(void)
{
    return high_pages;
}

struct page *highmem_page(uint32_t number)
{
    if (number >= high_pages)
        panic("there are only %u pages of highmem: give more memory with -m", high_pages);
    unsigned range = 0;
    while (number >= high[range].count)
        number -= high[range++].count;
    return &pages[high[range].first + number];
}

uint32_t page_frame(const struct page *page)
{
    return (uint32_t)(page - pages);
}

bool page_is_high(const struct page *page)
{
    return page_frame(page) >= LOWMEM_MAX >> PAGE_SHIFT;
}
