/* SPDX-License-Identifier: MIT */
/*
 * The layer's address ranges (extents and arenas), what each of their pages is, and ranges of
 * addresses seen across them. layer_sorted[] holds the records in use by address; ranges never
 * overlap.
 *
 * A record's length is written last when it comes into use and first when it goes, so that a signal
 * handler which interrupts that finds no half-made record (layer_touches).
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "linux/layer.h"
#include "linux/probes.h"

struct extent *layer_sorted[MAX_EXTENTS];
static struct extent records[MAX_EXTENTS];
static uint32_t records_used;

static inline uint64_t tag_state(const struct mf_area *area)
{
    return area->tag & STATE_MASK;
}

static inline uintptr_t area_end(const struct mf_area *area)
{
    return area->start + area->length;
}

static inline uintptr_t min_address(uintptr_t a, uintptr_t b)
{
    return a < b ? a : b;
}

static inline uintptr_t max_address(uintptr_t a, uintptr_t b)
{
    return a > b ? a : b;
}

static uint32_t sorted_position(uintptr_t address)
{
    uint32_t low = 0, high = layer.extents;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (extent_end(layer_sorted[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many extents begin below address. */
uint32_t extents_below(uintptr_t address)
{
    uint32_t position = sorted_position(address);
    return position + (position < layer.extents && layer_sorted[position]->start < address);
}

struct extent *extent_at_or_above(uintptr_t address)
{
    const uint32_t position = sorted_position(address);
    return position < layer.extents ? layer_sorted[position] : NULL;
}

static bool touches_any(uintptr_t start, uintptr_t end, bool copies_only)
{
    for (size_t i = 0; i < records_used; i++) {
        const struct extent *extent = &records[i];
        if (extent->length != 0 && (!copies_only || extent->class == NO_CLASS) &&
            extent->start < end && start < extent_end(extent))
            return true;
    }
    return false;
}

bool layer_touches(uintptr_t start, uintptr_t end)
{
    return touches_any(start, end, false);
}

bool layer_touches_copies(uintptr_t start, uintptr_t end)
{
    return touches_any(start, end, true);
}

/* A quarter of the address space that a process has here is what extents may take in all. */
size_t address_space_left(void)
{
    const size_t most = layer.end / 4;
    return layer.extent_bytes < most ? most - layer.extent_bytes : 0;
}

/*
 * Maps memory for an extent, apart from all others: the kernel may offer a hole that the program
 * made in one, and ranges must not overlap. What it offers so is held until it has offered
 * something else.
 */
long extent_map(size_t length, int protection, int flags, int fd)
{
    enum { TRIES = 8 };
    long held[TRIES], result = -ENOMEM;
    int tries = 0;
    while (tries < TRIES) {
        result = sys_mmap(0, length, protection, flags, fd, 0);
        if (sys_failed(result))
            break;
        const struct extent *extent = extent_at_or_above((uintptr_t)result);
        if (extent == NULL || extent->start >= (uintptr_t)result + length)
            break;
        held[tries++] = result;
        result = -ENOMEM;
    }
    while (tries > 0)
        sys_munmap((uintptr_t)held[--tries], length);
    return result;
}

struct extent *extent_add(uintptr_t start, size_t length)
{
    if (layer.extents == MAX_EXTENTS)
        return NULL;
    static uint32_t next;
    if (layer.extents == records_used)
        next = records_used++;
    while (records[next].length != 0)
        next = (next + 1) % records_used;
    struct extent *extent = &records[next];
    *extent = (struct extent){.class = NO_CLASS};
    if (mf_space_create(start, start + length - 1, layer.page, layer_memory(), &extent->live))
        return NULL;
    const uint32_t position = sorted_position(start);
    __builtin_memmove(layer_sorted + position + 1, layer_sorted + position,
                      (layer.extents - position) *
                          sizeof(layer_sorted[0])); /* NOLINT: of pointers */
    layer_sorted[position] = extent;
    extents_set(layer.extents + 1);
    layer.extent_bytes += length;
    extent->start = start;
    atomic_signal_fence(memory_order_release);
    extent->length = length;
    PROBE(extent_made, start, length);
    return extent;
}

