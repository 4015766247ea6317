/* SPDX-License-Identifier: MIT */
/*
 * Directories, base names and suffixes, each kept once. Beyond ROOMY bytes in all only the last
 * SHORT bytes of a longer one are kept, so that no target can make the command grow by its paths;
 * two of those are the same if their hashes and lengths are.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"

enum { ROOMY = 32 << 20, SHORT = 100 };

/* Eight bytes at a time: paths are long and many. */
static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = length * UINT64_C(0x9e3779b97f4a7c15);
    while (length > 0) {
        uint64_t word = 0;
        const size_t step = length < 8 ? length : 8;
        memcpy(&word, text, step);
        hash = (hash ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
        hash ^= hash >> 31;
        text += step;
        length -= step;
    }
    return hash * UINT64_C(0x94d049bb133111eb) ^ hash >> 29;
}

static bool table_grow(struct names *names)
{
    const uint32_t size = names->table_size ? 2 * names->table_size : 256;
    uint32_t *table = calloc(size, sizeof(*table));
    if (!table)
        return false;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t at = (uint32_t)names->names[i].hash & (size - 1);
        while (table[at] != 0)
            at = (at + 1) & (size - 1);
        table[at] = i + 1;
    }
    free(names->table);
    names->table = table;
    names->table_size = size;
    return true;
}

static bool make_room(struct names *names, size_t length)
{
    if (names->count == names->room) {
        const uint32_t room = names->room ? 2 * names->room : 256;
        struct name *more = realloc(names->names, room * sizeof(*more));
        if (!more)
            return false;
        names->names = more;
        names->room = room;
    }
    if (!names->text || names->text_room - names->text_used < length) {
        const size_t room = 2 * names->text_room + length + 4096;
        char *more = realloc(names->text, room);
        if (!more)
            return false;
        names->text = more;
        names->text_room = room;
    }
    return names->count < names->table_size / 2 || table_grow(names);
}

uint32_t name_intern(struct names *names, const char *text, size_t length)
{
    if (names->table_size == 0 && !table_grow(names))
        return NO_NAME;
    const uint64_t hash = hash_of(text, length);
    uint32_t at = (uint32_t)hash & (names->table_size - 1);
    for (; names->table[at] != 0; at = (at + 1) & (names->table_size - 1)) {
        const struct name *name = &names->names[names->table[at] - 1];
        if (name->hash == hash &&
            (name->cut
                 ? name->length < length
                 : name->length == length && memcmp(names->text + name->at, text, length) == 0))
            return names->table[at] - 1;
    }
    const bool cut = names->text_used > ROOMY && length > SHORT;
    const size_t kept = cut ? SHORT : length;
    if (names->count == NO_NAME - 1 || !make_room(names, kept))
        return NO_NAME;
    at = (uint32_t)hash & (names->table_size - 1);
    while (names->table[at] != 0)
        at = (at + 1) & (names->table_size - 1);
    memcpy(names->text + names->text_used, text + length - kept, kept);
    names->names[names->count] =
        (struct name){.hash = hash, .at = names->text_used, .length = (uint32_t)kept, .cut = cut};
    names->text_used += kept;
    names->table[at] = ++names->count;
    return names->count - 1;
}

void names_destroy(struct names *names)
{
    free(names->names);
    free(names->table);
    free(names->text);
}
