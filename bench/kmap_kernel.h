/* SPDX-License-Identifier: MIT */
/*
 * The kernel's rows of kmap_lock: the same pool, and the mail's, as the kmap of the 32-bit kernel
 * in kernel/, which kernel/rows.py boots in QEMU. Counts, no times.
 */
#ifndef MAPFOLD_BENCH_KMAP_KERNEL_H
#define MAPFOLD_BENCH_KMAP_KERNEL_H

#include <stdio.h>

#include "bench.h"

/* Boots it, where this command lies beside its sources and qemu-system-i386 is installed; its rows
 * are printed at once (--json) or kept. An exit status of the command; OK where it cannot be. */
int kmap_kernel_run(const struct bench *bench);

/* The table of the rows that were kept, or why there are none. */
void kmap_kernel_print(FILE *out);

#endif