/*
 * Unmaps what is still the extent's own and forgets it. A part that the kernel will not unmap
 * (sealed memory) stays mapped, and is nobody's.
 */
void extent_destroy(struct extent *extent)
{
    const uintptr_t end = extent_end(extent);
    uintptr_t from = extent->start;
    struct mf_area area;
    PROBE(extent_gone, from, extent->length);
    for (uintptr_t at = from; at < end && mf_space_next(extent->live, at, &area) == 0;
         at = area_end(&area)) {
        if (tag_state(&area) == STATE_PENDING)
            layer.stats.pending_pages -= area.length / layer.page;
        if (tag_state(&area) != STATE_FOREIGN)
            continue;
        if (from < area.start)
            sys_munmap(from, area.start - from);
        from = area_end(&area);
    }
    if (from < end)
        sys_munmap(from, end - from);
    if (extent->class != NO_CLASS)
        class_forget_extent(extent);
    else
        copy_forget_arena(extent);
    const uint32_t position = sorted_position(extent->start);
    extents_set(layer.extents - 1);
    layer.extent_bytes -= extent->length;
    __builtin_memmove(layer_sorted + position, layer_sorted + position + 1,
                      (layer.extents - position) *
                          sizeof(layer_sorted[0])); /* NOLINT: of pointers */
    extent->length = 0;
    atomic_signal_fence(memory_order_release);
    mf_space_destroy(extent->live);
    extent->live = NULL;
}

/* Free, or free but for pages that wait to be dropped (*pending). */
bool extent_is_free(struct extent *extent, uintptr_t start, uintptr_t end, bool *pending)
{
    struct mf_area area;
    *pending = false;
    for (uintptr_t at = start; at < end; at = area_end(&area)) {
        if (mf_space_next(extent->live, at, &area) != 0 || area.start >= end)
            return true;
        if (tag_state(&area) != STATE_PENDING)
            return false;
        *pending = true;
    }
    return true;
}

/* Makes free pages live. 0, -ENOMEM. The caller has settled pending ones. */
int extent_take(struct extent *extent, uintptr_t start, uintptr_t end)
{
    const struct mf_area area = {start, end - start, STATE_LIVE | MF_TAG_MERGE, -extent->start};
    const int result = mf_space_insert(extent->live, &area);
    if (result != 0)
        return result;
    extent->live_bytes += end - start;
    layer.stats.live_bytes += end - start;
    if (extent->idle_since != 0) {
        extent->idle_since = 0;
        layer.idle--;
    }
    return 0;
}

/* Drops what is pending in the range, so that it is free. */
void extent_settle(struct extent *extent, uintptr_t start, uintptr_t end)
{
    struct mf_area area;
    for (uintptr_t at = start;
         at < end && mf_space_next(extent->live, at, &area) == 0 && area.start < end;) {
        const uintptr_t from = max_address(area.start, start),
                        to = min_address(area_end(&area), end);
        at = to;
        if (tag_state(&area) != STATE_PENDING)
            continue;
        /* Cannot fail: at worst the middle of an area goes, and for that memory is set aside. */
        if (mf_space_reserve(extent->live, 1) != 0 ||
            mf_space_remove(extent->live, from, to - from) != 0)
            continue;
        dirty_drop(from, to);
        layer.stats.pending_pages -= (to - from) / layer.page;
    }
}

/* Puts back what the program changed of a live range. 0, or a negative errno: it cannot be. */
static int changes_undo(const struct extent *extent, uintptr_t start, size_t length, uint64_t tag)
{
    if (tag & CHANGED_FOR_GOOD)
        return -EINVAL;
    long result = 0;
    if (tag & CHANGED_LOCK)
        result = sys_call(SYS_munlock, (long)start, (long)length, 0, 0, 0, 0);
    if (!sys_failed(result) && (tag & CHANGED_ADVICE))
        result = sys_madvise(start, length, MADV_NORMAL);
    if (!sys_failed(result) && (tag & CHANGED_PROTECTION))
        result = sys_mprotect(start, length, extent->protection);
    return sys_failed(result) ? (int)result : 0;
}

