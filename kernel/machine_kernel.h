/* SPDX-License-Identifier: MIT */
/*
 * The machine of a kernel: see core/machine.h for what each name means. A translation is a page
 * table entry, a slot is a page of the window, and a request is a struct page.
 *
 *  lock        a spin lock
 *  event       a thread that sleeps (thread.h)
 *  barriers    light is for the compiler alone, heavy interrupts all other processors; or, with
 *              barrier=fence on the command line, both are full fences
 *  install     writes the entry, which was not present: no flush
 *  drop        clears the entries of a batch, then flushes it everywhere in one round
 *  restore     writes the same entry again
 *
 * Each slot notes when its entry was cleared, and before it is written again the machine makes sure
 * that since then every processor has flushed the window (round.h). A slot that has not been
 * flushed is counted, and used all the same: the negative control wants to see what happens.
 */
#ifndef MF_KERNEL_MACHINE_KERNEL_H
#define MF_KERNEL_MACHINE_KERNEL_H

#include "kernel/lock.h"
#include "kernel/thread.h"

struct machine_lock {
    struct spin spin;
};

struct machine_slot {
    uint32_t frame;   /* mapped, or dropped and not yet replaced */
    uint32_t cleared; /* round_begun() when the entry was cleared */
    bool present;
    bool used; /* ever */
};

extern bool machine_fences; /* constant after the start */

/* For tests: every so-manieth install says that memory is out; 0: none. Constant after the start.
 */
extern uint32_t machine_inject;

static inline bool machine_lock_acquire(struct machine_lock *lock)
{
    return spin_lock(&lock->spin);
}

static inline void machine_lock_release(struct machine_lock *lock)
{
    spin_unlock(&lock->spin);
}

static inline void machine_fence(void)
{
    __asm__ volatile("lock orl $0, (%%esp)" ::: "memory", "cc");
}

static inline void machine_barrier_light(void)
{
    if (__builtin_expect(machine_fences, false))
        machine_fence();
    else
        atomic_signal_fence(memory_order_seq_cst);
}

bool machine_barrier_heavy(void);

void *machine_chunk(struct pool *pool, size_t bytes);
int machine_install(struct pool *pool, uint32_t slot, void *request);
void machine_restore(struct pool *pool, uint32_t slot);
void machine_drop(struct pool *pool, const uint32_t *slots, uint32_t count);
void machine_retire(struct pool *pool, uint32_t slot);

/* A page table entry can always be cleared. */
static inline bool machine_is_kept(struct pool *pool, uint32_t slot)
{
    (void)pool;
    (void)slot;
    return false;
}

/* The window is reserved: a slot is all that a page needs. */
static inline int machine_admit(struct pool *pool, uint32_t slot, void *request)
{
    (void)pool;
    (void)slot;
    (void)request;
    return 1;
}

#endif
