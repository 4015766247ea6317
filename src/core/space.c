/* SPDX-License-Identifier: MIT */
#include "core/space.h"
#include "core/error.h"

/*
 * The interface: what is asked is checked, put into granules, and done with what tree.c and fit.c
 * offer.
 */

/* Whether two rows that touch are one area. No length could say an area of all 2^64 bytes. */
static bool rows_merge(const struct mf_space *space, const struct row *left,
                       const struct row *right)
{
    return left->last + 1 == right->first && left->tag == right->tag &&
           left->delta == right->delta && left->tag & MF_TAG_MERGE &&
           !(left->first == 0 && right->last == UINT64_MAX >> space->shift);
}

/*
 * Makes one area of those that end before and begin at a granule, if they merge. A node must be
 * ready.
 */
static void space_merge_at(struct mf_space *space, uint64_t granule)
{
    PATH left, right;
    if (granule == space->low)
        return;
    path_find(space, &right, granule);
    path_find(space, &left, granule - 1);
    if (!path_at_area(&left) || !path_at_area(&right))
        return;
    const struct row a = leaf_row(left.leaf, left.row), b = leaf_row(right.leaf, right.row);
    if (b.first != granule || !rows_merge(space, &a, &b))
        return;
    space_erase_rows(space, &right, 1);
    path_find(space, &left, a.first);
    space_set_bounds(space, &left, a.first, b.last);
}

/* Inserts a row before the path's, in the gap there, merging it with its neighbours. 0, -ENOMEM. */
static int space_insert_merging(struct mf_space *space, struct path *path, const struct row *row)
{
    if (!(row->tag & MF_TAG_MERGE) || !path->leaf)
        return space_insert_row(space, path, row);
    PATH before = *path;
    struct row left;
    bool joins_left = false, joins_right = false;
    if (path->row > 0) {
        before.row = path->row - 1;
        left = leaf_row(path->leaf, before.row);
        joins_left = rows_merge(space, &left, row);
    } else if (row->first > space->low && path_low(space, path) == row->first) {
        path_find(space, &before, row->first - 1);
        left = leaf_row(before.leaf, before.row);
        joins_left = rows_merge(space, &left, row);
    }
    const struct row *middle =
        joins_left ? &(struct row){left.first, row->last, row->tag, row->delta} : row;
    if (path_at_area(path)) {
        const struct row right = leaf_row(path->leaf, path->row);
        joins_right = rows_merge(space, middle, &right);
    }
    if (!joins_left && !joins_right)
        return space_insert_row(space, path, row);
    const int error = space_prepare(space, 2);
    if (error)
        return error;
    if (joins_left)
        space_set_bounds(space, &before, left.first, row->last);
    else
        space_set_bounds(space, path, row->first, leaf_last(path->leaf, path->row));
    if (joins_left && joins_right)
        space_merge_at(space, row->last + 1);
    return 0;
}

/* ---- the interface ---- */

int mf_space_create(uint64_t low, uint64_t last, uint64_t granule, const struct mf_alloc *alloc,
                    struct mf_space **out)
{
    if (granule == 0 || granule & (granule - 1) || low > last || low & (granule - 1) ||
        (last & (granule - 1)) != granule - 1 || !alloc || !alloc->alloc || !alloc->free)
        return -MF_EINVAL;
    struct mf_space *space = alloc->alloc(alloc->context, SPACE_BYTES, SLAB_ALIGN);
    if (!space)
        return -MF_ENOMEM;
    const unsigned shift = (unsigned)__builtin_ctzll(granule);
    *space = (struct mf_space){.low = low >> shift, .last = last >> shift, .shift = shift};
    nodes_init(&space->nodes, alloc, (char *)space + SPACE_HEAD, SPACE_BYTES - SPACE_HEAD);
    *out = space;
    return 0;
}

void mf_space_destroy(struct mf_space *space)
{
    if (!space)
        return;
    const struct mf_alloc *alloc = space->nodes.alloc;
    nodes_destroy(&space->nodes);
    alloc->free(alloc->context, space, SPACE_BYTES);
}

