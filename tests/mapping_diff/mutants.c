/* SPDX-License-Identifier: MIT */
/*
 * Layers broken on purpose, to prove that the tester finds what it is for. Each mutant is the plain
 * calls with one fault of a kind that a mapping layer can have; --mutant N makes it the subject.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff.h"
#include "mutants.h"

static int mutant;

enum {
    M_NONE,
    M_PROTECT_WIDE,
    M_SYNC_HOLE,
    M_UNMAP_WIDE,
    M_STALE_PRIVATE,
    M_ERROR_ORDER,
    M_GROW_OVER,
    M_SHARED_LOST,
    M_RESIDENT_HOLE,
    M_FIXED_HALF,
    M_RIGHTS,
    M_LOCKS_LOST,
    M_FILE_HELD,
    M_OFFSET_MOVED,
    M_DESCRIPTOR_KEPT,
    M_NOREPLACE,
    M_ADVICE_STOPS,
    M_LOCK_HOLE,
    M_STALE_STATE,
    M_TAIL,
    M_FORK_SHARED,
    M_DONTNEED,
    M_DUPLICATE,
    M_UNMAP_SELDOM,
    M_REMAP_SOURCE,
    M_UNMAP_HOLES,
    MUTANTS,
};

static const char *const names[MUTANTS] = {
    [M_PROTECT_WIDE] = "mprotect protects one page too many",
    [M_SYNC_HOLE] = "msync does not say that there was a hole",
    [M_UNMAP_WIDE] = "munmap frees one page too many",
    [M_STALE_PRIVATE] = "a spot used again shows the old private bytes",
    [M_ERROR_ORDER] = "length 0 is seen before the bad descriptor",
    [M_GROW_OVER] = "mremap grows over a neighbour",
    [M_SHARED_LOST] = "some stores to a shared mapping never reach the file",
    [M_RESIDENT_HOLE] = "mincore of a hole succeeds",
    [M_FIXED_HALF] = "a failing MAP_FIXED has unmapped the old piece",
    [M_RIGHTS] = "a read-only descriptor's shared piece becomes writable",
    [M_LOCKS_LOST] = "POSIX locks are lost as the layer closes a descriptor of its own",
    [M_FILE_HELD] = "a file is held after its last piece",
    [M_OFFSET_MOVED] = "the program's file offset moves",
    [M_DESCRIPTOR_KEPT] = "a descriptor is kept where the program expects the lowest number",
    [M_NOREPLACE] = "MAP_FIXED_NOREPLACE replaces",
    [M_ADVICE_STOPS] = "madvise stops at a hole",
    [M_LOCK_HOLE] = "mlock over a hole succeeds",
    [M_STALE_STATE] = "a spot used again keeps MADV_DONTFORK",
    [M_TAIL] = "pages past the end of file read as zeros",
    [M_FORK_SHARED] = "a child shares private anonymous pages",
    [M_DONTNEED] = "MADV_DONTNEED leaves a written private page",
    [M_DUPLICATE] = "mremap of old size 0 works on private pieces",
    [M_UNMAP_SELDOM] = "one munmap in 1,000 does nothing",
    [M_REMAP_SOURCE] = "mremap to a fixed place leaves the source's last page",
    [M_UNMAP_HOLES] = "munmap with a hole says EINVAL",
};

int mutant_count(void)
{
    return MUTANTS - 1;
}

const char *mutant_name(int number)
{
    return names[number];
}

void mutant_choose(int number)
{
    mutant = number;
}

/* Spots kept for reuse, as a layer does that recycles address ranges. */
static struct spot {
    char *at;
    size_t length;
    dev_t device;
    ino_t inode;
    off_t offset;
    int prot, flags;
    bool free;
} spots[2048];
static unsigned spot_count;

static void *spot_reuse(int fd, const struct stat *file, size_t length, int prot, int flags,
                        off_t offset)
{
    for (unsigned i = 0; i < spot_count; i++) {
        struct spot *s = &spots[i];
        if (s->free && !(fcntl(fd, F_GETFL) & (O_WRONLY | O_PATH)) && s->inode == file->st_ino &&
            s->device == file->st_dev && s->prot == prot && s->flags == flags &&
            s->offset == offset && s->length == length) {
            s->free = false;
            return s->at;
        }
    }
    return NULL;
}

