/* SPDX-License-Identifier: MIT */
/*
 * The space: a B+tree of areas, each node summed up in its parent (node.h says how).
 *
 *                       inner:  key 9f, gap 40  |  key ff, gap 20
 *                              /                        \
 *       leaf: [10-1f] [60-6f] [90-9f]           leaf: [a0-af] [d0-ff]         tail: from 100
 *        gaps:  10      40      20                      0       20
 *
 * Invariants, which space_check() tests: - Leaves are not empty; areas ascend and do not overlap;
 * two that could merge do not touch. - A parent's key of a child is the last granule of the child's
 * last area. A child covers the granules after the key before it, so each gap belongs to the area
 * after it, and an insert changes no key. What lies behind the last area of all is the tail, which
 * no node knows. - A parent's gap and rooms of a child are the maxima over the gaps before the
 * child's areas.
 *
 * A search for the lowest fit walks from the left through children whose gap and rooms suffice.
 * They may come from two gaps, and rooms know eight lengths only, so that with an alignment a leaf
 * may disappoint; the walk then goes on to the next.
 *
 * An operation changes a leaf in place where it can. Where the leaf is full, or its format too
 * narrow, the rows are decoded, changed, and written back to the leaf or to it and one more
 * (space_rewrite). All nodes that may be needed are made ready before anything changes, so that an
 * operation fails whole.
 */
#include "core/space.h"

/* ---- reading ---- */

void path_find(const struct mf_space *space, struct path *path, uint64_t granule)
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

uint64_t path_low(const struct mf_space *space, const struct path *path)
{
    for (unsigned level = space->height; level-- > 0;) {
        if (path->at[level] > 0)
            return path->inner[level]->key[path->at[level] - 1] + 1;
    }
    return space->low;
}

uint64_t path_gap(const struct mf_space *space, const struct path *path)
{
    return path->row > 0 ? leaf_last(path->leaf, path->row - 1) + 1 : path_low(space, path);
}

bool space_tail(const struct mf_space *space, uint64_t *first)
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

struct summary inner_summary(const struct inner *inner)
{
    /*
     * Four children at once; children that are not there have rooms 0, and so has what pads them.
     */
    typedef uint8_t lanes __attribute__((vector_size(16)));
    lanes best = {0};
    uint64_t gap = 0;
    uint32_t rooms[4];
    for (unsigned i = 0; i < inner->count; i++)
        gap = inner->gap[i] > gap ? inner->gap[i] : gap;
    for (unsigned i = 0; i < INNER_KEYS; i += 4) {
        lanes four;
        __builtin_memcpy(&four, &inner->rooms[i], sizeof(four));
        const lanes more = (lanes)(four > best);
        best = (four & more) | (best & ~more);
    }
    __builtin_memcpy(rooms, &best, sizeof(best));
    return (struct summary){
        inner->key[inner->count - 1], gap,
        rooms_max(rooms_max(rooms[0], rooms[1]), rooms_max(rooms[2], rooms[3]))};
}

static inline void inner_set(struct inner *inner, unsigned i, struct summary sum)
{
    inner->key[i] = sum.key;
    inner->gap[i] = sum.gap;
    inner->rooms[i] = sum.rooms;
}

