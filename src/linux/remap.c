/* SPDX-License-Identifier: MIT */
/*
 * mremap. Shrinking is unmapping the tail. Growing in place takes the free pages behind a piece in
 * its extent. Everything else is the kernel's: it moves the pages themselves, private ones too, out
 * of the extent, and what it leaves behind is a real hole, not the layer's any more; the moved
 * piece is a plain kernel mapping. Where a range has holes that only the layer knows of, they are
 * made real first, so that the kernel's answer is right.
 *
 * A piece that one call made may lie in several kernel maps: where an earlier piece was changed in
 * part, the kernel cannot always merge again what was undone. Such a piece is moved in parts.
 */
#include <errno.h>
#include <sys/mman.h>

#include "linux/layer.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

struct remap {
    uintptr_t from;
    size_t old_length, new_length; /* as given */
    int flags;
    uintptr_t to;
};

static long raw_remap(const struct remap *remap)
{
    return sys_mremap(remap->from, remap->old_length, remap->new_length, remap->flags, remap->to);
}

/* Whether [start, end) is one live area of one extent, as it was made. */
static struct extent *whole_piece(uintptr_t start, uintptr_t end, struct mf_area *area)
{
    struct extent *extent = extent_at_or_above(start);
    if (extent == NULL || extent->start > start || mf_space_find(extent->live, start, area) != 0)
        return NULL;
    if ((area->tag & (STATE_MASK | CHANGED_MASK)) != STATE_LIVE || area->start + area->length < end)
        return NULL;
    return extent;
}

/* Takes the pages behind a carved piece. False: it cannot grow there. */
static bool grow_in_place(uintptr_t start, uintptr_t end, uintptr_t new_end)
{
    struct mf_area area;
    struct extent *extent = whole_piece(start, end, &area);
    bool pending;
    if (extent == NULL || extent->class == NO_CLASS || new_end > extent_end(extent) ||
        !extent_is_free(extent, end, new_end, &pending))
        return false;
    if (pending)
        extent_settle(extent, end, new_end);
    return extent_take(extent, end, new_end) == 0;
}

/* Moves whole pages, of however many kernel maps. How many bytes it could move. keep:
 * MREMAP_DONTUNMAP or 0. */
static size_t pages_move(uintptr_t from, size_t length, uintptr_t to, int keep)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | keep;
    size_t done = 0, part = length;
    while (done < length) {
        part = part < length - done ? part : length - done;
        const long result = sys_mremap(from + done, part, part, flags, to + done);
        if (!sys_failed(result))
            done += part;
        else if (result == -EFAULT && part > layer.page)
            part = page_up(part / 2);
        else if (result != -ENOMEM || !spare_release())
            break;
    }
    return done;
}

/*
 * Moves pages back home. Another thread may have got that place meanwhile, from a call of the
 * kernel's that the layer does not see: then it is left alone, and the pages are lost. False: some
 * are.
 */
static bool pages_return(uintptr_t from, size_t length, uintptr_t home)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    const long claimed = length != 0 ? sys_mmap(home, length, PROT_NONE, flags, -1, 0) : 0;
    const size_t back = (uintptr_t)claimed == home ? pages_move(from, length, home, 0) : 0;
    if (back == length)
        return true;
    if ((uintptr_t)claimed == home)
        sys_munmap(home + back, length - back);
    else if (!sys_failed(claimed))
        sys_munmap((uintptr_t)claimed, length); /* before Linux 4.17 the address is a hint */
    if (range_make_foreign(home + back, home + length) != 0)
        lock_give_up();
    return false;
}

