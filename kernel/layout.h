/* SPDX-License-Identifier: MIT */
/*
 * Where things are in the kernel's 4 GiB, for C and assembler. Each begins at a multiple of 2 MiB,
 * so that its page tables are its own.
 *
 *     USER    a user's memory (user.c)
 *     DIRECT  the first LOWMEM_MAX bytes of memory, always mapped; the kernel is in there
 *     WINDOW  the slots of the kmap pool
 *     LOCAL   kmap_local: for each processor a page table, of which it uses LOCAL_DEPTH pages
 *     VMAP    areas placed by a space (vmap.c)
 */
#ifndef MF_KERNEL_LAYOUT_H
#define MF_KERNEL_LAYOUT_H

#define CPUS_MAX 32
#define STACK_BYTES 8192
#define TRAMPOLINE 0x8000 /* physical: a page below 1 MiB */

#define USER 0x10000000
#define USER_END 0x18000000
#define DIRECT 0xc0000000
#define LOWMEM_MAX 0x30000000
#define WINDOW 0xf0000000
#define SLOTS_MAX 4096
#define LOCAL 0xf2000000
#define LOCAL_STRIDE 0x200000
#define LOCAL_DEPTH 16
#define VMAP 0xf6000000
#define VMAP_END 0xfe000000
#define APIC_PAGE 0xfee00000 /* at its physical address */

#endif
