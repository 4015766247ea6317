/* SPDX-License-Identifier: MIT */
/*
 * cache: the pages of one file that are in memory, in pages of highmem.
 *
 *  - cache_get finds a page, reads it in if need be, and maps it: by kmap, or for this processor
 *    alone. cache_put ends that. The mapping is the only reference there is: a page that is mapped
 *    stays in the cache, and counting it costs no shared line.
 *  - A lookup takes no lock. Finding a page to reuse takes the lock of this processor's share of
 *    the pages; there is none for all of them.
 *  - cache_get may sleep, also where it then maps the page locally.
 */
#ifndef MF_KERNEL_CACHE_H
#define MF_KERNEL_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { CACHE_FILE_PAGES = 8192, CACHE_PAGES = 2048 };

/* Uses CACHE_PAGES pages of highmem, from that number on. */
void cache_start(uint32_t highmem);

const uint32_t *cache_get(uint32_t index, bool local);
void cache_put(uint32_t index, bool local);

/* What the file holds. */
uint32_t cache_word(uint32_t index, uint32_t word);

#endif
