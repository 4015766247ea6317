/* SPDX-License-Identifier: MIT */
/*
 * trap: exceptions. A page fault in the user's memory may bring the page in, and sleep for it. A
 * fault at an instruction that the exception table lists goes on where the table says. Any other
 * is the end.
 */
#ifndef MF_KERNEL_TRAP_H
#define MF_KERNEL_TRAP_H

#include <stdint.h>

struct trap_frame {
    uint32_t edi, esi, ebp, unused, ebx, edx, ecx, eax;
    uint32_t vector, error, eip, cs, eflags;
};

/* For an assembler statement: a fault at label `from` goes on at label `to`. */
#define EXCEPTION(from, to)                                                                        \
    ".pushsection .exceptions, \"a\"\n\t.long " from ", " to "\n\t.popsection\n"

/* Once for each processor. code: the selector of its code segment. */
void trap_enable(uint16_t code);

void trap(struct trap_frame *frame);

#endif