int mf_space_reserve(struct mf_space *space, uint64_t operations)
{
    if (operations > UINT64_C(1) << 32)
        return -MF_EINVAL;
    const uint64_t count = nodes_for_operations(space, operations);
    const int error = nodes_require(&space->nodes, count);
    if (error)
        return error;
    space->reserved = operations;
    space->nodes.keep = count;
    nodes_trim(&space->nodes);
    return 0;
}

/* The granules of [start, start + length). */
static int range_granules(const struct mf_space *space, uint64_t start, uint64_t length,
                          uint64_t *first, uint64_t *last)
{
    const uint64_t mask = (UINT64_C(1) << space->shift) - 1;
    if (length == 0 || (start | length) & mask)
        return -MF_EINVAL;
    if (start + (length - 1) < start)
        return -MF_EOVERFLOW;
    *first = start >> space->shift;
    *last = (start + (length - 1)) >> space->shift;
    return *first < space->low || *last > space->last ? -MF_ERANGE : 0;
}

static struct mf_area row_area(const struct mf_space *space, const struct row *row)
{
    return (struct mf_area){row->first << space->shift,
                            (row->last - row->first + 1) << space->shift, row->tag, row->delta};
}

int mf_space_find_gap(const struct mf_space *space, const struct mf_fit *fit, uint64_t *start)
{
    PATH path;
    uint64_t first;
    const int error = fit_find(space, fit, &path, &first);
    if (!error)
        *start = first << space->shift;
    return error;
}

int mf_space_place(struct mf_space *space, const struct mf_fit *fit, uint64_t tag, uint64_t offset,
                   struct mf_area *area)
{
    PATH path;
    struct row row = {.tag = tag};
    int error = fit_find(space, fit, &path, &row.first);
    if (error)
        return error;
    row.last = row.first + ((fit->length >> space->shift) - 1);
    row.delta = offset - (row.first << space->shift);
    space_use_reserve(space, 1);
    error = space_insert_merging(space, &path, &row);
    if (!error && area)
        *area = row_area(space, &row);
    return error;
}

int mf_space_insert(struct mf_space *space, const struct mf_area *area)
{
    PATH path;
    struct row row = {.tag = area->tag, .delta = area->delta};
    const int error = range_granules(space, area->start, area->length, &row.first, &row.last);
    if (error)
        return error;
    path_find(space, &path, row.first);
    if (path_at_area(&path) && leaf_first(path.leaf, path.row) <= row.last)
        return -MF_EEXIST;
    space_use_reserve(space, 1);
    return space_insert_merging(space, &path, &row);
}

/* Cuts [first, last] out of the middle of the path's area. 0, -ENOMEM. */
static int space_cut(struct mf_space *space, struct path *path, uint64_t first, uint64_t last)
{
    const struct row row = leaf_row(path->leaf, path->row);
    const struct row behind = {last + 1, row.last, row.tag, row.delta};
    space_use_reserve(space, 1);
    const int error = space_prepare(space, 1);
    if (error)
        return error;
    space_set_bounds(space, path, row.first, first - 1);
    path_find(space, path, last + 1);
    return space_insert_row(space, path, &behind);
}

static int space_remove(struct mf_space *space, uint64_t first, uint64_t last)
{
    PATH path;
    for (;;) {
        path_find(space, &path, first);
        if (!path_at_area(&path))
            return 0;
        const uint64_t area_first = leaf_first(path.leaf, path.row);
        const uint64_t area_last = leaf_last(path.leaf, path.row);
        if (area_first > last)
            return 0;
        if (area_first < first && area_last > last)
            return space_cut(space, &path, first, last);
        if (area_first < first) {
            space_set_bounds(space, &path, area_first, first - 1);
        } else if (area_last > last) {
            space_set_bounds(space, &path, last + 1, area_last);
            return 0;
        } else {
            unsigned end = path.row + 1;
            while (end < path.leaf->count && leaf_last(path.leaf, end) <= last)
                end++;
            const bool done =
                area_last == last || (end < path.leaf->count && leaf_first(path.leaf, end) > last);
            space_erase_rows(space, &path, end - path.row);
            if (done)
                return 0;
        }
    }
}

