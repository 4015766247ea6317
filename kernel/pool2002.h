/* SPDX-License-Identifier: MIT */
/*
 * pool2002: the kmap pool of the mail, as it was in the kernels of its time; the rival.
 *
 * One lock around everything. A cursor walks the slots; when it comes round, all slots that nobody
 * uses are unmapped and all TLBs are flushed, with the lock held. Who finds no slot waits, and is
 * woken with everybody else who does.
 */
#ifndef MF_KERNEL_POOL2002_H
#define MF_KERNEL_POOL2002_H

#include "kernel/kmap.h"

void pool2002_start(uint32_t slots);
void *pool2002_map(struct page *page);
void pool2002_unmap(struct page *page);
bool pool2002_is_mapped(struct page *page);
struct kmap_counts pool2002_counts(void);
void pool2002_forget_worst(void);

#endif
