/* SPDX-License-Identifier: MIT */
/* The parts of the machine that know nothing of extents: barriers, sleeping and waking. */
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

#include "linux/pool.h"
#include "linux/probes.h"
#include "linux/system.h"

bool machine_fences;
uint64_t system_page;

static void start(void)
{
    system_page = (uint64_t)sysconf(_SC_PAGESIZE);
    machine_fences =
        MACHINE_ALWAYS_FENCES || system_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
}

void machine_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

bool machine_barrier_heavy(void)
{
    if (machine_fences) {
        machine_fence();
        return true;
    }
    const int saved = errno;
    bool done = system_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    /* The registration may have been lost with a fork. */
    if (!done && errno == EPERM)
        done = system_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
               system_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    errno = saved;
    return done;
}

static void futex(struct machine_event *event, int operation, uint32_t value,
                  const struct timespec *deadline)
{
    const int saved = errno;
    syscall(SYS_futex, &event->set, operation | FUTEX_PRIVATE_FLAG, value, deadline, NULL,
            FUTEX_BITSET_MATCH_ANY);
    errno = saved;
}

void machine_event_set(struct machine_event *event)
{
    /* release: pairs with the acquire in machine_event_wait. The waiter may return before the wake;
     * a wake at an address that nobody sleeps on does nothing. */
    atomic_store_explicit(&event->set, 1, memory_order_release);
    futex(event, FUTEX_WAKE, 1, NULL);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

bool machine_event_wait(struct machine_event *event, uint64_t deadline)
{
    const struct timespec at = {.tv_sec = (time_t)(deadline / 1000000000),
                                .tv_nsec = (long)(deadline % 1000000000)};
    while (!atomic_load_explicit(&event->set, memory_order_acquire)) {
        if (deadline != UINT64_MAX && now() >= deadline)
            return false;
        PROBE(pool_wait, event, deadline);
        futex(event, FUTEX_WAIT_BITSET, 0, deadline == UINT64_MAX ? NULL : &at);
    }
    return true;
}
