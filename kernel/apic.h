/* SPDX-License-Identifier: MIT */
/*
 * apic: the local interrupt controllers, by which processors interrupt each other.
 *
 * Sending does not wait for the other side. apic_send_others reaches every processor but the
 * sender in one write.
 */
#ifndef MF_KERNEL_APIC_H
#define MF_KERNEL_APIC_H

#include <stdint.h>

enum { VECTOR_ROUND = 0xf0, VECTOR_WAKE = 0xf1, VECTOR_SPURIOUS = 0xff };

/* Each processor once. */
void apic_enable(void);
uint32_t apic_id(void);

void apic_send(uint32_t id, uint8_t vector);
void apic_send_others(uint8_t vector);
void apic_end(void);

/* INIT, then twice SIPI with the page at which the others begin. */
void apic_start_others(uint32_t page);

#endif
