/* SPDX-License-Identifier: MIT */
/*
 * The systems of the window workload. Each reads single bytes of files its own way: a visit makes
 * the page of one byte readable, reads the byte, and lets go of the page. All get the same visits.
 *
 * A system is opened once in a process and goes with it; `run` may be called by many threads at
 * once.
 */
#ifndef MAPFOLD_BENCH_VISIT_H
#define MAPFOLD_BENCH_VISIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VISIT_PAGE = 4096, VISIT_COPY = 64 };

#define VISIT_INLINE static inline __attribute__((always_inline))

/* Which byte: of which file, and where in it. */
struct visit {
    uint32_t file;
    uint32_t offset;
};

/* What there is to visit, and what a cache may hold of it. */
struct visit_world {
    const char *const *paths; /* files to be opened by path; NULL: the one file of fd */
    int fd;
    uint32_t files;
    uint64_t file_bytes;
    uint64_t budget_bytes; /* mapped at once */
    uint32_t budget_maps;
    uint32_t budget_files; /* open descriptors */
    size_t extent;         /* of pools; 0: as the pool chooses */
};

struct visitor {
    const char *name;
    bool calls; /* each visit is a system call, at least: the clock costs less */
    /* Prepares what a program would before its first visit. 0 or a negative errno. */
    int (*open)(const struct visit_world *world, void **out);
    /* Visits and adds the bytes to *sum. 0 or a negative errno. */
    int (*run)(void *system, const struct visit *visits, size_t count, uint64_t *sum);
    /* The same, but each visit waits for the byte of the one before; or NULL. */
    int (*chain)(void *system, const struct visit *visits, size_t count, uint64_t *sum);
    /* How many of so many visits, all there were, did not find their piece in the cache; NULL where
     * there is none. */
    uint64_t (*misses)(void *system, uint64_t visits);
    /* Like run, but VISIT_COPY bytes from there on are copied, and the first is added; or NULL. */
    int (*copy)(void *system, const struct visit *visits, size_t count, uint64_t *sum);
    /* Opens a file of the world beside those that are visited, reads a byte of it where it is
     * mapped, and closes it; or NULL. */
    int (*come_and_go)(void *system, const struct visit_world *world, uint32_t file);
};

extern const struct visitor visitor_window;
extern const struct visitor visitor_local;
extern const struct visitor visitor_read; /* mf_read */
extern const struct visitor visitor_mmap;
extern const struct visitor visitor_whole;
extern const struct visitor visitor_pread;
extern const struct visitor visitor_lru;    /* lru_cache */
extern const struct visitor visitor_shared; /* shared_refcount */

extern const volatile uint32_t visit_zero; /* which the compiler cannot know */

/* In a chain, the visit that begins when the sum so far is known. */
VISIT_INLINE struct visit visit_after(struct visit visit, uint64_t sum, bool chained)
{
    if (chained)
        visit.offset += (uint32_t)sum & visit_zero;
    return visit;
}

static inline uint64_t visit_page(struct visit visit)
{
    return visit.offset & ~(uint32_t)(VISIT_PAGE - 1);
}

static inline uint32_t visit_byte(struct visit visit)
{
    return visit.offset & (VISIT_PAGE - 1);
}

/* Read where it is, each time. */
static inline uint64_t visit_read(const void *page, uint32_t at)
{
    return ((const volatile unsigned char *)page)[at];
}

#endif
