/* SPDX-License-Identifier: MIT */
/* What the tests of the mapping layer share: files whose pages say which page they are. */
#ifndef MAPFOLD_TESTS_MAPPING_HELPERS_H
#define MAPFOLD_TESTS_MAPPING_HELPERS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mapfold/mmap.h>

#include "../unit.h"

enum { P = 4096 };

/* Each 8 bytes of the file tell where in it they are. */
static inline uint64_t word_at(uint64_t offset)
{
    return offset * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static inline int file_fill(int fd, unsigned pages)
{
    static uint64_t page[P / 8];
    assert_true(fd >= 0);
    for (unsigned i = 0; i < pages; i++) {
        for (unsigned j = 0; j < P / 8; j++)
            page[j] = word_at((uint64_t)i * P + j * 8);
        assert_int_equal(pwrite(fd, page, P, (off_t)i * P), P);
    }
    return fd;
}

/* A file without a name, of that many pages, in the directory the tests run in. */
static inline int file_make(unsigned pages)
{
    return file_fill(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), pages);
}

static inline bool page_is(const void *memory, uint64_t page)
{
    const uint64_t *words = memory;
    return words[0] == word_at(page * P) && words[P / 8 - 1] == word_at(page * P + P - 8);
}

static inline enum mf_map_kind kind_at(const void *address)
{
    struct mf_map_info info;
    assert_int_equal(mf_map_query(address, &info), 0);
    return info.kind;
}

static inline uint64_t kernel_maps(void)
{
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    return stats.kernel_maps;
}

static inline uint64_t extents(void)
{
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    return stats.extents;
}

/* Folds from the first piece on, so that each test sees extents at once. */
static inline int fold_at_once(void **state)
{
    (void)state;
    struct mf_map_options options;
    mf_map_get_options(&options);
    options.promote_pieces = 1;
    return mf_map_set_options(&options);
}

static inline char *map_pages(int fd, int protection, int flags, unsigned page, unsigned pages)
{
    char *memory = mf_mmap(NULL, (size_t)pages * P, protection, flags, fd, (off_t)page * P);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static inline void unmap_pages(char *memory, unsigned pages)
{
    assert_int_equal(mf_munmap(memory, (size_t)pages * P), 0);
}

/* The signal that ends who reads there; 0 if none does. */
static inline int signal_of_reading(const char *address)
{
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        (void)*(const volatile char *)address;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

#endif
