/* SPDX-License-Identifier: MIT */
/*
 * What xFetch hands out. A hold is a window of one extent and the number of pages of it that SQLite
 * has. xUnfetch tells offset and pointer, and the holds are found by the extent's number. A hold
 * without pages is kept for the next page of its extent, but not beyond the transaction, not more
 * than database->keep of them, and not when the budget is full: what is pinned cannot be evicted.
 *
 * Not every page is handed out; SQLite then reads it, which is always right:
 *  - While the budget has room, an extent is mapped when a page of it is wanted. When it is full,
 *    admission.c says which are worth another's going; pages of the rest are read.
 *  - After a damaged page SQLite may read OVERREAD bytes, which must be there: neither the last
 *    page of an extent nor that of the file is handed out. (SQLite's own VFS keeps such a
 *    distance.)
 *  - Nothing waits: when all of the budget is pinned, pages are read.
 *
 * The size. A page is handed out only if the file was seen to be long enough under the lock that
 * SQLite now holds: SQLite asks for the size when a rollback-mode transaction begins, and gives
 * back everything (xUnfetch of NULL) when a WAL has changed. The kernel keeps a shared mapping
 * coherent however the file is cut and grown, so there is nothing to unmap then.
 *
 * Lost pages. Only who cuts a file without SQLite's locks takes pages away that are in use; then
 * the SIGBUS handler marks the extent. The mark is looked for when a page is given back, at a fetch
 * under the page fetched before, and at reads and locks under all.
 */
#include "sqlite/vfs.h"

#include <errno.h>
#include <string.h>

enum {
    OVERREAD = 256, /* bytes */
    BUCKETS = 64,
    ROOM_EVERY = 4096, /* misses under a full budget, until it is looked at again */
    LOOKED_AT = 8,     /* holds, newest first, that a fetch looks at for lost pages; xRead: all */
};

struct hold {
    struct mf_window window; /* from the extent's first byte on */
    uint64_t extent;         /* offset >> shift */
    uint32_t pages;          /* that SQLite has; 0: the hold is idle */
    struct hold *chain;      /* in its bucket */
    struct hold *next, *before;
};

struct fetcher {
    struct database *database;
    int64_t limit;       /* bytes from the start of the file */
    uint64_t size;       /* of the file, bytes */
    struct hold *newest; /* all holds, by next */
    struct hold *recent; /* the one last fetched from, if it is still there */
    struct hold *spare;  /* by next */
    struct hold *buckets[BUCKETS];
    uint32_t idle;          /* holds */
    uint64_t last;          /* extent + 1: of the page last wanted without a hold */
    int64_t last_offset;    /* of that page */
    bool missed;            /* it was not handed out */
    uint32_t full;          /* misses for which it is taken to be full */
    uint64_t fetched, read; /* pages */
    uint64_t windows;
};

struct fetcher *fetcher_make(struct database *database)
{
    struct fetcher *fetcher = sqlite3_malloc64(sizeof(*fetcher));
    if (!fetcher)
        return NULL;
    memset(fetcher, 0, sizeof(*fetcher));
    fetcher->database = database;
    return fetcher;
}

static void fail(struct fetcher *fetcher)
{
    database_fail(fetcher->database);
}

static void give_back(struct fetcher *fetcher, struct hold *hold)
{
    struct hold **link = &fetcher->buckets[hold->extent % BUCKETS];
    while (*link != hold)
        link = &(*link)->chain;
    *link = hold->chain;
    if (hold->next)
        hold->next->before = hold->before;
    *(hold->before ? &hold->before->next : &fetcher->newest) = hold->next;
    if (hold == fetcher->recent)
        fetcher->recent = NULL;
    if (mf_window_unpin(&hold->window) == -EIO)
        fail(fetcher);
    hold->next = fetcher->spare;
    fetcher->spare = hold;
}