/* The last page goes first, and grows: that alone can fail for want of room. */
static long remap_in_parts(const struct remap *remap, uintptr_t old_end, uintptr_t new_end)
{
    const uintptr_t last = (old_end < new_end ? old_end : new_end) - layer.page;
    const size_t before = last - remap->from, new_length = new_end - remap->from;
    long to = (long)remap->to;
    if (!(remap->flags & MREMAP_FIXED))
        to = sys_mmap(0, new_length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sys_failed(to))
        return to;
    bool whole = true;
    const uintptr_t place = (uintptr_t)to;
    const long grown =
        sys_mremap(last, layer.page, new_end - last, MREMAP_MAYMOVE | MREMAP_FIXED, place + before);
    if (!sys_failed(grown)) {
        const size_t moved = pages_move(remap->from, before, place, 0);
        if (moved == before) {
            if (new_end < old_end)
                sys_munmap(new_end, old_end - new_end);
            return to;
        }
        sys_munmap(place + moved, before - moved); /* the way back may need kernel maps */
        whole = pages_return(place, moved, remap->from);
        whole &= pages_return(place + before, layer.page, last);
    }
    sys_munmap(place, new_length);
    return whole ? -ENOMEM : -EFAULT;
}

/* What is left behind stays mapped, so on the way back nobody else can be there. */
static long remap_in_parts_keeping(const struct remap *remap, size_t length)
{
    long to = (long)remap->to;
    if (!(remap->flags & MREMAP_FIXED))
        to = sys_mmap(0, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sys_failed(to))
        return to;
    const uintptr_t place = (uintptr_t)to;
    const size_t moved = pages_move(remap->from, length, place, MREMAP_DONTUNMAP);
    if (moved == length)
        return to;
    sys_munmap(place + moved, length - moved); /* the way back may need kernel maps */
    const size_t back = pages_move(place, moved, remap->from, 0);
    sys_munmap(place + back, moved - back);
    return back == moved ? -ENOMEM : -EFAULT;
}

/* The kernel has found several maps where the program made one piece: it would not have. */
static long remap_split_piece(const struct remap *remap, uintptr_t old_end, uintptr_t new_end)
{
    struct mf_area area;
    const struct extent *extent =
        old_end > remap->from ? whole_piece(remap->from, old_end, &area) : NULL;
    if (extent == NULL || extent->class == NO_CLASS)
        return -EFAULT;
    if (remap->flags & MREMAP_DONTUNMAP) /* which takes no other length */
        return remap_in_parts_keeping(remap, old_end - remap->from);
    return (remap->flags & MREMAP_MAYMOVE) ? remap_in_parts(remap, old_end, new_end) : -ENOMEM;
}

/* The kernel does it; afterwards the tables say what it did. */
static long remap_by_kernel(const struct remap *remap, uintptr_t old_end, uintptr_t new_end)
{
    const bool fixed = (remap->flags & MREMAP_FIXED) != 0;
    const uintptr_t target_end = remap->to + (new_end - remap->from);
    /* It may leave parts of the target alone, if the old range has holes. */
    if (fixed && target_end > remap->to) {
        const int punched = range_punch(remap->to, target_end);
        if (punched != 0)
            return punched;
    }
    long result = raw_remap(remap);
    if (result == -EFAULT)
        result = remap_split_piece(remap, old_end, new_end);
    if (sys_failed(result)) {
        range_resync(remap->from, old_end);
        if (fixed && target_end > remap->to)
            range_resync(remap->to, target_end);
        return result;
    }
    const uintptr_t made = (uintptr_t)result, made_end = made + (new_end - remap->from);
    int torn = 0;
    if (made != remap->from && !(remap->flags & MREMAP_DONTUNMAP) && old_end > remap->from) {
        plain_remove(remap->from, old_end);
        torn |= range_make_foreign(remap->from, old_end);
    }
    if (made != remap->from) {
        plain_remove(made, made_end);
        torn |= range_make_foreign(made, made_end);
    }
    if (made == remap->from && new_end < old_end) {
        plain_remove(new_end, old_end);
        torn |= range_make_foreign(new_end, old_end);
    }
    if (torn != 0)
        lock_give_up();
    return result;
}

