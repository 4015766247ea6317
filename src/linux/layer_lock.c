/* SPDX-License-Identifier: MIT */
/*
 * Lock word: 0 = free; owner = held; owner | CONTENDED = held, and somebody may sleep on its lower
 * half (a futex is 32 bits; thread pointers differ there or the sleeper wakes for nothing).
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "linux/layer_lock.h"
#include "linux/sys.h"

enum { CONTENDED = 1, SPINS = 200 };
enum { FORKED = 0, ALIVE = 1 };

/* In memory that the kernel clears in a child. */
struct fork_watch {
    _Atomic uint32_t alive;
    atomic_bool future_locked;  /* a child does not inherit this either */
    _Atomic uintptr_t beginner; /* who makes alive out of forked; 0: nobody yet */
};

static _Atomic uintptr_t lock_word;
static struct fork_watch *_Atomic watch;
static atomic_bool given_up;

static inline uintptr_t thread_pointer(void)
{
    uintptr_t self;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(self));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(self));
#endif
    return self;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

void lock_give_up(void)
{
    atomic_store_explicit(&given_up, true, memory_order_relaxed);
}

bool lock_given_up(void)
{
    return atomic_load_explicit(&given_up, memory_order_relaxed);
}

/* Without a watch nothing is folded, and it does not matter. */
void future_lock_set(bool locked)
{
    struct fork_watch *here = atomic_load_explicit(&watch, memory_order_acquire);
    if (here != NULL)
        atomic_store_explicit(&here->future_locked, locked, memory_order_relaxed);
}

bool future_lock(void)
{
    struct fork_watch *here = atomic_load_explicit(&watch, memory_order_acquire);
    return here != NULL && atomic_load_explicit(&here->future_locked, memory_order_relaxed);
}

static struct fork_watch *watch_make(void)
{
    const size_t page = getauxval(AT_PAGESZ);
    const long made = sys_mmap(0, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sys_failed(made))
        return NULL;
    if (sys_failed(sys_madvise((uintptr_t)made, page, MADV_WIPEONFORK))) {
        sys_munmap((uintptr_t)made, page);
        return NULL;
    }
    struct fork_watch *mine = (struct fork_watch *)made;
    atomic_init(&mine->alive, ALIVE);
    struct fork_watch *expected = NULL;
    /* release: pairs with the acquire in lock_enter; the page reads ALIVE for whoever sees it */
    if (atomic_compare_exchange_strong_explicit(&watch, &expected, mine, memory_order_acq_rel,
                                                memory_order_acquire))
        return mine;
    sys_munmap((uintptr_t)made, page);
    return expected;
}

/* The first call in a forked child. False: the caller interrupted it and must not wait for it. */
static bool child_begin(struct fork_watch *here, uintptr_t self)
{
    uintptr_t beginner = 0;
    /* One step, so that a signal handler always knows whether it interrupted the beginner. */
    if (!atomic_compare_exchange_strong(&here->beginner, &beginner, self)) {
        /* acquire, here and below: pairs with the release at the end */
        while (atomic_load_explicit(&here->alive, memory_order_acquire) != ALIVE) {
            if (beginner == self)
                return false;
            sys_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
        }
        return true;
    }
    const uintptr_t owner = atomic_load(&lock_word) & ~(uintptr_t)CONTENDED;
    const bool first =
        sys_call(SYS_gettid, 0, 0, 0, 0, 0, 0) == sys_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    if (owner == self && first) {
        atomic_store(&lock_word, owner); /* who slept on it is not here */
    } else {
        if (owner != 0)
            lock_give_up();
        atomic_store(&lock_word, 0);
    }
    /* release: pairs with the acquire of other threads' look at alive */
    atomic_store_explicit(&here->alive, ALIVE, memory_order_release);
    return true;
}

static void lock_wait(uintptr_t self)
{
    for (int i = 0; i < SPINS; i++) {
        uintptr_t expected = 0;
        if (atomic_load_explicit(&lock_word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock_word, &expected, self, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        cpu_relax();
    }
    for (;;) {
        uintptr_t seen = atomic_load_explicit(&lock_word, memory_order_relaxed);
        if (seen == 0) {
            if (atomic_compare_exchange_weak_explicit(&lock_word, &seen, self | CONTENDED,
                                                      memory_order_acquire, memory_order_relaxed))
                return;
            continue;
        }
        if (!(seen & CONTENDED)) {
            if (!atomic_compare_exchange_weak_explicit(&lock_word, &seen, seen | CONTENDED,
                                                       memory_order_relaxed, memory_order_relaxed))
                continue;
            seen |= CONTENDED;
        }
        sys_call(SYS_futex, (long)&lock_word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, (long)(uint32_t)seen,
                 0, 0, 0);
    }
}

enum entry lock_enter(void)
{
    if (lock_given_up())
        return ENTER_GIVEN_UP;
    const uintptr_t self = thread_pointer();
    struct fork_watch *here = atomic_load_explicit(&watch, memory_order_acquire);
    if (here == NULL) {
        here = watch_make();
        if (here == NULL)
            return ENTER_GIVEN_UP;
    }
    if (atomic_load_explicit(&here->alive, memory_order_acquire) != ALIVE) {
        if (!child_begin(here, self))
            return ENTER_INTERRUPTED;
        if (lock_given_up())
            return ENTER_GIVEN_UP;
    }
    if ((atomic_load_explicit(&lock_word, memory_order_relaxed) & ~(uintptr_t)CONTENDED) == self)
        return ENTER_INTERRUPTED;
    uintptr_t expected = 0;
    /* acquire: pairs with the release in lock_leave; the tables are as the last owner left them */
    if (!atomic_compare_exchange_strong_explicit(&lock_word, &expected, self, memory_order_acquire,
                                                 memory_order_relaxed))
        lock_wait(self);
    if (lock_given_up()) {
        lock_leave();
        return ENTER_GIVEN_UP;
    }
    return ENTER_LOCKED;
}

void lock_leave(void)
{
    /* release: pairs with the acquire of the next owner */
    const uintptr_t held = atomic_exchange_explicit(&lock_word, 0, memory_order_release);
    if (held & CONTENDED)
        sys_call(SYS_futex, (long)&lock_word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
}
