/* SPDX-License-Identifier: MIT */
/*
 * A program as mapfold run is for: keeps pieces of a file mapped, private and shared, reads and
 * writes them, changes them in part, and tells what it saw. Plain or folded, it prints the same.
 * Usage: pieces FILE COUNT; FILE is made, and grows to 1 MiB.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_PAGES = 256, MAX_PAGES = 4, WINDOW = 200 };

struct piece {
    unsigned char *start;
    size_t length;
    int shared;
};

static uint64_t seed = 2001;
static uint64_t sum = 14695981039346656037u;

static uint64_t draw(uint64_t bound)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % bound;
}

static void note(uint64_t value)
{
    sum = (sum ^ value) * UINT64_C(0x100000001b3);
}

static void fail(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static int make_file(const char *path, size_t page)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unsigned char *block = malloc(page);
    if (fd < 0 || !block)
        fail(path);
    for (size_t i = 0; i < FILE_PAGES; i++) {
        memset(block, (int)i, page);
        if (write(fd, block, page) != (ssize_t)page)
            fail("write");
    }
    free(block);
    return fd;
}

static void use(const struct piece *piece, size_t page, uint64_t turn)
{
    for (size_t at = 0; at < piece->length; at += page)
        note(piece->start[at + turn % page]);
    piece->start[turn % piece->length] = (unsigned char)turn;
    if (turn % 97 == 0 && mprotect(piece->start, page, PROT_READ))
        fail("mprotect");
    if (turn % 89 == 0 && !piece->shared && madvise(piece->start, page, MADV_DONTNEED))
        fail("madvise");
    if (turn % 83 == 0 && piece->shared && msync(piece->start, piece->length, MS_ASYNC))
        fail("msync");
}

/* A child sees what its parent has, and keeps its own changes to itself. */
static void fork_and_look(struct piece *pieces)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < WINDOW; i++)
        seen += pieces[i].start ? pieces[i].start[0] : 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        uint64_t mine = 0;
        for (size_t i = 0; i < WINDOW; i++)
            mine += pieces[i].start ? pieces[i].start[0] : 0;
        for (size_t i = 0; i < WINDOW; i++) {
            if (pieces[i].start && munmap(pieces[i].start, pieces[i].length))
                _exit(2);
        }
        _exit(mine == seen ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        fail("fork");
    note((uint64_t)status);
}

int main(int argc, char **argv)
{
    static struct piece pieces[WINDOW];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (argc != 3)
        return 2;
    const uint64_t count = strtoull(argv[2], NULL, 10);
    const int fd = make_file(argv[1], page);
    for (uint64_t turn = 1; turn <= count; turn++) {
        struct piece *piece = &pieces[draw(WINDOW)];
        if (piece->start && munmap(piece->start, piece->length))
            fail("munmap");
        const size_t pages = (size_t)(1 + draw(MAX_PAGES));
        piece->length = pages * page;
        piece->shared = draw(4) == 0;
        piece->start = mmap(NULL, piece->length, PROT_READ | PROT_WRITE,
                            piece->shared ? MAP_SHARED : MAP_PRIVATE, fd,
                            (off_t)(draw(FILE_PAGES - pages + 1) * page));
        if (piece->start == MAP_FAILED)
            fail("mmap");
        use(piece, page, turn);
        if (turn % 5000 == 0)
            fork_and_look(pieces);
    }
    printf("%llu pieces, sum %016llx\n", (unsigned long long)count, (unsigned long long)sum);
    return 0;
}