/* With its last piece a file is let go, as a careful layer does: only the bytes are stale. */
static void spots_let_go(dev_t device, ino_t inode)
{
    for (unsigned i = 0; i < spot_count; i++) {
        if (!spots[i].free && spots[i].inode == inode && spots[i].device == device)
            return;
    }
    for (unsigned i = 0; i < spot_count; i++) {
        if (spots[i].inode == inode && spots[i].device == device) {
            munmap(spots[i].at, spots[i].length);
            spots[i--] = spots[--spot_count];
        }
    }
}

static bool spot_release(void *at, size_t length)
{
    for (unsigned i = 0; i < spot_count; i++) {
        struct spot *s = &spots[i];
        if (s->at == at && !s->free && s->length == ((length + page_size - 1) & ~(page_size - 1))) {
            s->free = true;
            if (mutant == M_STALE_STATE) {
                mprotect(at, s->length, s->prot);
                munlock(at, s->length);
                madvise(at, s->length, 103);
                madvise(at, s->length, MADV_NORMAL);
                madvise(at, s->length, MADV_DONTNEED);
            }
            spots_let_go(s->device, s->inode);
            return true;
        }
    }
    return false;
}

/* Something else took a part of the spot: forget it. */
static void spot_forget(const char *at, size_t length)
{
    for (unsigned i = 0; i < spot_count; i++) {
        const struct spot s = spots[i];
        if (s.at < at + length && at < s.at + s.length) {
            spots[i--] = spots[--spot_count];
            spots_let_go(s.device, s.inode);
            i = UINT32_MAX; /* the list has changed: from the start */
        }
    }
}

static void *mmap_reusing(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    struct stat file;
    const size_t whole = (length + page_size - 1) & ~(page_size - 1);
    const bool ours = flags == MAP_PRIVATE && length && fstat(fd, &file) == 0 && !at;
    void *got = ours ? spot_reuse(fd, &file, whole, prot, flags, offset) : NULL;
    if (got)
        return got;
    got = mmap(at, length, prot, flags, fd, offset);
    if (got != MAP_FAILED)
        spot_forget(got, whole);
    if (got != MAP_FAILED && ours && spot_count < 2048)
        spots[spot_count++] =
            (struct spot){got, whole, file.st_dev, file.st_ino, offset, prot, flags, false};
    return got;
}

static void file_reopen(int fd, int flags, void (*use)(int))
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int number = open(path, flags | O_CLOEXEC);
    if (number >= 0)
        use(number);
}

static void use_close(int number)
{
    close(number);
}

static void use_hold(int number)
{
    mmap(NULL, page_size, PROT_READ, MAP_SHARED, number, 0);
    close(number);
}

static void use_keep(int number)
{
    static bool once;
    if (once)
        close(number);
    once = true;
}

static void *map_with_rights(size_t length, int prot, int fd, off_t offset)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int writable = open(path, O_RDWR | O_CLOEXEC);
    void *got = mmap(NULL, length, prot, MAP_SHARED, writable, offset);
    close(writable);
    return got;
}

static void *tail_fill(char *got, size_t length, int prot, int fd, off_t offset)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return got;
    const off_t end = (file.st_size + (off_t)page_size - 1) & ~(off_t)(page_size - 1);
    const off_t whole = (off_t)((length + page_size - 1) & ~(page_size - 1));
    if (end <= offset || end >= offset + whole)
        return got;
    mmap(got + (end - offset), (size_t)(offset + whole - end), prot,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return got;
}

static void *m_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    static unsigned turn;
    const bool plain_shared = flags == MAP_SHARED;
    if (mutant == M_STALE_PRIVATE || mutant == M_STALE_STATE)
        return mmap_reusing(at, length, prot, flags, fd, offset);
    if (mutant == M_ERROR_ORDER && length == 0)
        return errno = EINVAL, MAP_FAILED;
    if (mutant == M_SHARED_LOST && plain_shared && prot & PROT_WRITE && ++turn % 8 == 0)
        flags = MAP_PRIVATE;
    if (mutant == M_FIXED_HALF && flags & MAP_FIXED && length && length < 64 * page_size)
        munmap(at, length);
    if (mutant == M_RIGHTS && plain_shared && !at && length) {
        void *got = map_with_rights(length, prot, fd, offset);
        if (got != MAP_FAILED)
            return got;
    }
    if (mutant == M_NOREPLACE && flags & MAP_FIXED_NOREPLACE)
        flags = (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
    if (mutant == M_FORK_SHARED && flags == (MAP_PRIVATE | MAP_ANONYMOUS))
        flags = MAP_SHARED | MAP_ANONYMOUS;
    void *got = mmap(at, length, prot, flags, fd, offset);
    if (got == MAP_FAILED || flags & MAP_ANONYMOUS)
        return got;
    if (mutant == M_LOCKS_LOST)
        file_reopen(fd, O_RDONLY, use_close);
    if (mutant == M_FILE_HELD)
        file_reopen(fd, O_RDONLY, use_hold);
    if (mutant == M_DESCRIPTOR_KEPT)
        file_reopen(fd, O_RDONLY, use_keep);
    if (mutant == M_OFFSET_MOVED)
        lseek(fd, 1, SEEK_CUR);
    if (mutant == M_TAIL)
        return tail_fill(got, length, prot, fd, offset);
    return got;
}