static void live_ends(struct extent *extent, const struct mf_area *area)
{
    extent->live_bytes -= area->length;
    layer.stats.live_bytes -= area->length;
    PROBE(release, area->start, area->length);
    if (extent->class != NO_CLASS)
        return;
    struct class *class = class_of(tag_class(area->tag));
    class->copied -= area->length;
    layer.stats.copies_live_bytes -= area->length;
    class_put(class);
}

/*
 * Gives up what lies in [start, end) of one area, and makes a hole of it: the kernel's answer is
 * right for it from now on. 0, or a negative errno, and then nothing has changed.
 */
static int area_retire(struct extent *extent, const struct mf_area *area)
{
    if (mf_space_reserve(extent->live, 2) != 0)
        return -ENOMEM;
    const long result = kernel_unmap(area->start, area->length);
    if (sys_failed(result))
        return (int)result;
    if (tag_state(area) == STATE_LIVE)
        live_ends(extent, area);
    else
        layer.stats.pending_pages -= area->length / layer.page;
    mf_space_retag(extent->live, area->start, area->length, UINT64_MAX,
                   STATE_FOREIGN | MF_TAG_MERGE);
    return 0;
}

/* One live area (clipped to what is released) ends. 0, or a negative errno, and then it is live as
 * before, though some of what the program changed of it may have been undone. */
static int area_release(struct extent *extent, const struct mf_area *area)
{
    const uint64_t changed = area->tag & CHANGED_MASK;
    if (layer.options.strict ||
        (changed != 0 && changes_undo(extent, area->start, area->length, changed) != 0))
        return area_retire(extent, area);
    const bool may_be_private =
        extent->class != NO_CLASS && !extent->shared &&
        ((extent->protection & PROT_WRITE) || (changed & CHANGED_PROTECTION));
    int result = mf_space_reserve(extent->live, 1);
    if (result != 0)
        return result;
    if (may_be_private)
        result = mf_space_retag(extent->live, area->start, area->length, UINT64_MAX,
                                STATE_PENDING | MF_TAG_MERGE);
    else
        result = mf_space_remove(extent->live, area->start, area->length);
    if (result != 0)
        return result;
    live_ends(extent, area);
    if (may_be_private)
        dirty_add(extent, area->start, area_end(area));
    if (extent->class == NO_CLASS)
        copy_freed(extent, area->length);
    return 0;
}

/* Takes back the live pages in [start, end). 0, -ENOMEM, or the kernel's -EPERM for sealed memory.
 */
int extent_release(struct extent *extent, uintptr_t start, uintptr_t end)
{
    struct mf_area area;
    for (uintptr_t at = start;
         at < end && mf_space_next(extent->live, at, &area) == 0 && area.start < end;) {
        const uintptr_t to = min_address(area_end(&area), end);
        area.start = max_address(area.start, start);
        area.length = to - area.start;
        at = to;
        int result = 0;
        if (tag_state(&area) == STATE_LIVE)
            result = area_release(extent, &area);
        else if (tag_state(&area) == STATE_FOREIGN)
            result = (int)kernel_unmap(area.start, area.length);
        if (result != 0)
            return result;
    }
    return 0;
}

/* The kernel has given [start, end) to somebody else. 0, -ENOMEM. */
int extent_make_foreign(struct extent *extent, uintptr_t start, uintptr_t end)
{
    if (mf_space_reserve(extent->live, 4) != 0)
        return -ENOMEM;
    struct mf_area area;
    for (uintptr_t at = start;
         at < end && mf_space_next(extent->live, at, &area) == 0 && area.start < end;) {
        const uintptr_t to = min_address(area_end(&area), end);
        area.start = max_address(area.start, start);
        area.length = to - area.start;
        at = to;
        if (tag_state(&area) == STATE_LIVE)
            live_ends(extent, &area);
        else if (tag_state(&area) == STATE_PENDING)
            layer.stats.pending_pages -= area.length / layer.page;
    }
    const struct mf_area foreign = {start, end - start, STATE_FOREIGN | MF_TAG_MERGE,
                                    -extent->start};
    mf_space_remove(extent->live, start, end - start);
    return mf_space_insert(extent->live, &foreign);
}

