/* SPDX-License-Identifier: MIT */
/*
 * Classes, and the pieces that were left to the kernel.
 *
 * Classes are records in chunks that never move, found by a hash of their key and known by their
 * number. `plain` is a space of the live pieces that the kernel got, each with the number of its
 * class: it is what promotion counts. It may say too much (a program can unmap behind the layer's
 * back) and then an extent is made early; it never holds anything up.
 *
 * Promotion has hysteresis: a class whose extents have all gone, or could not be made, asks for
 * twice as many live pieces the next time.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "linux/fold_rules.h"
#include "linux/layer.h"
#include "linux/probes.h"

enum {
    CHUNK_CLASSES = 32, /* a page of them */
    MAX_CHUNKS = 1 << 19,
    FIRST_HEADS = 256,
    MANY_PROMOTE = 1 << 20,
    FEW_CHANGES = 32, /* changes to parts of pieces that are always borne */
};

static struct class *chunks[MAX_CHUNKS];
static uint32_t classes_made, classes_used, free_list = NO_CLASS;
static uint32_t first_heads[FIRST_HEADS];
static uint32_t *heads = first_heads; /* number + 1 of a chain's first class; 0 = none */
static uint32_t heads_count = FIRST_HEADS;
static struct mf_space *plain;
static _Atomic uint32_t plain_pieces;

struct class *class_of(uint32_t id)
{
    return &chunks[id / CHUNK_CLASSES][id % CHUNK_CLASSES];
}

static uint32_t hash(const struct identity *file, uint32_t kind)
{
    uint64_t h = file->inode * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ (h >> 29) ^ file->device) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 32) ^ file->mount ^ ((uint64_t)kind << 20)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(h >> 32);
}

static uint32_t kind_of(int protection, bool shared, bool writable)
{
    return (uint32_t)protection << 2 | (uint32_t)shared << 1 | (uint32_t)writable;
}

static uint32_t *chain_of_request(const struct request *request)
{
    const bool shared = (request->flags & MAP_TYPE) != MAP_PRIVATE;
    return &heads[hash(&request->file, kind_of(request->protection, shared, request->writable)) &
                  (heads_count - 1)];
}

static uint32_t *chain_of_class(const struct class *class)
{
    return &heads[hash(&class->file, kind_of(class->protection, class->shared, class->writable)) &
                  (heads_count - 1)];
}

static bool same(const struct class *class, const struct request *request)
{
    const bool shared = (request->flags & MAP_TYPE) != MAP_PRIVATE;
    return class->file.inode == request->file.inode && class->file.device == request->file.device &&
           class->file.mount == request->file.mount && class->protection == request->protection &&
           class->shared == shared && class->writable == request->writable;
}

static struct class *class_find(const struct request *request)
{
    for (uint32_t next = *chain_of_request(request); next != 0;) {
        struct class *class = class_of(next - 1);
        if (same(class, request))
            return class;
        next = class->next;
    }
    return NULL;
}

static void heads_grow(void)
{
    const struct mf_alloc *alloc = layer_memory();
    const uint32_t count = heads_count * 2;
    uint32_t *more = alloc->alloc(alloc->context, count * sizeof(*more), sizeof(*more));
    if (more == NULL)
        return; /* chains get longer, that is all */
    __builtin_memset(more, 0, count * sizeof(*more));
    uint32_t *old = heads;
    const uint32_t old_count = heads_count;
    heads = more;
    heads_count = count;
    for (uint32_t i = 0; i < old_count; i++) {
        for (uint32_t next = old[i]; next != 0;) {
            struct class *class = class_of(next - 1);
            uint32_t *chain = chain_of_class(class);
            const uint32_t number = next;
            next = class->next;
            class->next = *chain;
            *chain = number;
        }
    }
    if (old != first_heads)
        alloc->free(alloc->context, old, old_count * sizeof(*old));
}

static uint32_t number_take(void)
{
    if (free_list != NO_CLASS) {
        const uint32_t id = free_list;
        free_list = class_of(id)->next;
        return id;
    }
    if (classes_made % CHUNK_CLASSES == 0) {
        const uint32_t chunk = classes_made / CHUNK_CLASSES;
        const struct mf_alloc *alloc = layer_memory();
        if (chunk == MAX_CHUNKS)
            return NO_CLASS;
        chunks[chunk] = alloc->alloc(alloc->context, CHUNK_CLASSES * sizeof(struct class), 64);
        if (chunks[chunk] == NULL)
            return NO_CLASS;
    }
    return classes_made++;
}

