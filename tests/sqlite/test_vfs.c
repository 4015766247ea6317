/* SPDX-License-Identifier: MIT */
/* The VFS as a program meets it: opening, limits, locks, media that cannot be written. */
#include "common.h"

#include <sched.h>
#include <sys/mount.h>

static void registering_again_changes_nothing(void **state)
{
    (void)state;
    sqlite3_vfs *before = sqlite3_vfs_find("mapfold"), *standard = sqlite3_vfs_find(NULL);
    use_extension();
    assert_ptr_equal(sqlite3_vfs_find("mapfold"), before);
    assert_ptr_equal(sqlite3_vfs_find(NULL), standard);
    assert_ptr_not_equal(before, standard);
    char *name = NULL;
    sqlite3 *db = open_db("name.db", FETCHING "1M");
    assert_int_equal(sqlite3_file_control(db, "main", SQLITE_FCNTL_VFSNAME, &name), 0);
    assert_string_equal(name, "mapfold/unix");
    sqlite3_free(name);
    sqlite3_close(db);
}

static void pages_are_fetched_and_right(void **state)
{
    (void)state;
    sqlite3 *db = open_db("right.db", FETCHING "64M");
    fill(db, 5000);
    assert_int_equal(ask(db, WRONG, NULL), 0);
    assert_true(fetched(db) > 500);
    assert_true(maps_of("right.db") > 0);
    sqlite3_close(db);
    assert_int_equal(maps_of("right.db"), 0);
}

static void without_the_handler_nothing_is_mapped(void **state)
{
    (void)state;
    sqlite3 *db = open_db("plain.db", "vfs=mapfold");
    fill(db, 2000);
    assert_int_equal(ask(db, WRONG, NULL), 0);
    assert_int_equal(maps_of("plain.db"), 0);
    assert_int_equal(fetched(db), 0);
    assert_int_equal(ask(db, "PRAGMA mmap_size", NULL), 0);
    sqlite3_close(db);
}

static void a_budget_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "0", "-1", "x", "64Q", "64MM", "1", "99999T", "16 M"};
    static const char *const right[] = {"16384", "16K", "1m", "2G", "64T"};
    char parameters[100];
    int result;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        snprintf(parameters, sizeof(parameters), FETCHING "%s", wrong[i]);
        assert_null(try_open("budget.db", parameters, &result));
        assert_int_equal(result & 0xff, SQLITE_CANTOPEN);
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
        snprintf(parameters, sizeof(parameters), FETCHING "%s", right[i]);
        sqlite3 *db = try_open("budget.db", parameters, &result);
        assert_int_equal(result, SQLITE_OK);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
}

static void a_switch_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "abc", "ture", "2", "-1", "o n"};
    static const char *const right[] = {"0", "off", "no", "FALSE", "1", "on", "Yes", "true"};
    char parameters[100];
    int result;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        snprintf(parameters, sizeof(parameters), "vfs=mapfold&mapfold_faults=%s", wrong[i]);
        assert_null(try_open("switch.db", parameters, &result));
        assert_int_equal(result & 0xff, SQLITE_CANTOPEN);
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
        snprintf(parameters, sizeof(parameters), "vfs=mapfold&mapfold_faults=%s", right[i]);
        sqlite3 *db = open_db("switch.db", parameters);
        if (i == 0)
            fill(db, 1000);
        ask(db, "PRAGMA mmap_size=1000000000", NULL);
        ask(db, WRONG, NULL);
        assert_int_equal(fetched(db) > 0, i >= 4);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
}

static void the_pragma_limits_what_is_fetched(void **state)
{
    (void)state;
    sqlite3 *db = open_db("pragma.db", FETCHING "64M");
    fill(db, 5000);
    assert_int_equal(ask(db, "PRAGMA mmap_size", NULL), 1000000000000);
    assert_int_equal(ask(db, "PRAGMA mmap_size=0", NULL), 0);
    unsigned long long before = fetched(db);
    assert_int_equal(ask(db, WRONG, NULL), 0);
    assert_int_equal(fetched(db), before);
    assert_int_equal(ask(db, "PRAGMA mmap_size=409600", NULL), 409600);
    assert_int_equal(ask(db, WRONG, NULL), 0);
    assert_in_range(fetched(db) - before, 1, 100);
    /* Negative: what the program or the library has set for all, which is 0 here. */
    assert_int_equal(ask(db, "PRAGMA mmap_size=-1", NULL), 0);
    sqlite3_close(db);
}

static int with_mapping_forbidden(void)
{
    sqlite3_shutdown();
    if (sqlite3_config(SQLITE_CONFIG_MMAP_SIZE, INT64_C(0), INT64_C(0)) != SQLITE_OK)
        return 1;
    use_extension();
    sqlite3 *db = open_db("forbidden.db", FETCHING "64M");
    fill(db, 2000);
    const bool none = fetched(db) == 0 && maps_of("forbidden.db") == 0;
    sqlite3_close(db);
    return none ? 0 : 2;
}

