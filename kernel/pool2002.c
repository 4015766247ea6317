/* SPDX-License-Identifier: MIT */
/*
 * A slot's count tells its state:
 *     0      not mapped, and flushed since it was: may be taken
 *     1      mapped, in use by nobody
 *     n + 1  mapped, in use n times
 * So a slot in use by nobody stays mapped, and its page is found there again, until the next flush;
 * it cannot be taken for another page before.
 */
#include "kernel/pool2002.h"
#include "kernel/console.h"
#include "kernel/lock.h"
#include "kernel/paging.h"
#include "kernel/thread.h"
#include "kernel/window.h"

struct waiter {
    struct machine_event event;
    struct waiter *next;
};

/* All under the lock. */
static struct {
    struct spin lock;
    uint32_t slots, cursor;
    uint32_t count[SLOTS_MAX];
    bool used[SLOTS_MAX];        /* ever */
    uint32_t cleared[SLOTS_MAX]; /* round_begun() when it was last unmapped */
    struct page *page[SLOTS_MAX];
    struct waiter *waiters;
    uint32_t steps; /* slots looked at in this hold */
    struct kmap_counts counts;
} p;

static void lock(void)
{
    spin_lock(&p.lock);
    p.counts.locks++;
    p.steps = 0;
}

static void unlock(void)
{
    p.counts.lock_steps += p.steps;
    if (p.counts.lock_steps_max < p.steps)
        p.counts.lock_steps_max = p.steps;
    spin_unlock(&p.lock);
}

void pool2002_start(uint32_t slots)
{
    p.slots = slots;
}

static void flush_unused_locked(void)
{
    for (uint32_t slot = 0; slot < p.slots; slot++) {
        p.steps++;
        if (p.count[slot] != 1)
            continue;
        p.count[slot] = 0;
        entry_clear(&window_entries[slot]);
        p.cleared[slot] = round_begun();
        atomic_store_explicit(&p.page[slot]->virtual, 0, memory_order_relaxed);
        p.page[slot] = NULL;
    }
    round_flush(WINDOW, NULL, p.slots);
}

/* Waits until somebody unmaps something. Lets go of the lock meanwhile. */
static void wait_locked(void)
{
    struct waiter waiter = {.next = p.waiters};
    p.waiters = &waiter;
    p.counts.waits++;
    unlock();
    machine_event_wait(&waiter.event, UINT64_MAX);
    lock();
}

/* A slot that may be taken, or p.slots if the lock was let go and all must be looked at anew. */
static uint32_t take_locked(void)
{
    for (uint32_t left = p.slots; left; left--) {
        p.cursor = p.cursor + 1 == p.slots ? 0 : p.cursor + 1;
        if (p.cursor == 0) {
            flush_unused_locked();
            left = p.slots;
        }
        p.steps++;
        if (p.count[p.cursor] == 0)
            return p.cursor;
    }
    wait_locked();
    return p.slots;
}

static void map_locked(struct page *page, uint32_t slot)
{
    window_check_flushed(slot, p.used[slot], p.cleared[slot]);
    entry_set(&window_entries[slot], entry_make(page_frame(page)));
    p.used[slot] = true;
    p.count[slot] = 1;
    p.page[slot] = page;
    p.counts.misses++;
    atomic_store_explicit(&page->virtual, window_address(slot), memory_order_relaxed);
}

static uintptr_t virtual_of(struct page *page)
{
    return atomic_load_explicit(&page->virtual, memory_order_relaxed);
}

void *pool2002_map(struct page *page)
{
    lock();
    if (virtual_of(page))
        p.counts.hits++;
    else
        for (;;) {
            const uint32_t slot = take_locked();
            if (virtual_of(page)) { /* another thread has mapped it while this one slept */
                p.counts.hits++;
                break;
            }
            if (slot < p.slots) {
                map_locked(page, slot);
                break;
            }
        }
    const uintptr_t address = virtual_of(page);
    p.count[window_slot(address)]++;
    unlock();
    return (void *)address;
}

void pool2002_unmap(struct page *page)
{
    lock();
    const uint32_t slot = window_slot(virtual_of(page));
    struct waiter *waiter = NULL;
    if (--p.count[slot] == 1) {
        waiter = p.waiters;
        p.waiters = NULL;
    }
    uint32_t passed = 0;
    for (; waiter; passed++) {
        struct waiter *next = waiter->next; /* once set, the waiter may be gone */
        machine_event_set(&waiter->event);
        waiter = next;
    }
    p.counts.passed += passed;
    if (p.counts.passed_max < passed)
        p.counts.passed_max = passed;
    unlock();
}

bool pool2002_is_mapped(struct page *page)
{
    lock();
    const uintptr_t address = virtual_of(page);
    const bool mapped = address && p.count[window_slot(address)] > 1;
    unlock();
    return mapped;
}

struct kmap_counts pool2002_counts(void)
{
    lock();
    const struct kmap_counts counts = p.counts;
    unlock();
    return counts;
}

void pool2002_forget_worst(void)
{
    p.counts.lock_steps_max = p.counts.passed_max = 0;
}