void fetcher_rest(struct fetcher *fetcher)
{
    if (!fetcher->idle)
        return;
    for (struct hold *hold = fetcher->newest, *next; hold; hold = next) {
        next = hold->next;
        if (!hold->pages)
            give_back(fetcher, hold);
    }
    fetcher->idle = 0;
}

void fetcher_free(struct fetcher *fetcher)
{
    while (fetcher->newest)
        give_back(fetcher, fetcher->newest);
    for (struct hold *hold = fetcher->spare, *next; hold; hold = next) {
        next = hold->next;
        sqlite3_free(hold);
    }
    sqlite3_free(fetcher);
}

struct database *fetcher_database(const struct fetcher *fetcher)
{
    return fetcher->database;
}

static bool has_failed(struct fetcher *fetcher, const struct hold *hold)
{
    if (mf_window_check(&hold->window) != -EIO)
        return false;
    fail(fetcher);
    return true;
}

bool fetcher_failed(struct fetcher *fetcher)
{
    bool failed = atomic_load_explicit(&fetcher->database->failed, memory_order_relaxed);
    for (const struct hold *hold = fetcher->newest; hold && !failed; hold = hold->next)
        failed = has_failed(fetcher, hold);
    return failed;
}

void fetcher_set_size(struct fetcher *fetcher, int64_t size)
{
    fetcher->size = (uint64_t)size;
}

int64_t fetcher_limit(struct fetcher *fetcher, int64_t limit)
{
    const int64_t old = fetcher->limit;
    if (limit >= 0)
        fetcher->limit = limit;
    return old;
}

static bool has_room(struct fetcher *fetcher)
{
    if (fetcher->full) {
        fetcher->full--;
        return false;
    }
    if (database_has_room(fetcher->database))
        return true;
    fetcher->full = ROOM_EVERY;
    fetcher_rest(fetcher);
    return false;
}

/* Whether a page only goes on, as a scan does, in the extent where the page before was: that is no
 * second wish for it. One that comes again is. */
static bool goes_on(struct fetcher *fetcher, uint64_t extent, int64_t offset)
{
    const bool on = fetcher->last == extent + 1 && offset > fetcher->last_offset;
    fetcher->last = extent + 1;
    fetcher->last_offset = offset;
    return on;
}

/* 0; -EAGAIN: read it; -EIO. */
static int pin(struct fetcher *fetcher, uint64_t extent, int64_t offset, struct mf_window *window)
{
    struct database *database = fetcher->database;
    const bool on = goes_on(fetcher, extent, offset);
    if (on && fetcher->missed)
        return -EAGAIN; /* as for the page before */
    const uint64_t start = extent << database->shift, whole = UINT64_C(1) << database->shift;
    const uint64_t left = fetcher->size - start;
    const uint64_t extents = ((fetcher->size - 1) >> database->shift) + 1;
    const size_t length = left < whole ? left : whole;
    int err = mf_window_pin(database->file, start, length, MF_IF_MAPPED, MF_NOWAIT, window);
    if (err == 0 && fetcher->full && !on)
        admission_hit(&database->admission, extent, extents);
    if (err == -EAGAIN &&
        (has_room(fetcher) || (!on && admission_wish(&database->admission, extent, extents))))
        err = mf_window_pin(database->file, start, length, 0, MF_NOWAIT, window);
    fetcher->missed = err != 0;
    if (!err && window->flags & MF_WINDOW_COPY) { /* a file system that the pool does not map */
        mf_window_unpin(window);
        fetcher->limit = 0;
        return -EAGAIN;
    }
    return err == 0 || err == -EIO ? err : -EAGAIN;
}

static struct hold *hold_find(const struct fetcher *fetcher, uint64_t extent)
{
    struct hold *hold = fetcher->buckets[extent % BUCKETS];
    while (hold && hold->extent != extent)
        hold = hold->chain;
    return hold;
}

