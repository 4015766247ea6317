/* SPDX-License-Identifier: MIT */
#include "sqlite_file.h"

#include <errno.h>
#include <string.h>

#include "cli/cli.h"

int sqlite_file_error(const struct sqlite_file *file, sqlite3 *db, const char *what)
{
    cli_error("cannot %s %s: %s", what, file->path, db ? sqlite3_errmsg(db) : "out of memory");
    return -1;
}

static int fill(const struct bench *bench, const struct sqlite_file *file, sqlite3 *db)
{
    char text[SQLITE_FILE_ROW] = {0};
    sqlite3_stmt *insert = NULL;
    /* It is thrown away if anything fails: no journal, no waiting for the device. */
    int result = sqlite3_exec(db,
                              "PRAGMA page_size=4096; PRAGMA journal_mode=OFF;"
                              "PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;"
                              "CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB); BEGIN;",
                              NULL, NULL, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_prepare_v2(db, "INSERT INTO t VALUES(?,?)", -1, &insert, NULL);
    for (uint64_t id = 1; id <= file->rows && result == SQLITE_OK; id++) {
        if (id % 100000 == 0)
            bench_progress(bench, "making a database of %llu rows: %llu",
                           (unsigned long long)file->rows, (unsigned long long)id);
        memcpy(text, &id, sizeof(id));
        sqlite3_bind_int64(insert, 1, (sqlite3_int64)id);
        sqlite3_bind_blob(insert, 2, text, sizeof(text), SQLITE_STATIC);
        result = sqlite3_step(insert) == SQLITE_DONE ? sqlite3_reset(insert) : SQLITE_ERROR;
    }
    sqlite3_finalize(insert);
    if (result == SQLITE_OK)
        result = sqlite3_exec(db, "COMMIT;", NULL, NULL, NULL);
    return result == SQLITE_OK ? 0 : sqlite_file_error(file, db, "fill");
}

int sqlite_file_make(const struct bench *bench, uint64_t rows, struct sqlite_file *file)
{
    file->rows = rows;
    if (guarded_dir_make(bench->directory, &file->directory)) {
        cli_error("cannot make a directory in %s: %s; choose another with --dir", bench->directory,
                  strerror(errno));
        return -1;
    }
    snprintf(file->path, sizeof(file->path), "%s/bench.db", file->directory.path);
    sqlite3 *db = NULL;
    int status = sqlite3_open(file->path, &db) == SQLITE_OK
                     ? fill(bench, file, db)
                     : sqlite_file_error(file, db, "make the database");
    if (sqlite3_close(db) != SQLITE_OK)
        status = -1;
    if (status)
        sqlite_file_remove(file);
    return status;
}

void sqlite_file_remove(struct sqlite_file *file)
{
    guarded_dir_remove(&file->directory);
}