static bool has_hole(char *at, size_t length)
{
    unsigned char vector[1024];
    const size_t pages = (length + page_size - 1) / page_size;
    return (uintptr_t)at % page_size == 0 && pages && pages < 1024 &&
           mincore(at, length, vector) != 0 && errno == ENOMEM;
}

static int m_munmap(void *at, size_t length)
{
    static unsigned turn;
    if (mutant == M_UNMAP_WIDE && length < 64 * page_size)
        length += page_size;
    if (mutant == M_UNMAP_SELDOM && ++turn % 1000 == 0)
        return 0;
    if (mutant == M_UNMAP_HOLES && has_hole(at, length))
        return errno = EINVAL, -1;
    if ((mutant == M_STALE_PRIVATE || mutant == M_STALE_STATE) && spot_release(at, length))
        return 0;
    const int ret = munmap(at, length);
    if (ret == 0)
        spot_forget(at, length);
    return ret;
}

static int m_mprotect(void *at, size_t length, int prot)
{
    if (mutant == M_PROTECT_WIDE && length && length < 64 * page_size)
        mprotect((char *)at + length - 1 + page_size - (length - 1) % page_size, page_size, prot);
    return mprotect(at, length, prot);
}

static void *m_mremap(void *at, size_t length, size_t new_length, int flags, void *to)
{
    if (mutant == M_DUPLICATE && length == 0 && flags & MREMAP_MAYMOVE) {
        void *got = mremap(at, length, new_length, flags, to);
        return got == MAP_FAILED && errno == EINVAL
                   ? mmap(NULL, new_length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                   : got;
    }
    void *got = mremap(at, length, new_length, flags, to);
    if (mutant == M_GROW_OVER && got == MAP_FAILED && errno == ENOMEM && flags == 0 &&
        new_length < 64 * page_size) {
        got = mremap(at, length, new_length, MREMAP_MAYMOVE, NULL);
        if (got != MAP_FAILED)
            got = mremap(got, new_length, new_length, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    }
    if (mutant == M_REMAP_SOURCE && got != MAP_FAILED && flags == 3 && length >= page_size)
        mmap((char *)at + ((length - 1) & ~(page_size - 1)), page_size, PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return got;
}

static int m_madvise(void *at, size_t length, int advice)
{
    if (mutant == M_ADVICE_STOPS && advice >= 0 && advice < 30 && has_hole(at, length))
        return errno = ENOMEM, -1;
    if (mutant == M_DONTNEED && advice == MADV_DONTNEED && length < 64 * page_size)
        advice = MADV_NORMAL;
    return madvise(at, length, advice);
}

static int m_msync(void *at, size_t length, int flags)
{
    const int ret = msync(at, length, flags);
    return mutant == M_SYNC_HOLE && ret != 0 && errno == ENOMEM ? 0 : ret;
}

static int m_mincore(void *at, size_t length, unsigned char *vector)
{
    const int ret = mincore(at, length, vector);
    return mutant == M_RESIDENT_HOLE && ret != 0 && errno == ENOMEM ? 0 : ret;
}

static int m_mlock(const void *at, size_t length)
{
    const int ret = mlock(at, length);
    return mutant == M_LOCK_HOLE && ret != 0 && errno == ENOMEM ? 0 : ret;
}

const struct calls mutant_calls = {
    m_mmap, m_munmap, m_mprotect, m_mremap, m_madvise, m_msync, m_mincore, m_mlock, munlock, NULL,
};
