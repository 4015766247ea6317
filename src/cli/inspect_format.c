/* SPDX-License-Identifier: MIT */
/* Numbers and names as people and JSON read them, and who has the most maps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"

/* 65,503 of 65,530 are not yet 100.0 %. */
double percent_of(uint64_t part, uint64_t whole)
{
    return floor((double)part * 1000 / (double)whole) / 10;
}

double inspection_fragmentation(const struct inspection *inspection)
{
    const struct gap *largest = &inspection->gaps[0];
    if (inspection->gap_bytes == 0)
        return 0;
    return percent_of(inspection->gap_bytes - (largest->end - largest->start),
                      inspection->gap_bytes);
}

char *format_count(uint64_t count, char text[static 32])
{
    char digits[24];
    const int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)count);
    char *to = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

char *format_bytes(uint64_t bytes, char text[static 32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024; unit++)
        value /= 1024;
    snprintf(text, 32, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

/* Bytes of the UTF-8 character at text: 1 to 4, or 0 if it is none. */
static size_t character(const unsigned char *text, size_t length)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char first = text[0];
    const size_t n = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (n == 0 || n > length || first > 0xf4)
        return 0;
    uint32_t value = n == 1 ? first : first & (0xffU >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (text[i] & 0x3f);
    }
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    return value >= lowest[n] && value <= 0x10ffff && !surrogate ? n : 0;
}

/* C1 controls and marks that turn the direction of text would still play with a terminal. */
static bool is_shown(const unsigned char *text, size_t n)
{
    if (n == 1)
        return text[0] >= ' ' && text[0] != '\\' && text[0] != 0x7f;
    if (n == 2)
        return !(text[0] == 0xc2 && text[1] < 0xa0);
    return !(n == 3 && text[0] == 0xe2 &&
             ((text[1] == 0x80 && text[2] >= 0x8b && text[2] <= 0xae) ||
              (text[1] == 0x81 && text[2] >= 0xa0)));
}

char *printable(const char *text, size_t length)
{
    char *shown = malloc(4 * length + 1);
    if (!shown)
        return NULL;
    char *to = shown;
    for (size_t i = 0; i < length;) {
        const unsigned char *at = (const unsigned char *)text + i;
        const size_t n = character(at, length - i);
        if (n > 0 && is_shown(at, n)) {
            memcpy(to, at, n);
            to += n;
            i += n;
            continue;
        }
        for (const size_t end = i + (n ? n : 1); i < end; i++)
            to += sprintf(to, "\\%03o", (unsigned)(unsigned char)text[i]);
    }
    *to = '\0';
    return shown;
}

char *printable_name(const struct inspection *inspection, uint32_t name)
{
    const struct name *kept = &inspection->names.names[name];
    return printable(inspection->names.text + kept->at, kept->length);
}

char *printable_file(const struct inspection *inspection, uint32_t number)
{
    const struct map_file *file = &inspection->files[number];
    const struct name *const parts[] = {&inspection->names.names[file->directory],
                                        &inspection->names.names[file->base]};
    const size_t length = (size_t)parts[0]->length + parts[1]->length;
    char *whole = malloc(length + 1);
    if (!whole)
        return NULL;
    for (size_t i = 0, at = 0; i < 2; at += parts[i++]->length) {
        if (parts[i]->length > 0)
            memcpy(whole + at, inspection->names.text + parts[i]->at, parts[i]->length);
    }
    char *shown = printable(whole, length);
    free(whole);
    return shown;
}

/* Keeps top[] sorted by falling counts; returns how many are in it. */
static size_t rank(uint32_t *top, uint64_t *counts, size_t there, size_t most, uint32_t number,
                   uint64_t count)
{
    if (count == 0 || most == 0 || (there == most && count <= counts[most - 1]))
        return there;
    size_t at = there < most ? there : most - 1;
    for (; at > 0 && counts[at - 1] < count; at--) {
        top[at] = top[at - 1];
        counts[at] = counts[at - 1];
    }
    top[at] = number;
    counts[at] = count;
    return there < most ? there + 1 : most;
}

size_t top_files(const struct inspection *inspection, uint32_t *top, size_t most)
{
    uint64_t counts[TOP_FILES] = {0};
    size_t there = 0;
    for (uint32_t i = 0; i < inspection->file_count; i++) {
        if (!inspection->files[i].executable)
            there = rank(top, counts, there, most, i, inspection->files[i].maps);
    }
    return there;
}

size_t top_names(const struct inspection *inspection, bool suffixes, uint32_t *top, size_t most)
{
    uint64_t counts[TOP_FILES] = {0};
    size_t there = 0;
    for (uint32_t i = 0; i < inspection->names.count; i++) {
        const struct name *name = &inspection->names.names[i];
        there =
            rank(top, counts, there, most, i, suffixes ? name->with_suffix : name->in_directory);
    }
    return there;
}
