/* SPDX-License-Identifier: MIT */
/*
 * The algorithm of the second mail's kernel (2.4, 2001): areas in a list ordered by address, and
 * get_unmapped_area walks it from the bottom until a gap fits. As there, a search tree beside the
 * list finds an area by its address, so that only the search for room is linear.
 */
#include <bsd/sys/tree.h>
#include <errno.h>
#include <stdlib.h>

#include <mapfold/space.h>

#include "bench.h"
#include "rival.h"

struct vma {
    uint64_t start; /* what the walk reads lies within one cache line */
    uint64_t end;
    struct vma *next;
    struct vma *prev;
    RB_ENTRY(vma) links;
    uint64_t tag;
    uint64_t delta;
    uint64_t padding[2];
} __attribute__((aligned(32)));

RB_HEAD(vmas, vma);

struct linear {
    struct vmas tree;
    struct vma head; /* an empty area below the first: the walk begins at its end */
    struct vma *nodes;
    struct vma *unused; /* linked by next */
    uint64_t fresh;
    uint64_t room;
    uint64_t areas;
};

static int by_start(const struct vma *a, const struct vma *b)
{
    return (a->start > b->start) - (a->start < b->start);
}

RB_GENERATE_INTERNAL(vmas, vma, links, by_start, __attribute__((unused)) static)

static int linear_place(void *rival, uint32_t pages, uint64_t offset, uint64_t *start)
{
    struct linear *linear = rival;
    const uint64_t length = (uint64_t)pages << PAGE_SHIFT;
    struct vma *before = &linear->head;
    while (before->next && before->next->start - before->end < length)
        before = before->next;
    if (!before->next && RIVAL_LAST + 1 - before->end < length)
        return -ENOSPC;
    struct vma *vma = linear->unused;
    if (vma)
        linear->unused = vma->next;
    else if (linear->fresh < linear->room)
        vma = &linear->nodes[linear->fresh++];
    else
        return -ENOMEM;
    vma->start = before->end;
    vma->end = vma->start + length;
    vma->tag = MF_TAG_MERGE;
    vma->delta = offset - vma->start;
    vma->prev = before;
    vma->next = before->next;
    if (before->next)
        before->next->prev = vma;
    before->next = vma;
    vmas_RB_INSERT(&linear->tree, vma);
    linear->areas++;
    *start = vma->start;
    return 0;
}

static struct vma *find_vma(const struct linear *linear, uint64_t address)
{
    struct vma *vma = linear->tree.rbh_root;
    while (vma && (address < vma->start || address >= vma->end))
        vma = address < vma->start ? RB_LEFT(vma, links) : RB_RIGHT(vma, links);
    return vma;
}

static int linear_remove(void *rival, uint64_t start, uint32_t pages)
{
    struct linear *linear = rival;
    struct vma *vma = find_vma(linear, start);
    if (!vma || vma->start != start || vma->end - start != (uint64_t)pages << PAGE_SHIFT)
        return -ENOENT;
    vmas_RB_REMOVE(&linear->tree, vma);
    vma->prev->next = vma->next;
    if (vma->next)
        vma->next->prev = vma->prev;
    vma->next = linear->unused;
    linear->unused = vma;
    linear->areas--;
    return 0;
}

static int linear_find(void *rival, uint64_t address, uint64_t *start)
{
    const struct vma *vma = find_vma(rival, address);
    if (!vma)
        return -ENOENT;
    *start = vma->start;
    return 0;
}

static double linear_bytes_per_area(void *rival)
{
    const struct linear *linear = rival;
    return linear->areas ? (double)(linear->fresh * sizeof(struct vma)) / (double)linear->areas : 0;
}

static void linear_destroy(void *rival)
{
    struct linear *linear = rival;
    bench_memory_free(linear->nodes, linear->room * sizeof(struct vma));
    free(linear);
}

static int linear_create(const struct rival_setup *setup, void **out)
{
    struct linear *linear = aligned_alloc(_Alignof(struct linear), sizeof(*linear));
    if (!linear)
        return -ENOMEM;
    *linear = (struct linear){.head = {.start = RIVAL_LOW, .end = RIVAL_LOW}};
    linear->room = setup->areas + 1;
    linear->nodes = bench_memory(linear->room * sizeof(struct vma), "the nodes of linear");
    if (!linear->nodes) {
        free(linear);
        return -ENOMEM;
    }
    bench_memory_touch(linear->nodes, linear->room * sizeof(struct vma));
    *out = linear;
    return 0;
}

const struct rival rival_linear = {
    .name = "linear",
    .agrees = true,
    .computes = true,
    .create = linear_create,
    .destroy = linear_destroy,
    .place = linear_place,
    .remove = linear_remove,
    .find = linear_find,
    .bytes_per_area = linear_bytes_per_area,
};
