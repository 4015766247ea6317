/* SPDX-License-Identifier: MIT */
/*
 * A block is a power of two of bytes: a header of one cache line, then nodes. Blocks grow with the
 * whole (a quarter of it, up to a huge page), so that a large space sits on huge pages. A small one
 * holds little: its first block is what its owner's page has left, the next ones are the smallest
 * there are.
 */
#include "core/slab.h"
#include "core/error.h"

struct slab {
    struct slab *next, *prev;
    void *freed;    /* nodes that came back, linked through their second word */
    uint32_t size;  /* bytes; 0: the owner's */
    uint32_t nodes; /* in the block */
    uint32_t used;  /* of them, taken */
    uint32_t fresh; /* nodes never taken yet begin at this index */
};

struct free_node {
    struct slab *slab;
    struct free_node *next;
};

enum { HEADER_BYTES = SLAB_ALIGN, SMALL_BYTES = 16 * SLAB_MIN };
_Static_assert(sizeof(struct slab) <= HEADER_BYTES, "the header is one cache line");

static void partial_unlink(struct nodes *nodes, struct slab *slab)
{
    *(slab->prev ? &slab->prev->next : &nodes->partial) = slab->next;
    *(slab->next ? &slab->next->prev : &nodes->last) = slab->prev;
}

static void partial_link_first(struct nodes *nodes, struct slab *slab)
{
    slab->prev = NULL;
    slab->next = nodes->partial;
    *(slab->next ? &slab->next->prev : &nodes->last) = slab;
    nodes->partial = slab;
}

static void partial_link_last(struct nodes *nodes, struct slab *slab)
{
    slab->next = NULL;
    slab->prev = nodes->last;
    *(slab->prev ? &slab->prev->next : &nodes->partial) = slab;
    nodes->last = slab;
}

static void full_link(struct nodes *nodes, struct slab *slab)
{
    slab->prev = NULL;
    slab->next = nodes->full;
    if (slab->next)
        slab->next->prev = slab;
    nodes->full = slab;
}

static void full_unlink(struct nodes *nodes, struct slab *slab)
{
    *(slab->prev ? &slab->prev->next : &nodes->full) = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
}

static void slab_release(struct nodes *nodes, struct slab *slab)
{
    partial_unlink(nodes, slab);
    nodes->free -= slab->nodes;
    nodes->bytes -= slab->size;
    nodes->alloc->free(nodes->alloc->context, slab, slab->size);
}

void nodes_init(struct nodes *nodes, const struct mf_alloc *alloc, void *memory, size_t size)
{
    struct slab *slab = memory;
    *nodes = (struct nodes){.alloc = alloc};
    *slab = (struct slab){.nodes = (uint32_t)((size - HEADER_BYTES) / NODE_BYTES)};
    partial_link_last(nodes, slab);
    nodes->free = slab->nodes;
}

static int slab_add(struct nodes *nodes)
{
    uint32_t size = SLAB_MIN;
    while (nodes->bytes >= SMALL_BYTES && size < SLAB_MAX && size < nodes->bytes / 4)
        size *= 2;
    struct slab *slab = nodes->alloc->alloc(nodes->alloc->context, size, HEADER_BYTES);
    if (!slab)
        return -MF_ENOMEM;
    *slab = (struct slab){.size = size, .nodes = (size - HEADER_BYTES) / NODE_BYTES};
    partial_link_last(nodes, slab);
    nodes->free += slab->nodes;
    nodes->bytes += size;
    return 0;
}

int nodes_require(struct nodes *nodes, uint64_t count)
{
    const struct slab *const before = nodes->last;
    while (nodes->free < count) {
        if (!slab_add(nodes))
            continue;
        while (nodes->last != before)
            slab_release(nodes, nodes->last);
        return -MF_ENOMEM;
    }
    return 0;
}

void *node_take(struct nodes *nodes)
{
    struct slab *slab = nodes->partial;
    struct free_node *node = slab->freed;
    if (node)
        slab->freed = node->next;
    else
        node = (void *)((char *)slab + HEADER_BYTES + (size_t)NODE_BYTES * slab->fresh++);
    node->slab = slab;
    nodes->free--;
    nodes->taken++;
    nodes->keep -= nodes->keep > 0;
    if (++slab->used == slab->nodes) {
        partial_unlink(nodes, slab);
        full_link(nodes, slab);
    }
    return node;
}

void node_give(struct nodes *nodes, void *taken)
{
    struct free_node *node = taken;
    struct slab *slab = node->slab;
    node->next = slab->freed;
    slab->freed = node;
    nodes->free++;
    nodes->taken--;
    if (slab->used-- == slab->nodes) {
        full_unlink(nodes, slab);
        partial_link_first(nodes, slab);
    } else if (slab->used == slab->nodes / 2) {
        partial_unlink(nodes, slab);
        partial_link_last(nodes, slab);
    }
    const uint64_t spare = nodes->free - slab->nodes;
    if (nodes->taken == 0)
        nodes_trim(nodes);
    else if (slab->size != 0 && slab->used == 0 && spare >= nodes->keep && spare >= slab->nodes)
        slab_release(nodes, slab);
}

void nodes_trim(struct nodes *nodes)
{
    struct slab *next;
    for (struct slab *slab = nodes->partial; slab; slab = next) {
        next = slab->next;
        if (slab->size != 0 && slab->used == 0 && nodes->free - slab->nodes >= nodes->keep)
            slab_release(nodes, slab);
    }
}

void nodes_destroy(struct nodes *nodes)
{
    struct slab *lists[] = {nodes->partial, nodes->full};
    for (unsigned i = 0; i < 2; i++) {
        while (lists[i]) {
            struct slab *slab = lists[i];
            lists[i] = slab->next;
            if (slab->size != 0)
                nodes->alloc->free(nodes->alloc->context, slab, slab->size);
        }
    }
}
