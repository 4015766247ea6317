/* SPDX-License-Identifier: MIT */
/*
 * user: a user's memory as the kernel sees it, and copies between it and pages.
 *
 *  - An area's pages are missing until they are touched. Who touches one sleeps in the page fault
 *    until a pager, a thread of another processor, has filled it; then the instruction goes on.
 *  - copy_to_page and copy_from_page take any buffer. They keep the page mapped (kmap) while they
 *    sleep for the buffer's pages. Where the buffer is no user's memory the copy ends there: the
 *    result is the number of bytes that were copied.
 *  - user_map is called while nobody faults; the rest by any thread that may sleep.
 */
#ifndef MF_KERNEL_USER_H
#define MF_KERNEL_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/memory.h"

void user_start(void);

/* An area of so many pages that will be these pages of highmem, with a hole behind it; 0: none. */
uintptr_t user_map(uint32_t pages, uint32_t highmem);

/* Makes these pages missing again; what was written to them is lost. */
void user_discard(uintptr_t address, uint32_t pages);

/* What a pager puts at an address that is a multiple of 4. */
uint32_t user_word(uintptr_t address);

/* A page fault: true if the page is there now. */
bool user_fault(uintptr_t address, uint32_t error);

/* What one thread of each processor does until user_pagers_stop; before, all others have begun. */
void user_pager(void);
void user_pagers_stop(void);

/* Bytes copied, from the user's buffer and to it; offset + n is at most PAGE. */
size_t copy_to_page(struct page *page, size_t offset, uintptr_t from, size_t n);
size_t copy_from_page(uintptr_t to, struct page *page, size_t offset, size_t n);

#endif
