/* SPDX-License-Identifier: MIT */
/*
 * The cause of each map, by the first of these rules that fits:
 *
 *   code     it is executable, or of a file of which another map is
 *   stack    [stack], named so, or a stack with its guard: an inaccessible anonymous map that ends
 *            where a writable one of at least 16 KiB begins, and is no larger than that
 *   heap     [heap], named so, or a malloc arena: a writable map on a multiple of 64 MiB and the
 *            inaccessible rest behind it
 *   kernel   [vdso], [vvar] and their like
 *   split    one of at least 3 maps in a row, without gaps, that continue each other: anonymous, or
 *            the same file at continued offsets; only protections, advice or locks can part them
 *   deleted, shared (memory without a file, devices), file, anonymous: what its name says
 *
 * A map alone does not say how it came to be, so these are judgements; what is wrong with them is
 * told in the manual.
 */
#include "cli/inspect.h"

const char *const cause_names[CAUSES] = {
    [CAUSE_FILE] = "files",
    [CAUSE_DELETED] = "deleted files",
    [CAUSE_SHARED] = "shared memory, devices",
    [CAUSE_ANONYMOUS] = "anonymous memory",
    [CAUSE_STACK] = "stacks with guards",
    [CAUSE_SPLIT] = "splits of one range",
    [CAUSE_CODE] = "executable code",
    [CAUSE_HEAP] = "heap",
    [CAUSE_KERNEL] = "kernel's own (vdso)",
};

const char *const cause_keys[CAUSES] = {"files",  "deleted", "shared", "anonymous", "stacks",
                                        "splits", "code",    "heap",   "kernel"};

enum { UNDECIDED = CAUSES, SMALLEST_STACK = 16 << 10 };

static const uint64_t ARENA = 64 << 20;

static uint64_t size_of(const struct map *map)
{
    return map->end - map->start;
}

static bool is_plain(const struct map *map)
{
    return map->file == NO_FILE && map->mark == MARK_NONE && !map->shared &&
           map->cause == UNDECIDED;
}

static bool is_accessible(const struct map *map)
{
    return (map->protection & (MAP_READ | MAP_WRITE)) == (MAP_READ | MAP_WRITE);
}

static void judge_alone(struct inspection *inspection, struct map *map)
{
    const struct map_file *file = map->file == NO_FILE ? NULL : &inspection->files[map->file];
    map->cause = UNDECIDED;
    if (map->mark == MARK_KERNEL)
        map->cause = CAUSE_KERNEL;
    else if (map->mark == MARK_STACK)
        map->cause = CAUSE_STACK;
    else if (map->mark == MARK_HEAP)
        map->cause = CAUSE_HEAP;
    else if ((map->protection & MAP_EXEC) || (file && file->executable))
        map->cause = CAUSE_CODE;
}

/* Two neighbours without a gap: a guard and its stack, or an arena and its rest. */
static void judge_pair(struct map *low, struct map *high)
{
    if (low->end != high->start || !is_plain(low) || !is_plain(high))
        return;
    if (low->protection == 0 && is_accessible(high) && size_of(high) >= SMALLEST_STACK &&
        size_of(low) <= size_of(high)) {
        low->cause = high->cause = CAUSE_STACK;
    } else if (is_accessible(low) && high->protection == 0 && low->start % ARENA == 0 &&
               size_of(low) + size_of(high) <= ARENA && high->end % ARENA == 0) {
        low->cause = high->cause = CAUSE_HEAP;
    }
}

static bool continues(const struct map *low, const struct map *high)
{
    if (low->end != high->start || low->file != high->file || low->shared != high->shared ||
        low->mark != high->mark || high->cause != UNDECIDED)
        return false;
    return low->file == NO_FILE || low->offset + size_of(low) == high->offset;
}

static void judge_runs(struct inspection *inspection)
{
    enum { FEWEST = 3 };
    struct map *const maps = inspection->maps;
    size_t next;
    for (size_t first = 0; first < inspection->count; first = next) {
        uint64_t alike = 0;
        for (next = first + 1; next < inspection->count; next++) {
            if (maps[first].cause != UNDECIDED || !continues(&maps[next - 1], &maps[next]))
                break;
            alike += maps[next].protection == maps[next - 1].protection;
        }
        if (next - first < FEWEST)
            continue;
        inspection->split_ranges++;
        inspection->split_alike += alike;
        for (size_t i = first; i < next; i++)
            maps[i].cause = CAUSE_SPLIT;
    }
}

static enum cause judge_rest(const struct inspection *inspection, const struct map *map)
{
    if (map->file == NO_FILE)
        return map->shared ? CAUSE_SHARED : CAUSE_ANONYMOUS;
    const struct map_file *file = &inspection->files[map->file];
    if (file->kind != KIND_FILE)
        return CAUSE_SHARED;
    return file->deleted ? CAUSE_DELETED : CAUSE_FILE;
}

static void add_up(struct inspection *inspection, const struct map *map)
{
    struct cause_total *total = &inspection->causes[map->cause];
    total->maps++;
    total->bytes += size_of(map);
    total->rss += map->rss;
    inspection->mapped_bytes += size_of(map);
    if (map->file == NO_FILE)
        return;
    struct map_file *file = &inspection->files[map->file];
    file->maps++;
    file->bytes += size_of(map);
    inspection->ambiguous += file->ambiguous;
    if (map->cause == CAUSE_FILE || map->cause == CAUSE_DELETED) {
        inspection->names.names[file->directory].in_directory++;
        inspection->names.names[file->suffix].with_suffix++;
    }
}

static void add_gap(struct inspection *inspection, uint64_t start, uint64_t end)
{
    if (end <= start)
        return;
    inspection->gap_count++;
    inspection->gap_bytes += end - start;
    struct gap gap = {start, end};
    for (int i = 0; i < TOP_GAPS; i++) {
        struct gap *there = &inspection->gaps[i];
        if (gap.end - gap.start > there->end - there->start) {
            const struct gap smaller = *there;
            *there = gap;
            gap = smaller;
        }
    }
}

/* A program that is linked dynamically has at least its linker among its executable files; and one
 * under `mapfold run' has the drop-in there. */
static void judge_program(struct inspection *inspection)
{
    bool program = false, library = false;
    for (uint32_t i = 0; i < inspection->file_count; i++) {
        const struct map_file *file = &inspection->files[i];
        if (!file->executable || file->kind != KIND_FILE)
            continue;
        program = true;
        library |= file->library;
        inspection->folded |= file->drop_in;
    }
    if (inspection->program == PROGRAM_FOLDS && program && !library)
        inspection->program = PROGRAM_STATIC;
}

void inspection_classify(struct inspection *inspection)
{
    struct map *const maps = inspection->maps;
    const size_t count = inspection->count;
    for (size_t i = 0; i < count; i++) {
        if (maps[i].file != NO_FILE && (maps[i].protection & MAP_EXEC))
            inspection->files[maps[i].file].executable = true;
    }
    judge_program(inspection);
    for (size_t i = 0; i < count; i++)
        judge_alone(inspection, &maps[i]);
    for (size_t i = 1; i < count; i++)
        judge_pair(&maps[i - 1], &maps[i]);
    judge_runs(inspection);
    for (size_t i = 0; i < count; i++) {
        if (maps[i].cause == UNDECIDED)
            maps[i].cause = (uint8_t)judge_rest(inspection, &maps[i]);
        add_up(inspection, &maps[i]);
        if (i > 0)
            add_gap(inspection, maps[i - 1].end, maps[i].start);
    }
}
