/* SPDX-License-Identifier: MIT */
/*
 * A block is a power of two of bytes: a header of one cache line, then nodes. Blocks grow with the
 * whole (a quarter of it, up to a huge page), so that a small space holds little and a large one sits on huge pages.
 */
#include "core/slab.h"
#include "core/error.h"

struct slab {
    struct slab *next, *prev;
    void *freed;    /* nodes that came back, linked through their second word */
    uint32_t size;  /* bytes */
    uint32_t used;  /* nodes taken */
    uint32_t fresh; /* nodes never taken yet begin at this index */
    uint32_t nodes; /* nodes in the block */
};

struct free_node {
    struct slab *slab;
    struct free_node *next;
};

enum { HEADER_BYTES = 64 };
_Static_assert(sizeof(struct slab) <= HEADER_BYTES, "the header is one cache line");

static void slab_unlink(struct nodes *nodes, struct slab *slab)
{
    *(slab->prev ? &slab->prev->next : &nodes->first) = slab->next;
    *(slab->next ? &slab->next->prev : &nodes->last) = slab->prev;
}

static void slab_link_first(struct nodes *nodes, struct slab *slab)
{
    slab->prev = NULL;
    slab->next = nodes->first;
    *(slab->next ? &slab->next->prev : &nodes->last) = slab;
    nodes->first = slab;
}

static void slab_link_last(struct nodes *nodes, struct slab *slab)
{
    slab->next = NULL;
    slab->prev = nodes->last;
    *(slab->prev ? &slab->prev->next : &nodes->first) = slab;
    nodes->last = slab;
}

static void slab_release(struct nodes *nodes, struct slab *slab)
{
    slab_unlink(nodes, slab);
    nodes->free -= slab->nodes;
    nodes->bytes -= slab->size;
    nodes->alloc->free(nodes->alloc->context, slab, slab->size);
}

static int slab_add(struct nodes *nodes)
{
    uint32_t size = SLAB_MIN;
    while (size < SLAB_MAX && size < nodes->bytes / 4)
        size *= 2;
    struct slab *slab = nodes->alloc->alloc(nodes->alloc->context, size, HEADER_BYTES);
    if (!slab)
        return -MF_ENOMEM;
    *slab = (struct slab){.size = size, .nodes = (size - HEADER_BYTES) / NODE_BYTES};
    slab_link_first(nodes, slab);
    nodes->free += slab->nodes;
    nodes->bytes += size;
    return 0;
}

int nodes_require(struct nodes *nodes, uint64_t count)
{
    while (nodes->free < count) {
        const int error = slab_add(nodes);
        if (error)
            return error;
    }
    return 0;
}

void *node_take(struct nodes *nodes)
{
    struct slab *slab = nodes->first;
    struct free_node *node = slab->freed;
    if (node)
        slab->freed = node->next;
    else
        node = (void *)((char *)slab + HEADER_BYTES + (size_t)NODE_BYTES * slab->fresh++);
    node->slab = slab;
    nodes->free--;
    nodes->taken++;
    if (++slab->used == slab->nodes) {
        slab_unlink(nodes, slab);
        slab_link_last(nodes, slab);
    }
    return node;
}

/* Nothing is taken: gives back all blocks but the smallest, which the next area will want again. */
static void nodes_trim(struct nodes *nodes)
{
    for (struct slab *slab = nodes->first, *next; slab; slab = next) {
        next = slab->next;
        if (slab->size > SLAB_MIN)
            slab_release(nodes, slab);
    }
}

void node_give(struct nodes *nodes, void *memory)
{
    struct free_node *node = memory;
    struct slab *slab = node->slab;
    node->next = slab->freed;
    slab->freed = node;
    nodes->free++;
    if (slab->used-- == slab->nodes) {
        slab_unlink(nodes, slab);
        slab_link_first(nodes, slab);
    }
    const uint64_t spare = nodes->free - slab->nodes;
    if (slab->used == 0 && spare >= nodes->keep && spare >= slab->nodes)
        slab_release(nodes, slab);
    if (--nodes->taken == 0 && nodes->keep == 0)
        nodes_trim(nodes);
}

void nodes_destroy(struct nodes *nodes)
{
    while (nodes->first) {
        struct slab *slab = nodes->first;
        nodes->first = slab->next;
        nodes->alloc->free(nodes->alloc->context, slab, slab->size);
    }
}
