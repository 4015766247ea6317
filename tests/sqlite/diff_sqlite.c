/* SPDX-License-Identifier: MIT */
/*
 * The same random SQL over the default VFS and over `mapfold` gives the same results, statement by
 * statement, and the same files, byte by byte.
 *
 * What is fetched is not in SQLite's cache, so the two sides spill dirty pages at different
 * moments, as they do with the default VFS with and without mmap. That changes how many frames a
 * log has, and what is left in pages of the free list. Odd seeds do not spill; even ones do, and
 * only results are compared.
 *
 * usage: diff_sqlite [SEED [STEPS]]
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "../directory.h"

int sqlite3_mapfoldsqlite_init(sqlite3 *db, char **error, const void *api);

enum { CONNECTIONS = 2, TEXT = 600 };

struct side {
    const char *name;
    const char *parameters;
    sqlite3 *db[CONNECTIONS];
    sqlite3_stmt *open; /* of the second connection: a statement left open over others */
    uint64_t answer;    /* hash of all that the last statement said */
    unsigned long long fetched;
};

static uint64_t seed, state;
static bool spills;
static unsigned long step;
static struct side sides[2] = {{.name = "plain"}, {.name = "folded"}};

static uint64_t draw(uint64_t bound)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % bound;
}

static void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# seed %" PRIu64 ", step %lu, files in %s: ", seed, step, directory);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\nnot ok 1 - the same rows and files\n1..1\n");
    exit(1);
}

static void hash(uint64_t *sum, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++)
        *sum = (*sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    *sum = (*sum ^ length) * UINT64_C(0x100000001b3);
}

static void hash_number(uint64_t *sum, int64_t number)
{
    hash(sum, &number, sizeof(number));
}

static void hash_row(uint64_t *sum, sqlite3_stmt *statement)
{
    for (int i = 0; i < sqlite3_column_count(statement); i++) {
        const void *data = sqlite3_column_blob(statement, i);
        hash_number(sum, sqlite3_column_type(statement, i));
        hash(sum, data, (size_t)sqlite3_column_bytes(statement, i));
    }
}

/* Runs all statements of a text on one side, to the end or to `rows`. */
static void run(struct side *side, int which, const char *sql)
{
    side->answer = 0;
    while (*sql) {
        sqlite3_stmt *statement = NULL;
        int rc = sqlite3_prepare_v2(side->db[which], sql, -1, &statement, &sql);
        while (rc == SQLITE_OK && statement && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
            hash_row(&side->answer, statement);
            rc = SQLITE_OK;
        }
        hash_number(&side->answer, rc);
        const int end = sqlite3_finalize(statement);
        hash_number(&side->answer, end);
        if (end != SQLITE_OK)
            return;
    }
}

static void compare(const char *what)
{
    if (sides[0].answer != sides[1].answer)
        give_up("%s: plain says %s, folded says %s", what, sqlite3_errmsg(sides[0].db[0]),
                sqlite3_errmsg(sides[1].db[0]));
}

static void both(int which, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void both(int which, const char *format, ...)
{
    char sql[TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sql, sizeof(sql), format, arguments);
    va_end(arguments);
    for (size_t s = 0; s < 2; s++)
        run(&sides[s], which, sql);
    compare(sql);
}

/* It tells the frames of the log. */
static void checkpoint(int which, const char *sql)
{
    for (size_t s = 0; s < 2; s++)
        run(&sides[s], which, sql);
    if (!spills)
        compare(sql);
}

/* Only what is fetched differs, and how much of it. */
static void change_limit(void)
{
    static const char *const limits[] = {"0", "100000", "1000000", "100000000000"};
    char sql[TEXT];
    snprintf(sql, sizeof(sql), "PRAGMA mmap_size=%s", limits[draw(4)]);
    run(&sides[1], (int)draw(CONNECTIONS), sql);
}

static void open_side(struct side *side)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        char uri[TEXT], sql[TEXT];
        snprintf(uri, sizeof(uri), "file:%s/%s.db?%s", directory, side->name, side->parameters);
        if (sqlite3_open_v2(uri, &side->db[i],
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                            NULL) != SQLITE_OK)
            give_up("cannot open %s", uri);
        const char *limit = *side->parameters ? "100000000000" : "0";
        snprintf(sql, sizeof(sql),
                 "PRAGMA synchronous=OFF; PRAGMA cache_size=20;"
                 "ATTACH 'file:%s/%s.side?%s' AS side; PRAGMA mmap_size=%s; PRAGMA cache_spill=%d;",
                 directory, side->name, side->parameters, limit, spills);
        run(side, i, sql);
    }
}

static void count_fetched(struct side *side)
{
    sqlite3_stmt *statement = NULL;
    unsigned long long pages = 0;
    if (sqlite3_prepare_v2(side->db[0], "PRAGMA mapfold_stats", -1, &statement, NULL) == 0 &&
        sqlite3_step(statement) == SQLITE_ROW)
        pages = strtoull((const char *)sqlite3_column_text(statement, 0) + strlen("fetched "), NULL,
                         10);
    sqlite3_finalize(statement);
    side->fetched += pages;
}

