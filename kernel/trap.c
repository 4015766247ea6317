/* SPDX-License-Identifier: MIT */
/* One table for all processors. Exceptions leave interrupts enabled, so their handler may sleep. */
#include "kernel/trap.h"
#include "kernel/apic.h"
#include "kernel/console.h"
#include "kernel/cpu.h"
#include "kernel/user.h"

enum { EXCEPTIONS = 32, PAGE_FAULT = 14, INTERRUPT_GATE = 0x8e, TRAP_GATE = 0x8f };

extern const uint32_t trap_entries[EXCEPTIONS];
extern const struct {
    uint32_t from, to;
} exceptions[], exceptions_end[];
extern char interrupt_round[], interrupt_wake[], interrupt_spurious[];

static uint64_t gates[256];

static uint64_t gate(uint32_t handler, uint16_t code, uint8_t kind)
{
    return (uint64_t)(handler & 0xffff0000) << 32 | (uint64_t)kind << 40 | (uint32_t)code << 16 |
           (handler & 0xffff);
}

void trap_enable(uint16_t code)
{
    for (unsigned i = 0; i < EXCEPTIONS; i++)
        gates[i] = gate(trap_entries[i], code, TRAP_GATE);
    gates[VECTOR_ROUND] = gate((uint32_t)interrupt_round, code, INTERRUPT_GATE);
    gates[VECTOR_WAKE] = gate((uint32_t)interrupt_wake, code, INTERRUPT_GATE);
    gates[VECTOR_SPURIOUS] = gate((uint32_t)interrupt_spurious, code, INTERRUPT_GATE);
    const struct {
        uint16_t limit;
        uint32_t base;
    } __attribute__((packed)) table = {sizeof(gates) - 1, (uint32_t)gates};
    __asm__ volatile("lidt %0" ::"m"(table));
}

void trap(struct trap_frame *frame)
{
    uint32_t address;
    __asm__ volatile("movl %%cr2, %0" : "=r"(address));
    if (frame->vector == PAGE_FAULT && user_fault(address, frame->error))
        return;
    for (unsigned i = 0; &exceptions[i] < exceptions_end; i++)
        if (exceptions[i].from == frame->eip) {
            frame->eip = exceptions[i].to;
            return;
        }
    panic("exception %u (error %x) at %x, address %x, on processor %u", frame->vector, frame->error,
          frame->eip, address, this_cpu()->number);
}
