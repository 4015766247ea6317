/* SPDX-License-Identifier: MIT */
/*
 * The kernel's design from 2012 to 2022 (vm_area_struct with rb_subtree_gap) at its best: a
 * red-black tree of areas by address, in which the largest gaps below a node tell where to go.
 *
 * Invariants: `gap` is the free room just before a node, in pages; a last node of no length at the
 * end of the range owns the last gap. left_max and right_max are the largest gap in either subtree.
 * (The kernel keeps one figure for both and has to look at the child; kept apart, a search touches
 * only the nodes of its path.) Gaps from 16 TiB up all count as UINT32_MAX.
 *
 * The balancing is libbsd's <bsd/sys/tree.h>; its rotations are replaced by ones that carry the two
 * figures along without looking at a child, and link and unlink stop climbing where a maximum no
 * longer changes. Nodes are one cache line each, in one arena of huge pages; the one freed last is
 * used next.
 */
#include <bsd/sys/tree.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include <mapfold/space.h>

#include "bench.h"
#include "rival.h"

struct node {
    uint64_t start;
    struct {
        struct node *left;
        struct node *right;
        struct node *parent;
    } links;
    uint32_t pages : 31;
    uint32_t color : 1;
    uint32_t gap;
    uint32_t left_max;
    uint32_t right_max;
    uint64_t tag;
    uint64_t delta;
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct node) == 64, "a node is a cache line");

RB_HEAD(tree, node);

struct rbtree {
    struct tree tree;
    struct node *nodes;
    struct node *unused; /* linked by links.left */
    uint64_t fresh;      /* nodes never used yet begin here */
    uint64_t room;
    uint64_t areas;
};

/* The colour is a bit beside the length, so that a node fits a line. */
#undef RB_LEFT
#undef RB_RIGHT
#undef RB_PARENT
#undef RB_COLOR
#define RB_LEFT(node, field) ((node)->field.left)
#define RB_RIGHT(node, field) ((node)->field.right)
#define RB_PARENT(node, field) ((node)->field.parent)
#define RB_COLOR(node, field) ((node)->color)

static inline uint32_t max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint32_t subtree_max(const struct node *node)
{
    return max(node->gap, max(node->left_max, node->right_max));
}

static inline void replace_child(struct tree *tree, struct node *parent, const struct node *old,
                                 struct node *child)
{
    if (!parent)
        tree->rbh_root = child;
    else if (parent->links.left == old)
        parent->links.left = child;
    else
        parent->links.right = child;
}

static inline void rotate_left(struct tree *tree, struct node *node)
{
    struct node *up = node->links.right;
    node->links.right = up->links.left;
    node->right_max = up->left_max;
    if (node->links.right)
        node->links.right->links.parent = node;
    up->links.parent = node->links.parent;
    replace_child(tree, node->links.parent, node, up);
    up->links.left = node;
    node->links.parent = up;
    up->left_max = subtree_max(node);
}

static inline void rotate_right(struct tree *tree, struct node *node)
{
    struct node *up = node->links.left;
    node->links.left = up->links.right;
    node->left_max = up->right_max;
    if (node->links.left)
        node->links.left->links.parent = node;
    up->links.parent = node->links.parent;
    replace_child(tree, node->links.parent, node, up);
    up->links.right = node;
    node->links.parent = up;
    up->right_max = subtree_max(node);
}

#undef RB_ROTATE_LEFT
#undef RB_ROTATE_RIGHT
#define RB_ROTATE_LEFT(head, node, up, field) ((up) = (node)->links.right, rotate_left(head, node))
#define RB_ROTATE_RIGHT(head, node, up, field) ((up) = (node)->links.left, rotate_right(head, node))

static int by_start(const struct node *a, const struct node *b)
{
    return (a->start > b->start) - (a->start < b->start);
}

RB_GENERATE_INTERNAL(tree, node, links, by_start, __attribute__((unused)) static)

/* A maximum below `node` has changed: tells the ones above, as far as it matters. */
static inline void climb(const struct node *node)
{
    for (struct node *up; (up = node->links.parent); node = up) {
        uint32_t *const told = up->links.left == node ? &up->left_max : &up->right_max;
        const uint32_t now = subtree_max(node);
        if (*told == now)
            return;
        *told = now;
    }
}

/* Links node as the neighbour just before `next`. */
static inline void link_before(struct tree *tree, struct node *next, struct node *node)
{
    struct node *parent = next->links.left;
    if (parent) {
        while (parent->links.right)
            parent = parent->links.right;
        parent->links.right = node;
    } else {
        parent = next;
        next->links.left = node;
    }
    node->links.parent = parent;
    node->links.left = node->links.right = NULL;
    node->color = RB_RED;
    node->left_max = node->right_max = 0;
    climb(node);
    climb(next);
    tree_RB_INSERT_COLOR(tree, node);
}

/*
 * Unlinks a node. `next`, its right neighbour (the last node never goes), has taken over its gap.
 * All maxima are made true before the balancing, whose rotations only carry true ones along.
 */
