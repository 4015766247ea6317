/* SPDX-License-Identifier: MIT */
/* What the tests of the SQLite extension share: databases opened through either VFS. */
#ifndef MAPFOLD_TESTS_SQLITE_COMMON_H
#define MAPFOLD_TESTS_SQLITE_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "../directory.h"
#include "../unit.h"

/* The extension, linked with this program instead of loaded. */
int sqlite3_mapfoldsqlite_init(sqlite3 *db, char **error, const void *api);

/* For databases whose pages are to be fetched; a budget may follow. */
#define FETCHING "vfs=mapfold&mapfold_faults=1&mapfold_budget="

static inline void use_extension(void)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_auto_extension((void (*)(void))sqlite3_mapfoldsqlite_init), 0);
    assert_int_equal(sqlite3_open(":memory:", &db), 0);
    sqlite3_close(db);
    assert_non_null(sqlite3_vfs_find("mapfold"));
}

static inline int begin_directory(void **state)
{
    (void)state;
    if (directory_make("sqlite"))
        return -1;
    use_extension();
    return 0;
}

static inline int end_directory(void **state)
{
    (void)state;
    return directory_remove();
}

/* NULL where it cannot be opened; *result (may be NULL): why. */
static inline sqlite3 *try_open(const char *name, const char *parameters, int *result)
{
    char uri[400];
    sqlite3 *db = NULL;
    snprintf(uri, sizeof(uri), "file:%s/%s?%s", directory, name, parameters);
    const int rc = sqlite3_open_v2(
        uri, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL);
    if (result)
        *result = rc;
    if (rc == SQLITE_OK)
        return db;
    sqlite3_close(db);
    return NULL;
}

static inline void run_sql(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

/* Opened, and all of it to be fetched. */
static inline sqlite3 *open_db(const char *name, const char *parameters)
{
    sqlite3 *db = try_open(name, parameters, NULL);
    assert_non_null(db);
    run_sql(db, "PRAGMA mmap_size=1000000000000");
    return db;
}

/* The first column of the first row as a number; *result: what stepping said. */
static inline int64_t ask(sqlite3 *db, const char *sql, int *result)
{
    sqlite3_stmt *statement = NULL;
    int64_t number = -1;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            number = sqlite3_column_int64(statement, 0);
            rc = sqlite3_step(statement);
        }
    }
    sqlite3_finalize(statement);
    if (result)
        *result = rc;
    else if (rc != SQLITE_DONE)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    return number;
}

static inline bool is_sound(sqlite3 *db)
{
    sqlite3_stmt *statement = NULL;
    bool sound = sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &statement, NULL) == 0 &&
                 sqlite3_step(statement) == SQLITE_ROW &&
                 strcmp((const char *)sqlite3_column_text(statement, 0), "ok") == 0;
    sqlite3_finalize(statement);
    return sound;
}

/* Pages handed out so far. */
static inline unsigned long long fetched(sqlite3 *db)
{
    sqlite3_stmt *statement = NULL;
    unsigned long long pages = 0;
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA mapfold_stats", -1, &statement, NULL), 0);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    const char *text = (const char *)sqlite3_column_text(statement, 0);
    static const char word[] = "fetched ";
    if (strncmp(text, word, sizeof(word) - 1) == 0)
        pages = strtoull(text + sizeof(word) - 1, NULL, 10);
    sqlite3_finalize(statement);
    return pages;
}

/* A table t(id, x) of so many rows of 500 bytes: seven of them fill a page. */
static inline void fill(sqlite3 *db, int rows)
{
    char sql[300];
    snprintf(sql, sizeof(sql),
             "CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB);"
             "WITH RECURSIVE c(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM c WHERE i<%d)"
             "INSERT INTO t SELECT i, CAST(printf('%%0500d',i) AS BLOB) FROM c",
             rows);
    run_sql(db, sql);
}

/* Wrong rows among those that fill has made. */
#define WRONG "SELECT count(*) FROM t WHERE CAST(x AS TEXT)<>printf('%0500d',id)"

/* Kernel maps of a file of the test directory. */
static inline unsigned maps_of(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    char line[512], end[128];
    unsigned count = 0;
    snprintf(end, sizeof(end), "%s/%s\n", directory, name);
    while (fgets(line, sizeof(line), maps)) {
        const size_t length = strlen(line), tail = strlen(end);
        count += length > tail && strcmp(line + length - tail, end) == 0;
    }
    fclose(maps);
    return count;
}

/* The exit code of a function run in a child that inherits no open database; 128 + its signal. */
static inline int in_child(int (*function)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(function());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
