/* SPDX-License-Identifier: MIT */
/*
 * A fuzzer's bytes as saved maps, through all of the inspection up to its text and its picture.
 * What must hold whatever the bytes: maps are disjoint and rise, each has a cause, and folding adds
 * none beyond the arenas.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../core/fuzz_space.h"
#include "inspect_fixture.h"

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static void check(const struct inspection *inspection)
{
    uint64_t maps = 0;
    for (int i = 0; i < CAUSES; i++)
        maps += inspection->causes[i].maps;
    require(maps == inspection->count, "each map has a cause");
    for (size_t i = 0; i < inspection->count; i++) {
        require(inspection->maps[i].start < inspection->maps[i].end, "no map is empty");
        require(i == 0 || inspection->maps[i - 1].end <= inspection->maps[i].start,
                "maps are disjoint and rise");
    }
    require(inspection->fold.after <= inspection->count + 8 + 2 + inspection->fold.extents,
            "folding adds the drop-in, arenas and extents");
    require(inspection->advice_count > 0, "there is advice");
}

/* What is printed is checked only by the sanitizers. */
static void print(const struct inspection *inspection)
{
    FILE *const out = stdout;
    stdout = fopen("/dev/null", "we");
    require(stdout != NULL, "/dev/null can be opened");
    inspection_print(inspection);
    fclose(stdout);
    stdout = out;
    require(inspection_plot(inspection, "/dev/null") == 0, "a plot is drawn");
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    struct inspection inspection = {.limit = size > 0 && bytes[0] == '4' ? 16 : 65530};
    if (inspect_text(&inspection, (const char *)bytes, size) != 0)
        abort();
    if (inspection.count > 0) {
        check(&inspection);
        print(&inspection);
    }
    inspection_destroy(&inspection);
    return 0;
}
