/* SPDX-License-Identifier: MIT */
/*
 * A main database, as SQLite sees it. All calls go to the default VFS's file behind it, except:
 * fetches (fetch.c); PRAGMA mmap_size, of which the default VFS is told 0, so that it maps nothing
 * itself; and after a page has vanished all reads, locks and fetches, which fail.
 */
#include "sqlite/vfs.h"

#include <string.h>

static struct connection *connection_of(sqlite3_file *file)
{
    return (struct connection *)(void *)file;
}

static sqlite3_file *below(sqlite3_file *file)
{
    return connection_of(file)->backing->file;
}

static bool has_failed(sqlite3_file *file)
{
    struct fetcher *fetcher = connection_of(file)->fetcher;
    return fetcher && fetcher_failed(fetcher);
}

static int file_close(sqlite3_file *file)
{
    struct connection *connection = connection_of(file);
    struct backing *backing = connection->backing;
    struct fetcher *fetcher = connection->fetcher;
    file->pMethods = NULL;
    if (!fetcher)
        return backing_close(backing);
    struct database *database = fetcher_database(fetcher);
    fetcher_free(fetcher);
    return database_put(database, backing);
}

static int file_read(sqlite3_file *file, void *to, int amount, sqlite3_int64 offset)
{
    if (has_failed(file))
        return SQLITE_IOERR_READ;
    return below(file)->pMethods->xRead(below(file), to, amount, offset);
}

static int file_write(sqlite3_file *file, const void *from, int amount, sqlite3_int64 offset)
{
    return below(file)->pMethods->xWrite(below(file), from, amount, offset);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct fetcher *fetcher = connection_of(file)->fetcher;
    if (fetcher)
        fetcher_set_size(fetcher, 0);
    return below(file)->pMethods->xTruncate(below(file), size);
}

