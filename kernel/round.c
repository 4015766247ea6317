/* SPDX-License-Identifier: MIT */
/*
 * What is to be done is written under the lock, then the number is raised (release), then the
 * others are interrupted. Each does it, then notes the number as its answer (release); the first
 * processor reads all answers (acquire) before it lets go of the lock.
 *
 * An interrupt is a barrier by itself: the store buffer is empty before the handler's first
 * instruction.
 */
#include "kernel/round.h"
#include "kernel/apic.h"
#include "kernel/lock.h"
#include "kernel/paging.h"

/* From so many pages on it is cheaper to let everything go. */
enum { SINGLY_MAX = 32 };

static struct {
    struct spin lock;
    _Atomic uint32_t number;
    bool flush; /* a flush; else a barrier */
    uintptr_t base;
    const uint32_t *pages;
    uint32_t count;
} round;

static bool left_out;

static void flush_here(struct cpu *cpu, uint32_t number)
{
    if (round.count > SINGLY_MAX) {
        flush_all();
        atomic_store_explicit(&cpu->all_flushed, number, memory_order_release);
        cpu->counts.flushes++;
        return;
    }
    for (uint32_t i = 0; i < round.count; i++) {
        const uint32_t page = round.pages ? round.pages[i] : i;
        flush_page(round.base + PAGE * page);
        if (round.base == WINDOW)
            atomic_store_explicit(&cpu->slot_flushed[page], number, memory_order_release);
    }
    cpu->counts.invalidations += round.count;
}

void round_answer(void);
void round_answer(void)
{
    struct cpu *cpu = this_cpu();
    const uint32_t number = atomic_load_explicit(&round.number, memory_order_acquire);
    if (atomic_load_explicit(&cpu->round_done, memory_order_relaxed) != number) {
        if (round.flush)
            flush_here(cpu, number);
        atomic_store_explicit(&cpu->round_done, number, memory_order_release);
    }
    apic_end();
}

static void run_locked(struct cpu *cpu)
{
    const uint32_t number = atomic_load_explicit(&round.number, memory_order_relaxed) + 1;
    atomic_store_explicit(&round.number, number, memory_order_seq_cst);
    if (cpu_count > 1)
        apic_send_others(VECTOR_ROUND);
    if (round.flush)
        flush_here(cpu, number);
    atomic_store_explicit(&cpu->round_done, number, memory_order_seq_cst);
    for (unsigned i = 0; i < cpu_count; i++)
        while (atomic_load_explicit(&cpus[i]->round_done, memory_order_acquire) != number)
            cpu_pause();
}

void round_flush(uintptr_t base, const uint32_t *pages, uint32_t count)
{
    if (left_out)
        return;
    struct cpu *cpu = this_cpu();
    spin_lock(&round.lock);
    round.flush = true;
    round.base = base;
    round.pages = pages;
    round.count = count;
    run_locked(cpu);
    spin_unlock(&round.lock);
    if (base == WINDOW) {
        cpu->counts.flush_rounds++;
        cpu->counts.flush_ipis += cpu_count - 1;
    } else {
        cpu->counts.other_rounds++;
        cpu->counts.other_ipis += cpu_count - 1;
    }
}

void round_barrier(void)
{
    struct cpu *cpu = this_cpu();
    spin_lock(&round.lock);
    round.flush = false;
    run_locked(cpu);
    spin_unlock(&round.lock);
    cpu->counts.barrier_rounds++;
    cpu->counts.barrier_ipis += cpu_count - 1;
}

uint32_t round_begun(void)
{
    return atomic_load_explicit(&round.number, memory_order_seq_cst);
}

bool round_all_flushed(uint32_t slot, uint32_t cleared)
{
    for (unsigned i = 0; i < cpu_count; i++) {
        const uint32_t all = atomic_load_explicit(&cpus[i]->all_flushed, memory_order_acquire);
        const uint32_t one =
            atomic_load_explicit(&cpus[i]->slot_flushed[slot], memory_order_acquire);
        if ((int32_t)(all - cleared) <= 0 && (int32_t)(one - cleared) <= 0)
            return false;
    }
    return true;
}

void round_leave_flushes_out(void)
{
    left_out = true;
}
