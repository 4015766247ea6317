/* SPDX-License-Identifier: MIT */
/*
 * The address space as a picture. Maps fill a millionth of it, so it is cut at its largest gaps
 * into bands, each drawn to a scale of its own from its first map to its last:
 *
 *      bars    how many maps begin in each column, as a logarithm, parted by cause
 *      strip   what fills the column, parted by address space
 *
 * It is written as SVG directly: these are rectangles at addresses, of which gnuplot's axes,
 * doubles after all, cannot tell two neighbours apart. The picture is made in memory first, so that
 * no end leaves half of one. Its size is bounded by columns, not by maps.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/text.h"

enum {
    COLUMNS = 960,
    LEFT = 30,
    TOP_SPACE = 150, /* title, usage, legend */
    BAND = 92,
    BARS = 36,
    STRIP = 20,
    MAX_BANDS = 12,
};

static const uint64_t LEAST_GAP = 1 << 20;

/* Colours that differ in lightness too, for those who do not see them all. */
static const char *const colours[CAUSES] = {
    [CAUSE_FILE] = "#2c5faa",      [CAUSE_DELETED] = "#c0392b", [CAUSE_SHARED] = "#8e6bbf",
    [CAUSE_ANONYMOUS] = "#9db4c8", [CAUSE_STACK] = "#e08e0b",   [CAUSE_SPLIT] = "#0b6e4f",
    [CAUSE_CODE] = "#444444",      [CAUSE_HEAP] = "#e6c84a",    [CAUSE_KERNEL] = "#c9a6c0"};

struct band {
    size_t first, end; /* maps */
};

struct column {
    uint64_t bytes[CAUSES];
    uint32_t maps[CAUSES], all;
};

static void put_escaped(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        if (strchr("&<>\"'", *text))
            fprintf(out, "&#%d;", *text);
        else
            putc(*text, out);
    }
}

static uint64_t gap_before(const struct inspection *inspection, size_t map)
{
    return inspection->maps[map].start - inspection->maps[map - 1].end;
}

/* Cuts at the largest gaps. How many bands there are. */
static size_t find_bands(const struct inspection *inspection, struct band bands[static MAX_BANDS])
{
    size_t cuts[MAX_BANDS - 1], count = 0;
    const uint64_t part = inspection->mapped_bytes / 64;
    const uint64_t least = part > LEAST_GAP ? part : LEAST_GAP;
    for (size_t i = 1; i < inspection->count; i++) {
        const uint64_t gap = gap_before(inspection, i);
        if (gap < least)
            continue;
        size_t at = count < MAX_BANDS - 1 ? count++ : count;
        for (; at > 0 && gap_before(inspection, cuts[at - 1]) < gap; at--) {
            if (at < MAX_BANDS - 1)
                cuts[at] = cuts[at - 1];
        }
        if (at < MAX_BANDS - 1)
            cuts[at] = i;
    }
    for (size_t i = 1; i < count; i++) { /* by address again */
        const size_t cut = cuts[i];
        size_t at = i;
        for (; at > 0 && cuts[at - 1] > cut; at--)
            cuts[at] = cuts[at - 1];
        cuts[at] = cut;
    }
    for (size_t i = 0; i <= count; i++)
        bands[i] = (struct band){i == 0 ? 0 : cuts[i - 1], i < count ? cuts[i] : inspection->count};
    return count + 1;
}

static void fill_columns(const struct inspection *inspection, const struct band *band,
                         struct column *columns)
{
    const struct map *const maps = inspection->maps;
    const uint64_t start = maps[band->first].start;
    const double scale = COLUMNS / (double)(maps[band->end - 1].end - start);
    memset(columns, 0, COLUMNS * sizeof(*columns));
    for (size_t i = band->first; i < band->end; i++) {
        const double from = (double)(maps[i].start - start) * scale;
        const double to = (double)(maps[i].end - start) * scale;
        const unsigned first = from < COLUMNS - 1 ? (unsigned)from : COLUMNS - 1;
        const unsigned last = to < COLUMNS - 1 ? (unsigned)to : COLUMNS - 1;
        columns[first].maps[maps[i].cause]++;
        columns[first].all++;
        for (unsigned c = first; c <= last; c++) {
            const double low = from > c ? from : c, high = to < c + 1 ? to : c + 1;
            if (high > low)
                columns[c].bytes[maps[i].cause] += (uint64_t)((high - low) / scale) + 1;
        }
    }
}

