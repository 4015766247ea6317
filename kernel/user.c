/* SPDX-License-Identifier: MIT */
/*
 * Areas stand in a space: an area's offset is a place in highmem, so that delta leads from an
 * address to its page. A missing page's entry is 0, or ENTRY_COMING while one thread is having it
 * brought in; others that want it wait for that one.
 */
#include <mapfold/space.h>

#include "kernel/console.h"
#include "kernel/kmap.h"
#include "kernel/lock.h"
#include "kernel/paging.h"
#include "kernel/round.h"
#include "kernel/thread.h"
#include "kernel/trap.h"
#include "kernel/user.h"
#include "kernel/work.h"

enum { FAULT_PRESENT = 1, TAG_HOLE = 1 };

struct request {
    struct page *page;
    uintptr_t address; /* of the page */
    struct machine_event done;
    struct request *next;
};

/* One for each processor. */
static struct pager {
    struct spin lock;
    struct request *first, **last; /* first come first served */
    struct machine_event work;
} pagers[CPUS_MAX];
static atomic_bool pagers_end;

static struct mf_space *areas;
static uint64_t *entries;

void user_start(void)
{
    atomic_store_explicit(&pagers_end, false, memory_order_relaxed);
    if (areas)
        return;
    entries = paging_reserve(USER, (USER_END - USER) >> PAGE_SHIFT);
    if (mf_space_create(USER, USER_END - 1, PAGE, &memory_alloc, &areas))
        panic("no memory for the user's areas");
    for (unsigned i = 0; i < CPUS_MAX; i++)
        pagers[i].last = &pagers[i].first;
}

uintptr_t user_map(uint32_t pages, uint32_t highmem)
{
    const struct mf_fit fit = {.length = (uint64_t)(pages + 1) << PAGE_SHIFT,
                               .align = PAGE,
                               .last = UINT64_MAX,
                               .policy = MF_FIT_LOWEST};
    struct mf_area area;
    if (mf_space_place(areas, &fit, 0, (uint64_t)highmem << PAGE_SHIFT, &area) ||
        mf_space_retag(areas, area.start + ((uint64_t)pages << PAGE_SHIFT), PAGE, 0, TAG_HOLE))
        return 0;
    return (uintptr_t)area.start;
}

uint32_t user_word(uintptr_t address)
{
    return scatter((uint32_t)address);
}

static uint64_t *entry_of(uintptr_t address)
{
    return &entries[(address - USER) >> PAGE_SHIFT];
}

void user_discard(uintptr_t address, uint32_t pages)
{
    for (uint32_t i = 0; i < pages; i++)
        entry_clear(entry_of(address + i * PAGE));
    round_flush(address, NULL, pages);
}

/* Pagers. */

static void ask(struct pager *pager, struct request *request)
{
    spin_lock(&pager->lock);
    *pager->last = request;
    pager->last = &request->next;
    spin_unlock(&pager->lock);
    machine_event_set(&pager->work);
    machine_event_wait(&request->done, UINT64_MAX);
}

static struct request *take(struct pager *pager)
{
    spin_lock(&pager->lock);
    struct request *request = pager->first;
    if (request) {
        pager->first = request->next;
        if (!pager->first)
            pager->last = &pager->first;
    }
    spin_unlock(&pager->lock);
    return request;
}

static void fill(const struct request *request)
{
    uint32_t *words = kmap_local(request->page);
    for (uint32_t i = 0; i < PAGE / sizeof(*words); i++)
        words[i] = user_word(request->address + i * sizeof(*words));
    kunmap_local();
}

void user_pager(void)
{
    struct pager *pager = &pagers[this_cpu()->number];
    while (!atomic_load_explicit(&pagers_end, memory_order_acquire)) {
        machine_event_wait(&pager->work, UINT64_MAX);
        machine_event_clear(&pager->work);
        struct request *request;
        while ((request = take(pager))) {
            fill(request);
            machine_event_set(&request->done);
        }
    }
    /* Nobody asks any more: ready for the next time. */
    machine_event_clear(&pager->work);
}

void user_pagers_stop(void)
{
    atomic_store_explicit(&pagers_end, true, memory_order_release);
    for (unsigned i = 0; i < cpu_count; i++)
        machine_event_set(&pagers[i].work);
}

/* Faults. */

bool user_fault(uintptr_t address, uint32_t error)
{
    struct mf_area area;
    if (error & FAULT_PRESENT || !areas || mf_space_find(areas, address, &area) ||
        area.tag & TAG_HOLE)
        return false;
    uint64_t *entry = entry_of(address);
    _Atomic uint32_t *state = (_Atomic uint32_t *)entry; /* the half with the present bit */
    for (;;) {
        uint32_t found = 0;
        if (atomic_compare_exchange_strong_explicit(state, &found, ENTRY_COMING,
                                                    memory_order_acquire, memory_order_acquire))
            break;
        if (found & ENTRY_PRESENT)
            return true;
        thread_yield();
    }
    struct request request = {
        .page = highmem_page((uint32_t)((address + area.delta) >> PAGE_SHIFT)),
        .address = address & ~(uintptr_t)(PAGE - 1),
    };
    struct cpu *cpu = this_cpu();
    ask(&pagers[(cpu->number + 1) % cpu_count], &request);
    entry_set(entry, entry_make(page_frame(request.page)));
    cpu->counts.faults++;
    return true;
}

/* Copies. Returns the bytes that were not copied. */
static size_t copy(void *to, const void *from, size_t n)
{
    __asm__ volatile("1:\trep movsb\n" /* a fault leaves in ecx what is still to do */
                     "2:\n" EXCEPTION("1b", "2b")
                     : "+D"(to), "+S"(from), "+c"(n)
                     :
                     : "memory");
    return n;
}

size_t copy_to_page(struct page *page, size_t offset, uintptr_t from, size_t n)
{
    char *mapped = kmap(page);
    const size_t left = copy(mapped + offset, (const void *)from, n);
    kunmap(page);
    return n - left;
}

size_t copy_from_page(uintptr_t to, struct page *page, size_t offset, size_t n)
{
    const char *mapped = kmap(page);
    const size_t left = copy((void *)to, mapped + offset, n);
    kunmap(page);
    return n - left;
}
