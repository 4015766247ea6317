/* SPDX-License-Identifier: MIT */
/*
 * files: every regular file of a real tree, read through windows, local windows and mf_read at
 * random places, each piece compared with what pread(2) says. It is a check more than a race: a
 * piece that differs is a failure. Files that cannot be read, and those that change meanwhile, are
 * counted and named.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mapfold/window.h>

#include "bench.h"
#include "cli/cli.h"

enum {
    SEED = 2002,
    PIECES = 2, /* of each file and system */
    PIECE_MAX = 64 << 10,
    NAMED_MAX = 20, /* files that are named; others are counted */
    OPEN_AT_ONCE = 32,
    EVERY = 500, /* files between two lines of progress */
};

#define BUDGET (UINT64_C(64) << 20)

static const char *const systems[] = {"window", "local", "mf_read", "pread", NULL};

enum system { WINDOW, LOCAL, READ, PREAD, SYSTEMS };

struct tally {
    uint64_t pieces, bytes, ns;
};

/* One for the process: nftw(3) hands nothing on. */
static struct files {
    struct bench *bench;
    struct mf_pool *pool;
    uint64_t random;
    uint64_t until;
    uint64_t regular, read, empty, changed, unreadable, differ;
    struct tally tally[SYSTEMS];
    int status;
    bool stopped;
    char ours[PIECE_MAX], theirs[PIECE_MAX];
    char named[NAMED_MAX][160];
    size_t names;
} files;

static void name_file(const char *path, const char *what)
{
    if (files.names == NAMED_MAX)
        return;
    const size_t room = sizeof(files.named[0]) - strlen(what) - 3;
    const size_t length = strlen(path);
    const bool cut = length > room;
    snprintf(files.named[files.names++], sizeof(files.named[0]), "%s%s: %s", cut ? "..." : "",
             cut ? path + length - room + 3 : path, what);
}

/* Bytes of the piece in files.ours, or a negative errno. */
static ssize_t read_ours(enum system system, struct mf_file *file, uint64_t offset, size_t length)
{
    struct mf_window window = {.data = NULL};
    int error;
    switch (system) {
    case WINDOW:
        error = mf_window_pin(file, offset, length, MF_MAY_COPY, MF_FOREVER, &window);
        if (error)
            return error;
        memcpy(files.ours, window.data, length);
        error = mf_window_unpin(&window);
        break;
    case LOCAL:
        error = mf_local_pin(file, offset, length, &window);
        if (error)
            return error;
        memcpy(files.ours, window.data, length);
        error = mf_local_unpin(&window);
        break;
    default:
        return mf_read(file, offset, files.ours, length, 0);
    }
    return error ? error : (ssize_t)length;
}

/* What differs because the file has changed in between is no fault of ours. */
static bool has_changed(int fd, const struct stat *before)
{
    struct stat now;
    return fstat(fd, &now) != 0 || now.st_size != before->st_size ||
           now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != before->st_mtim.tv_nsec;
}

static void add(struct tally *tally, size_t length, uint64_t ns)
{
    tally->pieces++;
    tally->bytes += length;
    tally->ns += ns;
}

static bool refuse_piece(const char *path, int error)
{
    files.unreadable++;
    name_file(path, strerror(error));
    return false;
}

/* One piece by one system. False: the file is done with, and why has been noted. */
static bool check_piece(enum system system, const char *path, struct mf_file *file, int fd,
                        const struct stat *status)
{
    const uint64_t size = (uint64_t)status->st_size;
    const uint64_t most = size < PIECE_MAX ? size : PIECE_MAX;
    const size_t length = 1 + bench_random_below(&files.random, most);
    const uint64_t places = size - length + 1;
    const uint64_t offset = bench_random(&files.random) % places;
    ssize_t theirs = pread(fd, files.theirs, length, (off_t)offset); /* whoever is first waits */
    if (theirs < 0)
        return refuse_piece(path, errno);
    const uint64_t begin = bench_now();
    const ssize_t ours = read_ours(system, file, offset, length);
    const uint64_t middle = bench_now();
    theirs = pread(fd, files.theirs, length, (off_t)offset);
    const uint64_t end = bench_now();
    if (ours == theirs && memcmp(files.ours, files.theirs, length) == 0) {
        add(&files.tally[system], length, middle - begin);
        add(&files.tally[PREAD], length, end - middle);
        return true;
    }
    if (has_changed(fd, status)) {
        files.changed++;
        name_file(path, "changed while it was read");
    } else if (ours < 0) {
        refuse_piece(path, (int)-ours);
    } else {
        files.differ++;
        cli_error("%s: %zu bytes at %" PRIu64 " by %s are not what pread says; this is a bug: "
                  "please report it",
                  path, length, offset, systems[system]);
        files.status = CLI_FAILURE;
    }
    return false;
}

static void check_file(const char *path, struct mf_file *file, int fd, const struct stat *status)
{
    for (unsigned i = 0; i < PIECES; i++) {
        for (enum system system = WINDOW; system < PREAD; system++) {
            if (bench_wants(files.bench, systems[system]) &&
                !check_piece(system, path, file, fd, status))
                return;
        }
    }
    files.read++;
}

