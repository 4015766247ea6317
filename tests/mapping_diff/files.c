/* SPDX-License-Identifier: MIT */
/*
 * The files of one side: equal at the start on both, and compared by content, by what still maps
 * them and by the locks that another process would meet. With threads, files 0 to 3 belong to one
 * thread; the others are shared by all and never change, so that results do not depend on the order
 * of threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff.h"

enum { LARGE_PAGES = 262144, OWN_FILES = 4 };

bool file_may_change(const struct world *w, int file)
{
    return file < FILE_READONLY && (w->options->threads < 2 || file < OWN_FILES);
}

const char *file_path(const struct world *w, int file, char path[320])
{
    if (file == FILE_PROC)
        return "/proc/version";
    if (file == FILE_ZERO)
        return "/dev/zero";
    if (file == FILE_DIRECTORY)
        return "/";
    const bool own = w->options->threads < 2 || file < OWN_FILES;
    if (own)
        snprintf(path, 320, "%s/t%d.f%d", w->directory, w->number, file);
    else
        snprintf(path, 320, "%s/f%d", w->directory, file);
    return path;
}

static uint64_t file_size(int file)
{
    const uint64_t sizes[FILES] = {0,
                                   100,
                                   page_size,
                                   page_size + 904,
                                   4 * page_size,
                                   13 * page_size + 123,
                                   64 * page_size,
                                   LARGE_PAGES * page_size,
                                   40 * page_size};
    return sizes[file];
}

static int file_fill(int number, int file)
{
    static _Thread_local uint64_t words[8192];
    const uint64_t size = file_size(file);
    if (ftruncate(number, (off_t)size) != 0)
        return -1;
    const uint64_t filled = file == FILE_LARGE ? 8 * page_size : size;
    for (uint64_t at = 0; at < filled; at += page_size) {
        uint64_t random = ((uint64_t)file + 1) << 40 | at;
        for (uint64_t i = 0; i < page_size / 8; i++)
            words[i] = random_next(&random);
        const uint64_t length = filled - at < page_size ? filled - at : page_size;
        if (pwrite(number, words, length, (off_t)at) != (ssize_t)length)
            return -1;
    }
    return 0;
}

/* The world's own files, or those that all threads share. */
int files_create(const struct world *w, bool own)
{
    for (int file = 0; file < FILES; file++) {
        const bool is_own = w->options->threads < 2 || file < OWN_FILES;
        if (is_own != own)
            continue;
        char path[320];
        const int number = open(file_path(w, file, path), O_RDWR | O_CREAT | O_EXCL, 0600);
        if (number < 0 || file_fill(number, file) != 0 || close(number) != 0) {
            fprintf(stderr, "cannot make test file %s: %s\n", path, strerror(errno));
            return -1;
        }
    }
    return 0;
}

void files_remove(const struct world *w, bool own)
{
    for (int file = 0; file < FILES; file++) {
        char path[320];
        if ((w->options->threads < 2 || file < OWN_FILES) == own)
            unlink(file_path(w, file, path));
    }
}

static uint64_t page_hash(const uint64_t *words, uint64_t count)
{
    uint64_t hash = 0, any = 0;
    for (uint64_t i = 0; i < count; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
        any |= words[i];
    }
    return any ? hash : 0;
}

/* Pages of zeros and holes are the same to a reader, so they count the same. */
static uint64_t file_hash(int number)
{
    static _Thread_local uint64_t words[8192];
    struct stat status;
    if (fstat(number, &status) != 0)
        return 1;
    uint64_t hash = (uint64_t)status.st_size;
    for (off_t at = 0; (at = lseek(number, at, SEEK_DATA)) >= 0; at += (off_t)page_size) {
        at &= ~(off_t)(page_size - 1);
        memset(words, 0, page_size);
        if (pread(number, words, page_size, at) < 0)
            return 2;
        const uint64_t page = page_hash(words, page_size / 8);
        hash += page ? page * ((uint64_t)at * 2 + 1) : 0;
    }
    return hash;
}

