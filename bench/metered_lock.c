/* SPDX-License-Identifier: MIT */
#include "metered_lock.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

enum { SPINS = 300 };

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool try_once(struct metered_lock *lock, uint32_t to)
{
    uint32_t none = 0;
    return atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&lock->word, &none, to, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* When it stopped spinning, if times are kept. */
static uint64_t wait_for(struct metered_lock *lock)
{
    for (int i = 0; i < SPINS; i++) {
        if (try_once(lock, 1))
            return lock->times ? bench_now() : 0;
        pause_briefly();
    }
    const uint64_t spun = lock->times ? bench_now() : 0;
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    return spun;
}

void metered_lock_acquire(struct metered_lock *lock)
{
    struct lock_books *books = &lock->books;
    if (try_once(lock, 1)) {
        books->total++;
        if (lock->times)
            lock->since = bench_now();
        return;
    }
    const uint64_t begin = lock->times ? bench_now() : 0;
    const uint64_t spun = wait_for(lock);
    books->total++;
    books->waited++;
    if (!lock->times)
        return;
    lock->since = bench_now();
    const uint64_t waited = lock->since - begin;
    books->wait_ns += waited;
    books->spin_ns += spun - begin;
    books->wait_max_ns = waited > books->wait_max_ns ? waited : books->wait_max_ns;
}

void metered_lock_release(struct metered_lock *lock)
{
    if (lock->times) {
        struct lock_books *books = &lock->books;
        const uint64_t held = bench_now() - lock->since;
        books->hold_ns += held;
        books->hold_max_ns = held > books->hold_max_ns ? held : books->hold_max_ns;
    }
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
