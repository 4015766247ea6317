/* SPDX-License-Identifier: MIT */
/*
 * A spin lock, first come first served. All zero is unlocked. Held with interrupts enabled: no
 * handler takes one. Whoever holds one does not sleep: thread.c looks at `spins`.
 */
#ifndef MF_KERNEL_LOCK_H
#define MF_KERNEL_LOCK_H

#include "kernel/cpu.h"

struct spin {
    _Atomic uint32_t next, owner;
};

/* True if it had to wait. */
static inline bool spin_lock(struct spin *lock)
{
    const uint32_t turn = atomic_fetch_add_explicit(&lock->next, 1, memory_order_relaxed);
    bool waited = false;
    /* acquire: pairs with the release in spin_unlock */
    while (atomic_load_explicit(&lock->owner, memory_order_acquire) != turn) {
        waited = true;
        cpu_pause();
    }
    struct cpu *cpu = this_cpu();
    cpu->spins++;
    cpu->counts.locks++;
    cpu->counts.locks_waited += waited;
    return waited;
}

static inline void spin_unlock(struct spin *lock)
{
    const uint32_t turn = atomic_load_explicit(&lock->owner, memory_order_relaxed);
    this_cpu()->spins--;
    atomic_store_explicit(&lock->owner, turn + 1, memory_order_release);
}

#endif
