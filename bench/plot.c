/* SPDX-License-Identifier: MIT */
/*
 * Plots: the workload writes gnuplot commands with its rows inside; gnuplot draws into memory, and
 * only a finished picture is written to the file, so that no end leaves half of one.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "children.h"
#include "cli/cli.h"

int plot_check(const char *path)
{
    struct stat status;
    char copy[PATH_MAX];
    if (!child_exists("gnuplot")) {
        cli_error("cannot plot: gnuplot is not installed; on Debian or Ubuntu: apt-get install "
                  "gnuplot-nox");
        return -1;
    }
    if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy))
        errno = ENAMETOOLONG;
    else if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        errno = EISDIR;
    else if (access(path, F_OK) == 0 ? access(path, W_OK) == 0 : access(dirname(copy), W_OK) == 0)
        return 0;
    cli_error("cannot write the plot to %s: %s", path, strerror(errno));
    return -1;
}

static int write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        const ssize_t written = write(fd, bytes, length);
        if (written < 0 && errno != EINTR)
            return -1;
        bytes += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static int copy_blocks(int picture, int fd)
{
    static char block[1 << 16];
    off_t at = 0;
    for (ssize_t got; (got = pread(picture, block, sizeof(block), at)) != 0; at += got) {
        if (got < 0 || write_all(fd, block, (size_t)got))
            return -1;
    }
    return 0;
}

/* Half a picture is removed again, but never a device that somebody named. */
static int copy_out(int picture, const char *path)
{
    struct stat status;
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    const bool ours = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    const bool failed = copy_blocks(picture, fd) != 0;
    const int error = errno;
    if (close(fd) == 0 && !failed)
        return 0;
    const int reason = failed ? error : errno;
    if (ours)
        unlink(path);
    errno = reason;
    return -1;
}

/* Colours that differ in lightness too, for those who do not see them all. */
static const char styles[] = "set style line 1 lw 3 pt 7 ps 0.6 lc rgb '#0b6e4f'\n"
                             "set style line 2 lw 2 pt 5 ps 0.5 lc rgb '#c0392b'\n"
                             "set style line 3 lw 2 pt 9 ps 0.6 lc rgb '#2c5faa'\n"
                             "set style line 4 lw 2 pt 13 ps 0.7 lc rgb '#e08e0b'\n"
                             "set style line 5 lw 2 pt 4 ps 0.6 lc rgb '#8e6bbf'\n"
                             "set style line 6 lw 2 pt 6 ps 0.6 lc rgb '#555555'\n"
                             "set linetype 1 lc rgb '#0b6e4f'\n"
                             "set linetype 2 lc rgb '#c0392b'\n"
                             "set linetype 3 lc rgb '#2c5faa'\n"
                             "set linetype 4 lc rgb '#e08e0b'\n"
                             "set grid lc rgb '#dddddd'\n"
                             "set tics nomirror\n"
                             "set border 3\n"
                             "set logscale y\n"
                             "set format y '%.0s %cs'\n"
                             "set key below horizontal samplen 2.5\n";

static bool in_panel(const struct bench_row *row, const char *workload, const char *system)
{
    return row->ops > 0 && strcmp(row->workload, workload) == 0 && strcmp(row->system, system) == 0;
}

static bool system_in_panel(const struct bench *bench, const char *workload, const char *system)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        if (in_panel(&bench->rows[i], workload, system))
            return true;
    }
    return false;
}

/* Counts are drawn in thousands, since nobody reads six digits at a tick. */
static double x_of(const struct bench_row *row)
{
    return row->count ? (double)row->count / 1000 : (double)row->n;
}

static void write_points(const struct bench *bench, FILE *script, const char *workload,
                         const char *system)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (in_panel(row, workload, system))
            fprintf(script, "%g %.3e\n", x_of(row), row->ns_per_op * 1e-9);
    }
    fputs("e\n", script);
}