/* At numbers that the program never gets. */
int files_open(struct world *w)
{
    for (int file = 0; file < FILES; file++) {
        char path[320];
        const int number = open(file_path(w, file, path), O_RDONLY | O_CLOEXEC);
        w->readers[file] = fcntl(number, F_DUPFD_CLOEXEC, 500);
        if (w->readers[file] < 0 || close(number) != 0)
            return -1;
    }
    return 0;
}

/* Also where the file is shorter than the page begins, or unknown. */
bool file_page_is_zero(const struct world *w, int file, uint64_t page)
{
    static _Thread_local uint64_t words[8192];
    if (file < 0 || file >= FILES)
        return true;
    memset(words, 0, page_size);
    if (pread(w->readers[file], words, page_size, (off_t)(page * page_size)) <= 0)
        return true;
    return page_hash(words, page_size / 8) == 0;
}

uint64_t files_hash(const struct world *w)
{
    uint64_t hash = 0;
    for (int file = 0; file < FILES; file++)
        hash = hash * 31 + (file_may_change(w, file) ? file_hash(w->readers[file]) : 0);
    return hash;
}

/* Each line of a file of /proc to `line`, without stdio, whose memory would disturb the addresses.
 */
static void lines_read(const char *path, void (*line)(void *, char *), void *context)
{
    char text[8192];
    size_t have = 0;
    const int number = open(path, O_RDONLY | O_CLOEXEC);
    if (number < 0)
        return;
    for (ssize_t got; (got = read(number, text + have, sizeof text - 1 - have)) > 0;) {
        have += (size_t)got;
        text[have] = 0;
        char *start = text;
        for (char *end; (end = strchr(start, '\n')); start = end + 1) {
            *end = 0;
            line(context, start);
        }
        have -= (size_t)(start - text);
        memmove(text, start, have);
    }
    close(number);
}

struct mapped {
    char prefix[310];
    uint64_t bits;
};

static void mapped_line(void *context, char *line)
{
    struct mapped *mapped = context;
    const char *path = strstr(line, mapped->prefix);
    if (path) {
        const int file = path[strlen(mapped->prefix)] - '0';
        mapped->bits |= UINT64_C(1) << (file & 63);
    }
}

/* Files of which a copy is live: the layer may keep an extent of them, the oracle has a snapshot.
 */
static uint64_t files_copied(const struct world *w)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i <= SLOTS; i++) {
        const struct region *region = &w->regions[i];
        for (uint32_t j = 0; region->live && j < region->pages; j++) {
            const struct page *page = &region->page[j];
            if (page->live && page->copied && page->file >= 0)
                bits |= UINT64_C(1) << page->file;
        }
    }
    return bits;
}

/* Bit n: file n is mapped by this process. A layer must not hold what the program does not. */
uint64_t files_mapped(const struct world *w)
{
    struct mapped mapped = {.bits = 0};
    snprintf(mapped.prefix, sizeof mapped.prefix, "%s/t%d.f", w->directory, w->number);
    lines_read("/proc/self/maps", mapped_line, &mapped);
    return mapped.bits & ~files_copied(w);
}

/*
 * The locks that another process would meet, asked for by open files that are the tester's own:
 * POSIX locks at every eighth of the bytes that the program locks, and who could flock.
 */
static uint64_t file_locks(int reader)
{
    uint64_t hash = 0;
    for (off_t at = 0; at < 152; at += 8) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
        if (fcntl(reader, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
            continue;
        const uint64_t words[3] = {(uint64_t)lock.l_type + 1, (uint64_t)lock.l_start,
                                   (uint64_t)lock.l_len};
        hash = hash * 31 + page_hash(words, 3);
    }
    for (int how = LOCK_SH; how <= LOCK_EX; how++) {
        const bool can = flock(reader, how | LOCK_NB) == 0;
        hash = hash * 2 + can;
        if (can)
            flock(reader, LOCK_UN);
    }
    return hash;
}

uint64_t files_locks(const struct world *w)
{
    uint64_t hash = 0;
    for (int file = 0; file < FILES; file++)
        hash = hash * 31 + (file_may_change(w, file) ? file_locks(w->readers[file]) : 0);
    return hash;
}
