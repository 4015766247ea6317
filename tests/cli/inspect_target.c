/* SPDX-License-Identifier: MIT */
/*
 * A process for `mapfold inspect` to look at: it makes the maps that its first argument names, says
 * "ready" and how many it made, and stays until its standard input ends. Usage:
 *
 *   inspect_target pieces FILE COUNT    single pages of the file, each apart from the others
 *   inspect_target deleted DIR COUNT    files of two pages, mapped and unlinked
 *   inspect_target splits COUNT         every second page of one range, made inaccessible
 *   inspect_target stacks COUNT         threads
 *   inspect_target each DIR             two pages of each file there is in the directory
 *   inspect_target churn FILE           maps and unmaps without pause, in a thread
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long page;

static int open_file(const char *path, long pages)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && (pages == 0 || ftruncate(fd, pages * page) == 0))
        return fd;
    perror(path);
    exit(1);
}

static long map_pieces(const char *path, long count)
{
    const int fd = open_file(path, 2 * count);
    long made = 0;
    while (made < count &&
           mmap(NULL, (size_t)page, PROT_READ, MAP_PRIVATE, fd, 2 * made * page) != MAP_FAILED)
        made++;
    close(fd);
    return made;
}

static long map_deleted(const char *directory, long count)
{
    long made = 0;
    for (; made < count; made++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/segment-%ld.tmp", directory, made);
        const int fd = open_file(path, 2);
        void *const there = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        unlink(path);
        if (there == MAP_FAILED)
            break;
    }
    return made;
}

static long map_splits(long count)
{
    char *range = mmap(NULL, 2 * (size_t)(count * page), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long made = 0;
    while (range != MAP_FAILED && made < count &&
           mprotect(range + 2 * made * page, (size_t)page, PROT_NONE) == 0)
        made++;
    return made;
}

static void *sleep_for_ever(void *nothing)
{
    pause();
    return nothing;
}

static long start_threads(long count)
{
    long made = 0;
    pthread_t thread;
    while (made < count && pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0)
        made++;
    return made;
}

static long map_each(const char *directory)
{
    DIR *const names = opendir(directory);
    long made = 0;
    for (const struct dirent *entry; names && (entry = readdir(names)) != NULL;) {
        if (entry->d_type != DT_REG)
            continue;
        const int fd = openat(dirfd(names), entry->d_name, O_RDONLY | O_CLOEXEC);
        for (int i = 0; i < 2; i++)
            made += mmap(NULL, (size_t)page, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED;
        close(fd);
    }
    if (names)
        closedir(names);
    return made;
}

static void *churn(void *descriptor)
{
    const int fd = (int)(intptr_t)descriptor;
    enum { LIVE = 2000 };
    static char *live[LIVE];
    for (unsigned long i = 0;; i++) {
        char **const place = &live[i * 7919 % LIVE];
        if (*place)
            munmap(*place, (size_t)page * (1 + i % 3));
        *place = mmap(NULL, (size_t)page * (1 + i % 3), PROT_READ, MAP_PRIVATE, fd,
                      (off_t)(i % 512) * page);
        if (*place == MAP_FAILED)
            *place = NULL;
    }
    return NULL;
}

static long start_churn(const char *path)
{
    pthread_t thread;
    const int fd = open_file(path, 1024);
    return pthread_create(&thread, NULL, churn, (void *)(intptr_t)fd) == 0;
}

int main(int count, char **arguments)
{
    page = sysconf(_SC_PAGESIZE);
    const char *what = count > 1 ? arguments[1] : "";
    const long number = count > 2 ? strtol(arguments[count - 1], NULL, 10) : 0;
    long made;
    if (count == 4 && strcmp(what, "pieces") == 0) {
        made = map_pieces(arguments[2], number);
    } else if (count == 4 && strcmp(what, "deleted") == 0) {
        made = map_deleted(arguments[2], number);
    } else if (count == 3 && strcmp(what, "splits") == 0) {
        made = map_splits(number);
    } else if (count == 3 && strcmp(what, "stacks") == 0) {
        made = start_threads(number);
    } else if (count == 3 && strcmp(what, "each") == 0) {
        made = map_each(arguments[2]);
    } else if (count == 3 && strcmp(what, "churn") == 0) {
        made = start_churn(arguments[2]);
    } else {
        fprintf(stderr, "usage: see the top of inspect_target.c\n");
        return 2;
    }
    static const char ready[] = "ready";
    char line[64];
    const int length = snprintf(line, sizeof(line), "%s %ld\n", ready, made);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        return 1;
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    return 0;
}
