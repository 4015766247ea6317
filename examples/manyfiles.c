/* SPDX-License-Identifier: MIT */
/*
 * A server's loop over many small files: 100,000 of them, asked for in an order that has
 * favourites, each request answered with the bytes as they lie in the file. All files stay open to
 * the program, with 500 descriptors and 20,000 kernel maps.
 *
 *     cc -O2 -pthread -o manyfiles manyfiles.c $(pkg-config --cflags --libs mapfold)
 *     ./manyfiles DIRECTORY [FILES [REQUESTS]]      makes the files there if they are missing, and
 *                                                   leaves them
 *
 * Things to see:
 *  - A file that is asked for once is read, not mapped: MF_MAY_COPY. Those that are asked for again
 *    get a kernel map, for which one that was not used lately goes.
 *  - Threads share the pool without a lock of ours; a hit takes none of the pool's either (serve).
 *  - The limits hold at any moment, whatever is asked for, and the pool counts what it did
 *    (report).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mapfold/window.h>

enum { THREADS = 4, PATH_BYTES = 4096, MOST_BYTES = 600 };

struct server {
    const char *directory;
    struct mf_pool *pool;
    struct mf_file **files;
    uint64_t count, requests;
};

struct worker {
    struct server *server;
    pthread_t thread;
    uint64_t seed, bytes, wrong;
    int err;
};

static const struct mf_pool_limits limits = {.bytes = 128 << 20, .maps = 20000, .files = 500};

static size_t size_of(uint64_t number)
{
    return 100 + number % (MOST_BYTES - 100);
}

/* Makes a file of which every byte tells its number, unless it is there. 0 or -errno. */
static int make_file(const char *path, uint64_t number)
{
    char bytes[MOST_BYTES];
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno == EEXIST ? 0 : -errno;
    memset(bytes, (int)(number % 251), sizeof(bytes));
    const ssize_t written = write(fd, bytes, size_of(number));
    int err = written < 0 ? -errno : written == (ssize_t)size_of(number) ? 0 : -ENOSPC;
    if (close(fd) < 0 && err == 0)
        err = -errno;
    return err;
}

static int open_files(struct server *server)
{
    char path[PATH_BYTES];
    int err = 0;
    for (uint64_t i = 0; i < server->count && err == 0; i++) {
        const int length =
            snprintf(path, sizeof(path), "%s/%06" PRIu64 ".txt", server->directory, i);
        err = length >= (int)sizeof(path) ? -ENAMETOOLONG : make_file(path, i);
        if (err == 0)
            err = mf_file_open(server->pool, path, 0, &server->files[i]);
    }
    return err;
}

/* The least of ten random numbers: half of the requests go to 7 % of the files. */
static uint64_t next_file(struct worker *worker)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 10; i++) {
        worker->seed = worker->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint64_t random = (worker->seed >> 33) % worker->server->count;
        least = random < least ? random : least;
    }
    return least;
}

/* One request. A server would send the window's bytes; here they are looked at. */
static int serve(struct worker *worker, uint64_t number)
{
    struct mf_file *file = worker->server->files[number];
    struct mf_window window = {0};
    int err = mf_window_pin(file, 0, size_of(number), MF_MAY_COPY, MF_FOREVER, &window);
    if (err < 0)
        return err;
    const unsigned char *bytes = window.data;
    const unsigned char first = bytes[0], last = bytes[window.length - 1];
    worker->bytes += window.length;
    err = mf_window_unpin(&window); /* -EIO: the file was cut, and what we read is not its bytes */
    if (err == 0)
        worker->wrong += first != number % 251 || last != number % 251;
    return err;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (uint64_t i = 0; i < worker->server->requests / THREADS && worker->err == 0; i++)
        worker->err = serve(worker, next_file(worker));
    return NULL;
}

static int report(const struct server *server, const struct worker *workers)
{
    struct mf_pool_stats stats;
    uint64_t bytes = 0, wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        bytes += workers[i].bytes;
        wrong += workers[i].wrong;
    }
    mf_pool_stats(server->pool, &stats);
    printf("%" PRIu64 " files open, %" PRIu64 " bytes served, %" PRIu64 " answers wrong\n",
           server->count, bytes, wrong);
    printf("%" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64 " read instead of mapped\n", stats.hits,
           stats.misses, stats.copies);
    printf("now %u of %u maps, %u of %u descriptors\n", stats.maps, limits.maps, stats.files_open,
           limits.files);
    return wrong ? -EBADMSG : 0;
}

static int serve_all(struct server *server)
{
    struct worker workers[THREADS] = {{0}};
    int err = 0, started = 0;
    for (; started < THREADS && err == 0; started++) {
        workers[started] = (struct worker){.server = server, .seed = (uint64_t)started + 2001};
        err = -pthread_create(&workers[started].thread, NULL, work, &workers[started]);
    }
    started -= err != 0;
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (err == 0)
            err = workers[i].err;
    }
    return err == 0 ? report(server, workers) : err;
}

static int run(struct server *server)
{
    int err = mf_fault_install();
    if (err == 0)
        err = mf_pool_create(&limits, 0, 0, &server->pool);
    if (err < 0)
        return err;
    server->files = calloc(server->count, sizeof(struct mf_file *));
    err = server->files ? open_files(server) : -ENOMEM;
    if (err == 0)
        err = serve_all(server);
    if (server->files)
        mf_file_close_many(server->files, server->count);
    free(server->files);
    mf_pool_destroy(server->pool);
    return err;
}

int main(int argc, char **argv)
{
    struct server server = {.directory = argc > 1 ? argv[1] : NULL,
                            .count = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000,
                            .requests = argc > 3 ? strtoull(argv[3], NULL, 10) : 400000};
    if (argc < 2 || argc > 4 || server.count == 0) {
        fprintf(stderr,
                "usage: manyfiles DIRECTORY [FILES [REQUESTS]]\n"
                "FILES (100000) files of up to 600 bytes are made in DIRECTORY and stay there.\n");
        return 2;
    }
    const int err = run(&server);
    if (err < 0)
        fprintf(stderr, "manyfiles: in %s: %s\n", server.directory, strerror(-err));
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "manyfiles: cannot write to standard output: %s\n", strerror(errno));
        return 1;
    }
    return err < 0;
}
