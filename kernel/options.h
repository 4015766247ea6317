/* SPDX-License-Identifier: MIT */
/*
 * options: the kernel's command line, words of the form name=value. A word that is not known, or a
 * value out of range, ends the kernel: a test must not pass because of a slip in its name.
 */
#ifndef MF_KERNEL_OPTIONS_H
#define MF_KERNEL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *run;       /* run=read1,zipf,...: the workloads, in this order */
    const char *pool;      /* pool=core|2002 */
    const char *barrier;   /* barrier=ipi|fence, of pool=core */
    const char *flush;     /* flush=on|off: off is the negative control */
    uint32_t cpus;         /* 1 to CPUS_MAX */
    uint32_t slots;        /* of the window: a power of two, 64 to SLOTS_MAX */
    uint32_t batch;        /* slots evicted in one round; 0: half of them */
    uint32_t ops;          /* of each processor */
    uint32_t pages;        /* that zipf chooses from */
    uint32_t held;         /* percent of the slots that zipf keeps pinned all the time */
    uint32_t frames;       /* of highmem that verify touches; 0: all */
    uint32_t areas;        /* live at most in space */
    uint32_t inject;       /* every so-manieth install of pool=core fails for memory; 0: none */
    uint32_t instructions; /* 1: timestamps are instructions (qemu -icount): report them */
};

extern struct options options;

/* Reads the command line at this physical address. */
void options_read(uint32_t multiboot);

bool same_text(const char *a, const char *b);

#endif