static int with_mapping_by_default(void)
{
    sqlite3_shutdown();
    if (sqlite3_config(SQLITE_CONFIG_MMAP_SIZE, INT64_C(1) << 20, INT64_C(1) << 30) != SQLITE_OK)
        return 1;
    use_extension();
    sqlite3 *db = try_open("default.db", FETCHING "64M", NULL);
    fill(db, 2000);
    ask(db, WRONG, NULL);
    const bool some = fetched(db) > 0 && ask(db, "PRAGMA mmap_size", NULL) == 1 << 20;
    sqlite3_close(db);
    return some ? 0 : 2;
}

static void a_program_can_forbid_mapping_or_make_it_the_default(void **state)
{
    (void)state;
    assert_int_equal(in_child(with_mapping_forbidden), 0);
    assert_int_equal(in_child(with_mapping_by_default), 0);
}

static void many_databases_share_one_budget(void **state)
{
    (void)state;
    sqlite3 *dbs[6];
    char name[16];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "many%d.db", i);
        /* The first has asked for 1 MiB; the others' wishes do not count. */
        dbs[i] = open_db(name, i ? FETCHING "1G" : FETCHING "1M");
        fill(dbs[i], 5000);
        assert_int_equal(ask(dbs[i], WRONG, NULL), 0);
        assert_true(fetched(dbs[i]) > 0 || i > 0);
    }
    unsigned maps = 0;
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "many%d.db", i);
        maps += maps_of(name);
    }
    assert_in_range(maps, 1, 16); /* of 64 KiB */
    for (int i = 0; i < 6; i++)
        assert_int_equal(sqlite3_close(dbs[i]), SQLITE_OK);
}

static void a_budget_of_a_few_pages_gives_the_same_rows(void **state)
{
    (void)state;
    static const char *const budgets[] = {FETCHING "16K", FETCHING "20000", FETCHING "32K",
                                          FETCHING "100K"};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(*budgets); i++) {
        sqlite3 *db = open_db("tiny.db", budgets[i]);
        if (i == 0)
            fill(db, 3000);
        for (int turn = 0; turn < 3; turn++)
            assert_int_equal(ask(db, WRONG, NULL), 0);
        assert_int_equal(ask(db, "SELECT count(*) FROM t a, t b WHERE a.id=b.id+7", NULL), 2993);
        assert_true(fetched(db) > 0);
        assert_true(is_sound(db));
        sqlite3_close(db);
    }
}

/* Who waits on a lock of this database, as another process sees it: the type of lock, or F_UNLCK.
 */
static const char *locked_name;

static int lock_seen(void)
{
    const int fd = open(path_of(locked_name), O_RDWR | O_CLOEXEC);
    /* SQLite's pending byte, reserved byte and 510 shared bytes, at 1 GiB. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 << 30, .l_len = 512};
    if (fd < 0 || fcntl(fd, F_GETLK, &lock) != 0)
        return 100;
    return lock.l_type;
}

static void closing_other_connections_drops_no_lock(void **state)
{
    (void)state;
    locked_name = "locks.db";
    sqlite3 *first = open_db("locks.db", FETCHING "8M");
    fill(first, 2000);
    sqlite3 *second = open_db("locks.db", FETCHING "8M");
    sqlite3 *third = open_db("locks.db", FETCHING "8M");
    assert_int_equal(in_child(lock_seen), F_UNLCK);
    run_sql(second, "BEGIN IMMEDIATE; UPDATE t SET x=x WHERE id=7");
    assert_int_equal(in_child(lock_seen), F_WRLCK);
    assert_int_equal(ask(third, WRONG, NULL), 0);
    assert_int_equal(sqlite3_close(third), SQLITE_OK);
    assert_int_equal(in_child(lock_seen), F_WRLCK);
    assert_int_equal(sqlite3_close(first), SQLITE_OK); /* whose descriptor all fetch by */
    assert_int_equal(in_child(lock_seen), F_WRLCK);
    third = open_db("locks.db", FETCHING "8M");
    assert_int_equal(ask(third, WRONG, NULL), 0);
    assert_true(fetched(third) > 0);
    run_sql(second, "COMMIT");
    assert_int_equal(in_child(lock_seen), F_UNLCK);
    run_sql(third, "BEGIN");
    assert_int_equal(ask(third, WRONG, NULL), 0);
    assert_int_equal(in_child(lock_seen), F_RDLCK);
    assert_int_equal(sqlite3_close(second), SQLITE_OK);
    assert_int_equal(in_child(lock_seen), F_RDLCK);
    run_sql(third, "COMMIT");
    assert_int_equal(in_child(lock_seen), F_UNLCK);
    assert_int_equal(sqlite3_close(third), SQLITE_OK);
}

