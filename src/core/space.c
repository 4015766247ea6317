/* SPDX-License-Identifier: MIT */
/*
 * The space: a B+tree of areas, each node summed up in its parent (node.h says how).
 *
 *                       inner:  key 9f, gap 40  |  key ff, gap 20
 *                              /                        \
 *       leaf: [10-1f] [60-6f] [90-9f]           leaf: [a0-af] [d0-ff]         tail: from 100
 *        gaps:  10      40      20                      0       20
 *
 * Invariants, which space_check() tests:
 *  - Leaves are not empty; areas ascend and do not overlap; two that could merge do not touch.
 *  - A parent's key of a child is the last granule of the child's last area. A child covers the
 * granules after the key before it, so each gap belongs to the area after it, and an insert changes
 * no key. What lies behind the last area of all is the tail, which no node knows.
 *  - A parent's gap and alignment of a child are the maxima over the gaps before the child's areas.
 *
 * A search for the lowest fit walks from the left through children whose gap and alignment suffice.
 * The two maxima may come from two gaps, so that a leaf may disappoint; the walk then goes on to
 * the next.
 *
 * An operation changes a leaf in place where it can. Where the leaf is full, or its format too
 * narrow, the rows are decoded, changed, and written back to the leaf or to it and one more
 * (space_rewrite). All nodes that may be needed are made ready before anything changes, so that an
 * operation fails whole.
 */
#include "core/space.h"
#include "core/error.h"

/* How a leaf was reached: inner[0] is the root, at[] the child taken in each. row is a place in the
 * leaf. */
struct path {
    struct inner *inner[MAX_HEIGHT];
    int8_t at[MAX_HEIGHT];
    struct leaf *leaf; /* NULL in an empty space */
    unsigned row;
};

/* A path on the stack, which hardening flags need not clear: its users set what they read. */
#define PATH __attribute__((uninitialized)) struct path

/* ---- reading the tree ---- */

/* All lines of a node at once: one wait for memory a level, where its columns one by one would be
 * three. */
static inline void prefetch_node(const void *node)
{
#pragma GCC unroll 12
    for (unsigned i = 0; i < NODE_BYTES; i += 64)
        __builtin_prefetch((const char *)node + i);
}

/* The first child whose key is at or above the granule, or the last child. */
static inline unsigned inner_search(const struct inner *inner, uint64_t granule)
{
    unsigned below = 0;
#pragma GCC unroll 4
    for (unsigned i = 0; i + 1 < inner->count; i++)
        below += inner->key[i] < granule;
    return below;
}

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

/* The way to the first area that ends at or above the granule, or behind the last area of all. */
static void path_find(const struct mf_space *space, struct path *path, uint64_t granule)
{
    void *node = space->root;
    for (unsigned level = 0; level < space->height; level++) {
        struct inner *inner = node;
        const unsigned at = inner_search(inner, granule);
        path->inner[level] = inner;
        path->at[level] = (int8_t)at;
        node = inner->child[at];
        prefetch_node(node);
    }
    path->leaf = node;
    path->row = node ? leaf_search(node, granule) : 0;
}

static inline bool path_at_area(const struct path *path)
{
    return path->leaf && path->row < path->leaf->count;
}

/* The first granule that the path's leaf covers. */
static uint64_t path_low(const struct mf_space *space, const struct path *path)
{
    for (unsigned level = space->height; level-- > 0;) {
        if (path->at[level] > 0)
            return path->inner[level]->key[path->at[level] - 1] + 1;
    }
    return space->low;
}

/* The first granule of the gap before the path's row, which may be empty. */
static uint64_t path_gap(const struct mf_space *space, const struct path *path)
{
    return path->row > 0 ? leaf_last(path->leaf, path->row - 1) + 1 : path_low(space, path);
}

/* Whether there is a gap behind the last area of all; *first is where it begins. */
static bool space_tail(const struct mf_space *space, uint64_t *first)
{
    *first = space->low;
    if (!space->root)
        return true;
    uint64_t key;
    if (space->height > 0) {
        const struct inner *root = space->root;
        key = root->key[root->count - 1];
    } else {
        const struct leaf *root = space->root;
        key = leaf_last(root, root->count - 1u);
    }
    *first = key + 1;
    return key < space->last;
}

/* ---- keeping summaries ---- */

static struct summary inner_summary(const struct inner *inner)
{
    struct summary sum = {.key = inner->key[inner->count - 1]};
    for (unsigned i = 0; i < inner->count; i++) {
        sum.gap = inner->gap[i] > sum.gap ? inner->gap[i] : sum.gap;
        sum.aligned = inner->aligned[i] > sum.aligned ? inner->aligned[i] : sum.aligned;
    }
    return sum;
}

