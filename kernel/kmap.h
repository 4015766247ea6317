/* SPDX-License-Identifier: MIT */
/*
 * kmap: short-lived mappings of highmem pages, in a kernel's own terms. Pages of lowmem are simply
 * where they always are.
 *
 *  - kmap(page) maps a page for all processors until kunmap(page), as often as it was mapped. It
 *    may sleep: until others let go of a slot. The thread may sleep while it has the page mapped,
 *    and another thread, on another processor, may unmap it.
 *  - kmap_until is kmap with an end to its patience: NULL when timestamp() has reached the
 *    deadline, at once where that is 0.
 *  - kmap_local(page) maps it for this processor until kunmap_local. It never waits, asks no other
 *    processor and interrupts none. Local mappings nest, LOCAL_DEPTH deep, and are unmapped in
 *    reverse order; the thread must not sleep meanwhile.
 *
 * Which pool is behind kmap is chosen at the start: the core's (src/core/pool.c, on the machine of
 * machine.c), or that of 2002 (pool2002.c).
 */
#ifndef MF_KERNEL_KMAP_H
#define MF_KERNEL_KMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/memory.h"

struct kmap_options {
    bool pool2002;
    bool fences; /* the barriers of pool=core are full fences */
    uint32_t slots, batch;
    uint32_t inject; /* machine_inject */
};

/* What the pool did: each number only grows. */
struct kmap_counts {
    uint64_t hits, misses, revived, waits;
    uint64_t locks, lock_steps; /* of the pool's lock: taken, and slots looked at under it */
    uint64_t passed;            /* sleepers woken or passed over under it */
    uint32_t lock_steps_max;    /* in one hold */
    uint32_t passed_max;        /* at once */
};

/* After all processors have been started. */
void kmap_start(const struct kmap_options *options);

void *kmap(struct page *page);
void *kmap_until(struct page *page, uint64_t deadline);
void kunmap(struct page *page);

/* The page goes away: nobody has it mapped, and nobody will before this returns. Its translation is
 * removed, if there is one, and flushed everywhere. Of pool=core. */
void kmap_forget(struct page *page);

void *kmap_local(struct page *page);
void kunmap_local(void);

/* Whether somebody has the page mapped by kmap. Exact for a page that nobody can map anew; else it
 * may err, but not overlook a mapping made before the last barrier round. */
bool kmap_is_mapped(struct page *page);

/* Waits until all local mappings have ended that there are now. Not from within one. */
void kmap_wait_local(void);

struct kmap_counts kmap_counts(void);
/* Begins the worst case anew. */
void kmap_forget_worst(void);

#endif
