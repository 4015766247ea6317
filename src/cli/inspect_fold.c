/* SPDX-License-Identifier: MIT */
/*
 * What `mapfold run` would make of these maps, by the rules of its mapping layer (fold_rules.h):
 *
 *  - Pieces are maps of files that are not executable and no splits of one range. A class is a file,
 *    a sharing and a protection. Of a class with at least PROMOTE_PIECES pieces all but the last of
 *    so many stay as they are, since they were mapped before the class was found worth it.
 *  - The others go to extents of the whole file. Pieces that cover the same page need one extent
 *    each: so many are made as pieces overlap, but beyond ALWAYS_DEPTH only while each extent holds
 *    PIECES_A_DEPTH pieces on average, and never more than DEEP_DEPTH.
 *  - What overlaps deeper is copied into an arena if it is private, readable and small; otherwise it
 *    stays.
 *  - Small readable private pieces of other classes are copied if the process is past half its limit.
 *
 * What maps cannot tell: how pieces came and went, whether a file is a regular one on a local file
 * system, and which neighbours the kernel has merged already. And programs that are static, or
 * make system calls by themselves, are not folded at all.
 */
#include <errno.h>
#include <stdlib.h>

#include "cli/inspect.h"
#include "linux/fold_rules.h"

struct piece {
    uint64_t offset, end;
    uint32_t file;
    uint8_t protection;
    bool shared;
};

static int by_class(const struct piece *a, const struct piece *b)
{
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->shared != b->shared)
        return a->shared ? 1 : -1;
    return (a->protection > b->protection) - (a->protection < b->protection);
}

static int by_offset(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    const int class = by_class(a, b);
    if (class != 0)
        return class;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static bool is_copied(const struct piece *piece, uint64_t pages, uint64_t page)
{
    return !piece->shared && (piece->protection & MAP_READ) &&
           piece->end - piece->offset <= pages * page;
}

/* Puts pieces, by rising offsets, into the first extent in which they overlap none. */
static void carve(struct fold *fold, const struct piece *pieces, size_t count, uint64_t page,
                  bool arenas[2])
{
    const uint64_t fair = count / PIECES_A_DEPTH;
    const uint64_t most = fair < ALWAYS_DEPTH ? ALWAYS_DEPTH
                          : fair > DEEP_DEPTH ? DEEP_DEPTH
                                              : fair;
    uint64_t used = 0, end[DEEP_DEPTH];
    for (size_t i = 0; i < count; i++) {
        uint64_t at = 0;
        while (at < used && end[at] > pieces[i].offset)
            at++;
        if (at < most) {
            used += at == used;
            end[at] = pieces[i].end;
        } else if (is_copied(&pieces[i], MAX_COPY_PAGES, page)) {
            fold->copied++;
            arenas[(pieces[i].protection & MAP_WRITE) != 0] = true;
        } else {
            fold->too_deep++;
        }
    }
    fold->extents += used;
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
            pieces[(*count)++] = (struct piece){.offset = map->offset,
                                                .end = map->offset + (map->end - map->start),
                                                .file = map->file,
                                                .protection = map->protection,
                                                .shared = map->shared};
    }
    return pieces;
}

int inspection_fold(struct inspection *inspection)
{
    size_t count, next;
    struct piece *pieces = gather(inspection, &count);
    if (!pieces)
        return -ENOMEM;
    qsort(pieces, count, sizeof(*pieces), by_offset);
    struct fold *fold = &inspection->fold;
    uint64_t small = 0;
    bool arenas[2] = {false, false}, more[2] = {false, false};
    *fold = (struct fold){0};
    for (size_t first = 0; first < count; first = next) {
        for (next = first + 1; next < count && by_class(&pieces[first], &pieces[next]) == 0;)
            next++;
        if (next - first >= PROMOTE_PIECES) {
            fold->classes++;
            fold->pieces += next - first;
            fold->early += PROMOTE_PIECES - 1;
            carve(fold, pieces + first + PROMOTE_PIECES - 1, next - first - (PROMOTE_PIECES - 1),
                  inspection->page, arenas);
            continue;
        }
        for (size_t i = first; i < next; i++) {
            if (is_copied(&pieces[i], SMALL_PAGES, inspection->page)) {
                small++;
                more[(pieces[i].protection & MAP_WRITE) != 0] = true;
            }
        }
    }
    free(pieces);
    fold->after = inspection->count - fold->pieces + fold->early + fold->extents + fold->too_deep;
    if (fold->after > inspection->limit / 2 && small > 0) {
        const uint64_t beyond = fold->after - inspection->limit / 2;
        fold->spared = small < beyond ? small : beyond;
        fold->after -= fold->spared;
        arenas[0] |= more[0];
        arenas[1] |= more[1];
    }
    fold->arenas = (uint64_t)arenas[0] + arenas[1];
    fold->after += fold->arenas;
    return 0;
}
