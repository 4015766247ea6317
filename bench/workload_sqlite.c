/* SPDX-License-Identifier: MIT */
/*
 * sqlite: one database, read by SQLite's own VFS and by the VFS `mapfold`, with the same page
 * cache.
 *
 * The systems take turns (turns.h), and a row is the median slice. Every thread has a connection.
 * Before it is timed each system has read all of the table, so that what it keeps mapped is mapped.
 * Points are read in transactions of a batch, since taking and giving up SQLite's locks costs the
 * same for all.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli/cli.h"
#include "sqlite_file.h"
#include "turns.h"

enum {
    ROUNDS = 25,
    THREADS = 2,
    BATCH = 512,
    RANGE = 4000,
    FULL_ROWS = 5000000,
    QUICK_ROWS = 200000
};

struct system {
    const char *name;
    const char *parameters; /* of the URI */
    const char *mmap_size;
    bool mapfold;
};

/* SQLite's own limit of mapped bytes is 2 GiB less 64 KiB by default. */
static const struct system all_systems[] = {
    {"read", "", "0", false},
    {"mmap", "", "2147418112", false},
    {"mapfold", "&vfs=mapfold&mapfold_faults=1&mapfold_budget=4G", "1099511627776", true},
    {"mapfold-64M", "&vfs=mapfold&mapfold_faults=1&mapfold_budget=64M", "1099511627776", true},
};
enum { SYSTEMS = sizeof(all_systems) / sizeof(*all_systems) };

static const char *const systems[] = {"read", "mmap", "mapfold", "mapfold-64M", NULL};

struct part {
    const char *name;
    const char *title;
    const char *sql;
    uint64_t ops; /* of a slice */
    int (*run)(void *reader, size_t first, size_t count);
};

struct run {
    struct bench *bench;
    const struct part *part;
    const struct system *system;
    const struct sqlite_file *file;
    unsigned threads;
    uint64_t ops; /* of a slice, for each thread */
};

/* --- one thread's work --------------------------------------------------------------------- */

struct reader {
    struct process *process;
    const struct run *run;
    sqlite3 *db;
    sqlite3_stmt *statement;
    uint64_t seed;
    uint64_t next, left; /* scan: the id that comes next, and the rows to the range's end */
    pthread_t thread;
    struct bench_time time;
};

struct process {
    struct run run;
    pthread_barrier_t start;
    struct reader readers[THREADS];
};

/* The row that is there must be the row of that id: a wrong page would be noticed. */
static int check_row(const struct reader *reader, uint64_t id)
{
    const void *x = sqlite3_column_blob(reader->statement, 0);
    return x && sqlite3_column_bytes(reader->statement, 0) == SQLITE_FILE_ROW &&
                   memcmp(x, &id, sizeof(id)) == 0
               ? 0
               : -EILSEQ;
}

static int point_run(void *state, size_t first, size_t count)
{
    struct reader *reader = state;
    (void)first;
    for (size_t i = 0; i < count; i++) {
        const uint64_t id = 1 + bench_random(&reader->seed) % reader->run->file->rows;
        sqlite3_bind_int64(reader->statement, 1, (sqlite3_int64)id);
        if (sqlite3_step(reader->statement) != SQLITE_ROW || check_row(reader, id))
            return -EILSEQ;
        sqlite3_reset(reader->statement);
    }
    return 0;
}

/* Goes on with the range under way, or begins another. */
static int scan_run(void *state, size_t first, size_t count)
{
    struct reader *reader = state;
    (void)first;
    for (size_t i = 0; i < count; i++) {
        if (reader->left == 0) {
            const uint64_t rows = reader->run->file->rows;
            reader->left = rows < RANGE ? rows : RANGE;
            reader->next = 1 + bench_random(&reader->seed) % (rows - reader->left + 1);
            sqlite3_reset(reader->statement);
            sqlite3_bind_int64(reader->statement, 1, (sqlite3_int64)reader->next);
        }
        if (sqlite3_step(reader->statement) != SQLITE_ROW || check_row(reader, reader->next++))
            return -EILSEQ;
        reader->left--;
    }
    return 0;
}

