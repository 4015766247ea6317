/* SPDX-License-Identifier: MIT */
/*
 * Lines become maps of 40 bytes, and each file is looked at once, when its first map comes: so
 * names are needed for few lines, and a million maps of one file cost one name.
 *
 * Lines come by rising addresses. If the target maps and unmaps between two reads, a map can begin
 * below the end of the last one: it had grown, or two had merged. It is cut to what is new.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/inspect.h"

static bool begins_with(const char *text, size_t length, const char *prefix)
{
    const size_t n = strlen(prefix);
    return length >= n && memcmp(text, prefix, n) == 0;
}

/* Pages of the kernel that x86-64 and 32-bit arm show in every process; they are no maps of it. By
 * name: on other machines such high addresses are a program's own. */
static bool is_gate(const struct map_line *line)
{
    return (line->name_length == 10 && memcmp(line->name, "[vsyscall]", 10) == 0) ||
           (line->name_length == 9 && memcmp(line->name, "[vectors]", 9) == 0);
}

static enum mark mark_of(const char *name, size_t length)
{
    static const char *const kernel[] = {"[vdso", "[vvar", "[vsyscall", "[sigpage", "[uprobes"};
    if (length == 0)
        return MARK_NONE;
    if (begins_with(name, length, "[heap]"))
        return MARK_HEAP;
    if (begins_with(name, length, "[stack"))
        return MARK_STACK;
    for (size_t i = 0; i < sizeof(kernel) / sizeof(kernel[0]); i++) {
        if (begins_with(name, length, kernel[i]))
            return MARK_KERNEL;
    }
    if (!begins_with(name, length, "[anon"))
        return MARK_NONE;
    if (memmem(name, length, "stack", 5))
        return MARK_STACK;
    return memmem(name, length, "malloc", 6) || memmem(name, length, "scudo", 5) ? MARK_HEAP
                                                                                 : MARK_NAMED;
}

/* Only regular files are folded, and maps do not tell the type; names do, nearly. */
static enum file_kind kind_of(const char *name, size_t length)
{
    static const char *const memory[] = {"/memfd:",        "/SYSV",       "/dev/zero",
                                         "/anon_hugepage", "/dev/ashmem", "[anon_shmem"};
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        if (begins_with(name, length, memory[i]))
            return KIND_SHARED_MEMORY;
    }
    if (length > 0 && (name[0] != '/' || (begins_with(name, length, "/dev/") &&
                                          !begins_with(name, length, "/dev/shm/"))))
        return KIND_DEVICE;
    return KIND_FILE;
}

/* ".sst" of "000123.sst"; nothing of ".profile", "README" and "a.b c". */
static size_t suffix_length(const char *base, size_t length)
{
    enum { LONGEST = 16 };
    for (size_t i = 1; i < length && i <= LONGEST; i++) {
        const char c = base[length - i];
        if (c == '.')
            return i > 1 && i < length ? i : 0;
        if (c == ' ')
            return 0;
    }
    return 0;
}

static bool name_file(struct names *names, struct map_file *file, const char *name, size_t length)
{
    const char *slash = memrchr(name, '/', length);
    const size_t directory = slash && file->kind == KIND_FILE ? (size_t)(slash - name) + 1 : 0;
    const char *const base = name + directory;
    const size_t suffix = suffix_length(base, length - directory);
    file->drop_in = begins_with(base, length - directory, "libmapfold-run.so");
    file->library = memmem(base, length - directory, ".so", 3) != NULL;
    file->directory = name_intern(names, name, directory);
    file->base = name_intern(names, base, length - directory);
    file->suffix = name_intern(names, name + length - suffix, suffix);
    return file->directory != NO_NAME && file->base != NO_NAME && file->suffix != NO_NAME;
}

static uint64_t file_hash(const struct map_line *line)
{
    uint64_t hash = line->inode * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ ((uint64_t)line->major << 32 | line->minor)) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 32;
}

static bool file_table_grow(struct inspection *inspection)
{
    const uint32_t size = inspection->file_table_size ? 2 * inspection->file_table_size : 256;
    uint32_t *table = calloc(size, sizeof(*table));
    if (!table)
        return false;
    for (uint32_t i = 0; i < inspection->file_count; i++) {
        const struct map_file *file = &inspection->files[i];
        const struct map_line key = {
            .inode = file->inode, .major = file->major, .minor = file->minor};
        uint32_t at = (uint32_t)file_hash(&key) & (size - 1);
        while (table[at] != 0)
            at = (at + 1) & (size - 1);
        table[at] = i + 1;
    }
    free(inspection->file_table);
    inspection->file_table = table;
    inspection->file_table_size = size;
    return true;
}

/* The line's place in the table: of its file, or an empty one. */
static uint32_t *file_find(struct inspection *inspection, const struct map_line *line)
{
    const uint32_t mask = inspection->file_table_size - 1;
    uint32_t at = (uint32_t)file_hash(line) & mask;
    for (; inspection->file_table[at] != 0; at = (at + 1) & mask) {
        const struct map_file *file = &inspection->files[inspection->file_table[at] - 1];
        if (file->inode == line->inode && file->major == line->major && file->minor == line->minor)
            break;
    }
    return &inspection->file_table[at];
}

