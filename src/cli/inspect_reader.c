/* SPDX-License-Identifier: MIT */
/*
 * Where the kernel has PROCMAP_QUERY (Linux 6.11) maps are asked for one by one, and it earns its
 * place three times: names are made only for files not seen before (text makes the path anew for
 * each of 65,530 maps: seconds where paths are long); a name comes as it is, so that a newline and
 * the four characters \012 are two things; and a target that ends in the middle is told (ESRCH)
 * from the end of its maps. Elsewhere text is read, and at its end read once more from the
 * beginning: where nothing is there any more, the target has gone.
 *
 * Neither way is a snapshot. Both go on from the end of the last map, so that no address is lost or
 * seen twice but where the target changes it meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/inspect.h"

/* Paths may be longer than PATH_MAX. What does not fit is a garbage file or as good as one. */
enum { BUFFER = 128 << 10 };

/* As in linux/fs.h, which may be older than the kernel. */
struct query {
    uint64_t size, flags, address;
    uint64_t start, end, map_flags, page_size, offset, inode;
    uint32_t major, minor, name_size, build_id_size;
    uint64_t name, build_id;
};

enum {
    QUERY_READ = 1,
    QUERY_WRITE = 2,
    QUERY_EXEC = 4,
    QUERY_SHARED = 8,
    QUERY_NEXT = 16, /* the map at the address, or the first above it */
};

#define MAPS_QUERY _IOWR('f', 17, struct query)

static int ask(struct maps_reader *reader, struct query *query)
{
    query->size = sizeof(*query);
    for (;;) {
        if (ioctl(reader->fd, MAPS_QUERY, query) == 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

int maps_reader_open(struct maps_reader *reader, int fd, bool saved, bool query)
{
    *reader = (struct maps_reader){.fd = fd, .saved = saved};
    reader->buffer = malloc(BUFFER);
    if (!reader->buffer) {
        close(fd);
        return -ENOMEM;
    }
    if (query) {
        struct query first = {.flags = QUERY_NEXT};
        const int result = ask(reader, &first);
        reader->by_query = result == 0 || result == -ENOENT || result == -ESRCH;
    }
    return 0;
}

void maps_reader_close(struct maps_reader *reader)
{
    close(reader->fd);
    free(reader->buffer);
}

static int next_by_query(struct maps_reader *reader, struct map_line *line)
{
    struct query query = {.flags = QUERY_NEXT, .address = reader->next};
    const int result = ask(reader, &query);
    if (result == -ENOENT)
        return 0;
    if (result == -ESRCH && reader->maps == 0)
        return 0; /* it had none to begin with */
    if (result != 0)
        return result;
    *line = (struct map_line){.start = query.start,
                              .end = query.end,
                              .offset = query.offset,
                              .inode = query.inode,
                              .major = query.major,
                              .minor = query.minor,
                              .shared = (query.map_flags & QUERY_SHARED) != 0};
    line->protection = (uint8_t)(((query.map_flags & QUERY_READ) ? MAP_READ : 0) |
                                 ((query.map_flags & QUERY_WRITE) ? MAP_WRITE : 0) |
                                 ((query.map_flags & QUERY_EXEC) ? MAP_EXEC : 0));
    /* Wraps to 0 behind the last byte of all; the next answer would be the first map again. */
    if (query.end <= reader->next)
        return 0;
    reader->next = query.end;
    reader->maps++;
    return 1;
}

void maps_reader_name(struct maps_reader *reader, struct map_line *line)
{
    if (!reader->by_query)
        return;
    struct query query = {
        .address = line->start, .name = (uintptr_t)reader->buffer, .name_size = BUFFER};
    /* Another map may have come to the place; its name would be wrong. */
    if (ask(reader, &query) != 0 || query.inode != line->inode || query.major != line->major ||
        query.minor != line->minor || query.name_size == 0)
        return;
    line->name = reader->buffer;
    line->name_length = query.name_size - 1;
    line->escaped = false;
}

static int fill(struct maps_reader *reader)
{
    memmove(reader->buffer, reader->buffer + reader->begin, reader->end - reader->begin);
    reader->end -= reader->begin;
    reader->begin = 0;
    ssize_t got;
    do
        got = read(reader->fd, reader->buffer + reader->end, BUFFER - reader->end);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    reader->at_end = got == 0;
    reader->end += (size_t)got;
    return 0;
}

/* Goes on behind the line whose beginning filled the buffer. */
static int skip_rest(struct maps_reader *reader)
{
    while (reader->in_long_line) {
        const char *const begin = reader->buffer + reader->begin;
        const char *newline = memchr(begin, '\n', reader->end - reader->begin);
        reader->begin = newline ? (size_t)(newline - reader->buffer) + 1 : reader->end;
        reader->in_long_line = newline == NULL && !reader->at_end;
        const int result = reader->in_long_line ? fill(reader) : 0;
        if (result != 0)
            return result;
    }
    return 0;
}

/* A line of text without its end: 1, or 0 at the end of all, or a negative errno. */
static int next_text(struct maps_reader *reader, const char **text, size_t *length)
{
    int result = skip_rest(reader);
    size_t looked = 0;
    while (result == 0) {
        const char *const begin = reader->buffer + reader->begin;
        const size_t there = reader->end - reader->begin;
        const char *newline = memchr(begin + looked, '\n', there - looked);
        if (newline || (reader->at_end && there > 0) || there == BUFFER) {
            *text = begin;
            *length = newline ? (size_t)(newline - begin) : there;
            reader->begin += *length + (newline != NULL);
            reader->in_long_line = !newline && !reader->at_end;
            reader->too_long += reader->in_long_line;
            reader->lines++;
            if (reader->saved && reader->lines == 1)
                reader->crlf = *length > 0 && begin[*length - 1] == '\r';
            if (reader->crlf && *length > 0 && begin[*length - 1] == '\r')
                --*length;
            return 1;
        }
        if (reader->at_end)
            return 0;
        looked = there;
        result = fill(reader);
    }
    return result;
}

/* Whether the target still has the memory that was being read. */
static bool still_there(struct maps_reader *reader)
{
    char byte;
    return lseek(reader->fd, 0, SEEK_SET) == 0 && read(reader->fd, &byte, 1) == 1;
}

/* Text of a mail may look like a detail; those of a map begin with Size, or with Rss. */
static bool take_detail(struct maps_reader *reader, const char *text, size_t length)
{
    uint64_t value = 0;
    const enum map_detail detail = map_detail_parse(text, length, &value);
    if (reader->maps == 0 || detail == DETAIL_NONE)
        return false;
    if (detail == DETAIL_RSS) {
        reader->has_rss = true;
        reader->rss = value;
    }
    reader->in_details |= detail != DETAIL_OTHER;
    return reader->in_details;
}

static int next_by_text(struct maps_reader *reader, struct map_line *line)
{
    const char *text = NULL;
    size_t length = 0;
    int got;
    reader->rss = 0;
    while ((got = next_text(reader, &text, &length)) > 0) {
        if (map_line_parse(text, length, line) == 0) {
            reader->maps++;
            reader->in_details = false;
            return 1;
        }
        if (!take_detail(reader, text, length) && length > 0 && reader->bad++ == 0)
            reader->first_bad = reader->lines;
    }
    if (got == 0 && !reader->saved && reader->maps > 0 && !still_there(reader))
        return -ESRCH;
    return got;
}

int maps_reader_next(struct maps_reader *reader, struct map_line *line)
{
    return reader->by_query ? next_by_query(reader, line) : next_by_text(reader, line);
}