static void a_closed_connection_holds_no_lock_while_its_descriptor_is_lent(void **state)
{
    (void)state;
    locked_name = "lent.db";
    sqlite3 *lender = open_db("lent.db", FETCHING "8M");
    run_sql(lender, "PRAGMA locking_mode=EXCLUSIVE");
    fill(lender, 100);
    run_sql(lender, "PRAGMA locking_mode=NORMAL; SELECT * FROM t");
    sqlite3 *other = open_db("lent.db", FETCHING "8M");
    assert_int_equal(ask(other, WRONG, NULL), 0);
    run_sql(lender, "PRAGMA locking_mode=EXCLUSIVE; SELECT * FROM t");
    assert_int_equal(in_child(lock_seen), F_RDLCK);
    assert_int_equal(sqlite3_close(lender), SQLITE_OK);
    assert_int_equal(in_child(lock_seen), F_UNLCK);
    unlink(path_of("lent.db")); /* SQLite tells the log by the name of a file that is gone */
    assert_int_equal(ask(other, WRONG, NULL), 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void no_descriptor_is_opened_beside_sqlites_own(void **state)
{
    (void)state;
    sqlite3 *plain[8], *fetching[8];
    sqlite3 *db = open_db("count.db", "vfs=mapfold");
    fill(db, 500);
    sqlite3_close(db);
    const unsigned none = open_descriptors();
    for (int i = 0; i < 8; i++) {
        plain[i] = open_db("count.db", "");
        ask(plain[i], WRONG, NULL);
    }
    const unsigned with_plain = open_descriptors();
    for (int i = 0; i < 8; i++)
        sqlite3_close(plain[i]);
    assert_int_equal(open_descriptors(), none);
    for (int i = 0; i < 8; i++) {
        fetching[i] = open_db("count.db", FETCHING "8M");
        ask(fetching[i], WRONG, NULL);
    }
    assert_int_equal(open_descriptors(), with_plain);
    for (int i = 0; i < 8; i++)
        sqlite3_close(fetching[i]);
    assert_int_equal(open_descriptors(), none);
}

static void growing_is_seen_without_opening_again(void **state)
{
    (void)state;
    static const char *const modes[] = {"PRAGMA journal_mode=DELETE", "PRAGMA journal_mode=WAL"};
    for (size_t i = 0; i < 2; i++) {
        sqlite3 *writer = open_db("grow.db", FETCHING "4M");
        sqlite3 *reader = open_db("grow.db", FETCHING "4M");
        run_sql(writer, "DROP TABLE IF EXISTS t");
        run_sql(writer, modes[i]);
        fill(writer, 10);
        for (int turn = 0; turn < 40; turn++) {
            run_sql(writer, "INSERT INTO t SELECT id+(SELECT max(id) FROM t),"
                            "CAST(printf('%0500d',id+(SELECT max(id) FROM t)) AS BLOB) FROM t "
                            "LIMIT 200");
            if (turn % 5 == 0)
                run_sql(writer, "PRAGMA wal_checkpoint");
            assert_int_equal(ask(reader, WRONG, NULL), 0);
        }
        assert_true(fetched(reader) > 1000);
        run_sql(writer, "DELETE FROM t WHERE id%3; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
        assert_int_equal(ask(reader, WRONG, NULL), 0);
        assert_true(is_sound(reader));
        sqlite3_close(reader);
        sqlite3_close(writer);
    }
}

static void a_read_only_medium_is_read(void **state)
{
    (void)state;
    sqlite3 *db = open_db("medium.db", FETCHING "4M");
    fill(db, 2000);
    sqlite3_close(db);
    static const char *const ways[] = {"mode=ro&" FETCHING "4M", "immutable=1&" FETCHING "4M",
                                       "nolock=1&" FETCHING "4M"};
    for (size_t i = 0; i < 3; i++) {
        db = open_db("medium.db", ways[i]);
        assert_int_equal(ask(db, WRONG, NULL), 0);
        assert_true(fetched(db) > 100);
        sqlite3_close(db);
    }
}

static int on_a_read_only_mount(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(directory, directory, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, directory, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return 77;
    sqlite3 *db = open_db("medium.db", FETCHING "4M");
    int result;
    const bool right = ask(db, WRONG, NULL) == 0 && fetched(db) > 100;
    ask(db, "DELETE FROM t", &result);
    return right && (result & 0xff) == SQLITE_READONLY ? 0 : 1;
}

static void a_read_only_mount_is_read(void **state)
{
    (void)state;
    const int code = in_child(on_a_read_only_mount);
    if (code == 77)
        skip(); /* it takes the right to mount */
    assert_int_equal(code, 0);
}

static void attached_databases_are_fetched_too(void **state)
{
    (void)state;
    char sql[400];
    sqlite3 *db = open_db("main.db", FETCHING "8M");
    fill(db, 2000);
    snprintf(sql, sizeof(sql), "ATTACH 'file:%s/side.db?" FETCHING "8M' AS side;", directory);
    run_sql(db, sql);
    run_sql(db, "PRAGMA side.mmap_size=1000000000;"
                "CREATE TABLE side.u AS SELECT id, x FROM t");
    assert_int_equal(ask(db, "SELECT count(*) FROM t JOIN side.u USING(id) WHERE t.x=u.x", NULL),
                     2000);
    assert_true(maps_of("main.db") > 0);
    assert_true(maps_of("side.db") > 0);
    /* Both in one transaction: a super-journal, which is no file of ours. */
    run_sql(db, "BEGIN; UPDATE t SET x=x||'1'; UPDATE u SET x=x||'1'; COMMIT");
    assert_int_equal(ask(db, "SELECT count(*) FROM t JOIN side.u USING(id) WHERE t.x=u.x", NULL),
                     2000);
    run_sql(db, "DETACH side");
    assert_int_equal(maps_of("side.db"), 0);
    sqlite3_close(db);
}

static void names_with_strange_characters_and_parameters_survive(void **state)
{
    (void)state;
    sqlite3 *db = open_db("a%20b%25%3f%26.db", "psow=0&extra=1&extra=2&" FETCHING "4M");
    run_sql(db, "PRAGMA journal_mode=WAL");
    fill(db, 500);
    run_sql(db, "PRAGMA wal_checkpoint(TRUNCATE)");
    assert_int_equal(ask(db, WRONG, NULL), 0);
    assert_true(fetched(db) > 0);
    assert_int_equal(access(path_of("a b%?&.db"), F_OK), 0);
    assert_int_equal(access(path_of("a b%?&.db-wal"), F_OK), 0);
    sqlite3_close(db);
    assert_int_equal(access(path_of("a b%?&.db-wal"), F_OK), -1);
}

static void what_cannot_be_opened_says_so(void **state)
{
    (void)state;
    int result;
    assert_int_equal(mkdir(path_of("directory.db"), 0700), 0);
    assert_null(try_open("directory.db", FETCHING "4M", &result));
    assert_int_equal(result & 0xff, SQLITE_CANTOPEN);
    assert_null(try_open("nowhere/x.db", FETCHING "4M", &result));
    assert_int_equal(result & 0xff, SQLITE_CANTOPEN);
    assert_null(try_open("absent.db", "mode=ro&" FETCHING "4M", &result));
    assert_int_equal(result & 0xff, SQLITE_CANTOPEN);
    /* In memory, and temporary: nothing to fetch from, and nothing wrong with that. */
    sqlite3 *db = open_db("memory", "mode=memory&" FETCHING "4M");
    fill(db, 100);
    assert_int_equal(ask(db, WRONG, NULL), 0);
    sqlite3_close(db);
    assert_int_equal(sqlite3_open_v2("", &db, SQLITE_OPEN_READWRITE, "mapfold"), SQLITE_OK);
    run_sql(db, "PRAGMA mmap_size=1000000; PRAGMA cache_size=10");
    fill(db, 2000);
    assert_int_equal(ask(db, WRONG, NULL), 0);
    sqlite3_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registering_again_changes_nothing),
        cmocka_unit_test(pages_are_fetched_and_right),
        cmocka_unit_test(without_the_handler_nothing_is_mapped),
        cmocka_unit_test(a_budget_that_is_none_is_refused),
        cmocka_unit_test(a_switch_that_is_none_is_refused),
        cmocka_unit_test(the_pragma_limits_what_is_fetched),
        cmocka_unit_test(a_program_can_forbid_mapping_or_make_it_the_default),
        cmocka_unit_test(many_databases_share_one_budget),
        cmocka_unit_test(a_budget_of_a_few_pages_gives_the_same_rows),
        cmocka_unit_test(closing_other_connections_drops_no_lock),
        cmocka_unit_test(a_closed_connection_holds_no_lock_while_its_descriptor_is_lent),
        cmocka_unit_test(no_descriptor_is_opened_beside_sqlites_own),
        cmocka_unit_test(growing_is_seen_without_opening_again),
        cmocka_unit_test(a_read_only_medium_is_read),
        cmocka_unit_test(a_read_only_mount_is_read),
        cmocka_unit_test(attached_databases_are_fetched_too),
        cmocka_unit_test(names_with_strange_characters_and_parameters_survive),
        cmocka_unit_test(what_cannot_be_opened_says_so),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