/* The leaf that covers a granule; NULL in an empty space. */
static struct leaf *space_leaf(const struct mf_space *space, uint64_t granule)
{
    void *node = space->root;
    for (unsigned level = 0; level < space->height; level++) {
        const struct inner *inner = node;
        node = inner->child[inner_search(inner, granule)];
        prefetch_node(node);
    }
    return node;
}

/*
 * Where the halves of one area of 2^64 bytes meet, which may merge once a piece of them goes; 0:
 * nowhere.
 */
static uint64_t space_halves(const struct mf_space *space)
{
    const uint64_t all = UINT64_MAX >> space->shift;
    if (space->areas != 2 || space->low != 0 || space->last != all || space->used != all + 1)
        return 0;
    const struct leaf *leaf = space_leaf(space, 0);
    return leaf_last(leaf, 0) + 1;
}

int mf_space_remove(struct mf_space *space, uint64_t start, uint64_t length)
{
    uint64_t first, last;
    int error = range_granules(space, start, length, &first, &last);
    if (error)
        return error;
    const uint64_t halves = space_halves(space);
    error = space_remove(space, first, last);
    if (!error && halves)
        space_merge_at(space, halves);
    return error;
}

/* Appends a row, or merges it with the one before. */
static unsigned rows_append(const struct mf_space *space, struct row *rows, unsigned count,
                            struct row row)
{
    if (count > 0 && rows_merge(space, &rows[count - 1], &row)) {
        rows[count - 1].last = row.last;
        return count;
    }
    rows[count] = row;
    return count + 1;
}

/* Retags what lies in [first, last] of one leaf, which is split there and merged within. */
static void space_retag_leaf(struct mf_space *space, struct path *path, uint64_t first,
                             uint64_t last, uint64_t clear, uint64_t set)
{
    struct row rows[LEAF_ROWS + 2];
    unsigned count = 0;
    for (unsigned i = 0; i < path->leaf->count; i++) {
        const struct row row = leaf_row(path->leaf, i);
        const uint64_t tag = (row.tag & ~clear) | set;
        if (row.last < first || row.first > last || tag == row.tag) {
            count = rows_append(space, rows, count, row);
            continue;
        }
        struct row part = row;
        if (row.first < first) {
            part.last = first - 1;
            count = rows_append(space, rows, count, part);
            part.first = first;
        }
        part.last = row.last < last ? row.last : last;
        part.tag = tag;
        count = rows_append(space, rows, count, part);
        if (row.last > last) {
            part = (struct row){last + 1, row.last, row.tag, row.delta};
            count = rows_append(space, rows, count, part);
        }
    }
    space->areas += count - (uint64_t)path->leaf->count;
    space_rewrite(space, path, rows, count, -1);
}

/*
 * Leaves that a retag of [first, last] may split: those at its ends, and one where merging spans
 * windows.
 */
static uint64_t retag_splits(const struct mf_space *space, uint64_t first, uint64_t last)
{
    uint64_t splits = SPLITS, window = first >> 32;
    for (uint64_t at = first; at >> 32 < last >> 32;) {
        const struct leaf *leaf = space_leaf(space, at);
        if (!leaf)
            break;
        const uint64_t key = leaf_last(leaf, leaf->count - 1u);
        if (key < at || key >= last)
            break;
        splits += key >> 32 != window;
        window = key >> 32;
        at = key + 1;
    }
    return splits;
}

