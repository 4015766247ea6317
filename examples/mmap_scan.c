/* SPDX-License-Identifier: MIT */
/*
 * What the program in the mail of 2001 does, in a form that runs: maps pieces of one file without
 * end, keeps the newest `window` of them, and shows the time for each 5,000. The original kept 12
 * MB of arrays on its stack, opened the file anew for each piece without ever closing it, and held
 * pointers in ints.
 *
 *     cc -O2 -o mmap_scan mmap_scan.c
 *     ./mmap_scan --count 100000 --window 20000
 *     ./mmap_scan --count 300000 --window 300000                 ends at vm.max_map_count
 *     mapfold run -- ./mmap_scan --count 300000 --window 300000  does not
 *
 * Each piece can be read (--read) and written (--write: in private memory, the file stays as it
 * is). With --spread the pieces lie all over the file instead of at its beginning.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct options {
    uint64_t count;
    uint64_t window;
    uint64_t max_pages;
    uint64_t step;
    bool read;
    bool write;
    bool spread;
    bool anonymous;
    bool shared;
    const char *file;
};

struct piece {
    char *start;
    size_t length;
};

static void usage(FILE *out)
{
    fputs("Usage: mmap_scan [OPTION...]\n"
          "Maps pieces of a file, keeps the newest, and shows the time for each 5,000.\n\n"
          "  --count N     how many pieces to map in all (default 120000)\n"
          "  --window N    how many to keep: the oldest is unmapped (default 20000)\n"
          "  --pages N     sizes at random from 1 to N pages (default 1)\n"
          "  --step N      show the time for each N (default 5000)\n"
          "  --read        read a byte of each page of each piece\n"
          "  --write       write a byte of each page of each piece (private memory)\n"
          "  --spread      offsets at random over the file, not always 0\n"
          "  --shared      MAP_SHARED instead of MAP_PRIVATE (with --write: the file changes)\n"
          "  --anonymous   anonymous memory instead of a file\n"
          "  --file FILE   the file (default: a temporary one of 1 MiB)\n"
          "  --help\n\n"
          "Exit codes: 0 done, 1 failed, 2 wrong usage.\n",
          out);
}

static uint64_t parse_number(const char *name, const char *text)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || value == 0 || value > UINT32_MAX || text[0] == '-') {
        fprintf(stderr, "mmap_scan: --%s wants a number from 1 to %" PRIu32 ", not '%s'\n", name,
                UINT32_MAX, text);
        usage(stderr);
        exit(2);
    }
    return value;
}

static struct options parse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"count", required_argument, NULL, 'c'}, {"window", required_argument, NULL, 'w'},
        {"pages", required_argument, NULL, 'p'}, {"step", required_argument, NULL, 't'},
        {"read", no_argument, NULL, 'r'},        {"write", no_argument, NULL, 'x'},
        {"spread", no_argument, NULL, 's'},      {"shared", no_argument, NULL, 'm'},
        {"anonymous", no_argument, NULL, 'a'},   {"file", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
    };
    struct options options = {.count = 120000, .window = 20000, .max_pages = 1, .step = 5000};
    int index = 0;
    for (int key; (key = getopt_long(argc, argv, "", names, &index)) != -1;) {
        switch (key) {
        case 'c':
            options.count = parse_number("count", optarg);
            break;
        case 'w':
            options.window = parse_number("window", optarg);
            break;
        case 'p':
            options.max_pages = parse_number("pages", optarg);
            break;
        case 't':
            options.step = parse_number("step", optarg);
            break;
        case 'r':
            options.read = true;
            break;
        case 'x':
            options.write = true;
            break;
        case 's':
            options.spread = true;
            break;
        case 'm':
            options.shared = true;
            break;
        case 'a':
            options.anonymous = true;
            break;
        case 'f':
            options.file = optarg;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "mmap_scan: '%s' is one argument too many\n", argv[optind]);
        usage(stderr);
        exit(2);
    }
    return options;
}

/* The named file, or one without a name that is big enough for the largest piece. */
static int open_file(const struct options *options, size_t page, size_t *length)
{
    struct stat status;
    int fd;
    if (options->file) {
        fd = open(options->file,
                  (options->shared && options->write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    } else {
        FILE *file = tmpfile();
        fd = file ? dup(fileno(file)) : -1;
        *length = (size_t)options->max_pages * page;
        *length = *length < 1 << 20 ? 1 << 20 : *length;
        if (file && (fd < 0 || (errno = posix_fallocate(fd, 0, (off_t)*length)) != 0)) {
            fprintf(stderr, "mmap_scan: cannot make a temporary file of %zu bytes: %s\n", *length,
                    strerror(errno));
            exit(1);
        }
        if (file)
            fclose(file);
    }
    if (fd < 0 || fstat(fd, &status)) {
        fprintf(stderr, "mmap_scan: cannot open %s: %s\n",
                options->file ? options->file : "a temporary file", strerror(errno));
        exit(1);
    }
    *length = (size_t)status.st_size;
    if (*length < options->max_pages * page) {
        fprintf(stderr, "mmap_scan: %s has %zu bytes, and a piece may have %zu\n", options->file,
                *length, (size_t)options->max_pages * page);
        exit(1);
    }
    return fd;
}

static uint64_t random_below(uint64_t bound)
{
    static uint64_t state = 2001;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % bound;
}

/* [vsyscall] is shown there, but is not one of the process's maps. */
static uint64_t count_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t lines = 0;
    char line[4200];
    while (maps && fgets(line, sizeof(line), maps))
        lines += strchr(line, '\n') && !strstr(line, "[vsyscall]");
    if (maps)
        fclose(maps);
    return lines;
}

static void explain_failure(int error, uint64_t mapped, uint64_t live)
{
    char limit[32] = "unknown";
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (file) {
        if (fscanf(file, "%31s", limit) != 1)
            strcpy(limit, "unknown");
        fclose(file);
    }
    fflush(stdout);
    fprintf(stderr, "mmap_scan: cannot map piece %" PRIu64 " with %" PRIu64 " live: %s\n",
            mapped + 1, live, strerror(error));
    if (error == ENOMEM)
        fprintf(stderr,
                "This process has %" PRIu64 " maps, and vm.max_map_count allows %s. Raise it with\n"
                "    sysctl vm.max_map_count=%" PRIu64 "\n"
                "or run this program under `mapfold run', or keep fewer with --window.\n",
                count_maps(), limit, 2 * live + 1000);
}

/* Reads or writes each page; the sum keeps the reads from being left out. */
static uint64_t touch(const struct options *options, const struct piece *piece, size_t page)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < piece->length; at += page) {
        if (options->read)
            sum += (unsigned char)piece->start[at];
        if (options->write)
            *(volatile char *)&piece->start[at] = (char)at;
    }
    return sum;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int scan(const struct options *options, int fd, size_t file_length, size_t page)
{
    const int protection = options->write ? PROT_READ | PROT_WRITE : PROT_READ;
    const int flags = (options->shared ? MAP_SHARED : MAP_PRIVATE) | (fd < 0 ? MAP_ANONYMOUS : 0);
    struct piece *pieces = calloc(options->window, sizeof(*pieces));
    uint64_t sum = 0;
    if (!pieces) {
        fprintf(stderr, "mmap_scan: no memory to remember %" PRIu64 " pieces\n", options->window);
        return 1;
    }
    double begin = seconds();
    for (uint64_t i = 0; i < options->count; i++) {
        struct piece *piece = &pieces[i % options->window]; /* the oldest, if it holds one */
        const struct piece old = *piece;
        const size_t pages = (size_t)(1 + random_below(options->max_pages));
        const size_t length = pages * page;
        const uint64_t places = fd < 0 ? 1 : (file_length - length) / page + 1;
        const off_t offset = options->spread ? (off_t)(random_below(places) * page) : 0;
        char *start = mmap(NULL, length, protection, flags, fd, offset);
        if (start == MAP_FAILED) {
            explain_failure(errno, i, i < options->window ? i : options->window);
            free(pieces);
            return 1;
        }
        *piece = (struct piece){start, length};
        sum += touch(options, piece, page);
        if (old.start && munmap(old.start, old.length)) {
            fprintf(stderr, "mmap_scan: cannot unmap a piece: %s\n", strerror(errno));
            free(pieces);
            return 1;
        }
        if ((i + 1) % options->step == 0) {
            const double now = seconds();
            printf("%9" PRIu64 "  Time: %8.2f ms\n", i + 1, (now - begin) * 1e3);
            begin = now;
        }
    }
    printf("%" PRIu64 " mapped, %" PRIu64 " live, %" PRIu64 " kernel maps", options->count,
           options->count < options->window ? options->count : options->window, count_maps());
    printf(options->read ? ", sum of bytes read %" PRIu64 "\n" : "\n", sum);
    free(pieces);
    return 0;
}

int main(int argc, char **argv)
{
    const struct options options = parse_options(argc, argv);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t length = 0;
    const int fd = options.anonymous ? -1 : open_file(&options, page, &length);
    const int status = scan(&options, fd, length, page);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "mmap_scan: cannot write the results: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
