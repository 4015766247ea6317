/* SPDX-License-Identifier: MIT */
/*
 * Processes that write a database through the VFS and are killed in the middle of their
 * transactions, 200 times. Every transaction moves money between accounts, so that the sum tells
 * whether one was ever half done; rows of several pages grow and shrink meanwhile.
 */
#include "common.h"

#include <time.h>

enum { KILLS = 200, ACCOUNTS = 500, WRITERS = 2 };

static unsigned seed;
static const char *parameters;

static sqlite3 *open_bank(const char *how)
{
    sqlite3 *db = open_db("bank.db", how);
    sqlite3_busy_timeout(db, 10000);
    return db;
}

static int write_until_killed(void)
{
    sqlite3 *db = open_bank(parameters);
    run_sql(db, "PRAGMA cache_size=10; PRAGMA synchronous=OFF");
    for (;;) {
        char sql[900];
        /* The first a accounts lose b each, the last a win it. */
        const unsigned a = (unsigned)rand_r(&seed) % ACCOUNTS, b = (unsigned)rand_r(&seed) % 40;
        snprintf(sql, sizeof(sql),
                 "BEGIN IMMEDIATE;"
                 "UPDATE account SET money=money-%u, note=zeroblob(%u) WHERE id<%u;"
                 "SELECT sum(length(note)) FROM account;"
                 "UPDATE account SET money=money+%u, note=randomblob(%u) WHERE id>=%u AND id<%u;"
                 "DELETE FROM log WHERE id%%7=%u; INSERT INTO log(x) SELECT note FROM account "
                 "WHERE id%%11=%u; COMMIT;",
                 b, b * 100, a, b, b * 150, ACCOUNTS - a, ACCOUNTS, b % 7, b % 11);
        const int result = sqlite3_exec(db, sql, NULL, NULL, NULL);
        if (result != SQLITE_OK)
            return result == SQLITE_BUSY ? 2 : 3;
    }
}

static pid_t start_writer(void)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(write_until_killed());
    return child;
}

static void killed_two_hundred_times_a_database_stays_whole(void **state)
{
    (void)state;
    static const char *const ways[] = {FETCHING "16M", FETCHING "64K", ""};
    sqlite3 *db = open_bank(FETCHING "16M");
    char sql[300];
    snprintf(sql, sizeof(sql),
             "CREATE TABLE account(id INTEGER PRIMARY KEY, money INTEGER, note BLOB);"
             "CREATE TABLE log(id INTEGER PRIMARY KEY, x BLOB); CREATE INDEX i ON log(x);"
             "WITH RECURSIVE c(i) AS (VALUES(0) UNION ALL SELECT i+1 FROM c WHERE i<%d)"
             "INSERT INTO account SELECT i, 1000, zeroblob(1000) FROM c",
             ACCOUNTS - 1);
    run_sql(db, sql);
    sqlite3_close(db);
    unsigned long long pages = 0;
    for (unsigned turn = 0; turn < KILLS; turn += WRITERS) {
        pid_t writers[WRITERS];
        for (unsigned i = 0; i < WRITERS; i++) {
            seed = turn + i + 1;
            parameters = ways[(turn / WRITERS + i) % 2];
            writers[i] = start_writer();
        }
        /* They begin at once, and one may be at it when the other dies. */
        const struct timespec pause = {0, (20 + (long)(turn * 7919 % 60)) * 1000000};
        for (unsigned i = 0; i < WRITERS; i++) {
            int status;
            nanosleep(&pause, NULL);
            kill(writers[i], SIGKILL);
            assert_int_equal(waitpid(writers[i], &status, 0), writers[i]);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        }
        db = open_bank(ways[turn / WRITERS % 3]);
        assert_true(is_sound(db));
        assert_int_equal(ask(db, "SELECT sum(money) FROM account", NULL), 1000 * ACCOUNTS);
        if (turn / WRITERS % 3 < 2)
            pages += fetched(db);
        if (turn / WRITERS % 10 == 9)
            run_sql(db, turn / WRITERS % 20 == 9 ? "PRAGMA journal_mode=WAL"
                                                 : "PRAGMA journal_mode=DELETE");
        sqlite3_close(db);
    }
    assert_true(pages > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_two_hundred_times_a_database_stays_whole),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