static int file_sync(sqlite3_file *file, int flags)
{
    return below(file)->pMethods->xSync(below(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct fetcher *fetcher = connection_of(file)->fetcher;
    const int result = below(file)->pMethods->xFileSize(below(file), size);
    if (fetcher)
        fetcher_set_size(fetcher, result == SQLITE_OK ? *size : 0);
    return result;
}

static int file_lock(sqlite3_file *file, int level)
{
    if (has_failed(file))
        return SQLITE_IOERR_LOCK;
    return below(file)->pMethods->xLock(below(file), level);
}

/* A transaction ends with the lock on the file, or with that on the WAL. */
static int file_unlock(sqlite3_file *file, int level)
{
    struct fetcher *fetcher = connection_of(file)->fetcher;
    if (fetcher && level == SQLITE_LOCK_NONE)
        fetcher_rest(fetcher);
    return below(file)->pMethods->xUnlock(below(file), level);
}

static int file_check_reserved_lock(sqlite3_file *file, int *result)
{
    return below(file)->pMethods->xCheckReservedLock(below(file), result);
}

static int below_control(const struct backing *backing, int operation, void *argument)
{
    return backing->file->pMethods->xFileControl(backing->file, operation, argument);
}

/* The limit that the program has set for all files, or 0: it allows no mapping. The file's own is 0
 * from here on. *initial: what it was. */
static bool take_limit(const struct backing *backing, int64_t *initial)
{
    sqlite3_int64 limit = INT64_MAX, hard = -1, none = 0;
    const bool known = below_control(backing, SQLITE_FCNTL_MMAP_SIZE, &limit) == SQLITE_OK &&
                       below_control(backing, SQLITE_FCNTL_MMAP_SIZE, &hard) == SQLITE_OK;
    below_control(backing, SQLITE_FCNTL_MMAP_SIZE, &none);
    *initial = known ? limit : 0;
    return known && hard > 0;
}

static int file_control(sqlite3_file *file, int operation, void *argument)
{
    struct connection *connection = connection_of(file);
    struct fetcher *fetcher = connection->fetcher;
    if (operation == SQLITE_FCNTL_MMAP_SIZE) {
        sqlite3_int64 *limit = argument;
        *limit = fetcher ? fetcher_limit(fetcher, *limit) : 0;
        return SQLITE_OK;
    }
    if (operation == SQLITE_FCNTL_PRAGMA) {
        char **words = argument; /* the answer, the name, the value */
        if (sqlite3_stricmp(words[1], "mapfold_stats") == 0) {
            words[0] = fetcher ? fetcher_describe(fetcher) : sqlite3_mprintf("nothing is fetched");
            return words[0] ? SQLITE_OK : SQLITE_NOMEM;
        }
    }
    const int result = below_control(connection->backing, operation, argument);
    if (operation == SQLITE_FCNTL_VFSNAME && result == SQLITE_OK) {
        char **name = argument;
        *name = sqlite3_mprintf("mapfold/%z", *name);
    }
    return result;
}

static int file_sector_size(sqlite3_file *file)
{
    return below(file)->pMethods->xSectorSize(below(file));
}

static int file_device_characteristics(sqlite3_file *file)
{
    return below(file)->pMethods->xDeviceCharacteristics(below(file));
}

static int file_shm_map(sqlite3_file *file, int region, int size, int extend, void volatile **out)
{
    return below(file)->pMethods->xShmMap(below(file), region, size, extend, out);
}

static int file_shm_lock(sqlite3_file *file, int offset, int count, int flags)
{
    struct fetcher *fetcher = connection_of(file)->fetcher;
    if (flags & SQLITE_SHM_LOCK && has_failed(file))
        return SQLITE_IOERR_SHMLOCK; /* with a WAL a transaction takes no other lock */
    if (fetcher && flags == (SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED))
        fetcher_rest(fetcher);
    return below(file)->pMethods->xShmLock(below(file), offset, count, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    below(file)->pMethods->xShmBarrier(below(file));
}

static int file_shm_unmap(sqlite3_file *file, int remove)
{
    return below(file)->pMethods->xShmUnmap(below(file), remove);
}

static int file_fetch(sqlite3_file *file, sqlite3_int64 offset, int amount, void **page)
{
    struct connection *connection = connection_of(file);
    if (connection->fetcher)
        return fetcher_fetch(connection->fetcher, connection->backing, offset, amount, page);
    *page = NULL;
    return SQLITE_OK;
}

static int file_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *page)
{
    struct fetcher *fetcher = connection_of(file)->fetcher;
    if (fetcher)
        fetcher_unfetch(fetcher, offset, page);
    return SQLITE_OK;
}

static const sqlite3_io_methods file_methods = {
    .iVersion = 3,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_reserved_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_device_characteristics,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
    .xFetch = file_fetch,
    .xUnfetch = file_unfetch,
};

/* Where there is no database to fetch from, pages are read. On failure the backing is closed. */
static int start_fetching(struct connection *connection, const struct options *options)
{
    int64_t limit;
    const bool allowed = take_limit(connection->backing, &limit);
    if (!options->faults || !allowed)
        return SQLITE_OK;
    struct database *database = database_get(connection->backing, options->budget);
    if (!database)
        return SQLITE_OK;
    connection->fetcher = fetcher_make(database);
    if (!connection->fetcher) {
        database_put(database, connection->backing);
        return SQLITE_NOMEM;
    }
    fetcher_limit(connection->fetcher, limit);
    return SQLITE_OK;
}

int connection_open(const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    struct connection *connection = connection_of(file);
    struct options options;
    memset(connection, 0, sizeof(*connection));
    int result = options_read(name, &options);
    if (result != SQLITE_OK)
        return result;
    struct backing *backing = backing_make(name);
    if (!backing)
        return SQLITE_NOMEM;
    result = default_vfs->xOpen(default_vfs, backing->name, backing->file, flags, out_flags);
    if (result != SQLITE_OK) {
        backing_close(backing);
        return result;
    }
    connection->backing = backing;
    connection->methods = file_methods;
    if (backing->file->pMethods->iVersion < connection->methods.iVersion)
        connection->methods.iVersion = backing->file->pMethods->iVersion;
    result = start_fetching(connection, &options);
    if (result == SQLITE_OK)
        file->pMethods = &connection->methods;
    return result;
}
