/* SPDX-License-Identifier: MIT */
/*
 * The rivals of the mapping benchmarks, and the program that all of its larger parts are: pieces of
 * one file are mapped, touched, kept in slots, and unmapped.
 *
 * A state (struct pieces) goes through series of one kind at a time:
 *   pieces_grow     maps into a new slot
 *   pieces_turn     maps, then unmaps the oldest, whose slot it takes
 *   pieces_release  unmaps one at random
 * It goes with its process: nothing gives it back.
 * What is drawn at random depends on the seed alone, so that both rivals do the same.
 */
#ifndef MAPFOLD_BENCH_PIECES_H
#define MAPFOLD_BENCH_PIECES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench.h"

enum { PIECES_BATCH = 250 };

/* mmap and munmap, or what stands for them. */
struct mapper {
    const char *name;
    void *(*map)(void *address, size_t length, int protection, int flags, int fd, off_t offset);
    int (*unmap)(void *address, size_t length);
};

extern const struct mapper mapper_kernel;
extern const struct mapper mapper_mapping; /* the mapping layer, as the drop-in calls it */

enum touch { UNTOUCHED, READ, WRITTEN }; /* the first byte of a piece */

struct pieces_plan {
    int protection;
    int flags;
    uint64_t file_bytes;
    bool sparse;        /* the file is one hole, else all its pages are in the page cache */
    uint32_t max_pages; /* a piece has 1 to so many */
    bool spread;        /* offsets at random, else 0 */
    enum touch touch;
};

struct pieces {
    const struct mapper *mapper;
    const struct pieces_plan *plan;
    int fd;
    uint64_t room;
    uint64_t live;
    uint64_t oldest;
    uint64_t random;
    uint64_t sum; /* of what was read */
    char **start; /* by slot */
    uint32_t *pages;
    struct {
        uint64_t slot;
        uint64_t offset;
        size_t length;
        char *start;
        char *old;
        size_t old_length;
    } batch[PIECES_BATCH];
};

extern const struct bench_series pieces_grow;
extern const struct bench_series pieces_turn;
extern const struct bench_series pieces_release;

/* The plan's file, for pieces_open and to be closed; -1 after telling why not. */
int pieces_file(const struct bench *bench, const struct pieces_plan *plan);

/* room: pieces that may be live at once. 0, or -1 after telling why not. */
int pieces_open(struct pieces *pieces, const struct mapper *mapper, const struct pieces_plan *plan,
                int fd, uint64_t room, uint64_t seed);
/* Maps so many, untimed. 0 or a negative errno. */
int pieces_fill(struct pieces *pieces, uint64_t count);
/* So many turns, untimed. */
int pieces_churn(struct pieces *pieces, uint64_t count);
/* Unmaps so many at random, untimed. */
int pieces_shed(struct pieces *pieces, uint64_t count);

#endif