static void close_side(struct side *side)
{
    sqlite3_finalize(side->open);
    side->open = NULL;
    count_fetched(side);
    for (int i = 0; i < CONNECTIONS; i++) {
        if (sqlite3_close(side->db[i]) != SQLITE_OK)
            give_up("cannot close %s: %s", side->name, sqlite3_errmsg(side->db[i]));
        side->db[i] = NULL;
    }
}

static char *read_file(const char *name, const char *suffix, size_t *length)
{
    char path[TEXT];
    snprintf(path, sizeof(path), "%s/%s.%s", directory, name, suffix);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    char *data = malloc((size_t)size + 1);
    *length = data && fd >= 0 ? (size_t)pread(fd, data, (size_t)size, 0) : 0;
    if (fd >= 0)
        close(fd);
    return data;
}

/* Closed, after a checkpoint; opened again with another budget. */
static void compare_files(void)
{
    static const char *const budgets[] = {"16K", "64K", "1M", "64M", "1G"};
    static const char *const suffixes[] = {"db", "side"};
    static char parameters[80];
    for (int i = 0; i < CONNECTIONS; i++)
        both(i, "ROLLBACK");
    for (size_t s = 0; s < 2; s++) {
        sqlite3_finalize(sides[s].open);
        sides[s].open = NULL;
    }
    both(0, "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check; PRAGMA side.integrity_check");
    for (size_t s = 0; s < 2; s++)
        close_side(&sides[s]);
    for (size_t i = 0; i < 2; i++) {
        size_t lengths[2];
        char *data[2];
        for (size_t s = 0; s < 2; s++)
            data[s] = read_file(sides[s].name, suffixes[i], &lengths[s]);
        if (!spills && (lengths[0] != lengths[1] || memcmp(data[0], data[1], lengths[0]) != 0))
            give_up("the files *.%s differ", suffixes[i]);
        free(data[0]);
        free(data[1]);
    }
    snprintf(parameters, sizeof(parameters), "vfs=mapfold&mapfold_faults=1&mapfold_budget=%s",
             budgets[draw(5)]);
    sides[0].parameters = "";
    sides[1].parameters = parameters;
    for (size_t s = 0; s < 2; s++)
        open_side(&sides[s]);
}

static void step_open_statement(void)
{
    const bool fresh = !sides[0].open;
    const unsigned rows = 1 + (unsigned)draw(40), from = (unsigned)draw(3000);
    for (size_t s = 0; s < 2; s++) {
        struct side *side = &sides[s];
        int rc = SQLITE_OK;
        side->answer = 0;
        if (fresh) {
            char sql[TEXT];
            snprintf(sql, sizeof(sql), "SELECT id, a, b FROM t WHERE id>=%u", from);
            rc = sqlite3_prepare_v2(side->db[1], sql, -1, &side->open, NULL);
        }
        for (unsigned i = 0; i < rows && side->open; i++) {
            rc = sqlite3_step(side->open);
            if (rc != SQLITE_ROW)
                break;
            hash_row(&side->answer, side->open);
        }
        hash_number(&side->answer, rc);
        if (rc != SQLITE_ROW) {
            sqlite3_finalize(side->open);
            side->open = NULL;
        }
    }
    compare("a statement left open");
}

static void copy_blob(void)
{
    const sqlite3_int64 id = (sqlite3_int64)draw(3000);
    const bool write = draw(2);
    char bytes[300];
    memset(bytes, (int)draw(256), sizeof(bytes));
    for (size_t s = 0; s < 2; s++) {
        sqlite3_blob *blob = NULL;
        char buffer[300] = {0};
        struct side *side = &sides[s];
        side->answer = 0;
        int rc = sqlite3_blob_open(side->db[0], "main", "t", "b", id, write, &blob);
        hash_number(&side->answer, rc);
        const int length = blob ? sqlite3_blob_bytes(blob) : 0;
        if (length > (int)sizeof(buffer)) {
            rc = write ? sqlite3_blob_write(blob, bytes, sizeof(bytes), length / 2 - 100)
                       : sqlite3_blob_read(blob, buffer, sizeof(buffer), length - 300);
            hash_number(&side->answer, rc);
            hash(&side->answer, buffer, sizeof(buffer));
        }
        hash_number(&side->answer, sqlite3_blob_close(blob));
    }
    compare("a blob");
}

static void back_up(void)
{
    for (size_t s = 0; s < 2; s++) {
        struct side *side = &sides[s];
        sqlite3 *copy;
        side->answer = 0;
        if (sqlite3_open(":memory:", &copy) != SQLITE_OK)
            give_up("out of memory");
        sqlite3_backup *backup = sqlite3_backup_init(copy, "main", side->db[0], "main");
        hash_number(&side->answer, backup ? sqlite3_backup_step(backup, -1) : 0);
        hash_number(&side->answer, sqlite3_backup_finish(backup));
        sqlite3 *const own = side->db[0];
        side->db[0] = copy;
        const uint64_t so_far = side->answer;
        run(side, 0, "SELECT count(*), sum(length(b)) FROM t");
        hash_number(&side->answer, (int64_t)so_far);
        side->db[0] = own;
        sqlite3_close(copy);
    }
    compare("a backup");
}

