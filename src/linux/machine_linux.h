/* SPDX-License-Identifier: MIT */
/*
 * The machine of a Linux process: see core/machine.h for what each name means. Translations are
 * extents; the functions that handle them are in pool_extent.c.
 *
 * The barrier pair: where the kernel has membarrier(2), light is for the compiler alone and heavy
 * interrupts every processor that runs a thread of ours. Where it has not (or a sandbox refuses it)
 * both are full fences, decided once, before the first pool exists. ThreadSanitizer does not know
 * membarrier: builds for it use the fences, here and nowhere else. They are written in assembler
 * since it does not know stand-alone fences either; the happens-before edges that it needs are
 * those of the counters' and states' acquire and release.
 */
#ifndef MF_LINUX_MACHINE_LINUX_H
#define MF_LINUX_MACHINE_LINUX_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MACHINE_ALWAYS_FENCES 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define MACHINE_ALWAYS_FENCES 1
#endif
#ifndef MACHINE_ALWAYS_FENCES
#define MACHINE_ALWAYS_FENCES 0
#endif

struct machine_lock {
    pthread_mutex_t mutex;
};

struct machine_event {
    _Atomic uint32_t set; /* a futex */
};

/* An extent as its users see it; the rest of it is in struct extent. */
struct machine_slot {
    _Atomic uint32_t failed; /* set by the first fault, see fault.c */
    _Atomic(char *) base;    /* NULL: none */
    /* Bytes from base in which the quick ways may pin: mapped, and of the file as its size was last
     * seen; 0 once it has failed. It may be too low after the file has grown: extent_resize. */
    _Atomic size_t usable;
};

extern bool machine_fences; /* constant after machine_start */
void machine_start(void);

static inline void machine_fence(void)
{
#if defined(__x86_64__)
    __asm__ volatile("lock orl $0, (%%rsp)" ::: "memory", "cc");
#elif defined(__aarch64__)
    __asm__ volatile("dmb ish" ::: "memory");
#else
    __sync_synchronize();
#endif
}

static inline void machine_barrier_light(void)
{
    if (MACHINE_ALWAYS_FENCES || __builtin_expect(machine_fences, false))
        machine_fence();
    else
        atomic_signal_fence(memory_order_seq_cst);
}

/* The light one for who has its block from thread_quick. */
static inline void machine_barrier_compiler(void)
{
    if (MACHINE_ALWAYS_FENCES)
        machine_fence();
    else
        atomic_signal_fence(memory_order_seq_cst);
}

bool machine_barrier_heavy(void);

static inline bool machine_lock_acquire(struct machine_lock *lock)
{
    if (pthread_mutex_trylock(&lock->mutex) == 0)
        return false;
    pthread_mutex_lock(&lock->mutex);
    return true;
}

static inline void machine_lock_release(struct machine_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}

static inline void machine_event_clear(struct machine_event *event)
{
    atomic_store_explicit(&event->set, 0, memory_order_relaxed);
}

void machine_event_set(struct machine_event *event);
bool machine_event_wait(struct machine_event *event, uint64_t deadline);

void *machine_chunk(struct pool *core, size_t bytes);
int machine_admit(struct pool *core, uint32_t slot, void *request);
int machine_install(struct pool *core, uint32_t slot, void *request);
void machine_drop(struct pool *core, const uint32_t *slots, uint32_t count);
void machine_retire(struct pool *core, uint32_t slot);
bool machine_is_kept(struct pool *core, uint32_t slot);

/* A dropped extent is still mapped; its pages come back when touched. */
static inline void machine_restore(struct pool *pool, uint32_t slot)
{
    (void)pool;
    (void)slot;
}

#endif