static inline void inner_set(struct inner *inner, unsigned i, struct summary sum)
{
    inner->key[i] = sum.key;
    inner->gap[i] = sum.gap;
    inner->aligned[i] = sum.aligned;
}

static inline struct summary inner_get(const struct inner *inner, unsigned i)
{
    return (struct summary){inner->key[i], inner->gap[i], inner->aligned[i]};
}

/*
 * Tells the parents the summary of the path's node at a level (space->height for the leaf), as far
 * up as it matters. A maximum is looked for anew only where the child that had it has lost it.
 */
static void path_publish(struct path *path, unsigned level, struct summary sum)
{
    while (level-- > 0) {
        struct inner *inner = path->inner[level];
        const unsigned at = (unsigned)path->at[level];
        const struct summary old = inner_get(inner, at);
        if (old.key == sum.key && old.gap == sum.gap && old.aligned == sum.aligned)
            return;
        inner_set(inner, at, sum);
        if (level == 0)
            return;
        const struct summary known =
            inner_get(path->inner[level - 1], (unsigned)path->at[level - 1]);
        if ((sum.gap >= known.gap || old.gap < known.gap) &&
            (sum.aligned >= known.aligned || old.aligned < known.aligned)) {
            sum.key = inner->key[inner->count - 1];
            sum.gap = sum.gap > known.gap ? sum.gap : known.gap;
            sum.aligned = sum.aligned > known.aligned ? sum.aligned : known.aligned;
        } else {
            sum = inner_summary(inner);
        }
    }
}

/* Sums up the leaf that covers a granule anew: the gap before its first area has changed. */
static void space_refresh(struct mf_space *space, uint64_t granule)
{
    PATH path;
    path_find(space, &path, granule);
    if (path_at_area(&path))
        path_publish(&path, space->height, leaf_summary(path.leaf, path_low(space, &path)));
}

/* After the key of a leaf has changed: the gap behind it belongs to the next leaf, if there is one.
 */
static void space_refresh_after(struct mf_space *space, uint64_t key)
{
    if (space->height > 0 && key < space->last)
        space_refresh(space, key + 1);
}

/* ---- nodes come and go ---- */

/* Nodes that an operation may take which splits up to `leaves` leaves: each may split a node of
 * each level. */
static uint64_t nodes_for(unsigned height, uint64_t leaves)
{
    return leaves * (height + 1) + 1;
}

/* Leaves that one operation may split: retag, at both ends and where it merges with what lies
 * beside. */
enum { SPLITS = 4 };

static int space_prepare(struct mf_space *space, uint64_t leaves)
{
    return nodes_require(&space->nodes, nodes_for(space->height, leaves));
}

/*
 * Nodes that the next `operations` may take. A leaf may split in each of SPLITS places of each. An
 * inner node splits when it has INNER_FANOUT children and then has half: those there are now can
 * split twice for little, afterwards it takes a quarter of INNER_FANOUT splits below for one. The
 * last operation finds what it asks for beforehand, which is the worst case.
 */
static uint64_t nodes_for_operations(const struct mf_space *space, uint64_t operations)
{
    if (operations == 0)
        return 0;
    unsigned height = space->height + 1;
    for (uint64_t n = operations; n > 1; n /= INNER_FANOUT / 4)
        height++;
    const uint64_t leaves = (operations - 1) * SPLITS;
    const uint64_t seldom = 2 * space->inners + leaves / (INNER_FANOUT / 4 - 1);
    const uint64_t always = leaves * height;
    return leaves + (seldom < always ? seldom : always) + nodes_for(height, SPLITS);
}

/* Operations that may allocate begin: they use up as many of those reserved. */
static void space_use_reserve(struct mf_space *space, uint64_t operations)
{
    space->reserved -= operations < space->reserved ? operations : space->reserved;
    if (space->reserved == 0)
        space->nodes.keep = 0;
}

static void inner_insert(struct inner *inner, unsigned i, void *child, struct summary sum)
{
    const unsigned after = inner->count - i;
    __builtin_memmove(&inner->key[i + 1], &inner->key[i], sizeof(inner->key[0]) * after);
    __builtin_memmove(&inner->gap[i + 1], &inner->gap[i], sizeof(inner->gap[0]) * after);
    __builtin_memmove(&inner->child[i + 1], &inner->child[i], sizeof(inner->child[0]) * after);
    __builtin_memmove(&inner->aligned[i + 1], &inner->aligned[i], after);
    inner->child[i] = child;
    inner_set(inner, i, sum);
    inner->count++;
}