/* A line that ends early says why: the first word of the note. */
static void write_labels(const struct bench *bench, FILE *script, const char *workload)
{
    fputs("unset label\n", script);
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->ops > 0 && row->note[0] && strcmp(row->workload, workload) == 0)
            fprintf(script, "set label '%.*s' at %g,%.3e offset 0.6,0.4\n",
                    (int)strcspn(row->note, " "), row->note, x_of(row), row->ns_per_op * 1e-9);
    }
}

void plot_panel(const struct bench *bench, FILE *script, const char *workload, const char *title)
{
    const char *const *systems = bench->workload->systems;
    const char *separator = "plot";
    write_labels(bench, script, workload);
    fprintf(script, "set title \"%s\"\n", title);
    for (int i = 0; systems[i]; i++) {
        if (!system_in_panel(bench, workload, systems[i]))
            continue;
        fprintf(script, "%s '-' using 1:2 with linespoints ls %d title '%s'", separator, i + 1,
                systems[i]);
        separator = ",";
    }
    if (*separator == 'p')
        return;
    fputc('\n', script);
    for (int i = 0; systems[i]; i++) {
        if (system_in_panel(bench, workload, systems[i]))
            write_points(bench, script, workload, systems[i]);
    }
}

void plot_bars(const struct bench *bench, FILE *script, const char *workload, const char *title)
{
    const char *const *systems = bench->workload->systems;
    fprintf(script,
            "set title \"%s\"\nunset logscale\nunset xlabel\nset yrange [0:*]\nunset label\n"
            "set style fill solid 0.8\nset boxwidth 0.6\nunset key\nset xtics ()\n",
            title);
    int bars = 0;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->ops == 0 || strcmp(row->workload, workload) != 0)
            continue;
        fprintf(script,
                "set xtics add ('%s' %d)\nset label '%.0f ns' at %d,%.3e center offset 0,0.7\n",
                row->system, bars, row->ns_per_op, bars, row->ns_per_op * 1e-9);
        bars++;
    }
    if (bars == 0)
        return;
    fprintf(script, "set xrange [-0.6:%d.6]\nplot '-' using 1:2:3 with boxes lc variable\n",
            bars - 1);
    bars = 0;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->ops == 0 || strcmp(row->workload, workload) != 0)
            continue;
        int style = 1;
        while (systems[style - 1] && strcmp(systems[style - 1], row->system) != 0)
            style++;
        fprintf(script, "%d %.3e %d\n", bars++, row->ns_per_op * 1e-9, style);
    }
    fputs("e\n", script);
}

static int draw(const struct bench *bench, int script, int picture, int messages)
{
    static const char *const argv[] = {"gnuplot", "-", NULL};
    const int copy = dup(script);
    FILE *commands = copy < 0 ? NULL : fdopen(copy, "w");
    if (!commands) {
        if (copy >= 0)
            close(copy);
        return -1;
    }
    fputs("set terminal svg noenhanced size 1120,900 font 'sans-serif,14' background 'white'\n"
          "set encoding utf8\n",
          commands);
    fputs(styles, commands);
    bench->workload->plot(bench, commands);
    if (fclose(commands) || lseek(script, 0, SEEK_SET) != 0)
        return -1;
    const pid_t pid = child_start(argv, script, picture, messages);
    return pid < 0 ? -1 : child_wait(pid);
}

int plot_write(const struct bench *bench, const char *path)
{
    char complaint[300] = "";
    const int script = child_file("script");
    const int picture = child_file("picture");
    const int messages = child_file("messages");
    int failed = -1;
    if (script < 0 || picture < 0 || messages < 0) {
        cli_error("cannot plot: no memory file: %s", strerror(errno));
    } else if ((failed = draw(bench, script, picture, messages)) != 0) {
        if (pread(messages, complaint, sizeof(complaint) - 1, 0) < 0)
            complaint[0] = '\0';
        cli_error("cannot plot: gnuplot failed (exit code %d): %s", failed, complaint);
    } else if ((failed = copy_out(picture, path)) != 0) {
        cli_error("cannot write the plot to %s: %s", path, strerror(errno));
    }
    for (int i = 0; i < 3; i++) {
        const int fd = i == 0 ? script : i == 1 ? picture : messages;
        if (fd >= 0)
            close(fd);
    }
    return failed ? -1 : 0;
}
