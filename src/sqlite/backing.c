/* SPDX-License-Identifier: MIT */
/*
 * A file of the default VFS, in memory of its own, since it may have to outlive its connection: one
 * connection's descriptor is lent to all others of the same file. Its name has to live as long, and
 * is a copy with all that SQLite keeps behind a database's name: parameters, journal, WAL.
 */
#include "sqlite/vfs.h"

#include <string.h>

static const char *copy_name(const char *name)
{
    int count = 0;
    while (sqlite3_uri_key(name, count))
        count++;
    const char **parameters = sqlite3_malloc64(sizeof(char *) * 2 * (sqlite3_uint64)(count + 1));
    if (!parameters)
        return NULL;
    for (int i = 0; i < count; i++) {
        parameters[2 * i] = sqlite3_uri_key(name, i);
        parameters[2 * i + 1] = sqlite3_uri_parameter(name, parameters[2 * i]);
    }
    const char *copy = sqlite3_create_filename(name, sqlite3_filename_journal(name),
                                               sqlite3_filename_wal(name), count, parameters);
    sqlite3_free(parameters);
    return copy;
}

struct backing *backing_make(const char *name)
{
    const size_t file_size = (size_t)default_vfs->szOsFile;
    struct backing *backing = sqlite3_malloc64(sizeof(*backing) + file_size);
    if (!backing)
        return NULL;
    memset(backing, 0, sizeof(*backing) + file_size);
    backing->file = (sqlite3_file *)(void *)(backing + 1);
    backing->name = copy_name(name);
    if (backing->name)
        return backing;
    sqlite3_free(backing);
    return NULL;
}

int backing_close(struct backing *backing)
{
    const sqlite3_io_methods *methods = backing->file->pMethods;
    const int result = methods ? methods->xClose(backing->file) : SQLITE_OK;
    sqlite3_free_filename(backing->name);
    sqlite3_free(backing);
    return result;
}
