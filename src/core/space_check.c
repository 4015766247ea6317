/* SPDX-License-Identifier: MIT */
/* The invariants of space.c, checked against the tree as it stands. Built into tests only. */
#include "core/space.h"

struct check {
    const struct mf_space *space;
    char *why;
    size_t size;
    uint64_t areas, used, nodes;
    bool any; /* `before` is the area visited last */
    struct row before;
};

static int fail(struct check *check, const char *sentence)
{
    size_t i = 0;
    for (; sentence[i] && i + 1 < check->size; i++)
        check->why[i] = sentence[i];
    if (check->size > 0)
        check->why[i] = '\0';
    return -1;
}

static int check_row(struct check *check, const struct row *row)
{
    const struct mf_space *space = check->space;
    const struct row *before = &check->before;
    if (row->first > row->last)
        return fail(check, "an area ends before it starts");
    if (row->first < space->low || row->last > space->last)
        return fail(check, "an area lies outside the space");
    if (check->any && row->first <= before->last)
        return fail(check, "two areas overlap or descend");
    const bool all = before->first == 0 && row->last == UINT64_MAX >> space->shift;
    if (check->any && before->last + 1 == row->first && before->tag == row->tag &&
        before->delta == row->delta && row->tag & MF_TAG_MERGE && !all)
        return fail(check, "two areas touch that should be one");
    check->any = true;
    check->before = *row;
    check->areas++;
    check->used += row->last - row->first + 1;
    return 0;
}

static int check_leaf(struct check *check, const struct leaf *leaf, uint64_t low,
                      struct summary *sum)
{
    *sum = (struct summary){0};
    if (leaf->count == 0 || leaf->count > format_rows(leaf->format))
        return fail(check, "a leaf is empty or overfull");
    if (!(leaf->format & FORMAT_WIDE)) {
        for (unsigned i = leaf->count; i < format_stride(leaf->format); i++) {
            if (leaf_last32(leaf)[i] != UINT32_MAX)
                return fail(check, "an unused row of a leaf is not marked so");
        }
    }
    for (unsigned i = 0; i < leaf->count; i++) {
        const struct row row = leaf_row(leaf, i);
        if (check_row(check, &row))
            return -1;
        const uint64_t gap = row.first - low;
        sum->gap = gap > sum->gap ? gap : sum->gap;
        sum->rooms = rooms_max(sum->rooms, gap ? gap_rooms(low, row.first - 1) : 0);
        sum->key = row.last;
        low = row.last + 1;
    }
    return 0;
}

static int check_node(struct check *check, const void *node, unsigned height, uint64_t low,
                      struct summary *sum)
{
    check->nodes++;
    if (height == 0)
        return check_leaf(check, node, low, sum);
    const struct inner *inner = node;
    if (inner->count == 0 || inner->count > INNER_FANOUT)
        return fail(check, "an inner node is empty or overfull");
    for (unsigned i = inner->count; i < INNER_KEYS; i++) {
        if (inner->key[i] != UINT64_MAX || inner->rooms[i] != 0)
            return fail(check, "an unused child is not marked so");
    }
    *sum = (struct summary){0};
    for (unsigned i = 0; i < inner->count; i++) {
        struct summary child = {0};
        if (check_node(check, inner->child[i], height - 1, low, &child))
            return -1;
        if (child.key != inner->key[i])
            return fail(check, "a key is not the end of its child");
        if (child.gap != inner->gap[i])
            return fail(check, "a longest gap is wrong");
        if (child.rooms != inner->rooms[i])
            return fail(check, "a best alignment is wrong");
        sum->gap = child.gap > sum->gap ? child.gap : sum->gap;
        sum->rooms = rooms_max(sum->rooms, child.rooms);
        sum->key = child.key;
        low = child.key + 1;
    }
    return 0;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): it is written through `check` */
int space_check(const struct mf_space *space, char *why, size_t size)
{
    struct check check = {.space = space, .why = why, .size = size};
    struct summary sum;
    if (!space->root && space->height > 0)
        return fail(&check, "there is a height without a root");
    if (space->root && check_node(&check, space->root, space->height, space->low, &sum))
        return -1;
    if (space->height > 0 && ((const struct inner *)space->root)->count < 2)
        return fail(&check, "the root has one child");
    if (check.areas != space->areas)
        return fail(&check, "the count of areas is wrong");
    if (check.used != space->used)
        return fail(&check, "the count of used granules is wrong");
    if (check.nodes != space->nodes.taken)
        return fail(&check, "a node is lost or taken twice");
    if (space->nodes.free < space->nodes.keep)
        return fail(&check, "the reserve is not kept");
    return 0;
}
