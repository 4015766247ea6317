/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

#include "linux/maps.h"
#include "linux/sys.h"

enum { BUFFER = 1024, DEFAULT_LIMIT = 65530 };

static uint64_t number(const char **at, unsigned base)
{
    uint64_t value = 0;
    for (;; (*at)++) {
        const char c = **at;
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else
            return value;
        if (digit >= base)
            return value;
        value = value * base + digit;
    }
}

/* "start-end perms offset major:minor inode path"; the kernel writes it, so it is not checked. */
static struct map_line line_parse(const char *at)
{
    struct map_line line;
    line.start = number(&at, 16);
    at++;
    line.end = number(&at, 16);
    at += 6; /* " rwxp " */
    line.offset = number(&at, 16);
    at++;
    const uint64_t major = number(&at, 16);
    at++;
    line.device = makedev((unsigned)major, (unsigned)number(&at, 16));
    at++;
    line.inode = number(&at, 10);
    return line;
}

int maps_each(bool (*each)(const struct map_line *line, void *context), void *context)
{
    const int fd = (int)sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fd;
    char buffer[BUFFER];
    size_t held = 0;
    bool skip = false; /* the rest of a line longer than the buffer */
    long got;
    while ((got = sys_read(fd, buffer + held, BUFFER - 1 - held)) > 0) {
        held += (size_t)got;
        buffer[held] = '\0';
        const char *from = buffer, *stop;
        while ((stop = __builtin_strchr(from, '\n')) != NULL) {
            if (!skip) {
                const struct map_line line = line_parse(from);
                if (each(&line, context)) {
                    sys_close(fd);
                    return 0;
                }
            }
            skip = false;
            from = stop + 1;
        }
        held = (size_t)(buffer + held - from);
        if (held == BUFFER - 1) {
            const struct map_line line = line_parse(from);
            if (!skip && each(&line, context))
                break;
            skip = true;
            held = 0;
        }
        __builtin_memmove(buffer, from, held);
    }
    sys_close(fd);
    return got < 0 ? (int)got : 0;
}

static bool count_one(const struct map_line *line, void *context)
{
    (void)line;
    ++*(int64_t *)context;
    return false;
}

int64_t maps_count(void)
{
    int64_t count = 0;
    const int result = maps_each(count_one, &count);
    return result < 0 ? result : count;
}

int64_t maps_limit(void)
{
    char text[24] = "";
    const int fd = (int)sys_openat(AT_FDCWD, "/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return DEFAULT_LIMIT;
    const long got = sys_read(fd, text, sizeof(text) - 1);
    sys_close(fd);
    const char *at = text;
    const int64_t limit = got > 0 ? (int64_t)number(&at, 10) : 0;
    return limit > 0 ? limit : DEFAULT_LIMIT;
}
