/* SPDX-License-Identifier: MIT */
/*
 * Databases that another process cuts short under their readers. Every test runs in a child, whose
 * SIGBUS handler is the extension's: cmocka has one of its own.
 */
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>

#define EXPECT(truth)                                                                              \
    do {                                                                                           \
        if (!(truth))                                                                              \
            return __LINE__ & 0x7f ? __LINE__ & 0x7f : 1;                                          \
    } while (0)

enum { ROWS = 7000 }; /* 1,000 pages and some */

static bool is_failure(int result)
{
    return (result & 0xff) == SQLITE_IOERR || result == SQLITE_CORRUPT;
}

static bool is_io_error(int result)
{
    return (result & 0xff) == SQLITE_IOERR;
}

static void make(const char *name, const char *pragma)
{
    unlink(path_of(name));
    sqlite3 *db = open_db(name, "");
    run_sql(db, pragma);
    fill(db, ROWS);
    run_sql(db, "CREATE INDEX i ON t(substr(x,490)); PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3_close(db);
}

/* Reads all rows until something is wrong. *wrong: rows that are not what was written. */
static int read_all(sqlite3 *db, int *wrong)
{
    sqlite3_stmt *statement = NULL;
    char expected[501];
    *wrong = 0;
    int result = sqlite3_prepare_v2(db, "SELECT id, x FROM t", -1, &statement, NULL);
    if (result == SQLITE_OK) {
        while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
            snprintf(expected, sizeof(expected), "%0500d", sqlite3_column_int(statement, 0));
            const void *x = sqlite3_column_blob(statement, 1);
            *wrong +=
                !x || sqlite3_column_bytes(statement, 1) != 500 || memcmp(x, expected, 500) != 0;
        }
    }
    sqlite3_finalize(statement);
    return result;
}

static int cut_under_a_statement(const char *name, const char *pragma, off_t size)
{
    make(name, pragma);
    /* Extents of 4 MiB, at whose edges alone pages are read, and the cut found without a fault. */
    sqlite3 *db = open_db(name, FETCHING "1G");
    sqlite3_stmt *statement;
    int wrong;
    EXPECT(read_all(db, &wrong) == SQLITE_DONE && wrong == 0);
    EXPECT(sqlite3_prepare_v2(db, "SELECT id, x FROM t", -1, &statement, NULL) == SQLITE_OK);
    for (int i = 0; i < 100; i++)
        EXPECT(sqlite3_step(statement) == SQLITE_ROW);
    EXPECT(truncate(path_of(name), size) == 0);
    int result;
    while ((result = sqlite3_step(statement)) == SQLITE_ROW)
        ;
    EXPECT(is_failure(result));
    sqlite3_finalize(statement);
    /* All that comes later fails: locks, reads, fetches. */
    ask(db, WRONG, &result);
    EXPECT(is_io_error(result));
    ask(db, "SELECT count(*) FROM t WHERE id BETWEEN 10 AND 20", &result);
    EXPECT(is_io_error(result));
    EXPECT(is_io_error(sqlite3_exec(db, "INSERT INTO t VALUES(1000000,'')", NULL, NULL, NULL)));
    EXPECT(sqlite3_close(db) == SQLITE_OK);
    return 0;
}

static int cut_to_some_pages(void)
{
    return cut_under_a_statement("some.db", "PRAGMA journal_mode=DELETE", 100 * 4096);
}

static int cut_to_nothing(void)
{
    return cut_under_a_statement("nothing.db", "PRAGMA journal_mode=DELETE", 0);
}

static int cut_in_wal_mode(void)
{
    return cut_under_a_statement("wal.db", "PRAGMA journal_mode=WAL", 100 * 4096);
}

static void a_cut_database_fails_its_statement_and_all_later_ones(void **state)
{
    (void)state;
    assert_int_equal(in_child(cut_to_some_pages), 0);
    assert_int_equal(in_child(cut_to_nothing), 0);
    assert_int_equal(in_child(cut_in_wal_mode), 0);
}

