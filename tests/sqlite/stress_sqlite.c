/* SPDX-License-Identifier: MIT */
/*
 * Eight connections to one database, each in its thread, opened and closed as they go, under a
 * budget that holds a part of it: rows are right, and the files whole at the end. In the second
 * test another thread cuts the file. SQLite itself is not instrumented: what ThreadSanitizer sees
 * is the extension, the library, and what SQLite does by mutexes and system calls.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, ROWS = 4000 };

static struct sigaction ours; /* cmocka sets a SIGBUS handler of its own before each test */
static _Atomic unsigned wrong;
static _Atomic bool cut;
static unsigned rounds;
static const char *name, *parameters;

static void expect(bool truth)
{
    if (!truth)
        atomic_fetch_add(&wrong, 1);
}

static bool is_failure(int result)
{
    return (result & 0xff) == SQLITE_IOERR || result == SQLITE_CORRUPT;
}

static bool is_expected(int result)
{
    return result == SQLITE_DONE || result == SQLITE_BUSY ||
           (atomic_load(&cut) && is_failure(result));
}

/* A connection of a thread's own, as open_db, which may not fail in a thread. */
static sqlite3 *connect_db(void)
{
    sqlite3 *db = try_open(name, parameters, NULL);
    if (db) {
        sqlite3_busy_timeout(db, 20000);
        sqlite3_exec(db,
                     "PRAGMA mmap_size=1000000000; PRAGMA cache_size=20;"
                     "PRAGMA synchronous=OFF",
                     NULL, NULL, NULL);
    }
    return db;
}

static void *reader(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    sqlite3 *db = connect_db();
    for (unsigned i = 0; i < rounds && db; i++) {
        char sql[300];
        int result;
        const unsigned id = 1 + (unsigned)rand_r(&seed) % ROWS;
        snprintf(sql, sizeof(sql),
                 "SELECT count(*) FROM t WHERE id BETWEEN %u AND %u AND "
                 "CAST(x AS TEXT)<>printf('%%0500d',id)",
                 id, id + 50);
        const int64_t bad = ask(db, sql, &result);
        expect(is_expected(result));
        if (result == SQLITE_DONE && bad) {
            /* Zeros, if the next statement fails; the file was cut. */
            ask(db, sql, &result);
            expect(atomic_load(&cut) && is_failure(result));
        }
        if (rand_r(&seed) % 20 == 0) {
            expect(sqlite3_close(db) == SQLITE_OK);
            db = connect_db();
        }
    }
    expect(!db || sqlite3_close(db) == SQLITE_OK);
    return NULL;
}

static void *writer(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    sqlite3 *db = connect_db();
    for (unsigned i = 0; i < rounds / 4 && db; i++) {
        char sql[300];
        const unsigned id = 1 + (unsigned)rand_r(&seed) % ROWS;
        snprintf(sql, sizeof(sql),
                 "INSERT OR REPLACE INTO t SELECT id+%u, CAST(printf('%%0500d',id+%u) AS BLOB) "
                 "FROM t WHERE id BETWEEN %u AND %u",
                 ROWS / 2, ROWS / 2, id, id + 20);
        int result = sqlite3_exec(db, sql, NULL, NULL, NULL);
        expect(is_expected(result == SQLITE_OK ? SQLITE_DONE : result));
        if (i % 10 == 9) {
            snprintf(sql, sizeof(sql), "DELETE FROM t WHERE id>%u; PRAGMA wal_checkpoint", ROWS);
            result = sqlite3_exec(db, sql, NULL, NULL, NULL);
            expect(is_expected(result == SQLITE_OK ? SQLITE_DONE : result));
        }
    }
    expect(!db || sqlite3_close(db) == SQLITE_OK);
    return NULL;
}

static void *cutter(void *argument)
{
    (void)argument;
    usleep(30000);
    atomic_store(&cut, true);
    expect(truncate(path_of(name), 150 * 4096) == 0);
    return NULL;
}

static void run_threads(const char *file, const char *how, const char *pragma, unsigned writers,
                        bool cutting)
{
    pthread_t threads[THREADS];
    name = file;
    parameters = how;
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
    atomic_store(&wrong, 0);
    atomic_store(&cut, false);
    sqlite3 *db = open_db(file, how);
    run_sql(db, pragma);
    fill(db, ROWS);
    run_sql(db, "PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3_close(db);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < writers               ? writer
                                        : cutting && i == writers ? cutter
                                                                  : reader,
                                        (void *)(uintptr_t)(i + 1)),
                         0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
}

static void eight_connections_read_and_write(void **state)
{
    (void)state;
    static const char *const ways[] = {FETCHING "64M", FETCHING "256K"};
    for (size_t i = 0; i < 2; i++) {
        run_threads(i ? "small.db" : "large.db", ways[i], "PRAGMA journal_mode=WAL", 2, false);
        sqlite3 *db = open_db(name, ways[i]);
        assert_true(is_sound(db));
        assert_int_equal(ask(db, WRONG, NULL), 0);
        assert_true(fetched(db) > 0);
        sqlite3_close(db);
    }
    run_threads("journal.db", FETCHING "256K", "PRAGMA journal_mode=DELETE", 1, false);
}

static void a_file_is_cut_under_eight_connections(void **state)
{
    (void)state;
    static const char *const names[] = {"cut0.db", "cut1.db", "cut2.db"};
    for (size_t i = 0; i < 3; i++)
        run_threads(names[i], i ? FETCHING "256K" : FETCHING "64M", "PRAGMA synchronous=OFF", 0,
                    true);
}

/* The first database with the handler has it installed, once for the process. */
static int begin(void **state)
{
    const int status = begin_directory(state);
    sqlite3 *db = status ? NULL : try_open("first.db", FETCHING "1M", NULL);
    return !db || sqlite3_close(db) != SQLITE_OK || sigaction(SIGBUS, NULL, &ours) != 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_connections_read_and_write),
        cmocka_unit_test(a_file_is_cut_under_eight_connections),
    };
    rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 400;
    return cmocka_run_group_tests(tests, begin, end_directory);
}
