/* SPDX-License-Identifier: MIT */
#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked_alloc.h"

struct block {
    void *memory;
    size_t size;
};

static int compare_blocks(const void *one, const void *other)
{
    const uintptr_t a = (uintptr_t)((const struct block *)one)->memory;
    const uintptr_t b = (uintptr_t)((const struct block *)other)->memory;
    return (a > b) - (a < b);
}

static _Noreturn void broken(const char *what, size_t value)
{
    fprintf(stderr, "allocator contract broken: %s (%zu)\n", what, value);
    abort();
}

static bool should_fail(struct checked_alloc *checked)
{
    if (checked->fail_at == 0)
        return false;
    if (checked->fail_at > 1) {
        checked->fail_at--;
        return false;
    }
    if (!checked->fail_forever)
        checked->fail_at = 0;
    return true;
}

static void *checked_allocate(void *context, size_t size, size_t align)
{
    struct checked_alloc *checked = context;
    checked->calls++;
    if (size < 4096 || (size & (size - 1)) != 0)
        broken("size is not a power of two from 4 KiB up", size);
    if (align == 0 || (align & (align - 1)) != 0)
        broken("alignment is not a power of two", align);
    if (checked->forbidden) {
        checked->forbidden_calls++;
        return NULL;
    }
    if (should_fail(checked)) {
        checked->failures++;
        return NULL;
    }
    struct block *block = malloc(sizeof(*block));
    const size_t least = align < sizeof(void *) ? sizeof(void *) : align;
    if (!block || posix_memalign(&block->memory, least, size) != 0)
        broken("the machine has no memory left", size);
    memset(block->memory, 0xa5, size);
    block->size = size;
    if (!tsearch(block, &checked->blocks, compare_blocks))
        broken("the machine has no memory left", size);
    checked->live_bytes += size;
    checked->live_blocks++;
    return block->memory;
}

static void checked_free(void *context, void *memory, size_t size)
{
    struct checked_alloc *checked = context;
    const struct block key = {memory, size};
    struct block *const *found = tfind(&key, &checked->blocks, compare_blocks);
    if (!found)
        broken("free of what is not out", size);
    struct block *block = *found;
    if (block->size != size)
        broken("free with another size than alloc's", size);
    tdelete(&key, &checked->blocks, compare_blocks);
    memset(memory, 0x5a, size);
    free(memory);
    free(block);
    checked->live_bytes -= size;
    checked->live_blocks--;
}

void checked_alloc_init(struct checked_alloc *checked)
{
    *checked = (struct checked_alloc){.alloc = {checked_allocate, checked_free, checked}};
}