static void change(int which)
{
    const unsigned id = (unsigned)draw(3000), count = 1 + (unsigned)draw(300);
    switch (draw(12)) {
    case 0:
    case 1:
    case 2:
        both(which,
             "WITH RECURSIVE c(i) AS (VALUES(%u) UNION ALL SELECT i+1 FROM c WHERE i<%u) INSERT OR "
             "REPLACE INTO t SELECT i, printf('%%0*d',i%%200,i), CAST(printf('%%0*d',%u,i*7) AS "
             "BLOB) FROM c",
             id, id + count, (unsigned)draw(draw(8) ? 300 : 20000));
        break;
    case 3:
        both(which, "DELETE FROM t WHERE id BETWEEN %u AND %u", id, id + count);
        break;
    case 4:
        both(which, "UPDATE t SET a=a||'x', b=substr(b,%u) WHERE id%%%u=0", (unsigned)draw(50),
             1 + (unsigned)draw(50));
        break;
    case 5:
        both(which, draw(2) ? "CREATE INDEX IF NOT EXISTS i ON t(a)" : "DROP INDEX IF EXISTS i");
        break;
    case 6:
        both(which, "INSERT OR REPLACE INTO side.u SELECT id, b FROM t WHERE id<%u", id);
        break;
    case 7:
        both(which, draw(3) ? "PRAGMA incremental_vacuum(20)" : "VACUUM");
        break;
    case 8:
        both(which, "DELETE FROM side.u WHERE id>%u", id);
        break;
    case 9: {
        static const char *const modes[] = {"WAL", "DELETE", "TRUNCATE", "PERSIST", "WAL"};
        both(which, "PRAGMA main.journal_mode=%s", modes[draw(5)]);
        break;
    }
    case 10:
        checkpoint(which,
                   draw(2) ? "PRAGMA wal_checkpoint(PASSIVE)" : "PRAGMA wal_checkpoint(TRUNCATE)");
        break;
    default:
        both(which, "SAVEPOINT s; DELETE FROM t WHERE id%%3=0; SELECT count(*) FROM t; %s s",
             draw(2) ? "ROLLBACK TO" : "RELEASE");
        both(which, "RELEASE s");
    }
}

static void look(int which)
{
    const unsigned id = (unsigned)draw(3000);
    switch (draw(6)) {
    case 0:
        both(which, "SELECT * FROM t WHERE id=%u", id);
        break;
    case 1:
        both(which, "SELECT id, length(b), a FROM t ORDER BY id DESC");
        break;
    case 2:
        both(which, "SELECT a, count(*) FROM t WHERE a>'%u' GROUP BY a LIMIT 50", id);
        break;
    case 3:
        both(which, "SELECT t.id, t.b=u.b FROM t JOIN side.u USING(id) WHERE t.id>%u", id);
        break;
    case 4:
        both(which, "SELECT count(*), sum(length(b)), max(b) FROM t");
        break;
    default:
        both(which, "SELECT x.id FROM t x JOIN t y ON y.id=x.id+7 WHERE x.id%%11=0");
    }
}

static void one_step(void)
{
    const int which = (int)draw(CONNECTIONS);
    switch (draw(20)) {
    case 0:
        both(which, draw(2) ? "BEGIN" : "BEGIN IMMEDIATE");
        break;
    case 1:
    case 2:
        both(which, draw(4) ? "COMMIT" : "ROLLBACK");
        break;
    case 3:
    case 4:
        step_open_statement();
        break;
    case 5:
        copy_blob();
        break;
    case 6:
        change_limit();
        break;
    case 7:
        if (draw(10) == 0)
            back_up();
        else
            step_open_statement();
        break;
    case 8:
        if (draw(12) == 0)
            compare_files();
        break;
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
        look(which);
        break;
    default:
        change(which);
    }
}

int main(int argc, char **argv)
{
    sqlite3 *db;
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    spills = seed % 2 == 0;
    const unsigned long steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 5000;
    state = seed;
    sqlite3_auto_extension((void (*)(void))sqlite3_mapfoldsqlite_init);
    if (directory_make("sqldiff") || sqlite3_open(":memory:", &db) != SQLITE_OK)
        give_up("cannot begin");
    sqlite3_close(db);
    sides[0].parameters = "";
    sides[1].parameters = "vfs=mapfold&mapfold_faults=1&mapfold_budget=1M";
    for (size_t s = 0; s < 2; s++)
        open_side(&sides[s]);
    both(0,
         "PRAGMA auto_vacuum=INCREMENTAL; CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b BLOB);"
         "CREATE TABLE side.u(id INTEGER PRIMARY KEY, b BLOB)");
    for (step = 0; step < steps; step++)
        one_step();
    compare_files();
    for (size_t s = 0; s < 2; s++)
        close_side(&sides[s]);
    printf("# seed %" PRIu64 ": %lu steps, %llu pages fetched\n", seed, steps, sides[1].fetched);
    if (sides[1].fetched == 0)
        give_up("nothing was fetched");
    printf("ok 1 - the same rows and files\n1..1\n");
    return directory_remove();
}