static inline void unlink_node(struct tree *tree, struct node *node, const struct node *next)
{
    struct node *gone = node;
    if (node->links.left && node->links.right) {
        gone = node->links.right;
        while (gone->links.left)
            gone = gone->links.left;
    }
    struct node *child = gone->links.left ? gone->links.left : gone->links.right;
    struct node *parent = gone->links.parent;
    const int color = gone->color;
    if (child)
        child->links.parent = parent;
    if (parent) {
        const uint32_t below = child ? subtree_max(child) : 0;
        *(parent->links.left == gone ? &parent->left_max : &parent->right_max) = below;
    }
    replace_child(tree, parent, gone, child);
    if (gone != node) {
        if (parent == node)
            parent = gone;
        gone->links.left = node->links.left;
        gone->links.right = node->links.right;
        gone->left_max = node->left_max;
        gone->right_max = node->right_max;
        gone->links.parent = node->links.parent;
        gone->color = node->color;
        replace_child(tree, node->links.parent, node, gone);
        gone->links.left->links.parent = gone;
        if (gone->links.right)
            gone->links.right->links.parent = gone;
    }
    if (parent)
        climb(parent);
    climb(next);
    if (color == RB_BLACK)
        tree_RB_REMOVE_COLOR(tree, parent, child);
}

static inline struct node *find_node(const struct tree *tree, uint64_t start)
{
    struct node *node = tree->rbh_root;
    while (node && node->start != start)
        node = start < node->start ? node->links.left : node->links.right;
    return node;
}

static inline struct node *right_neighbour(struct node *node)
{
    if (node->links.right) {
        node = node->links.right;
        while (node->links.left)
            node = node->links.left;
        return node;
    }
    while (node->links.parent->links.right == node)
        node = node->links.parent;
    return node->links.parent;
}

/* The node with the lowest gap that fits before it. */
static inline struct node *find_gap(const struct tree *tree, uint32_t pages)
{
    struct node *node = tree->rbh_root;
    if (subtree_max(node) < pages)
        return NULL;
    for (;;) {
        if (node->left_max >= pages)
            node = node->links.left;
        else if (node->gap >= pages)
            return node;
        else
            node = node->links.right;
    }
}

/* The true width of the gap, where the 32-bit figure says "at least". */
static inline uint64_t gap_start(const struct node *node)
{
    if (node->gap != UINT32_MAX)
        return node->start - ((uint64_t)node->gap << PAGE_SHIFT);
    const struct node *before = node->links.left;
    if (before) {
        while (before->links.right)
            before = before->links.right;
    } else {
        before = node;
        while (before->links.parent && before->links.parent->links.left == before)
            before = before->links.parent;
        before = before->links.parent;
    }
    return before ? before->start + ((uint64_t)before->pages << PAGE_SHIFT) : RIVAL_LOW;
}

static inline uint32_t in_pages(uint64_t bytes)
{
    const uint64_t pages = bytes >> PAGE_SHIFT;
    return pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
}

static int rbtree_place(void *rival, uint32_t pages, uint64_t offset, uint64_t *start)
{
    struct rbtree *rb = rival;
    struct node *next = find_gap(&rb->tree, pages);
    if (!next)
        return -ENOSPC;
    struct node *node = rb->unused;
    if (node)
        rb->unused = node->links.left;
    else if (rb->fresh < rb->room)
        node = &rb->nodes[rb->fresh++];
    else
        return -ENOMEM;
    const uint64_t at = gap_start(next);
    node->start = at;
    node->pages = pages & INT32_MAX;
    node->gap = 0;
    node->tag = MF_TAG_MERGE;
    node->delta = offset - at;
    next->gap = in_pages(next->start - at - ((uint64_t)pages << PAGE_SHIFT));
    link_before(&rb->tree, next, node);
    rb->areas++;
    *start = at;
    return 0;
}

static int rbtree_remove(void *rival, uint64_t start, uint32_t pages)
{
    struct rbtree *rb = rival;
    struct node *node = find_node(&rb->tree, start);
    if (!node || node->pages != pages)
        return -ENOENT;
    struct node *next = right_neighbour(node);
    next->gap = in_pages(next->start - gap_start(node));
    unlink_node(&rb->tree, node, next);
    node->links.left = rb->unused;
    rb->unused = node;
    rb->areas--;
    return 0;
}

static int rbtree_find(void *rival, uint64_t address, uint64_t *start)
{
    const struct node *node = ((const struct rbtree *)rival)->tree.rbh_root;
    while (node) {
        if (address < node->start) {
            node = node->links.left;
        } else if (address - node->start < (uint64_t)node->pages << PAGE_SHIFT) {
            *start = node->start;
            return 0;
        } else {
            node = node->links.right;
        }
    }
    return -ENOENT;
}

static double rbtree_bytes_per_area(void *rival)
{
    const struct rbtree *rb = rival;
    return rb->areas ? (double)(rb->fresh * sizeof(struct node)) / (double)rb->areas : 0;
}

static void rbtree_destroy(void *rival)
{
    struct rbtree *rb = rival;
    bench_memory_free(rb->nodes, rb->room * sizeof(struct node));
    free(rb);
}

static int rbtree_create(const struct rival_setup *setup, void **out)
{
    struct rbtree *rb = calloc(1, sizeof(*rb));
    if (!rb)
        return -ENOMEM;
    rb->room = setup->areas + 2;
    rb->nodes = bench_memory(rb->room * sizeof(struct node), "the nodes of rbtree");
    if (!rb->nodes) {
        free(rb);
        return -ENOMEM;
    }
    bench_memory_touch(rb->nodes, rb->room * sizeof(struct node));
    struct node *last = &rb->nodes[rb->fresh++];
    last->start = RIVAL_LAST + 1;
    last->gap = in_pages(last->start - RIVAL_LOW);
    last->color = RB_BLACK;
    rb->tree.rbh_root = last;
    *out = rb;
    return 0;
}

const struct rival rival_rbtree = {
    .name = "rbtree",
    .agrees = true,
    .computes = true,
    .create = rbtree_create,
    .destroy = rbtree_destroy,
    .place = rbtree_place,
    .remove = rbtree_remove,
    .find = rbtree_find,
    .bytes_per_area = rbtree_bytes_per_area,
};
