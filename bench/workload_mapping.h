/* SPDX-License-Identifier: MIT */
/* What the two files of the mapping workload share: its parts, and one run of one of them. */
#ifndef MAPFOLD_BENCH_WORKLOAD_MAPPING_H
#define MAPFOLD_BENCH_WORKLOAD_MAPPING_H

#include "bench.h"
#include "in_child.h"
#include "pieces.h"

struct run;

struct part {
    const char *name;
    const char *title;
    /* In a child process. CLI_OK, or CLI_FAILURE after telling why. */
    int (*run)(const struct run *run, struct child_rows *rows);
    uint64_t total; /* n: live pieces, or operations where one piece at a time is live */
    uint64_t quick; /* the same with --quick */
    unsigned threads;
    struct pieces_plan plan;
};

struct run {
    struct bench *bench;
    const struct part *part;
    const struct mapper *mapper; /* NULL: both, in turns */
    uint64_t n;
    uint64_t until; /* when to give up, by bench_now() */
    unsigned threads;
};

int part_grow(const struct run *run, struct child_rows *rows);
int part_window(const struct run *run, struct child_rows *rows);
int part_sparse(const struct run *run, struct child_rows *rows);
int part_files(const struct run *run, struct child_rows *rows);

int calls_one(const struct run *run, struct child_rows *rows);
int calls_once(const struct run *run, struct child_rows *rows);
int calls_first(const struct run *run, struct child_rows *rows);
int calls_passed(const struct run *run, struct child_rows *rows);

/* The row's note, where a series ended with an error and so many live. */
void explain_end(struct bench_row *row, int error, uint64_t live);
void take_time(struct bench_row *row, const struct bench_time *time);

#endif
