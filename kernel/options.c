/* SPDX-License-Identifier: MIT */
/* The boot loader's memory is soon used otherwise, so the command line is copied. */
#include <stddef.h>

#include "kernel/console.h"
#include "kernel/layout.h"
#include "kernel/memory.h"
#include "kernel/options.h"

enum { TEXT_MAX = 512, MULTIBOOT_HAS_COMMAND_LINE = 1 << 2 };

struct options options = {
    .run = "",
    .pool = "core",
    .barrier = "ipi",
    .flush = "on",
    .cpus = 1,
    .slots = 512,
    .ops = 10000,
    .pages = 4096,
    .frames = 100000,
    .areas = 100000,
};

static const struct {
    const char *name;
    const char **text;
    const char *a, *b; /* the values allowed; NULL: any */
    uint32_t *number;
    uint32_t least, most;
} known[] = {
    {"run", &options.run, NULL, NULL, NULL, 0, 0},
    {"pool", &options.pool, "core", "2002", NULL, 0, 0},
    {"barrier", &options.barrier, "ipi", "fence", NULL, 0, 0},
    {"flush", &options.flush, "on", "off", NULL, 0, 0},
    {"cpus", NULL, NULL, NULL, &options.cpus, 1, CPUS_MAX},
    {"slots", NULL, NULL, NULL, &options.slots, 64, SLOTS_MAX},
    {"batch", NULL, NULL, NULL, &options.batch, 0, SLOTS_MAX},
    {"ops", NULL, NULL, NULL, &options.ops, 1, 100000000},
    {"pages", NULL, NULL, NULL, &options.pages, 1, 65536},
    {"held", NULL, NULL, NULL, &options.held, 0, 90},
    {"frames", NULL, NULL, NULL, &options.frames, 0, UINT32_MAX},
    {"areas", NULL, NULL, NULL, &options.areas, 1, 1500000},
    {"inject", NULL, NULL, NULL, &options.inject, 0, UINT32_MAX},
    {"instructions", NULL, NULL, NULL, &options.instructions, 0, 1},
};

bool same_text(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static bool read_number(const char *text, uint32_t *value)
{
    uint64_t sum = 0;
    for (const char *c = text; *c; c++) {
        sum = sum * 10 + (unsigned)(*c - '0');
        if (*c < '0' || *c > '9' || sum > UINT32_MAX)
            return false;
    }
    *value = (uint32_t)sum;
    return *text;
}

static bool set(const char *name, const char *value)
{
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!same_text(known[i].name, name))
            continue;
        if (known[i].number)
            return read_number(value, known[i].number) && *known[i].number >= known[i].least &&
                   *known[i].number <= known[i].most;
        *known[i].text = value;
        return !known[i].a || same_text(value, known[i].a) || same_text(value, known[i].b);
    }
    return false;
}

/* Cuts the text into words, and words at their first =. The first word is the kernel's name. */
static void read_words(char *text)
{
    bool first = true;
    while (*text) {
        char *name = text, *value = NULL;
        for (; *text && *text != ' '; text++)
            if (*text == '=' && !value) {
                *text = 0;
                value = text + 1;
            }
        if (*text)
            *text++ = 0;
        if (!first && *name && !(value && set(name, value)))
            panic("command line: %s=%s is not known, or out of range", name, value ? value : "");
        first = false;
    }
}

void options_read(uint32_t multiboot)
{
    static char text[TEXT_MAX];
    const uint32_t *info = direct(multiboot);
    if (!(info[0] & MULTIBOOT_HAS_COMMAND_LINE))
        panic("there is no command line");
    const char *from = direct(info[4]);
    for (unsigned i = 0; i < TEXT_MAX - 1 && from[i]; i++)
        text[i] = from[i];
    read_words(text);
    if (options.slots & (options.slots - 1))
        panic("command line: slots=%u is no power of two", options.slots);
    if (!options.batch)
        options.batch = options.slots / 2;
}