static void inner_erase(struct inner *inner, unsigned i)
{
    const unsigned after = --inner->count - i;
    __builtin_memmove(&inner->key[i], &inner->key[i + 1], sizeof(inner->key[0]) * after);
    __builtin_memmove(&inner->gap[i], &inner->gap[i + 1], sizeof(inner->gap[0]) * after);
    __builtin_memmove(&inner->child[i], &inner->child[i + 1], sizeof(inner->child[0]) * after);
    __builtin_memmove(&inner->aligned[i], &inner->aligned[i + 1], after);
}

/* Moves the children from `from` on to the end of another inner node. */
static void inner_move(struct inner *to, struct inner *inner, unsigned from)
{
    for (unsigned i = from; i < inner->count; i++)
        inner_insert(to, to->count, inner->child[i], inner_get(inner, i));
    inner->count = (uint8_t)from;
}

static struct inner *inner_new(struct mf_space *space)
{
    struct inner *inner = node_take(&space->nodes);
    inner->count = 0;
    space->inners++;
    return inner;
}

static void inner_give(struct mf_space *space, struct inner *inner)
{
    space->inners--;
    node_give(&space->nodes, inner);
}

/* The path's leaf (now summed up by left) has split: puts the node behind it, splitting parents
 * that are full. */
static void space_add_leaf(struct mf_space *space, struct path *path, struct summary left,
                           void *node, struct summary right)
{
    for (unsigned level = space->height; level-- > 0;) {
        struct inner *inner = path->inner[level];
        const unsigned at = (unsigned)path->at[level];
        inner_set(inner, at, left);
        if (inner->count < INNER_FANOUT) {
            inner_insert(inner, at + 1, node, right);
            path_publish(path, level, inner_summary(inner));
            return;
        }
        struct inner *more = inner_new(space);
        const unsigned half = INNER_FANOUT / 2;
        inner_move(more, inner, half);
        if (at < half)
            inner_insert(inner, at + 1, node, right);
        else
            inner_insert(more, at + 1 - half, node, right);
        node = more;
        left = inner_summary(inner);
        right = inner_summary(more);
    }
    struct inner *root = inner_new(space);
    inner_insert(root, 0, space->root, left);
    inner_insert(root, 1, node, right);
    space->root = root;
    space->height++;
}

/* Takes a child, which is given back already, out of the path's inner node at a level. */
static void space_drop_child(struct mf_space *space, struct path *path, unsigned level, unsigned at)
{
    struct inner *inner = path->inner[level];
    inner_erase(inner, at);
    while (inner->count == 0 && level > 0) {
        inner_give(space, inner);
        inner = path->inner[--level];
        inner_erase(inner, (unsigned)path->at[level]);
    }
    struct inner *parent = level > 0 ? path->inner[level - 1] : NULL;
    const unsigned i = parent ? (unsigned)path->at[level - 1] : 0;
    if (parent && inner->count <= INNER_FANOUT / 3 && parent->count > 1) {
        const unsigned l = i + 1 < parent->count ? i : i - 1;
        struct inner *left = parent->child[l], *right = parent->child[l + 1];
        if (left->count + right->count <= INNER_FANOUT * 3 / 4) {
            inner_move(left, right, 0);
            inner_give(space, right);
            inner_set(parent, l, inner_summary(left));
            space_drop_child(space, path, level - 1, l + 1);
            return;
        }
    }
    if (inner->count > 0)
        path_publish(path, level, inner_summary(inner));
    while (space->height > 0 && ((struct inner *)space->root)->count <= 1) {
        inner = space->root;
        space->root = inner->count ? inner->child[0] : NULL;
        space->height = inner->count ? space->height - 1 : 0;
        inner_give(space, inner);
    }
}

/* Joins the path's leaf with a neighbour under the same parent, if both are so empty that it pays.
 */
static void space_join_leaves(struct mf_space *space, struct path *path)
{
    const unsigned level = space->height - 1;
    struct inner *parent = path->inner[level];
    if (path->leaf->count > LEAF_ROWS / 2 || parent->count < 2)
        return;
    const unsigned at = (unsigned)path->at[level];
    const unsigned l = at + 1 < parent->count ? at : at - 1;
    struct leaf *left = parent->child[l], *right = parent->child[l + 1];
    const unsigned count = left->count + right->count;
    if (count > LEAF_ROWS * 3 / 4)
        return;
    struct row rows[LEAF_ROWS];
    leaf_decode(right, rows + leaf_decode(left, rows));
    if (!leaf_encode(left, rows, count))
        return;
    node_give(&space->nodes, right);
    path->at[level] = (int8_t)l;
    inner_set(parent, l, leaf_summary(left, path_low(space, path)));
    space_drop_child(space, path, level, l + 1);
}

