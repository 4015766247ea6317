/* SPDX-License-Identifier: MIT */
/*
 * Each processor finds its struct cpu at the base of the segment in %gs, which its own descriptor
 * table gives. The other processors start all at once; each takes a number, and with it the struct
 * that was made ready.
 */
#include "kernel/cpu.h"
#include "kernel/apic.h"
#include "kernel/console.h"
#include "kernel/memory.h"
#include "kernel/paging.h"
#include "kernel/thread.h"
#include "kernel/trap.h"

enum { CODE = 1 * 8, DATA = 2 * 8, OWN = 3 * 8 };

struct cpu *cpus[CPUS_MAX];
unsigned cpu_count = 1;

extern char trampoline[], trampoline_end[];
extern uintptr_t boot_stacks[CPUS_MAX];

struct table_pointer {
    uint16_t limit;
    uint32_t base;
} __attribute__((packed));

static void cpu_init(struct cpu *cpu, unsigned number)
{
    cpu->self = cpu;
    cpu->number = number;
    const uint64_t base = (uintptr_t)cpu;
    const uint64_t flat = UINT64_C(0x00cf92000000ffff); /* data, 0 to 4 GiB */
    cpu->segments[CODE / 8] = flat | UINT64_C(8) << 40;
    cpu->segments[DATA / 8] = flat;
    cpu->segments[OWN / 8] = flat | (base & 0xffffff) << 16 | (base >> 24) << 56;
    cpus[number] = cpu;
}

static void load_segments(struct cpu *cpu)
{
    const struct table_pointer table = {sizeof(cpu->segments) - 1, (uint32_t)cpu->segments};
    __asm__ volatile("lgdt %0\n\t"
                     "ljmpl %1, $1f\n"
                     "1:\tmovl %2, %%ds\n\t"
                     "movl %2, %%es\n\t"
                     "movl %2, %%ss\n\t"
                     "movl %2, %%fs\n\t"
                     "movl %3, %%gs"
                     :
                     : "m"(table), "i"(CODE), "r"(DATA), "r"(OWN)
                     : "memory");
}

/* There are locks, so counts, before there is memory to give out. */
void cpu_first(void)
{
    static union {
        struct cpu cpu;
        char page[PAGE];
    } first __attribute__((aligned(PAGE)));
    cpu_init(&first.cpu, 0);
    load_segments(&first.cpu);
}

static void prepare(unsigned number)
{
    struct cpu *cpu = lowmem_zeroed(PAGE);
    char *stack = lowmem_alloc(STACK_BYTES);
    if (!cpu || !stack)
        panic("no memory for processor %u", number);
    cpu_init(cpu, number);
    boot_stacks[number] = (uintptr_t)stack + STACK_BYTES;
}

static void start(struct cpu *cpu)
{
    cpu->local_entries = paging_reserve(LOCAL + cpu->number * LOCAL_STRIDE, LOCAL_DEPTH);
    trap_enable(CODE);
    apic_enable();
    cpu->apic_id = apic_id();
    threads_start(cpu);
    interrupts_on();
    atomic_store_explicit(&cpu->online, 1, memory_order_release);
}

_Noreturn void cpu_enter(unsigned number);
_Noreturn void cpu_enter(unsigned number)
{
    paging_enter();
    load_segments(cpus[number]);
    start(cpus[number]);
    thread_serve();
}

bool cpu_start_all(unsigned count)
{
    start(cpus[0]);
    for (unsigned i = 1; i < count; i++)
        prepare(i);
    __builtin_memcpy(direct(TRAMPOLINE), trampoline, (size_t)(trampoline_end - trampoline));
    if (count > 1)
        apic_start_others(TRAMPOLINE);
    for (unsigned i = 1; i < count; i++)
        for (uint32_t looks = 0; !atomic_load_explicit(&cpus[i]->online, memory_order_acquire);
             looks++) {
            if (looks == 100000000)
                return false;
            cpu_pause();
        }
    cpu_count = count;
    return true;
}

struct cpu_counts cpu_counts_all(void)
{
    struct cpu_counts all = {0};
    uint32_t *sum = (uint32_t *)&all;
    for (unsigned i = 0; i < cpu_count; i++) {
        const uint32_t *one = (const uint32_t *)&cpus[i]->counts;
        for (unsigned k = 0; k < sizeof(all) / sizeof(*sum); k++)
            sum[k] += one[k];
    }
    return all;
}
