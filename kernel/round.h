/* SPDX-License-Identifier: MIT */
/*
 * round: one processor makes all others do something at once, and waits until each has.
 *
 * A round is either a flush or a barrier. It interrupts every other processor, wherever it is, and
 * is over when all have answered; so afterwards
 *  - a flush: no TLB holds what was cleared in the page tables before the round;
 *  - a barrier: every other processor has passed a full barrier, as membarrier(2) does it.
 * Rounds come one after the other, and are numbered. Called with interrupts enabled, and with spin
 * locks held if need be: whoever spins for them answers meanwhile.
 *
 * The proof of flushing: a processor notes the number of the last round in which it has flushed
 * everything, and for each slot of the window the last in which it has flushed that page alone. A
 * slot whose entry was cleared when round_begun() said n may be used again when all processors have
 * noted more than n, here or there, which round_all_flushed() tells.
 */
#ifndef MF_KERNEL_ROUND_H
#define MF_KERNEL_ROUND_H

#include <stdbool.h>
#include <stdint.h>

/* Flushes these pages (base + PAGE * pages[i]; i alone where pages is NULL) everywhere. */
void round_flush(uintptr_t base, const uint32_t *pages, uint32_t count);

void round_barrier(void);

uint32_t round_begun(void);
bool round_all_flushed(uint32_t slot, uint32_t cleared);

/* For the negative control: flushes are left out from now on. */
void round_leave_flushes_out(void);

#endif
