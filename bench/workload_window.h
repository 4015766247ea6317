/* SPDX-License-Identifier: MIT */
/* What the files of the window workload share: its parts, and one run of one of them. */
#ifndef MAPFOLD_BENCH_WORKLOAD_WINDOW_H
#define MAPFOLD_BENCH_WORKLOAD_WINDOW_H

#include "bench.h"
#include "in_child.h"
#include "visit.h"

enum { WINDOW_THREADS = 2, WINDOW_ROUNDS = 5 };

struct window_part;

/* One system on one part, in a child process. */
struct window_run {
    struct bench *bench;
    const struct window_part *part;
    const struct visitor *visitor;
    struct visit_world world;
};

struct window_part {
    const char *name;
    const char *title;
    int (*run)(const struct window_run *run, struct child_rows *rows);
    uint32_t files;      /* by path, unless --n says else; 0: one without a name */
    uint32_t quick;      /* the same with --quick */
    uint64_t file_bytes; /* of each */
    uint64_t budget;     /* bytes mapped at once; 0: all of it */
    size_t extent;       /* of pools; 0: as they choose */
    bool zipf;
    uint16_t sampled; /* visits timed together for the percentiles; 1: single ones */
    bool copies;      /* VISIT_COPY bytes a visit are copied */
    bool chained;     /* each visit waits for the byte of the one before */
};

int window_visits(const struct window_run *run, struct child_rows *rows);
int window_readers(const struct window_run *run, struct child_rows *rows);

/* A slice of time that a measurement takes. */
uint64_t window_slice(const struct bench *bench);

/* Visits by one thread. */
enum { VISIT_BATCH = 2048 };
struct visiting {
    const struct window_run *run;
    void *system;
    const struct draw *draw;
    uint64_t random;
    uint64_t sum;
    uint64_t visits;
    struct visit batch[VISIT_BATCH];
};

/*
 * How visits are drawn: a file (by Zipf's law with exponent 0.99, or uniformly), and a page of it.
 * A page is visited at one byte, as at a header; its place differs from page to page, so that the
 * processor's caches are used evenly.
 */
struct draw {
    uint32_t files;
    uint32_t pages;          /* of each */
    uint32_t *limit, *other; /* Walker's alias tables; NULL: uniformly */
};
int draw_open(struct draw *draw, uint32_t files, uint32_t pages, bool zipf);
struct visit draw_visit(const struct draw *draw, uint64_t *random);

/* A series over struct visiting. */
int visiting_prepare(void *state, size_t count);
int visiting_run(void *state, size_t first, size_t count);

/* Visits that bring what fits into the caches: all pages in turn where all fit, else at random. */
int visiting_warm(struct visiting *visiting);

/* The median by ns_per_op; sorts. */
struct bench_time median_time(struct bench_time *times, size_t count);

#endif
