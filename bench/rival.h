/* SPDX-License-Identifier: MIT */
/*
 * The rivals of the space benchmarks: things that give out address ranges. All of them get the same
 * sequence of calls, and those that say `agrees` must answer it with the same addresses.
 */
#ifndef MAPFOLD_BENCH_RIVAL_H
#define MAPFOLD_BENCH_RIVAL_H

#include <stdbool.h>
#include <stdint.h>

enum { PAGE_SHIFT = 12 };

/* Where the rivals that only compute look for addresses: what a process has for its maps. */
#define RIVAL_LOW UINT64_C(0x10000)
#define RIVAL_LAST UINT64_C(0x7fffffffffff)

struct rival_setup {
    uint64_t areas; /* live at once, at most */
    int fd;         /* kernel: the file to map, or -1 */
    bool anonymous; /* kernel: anonymous memory instead */
};

struct rival {
    const char *name;
    bool agrees;   /* places at the lowest address that fits */
    bool computes; /* only computes: no mapping is made */
    /* All return 0 or a negative errno. create tells the error itself. */
    int (*create)(const struct rival_setup *setup, void **out);
    void (*destroy)(void *rival);
    /* A piece of `pages` pages whose owner's offset is `offset` bytes. */
    int (*place)(void *rival, uint32_t pages, uint64_t offset, uint64_t *start);
    int (*remove)(void *rival, uint64_t start, uint32_t pages);
    /* The start of the area that holds the address; NULL where there is no such call. */
    int (*find)(void *rival, uint64_t address, uint64_t *start);
    /* Metadata, divided by the areas; NULL where that cannot be known. */
    double (*bytes_per_area)(void *rival);
};

extern const struct rival rival_mapfold;
extern const struct rival rival_linear;
extern const struct rival rival_rbtree;
extern const struct rival rival_kernel;
extern const struct rival rival_mapping; /* only for a file, and only within it */

#endif