/* Into the file that is there, if there is one. */
static bool copy_file(const char *from, const char *to)
{
    char buffer[4096];
    const int in = open(path_of(from), O_RDONLY | O_CLOEXEC);
    const int out = open(path_of(to), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t got = -1;
    while (in >= 0 && out >= 0 && (got = read(in, buffer, sizeof(buffer))) > 0) {
        if (write(out, buffer, (size_t)got) != got)
            break;
    }
    close(in);
    close(out);
    return got == 0;
}

static int put_right(void)
{
    make("right.db", "PRAGMA journal_mode=DELETE");
    EXPECT(copy_file("right.db", "right.copy"));
    sqlite3 *a = open_db("right.db", FETCHING "1G"), *b = open_db("right.db", FETCHING "1G");
    int wrong, result;
    EXPECT(read_all(a, &wrong) == SQLITE_DONE && read_all(b, &wrong) == SQLITE_DONE);
    run_sql(a, "BEGIN; SELECT count(*) FROM t WHERE id<5");
    run_sql(b, "BEGIN; SELECT count(*) FROM t WHERE id<5");
    EXPECT(truncate(path_of("right.db"), 3 * 4096) == 0);
    EXPECT(is_failure(read_all(a, &wrong)));
    /* The other has seen nothing wrong, but shares the database. */
    EXPECT(is_failure(read_all(b, &wrong)));
    sqlite3_exec(a, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_exec(b, "ROLLBACK", NULL, NULL, NULL);
    EXPECT(copy_file("right.copy", "right.db"));
    EXPECT(is_io_error(read_all(a, &wrong)) && is_io_error(read_all(b, &wrong)));
    /* A connection that is opened now finds the file as it is. */
    sqlite3 *c = open_db("right.db", FETCHING "1G");
    EXPECT(read_all(c, &wrong) == SQLITE_DONE && wrong == 0 && fetched(c) > 500);
    EXPECT(sqlite3_close(a) == SQLITE_OK);
    EXPECT(read_all(c, &wrong) == SQLITE_DONE && wrong == 0);
    ask(b, "SELECT count(*) FROM t", &result);
    EXPECT(is_io_error(result));
    EXPECT(sqlite3_close(b) == SQLITE_OK && sqlite3_close(c) == SQLITE_OK);
    return 0;
}

static void after_the_file_is_put_right_new_connections_read_it(void **state)
{
    (void)state;
    assert_int_equal(in_child(put_right), 0);
}

static int cut_between_statements(void)
{
    make("between.db", "PRAGMA journal_mode=DELETE");
    sqlite3 *db = open_db("between.db", FETCHING "64M");
    int wrong;
    EXPECT(read_all(db, &wrong) == SQLITE_DONE);
    EXPECT(truncate(path_of("between.db"), 500 * 4096) == 0);
    EXPECT(is_failure(read_all(db, &wrong)) && wrong == 0);
    sqlite3_close(db);
    /* Without the handler the same, by reading. */
    make("between.db", "PRAGMA journal_mode=DELETE");
    db = open_db("between.db", "vfs=mapfold");
    EXPECT(read_all(db, &wrong) == SQLITE_DONE);
    EXPECT(truncate(path_of("between.db"), 500 * 4096) == 0);
    EXPECT(is_failure(read_all(db, &wrong)) && wrong == 0);
    sqlite3_close(db);
    return 0;
}

static void a_cut_between_statements_is_found(void **state)
{
    (void)state;
    assert_int_equal(in_child(cut_between_statements), 0);
}

/* Cuts at any moment. A statement may have finished with zeros in its rows, but then the next one
 * on its connection says so. */

static _Atomic bool cutting;

static void *cutter(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    while (!atomic_load(&cutting))
        ;
    usleep((unsigned)rand_r(&seed) % 4000);
    const off_t size = (off_t)(rand_r(&seed) % 900) * 4096;
    if (truncate(path_of("moment.db"), size) != 0)
        abort();
    return NULL;
}

static int cut_at_any_moment(void)
{
    static const char *const budgets[] = {FETCHING "64M", FETCHING "256K", FETCHING "32K"};
    int failed = 0;
    for (unsigned turn = 0; turn < 40; turn++) {
        make("moment.db", turn % 2 ? "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"
                                   : "PRAGMA journal_mode=DELETE; PRAGMA synchronous=OFF");
        sqlite3 *db = open_db("moment.db", budgets[turn % 3]);
        pthread_t thread;
        unsigned seed = turn;
        int wrong;
        atomic_store(&cutting, false);
        EXPECT(read_all(db, &wrong) == SQLITE_DONE && wrong == 0);
        EXPECT(pthread_create(&thread, NULL, cutter, &seed) == 0);
        atomic_store(&cutting, true);
        int result = SQLITE_DONE;
        for (int i = 0; i < 1000 && result == SQLITE_DONE; i++) {
            result = read_all(db, &wrong);
            int next;
            if (result == SQLITE_DONE && wrong) {
                ask(db, "SELECT count(*) FROM t WHERE id=1", &next);
                EXPECT(is_io_error(next));
                result = next;
            }
        }
        pthread_join(thread, NULL);
        EXPECT(is_failure(result));
        ask(db, "SELECT count(*) FROM t WHERE id=1", &result);
        failed += is_io_error(result);
        EXPECT(sqlite3_close(db) == SQLITE_OK);
    }
    EXPECT(failed > 0);
    return 0;
}

static void a_cut_at_any_moment_kills_nothing_and_is_told(void **state)
{
    (void)state;
    assert_int_equal(in_child(cut_at_any_moment), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_database_fails_its_statement_and_all_later_ones),
        cmocka_unit_test(after_the_file_is_put_right_new_connections_read_it),
        cmocka_unit_test(a_cut_between_statements_is_found),
        cmocka_unit_test(a_cut_at_any_moment_kills_nothing_and_is_told),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
