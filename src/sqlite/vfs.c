/* SPDX-License-Identifier: MIT */
/*
 * Registration, and the VFS's own methods, which are the default VFS's but for xOpen.
 *
 * The descriptor. SQLite has no call that tells a file's descriptor, its structs are private, and a
 * descriptor of our own could never be closed, since that would drop the locks the process has on
 * the file. But the default VFS lets its system calls be replaced (xSetSystemCall), and it asks for
 * a file's size by fstat(2) of that file's descriptor. So fstat is replaced once, for good, by a
 * function that does the same and, while this thread is asking, notes the descriptor. It is true of
 * reused descriptors (the default VFS keeps those that it may not close), and of any VFS that ends
 * in this one. A VFS whose xFileSize makes no fstat shows none, and its files are only read.
 */
#include "sqlite/vfs.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

SQLITE_EXTENSION_INIT1

typedef int fstat_function(int fd, struct stat *st);

sqlite3_vfs *default_vfs;
static fstat_function *plain_fstat;

/* What this thread's question has brought to light. */
static _Thread_local struct {
    bool asking;
    int calls;
    int fd;
    struct identity identity;
} seen;

static int noting_fstat(int fd, struct stat *st)
{
    const int result = plain_fstat(fd, st);
    if (seen.asking && result == 0) {
        seen.calls++;
        seen.fd = fd;
        seen.identity = (struct identity){st->st_dev, st->st_ino};
    }
    return result;
}

int descriptor_of(sqlite3_file *file, struct identity *identity)
{
    sqlite3_int64 size;
    seen.calls = 0;
    seen.asking = true;
    const int result = file->pMethods->xFileSize(file, &size);
    seen.asking = false;
    if (result != SQLITE_OK || seen.calls != 1)
        return -1;
    *identity = seen.identity;
    return seen.fd;
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                    int *out_flags)
{
    (void)vfs;
    if (name && flags & SQLITE_OPEN_MAIN_DB)
        return connection_open(name, file, flags, out_flags);
    return default_vfs->xOpen(default_vfs, name, file, flags, out_flags);
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync_directory)
{
    (void)vfs;
    return default_vfs->xDelete(default_vfs, name, sync_directory);
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    (void)vfs;
    return default_vfs->xAccess(default_vfs, name, flags, result);
}

static int vfs_full_pathname(sqlite3_vfs *vfs, const char *name, int size, char *out)
{
    (void)vfs;
    return default_vfs->xFullPathname(default_vfs, name, size, out);
}

static void *vfs_dl_open(sqlite3_vfs *vfs, const char *name)
{
    (void)vfs;
    return default_vfs->xDlOpen(default_vfs, name);
}

static void vfs_dl_error(sqlite3_vfs *vfs, int size, char *out)
{
    (void)vfs;
    default_vfs->xDlError(default_vfs, size, out);
}

static void (*vfs_dl_sym(sqlite3_vfs *vfs, void *library, const char *name))(void)
{
    (void)vfs;
    return default_vfs->xDlSym(default_vfs, library, name);
}

static void vfs_dl_close(sqlite3_vfs *vfs, void *library)
{
    (void)vfs;
    default_vfs->xDlClose(default_vfs, library);
}

static int vfs_randomness(sqlite3_vfs *vfs, int size, char *out)
{
    (void)vfs;
    return default_vfs->xRandomness(default_vfs, size, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds)
{
    (void)vfs;
    return default_vfs->xSleep(default_vfs, microseconds);
}

static int vfs_current_time(sqlite3_vfs *vfs, double *days)
{
    (void)vfs;
    return default_vfs->xCurrentTime(default_vfs, days);
}

static int vfs_get_last_error(sqlite3_vfs *vfs, int size, char *out)
{
    (void)vfs;
    return default_vfs->xGetLastError(default_vfs, size, out);
}

static int vfs_current_time_64(sqlite3_vfs *vfs, sqlite3_int64 *milliseconds)
{
    (void)vfs;
    return default_vfs->xCurrentTimeInt64(default_vfs, milliseconds);
}

static int vfs_set_system_call(sqlite3_vfs *vfs, const char *name, sqlite3_syscall_ptr call)
{
    (void)vfs;
    return default_vfs->xSetSystemCall(default_vfs, name, call);
}

static sqlite3_syscall_ptr vfs_get_system_call(sqlite3_vfs *vfs, const char *name)
{
    (void)vfs;
    return default_vfs->xGetSystemCall(default_vfs, name);
}

static const char *vfs_next_system_call(sqlite3_vfs *vfs, const char *name)
{
    (void)vfs;
    return default_vfs->xNextSystemCall(default_vfs, name);
}

static sqlite3_vfs mapfold_vfs = {
    .zName = "mapfold",
    .xOpen = vfs_open,
    .xDelete = vfs_delete,
    .xAccess = vfs_access,
    .xFullPathname = vfs_full_pathname,
    .xDlOpen = vfs_dl_open,
    .xDlError = vfs_dl_error,
    .xDlSym = vfs_dl_sym,
    .xDlClose = vfs_dl_close,
    .xRandomness = vfs_randomness,
    .xSleep = vfs_sleep,
    .xCurrentTime = vfs_current_time,
    .xGetLastError = vfs_get_last_error,
    .xCurrentTimeInt64 = vfs_current_time_64,
    .xSetSystemCall = vfs_set_system_call,
    .xGetSystemCall = vfs_get_system_call,
    .xNextSystemCall = vfs_next_system_call,
};

static void replace_fstat(void)
{
    if (default_vfs->iVersion < 3 || !default_vfs->xGetSystemCall)
        return;
    plain_fstat = (fstat_function *)default_vfs->xGetSystemCall(default_vfs, "fstat");
    if (plain_fstat)
        default_vfs->xSetSystemCall(default_vfs, "fstat", (sqlite3_syscall_ptr)noting_fstat);
}

static int register_vfs(void)
{
    if (sqlite3_vfs_find(mapfold_vfs.zName))
        return SQLITE_OK;
    if (!default_vfs) {
        default_vfs = sqlite3_vfs_find(NULL);
        if (!default_vfs)
            return SQLITE_ERROR;
        const int own = (int)sizeof(struct connection);
        mapfold_vfs.iVersion = default_vfs->iVersion < 3 ? default_vfs->iVersion : 3;
        mapfold_vfs.mxPathname = default_vfs->mxPathname;
        mapfold_vfs.szOsFile = default_vfs->szOsFile > own ? default_vfs->szOsFile : own;
        replace_fstat();
    }
    return sqlite3_vfs_register(&mapfold_vfs, 0);
}

/*
 * The extension's entry point, for .load, load_extension() and sqlite3_auto_extension(3); the VFS
 * stays registered for the process. Neither SQLITE_OK_LOAD_PERMANENTLY, which an automatic
 * extension must not return, nor any care of the caller's is needed: the library is never unloaded.
 */
int sqlite3_mapfoldsqlite_init(sqlite3 *db, char **error, const sqlite3_api_routines *api)
    __attribute__((visibility("default")));

int sqlite3_mapfoldsqlite_init(sqlite3 *db, char **error, const sqlite3_api_routines *api)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    (void)db;
    pthread_mutex_lock(&mutex);
    if (!sqlite3_api)
        SQLITE_EXTENSION_INIT2(api);
    const int result = register_vfs();
    pthread_mutex_unlock(&mutex);
    if (result != SQLITE_OK && error)
        *error = sqlite3_mprintf("mapfold: cannot register the VFS: %s", sqlite3_errstr(result));
    return result;
}
