/* SPDX-License-Identifier: MIT */
/*
 * The databases that are open, and the pool that all of them share.
 *
 * All connections of a file share one mf_file, and so its extents: eight threads with a connection
 * each map a page once. It borrows the descriptor of the connection that came first, the lender.
 * When that is closed before the others, only its locks are given up; its file stays open until the
 * last of them goes. (The default VFS does likewise with descriptors that it may not close.) So a
 * fetch finds the same mf_file, without a lock, as long as its connection is open.
 *
 * The pool comes with the first database and goes with the last. Its budget is what the first asked
 * for: it is the process's, and extents are cut to fit it.
 */
#include "sqlite/vfs.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define BUDGET_DEFAULT (UINT64_C(256) << 20)

#define BUDGET_LARGE (UINT64_C(1) << 30)

enum {
    EXTENT_MIN = 16 << 10,   /* less would be all edges: fetch.c reads an extent's last page */
    EXTENT_SMALL = 64 << 10, /* what the kernel maps at one fault */
    KEEP_MAX = 64,           /* extents */
    MAPS_SPARE = 64,         /* for what the SIGBUS handler puts in the place of lost pages */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Under it, as are the list and the counts of connections: */
static struct database *databases;
static struct mf_pool *pool;
static uint32_t pool_users, pool_shift;
static uint64_t pool_budget;
static _Atomic bool pool_full; /* relaxed: as last seen by anybody */

static uint64_t power_below(uint64_t value)
{
    return UINT64_C(1) << (63 - __builtin_clzll(value));
}

/*
 * Into a small budget small extents fit more of what is hot: a thousand. A large one mostly holds
 * all there is, and 256 extents keep the pool's own tables in the processor's cache.
 */
static uint64_t choose_extent(uint64_t budget)
{
    if (budget >= BUDGET_LARGE)
        return power_below(budget / 256);
    if (budget >= UINT64_C(1024) * EXTENT_SMALL)
        return power_below(budget / 1024);
    const uint64_t eighth = power_below(budget / 8);
    return eighth > EXTENT_SMALL ? EXTENT_SMALL : eighth < EXTENT_MIN ? EXTENT_MIN : eighth;
}

static int take_pool_locked(uint64_t budget)
{
    if (pool) {
        if (budget && budget != pool_budget)
            sqlite3_log(SQLITE_NOTICE,
                        "mapfold: the budget stays at %llu bytes, which the first open database "
                        "asked for, not %llu",
                        (unsigned long long)pool_budget, (unsigned long long)budget);
        pool_users++;
        return 0;
    }
    pool_budget = budget ? budget : BUDGET_DEFAULT;
    const uint64_t extent = choose_extent(pool_budget);
    const uint64_t maps = pool_budget / extent + MAPS_SPARE;
    const struct mf_pool_limits limits = {
        .bytes = pool_budget, .maps = maps < 65536 ? (uint32_t)maps : 65536, .files = 1};
    const int err = mf_pool_create(&limits, extent, 0, &pool);
    if (err)
        return err;
    pool_shift = (uint32_t)__builtin_ctzll(extent);
    pool_users = 1;
    atomic_store_explicit(&pool_full, false, memory_order_relaxed);
    return 0;
}

static void put_pool_locked(void)
{
    if (--pool_users)
        return;
    mf_pool_destroy(pool); /* nothing is pinned, and no file open: it cannot refuse */
    pool = NULL;
}

static struct database *find_locked(const struct identity *identity)
{
    for (struct database *database = databases; database; database = database->next) {
        if (database->identity.device == identity->device &&
            database->identity.inode == identity->inode)
            return database;
    }
    return NULL;
}

static int make_locked(int fd, const struct identity *identity, struct backing *lender,
                       uint64_t budget, struct database **out)
{
    struct database *database = sqlite3_malloc64(sizeof(*database));
    if (!database)
        return -ENOMEM;
    memset(database, 0, sizeof(*database));
    int err = take_pool_locked(budget);
    if (!err && (err = mf_file_from_fd(pool, fd, 0, &database->file)) != 0)
        put_pool_locked();
    if (err) {
        sqlite3_free(database);
        return err;
    }
    database->identity = *identity;
    database->lender = lender;
    database->shift = pool_shift;
    const uint64_t quarter = pool_budget >> pool_shift >> 2;
    database->keep = quarter < KEEP_MAX ? (uint32_t)quarter : KEEP_MAX;
    database->listed = true;
    database->next = databases;
    databases = database;
    *out = database;
    return 0;
}

struct database *database_get(struct backing *backing, uint64_t budget)
{
    struct identity identity;
    const int fd = descriptor_of(backing->file, &identity);
    int err = fd < 0 ? -EBADF : mf_fault_install();
    struct database *database = NULL;
    if (!err) {
        pthread_mutex_lock(&mutex);
        database = find_locked(&identity);
        if (!database)
            err = make_locked(fd, &identity, backing, budget, &database);
        if (database)
            database->connections++;
        pthread_mutex_unlock(&mutex);
    }
    if (!database)
        sqlite3_log(SQLITE_WARNING, "mapfold: the pages of %s are read, not mapped: %s",
                    backing->name, fd < 0 ? "the default VFS shows no descriptor" : strerror(-err));
    return database;
}

static void unlist_locked(struct database *database)
{
    struct database **link = &databases;
    while (*link != database && *link)
        link = &(*link)->next;
    if (*link)
        *link = database->next;
    database->listed = false;
}

int database_put(struct database *database, struct backing *backing)
{
    struct backing *const lender = database->lender;
    if (backing == lender) { /* it may stay open, but must not stand in anybody's way */
        const sqlite3_io_methods *methods = backing->file->pMethods;
        methods->xUnlock(backing->file, SQLITE_LOCK_NONE);
        if (methods->iVersion >= 2)
            methods->xShmUnmap(backing->file, 0);
    }
    pthread_mutex_lock(&mutex);
    const bool last = --database->connections == 0;
    if (last) {
        if (database->listed)
            unlist_locked(database);
        mf_file_close(database->file); /* before its descriptor */
        put_pool_locked();
    }
    pthread_mutex_unlock(&mutex);
    if (last) {
        sqlite3_free(database);
        if (lender != backing)
            backing_close(lender);
    } else if (lender == backing) {
        return SQLITE_OK;
    }
    return backing_close(backing);
}

void database_fail(struct database *database)
{
    /* Later connections get a new database: the file may have been put right. */
    pthread_mutex_lock(&mutex);
    if (database->listed)
        unlist_locked(database);
    pthread_mutex_unlock(&mutex);
    if (!atomic_exchange_explicit(&database->failed, true, memory_order_relaxed))
        sqlite3_log(SQLITE_IOERR,
                    "mapfold: pages of %s vanished while they were in use: was it truncated? "
                    "close all connections to it",
                    database->lender->name);
}

void database_stats(struct mf_pool_stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    pthread_mutex_lock(&mutex);
    if (pool)
        mf_pool_stats(pool, stats);
    pthread_mutex_unlock(&mutex);
}

/* The pool stays as long as a database is open, and its budget as it is: no lock. */
bool database_has_room(const struct database *database)
{
    struct mf_pool_stats stats;
    mf_pool_stats(pool, &stats);
    const bool room = stats.bytes_mapped + (UINT64_C(1) << database->shift) <= pool_budget;
    atomic_store_explicit(&pool_full, !room, memory_order_relaxed);
    return room;
}

bool database_pool_is_full(void)
{
    return atomic_load_explicit(&pool_full, memory_order_relaxed);
}