/* Where a cause lies in a column: parts of its height below it, and its own part. */
struct slice {
    double below, height;
};

static struct slice slice_of_bytes(const struct column *column, int cause)
{
    double below = 0, all = 0;
    for (int i = 0; i < CAUSES; i++) {
        below += i < cause ? (double)column->bytes[i] : 0;
        all += (double)column->bytes[i];
    }
    if (all <= 0)
        return (struct slice){0, 0};
    return (struct slice){below / all, (double)column->bytes[cause] / all};
}

/* A logarithm of 1 + x, straight between the powers of two: bars need no better one, and no
 * library. */
static double logarithm(double x)
{
    int exponent;
    const double fraction = frexp(1 + x, &exponent);
    return exponent - 2 + 2 * fraction;
}

static struct slice slice_of_maps(const struct column *column, int cause, double most)
{
    if (column->maps[cause] == 0)
        return (struct slice){0, 0};
    double below = 0;
    for (int i = 0; i < cause; i++)
        below += column->maps[i];
    const double whole = logarithm(column->all) / logarithm(most) / column->all;
    return (struct slice){below * whole, column->maps[cause] * whole};
}

/* most: the most maps of a column, for bars; 0: the strip. Equal neighbours are one rectangle. */
static void draw_slices(FILE *out, const struct column *columns, int base, int cause, double most)
{
    const double room = most > 0 ? BARS : STRIP;
    struct slice now = {0, 0};
    int first = 0;
    for (int c = 0; c <= COLUMNS; c++) {
        struct slice next = {0, 0};
        if (c < COLUMNS)
            next = most > 0 ? slice_of_maps(&columns[c], cause, most)
                            : slice_of_bytes(&columns[c], cause);
        if (c < COLUMNS && fabs(next.below - now.below) < 1e-3 &&
            fabs(next.height - now.height) < 1e-3)
            continue;
        if (now.height > 0)
            fprintf(out, "M%d %.1fh%dv-%.1fh-%dz", LEFT + first, base - now.below * room, c - first,
                    now.height * room, c - first);
        now = next;
        first = c;
    }
}

static void draw_band(const struct inspection *inspection, FILE *out, const struct band *band,
                      struct column *columns, int y)
{
    char count[32], bytes[32], gap[32] = "";
    const struct map *const maps = inspection->maps;
    const uint64_t start = maps[band->first].start, end = maps[band->end - 1].end;
    fill_columns(inspection, band, columns);
    uint32_t most = 1;
    for (int c = 0; c < COLUMNS; c++)
        most = columns[c].all > most ? columns[c].all : most;
    if (band->end < inspection->count)
        format_bytes(gap_before(inspection, band->end), gap);
    fprintf(out, "<text x='%d' y='%d'>%#llx: %s, %s map%s</text>\n", LEFT, y + 12,
            (unsigned long long)start, format_bytes(end - start, bytes),
            format_count(band->end - band->first, count), band->end - band->first == 1 ? "" : "s");
    fprintf(out,
            "<text x='%d' y='%d' fill='#777' text-anchor='middle'>bars: up to %u a column</text>\n",
            LEFT + COLUMNS / 2, y + 12, most);
    if (gap[0])
        fprintf(out, "<text x='%d' y='%d' fill='#777' text-anchor='end'>then a gap of %s</text>\n",
                LEFT + COLUMNS, y + 12, gap);
    const int base = y + 18 + BARS;
    fprintf(out, "<path fill='#f0f0f0' d='M%d %dh%dv%dh-%dz'/>\n", LEFT, base, COLUMNS, STRIP,
            COLUMNS);
    for (int cause = 0; cause < CAUSES; cause++) {
        fprintf(out, "<path fill='%s' d='", colours[cause]);
        draw_slices(out, columns, base, cause, most);
        draw_slices(out, columns, base + STRIP, cause, 0);
        fputs("'/>\n", out);
    }
}

