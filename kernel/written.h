/* SPDX-License-Identifier: MIT */
/*
 * written: which pages of lowmem several processors write, told by dirty bits of the direct map.
 *
 * While all others sleep, one processor calls written_begin, does its work, and calls written_end;
 * then the next. All that the kernel has of its own is reached through the direct map, so nothing
 * written is missed; and a page that only one processor wrote has no line that two wrote.
 */
#ifndef MF_KERNEL_WRITTEN_H
#define MF_KERNEL_WRITTEN_H

#include <stdint.h>

void written_start(void); /* nobody has written anything yet */
void written_begin(void);
void written_end(void);

struct written {
    uint32_t pages;  /* written by any */
    uint32_t shared; /* by more than one */
};
struct written written_result(void);

#endif
