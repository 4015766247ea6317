/* SPDX-License-Identifier: MIT */
/*
 * Prints the lines of a log that contain a text, and goes on as the log grows, is cut, or is
 * replaced by a new one under its name; all through windows on the file.
 *
 *     cc -O2 -o tailgrep tailgrep.c $(pkg-config --cflags --libs mapfold)
 *     ./tailgrep error /var/log/syslog          follows the log until it is interrupted
 *     ./tailgrep -1 error /var/log/syslog       ends at the log's end
 *
 * What a program that maps a log must get right, and where it is done here:
 *  - The log may be cut while it is being read. mf_fault_install makes the lost pages read as
 *    zeros, and a line is printed only if mf_window_check says that what was read was the file's
 *    (search). Until then nothing that was read is relied on: not even that it stays what it was.
 *  - The log may get a new file under its name. The descriptor is ours, so the identity of what is
 *    being read is known, whatever the name leads to by now (was_rotated).
 *  - The log may be larger than memory. The pool holds 16 MiB of it at a time.
 *
 * A log that is cut and has grown beyond its old length before anybody looks seems not to have been
 * cut; tail(1) is no wiser.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem, memrchr */
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mapfold/window.h>

enum { PIECE = 1 << 20, POLL_MICROSECONDS = 100000 };

struct log {
    const char *path;
    const char *wanted;
    struct mf_pool *pool;
    struct mf_file *file;
    int fd;
    struct stat identity;
    uint64_t done; /* bytes searched */
};

static int log_open(struct log *log)
{
    log->fd = open(log->path, O_RDONLY | O_CLOEXEC);
    if (log->fd < 0)
        return -errno;
    int err = fstat(log->fd, &log->identity) < 0 ? -errno : 0;
    if (err == 0)
        err = mf_file_from_fd(log->pool, log->fd, 0, &log->file);
    if (err < 0)
        close(log->fd);
    log->done = 0;
    return err;
}

static void log_close(struct log *log)
{
    mf_file_close(log->file);
    close(log->fd);
}

/* Whether the name leads to another file than the one that is open; not while there is none. */
static bool was_rotated(const struct log *log)
{
    struct stat now;
    return stat(log->path, &now) == 0 &&
           (now.st_ino != log->identity.st_ino || now.st_dev != log->identity.st_dev);
}

/* Adds the whole lines that contain the text to *found. How many bytes were looked at. The bytes
 * are the file's own: a newline that was there a moment ago may be gone, if the log is being cut.
 */
static size_t find_lines(const struct log *log, const char *data, size_t length, FILE *found)
{
    const char *end = memrchr(data, '\n', length), *line = data;
    if (!end)
        return 0;
    for (const char *newline; line <= end; line = newline + 1) {
        newline = memchr(line, '\n', length - (size_t)(line - data));
        if (!newline)
            break;
        if (memmem(line, (size_t)(newline - line), log->wanted, strlen(log->wanted)))
            fwrite(line, 1, (size_t)(newline - line) + 1, found);
    }
    return (size_t)(line - data);
}

/*
 * Searches [done, done + length). How many bytes that was, 0 if they hold no whole line; or a
 * negative errno, and then nothing was printed: -ERANGE if the log was cut, -EIO if pages of it
 * vanished, because it was cut or because the disk has lost them.
 */
static ssize_t search(const struct log *log, size_t length)
{
    struct mf_window window = {0};
    char *text = NULL;
    size_t text_length = 0;
    int err = mf_window_pin(log->file, log->done, length, MF_CHECK_SIZE, MF_FOREVER, &window);
    if (err < 0)
        return err;
    FILE *found = open_memstream(&text, &text_length);
    size_t looked_at = 0;
    if (found) {
        looked_at = find_lines(log, window.data, length, found);
        if (fclose(found) != 0)
            err = -errno;
    } else {
        err = -errno;
    }
    const int changed = mf_window_check(&window);
    mf_window_unpin(&window);
    if (err == 0)
        err = changed;
    if (err == 0 && fwrite(text, 1, text_length, stdout) != text_length)
        err = -errno;
    free(text);
    return err < 0 ? err : (ssize_t)looked_at;
}

/* Searches up to the end of the log as it is now; the line without an end waits for it. 0 or
 * -errno. */
static int search_to_end(struct log *log)
{
    size_t piece = PIECE;
    for (;;) {
        const int64_t size = mf_file_size(log->file);
        if (size < 0)
            return (int)size;
        if ((uint64_t)size < log->done)
            log->done = 0; /* cut: what is there now was written since */
        const uint64_t left = (uint64_t)size - log->done;
        if (left == 0)
            return fflush(stdout) == 0 ? 0 : -errno;
        const ssize_t looked_at = search(log, left < piece ? (size_t)left : piece);
        if (looked_at == -ERANGE || (looked_at == -EIO && mf_file_size(log->file) != size))
            continue; /* cut meanwhile: look again */
        if (looked_at < 0)
            return (int)looked_at;
        log->done += (uint64_t)looked_at;
        if (looked_at == 0 && left <= piece)
            return fflush(stdout) == 0 ? 0 : -errno;
        piece = looked_at == 0 ? 2 * piece : PIECE; /* a line that is longer than a piece */
    }
}

static int follow(struct log *log, bool once)
{
    int err = log_open(log);
    while (err == 0) {
        /* Asked first: what the old log got before it was replaced is searched, too. */
        const bool rotated = !once && was_rotated(log);
        err = search_to_end(log);
        if (once || err < 0)
            break;
        if (rotated) {
            log_close(log);
            err = log_open(log);
            if (err < 0)
                return err;
        } else {
            usleep(POLL_MICROSECONDS);
        }
    }
    if (log->file)
        log_close(log);
    return err;
}

int main(int argc, char **argv)
{
    const bool once = argc == 4 && strcmp(argv[1], "-1") == 0;
    if (argc != 3 + once) {
        fprintf(stderr, "usage: tailgrep [-1] TEXT FILE\n");
        return 2;
    }
    struct log log = {.wanted = argv[1 + once], .path = argv[2 + once]};
    const struct mf_pool_limits limits = {.bytes = 16 << 20, .maps = 16, .files = 1};
    int err = mf_fault_install();
    if (err == 0)
        err = mf_pool_create(&limits, 0, 0, &log.pool);
    if (err == 0) {
        err = follow(&log, once);
        mf_pool_destroy(log.pool);
    }
    if (err < 0 && ferror(stdout))
        fprintf(stderr, "tailgrep: cannot write to standard output: %s\n", strerror(-err));
    else if (err < 0)
        fprintf(stderr, "tailgrep: cannot search %s: %s\n", log.path, strerror(-err));
    return err < 0;
}
