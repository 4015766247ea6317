/* SPDX-License-Identifier: MIT */
/*
 * thread: what runs on a processor, and how it sleeps and is woken.
 *
 *  - Each processor has THREADS_PER_CPU threads, made when it starts. They stay on it, and hand
 *    over only in thread_yield and machine_event_wait; so data of a processor needs no protection
 *    from its own threads between those.
 *  - A thread sleeps wherever it may wait, in the page fault handler too. It must not hold a spin
 *    lock or a local mapping then.
 *  - threads_run gives all of them one job; between jobs they sleep.
 */
#ifndef MF_KERNEL_THREAD_H
#define MF_KERNEL_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { THREADS_PER_CPU = 8 };

struct thread;
struct cpu;

/*
 * A sticky signal for one waiter: CLEAR, SET, or the thread that sleeps until it is set. Whoever
 * sets it does not touch it afterwards: it may be gone as soon as the waiter sees it set.
 */
struct machine_event {
    _Atomic uintptr_t state;
};

void machine_event_clear(struct machine_event *event);
void machine_event_set(struct machine_event *event);
/* deadline: in units of timestamp(); UINT64_MAX: never. */
bool machine_event_wait(struct machine_event *event, uint64_t deadline);

/* Makes the one that runs the processor's first thread, and the others beside it. */
void threads_start(struct cpu *cpu);

/* Lets others of this processor run; the turn comes back. */
void thread_yield(void);

/* Waits for jobs and does them: what all threads do but the very first. */
_Noreturn void thread_serve(void);

/*
 * Runs work(index, context) in the first `each` threads of every processor at once and waits for
 * all of them. Indices count up from 0, processor by processor: index / each is the processor.
 * Called by the very first thread.
 */
void threads_run(unsigned each, void (*work)(unsigned index, void *context), void *context);

/* The same in the first thread of one processor, while all others sleep. */
void thread_run_on(unsigned cpu, void (*work)(unsigned index, void *context), void *context);

/* Waits until `count` threads have come here; for any number of times with the same count. */
struct meeting {
    _Atomic uint32_t arrived;
    unsigned count;
};
void meet(struct meeting *meeting);

#endif