/* ---- changing a leaf; the path is void afterwards ---- */

/*
 * Gives the path's leaf these rows (up to LEAF_ROWS + 2), splitting it where they do not fit.
 * `newest` is the row to split behind if rows have been coming in order, so that runs leave full
 * leaves, or -1.
 */
static void space_rewrite(struct mf_space *space, struct path *path, const struct row *rows,
                          unsigned count, int newest)
{
    struct leaf *leaf = path->leaf;
    const uint64_t old_key = leaf_last(leaf, leaf->count - 1u), key = rows[count - 1].last;
    const uint64_t low = path_low(space, path);
    const bool run = newest >= 0 && leaf->newest != NO_ROW &&
                     (newest == leaf->newest || newest == leaf->newest + 1);
    if (leaf_encode(leaf, rows, count)) {
        path_publish(path, space->height, leaf_summary(leaf, low));
    } else {
        struct leaf *more = node_take(&space->nodes);
        unsigned left = count / 2;
        if (run)
            left = (unsigned)newest + 1 < count ? (unsigned)newest + 1 : (unsigned)newest;
        if (!leaf_encode(leaf, rows, left) || !leaf_encode(more, rows + left, count - left)) {
            left = count / 2;
            leaf_encode(leaf, rows, left);
            leaf_encode(more, rows + left, count - left);
        }
        if (run && (unsigned)newest < left)
            leaf->newest = (uint8_t)newest;
        space_add_leaf(space, path, leaf_summary(leaf, low), more,
                       leaf_summary(more, rows[left - 1].last + 1));
    }
    if (key != old_key)
        space_refresh_after(space, key);
}

/* Gives the path's area new bounds within the gaps beside it. A node must be ready where they grow.
 */
static void space_set_bounds(struct mf_space *space, struct path *path, uint64_t first,
                             uint64_t last)
{
    struct leaf *leaf = path->leaf;
    const uint64_t old_first = leaf_first(leaf, path->row), old_last = leaf_last(leaf, path->row);
    space->used += (last - first) - (old_last - old_first);
    if (leaf_set_bounds(leaf, path->row, first, last)) {
        if (space->height == 0)
            return;
        path_publish(path, space->height, leaf_summary(leaf, path_low(space, path)));
        if (last != old_last && path->row + 1 == leaf->count)
            space_refresh_after(space, last);
        return;
    }
    struct row rows[LEAF_ROWS];
    const unsigned count = leaf_decode(leaf, rows);
    rows[path->row].first = first;
    rows[path->row].last = last;
    space_rewrite(space, path, rows, count, -1);
}

/* Inserts a row before the path's, in the gap there, whatever its neighbours. 0, -ENOMEM. */
static int space_insert_row(struct mf_space *space, struct path *path, const struct row *row)
{
    struct leaf *leaf = path->leaf;
    const unsigned i = path->row;
    if (leaf && leaf_accepts(leaf, row)) {
        const bool tail = i == leaf->count;
        bool stale = tail;
        if (space->height > 0 && !tail) {
            const struct inner *parent = path->inner[space->height - 1];
            const unsigned at = (unsigned)path->at[space->height - 1];
            const uint64_t gap = path_gap(space, path), next = leaf_first(leaf, i);
            stale =
                next - gap == parent->gap[at] || gap_aligned(gap, next - 1) == parent->aligned[at];
        }
        leaf_insert(leaf, i, row);
        leaf->newest = (uint8_t)i;
        if (stale && space->height > 0)
            path_publish(path, space->height, leaf_summary(leaf, path_low(space, path)));
    } else {
        const int error = space_prepare(space, leaf ? 1 : 0);
        if (error)
            return error;
        struct row rows[LEAF_ROWS + 1];
        if (leaf) {
            const unsigned count = leaf_decode(leaf, rows);
            __builtin_memmove(&rows[i + 1], &rows[i], sizeof(rows[0]) * (count - i));
            rows[i] = *row;
            space_rewrite(space, path, rows, count + 1, (int)i);
        } else {
            space->root = node_take(&space->nodes);
            leaf_encode(space->root, row, 1);
        }
    }
    space->areas++;
    space->used += row->last - row->first + 1;
    return 0;
}

