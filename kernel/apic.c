/* SPDX-License-Identifier: MIT */
/* The xAPIC's registers in memory; the old pair of 8259 is silenced. */
#include "kernel/apic.h"
#include "kernel/cpu.h"

enum {
    ID = 0x20,
    END = 0xb0,
    SPURIOUS = 0xf0,
    COMMAND_LOW = 0x300,
    COMMAND_HIGH = 0x310,
    TIMER = 0x320,
    LINT0 = 0x350,
    LINT1 = 0x360,

    ENABLE = 1 << 8,
    MASKED = 1 << 16,
    PENDING = 1 << 12,
    ASSERT = 1 << 14,
    INIT = 5 << 8,
    START = 6 << 8,
    ALL_OTHERS = 3 << 18,
};

static volatile uint32_t *at(uint32_t offset)
{
    return (volatile uint32_t *)(APIC_PAGE + offset);
}

void apic_enable(void)
{
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
    *at(TIMER) = MASKED;
    *at(LINT0) = MASKED;
    *at(LINT1) = MASKED;
    *at(SPURIOUS) = ENABLE | VECTOR_SPURIOUS;
}

uint32_t apic_id(void)
{
    return *at(ID) >> 24;
}

static void send(uint32_t command)
{
    while (*at(COMMAND_LOW) & PENDING)
        cpu_pause();
    *at(COMMAND_LOW) = command;
}

void apic_send(uint32_t id, uint8_t vector)
{
    *at(COMMAND_HIGH) = id << 24;
    send(ASSERT | vector);
}

void apic_send_others(uint8_t vector)
{
    send(ALL_OTHERS | ASSERT | vector);
}

void apic_end(void)
{
    *at(END) = 0;
}

static void delay(uint32_t microseconds)
{
    while (microseconds--)
        out8(0x80, 0); /* a port that nobody answers: about one microsecond */
}

void apic_start_others(uint32_t page)
{
    send(ALL_OTHERS | ASSERT | INIT);
    delay(10000);
    for (int i = 0; i < 2; i++) {
        send(ALL_OTHERS | ASSERT | START | page >> 12);
        delay(200);
    }
}
