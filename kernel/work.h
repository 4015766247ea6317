/* SPDX-License-Identifier: MIT */
/*
 * work: what the workloads have in common: their list, figures, chance.
 *
 * A workload checks contents as it goes, prints JSON objects, one a line, and says whether all was
 * right. What it counts is counted by those who do it (struct cpu_counts, struct kmap_counts):
 * figures_begin and figures_end take the difference, while all threads stand still.
 */
#ifndef MF_KERNEL_WORK_H
#define MF_KERNEL_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/cpu.h"
#include "kernel/kmap.h"

/* Who uses which pages of highmem, by number. */
enum {
    PAGES_CACHE = 0,      /* CACHE_PAGES of cache.h */
    PAGES_USER = 2048,    /* copyuser: buffers, and pages to copy from and to */
    PAGES_EXHAUST = 8192, /* a page for each pin */
    PAGES_SPACE = 16384,  /* for each processor 64, then the table of areas */
    PAGES_VERIFY = 32768, /* zipf and verify: all the rest */
};

struct workload {
    const char *name;
    bool (*run)(void);
};

/* NULL: there is none of that name. */
const struct workload *work_find(const char *name);

bool work_read1(void);
bool work_zipf(void);
bool work_verify(void);
bool work_exhaust(void);
bool work_copyuser(void);
bool work_space(void);

struct figures {
    struct cpu_counts cpu;
    struct kmap_counts kmap;
    uint64_t time;
};

void figures_begin(struct figures *figures);
void figures_end(struct figures *figures);

/* Prints a line. map, kind: what distinguishes it from other lines of the workload. errors:
 * contents that were wrong. */
void figures_print(const struct figures *figures, const char *workload, const char *map,
                   const char *kind, uint64_t ops, uint32_t errors);

/* Pseudo-random numbers; the state is never 0. */
static inline uint32_t random32(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* 0 to n - 1 */
static inline uint32_t random_below(uint32_t *state, uint32_t n)
{
    return (uint32_t)((uint64_t)random32(state) * n >> 32);
}

/* A fixed scattering of numbers: what a page must contain, and who is to write it. */
static inline uint32_t scatter(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352d;
    x = (x ^ x >> 15) * 0x846ca68b;
    return x ^ x >> 16;
}

#endif