static inline struct summary inner_get(const struct inner *inner, unsigned i)
{
    return (struct summary){inner->key[i], inner->gap[i], inner->rooms[i]};
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
        if (old.key == sum.key && old.gap == sum.gap && old.rooms == sum.rooms)
            return;
        inner_set(inner, at, sum);
        if (level == 0)
            return;
        const struct summary known =
            inner_get(path->inner[level - 1], (unsigned)path->at[level - 1]);
        if ((sum.gap >= known.gap || old.gap < known.gap) &&
            (rooms_equal(old.rooms, known.rooms) & ~rooms_at_least(sum.rooms, known.rooms)) == 0) {
            sum.key = inner->key[inner->count - 1];
            sum.gap = sum.gap > known.gap ? sum.gap : known.gap;
            sum.rooms = rooms_max(sum.rooms, known.rooms);
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

/*
 * After the key of a leaf has changed: the gap behind it belongs to the next leaf, if there is one.
 */
static void space_refresh_after(struct mf_space *space, uint64_t key)
{
    if (space->height > 0 && key < space->last)
        space_refresh(space, key + 1);
}

/* ---- nodes come and go ---- */

/*
 * Nodes that an operation may take which splits up to `leaves` leaves. Each may split a node of
 * each level; but an inner node splits when it has INNER_FANOUT children and then has half, and one
 * that was joined has three quarters, so few splits below cannot split it twice. One more is the
 * new root. Where there is only one leaf, both ends of a range are in it.
 */
static uint64_t nodes_for(const struct mf_space *space, uint64_t leaves)
{
    if (space->height == 0 && leaves >= SPLITS)
        leaves = SPLITS - 1;
    uint64_t inners = leaves * space->height;
    if (leaves < INNER_FANOUT / 4 && space->inners < inners)
        inners = space->inners;
    return leaves + inners + 1;
}

int space_prepare(struct mf_space *space, uint64_t leaves)
{
    return nodes_require(&space->nodes, nodes_for(space, leaves));
}

/*
 * Nodes that the next `operations` may take: of one, what it asks for itself. Of more, a leaf may
 * split in each of SPLITS places of each. An inner node splits when it has INNER_FANOUT children
 * and then has half: those there are now can split twice for little, afterwards it takes a quarter
 * of INNER_FANOUT splits below for one. The last operation finds what it asks for beforehand, which
 * is the worst case.
 */
uint64_t nodes_for_operations(const struct mf_space *space, uint64_t operations)
{
    if (operations == 0)
        return 0;
    if (operations == 1)
        return nodes_for(space, SPLITS);
    unsigned height = space->height + 1;
    for (uint64_t n = operations; n > 1; n /= INNER_FANOUT / 4)
        height++;
    const uint64_t leaves = (operations - 1) * SPLITS;
    const uint64_t seldom = 2 * space->inners + leaves / (INNER_FANOUT / 4 - 1);
    const uint64_t always = leaves * height;
    return leaves + (seldom < always ? seldom : always) + SPLITS * (height + 1) + 1;
}

void space_use_reserve(struct mf_space *space, uint64_t operations)
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
    __builtin_memmove(&inner->rooms[i + 1], &inner->rooms[i], sizeof(inner->rooms[0]) * after);
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
    __builtin_memmove(&inner->rooms[i], &inner->rooms[i + 1], sizeof(inner->rooms[0]) * after);
    inner->key[inner->count] = UINT64_MAX;
    inner->rooms[inner->count] = 0;
}

/* Moves the children from `from` on to the end of another inner node. */
static void inner_move(struct inner *to, struct inner *inner, unsigned from)
{
    for (unsigned i = from; i < inner->count; i++)
        inner_insert(to, to->count, inner->child[i], inner_get(inner, i));
    while (inner->count > from) {
        inner->key[--inner->count] = UINT64_MAX;
        inner->rooms[inner->count] = 0;
    }
}

static struct inner *inner_new(struct mf_space *space)
{
    struct inner *inner = node_take(&space->nodes);
    inner->count = 0;
    __builtin_memset(inner->key, 0xff, sizeof(inner->key));
    __builtin_memset(inner->rooms, 0, sizeof(inner->rooms));
    space->inners++;
    return inner;
}

static void inner_give(struct mf_space *space, struct inner *inner)
{
    space->inners--;
    node_give(&space->nodes, inner);
}

/*
 * The path's leaf (now summed up by left) has split: puts the node behind it, splitting parents
 * that are full.
 */
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

/*
 * Joins the path's leaf with a neighbour under the same parent, if both are so empty that it pays.
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
 * `newest`: see space.h. The leaf is the left part; what does not fit goes to a new one behind it.
 */
void space_rewrite(struct mf_space *space, struct path *path, const struct row *rows,
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

void space_set_bounds(struct mf_space *space, struct path *path, uint64_t first, uint64_t last)
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

int space_insert_row(struct mf_space *space, struct path *path, const struct row *row)
{
    struct leaf *leaf = path->leaf;
    const unsigned i = path->row;
    if (leaf && leaf_accepts(leaf, row)) {
        const bool behind = i == leaf->count;
        const uint64_t first = path_gap(space, path);
        const uint64_t gap = behind ? 0 : leaf_first(leaf, i) - first;
        leaf_insert(leaf, i, row);
        leaf->newest = (uint8_t)i;
        if (space->height > 0) {
            const uint64_t low = path_low(space, path);
            const struct summary known =
                inner_get(path->inner[space->height - 1], (unsigned)path->at[space->height - 1]);
            path_publish(path, space->height,
                         behind ? leaf_summary(leaf, low)
                                : leaf_summary_without(leaf, low, known, gap,
                                                       gap_rooms(first, first + gap - 1)));
        }
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

void space_erase_rows(struct mf_space *space, struct path *path, unsigned n)
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
        sum.gap = next - gap > sum.gap ? next - gap : sum.gap;
        sum.rooms = rooms_max(sum.rooms, gap_rooms(gap, next - 1));
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