/* Whether the page at address is live. */
static bool is_live(uintptr_t address, bool *copied)
{
    const struct extent *extent = extent_at_or_above(address);
    struct mf_area area;
    if (extent == NULL || extent->start > address ||
        mf_space_find(extent->live, address, &area) != 0)
        return false;
    *copied = extent->class == NO_CLASS;
    return (area.tag & STATE_MASK) == STATE_LIVE;
}

static long remap_ours(const struct remap *remap)
{
    const uintptr_t old_end = remap->from + page_up(remap->old_length);
    const uintptr_t new_end = remap->from + page_up(remap->new_length);
    const bool simple = (remap->flags & ~MREMAP_MAYMOVE) == 0;
    bool copied = false;
    const bool live = remap->old_length != 0 && is_live(remap->from, &copied);
    if (simple && live) {
        if (new_end <= old_end) {
            const long result = new_end < old_end ? range_unmap(new_end, old_end) : 0;
            return sys_failed(result) ? result : (long)remap->from;
        }
        if (copied)
            return (remap->flags & MREMAP_MAYMOVE)
                       ? copy_grow(remap->from, old_end - remap->from, new_end - remap->from)
                       : -ENOMEM;
        if (!range_has_hole(remap->from, old_end) && grow_in_place(remap->from, old_end, new_end))
            return (long)remap->from;
    }
    /* To the kernel a copy is anonymous: it would put zeros where the file's bytes belong. */
    if (live && copied && (remap->flags & MREMAP_DONTUNMAP))
        return -EINVAL;
    if (live && copied && new_end > old_end)
        return -ENOMEM;
    /* It cannot grow in place into the extent: the kernel sees that its pages are in the way. */
    const uintptr_t looked_at = old_end > remap->from ? old_end : remap->from + layer.page;
    const int result = range_punch(remap->from, looked_at);
    return result != 0 ? result : remap_by_kernel(remap, old_end, new_end);
}

/* Where the tables cannot be read: what lies in an arena may be a copy, which must not get zeros.
 */
static long remap_unknown(const struct remap *remap, size_t old_length, size_t new_length)
{
    if (old_length != 0 && (new_length > old_length || (remap->flags & MREMAP_DONTUNMAP)) &&
        layer_touches_copies(remap->from, remap->from + old_length))
        return (remap->flags & MREMAP_DONTUNMAP) ? -EINVAL : -ENOMEM;
    return raw_remap(remap);
}

static long remap_any(const struct remap *remap)
{
    layer_begin();
    const int known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    const size_t old_length = page_up(remap->old_length), new_length = page_up(remap->new_length);
    const bool fixed = (remap->flags & MREMAP_FIXED) != 0;
    const uintptr_t addresses = remap->from | (fixed ? remap->to : 0);
    const bool sane = (addresses & (layer.page - 1)) == 0 && (remap->flags & ~known) == 0 &&
                      new_length != 0 && old_length >= remap->old_length &&
                      remap->from + old_length >= remap->from &&
                      remap->from + new_length > remap->from;
    if (!sane || (extents_now() == 0 && plain_count() == 0))
        return raw_remap(remap);
    const enum entry entry = layer_enter();
    const uintptr_t old_end = remap->from + (old_length ? old_length : layer.page);
    if (entry == ENTER_INTERRUPTED && (layer_touches(remap->from, old_end) ||
                                       (fixed && layer_touches(remap->to, remap->to + new_length))))
        return -ENOMEM;
    if (entry != ENTER_LOCKED)
        return remap_unknown(remap, old_length, new_length);
    long result;
    if (range_touches(remap->from, old_end))
        result = remap_ours(remap);
    else
        result = remap_by_kernel(remap, remap->from + old_length, remap->from + new_length);
    layer_leave();
    return result;
}

void *mf_mremap(void *old_address, size_t old_length, size_t new_length, int flags,
                void *new_address)
{
    const struct remap remap = {(uintptr_t)old_address, old_length, new_length, flags,
                                (uintptr_t)new_address};
    const long result = remap_any(&remap);
    if (sys_failed(result)) {
        errno = (int)-result;
        return MAP_FAILED;
    }
    return (void *)result;
}
