/* SPDX-License-Identifier: MIT */
/* Numbers and names as people and JSON read them, and who has the most maps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"
#include "cli/text.h"

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