static bool file_add(struct inspection *inspection, const struct map_line *line, char *scratch)
{
    if (inspection->file_count == inspection->file_room) {
        const uint32_t room = inspection->file_room ? 2 * inspection->file_room : 64;
        struct map_file *more = realloc(inspection->files, room * sizeof(*more));
        if (!more)
            return false;
        inspection->files = more;
        inspection->file_room = room;
    }
    struct map_file file = {.inode = line->inode, .major = line->major, .minor = line->minor};
    size_t length = line->name_length;
    if (length > 0) /* else the name may be NULL */
        memcpy(scratch, line->name, length);
    file.kind = (uint8_t)kind_of(scratch, length);
    if (file.kind == KIND_FILE)
        file_resolve(inspection, line, &file, scratch, &length);
    if (!name_file(&inspection->names, &file, scratch, length))
        return false;
    inspection->files[inspection->file_count++] = file;
    return true;
}

/* The number of the line's file, which is looked at if it is new; NO_FILE: no memory. */
static uint32_t file_of(struct inspection *inspection, struct maps_reader *reader,
                        struct map_line *line, char *scratch)
{
    if (inspection->file_count >= inspection->file_table_size / 2 && !file_table_grow(inspection))
        return NO_FILE;
    uint32_t *place = file_find(inspection, line);
    if (*place == 0) {
        maps_reader_name(reader, line);
        if (!file_add(inspection, line, scratch))
            return NO_FILE;
        *place = inspection->file_count;
    }
    return *place - 1;
}

/* A line that overlaps the map before it is cut to what is new; false: nothing is. */
static bool cut_torn(struct inspection *inspection, struct map_line *line)
{
    const uint64_t end = inspection->count ? inspection->maps[inspection->count - 1].end : 0;
    if (line->start >= end)
        return true;
    inspection->torn++;
    if (line->end <= end)
        return false;
    line->offset += line->inode ? end - line->start : 0;
    line->start = end;
    return true;
}

static int map_add(struct inspection *inspection, struct maps_reader *reader, struct map_line *line,
                   char *scratch)
{
    /* Anonymous maps have no inode; old kernels' devices may have none either, but a path. */
    bool has_file = line->inode != 0;
    if (!has_file) {
        maps_reader_name(reader, line);
        has_file = line->name_length > 0 && line->name[0] == '/';
    }
    if (is_gate(line)) {
        inspection->gates++;
        return 0;
    }
    if (!cut_torn(inspection, line))
        return 0;
    if (inspection->count == inspection->room) {
        const size_t room = inspection->room ? 2 * inspection->room : 256;
        struct map *more = realloc(inspection->maps, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        inspection->maps = more;
        inspection->room = room;
    }
    struct map map = {.start = line->start,
                      .end = line->end,
                      .offset = line->offset,
                      .file = NO_FILE,
                      .protection = line->protection,
                      .shared = line->shared};
    if (!has_file)
        map.mark = (uint8_t)mark_of(line->name, line->name_length);
    else if ((map.file = file_of(inspection, reader, line, scratch)) == NO_FILE)
        return -ENOMEM;
    inspection->maps[inspection->count++] = map;
    return 0;
}

static void add_rss(struct inspection *inspection, const struct maps_reader *reader, size_t to)
{
    if (reader->rss > 0 && to > 0)
        inspection->maps[to - 1].rss =
            reader->rss < UINT32_MAX ? (uint32_t)reader->rss : UINT32_MAX;
}

/* A saved file does not tell the page size; addresses are multiples of it. */
static uint64_t guess_page(const struct inspection *inspection)
{
    uint64_t bits = UINT64_C(1) << 16;
    for (size_t i = 0; i < inspection->count; i++)
        bits |= inspection->maps[i].start | inspection->maps[i].end;
    const uint64_t lowest = bits & -bits;
    return lowest < 4096 ? 4096 : lowest;
}

int inspection_collect(struct inspection *inspection, struct maps_reader *reader)
{
    enum { SCRATCH = 128 << 10 }; /* no name is longer than the reader's buffer */
    char *scratch = malloc(SCRATCH);
    struct map_line line;
    int result = scratch ? 1 : -ENOMEM;
    while (result > 0) {
        const size_t before = inspection->count;
        result = maps_reader_next(reader, &line);
        if (result >= 0)
            add_rss(inspection, reader, before);
        if (result > 0 && map_add(inspection, reader, &line, scratch) != 0)
            result = -ENOMEM;
    }
    free(scratch);
    inspection->has_rss = reader->has_rss;
    inspection->bad_lines = reader->bad;
    inspection->first_bad_line = reader->first_bad;
    inspection->long_lines = reader->too_long;
    inspection->page =
        inspection->process.pid ? (uint64_t)sysconf(_SC_PAGESIZE) : guess_page(inspection);
    return result;
}

void inspection_destroy(struct inspection *inspection)
{
    free(inspection->maps);
    free(inspection->files);
    free(inspection->file_table);
    names_destroy(&inspection->names);
}
