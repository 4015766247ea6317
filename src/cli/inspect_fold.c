/* SPDX-License-Identifier: MIT */
/*
 * What `mapfold run` would make of these maps, by the rules of its mapping layer (fold_rules.h):
 *
 *  - Pieces are maps of files that are not executable and no splits of one range. A class is a
 *    file, a sharing and a protection. The first PROMOTE_PIECES - 1 pieces of the process are not
 *    looked at, and as many of a class stay as they are: they were mapped before it was found worth
 *    it. While none of ASKED_IN_VAIN pieces in a row is folded only one in ASK_ONE_IN is looked at.
 *  - The others go to extents of the whole file, each to the first that has its pages free. Another
 *    one is made for overlap if there are few, or if those there are hold many pieces on average.
 *  - What overlaps deeper is copied into an arena if it is private, readable and small, and the
 *    file is kept by one extent more; otherwise it stays.
 *  - Small readable private pieces of other classes are copied if the process is past half its
 *    limit.
 *  - Copies stop at a bound of bytes, a quarter of the memory; the others stay as they are.
 *  - The drop-in and its tables are maps, too.
 *
 * The order in which pieces were mapped is taken from their addresses: the kernel hands these out
 * from the top down.
 *
 * What maps cannot tell: how pieces came and went, whether a file is a regular one on a local file
 * system, and which neighbours the kernel has merged already. Programs that make system calls by
 * themselves are not folded at all, and neither are static ones, or those that are folded already:
 * these two are known.
 */
#include <errno.h>
#include <stdlib.h>

#include <mapfold/space.h>

#include "cli/inspect.h"
#include "linux/fold_rules.h"

enum { DROP_IN = 8 }; /* its five segments, its memory behind them, and two for tables */

struct piece {
    uint64_t start, offset, end; /* end: in the file, as offset is */
    uint32_t file;
    uint32_t class;
    uint8_t protection;
    bool shared;
    bool late; /* its class was worth an extent when it came, and it was looked at */
};

static int by_class(const struct piece *a, const struct piece *b)
{
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->shared != b->shared)
        return a->shared ? 1 : -1;
    return (a->protection > b->protection) - (a->protection < b->protection);
}

/* In a class the one mapped first comes first. */
static int by_age(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    const int class = by_class(a, b);
    return class != 0 ? class : (a->start < b->start) - (a->start > b->start);
}

static int by_age_alone(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return (a->start < b->start) - (a->start > b->start);
}

/* Sets which pieces come late enough; they are sorted by class, and are so afterwards. 0 or
 * -ENOMEM. */
static int judge_ages(struct piece *pieces, size_t count)
{
    uint32_t classes = 0, in_vain = 0;
    bool folds = false;
    for (size_t i = 0; i < count; i++) {
        classes += i > 0 && by_class(&pieces[i - 1], &pieces[i]) != 0;
        pieces[i].class = classes;
    }
    uint8_t *seen = calloc((size_t)classes + 1, sizeof(*seen));
    if (!seen)
        return -ENOMEM;
    qsort(pieces, count, sizeof(*pieces), by_age_alone);
    for (size_t i = 0; i < count; i++) {
        if ((!folds && i + 1 < PROMOTE_PIECES) || !fold_asks(in_vain, (uint32_t)i))
            continue;
        pieces[i].late = seen[pieces[i].class] >= PROMOTE_PIECES - 1;
        seen[pieces[i].class] += !pieces[i].late;
        in_vain = pieces[i].late ? 0 : in_vain + 1;
        folds |= pieces[i].late;
    }
    free(seen);
    qsort(pieces, count, sizeof(*pieces), by_age);
    return 0;
}

static bool is_copied(const struct piece *piece, uint64_t pages, uint64_t page)
{
    return !piece->shared && (piece->protection & MAP_READ) &&
           piece->end - piece->offset <= pages * page;
}

/* The pages that are taken in each extent of one class. */
struct extents {
    struct mf_space *taken[DEEP_DEPTH];
    uint64_t depth, carved;
};

static bool may_deepen(const struct extents *extents)
{
    if (extents->depth < ALWAYS_DEPTH)
        return true;
    const uint64_t pieces = extents->depth < MAX_DEPTH ? PIECES_A_DEPTH : 4 * PIECES_A_DEPTH;
    return extents->depth < DEEP_DEPTH && extents->carved / pieces >= extents->depth;
}

/* 1: it has found a spot; 0: there is none; or a negative errno. */
static int carve_piece(struct extents *extents, const struct piece *piece, uint64_t page)
{
    const struct mf_area area = {
        .start = piece->offset, .length = piece->end - piece->offset, .tag = MF_TAG_MERGE};
    for (uint64_t i = 0; i <= extents->depth; i++) {
        if (i == extents->depth) {
            if (!may_deepen(extents))
                return 0;
            const int made =
                mf_space_create(0, UINT64_MAX, page, mf_alloc_system(), &extents->taken[i]);
            if (made < 0)
                return made;
            extents->depth++;
        }
        const int failed = mf_space_insert(extents->taken[i], &area);
        if (failed == 0) {
            extents->carved++;
            return 1;
        }
        if (failed != -EEXIST)
            return failed == -ENOMEM ? failed : 0; /* a saved file may have any offsets */
    }
    return 0;
}