/* The class of a request, made if there is none. NULL: no memory. */
struct class *class_get(const struct request *request)
{
    struct class *class = class_find(request);
    if (class != NULL)
        return class;
    if (classes_used >= heads_count)
        heads_grow();
    const uint32_t id = number_take();
    if (id == NO_CLASS)
        return NULL;
    uint32_t *chain = chain_of_request(request);
    class = class_of(id);
    *class = (struct class){
        .id = id,
        .file = request->file,
        .protection = (uint8_t)request->protection,
        .shared = (request->flags & MAP_TYPE) != MAP_PRIVATE,
        .writable = request->writable,
        .next = *chain,
        .promote_at = layer.options.promote_pieces,
    };
    *chain = id + 1;
    classes_used++;
    return class;
}

/* Gives a class up, if nothing holds it. */
void class_put(struct class *class)
{
    if (class->held)
        return;
    if (class->copied == 0 && class->original != NULL)
        extent_destroy(class->original);
    if (class->extents != NULL || class->plain != 0 || class->copied != 0)
        return;
    uint32_t *link = chain_of_class(class);
    while (*link != class->id + 1)
        link = &class_of(*link - 1)->next;
    *link = class->next;
    class->next = free_list;
    free_list = class->id;
    classes_used--;
}

void class_forget_extent(struct extent *extent)
{
    struct class *class = class_of(extent->class);
    if (extent->original) {
        class->original = NULL;
        return;
    }
    struct extent **link = &class->extents;
    while (*link != extent)
        link = &(*link)->deeper;
    *link = extent->deeper;
    class->depth--;
    if (class->extents != NULL)
        return;
    class->carved = class->changed = 0;
    if (class->promote_at < MANY_PROMOTE && layer.options.promote_pieces > 1)
        class->promote_at *= 2;
    class_put(class);
}

static void refuse(struct class *class, enum mf_pass_reason reason)
{
    class->refused = (uint8_t)reason;
    const uint32_t more = class->plain + class->promote_at;
    class->promote_at = reason == MF_PASS_FILE_SYSTEM || more > MANY_PROMOTE ? UINT32_MAX : more;
}

/* Another extent, for overlap, must be worth its kernel map: by what the class's extents have held.
 */
static bool may_deepen(const struct class *class)
{
    const uint32_t most = layer.options.max_depth,
                   free_of_charge = most < ALWAYS_DEPTH ? most : ALWAYS_DEPTH;
    if (class->depth < free_of_charge)
        return true;
    if (most <= ALWAYS_DEPTH || class->depth >= DEEP_DEPTH)
        return false;
    const uint32_t pieces = class->depth < most ? PIECES_A_DEPTH : 4 * PIECES_A_DEPTH;
    return class->carved / pieces >= class->depth;
}

/* A new extent that holds the request. NULL with a reason. */
static struct extent *deepen(struct class *class, const struct request *request,
                             enum mf_pass_reason *reason)
{
    uintptr_t start;
    size_t length;
    *reason = reopen_map(request, &start, &length);
    if (*reason != MF_PASS_REASONS) {
        refuse(class, *reason);
        return NULL;
    }
    struct extent *extent = extent_add(start, length);
    if (extent == NULL) {
        sys_munmap(start, length);
        *reason = MF_PASS_NO_MEMORY;
        return NULL;
    }
    extent->class = class->id;
    extent->protection = class->protection;
    extent->shared = class->shared;
    struct extent **link = &class->extents;
    while (*link != NULL)
        link = &(*link)->deeper;
    *link = extent;
    class->depth++;
    class->refused = 0;
    PROBE(promote, start, length, class->depth, class->plain, class->file.inode);
    layer.stats.extents_made++;
    return extent;
}

/* While pieces are folded and none is left to the kernel, the space of those holds no memory. */
static void plain_trim(void)
{
    if (plain == NULL || plain_count() != 0)
        return;
    mf_space_destroy(plain);
    plain = NULL;
}

/*
 * Finds the request a spot in an extent of its class and makes it live. 0 and *address, or -1 and
 * *reason why the kernel should have it; -1 with MF_PASS_DEPTH or MF_PASS_EXTENTS may be copied
 * instead.
 */