/* Files of no size may still have bytes to read (in /proc): they are not mapped, and left out. */
static void visit_file(const char *path)
{
    struct stat status;
    struct mf_file *file;
    files.regular++;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status)) {
        files.unreadable++;
        name_file(path, strerror(errno));
    } else if (status.st_size == 0) {
        files.empty++;
    } else {
        const int error = mf_file_open(files.pool, path, 0, &file);
        if (error) {
            files.unreadable++;
            name_file(path, strerror(-error));
        } else {
            check_file(path, file, fd, &status);
            mf_file_close(file);
        }
    }
    if (fd >= 0)
        close(fd);
}

static int visit_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)walk;
    if (kind == FTW_DNR) {
        files.unreadable++;
        name_file(path, "directory cannot be read");
    }
    if (kind != FTW_F || !S_ISREG(status->st_mode))
        return 0;
    visit_file(path);
    if (files.regular % EVERY == 0) {
        bench_progress(files.bench, "files: %" PRIu64 " files, %" PRIu64 " pieces, at %.60s",
                       files.regular, files.tally[PREAD].pieces, path);
        files.stopped = bench_now() > files.until;
    }
    return files.stopped;
}

static void report(const char *directory)
{
    for (unsigned i = 0; i < SYSTEMS; i++) {
        const struct tally *tally = &files.tally[i];
        struct bench_row row = {.workload = "files",
                                .system = systems[i],
                                .n = files.read,
                                .threads = 1,
                                .ops = tally->pieces,
                                .only_mean = true};
        if (!bench_wants(files.bench, systems[i]))
            continue;
        if (tally->pieces)
            row.ns_per_op = (double)tally->ns / (double)tally->pieces;
        else
            snprintf(row.note, sizeof(row.note), "no file to read in %.40s", directory);
        if (files.stopped)
            snprintf(row.note, sizeof(row.note), "stopped by --seconds at %" PRIu64 " files",
                     files.regular);
        bench_report(files.bench, &row);
    }
}

static int run(struct bench *bench)
{
    const char *directory = bench->argument ? bench->argument : "/usr";
    const struct mf_pool_limits limits = {.bytes = BUDGET, .maps = 1024, .files = 64};
    struct stat status;
    bool any = false;
    for (unsigned i = 0; i < PREAD; i++)
        any = any || bench_wants(bench, systems[i]);
    if (!any)
        return CLI_OK;
    files.bench = bench;
    files.random = SEED;
    files.status = CLI_OK;
    files.until = bench_now() + (uint64_t)(bench->seconds * 1e9);
    if (stat(directory, &status) || (!S_ISDIR(status.st_mode) && (errno = ENOTDIR))) {
        cli_error("files: cannot read %s: %s; name a directory", directory, strerror(errno));
        return CLI_FAILURE;
    }
    int error = mf_fault_install();
    if (!error)
        error = mf_pool_create(&limits, 0, 0, &files.pool);
    if (error) {
        cli_error("files: cannot make a pool: %s", strerror(-error));
        return CLI_FAILURE;
    }
    if (nftw(directory, visit_entry, OPEN_AT_ONCE, FTW_PHYS) < 0) {
        cli_error("files: cannot walk through %s: %s", directory, strerror(errno));
        files.status = CLI_FAILURE;
    }
    mf_pool_destroy(files.pool);
    report(directory);
    return files.status;
}

static void print(const struct bench *bench, FILE *out)
{
    if (!bench->row_count)
        return;
    fprintf(out,
            "files: %d random pieces of up to %d KiB of every regular file, each compared with "
            "pread\n"
            "  %" PRIu64 " files, %" PRIu64 " of them read, %" PRIu64 " empty, %" PRIu64
            " unreadable, %" PRIu64 " changed meanwhile, %" PRIu64 " wrong\n",
            PIECES, PIECE_MAX >> 10, files.regular, files.read, files.empty, files.unreadable,
            files.changed, files.differ);
    for (unsigned i = 0; i < SYSTEMS; i++) {
        const struct tally *tally = &files.tally[i];
        if (tally->pieces)
            fprintf(out, "  %-8s %10" PRIu64 " pieces %10" PRIu64 " MiB %12.0f ns/piece\n",
                    systems[i], tally->pieces, tally->bytes >> 20,
                    (double)tally->ns / (double)tally->pieces);
    }
    for (size_t i = 0; i < files.names; i++)
        fprintf(out, "  %.*s\n", 98, files.named[i]);
    const uint64_t all = files.unreadable + files.changed;
    if (all > files.names)
        fprintf(out, "  and %" PRIu64 " more\n", all - files.names);
    if (files.stopped)
        fputs("  stopped by --seconds\n", out);
    fputc('\n', out);
}

static void plot(const struct bench *bench, FILE *script)
{
    plot_bars(bench, script, "files", "mapfold bench files: time of a piece");
}

const struct bench_workload bench_files = {
    .name = "files",
    .help = "every regular file of DIR (default /usr), compared with pread",
    .systems = systems,
    .takes_argument = true,
    .run = run,
    .print = print,
    .plot = plot,
};
