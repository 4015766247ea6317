/* SPDX-License-Identifier: MIT */
/*
 * A lock that keeps the books of a lockmeter: how often it was taken, how often that had to wait,
 * how long it was held and waited for. It spins for a while and then sleeps, which on a machine
 * with fewer processors than threads is the best that can be done for the spinlock of 2002. The
 * books are written under the lock. Times cost two readings of the clock a hold: they are only
 * taken if `times` is set.
 */
#ifndef MAPFOLD_BENCH_METERED_LOCK_H
#define MAPFOLD_BENCH_METERED_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct lock_books {
    uint64_t total, waited;
    uint64_t hold_ns, hold_max_ns;
    uint64_t wait_ns, wait_max_ns;
    uint64_t spin_ns; /* of wait_ns, awake */
};

struct metered_lock {
    _Atomic uint32_t word; /* 0: free; 1: held; 2: held, and somebody may sleep */
    bool times;
    uint64_t since;
    struct lock_books books;
} __attribute__((aligned(64)));

void metered_lock_acquire(struct metered_lock *lock);
void metered_lock_release(struct metered_lock *lock);

#endif