/* One bar as long as the limit, filled by cause. */
static void draw_usage(const struct inspection *inspection, FILE *out)
{
    char count[32];
    const uint64_t all =
        inspection->count > inspection->limit ? inspection->count : inspection->limit;
    const double scale = COLUMNS / (double)all;
    double x = LEFT;
    fprintf(out, "<rect x='%d' y='52' width='%d' height='26' fill='#f0f0f0'/>\n", LEFT, COLUMNS);
    int entries = 0;
    for (int i = 0; i < CAUSES; i++) {
        const uint64_t maps = inspection->causes[i].maps;
        if (maps == 0)
            continue;
        const double width = (double)maps * scale;
        fprintf(out, "<rect x='%.2f' y='52' width='%.2f' height='26' fill='%s'/>\n", x, width,
                colours[i]);
        x += width;
        const int left = LEFT + entries % 5 * 194, top = 94 + entries / 5 * 22;
        fprintf(out,
                "<rect x='%d' y='%d' width='13' height='13' fill='%s'/>"
                "<text x='%d' y='%d'>%s: %s</text>\n",
                left, top, colours[i], left + 18, top + 11, cause_names[i],
                format_count(maps, count));
        entries++;
    }
}

static void draw(const struct inspection *inspection, FILE *out, struct column *columns)
{
    struct band bands[MAX_BANDS];
    char used[32], limit[32];
    const size_t count = inspection->count ? find_bands(inspection, bands) : 0;
    const int height = TOP_SPACE + (int)count * BAND + 10;
    fprintf(out,
            "<?xml version='1.0' encoding='UTF-8'?>\n"
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
            "font-family='sans-serif' font-size='12' stroke='none'>\n"
            "<rect width='100%%' height='100%%' fill='white'/>\n"
            "<text x='%d' y='34' font-size='18'>",
            COLUMNS + 2 * LEFT, height, COLUMNS + 2 * LEFT, height, LEFT);
    char *name = inspection->process.pid
                     ? printable(inspection->process.command, strlen(inspection->process.command))
                     : printable(inspection->path, strlen(inspection->path));
    if (inspection->process.pid)
        fprintf(out, "process %d, ", (int)inspection->process.pid);
    put_escaped(out, name);
    free(name);
    fprintf(out, ": %s of %s maps used, %.1f %%</text>\n", format_count(inspection->count, used),
            format_count(inspection->limit, limit),
            percent_of(inspection->count, inspection->limit));
    draw_usage(inspection, out);
    for (size_t i = 0; i < count; i++)
        draw_band(inspection, out, &bands[i], columns, TOP_SPACE + (int)i * BAND);
    fputs("</svg>\n", out);
}

/* Half a picture is removed again, but never a device that somebody named. */
static int write_picture(const char *path, const char *picture, size_t length)
{
    struct stat status;
    FILE *out = fopen(path, "we");
    if (!out)
        return -errno;
    const bool ours = fstat(fileno(out), &status) == 0 && S_ISREG(status.st_mode);
    errno = EIO;
    const bool written = fwrite(picture, 1, length, out) == length && fflush(out) == 0;
    const int failed = written ? 0 : -errno;
    const int closed = fclose(out) == 0 ? 0 : -errno;
    if (ours && (failed || closed))
        unlink(path);
    return failed ? failed : closed;
}

int inspection_plot(const struct inspection *inspection, const char *path)
{
    char *picture = NULL;
    size_t length = 0;
    int result = -ENOMEM;
    struct column *columns = malloc(COLUMNS * sizeof(*columns));
    FILE *out = open_memstream(&picture, &length);
    if (columns && out) {
        draw(inspection, out, columns);
        const bool failed = ferror(out) != 0;
        if (fclose(out) == 0 && !failed)
            result = write_picture(path, picture, length);
    } else if (out) {
        fclose(out);
    }
    free(columns);
    free(picture);
    if (result != 0)
        cli_error("cannot write the plot to %s: %s", path, strerror(-result));
    return result;
}