int class_carve(struct class *class, const struct request *request, uintptr_t *address,
                enum mf_pass_reason *reason)
{
    if (class->extents == NULL && class->plain + 1 < class->promote_at) {
        *reason = class->refused ? class->refused : MF_PASS_FEW;
        return -1;
    }
    if (class->changed > FEW_CHANGES && class->changed > class->carved / 4 &&
        layer.options.promote_pieces > 1) {
        *reason = MF_PASS_SPLIT;
        return -1;
    }
    struct extent *unsettled = NULL, *spot = NULL;
    for (struct extent *extent = class->extents; extent != NULL; extent = extent->deeper) {
        if (request->offset + request->length > extent->length)
            continue;
        const uintptr_t start = extent->start + request->offset;
        bool pending;
        if (!extent_is_free(extent, start, start + request->length, &pending))
            continue;
        if (!pending) {
            spot = extent;
            break;
        }
        if (unsettled == NULL)
            unsettled = extent;
    }
    if (spot == NULL && unsettled != NULL) {
        spot = unsettled;
        const uintptr_t start = spot->start + request->offset;
        extent_settle(spot, start, start + request->length);
    }
    if (spot == NULL) {
        *reason = MF_PASS_DEPTH;
        if (layer.extents == MAX_EXTENTS)
            *reason = MF_PASS_EXTENTS;
        else if (may_deepen(class))
            spot = deepen(class, request, reason);
    }
    if (spot == NULL)
        return -1;
    const uintptr_t start = spot->start + request->offset;
    if (extent_take(spot, start, start + request->length) != 0) {
        *reason = MF_PASS_NO_MEMORY;
        if (spot->live_bytes == 0 && spot->idle_since == 0)
            extent_destroy(spot);
        return -1;
    }
    class->carved++;
    plain_trim();
    *address = start;
    return 0;
}

/* Bytes of tables of classes and plain pieces. */
uint64_t classes_bytes(void)
{
    uint64_t bytes = (uint64_t)(classes_made + CHUNK_CLASSES - 1) / CHUNK_CLASSES * CHUNK_CLASSES *
                         sizeof(struct class) +
                     heads_count * sizeof(*heads);
    if (plain != NULL) {
        struct mf_space_stats stats;
        mf_space_stats(plain, &stats);
        bytes += stats.metadata_bytes;
    }
    return bytes;
}

uint32_t plain_count(void)
{
    return atomic_load_explicit(&plain_pieces, memory_order_relaxed);
}

static void plain_changed(uint32_t id, int by)
{
    atomic_fetch_add_explicit(&plain_pieces, (uint32_t)by, memory_order_relaxed);
    if (id == NO_CLASS)
        return;
    struct class *class = class_of(id);
    class->plain += (uint32_t)by;
    class_put(class);
}

/* Forgets what the kernel has unmapped, or mapped over. */
void plain_remove(uintptr_t start, uintptr_t end)
{
    struct mf_area area;
    if (plain == NULL || start >= end)
        return;
    for (uintptr_t at = start;
         mf_space_next(plain, at, &area) == 0 && area.start < end && at < end;) {
        const int left = area.start<start, right = area.start + area.length> end;
        at = area.start + area.length;
        const uintptr_t from = left ? start : area.start, to = right ? end : at;
        if (mf_space_remove(plain, from, to - from) == 0 && left + right != 1)
            plain_changed((uint32_t)area.tag, left + right - 1);
    }
}

/* Remembers a piece that the kernel got; class NULL: nobody asked which file it is of. */
void plain_add(uintptr_t start, size_t length, struct class *class)
{
    if (class != NULL)
        class->plain++; /* holds it while what lay there before is forgotten */
    plain_remove(start, start + length);
    if (plain == NULL && mf_space_create(0, UINT64_MAX, layer.page, layer_memory(), &plain) != 0)
        plain = NULL;
    const uint32_t id = class != NULL ? class->id : NO_CLASS;
    const struct mf_area area = {start, length, id, 0};
    if (plain != NULL && mf_space_insert(plain, &area) == 0) {
        atomic_fetch_add_explicit(&plain_pieces, 1, memory_order_relaxed);
    } else if (class != NULL) {
        class->plain--;
        class_put(class);
    }
}