/* Makes real holes of all that is free in the range. 0, or the kernel's negative errno. */
static int extent_punch(struct extent *extent, uintptr_t start, uintptr_t end)
{
    for (uintptr_t at = start; at < end;) {
        struct mf_area area;
        uintptr_t to = end;
        if (mf_space_next(extent->live, at, &area) == 0 && area.start < end) {
            if (area.start > at)
                to = area.start;
            else if (tag_state(&area) == STATE_PENDING)
                to = min_address(area_end(&area), end);
            else {
                at = area_end(&area);
                continue;
            }
        }
        if (mf_space_reserve(extent->live, 4) != 0)
            return -ENOMEM;
        const long result = kernel_unmap(at, to - at);
        if (sys_failed(result))
            return (int)result;
        extent_make_foreign(extent, at, to);
        at = to;
    }
    return 0;
}

/* What lies at from, and where that ends (or something else may begin). */
static struct run piece_at(uintptr_t from, uintptr_t end)
{
    struct run run = {from, end, false, false};
    const struct extent *extent = extent_at_or_above(from);
    if (extent == NULL || extent->start >= end)
        return run;
    struct mf_area area;
    if (extent->start > from) {
        run.end = extent->start;
    } else if (mf_space_next(extent->live, from, &area) != 0) {
        run.hole = true;
        run.end = extent_end(extent);
    } else if (area.start > from) {
        run.hole = true;
        run.end = area.start;
    } else {
        run.hole = tag_state(&area) == STATE_PENDING;
        run.copied = extent->class == NO_CLASS && tag_state(&area) == STATE_LIVE;
        run.end = area_end(&area);
    }
    run.end = min_address(run.end, end);
    return run;
}

struct run run_at(uintptr_t from, uintptr_t end)
{
    struct run run = piece_at(from, end);
    while (run.end < end) {
        const struct run next = piece_at(run.end, end);
        if (next.hole != run.hole || next.copied != run.copied)
            break;
        run.end = next.end;
    }
    return run;
}

/* Up to where [start, end) is visible, copied or not. */
uintptr_t visible_end(uintptr_t start, uintptr_t end)
{
    while (start < end) {
        const struct run run = run_at(start, end);
        if (run.hole)
            break;
        start = run.end;
    }
    return start;
}

bool range_has_hole(uintptr_t start, uintptr_t end)
{
    return visible_end(start, end) < end;
}

/* Does what to the part of each extent that lies in the range; stops at the first error. */
static int range_each(uintptr_t start, uintptr_t end,
                      int (*what)(struct extent *, uintptr_t, uintptr_t))
{
    while (start < end) {
        struct extent *extent = extent_at_or_above(start);
        if (extent == NULL || extent->start >= end)
            return 0;
        const uintptr_t to = min_address(extent_end(extent), end);
        const int result = what(extent, max_address(start, extent->start), to);
        if (result != 0)
            return result;
        start = to;
    }
    return 0;
}

/* When the last piece of an extent goes, the extent goes, or lingers; an arena only if it is
 * closed. */
static void extent_check_idle(struct extent *extent)
{
    const bool stays = extent->class == NO_CLASS ? !extent->closed : extent->original;
    if (stays || extent->live_bytes != 0 || extent->idle_since != 0)
        return;
    if (layer.options.linger_ms == 0 || extent->closed) {
        extent_destroy(extent);
        return;
    }
    extent->idle_since = layer_now_ms();
    layer.idle++;
}

/* Extents that have lingered for long enough go. */
void extents_expire(void)
{
    static uint64_t looked;
    const uint64_t now = layer_now_ms();
    if (now == looked)
        return;
    looked = now;
    for (uint32_t i = layer.extents; i-- > 0;) {
        struct extent *extent = layer_sorted[i];
        if (extent->idle_since == 0 || now - extent->idle_since < layer.options.linger_ms)
            continue;
        layer.idle--;
        extent_destroy(extent);
    }
}

