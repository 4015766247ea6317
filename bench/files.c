/* SPDX-License-Identifier: MIT */
/* What the harness takes from the system: memory, a nameless test file, a look at our own maps. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"
#include "cli/cli.h"

enum { HUGE = 2 << 20 };

void *bench_memory(size_t bytes, const char *purpose)
{
    /* Room to begin at a multiple of a huge page is only asked for where it pays. */
    const size_t slack = bytes >= HUGE ? HUGE : 0;
    char *raw = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw != MAP_FAILED) {
        if (!slack)
            return raw;
        char *memory = (char *)(((uintptr_t)raw + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
        if (memory != raw)
            munmap(raw, (size_t)(memory - raw));
        munmap(memory + bytes, (size_t)(raw + slack - memory));
        madvise(memory, bytes, MADV_HUGEPAGE);
        return memory;
    }
    const int error = errno;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        cli_error("cannot get %zu KiB of memory for %s: %s", bytes >> 10, purpose, strerror(error));
    else
        cli_error("cannot get %zu KiB of memory for %s: %s; this process may use %llu KiB of "
                  "address space: raise that (ulimit -v) or choose a smaller --n",
                  bytes >> 10, purpose, strerror(error),
                  (unsigned long long)(limit.rlim_cur >> 10));
    errno = error;
    return NULL;
}

void bench_memory_touch(void *memory, size_t bytes)
{
    volatile char *const byte = memory;
    for (size_t at = 0; at < bytes; at += 4096)
        byte[at] = 0;
}

void bench_memory_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

/* File systems without O_TMPFILE get a file that loses its name at once. */
static int open_nameless(const char *directory)
{
    const int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/mapfold-bench-XXXXXX", directory) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0)
        unlink(path);
    return named;
}

static int fill_file(int fd, size_t bytes)
{
    static const char block[1 << 16] = "a page of the test file";
    while (bytes > 0) {
        const size_t want = bytes < sizeof(block) ? bytes : sizeof(block);
        const ssize_t got = write(fd, block, want);
        if (got < 0 && errno != EINTR)
            return -1;
        bytes -= got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int bench_file(const struct bench *bench, size_t bytes)
{
    const int fd = open_nameless(bench->directory);
    if (fd < 0) {
        cli_error("cannot make a test file in %s: %s; choose another directory with --dir",
                  bench->directory, strerror(errno));
        return -1;
    }
    if (fill_file(fd, bytes)) {
        cli_error("cannot write %zu KiB to the test file in %s: %s; choose another directory with "
                  "--dir",
                  bytes >> 10, bench->directory, strerror(errno));
        close(fd);
        return -1;
    }
    void *probe = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (probe == MAP_FAILED) {
        cli_error("cannot map the test file in %s: %s; choose another directory with --dir",
                  bench->directory, strerror(errno));
        close(fd);
        return -1;
    }
    munmap(probe, bytes);
    return fd;
}

/* [vsyscall] is shown as the last line, but is not one of the process's maps. */
uint64_t bench_kernel_maps(void)
{
    static char buffer[1 << 16];
    static const char vsyscall[] = "[vsyscall]\n";
    const size_t tail = sizeof(vsyscall) - 1;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    uint64_t lines = 0;
    size_t last = 0;
    if (fd < 0)
        return 0;
    for (ssize_t got; (got = read(fd, buffer, sizeof(buffer))) > 0; last = (size_t)got) {
        for (ssize_t i = 0; i < got; i++)
            lines += buffer[i] == '\n';
    }
    close(fd);
    /* The kernel hands out whole lines. */
    return lines - (last >= tail && memcmp(buffer + last - tail, vsyscall, tail) == 0);
}

uint64_t bench_max_map_count(void)
{
    char text[32];
    const int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return strtoull(text, NULL, 10);
}