int mf_space_retag(struct mf_space *space, uint64_t start, uint64_t length, uint64_t clear,
                   uint64_t set)
{
    PATH path;
    uint64_t first, last;
    int error = range_granules(space, start, length, &first, &last);
    if (error)
        return error;
    space_use_reserve(space, (last >> 32) - (first >> 32) + 1);
    error = space_prepare(space, retag_splits(space, first, last));
    if (error)
        return error;
    for (uint64_t at = first;;) {
        path_find(space, &path, at);
        if (!path_at_area(&path) || leaf_first(path.leaf, path.row) > last)
            return 0;
        const uint64_t leaf_start = leaf_first(path.leaf, 0);
        const uint64_t key = leaf_last(path.leaf, path.leaf->count - 1u);
        space_retag_leaf(space, &path, first, last, clear, set);
        space_merge_at(space, leaf_start);
        if (key >= last || key == space->last) {
            if (key < space->last)
                space_merge_at(space, key + 1);
            return 0;
        }
        at = key + 1;
    }
}

int mf_space_find(const struct mf_space *space, uint64_t address, struct mf_area *area)
{
    const uint64_t granule = address >> space->shift;
    const struct leaf *leaf = space_leaf(space, granule);
    const unsigned i = leaf ? leaf_search(leaf, granule) : 0;
    if (!leaf || i == leaf->count || leaf_first(leaf, i) > granule)
        return -MF_ENOENT;
    const struct row row = leaf_row(leaf, i);
    *area = row_area(space, &row);
    return 0;
}

int mf_space_next(const struct mf_space *space, uint64_t address, struct mf_area *area)
{
    const uint64_t granule = address >> space->shift;
    const struct leaf *leaf = space_leaf(space, granule);
    const unsigned i = leaf ? leaf_search(leaf, granule) : 0;
    if (!leaf || i == leaf->count)
        return -MF_ENOENT;
    const struct row row = leaf_row(leaf, i);
    *area = row_area(space, &row);
    return 0;
}

/* Granules as bytes; what 64 bits cannot say is UINT64_MAX. */
static uint64_t granules_bytes(const struct mf_space *space, uint64_t granules)
{
    return granules > UINT64_MAX >> space->shift ? UINT64_MAX : granules << space->shift;
}

/*
 * 1000 * part / whole, rounded down, for part < whole: digit by digit, as not every machine divides
 * 64 bits.
 */
static uint32_t thousandths(uint64_t part, uint64_t whole)
{
    uint32_t digits = 0;
    for (unsigned place = 0; place < 3; place++) {
        uint64_t rest = 0;
        uint32_t digit = 0;
        for (unsigned i = 0; i < 10; i++) { /* rest + part without overflow */
            const bool carry = part >= whole - rest;
            rest = carry ? part - (whole - rest) : rest + part;
            digit += carry;
        }
        digits = digits * 10 + digit;
        part = rest;
    }
    return digits;
}

void mf_space_stats(const struct mf_space *space, struct mf_space_stats *stats)
{
    uint64_t tail_first, longest = 0;
    if (space->height > 0)
        longest = inner_summary(space->root).gap;
    else if (space->root)
        longest = leaf_summary(space->root, space->low).gap;
    /*
     * Counts of all 2^64 granules of one byte are 0, modulo 2^64: they can only be those of the
     * whole.
     */
    const uint64_t all = space->last - space->low + 1;
    const uint64_t used = space->areas && !space->used ? UINT64_MAX : space->used;
    uint64_t free = all - space->used;
    if (!space->areas && !free)
        free = UINT64_MAX;
    if (space_tail(space, &tail_first)) {
        const uint64_t tail = space->root ? space->last - tail_first + 1 : free;
        longest = tail > longest ? tail : longest;
    }
    *stats = (struct mf_space_stats){
        .areas = space->areas,
        .metadata_bytes = SPACE_BYTES + space->nodes.bytes,
        .used = granules_bytes(space, used),
        .free = granules_bytes(space, free),
        .largest_gap = granules_bytes(space, longest),
    };
    if (longest < free)
        stats->fragmentation = 1000 - thousandths(longest, free);
}
