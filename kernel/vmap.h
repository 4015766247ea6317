/* SPDX-License-Identifier: MIT */
/*
 * vmap: areas of the kernel's address space that show any pages of highmem as if they were
 * contiguous. A space places them, lowest address first, each with a page behind it that is never
 * mapped.
 *
 * An area is one call's to give back. May be called by any thread; vunmap interrupts all others.
 */
#ifndef MF_KERNEL_VMAP_H
#define MF_KERNEL_VMAP_H

#include <stdint.h>

void vmap_start(void);

/* Maps `count` pages of highmem from that number on; NULL: there is no gap, or no memory. */
void *vmap(uint32_t highmem, uint32_t count);
void vunmap(void *area);

#endif
