/* SPDX-License-Identifier: MIT */
/* The database that bench sqlite reads, in a directory of its own that goes with the command. */
#ifndef MAPFOLD_BENCH_SQLITE_FILE_H
#define MAPFOLD_BENCH_SQLITE_FILE_H

#include <limits.h>
#include <sqlite3.h>

#include "bench.h"
#include "guarded_dir.h"

struct sqlite_file {
    struct guarded_dir directory;
    char path[PATH_MAX + 16];
    uint64_t rows;
};

/*
 * Makes a database of one table, t(id INTEGER PRIMARY KEY, x BLOB), ids from 1 to rows, x
 * SQLITE_FILE_ROW bytes that begin with the id. However this process ends, it is removed then.
 * 0, or -1 after telling why.
 */
enum { SQLITE_FILE_ROW = 200 };
int sqlite_file_make(const struct bench *bench, uint64_t rows, struct sqlite_file *file);
void sqlite_file_remove(struct sqlite_file *file);

/* Tells what SQLite says of the database; returns -1. */
int sqlite_file_error(const struct sqlite_file *file, sqlite3 *db, const char *what);

#endif