/* Takes out n areas from the path's on, all in its leaf. */
static void space_erase_rows(struct mf_space *space, struct path *path, unsigned n)
{
    struct leaf *leaf = path->leaf;
    const unsigned i = path->row, end = i + n;
    for (unsigned k = i; k < end; k++)
        space->used -= leaf_last(leaf, k) - leaf_first(leaf, k) + 1;
    space->areas -= n;
    const uint64_t old_key = leaf_last(leaf, leaf->count - 1u);
    const uint64_t gap = path_gap(space, path);
    const bool inside = end < leaf->count;
    leaf_erase(leaf, i, n);
    if (space->height == 0) {
        if (leaf->count == 0) {
            node_give(&space->nodes, leaf);
            space->root = NULL;
        }
        return;
    }
    const unsigned parent = space->height - 1;
    if (inside) {
        struct summary sum = inner_get(path->inner[parent], (unsigned)path->at[parent]);
        const uint64_t next = leaf_first(leaf, i);
        const uint8_t aligned = gap_aligned(gap, next - 1);
        sum.gap = next - gap > sum.gap ? next - gap : sum.gap;
        sum.aligned = aligned > sum.aligned ? aligned : sum.aligned;
        path_publish(path, space->height, sum);
        space_join_leaves(space, path);
    } else {
        if (leaf->count == 0) {
            node_give(&space->nodes, leaf);
            space_drop_child(space, path, parent, (unsigned)path->at[parent]);
        } else {
            path_publish(path, space->height, leaf_summary(leaf, path_low(space, path)));
            space_join_leaves(space, path);
        }
        space_refresh_after(space, old_key);
    }
}

/* ---- merging ---- */

/* Whether two rows that touch are one area. No length could say an area of all 2^64 bytes. */
static bool rows_merge(const struct mf_space *space, const struct row *left,
                       const struct row *right)
{
    return left->last + 1 == right->first && left->tag == right->tag &&
           left->delta == right->delta && left->tag & MF_TAG_MERGE &&
           !(left->first == 0 && right->last == UINT64_MAX >> space->shift);
}

/* Makes one area of those that end before and begin at a granule, if they merge. A node must be
 * ready. */
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

/* ---- fits ---- */

/* A fit, in granules. */
struct wish {
    uint64_t length;
    uint64_t align;
    uint64_t low, last;
    uint8_t aligned; /* as summaries say it */
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
    wish->aligned = (uint8_t)(1 + __builtin_ctzll(wish->align));
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

/* The first child from i on, in a direction (1 up, -1 down), that may have a gap that fits; or the
 * end, -1 or count. */
static inline int inner_seek(const struct inner *inner, int i, int direction,
                             const struct wish *wish)
{
    const uint64_t length = wish->length;
    const uint8_t aligned = wish->aligned;
    const int end = direction > 0 ? inner->count : -1;
    while (i != end && (inner->gap[i] < length || inner->aligned[i] < aligned))
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

static int fit_find(const struct mf_space *space, const struct mf_fit *fit, struct path *path,
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

/* ---- the interface ---- */

int mf_space_create(uint64_t low, uint64_t last, uint64_t granule, const struct mf_alloc *alloc,
                    struct mf_space **out)
{
    if (granule == 0 || granule & (granule - 1) || low > last || low & (granule - 1) ||
        (last & (granule - 1)) != granule - 1 || !alloc || !alloc->alloc || !alloc->free)
        return -MF_EINVAL;
    struct mf_space *space = alloc->alloc(alloc->context, SLAB_MIN, sizeof(uint64_t));
    if (!space)
        return -MF_ENOMEM;
    const unsigned shift = (unsigned)__builtin_ctzll(granule);
    *space = (struct mf_space){
        .low = low >> shift, .last = last >> shift, .shift = shift, .nodes = {.alloc = alloc}};
    *out = space;
    return 0;
}

void mf_space_destroy(struct mf_space *space)
{
    if (!space)
        return;
    const struct mf_alloc *alloc = space->nodes.alloc;
    nodes_destroy(&space->nodes);
    alloc->free(alloc->context, space, SLAB_MIN);
}

int mf_space_reserve(struct mf_space *space, size_t operations)
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

/* Where the halves of one area of 2^64 bytes meet, which may merge once a piece of them goes; 0:
 * nowhere. */
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

/* Leaves that a retag of [first, last] may split: those at its ends, and one where merging spans
 * windows. */
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

/* 1000 * part / whole, rounded down, for part < whole: digit by digit, as not every machine divides
 * 64 bits. */
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
    /* Counts of all 2^64 granules of one byte are 0, modulo 2^64: they can only be those of the
     * whole. */
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
        .metadata_bytes = SLAB_MIN + space->nodes.bytes,
        .used = granules_bytes(space, used),
        .free = granules_bytes(space, free),
        .largest_gap = granules_bytes(space, longest),
    };
    if (longest < free)
        stats->fragmentation = 1000 - thousandths(longest, free);
}