static int hold_make(struct fetcher *fetcher, uint64_t extent, int64_t offset, struct hold **out)
{
    struct hold *hold = fetcher->spare;
    if (hold)
        fetcher->spare = hold->next;
    else if (!(hold = sqlite3_malloc64(sizeof(*hold))))
        return -EAGAIN;
    memset(hold, 0, sizeof(*hold));
    const int err = pin(fetcher, extent, offset, &hold->window);
    if (err) {
        hold->next = fetcher->spare;
        fetcher->spare = hold;
        return err;
    }
    hold->extent = extent;
    hold->chain = fetcher->buckets[extent % BUCKETS];
    fetcher->buckets[extent % BUCKETS] = hold;
    hold->next = fetcher->newest;
    if (hold->next)
        hold->next->before = hold;
    fetcher->newest = hold;
    fetcher->windows++;
    *out = hold;
    return 0;
}

/* Whether the file is seen to reach that far; asks the default VFS where it was not. */
static bool is_in_file(struct fetcher *fetcher, const struct backing *backing, uint64_t end)
{
    if (end <= fetcher->size)
        return true;
    sqlite3_int64 size;
    if (backing->file->pMethods->xFileSize(backing->file, &size) != SQLITE_OK)
        return false;
    fetcher->size = (uint64_t)size;
    return end <= fetcher->size;
}

int fetcher_fetch(struct fetcher *fetcher, const struct backing *backing, int64_t offset,
                  int amount, void **page)
{
    *page = NULL;
    if (atomic_load_explicit(&fetcher->database->failed, memory_order_relaxed) ||
        (fetcher->recent && has_failed(fetcher, fetcher->recent)))
        return SQLITE_IOERR_MMAP;
    const uint32_t shift = fetcher->database->shift;
    const uint64_t end = (uint64_t)offset + (uint64_t)amount + OVERREAD;
    const uint64_t extent = (uint64_t)offset >> shift;
    if (offset + amount > fetcher->limit || (end - 1) >> shift != extent ||
        !is_in_file(fetcher, backing, end)) {
        fetcher->read++;
        return SQLITE_OK;
    }
    const uint64_t within = (uint64_t)offset - (extent << shift);
    struct hold *hold = hold_find(fetcher, extent);
    /* An extent has several where the file has grown since; the newest is looked at. */
    const bool fresh = !hold || within + (uint64_t)amount + OVERREAD > hold->window.length;
    if (fresh) {
        const int err = hold_make(fetcher, extent, offset, &hold);
        if (err == -EIO) {
            fail(fetcher);
            return SQLITE_IOERR_MMAP;
        }
        if (err) {
            fetcher->read++;
            return SQLITE_OK;
        }
    }
    if (hold->pages++ == 0 && !fresh)
        fetcher->idle--;
    fetcher->fetched++;
    fetcher->recent = hold;
    *page = (char *)(uintptr_t)hold->window.data + within;
    return SQLITE_OK;
}

void fetcher_unfetch(struct fetcher *fetcher, int64_t offset, const void *page)
{
    const uint64_t extent = (uint64_t)offset >> fetcher->database->shift;
    if (!page) {
        fetcher_rest(fetcher);
        fetcher->size = 0;
        return;
    }
    for (struct hold *hold = hold_find(fetcher, extent); hold; hold = hold->chain) {
        if (hold->extent != extent ||
            (uintptr_t)page - (uintptr_t)hold->window.data >= hold->window.length)
            continue;
        if (--hold->pages)
            return;
        if (fetcher->idle == fetcher->database->keep || database_pool_is_full()) {
            give_back(fetcher, hold);
            return;
        }
        fetcher->idle++;
        has_failed(fetcher, hold);
        return;
    }
}

char *fetcher_describe(const struct fetcher *fetcher)
{
    struct mf_pool_stats stats;
    database_stats(&stats);
    return sqlite3_mprintf("fetched %llu, read %llu, windows %llu; all databases: %llu bytes in "
                           "%u maps, %llu misses, %llu evicted",
                           fetcher->fetched, fetcher->read, fetcher->windows, stats.bytes_mapped,
                           stats.maps, stats.misses, stats.evicted);
}