/* Whether the bound on copies leaves room for so many bytes more, which are taken then. */
static bool take_copy(struct inspection *inspection, uint64_t bytes)
{
    struct fold *fold = &inspection->fold;
    if (bytes > inspection->copy_limit - fold->copied_bytes)
        return false;
    fold->copied_bytes += bytes;
    return true;
}

/* The late pieces of one class. 0, or a negative errno. */
static int carve(struct inspection *inspection, const struct piece *pieces, size_t count,
                 bool arenas[2])
{
    struct fold *fold = &inspection->fold;
    const uint64_t page = inspection->page;
    struct extents extents = {.depth = 0};
    bool copies = false;
    int result = 0;
    for (size_t i = 0; i < count && result >= 0; i++) {
        if (!pieces[i].late)
            continue;
        result = carve_piece(&extents, &pieces[i], page);
        if (result != 0)
            continue;
        if (!is_copied(&pieces[i], MAX_COPY_PAGES, page)) {
            fold->too_deep++;
        } else if (!take_copy(inspection, pieces[i].end - pieces[i].offset)) {
            fold->refused++;
        } else {
            fold->copied++;
            copies = true;
            arenas[(pieces[i].protection & MAP_WRITE) != 0] = true;
        }
    }
    fold->extents += extents.depth + copies;
    while (extents.depth > 0)
        mf_space_destroy(extents.taken[--extents.depth]);
    return result < 0 ? result : 0;
}

/* All pieces, and how many there are; NULL: no memory. */
static struct piece *gather(const struct inspection *inspection, size_t *count)
{
    const size_t most =
        inspection->causes[CAUSE_FILE].maps + inspection->causes[CAUSE_DELETED].maps;
    struct piece *pieces = malloc((most + 1) * sizeof(*pieces));
    *count = 0;
    for (size_t i = 0; pieces && i < inspection->count; i++) {
        const struct map *map = &inspection->maps[i];
        if (map->cause == CAUSE_FILE || map->cause == CAUSE_DELETED)
            pieces[(*count)++] = (struct piece){.start = map->start,
                                                .offset = map->offset,
                                                .end = map->offset + (map->end - map->start),
                                                .file = map->file,
                                                .protection = map->protection,
                                                .shared = map->shared};
    }
    return pieces;
}

/* Pieces that are copied only if maps are scarce. */
struct small {
    uint64_t pieces, bytes;
    bool arenas[2];
};

/* The classes one by one. */
static int fold_classes(struct inspection *inspection, const struct piece *pieces, size_t count,
                        bool arenas[2], struct small *small)
{
    struct fold *fold = &inspection->fold;
    size_t next;
    for (size_t first = 0; first < count; first = next) {
        size_t late = pieces[first].late;
        for (next = first + 1; next < count && pieces[first].class == pieces[next].class; next++)
            late += pieces[next].late;
        if (late > 0) {
            fold->classes++;
            fold->pieces += next - first;
            fold->early += next - first - late;
            const int failed = carve(inspection, pieces + first, next - first, arenas);
            if (failed < 0)
                return failed;
            continue;
        }
        for (size_t i = first; i < next; i++) {
            if (is_copied(&pieces[i], SMALL_PAGES, inspection->page)) {
                small->pieces++;
                small->bytes += pieces[i].end - pieces[i].offset;
                small->arenas[(pieces[i].protection & MAP_WRITE) != 0] = true;
            }
        }
    }
    return 0;
}

/* Copies small pieces until no more than half of the limit is used, or the bound on copies is. */
static void spare(struct inspection *inspection, const struct small *small, bool arenas[2])
{
    struct fold *fold = &inspection->fold;
    if (fold->after <= inspection->limit / 2 || small->pieces == 0)
        return;
    const uint64_t beyond = fold->after - inspection->limit / 2,
                   each = small->bytes / small->pieces;
    const uint64_t room = (inspection->copy_limit - fold->copied_bytes) / each;
    const uint64_t most = room < small->pieces ? room : small->pieces;
    fold->spared = most < beyond ? most : beyond;
    fold->after -= fold->spared;
    fold->copied_bytes += fold->spared * each;
    arenas[0] |= fold->spared > 0 && small->arenas[0];
    arenas[1] |= fold->spared > 0 && small->arenas[1];
}

int inspection_fold(struct inspection *inspection)
{
    struct fold *fold = &inspection->fold;
    *fold = (struct fold){.after = inspection->count};
    if (inspection->folded || inspection->program != PROGRAM_FOLDS)
        return 0;
    size_t count;
    struct piece *pieces = gather(inspection, &count);
    if (!pieces)
        return -ENOMEM;
    qsort(pieces, count, sizeof(*pieces), by_age);
    struct small small = {0};
    bool arenas[2] = {false, false};
    int failed = judge_ages(pieces, count);
    if (failed == 0)
        failed = fold_classes(inspection, pieces, count, arenas, &small);
    free(pieces);
    if (failed < 0)
        return failed;
    fold->after = inspection->count - fold->pieces + fold->early + fold->extents + fold->too_deep +
                  fold->refused;
    spare(inspection, &small, arenas);
    fold->arenas = (uint64_t)arenas[0] + arenas[1];
    fold->after += fold->arenas;
    if (fold->pieces > 0 || fold->spared > 0)
        fold->after += DROP_IN;
    return 0;
}
