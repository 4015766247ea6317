/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mapfold/mmap.h>

#include "linux/report.h"
#include "preload/options.h"

static bool stats;
static char stats_file[4096]; /* empty: stderr */
static char program_name[64];

/* Whether word begins with name and a '='; then *value is what follows. */
static bool word_has(const char *word, size_t length, const char *name, const char **value)
{
    const size_t name_length = strlen(name);
    if (length <= name_length || memcmp(word, name, name_length) != 0 || word[name_length] != '=')
        return false;
    *value = word + name_length + 1;
    return true;
}

static bool word_is(const char *word, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(word, name, length) == 0;
}

static void option_take(const char *word, size_t length, struct mf_map_options *options)
{
    const char *value;
    if (word_is(word, length, "stats")) {
        stats = true;
    } else if (word_has(word, length, "stats", &value)) {
        const size_t value_length = (size_t)(word + length - value);
        stats = true;
        if (value_length < sizeof(stats_file)) {
            memcpy(stats_file, value, value_length);
            stats_file[value_length] = '\0';
        }
    } else if (word_is(word, length, "explain")) {
        options->explain = 1;
    } else if (word_is(word, length, "off")) {
        options->off = 1;
    } else if (word_is(word, length, "strict")) {
        options->strict = 1;
    } else if (word_is(word, length, "snapshot")) {
        options->snapshot = 1;
    } else if (word_is(word, length, "any-fs")) {
        options->any_file_system = 1;
    } else if (word_has(word, length, "promote", &value)) {
        options->promote_pieces = (uint32_t)strtoul(value, NULL, 10);
    } else if (word_has(word, length, "linger", &value)) {
        options->linger_ms = (uint32_t)strtoul(value, NULL, 10);
    } else if (word_has(word, length, "max-copy", &value)) {
        options->max_copy_bytes = strtoull(value, NULL, 10);
    }
}

void options_read(const char *program, char **environment)
{
    const char *words = NULL;
    for (char **at = environment; at != NULL && *at != NULL; at++)
        if (strncmp(*at, MAPFOLD_OPTIONS "=", sizeof(MAPFOLD_OPTIONS "=") - 1) == 0)
            words = *at + sizeof(MAPFOLD_OPTIONS "=") - 1;
    const char *slash = strrchr(program, '/');
    snprintf(program_name, sizeof(program_name), "%s", slash != NULL ? slash + 1 : program);
    if (words == NULL || *words == '\0')
        return;
    struct mf_map_options options;
    mf_map_get_options(&options);
    for (size_t length; *words != '\0'; words += length + (words[length] == ',')) {
        length = strcspn(words, ",");
        option_take(words, length, &options);
    }
    options.timed = stats;
    if (stats)
        report_begin();
    mf_map_set_options(&options);
}

struct text {
    char bytes[4096];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format,
                                                           ...)
{
    const size_t room = sizeof(text->bytes) - text->length;
    va_list values;
    va_start(values, format);
    const int written = vsnprintf(text->bytes + text->length, room, format, values);
    va_end(values);
    if (written > 0)
        text->length += (size_t)written < room ? (size_t)written : room - 1;
}

/* 0, or a positive errno. */
static int file_append(const char *path, const char *text, size_t length)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    int failed = 0;
    while (length > 0 && failed == 0) {
        const ssize_t done = write(fd, text, length);
        if (done > 0) {
            text += done;
            length -= (size_t)done;
        } else if (done == 0 || errno != EINTR) {
            failed = done == 0 ? ENOSPC : errno;
        }
    }
    /* Some file systems tell only here that the disk, or the quota, is full. */
    if (close(fd) != 0 && failed == 0 && errno != EINTR)
        failed = errno;
    return failed;
}

/* What FILE does not take goes to standard error, with the reason. */
static void text_write(const struct text *text)
{
    const int failed = stats_file[0] ? file_append(stats_file, text->bytes, text->length) : 0;
    if (failed != 0) {
        static struct text why;
        text_add(&why, "mapfold: cannot write the statistics to %s: %s\n", stats_file,
                 strerror(failed));
        report_write(why.bytes, why.length);
    }
    if (stats_file[0] == '\0' || failed != 0)
        report_write(text->bytes, text->length);
}

void options_report(void)
{
    if (!stats)
        return;
    struct mf_map_stats now;
    mf_map_stats(&now);
    struct text text = {.length = 0};
    const unsigned long long calls = now.maps + now.unmaps;
    text_add(&text, "mapfold: %s (process %d)\n", program_name, (int)getpid());
    text_add(&text, "  calls           %llu mmap, %llu munmap, %llu ns each\n",
             (unsigned long long)now.maps, (unsigned long long)now.unmaps,
             calls != 0 ? (unsigned long long)now.nanoseconds / calls : 0);
    text_add(&text, "  pieces          %llu carved, %llu copied (%llu bytes read)\n",
             (unsigned long long)now.carved, (unsigned long long)now.copied,
             (unsigned long long)now.copied_bytes);
    for (int i = 0; i < MF_PASS_REASONS; i++)
        if (now.passed[i] != 0)
            text_add(&text, "  %-15llu passed: %s\n", (unsigned long long)now.passed[i],
                     mf_pass_reason_text((enum mf_pass_reason)i));
    text_add(&text, "  live            %llu folded pieces at most; %llu kernel maps now\n",
             (unsigned long long)now.peak_live_pieces, (unsigned long long)now.kernel_maps);
    text_add(&text, "  extents         %llu made, %llu now; %llu written pages dropped\n",
             (unsigned long long)now.extents_made, (unsigned long long)now.extents,
             (unsigned long long)now.dropped_pages);
    if (now.refused_maps != 0)
        text_add(
            &text,
            "  %-15llu refused by the kernel (ENOMEM): the process has vm.max_map_count maps,\n"
            "                  or no address space. Mappings of more different files than that\n"
            "                  cannot be folded if they are shared; see mapfold-run(1).\n",
            (unsigned long long)now.refused_maps);
    text_write(&text);
}