static int begin(void *state, size_t count)
{
    const struct reader *reader = state;
    (void)count;
    return sqlite3_exec(reader->db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK ? 0 : -EIO;
}

static int commit(void *state, size_t count)
{
    const struct reader *reader = state;
    (void)count;
    return sqlite3_exec(reader->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK ? 0 : -EIO;
}

static const struct part all_parts[] = {
    {"sqlite.point", "one row by its id, at random", "SELECT x FROM t WHERE id=?", 20000,
     point_run},
    {"sqlite.scan", "4000 rows from a random one on; an operation is a row",
     "SELECT x FROM t WHERE id>=?", 200000, scan_run},
};
enum { PARTS = sizeof(all_parts) / sizeof(*all_parts) };

static const char *const parts[] = {"sqlite.point", "sqlite.scan", NULL};

/* --- a process for one system -------------------------------------------------------------- */

static int load_extension(const struct run *run)
{
    char path[4096];
    char *error = NULL;
    sqlite3 *db = NULL;
    if (!cli_library("src/sqlite/libmapfold_sqlite.so", path, sizeof(path))) {
        cli_error("cannot find SQLite's extension %s: %s; is mapfold installed?", path,
                  strerror(errno));
        return -1;
    }
    int status = -1;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK)
        sqlite_file_error(run->file, db, "open a database to load the extension for");
    else if (sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL) != SQLITE_OK ||
             sqlite3_load_extension(db, path, NULL, &error) != SQLITE_OK)
        cli_error("cannot load %s into SQLite %s: %s", path, sqlite3_libversion(),
                  error ? error : "it loads no extensions");
    else
        status = 0;
    sqlite3_free(error);
    sqlite3_close(db);
    return status;
}

/* A path as it stands in a URI, in which three of its characters would mean something else. */
static void path_escape(const char *path, char *escaped)
{
    for (; *path; path++)
        escaped += sprintf(escaped, strchr("%?#", *path) ? "%%%02X" : "%c", (unsigned char)*path);
    *escaped = '\0';
}

