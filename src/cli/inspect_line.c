/* SPDX-License-Identifier: MIT */
/*
 * A line of maps:   start-end perm offset major:minor inode   name
 *
 * All numbers but the inode are hexadecimal; devices have as many digits as they need, and so have
 * addresses. Blanks pad the line to the name, which is the rest of it, blanks inside and at its end
 * included. A name that begins with a blank does not exist: files begin with a slash, the kernel's
 * own with a bracket or a letter. Some kernels leave a blank where there is no name.
 */
#include <errno.h>
#include <string.h>

#include "cli/inspect.h"

struct cursor {
    const char *at, *end;
};

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

static bool take_number(struct cursor *cursor, unsigned base, uint64_t *value)
{
    const char *const first = cursor->at;
    *value = 0;
    for (; cursor->at < cursor->end; cursor->at++) {
        const unsigned digit = (unsigned)digit_of(*cursor->at);
        if (digit >= base)
            break;
        if (*value > (UINT64_MAX - digit) / base)
            return false;
        *value = *value * base + digit;
    }
    return cursor->at > first;
}

static bool take(struct cursor *cursor, char c)
{
    if (cursor->at == cursor->end || *cursor->at != c)
        return false;
    cursor->at++;
    return true;
}

static bool take_protection(struct cursor *cursor, struct map_line *line)
{
    static const char letters[] = "rwx";
    if (cursor->end - cursor->at < 4)
        return false;
    line->protection = 0;
    for (int i = 0; i < 3; i++) {
        if (*cursor->at == letters[i])
            line->protection |= (uint8_t)(1U << i);
        else if (*cursor->at != '-')
            return false;
        cursor->at++;
    }
    line->shared = *cursor->at == 's';
    return take(cursor, 's') || take(cursor, 'p');
}

static bool take_device(struct cursor *cursor, struct map_line *line)
{
    uint64_t major, minor;
    if (!take_number(cursor, 16, &major) || !take(cursor, ':') ||
        !take_number(cursor, 16, &minor) || major > UINT32_MAX || minor > UINT32_MAX)
        return false;
    line->major = (uint32_t)major;
    line->minor = (uint32_t)minor;
    return true;
}

int map_line_parse(const char *text, size_t length, struct map_line *line)
{
    struct cursor cursor = {text, text + length};
    const bool good = take_number(&cursor, 16, &line->start) && take(&cursor, '-') &&
                      take_number(&cursor, 16, &line->end) && take(&cursor, ' ') &&
                      take_protection(&cursor, line) && take(&cursor, ' ') &&
                      take_number(&cursor, 16, &line->offset) && take(&cursor, ' ') &&
                      take_device(&cursor, line) && take(&cursor, ' ') &&
                      take_number(&cursor, 10, &line->inode);
    if (!good || line->start >= line->end)
        return -EINVAL;
    if (cursor.at < cursor.end && *cursor.at != ' ')
        return -EINVAL;
    while (cursor.at < cursor.end && *cursor.at == ' ')
        cursor.at++;
    line->name = cursor.at;
    line->name_length = (size_t)(cursor.end - cursor.at);
    line->escaped = true;
    return 0;
}

static bool is_key(const char *text, size_t length, const char *key)
{
    return length == strlen(key) && memcmp(text, key, length) == 0;
}

enum map_detail map_detail_parse(const char *text, size_t length, uint64_t *value)
{
    size_t i = 0;
    while (i < length &&
           ((text[i] >= 'A' && text[i] <= 'Z') || (text[i] >= 'a' && text[i] <= 'z') ||
            (i > 0 && (text[i] == '_' || (text[i] >= '0' && text[i] <= '9')))))
        i++;
    if (i == 0 || i == length || text[i] != ':')
        return DETAIL_NONE;
    const enum map_detail detail = is_key(text, i, "Rss")    ? DETAIL_RSS
                                   : is_key(text, i, "Size") ? DETAIL_SIZE
                                                             : DETAIL_OTHER;
    if (detail == DETAIL_OTHER)
        return detail;
    struct cursor cursor = {text + i + 1, text + length};
    while (take(&cursor, ' '))
        continue;
    return take_number(&cursor, 10, value) ? detail : DETAIL_NONE;
}
