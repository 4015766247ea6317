/* SPDX-License-Identifier: MIT */
/*
 * The threads of a processor stand in a ring. Whoever hands over goes round to the next that is
 * ready; where none is, the processor halts, in the context of the thread that found none.
 *
 * No wake is lost. A thread that goes to sleep clears its `ready`, then puts itself into the event
 * (compare and swap); whoever sets the event takes it out (exchange), then sets `ready`. And a
 * processor that goes to sleep stores `idle`, then looks at `ready` once more; whoever wakes stores
 * `ready`, then looks at `idle`; all four sequentially consistent. The last look is made with
 * interrupts off, so that the wake's interrupt ends the halt.
 */
#include "kernel/thread.h"
#include "kernel/apic.h"
#include "kernel/console.h"
#include "kernel/cpu.h"
#include "kernel/memory.h"

enum { CLEAR = 0, SET = 1 };

struct thread {
    uint32_t stack; /* while it does not run */
    struct cpu *cpu;
    struct thread *next; /* in the ring */
    _Atomic uint32_t ready;
    unsigned index; /* of its job */
    struct machine_event start;
};

static struct thread threads[CPUS_MAX][THREADS_PER_CPU];

static struct {
    void (*work)(unsigned index, void *context);
    void *context;
    _Atomic unsigned running;
    struct machine_event done;
} job;

void thread_switch_stack(uint32_t *save, uint32_t load);

static void switch_to(struct cpu *cpu, struct thread *next)
{
    struct thread *self = cpu->thread;
    if (cpu->local_depth)
        panic("a thread gives up processor %u with a local mapping", cpu->number);
    if (cpu->spins)
        panic("a thread gives up processor %u with a spin lock", cpu->number);
    if (next == self)
        return;
    cpu->thread = next;
    thread_switch_stack(&self->stack, next->stack);
}

static struct thread *next_ready(struct thread *self)
{
    struct thread *thread = self;
    do {
        thread = thread->next;
        if (atomic_load_explicit(&thread->ready, memory_order_seq_cst))
            return thread;
    } while (thread != self);
    return NULL;
}

void thread_yield(void)
{
    struct cpu *cpu = this_cpu();
    cpu_pause();
    switch_to(cpu, next_ready(cpu->thread)); /* who runs is ready itself */
}

/* Runs others until this thread is ready again. */
static void block(struct cpu *cpu)
{
    struct thread *next;
    cpu->counts.sleeps++;
    while (!(next = next_ready(cpu->thread))) {
        interrupts_off();
        atomic_store_explicit(&cpu->idle, 1, memory_order_seq_cst);
        if (next_ready(cpu->thread))
            interrupts_on();
        else
            halt();
        atomic_store_explicit(&cpu->idle, 0, memory_order_relaxed);
    }
    switch_to(cpu, next);
}

static void wake(struct thread *thread)
{
    struct cpu *self = this_cpu(), *cpu = thread->cpu;
    atomic_store_explicit(&thread->ready, 1, memory_order_seq_cst);
    if (cpu != self && atomic_load_explicit(&cpu->idle, memory_order_seq_cst)) {
        apic_send(cpu->apic_id, VECTOR_WAKE);
        self->counts.wake_ipis++;
    }
}

void machine_event_clear(struct machine_event *event)
{
    atomic_store_explicit(&event->state, CLEAR, memory_order_relaxed);
}

void machine_event_set(struct machine_event *event)
{
    /* release: pairs with the acquire in machine_event_wait */
    const uintptr_t before = atomic_exchange_explicit(&event->state, SET, memory_order_acq_rel);
    if (before > SET)
        wake((struct thread *)before);
}

bool machine_event_wait(struct machine_event *event, uint64_t deadline)
{
    struct cpu *cpu = this_cpu();
    struct thread *self = cpu->thread;
    while (atomic_load_explicit(&event->state, memory_order_acquire) != SET) {
        if (deadline != UINT64_MAX) { /* there is no timer: it looks at the clock */
            if (timestamp() >= deadline)
                return false;
            thread_yield();
            continue;
        }
        uintptr_t state = CLEAR;
        atomic_store_explicit(&self->ready, 0, memory_order_relaxed);
        if (atomic_compare_exchange_strong_explicit(&event->state, &state, (uintptr_t)self,
                                                    memory_order_seq_cst, memory_order_acquire) ||
            state != SET)
            block(cpu);
        else
            atomic_store_explicit(&self->ready, 1, memory_order_relaxed);
    }
    return true;
}

void thread_serve(void)
{
    struct thread *self = this_cpu()->thread;
    for (;;) {
        machine_event_wait(&self->start, UINT64_MAX);
        machine_event_clear(&self->start);
        job.work(self->index, job.context);
        if (atomic_fetch_sub_explicit(&job.running, 1, memory_order_acq_rel) == 1)
            machine_event_set(&job.done);
    }
}

void threads_start(struct cpu *cpu)
{
    struct thread *ring = threads[cpu->number];
    for (unsigned i = 0; i < THREADS_PER_CPU; i++) {
        ring[i].cpu = cpu;
        ring[i].next = &ring[(i + 1) % THREADS_PER_CPU];
        atomic_store_explicit(&ring[i].ready, 1, memory_order_relaxed);
        if (i == 0)
            continue;
        char *stack = lowmem_alloc(STACK_BYTES);
        if (!stack)
            panic("no memory for the stacks of threads");
        /* What thread_switch_stack takes from it: four registers and where it returns to; and
         * above that a return address that is not used. */
        uint32_t *at = (uint32_t *)(stack + STACK_BYTES) - 6;
        at[4] = (uint32_t)thread_serve;
        ring[i].stack = (uint32_t)at;
    }
    cpu->thread = ring;
}

static void begin(unsigned cpu, unsigned thread, unsigned index)
{
    threads[cpu][thread].index = index;
    machine_event_set(&threads[cpu][thread].start);
}

void threads_run(unsigned each, void (*work)(unsigned index, void *context), void *context)
{
    job.work = work;
    job.context = context;
    machine_event_clear(&job.done);
    atomic_store_explicit(&job.running, cpu_count * each, memory_order_release);
    for (unsigned i = 1; i < cpu_count * each; i++)
        begin(i / each, i % each, i);
    work(0, context);
    if (atomic_fetch_sub_explicit(&job.running, 1, memory_order_acq_rel) != 1)
        machine_event_wait(&job.done, UINT64_MAX);
}

void thread_run_on(unsigned cpu, void (*work)(unsigned index, void *context), void *context)
{
    if (cpu == 0) {
        work(0, context);
        return;
    }
    job.work = work;
    job.context = context;
    machine_event_clear(&job.done);
    atomic_store_explicit(&job.running, 1, memory_order_release);
    begin(cpu, 0, cpu);
    machine_event_wait(&job.done, UINT64_MAX);
}

void meet(struct meeting *meeting)
{
    const uint32_t mine = atomic_fetch_add_explicit(&meeting->arrived, 1, memory_order_acq_rel);
    const uint32_t all = mine - mine % meeting->count + meeting->count;
    while ((int32_t)(atomic_load_explicit(&meeting->arrived, memory_order_acquire) - all) < 0)
        thread_yield();
}