static int part_make_foreign(struct extent *extent, uintptr_t start, uintptr_t end)
{
    const int result = extent_make_foreign(extent, start, end);
    extent_check_idle(extent);
    return result;
}

int range_make_foreign(uintptr_t start, uintptr_t end)
{
    return range_each(start, end, part_make_foreign);
}

static int part_release(struct extent *extent, uintptr_t start, uintptr_t end)
{
    const int result = extent_release(extent, start, end);
    extent_check_idle(extent);
    return result;
}

int range_release(uintptr_t start, uintptr_t end)
{
    return range_each(start, end, part_release);
}

int range_punch(uintptr_t start, uintptr_t end)
{
    return range_each(start, end, extent_punch);
}

/*
 * After a call of the kernel that failed half-way: what it has unmapped is not the layer's any
 * more.
 */
static int part_resync(struct extent *extent, uintptr_t start, uintptr_t end)
{
    static unsigned char resident[4096];
    size_t pages = sizeof(resident);
    while (start < end) {
        const size_t left = (end - start) / layer.page;
        pages = pages < left ? pages : left;
        const uintptr_t to = start + pages * layer.page;
        const long result =
            sys_call(SYS_mincore, (long)start, (long)(to - start), (long)resident, 0, 0, 0);
        if (result == -ENOMEM && pages > 1) {
            pages /= 2; /* there is a hole somewhere: closer */
            continue;
        }
        if (result == -ENOMEM && extent_make_foreign(extent, start, to) != 0)
            lock_give_up();
        start = to;
        pages = pages * 2 < sizeof(resident) ? pages * 2 : sizeof(resident);
    }
    extent_check_idle(extent);
    return 0;
}

void range_resync(uintptr_t start, uintptr_t end)
{
    range_each(start, end, part_resync);
}

/* Closes an arena: its copies stay what they are, and all that is free goes. */
static int arena_dissolve(struct extent *arena)
{
    const int result = extent_punch(arena, arena->start, extent_end(arena));
    if (result != 0)
        return result;
    struct mf_area area;
    for (uintptr_t at = arena->start; mf_space_next(arena->live, at, &area) == 0;
         at = area_end(&area))
        layer.stats.live_pieces += tag_state(&area) == STATE_LIVE;
    arena->closed = true;
    extent_check_idle(arena);
    return 0;
}

static int extent_dissolve(struct extent *extent)
{
    int result = extent_punch(extent, extent->start, extent_end(extent));
    if (result == 0)
        result = extent_make_foreign(extent, extent->start, extent_end(extent));
    if (result != 0)
        return result;
    if (extent->idle_since != 0)
        layer.idle--;
    extent_destroy(extent);
    return 0;
}

/*
 * Makes plain kernel mappings of all carved pieces, and unmaps all that no piece lies in; copies
 * stay known as such. 0, or the kernel's negative errno with some extents left as they were.
 */
int extents_dissolve(void)
{
    uint32_t left;
    layer.stats.live_pieces = 0;
    for (uintptr_t above = UINTPTR_MAX; (left = extents_below(above)) > 0;) {
        struct extent *extent = layer_sorted[left - 1];
        above = extent->start;
        const int result =
            extent->class == NO_CLASS ? arena_dissolve(extent) : extent_dissolve(extent);
        if (result != 0)
            return result;
    }
    return 0;
}

/* The program is about to change, or has changed, the kernel mapping of visible pages. 0, -ENOMEM.
 */
int range_mark_changed(uintptr_t start, uintptr_t end, uint64_t bits)
{
    while (start < end) {
        struct extent *extent = extent_at_or_above(start);
        if (extent == NULL || extent->start >= end)
            return 0;
        const uintptr_t from = max_address(start, extent->start);
        const uintptr_t to = min_address(extent_end(extent), end);
        const int result = mf_space_retag(extent->live, from, to - from, 0, bits);
        if (result != 0)
            return result;
        PROBE(split, from, to - from, bits);
        if (extent->class != NO_CLASS)
            class_of(extent->class)->changed++;
        start = to;
    }
    return 0;
}
