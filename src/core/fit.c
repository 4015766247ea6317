/* SPDX-License-Identifier: MIT */
/* Fits: the search for a gap, from the left, from the right, or from a hint. */
#include "core/error.h"
#include "core/space.h"

/* A fit, in granules. */
struct wish {
    uint64_t length;
    uint64_t align;
    uint64_t low, last;
    unsigned lane; /* of rooms, and what it must say */
    unsigned room;
};

enum verdict { FITS, TRY_ON, NO_MORE };

static int wish_make(const struct mf_space *space, const struct mf_fit *fit, struct wish *wish)
{
    const uint64_t mask = (UINT64_C(1) << space->shift) - 1;
    if (fit->length == 0 || fit->length & mask || fit->align == 0 ||
        fit->align & (fit->align - 1) || fit->low > fit->last)
        return -MF_EINVAL;
    uint64_t low = (fit->low >> space->shift) + (fit->low & mask ? 1 : 0);
    uint64_t last = fit->last >> space->shift;
    if ((fit->last & mask) != mask && last-- == 0)
        return -MF_ENOSPC;
    low = low > space->low ? low : space->low;
    last = last < space->last ? last : space->last;
    wish->length = fit->length >> space->shift;
    if (low > last || last - low < wish->length - 1)
        return -MF_ENOSPC;
    wish->align = fit->align >> space->shift ? fit->align >> space->shift : 1;
    wish->lane = room_lane(wish->length);
    wish->room = 1 + (unsigned)__builtin_ctzll(wish->align);
    wish->low = low;
    wish->last = last;
    return 0;
}

/* Where a piece begins that lies lowest in the gap [first, last]. */
static enum verdict wish_lowest_in(const struct wish *wish, uint64_t first, uint64_t last,
                                   uint64_t *start)
{
    const uint64_t from = first > wish->low ? first : wish->low;
    const uint64_t at = (from + wish->align - 1) & ~(wish->align - 1);
    if (at < from || at > wish->last || wish->last - at < wish->length - 1)
        return NO_MORE;
    if (at > last || last - at < wish->length - 1)
        return TRY_ON;
    *start = at;
    return FITS;
}

static enum verdict wish_highest_in(const struct wish *wish, uint64_t first, uint64_t last,
                                    uint64_t *start)
{
    const uint64_t to = last < wish->last ? last : wish->last;
    if (to < wish->low || to - wish->low < wish->length - 1)
        return NO_MORE;
    const uint64_t at = (to - (wish->length - 1)) & ~(wish->align - 1);
    if (at < wish->low)
        return NO_MORE;
    if (at < first)
        return TRY_ON;
    *start = at;
    return FITS;
}

/*
 * The first child from i on, in a direction (1 up, -1 down), that may have a gap that fits; or the
 * end, -1 or count.
 */
static inline int inner_seek(const struct inner *inner, int i, int direction,
                             const struct wish *wish)
{
    const uint64_t length = wish->length;
    const unsigned lane = wish->lane, room = wish->room;
    const int end = direction > 0 ? inner->count : -1;
    while (i != end &&
           (inner->gap[i] < length || (room > 1 && rooms_lane(inner->rooms[i], lane) < room)))
        i += direction;
    return i;
}

/*
 * Goes to the next leaf in a direction (1 up, -1 down) that may have a gap that fits; false at the
 * end. The search begins at `level`: at space->height from the path's leaf, at 1 from where it
 * stands in the root.
 */
static bool path_seek(const struct mf_space *space, struct path *path, const struct wish *wish,
                      int direction, unsigned level)
{
    while (level > 0) {
        const struct inner *inner = path->inner[level - 1];
        const int at = inner_seek(inner, path->at[level - 1] + direction, direction, wish);
        if (at < 0 || at >= inner->count) {
            level--;
            continue;
        }
        path->at[level - 1] = (int8_t)at;
        if (level == space->height) {
            path->leaf = inner->child[at];
            prefetch_node(path->leaf);
            return true;
        }
        struct inner *child = inner->child[at];
        path->inner[level] = child;
        path->at[level++] = (int8_t)(direction > 0 ? -1 : child->count);
    }
    return false;
}

static int fit_lowest(const struct mf_space *space, const struct wish *wish, struct path *path,
                      uint64_t *start)
{
    bool more;
    if (wish->low == space->low && space->height > 0) {
        path->inner[0] = space->root;
        path->at[0] = -1;
        path->row = 0;
        more = path_seek(space, path, wish, 1, 1);
    } else {
        path_find(space, path, wish->low);
        more = path_at_area(path);
    }
    while (more) {
        const struct leaf *leaf = path->leaf;
        const uint64_t low = path_low(space, path);
        unsigned i = path->row;
        while ((i = leaf_next_gap(leaf, low, i, wish->length)) < leaf->count) {
            path->row = i;
            switch (wish_lowest_in(wish, path_gap(space, path), leaf_first(leaf, i) - 1, start)) {
            case FITS:
                return 0;
            case NO_MORE:
                return -MF_ENOSPC;
            case TRY_ON:
                i++;
            }
        }
        more = path_seek(space, path, wish, 1, space->height);
        path->row = 0;
    }
    uint64_t tail;
    if (!space_tail(space, &tail) || wish_lowest_in(wish, tail, space->last, start) != FITS)
        return -MF_ENOSPC;
    path_find(space, path, space->last);
    return 0;
}

static int fit_highest(const struct mf_space *space, const struct wish *wish, struct path *path,
                       uint64_t *start)
{
    uint64_t tail;
    path_find(space, path, wish->last);
    if (space_tail(space, &tail) && !path_at_area(path)) {
        const enum verdict verdict = wish_highest_in(wish, tail, space->last, start);
        if (verdict != TRY_ON)
            return verdict == FITS ? 0 : -MF_ENOSPC;
    }
    bool more = path->leaf;
    unsigned end = path_at_area(path) ? path->row + 1 : more ? path->leaf->count : 0;
    while (more) {
        const struct leaf *leaf = path->leaf;
        const uint64_t low = path_low(space, path);
        unsigned i;
        while ((i = leaf_previous_gap(leaf, low, end, wish->length)) < end) {
            path->row = i;
            switch (wish_highest_in(wish, path_gap(space, path), leaf_first(leaf, i) - 1, start)) {
            case FITS:
                return 0;
            case NO_MORE:
                return -MF_ENOSPC;
            case TRY_ON:
                end = i;
            }
        }
        more = path_seek(space, path, wish, -1, space->height);
        end = path->leaf->count;
    }
    return -MF_ENOSPC;
}

int fit_find(const struct mf_space *space, const struct mf_fit *fit, struct path *path,
             uint64_t *start)
{
    struct wish wish;
    struct mf_fit above = *fit;
    int error = wish_make(space, fit, &wish);
    switch (fit->policy) {
    case MF_FIT_LOWEST:
        return error ? error : fit_lowest(space, &wish, path, start);
    case MF_FIT_HIGHEST:
        return error ? error : fit_highest(space, &wish, path, start);
    case MF_FIT_HINT:
        if (error)
            return error;
        above.low = fit->hint > fit->low ? fit->hint : fit->low;
        error = above.low <= fit->last ? wish_make(space, &above, &wish) : -MF_ENOSPC;
        if (!error)
            error = fit_lowest(space, &wish, path, start);
        return error == -MF_ENOSPC && !wish_make(space, fit, &wish)
                   ? fit_lowest(space, &wish, path, start)
                   : error;
    }
    return -MF_EINVAL;
}
