/* SPDX-License-Identifier: MIT */
/* What the tests of windows share: files with known bytes, in a directory of their own. */
#ifndef MAPFOLD_TESTS_POOL_COMMON_H
#define MAPFOLD_TESTS_POOL_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mapfold/window.h>

#include "../directory.h"
#include "../unit.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* An emulator has maps and signals of its own, and cannot be started again by exec. */
static inline bool emulated(void)
{
    return getenv("MESON_EXE_WRAPPER") != NULL;
}

static uint64_t page;

static inline int begin_directory(void **state)
{
    (void)state;
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    return directory_make("test");
}

static inline int end_directory(void **state)
{
    (void)state;
    return directory_remove();
}

/* The byte of every test file at an offset; never 0. */
static inline unsigned char byte_at(uint64_t offset, unsigned salt)
{
    return (unsigned char)(1 + (offset * 31 + (offset >> 12) * 7 + salt) % 255);
}

static inline void write_bytes(int fd, uint64_t from, uint64_t to, unsigned salt)
{
    unsigned char buffer[4096];
    while (from < to) {
        uint64_t n = to - from < sizeof(buffer) ? to - from : sizeof(buffer);
        for (uint64_t i = 0; i < n; i++)
            buffer[i] = byte_at(from + i, salt);
        assert_int_equal(pwrite(fd, buffer, n, (off_t)from), n);
        from += n;
    }
}

static inline const char *make_bytes(const char *name, uint64_t size, unsigned salt)
{
    const char *path = path_of(name);
    const int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    write_bytes(fd, 0, size, salt);
    close(fd);
    return path;
}

static inline void assert_bytes(const void *data, uint64_t offset, uint64_t length, unsigned salt)
{
    const unsigned char *p = data;
    for (uint64_t i = 0; i < length; i++)
        if (p[i] != byte_at(offset + i, salt))
            fail_msg("byte %llu is %d, not %d", (unsigned long long)(offset + i), p[i],
                     byte_at(offset + i, salt));
}

static inline struct mf_pool *make_pool(uint64_t bytes, uint32_t maps, uint32_t files,
                                        size_t extent)
{
    const struct mf_pool_limits limits = {bytes, maps, files};
    struct mf_pool *pool;
    assert_int_equal(mf_pool_create(&limits, extent, 0, &pool), 0);
    return pool;
}

static inline struct mf_file *open_file(struct mf_pool *pool, const char *path, uint32_t flags)
{
    struct mf_file *file;
    assert_int_equal(mf_file_open(pool, path, flags, &file), 0);
    return file;
}

static inline struct mf_pool_stats stats_of(struct mf_pool *pool)
{
    struct mf_pool_stats stats;
    mf_pool_stats(pool, &stats);
    return stats;
}

/* A lock of this process's, by fcntl. */
static inline bool lock_is_held(const char *path)
{
    const pid_t child = fork();
    if (child == 0) {
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        _exit(fcntl(fd, F_SETLK, &lock) == 0 ? 1 : 0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Bytes of this process's mappings of files in the test directory. */
static inline uint64_t mapped_bytes(unsigned *lines)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    char line[512];
    uint64_t sum = 0;
    *lines = 0;
    while (fgets(line, sizeof(line), maps)) {
        if (!strstr(line, directory))
            continue;
        char *dash;
        const unsigned long from = strtoul(line, &dash, 16);
        sum += strtoul(dash + 1, NULL, 16) - from;
        ++*lines;
    }
    fclose(maps);
    return sum;
}

static inline unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Runs a function in a child; the status as of waitpid. */
static inline int in_child(void (*function)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        function();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Runs this program anew with one argument; the status as of waitpid. */
static inline int run_self(const char *what)
{
    char self[256];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(n > 0);
    self[n] = 0;
    const pid_t child = fork();
    if (child == 0) {
        execl(self, self, what, (char *)NULL);
        _exit(99);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}

#endif
