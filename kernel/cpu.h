/* SPDX-License-Identifier: MIT */
/*
 * cpu: processors, what each has for itself, and the few instructions that C has no words for.
 *
 * Rules:
 *  - this_cpu() is the processor that runs; threads never move to another (thread.h).
 *  - What is in struct cpu is written by that processor alone. Each has pages of its own, so that
 *    work_read1.c can tell by the dirty bits who wrote what.
 *  - Interrupts are enabled except in the handlers of those that processors send each other, and
 *    while a processor decides to halt. So whoever spins answers them meanwhile.
 *  - Every loop that waits has a cpu_pause(): it is also what hands the turn to the next processor
 *    where an emulator runs all of them in one thread.
 */
#ifndef MF_KERNEL_CPU_H
#define MF_KERNEL_CPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/layout.h"

struct thread;
struct pool_block;

/* What a processor did: each number only grows. */
struct cpu_counts {
    uint32_t locks, locks_waited; /* spin locks of any kind */
    uint32_t invalidations;       /* pages, one by one */
    uint32_t flushes;             /* of the whole TLB */
    uint32_t flush_rounds;        /* of the window's slots, that it began */
    uint32_t barrier_rounds;      /* of barriers */
    uint32_t other_rounds;        /* of flushing other pages: a user's, an area's */
    uint32_t flush_ipis, barrier_ipis, other_ipis, wake_ipis; /* sent; each receiver counts */
    uint32_t sleeps;
    uint32_t faults; /* page faults that brought a page in */
    uint32_t local_maps;
    uint32_t stale; /* slots reused before every processor had flushed them: a bug */
};

struct cpu {
    struct cpu *self;
    unsigned number;
    uint32_t apic_id;
    struct thread *thread; /* that runs */
    struct pool_block *block;
    char *chunk; /* what is left of a page for counters */
    uint32_t chunk_left;
    uint32_t local_depth;
    uint32_t spins;          /* locks that it holds */
    uint64_t *local_entries; /* of its page table */
    struct cpu_counts counts;
    uint64_t segments[4];

    /* Read by others. */
    _Atomic uint32_t online, idle;
    _Atomic uint32_t round_done;    /* the last round that it has answered */
    _Atomic uint32_t all_flushed;   /* the last of them in which it flushed everything */
    _Atomic uint32_t *slot_flushed; /* and this page of the window alone: one for each slot */
    _Atomic uint32_t local_section; /* odd while it has a local mapping */
};

extern struct cpu *cpus[CPUS_MAX];
extern unsigned cpu_count;

static inline struct cpu *this_cpu(void)
{
    struct cpu *cpu;
    __asm__ volatile("movl %%gs:0, %0" : "=r"(cpu));
    return cpu;
}

static inline void cpu_pause(void)
{
    __asm__ volatile("pause" ::: "memory");
}

static inline void interrupts_off(void)
{
    __asm__ volatile("cli" ::: "memory");
}

static inline void interrupts_on(void)
{
    __asm__ volatile("sti" ::: "memory");
}

/* With interrupts off: none is taken between enabling them and halting. */
static inline void halt(void)
{
    __asm__ volatile("sti\n\thlt" ::: "memory");
}

/* Under an emulator that counts instructions this is their number. */
static inline uint64_t timestamp(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static inline void out8(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}

static inline uint8_t in8(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

/* The very first: makes the one that runs processor 0. */
void cpu_first(void);

/* After memory and paging: starts all, so that there are `count`; false if they do not come. */
bool cpu_start_all(unsigned count);

/* The sum of all processors' counts. Exact while they stand still. */
struct cpu_counts cpu_counts_all(void);

#endif