static int reader_open(struct process *process, unsigned number)
{
    const struct run *run = &process->run;
    struct reader *reader = &process->readers[number];
    char path[3 * sizeof(run->file->path)], uri[sizeof(path) + 100];
    char pragmas[200];
    reader->process = process;
    reader->run = run;
    reader->seed = 7001 + number;
    reader->next = 1;
    path_escape(run->file->path, path);
    snprintf(uri, sizeof(uri), "file:%s?mode=ro%s", path, run->system->parameters);
    snprintf(pragmas, sizeof(pragmas),
             "PRAGMA mmap_size=%s; PRAGMA cache_size=-2000; SELECT max(length(x)) FROM t",
             run->system->mmap_size);
    if (sqlite3_open_v2(uri, &reader->db,
                        SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        return sqlite_file_error(run->file, reader->db, "open");
    if (sqlite3_exec(reader->db, pragmas, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(reader->db, run->part->sql, -1, &reader->statement, NULL) != SQLITE_OK)
        return sqlite_file_error(run->file, reader->db, "read");
    return 0;
}

static void *work(void *argument)
{
    struct reader *reader = argument;
    const struct run *run = reader->run;
    /* A range goes on over batches; its statement is a transaction of its own. */
    const bool ranges = run->part->run == scan_run;
    const struct bench_series series = {
        ranges ? NULL : begin, run->part->run, ranges ? NULL : commit, BATCH, false, 0, 0};
    pthread_barrier_wait(&reader->process->start);
    bench_measure(&series, reader, run->ops, bench_now() + (uint64_t)(run->bench->seconds * 1e9),
                  &reader->time);
    return NULL;
}

static int process_begin(struct bench *bench, const void *argument, void **state)
{
    static struct process process;
    process.run = *(const struct run *)argument;
    process.run.bench = bench;
    pthread_barrier_init(&process.start, NULL, process.run.threads);
    if (process.run.system->mapfold && load_extension(&process.run))
        return CLI_FAILURE;
    for (unsigned i = 0; i < process.run.threads; i++) {
        if (reader_open(&process, i))
            return CLI_FAILURE;
    }
    *state = &process;
    return CLI_OK;
}

/* The mean of the threads, each by its own CPU time; the percentiles are the first's. */
static int make_row(struct process *process, struct bench_row *row)
{
    const struct run *run = &process->run;
    *row = (struct bench_row){.workload = run->part->name,
                              .system = run->system->name,
                              .n = run->file->rows,
                              .threads = run->threads,
                              .kernel_maps = bench_kernel_maps(),
                              .p50_ns = process->readers[0].time.p50_ns,
                              .p99_ns = process->readers[0].time.p99_ns};
    for (unsigned i = 0; i < run->threads; i++) {
        const struct bench_time *time = &process->readers[i].time;
        if (time->error && time->error != -ETIME) {
            sqlite_file_error(run->file, process->readers[i].db,
                              time->error == -EILSEQ ? "find the right row in" : "read");
            return CLI_FAILURE;
        }
        row->ops += time->ops;
        row->ns_per_op += time->ns_per_op / run->threads;
        if (time->error)
            snprintf(row->note, sizeof(row->note), "stopped after %" PRIu64 " operations",
                     time->done);
    }
    return CLI_OK;
}

static int process_slice(void *state, struct bench_row *row)
{
    struct process *process = state;
    for (unsigned i = 1; i < process->run.threads; i++) {
        struct reader *reader = &process->readers[i];
        const int error = pthread_create(&reader->thread, NULL, work, reader);
        if (error) {
            cli_error("cannot start a thread: %s", strerror(error));
            return CLI_FAILURE;
        }
    }
    work(&process->readers[0]);
    for (unsigned i = 1; i < process->run.threads; i++)
        pthread_join(process->readers[i].thread, NULL);
    return make_row(process, row);
}

/* --- the order of a run -------------------------------------------------------------------- */

static int run_part(struct bench *bench, const struct sqlite_file *file, const struct part *part,
                    unsigned threads)
{
    const struct turns turns = {process_begin, process_slice, bench->quick ? 3 : ROUNDS};
    struct run runs[SYSTEMS];
    struct turns_system wanted[SYSTEMS];
    size_t count = 0;
    for (size_t s = 0; s < SYSTEMS; s++) {
        const struct system *system = &all_systems[s];
        if (!bench_wants(bench, system->name))
            continue;
        runs[count] = (struct run){NULL, part, system, file, threads, part->ops};
        wanted[count].argument = &runs[count];
        wanted[count].named = (struct bench_row){
            .workload = part->name, .system = system->name, .n = file->rows, .threads = threads};
        count++;
    }
    bench_progress(bench, "%s, threads: %u", part->name, threads);
    return turns_run(bench, &turns, wanted, count);
}

static int run_size(struct bench *bench, uint64_t rows)
{
    struct sqlite_file file;
    if (sqlite_file_make(bench, rows, &file))
        return CLI_FAILURE;
    int status = CLI_OK;
    for (size_t p = 0; p < PARTS; p++) {
        if (!bench_wants_part(bench, all_parts[p].name))
            continue;
        for (unsigned threads = 1; threads <= THREADS && status == CLI_OK; threads++)
            status = run_part(bench, &file, &all_parts[p], threads);
    }
    sqlite_file_remove(&file);
    return status;
}

static int run(struct bench *bench)
{
    const uint64_t size = bench->quick ? QUICK_ROWS : FULL_ROWS;
    bool any = false;
    for (size_t s = 0; s < SYSTEMS; s++)
        any = any || bench_wants(bench, all_systems[s].name);
    if (!any)
        return CLI_OK;
    int status = bench->sizes[0] ? CLI_OK : run_size(bench, size);
    for (const uint64_t *n = bench->sizes; *n && status == CLI_OK; n++)
        status = run_size(bench, *n);
    return status;
}

/* --- what the rows say --------------------------------------------------------------------- */

static const struct bench_row *row_like(const struct bench *bench, const struct bench_row *like,
                                        const char *system)
{
    return bench_row_find(bench, &(struct bench_row){.workload = like->workload,
                                                     .system = system,
                                                     .n = like->n,
                                                     .threads = like->threads});
}

static void print_speed(FILE *out, const struct bench_row *rival, const struct bench_row *row)
{
    if (rival && rival->ops && row->ops && rival != row)
        fprintf(out, " %9.2f", rival->ns_per_op / row->ns_per_op);
    else
        fprintf(out, " %9s", "-");
}

static void print_part(const struct bench *bench, FILE *out, const struct part *part)
{
    bool any = false;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (strcmp(row->workload, part->name) != 0)
            continue;
        if (!any)
            fprintf(out, "%s: %s\n  %9s %7s  %-11s %9s %9s %9s %9s %9s %7s\n", part->name,
                    part->title, "rows", "threads", "system", "ns/op", "p50", "p99", "x read",
                    "x mmap", "maps");
        any = true;
        fprintf(out, "  %9" PRIu64 " %7u  %-11s", row->n, row->threads, row->system);
        if (row->ops) {
            fprintf(out, " %9.1f %9.0f %9.0f", row->ns_per_op, row->p50_ns, row->p99_ns);
            print_speed(out, row_like(bench, row, "read"), row);
            print_speed(out, row_like(bench, row, "mmap"), row);
            fprintf(out, " %7" PRIu64, row->kernel_maps);
        }
        fprintf(out, "%s%s\n", row->note[0] ? " " : "", row->note);
    }
    if (any)
        fputc('\n', out);
}

static void print(const struct bench *bench, FILE *out)
{
    fputs(
        "One database in SQLite, cache_size -2000, by its own VFS (read: no mmap; mmap: all of "
        "it mapped)\nand by the VFS mapfold with a budget of 4 GiB and of 64 MiB. x read, x mmap: "
        "their ns/op divided\nby the row's.\n\n",
        out);
    for (size_t p = 0; p < PARTS; p++)
        print_part(bench, out, &all_parts[p]);
}

static void plot(const struct bench *bench, FILE *script)
{
    fputs("set multiplot layout 1,2 title 'mapfold bench sqlite: one thread'\n", script);
    for (size_t p = 0; p < PARTS; p++)
        plot_bars(bench, script, all_parts[p].name, all_parts[p].title);
    fputs("unset multiplot\n", script);
}

const struct bench_workload bench_sqlite = {
    .name = "sqlite",
    .help = "a database read by SQLite's own VFS and by the VFS mapfold",
    .systems = systems,
    .parts = parts,
    .run = run,
    .print = print,
    .plot = plot,
};
