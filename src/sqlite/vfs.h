/* SPDX-License-Identifier: MIT */
/*
 * The VFS `mapfold`: a shim over SQLite's default VFS that differs from it in one thing, xFetch and
 * xUnfetch: they hand out windows of one pool, which all databases of the process share.
 *
 *   connection (connection.c)  SQLite's sqlite3_file of a main database, over
 *   backing (backing.c)        a file of the default VFS, which does all but the fetching
 *   fetcher (fetch.c)          a connection's windows, and how many pages of each SQLite has
 *   admission (admission.c)    what a full budget is spent on
 *   database (database.c)      one for each file that is open through this VFS: its mf_file, shared
 *                              by its connections, and the backing whose descriptor that borrows
 *
 * Rules:
 *  - Only main databases opened with mapfold_faults=1 have a fetcher and hand out pointers. Their
 *    pages may vanish (another process truncates the file) only under the SIGBUS handler.
 *  - Journals, WALs and temporary files are the default VFS's own, without a shim.
 *  - A connection is used by one thread at a time: SQLite sees to it, and nothing in it is locked.
 *    What connections share is under one mutex (database.c), which no fetch takes.
 *  - No descriptor is opened, closed or duplicated here. Closing any descriptor of a file drops all
 *    POSIX locks that the process has on it; the default VFS knows when it may do so.
 */
#ifndef MF_SQLITE_VFS_H
#define MF_SQLITE_VFS_H

#include <mapfold/window.h>
#include <sqlite3ext.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sqlite/admission.h"

SQLITE_EXTENSION_INIT3

/* vfs.c */
extern sqlite3_vfs *default_vfs;
struct identity {
    uint64_t device, inode;
};
/* The descriptor by which the default VFS reads this file, and what that is; or -1. */
int descriptor_of(sqlite3_file *file, struct identity *identity);

/* options.c */
struct options {
    bool faults;
    uint64_t budget; /* bytes; 0: not given */
};
/* SQLITE_OK, or SQLITE_CANTOPEN after sqlite3_log said why. */
int options_read(const char *name, struct options *options);

/* backing.c */
struct backing {
    const char *name; /* the default VFS keeps the pointer for as long as the file is open */
    sqlite3_file *file;
};
struct backing *backing_make(const char *name); /* not yet open; NULL: no memory */
int backing_close(struct backing *backing);     /* closes it if it is open, and frees it */

/* connection.c */
struct connection {
    sqlite3_file base; /* first: what SQLite sees */
    sqlite3_io_methods methods;
    struct backing *backing;
    struct fetcher *fetcher; /* NULL: pages are only read */
};
int connection_open(const char *name, sqlite3_file *file, int flags, int *out_flags);

/* database.c */
struct database {
    struct database *next;
    struct identity identity;
    struct mf_file *file;   /* borrows the descriptor of */
    struct backing *lender; /* which stays open as long as there are connections */
    uint32_t connections;
    uint32_t shift;      /* an extent is 1 << shift bytes */
    uint32_t keep;       /* extents that a connection may keep pinned without using them */
    bool listed;         /* later connections find it */
    _Atomic bool failed; /* a page vanished: reads of this file fail from here on */
    struct admission admission;
};
/* The database of an open file, or NULL where none can be had, after sqlite3_log said why. */
struct database *database_get(struct backing *backing, uint64_t budget);
/* Lets go of it and closes the connection's backing, now or, if it is lent, with the last one. */
int database_put(struct database *database, struct backing *backing);
void database_fail(struct database *database);
/* What the pool of all databases does; zeros where there is none. */
void database_stats(struct mf_pool_stats *stats);
/* Whether another extent can be mapped without another's going. Of one that is open. */
bool database_has_room(const struct database *database);
/* Whether the last look found none. */
bool database_pool_is_full(void);

/* fetch.c */
struct fetcher *fetcher_make(struct database *database); /* NULL: no memory */
void fetcher_free(struct fetcher *fetcher);              /* windows still out are given back */
struct database *fetcher_database(const struct fetcher *fetcher);
/* As xFetch and xUnfetch; `backing` is asked for the size. */
int fetcher_fetch(struct fetcher *fetcher, const struct backing *backing, int64_t offset,
                  int amount, void **page);
void fetcher_unfetch(struct fetcher *fetcher, int64_t offset, const void *page);
/* Gives back what is only kept: at the end of a transaction. */
void fetcher_rest(struct fetcher *fetcher);
/* Whether a page has vanished under a window of this database. Looks at all that are out here. */
bool fetcher_failed(struct fetcher *fetcher);
/* The size as the default VFS has just told it, in bytes; 0: to be asked for when it matters. */
void fetcher_set_size(struct fetcher *fetcher, int64_t size);
/* Sets the limit of PRAGMA mmap_size, if it is not negative. The old one. */
int64_t fetcher_limit(struct fetcher *fetcher, int64_t limit);
/* A line for PRAGMA mapfold_stats, from sqlite3_malloc; NULL: no memory. */
char *fetcher_describe(const struct fetcher *fetcher);

#endif
