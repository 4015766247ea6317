/* SPDX-License-Identifier: MIT */
/*
 * A machine for unit tests: one thread plays all, and a script decides what happens while the pool
 * has let go of the lock. It keeps its own account of who has what pinned and fails the test where
 * a translation is touched that it must not touch.
 */
#ifndef MAPFOLD_TESTS_MACHINE_SCRIPT_H
#define MAPFOLD_TESTS_MACHINE_SCRIPT_H

#include <stdbool.h>

struct machine_lock {
    bool held;
};

struct machine_event {
    bool set;
};

struct machine_slot {
    uintptr_t stamp; /* what is installed, 0 = nothing */
    bool dropped;
};

bool machine_lock_acquire(struct machine_lock *lock);
void machine_lock_release(struct machine_lock *lock);
static inline void machine_event_clear(struct machine_event *event)
{
    event->set = false;
}
static inline void machine_event_set(struct machine_event *event)
{
    event->set = true;
}
bool machine_event_wait(struct machine_event *event, uint64_t deadline);
static inline void machine_barrier_light(void)
{
}
bool machine_barrier_heavy(void);
void *machine_chunk(struct pool *pool, size_t bytes);
int machine_admit(struct pool *pool, uint32_t slot, void *request);
int machine_install(struct pool *pool, uint32_t slot, void *request);
void machine_restore(struct pool *pool, uint32_t slot);
void machine_drop(struct pool *pool, const uint32_t *slots, uint32_t count);
void machine_retire(struct pool *pool, uint32_t slot);
bool machine_is_kept(struct pool *pool, uint32_t slot);

#endif
