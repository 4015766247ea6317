/* SPDX-License-Identifier: MIT */
/*
 * The smallest machine: one thread, and translations that cost nothing. It shows which functions a
 * port has to write, and lets the core be compiled where there is no world at all.
 */
#ifndef MF_CORE_MACHINE_SINGLE_H
#define MF_CORE_MACHINE_SINGLE_H

struct machine_lock {
    char unused;
};

struct machine_event {
    bool set;
};

struct machine_slot {
    void *request;
};

static inline bool machine_lock_acquire(struct machine_lock *lock)
{
    (void)lock;
    return false;
}

static inline void machine_lock_release(struct machine_lock *lock)
{
    (void)lock;
}

static inline void machine_event_clear(struct machine_event *event)
{
    event->set = false;
}

static inline void machine_event_set(struct machine_event *event)
{
    event->set = true;
}

/* There is nobody else who could set it. */
static inline bool machine_event_wait(struct machine_event *event, uint64_t deadline)
{
    (void)deadline;
    return event->set;
}

static inline void machine_barrier_light(void)
{
}

static inline bool machine_barrier_heavy(void)
{
    return true;
}

static inline void *machine_chunk(struct pool *pool, size_t bytes)
{
    (void)pool;
    (void)bytes;
    return NULL;
}

static inline int machine_admit(struct pool *pool, uint32_t slot, void *request)
{
    (void)pool;
    (void)slot;
    (void)request;
    return 1;
}

static inline int machine_install(struct pool *pool, uint32_t slot, void *request)
{
    (void)pool;
    (void)slot;
    (void)request;
    return 0;
}

static inline void machine_restore(struct pool *pool, uint32_t slot)
{
    (void)pool;
    (void)slot;
}

static inline void machine_drop(struct pool *pool, const uint32_t *slots, uint32_t count)
{
    (void)pool;
    (void)slots;
    (void)count;
}

static inline void machine_retire(struct pool *pool, uint32_t slot)
{
    (void)pool;
    (void)slot;
}

static inline bool machine_is_kept(struct pool *pool, uint32_t slot)
{
    (void)pool;
    (void)slot;
    return false;
}

#endif
