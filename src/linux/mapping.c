/* SPDX-License-Identifier: MIT */
/*
 * mf_mmap and mf_munmap: the ways a request can go.
 *
 *   a request that is never folded, or of few pieces so far  -> the kernel
 *   its class has an extent with a spot, or can get one      -> carved
 *   it overlaps too deeply, and may be copied                -> copied
 *   anything else                                            -> the kernel, and its class counts it
 *
 * Identity is asked for, and files are read, without the lock. Whatever the kernel maps by itself
 * is compared with the extents: it can lie in one only if somebody went behind the layer's back.
 */
#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "linux/fold_rules.h"
#include "linux/layer.h"
#include "linux/probes.h"

static long raw_mmap(const struct request *request, size_t length)
{
    return sys_mmap(request->address, length, request->protection, request->flags, request->fd,
                    request->offset);
}

/* Whether this request could be folded, by what stands in it alone. */
static bool may_fold(const struct request *request, size_t length)
{
    const int harmless = MAP_NORESERVE | MAP_DENYWRITE | MAP_EXECUTABLE | MAP_NONBLOCK;
    const int type = request->flags & MAP_TYPE;
    return request->fd >= 0 && (type == MAP_PRIVATE || type == MAP_SHARED) &&
           (request->flags & ~(MAP_TYPE | harmless)) == 0 &&
           (request->protection & ~(PROT_READ | PROT_WRITE)) == 0 && length != 0 &&
           request->length >= length && (request->offset & (layer.page - 1)) == 0 &&
           request->offset + request->length > request->offset &&
           request->offset + request->length <= INT64_MAX;
}

/* MAP_FIXED or MAP_FIXED_NOREPLACE, which may lie on folded memory or on spots that are held free.
 */
static long map_fixed(const struct request *request, size_t length)
{
    const uintptr_t start = request->address, end = start + request->length;
    if ((extents_now() == 0 && plain_count() == 0) || !range_is_sane(start, length))
        return raw_mmap(request, length);
    const enum entry entry = layer_enter();
    if (entry != ENTER_LOCKED) {
        const long result = raw_mmap(request, length);
        if (entry == ENTER_INTERRUPTED && !sys_failed(result) && layer_touches(start, end) &&
            !layer_queue(LATE_FOREIGN, start, end))
            lock_give_up();
        return result;
    }
    layer_pass(MF_PASS_FLAGS);
    /* Holes must not stand in its way; where a piece does, the kernel finds it. */
    int punched = 0;
    if ((request->flags & MAP_FIXED_NOREPLACE) && range_touches(start, end))
        punched = range_punch(start, end);
    const long result = punched != 0 ? punched : raw_mmap(request, length);
    if (!sys_failed(result)) {
        plain_remove(start, end);
        if (range_make_foreign(start, end) != 0)
            lock_give_up();
    } else if (result != -EEXIST) {
        range_resync(start, end); /* a file's own mmap may fail when the old mapping has gone */
    }
    layer_leave();
    return result;
}

/* A program that has limited its address space since must not miss what extents take of it. */
static bool dissolve(void)
{
    if (layer_enter() != ENTER_LOCKED)
        return false;
    const int result = extents_dissolve();
    layer_leave();
    return result == 0;
}

/* The kernel's mapping, remembered if its file may come to be folded, and checked for strangers. */
static long map_plainly(const struct request *request, size_t length, enum mf_pass_reason reason,
                        bool identified)
{
    const bool count =
        reason != MF_PASS_FLAGS && reason != MF_PASS_FILE && reason != MF_PASS_LOCKED;
    long result = count && spare_refuses() ? -ENOMEM : raw_mmap(request, length);
    if (result == -ENOMEM && extents_now() != 0 && address_space_is_limited() && dissolve())
        result = raw_mmap(request, length);
    /* The maps that a file mapping has met the limit with are for others. */
    if (result == -ENOMEM && spare_release() && !count)
        result = raw_mmap(request, length);
    if (sys_failed(result)) {
        if (result == -ENOMEM)
            layer_count(&layer.stats.refused_maps);
        return result;
    }
    PROBE(pass, result, length, request->offset, request->file.inode, reason);
    layer_pass(reason);
    if ((!count && extents_now() == 0 && plain_count() == 0) || layer_enter() != ENTER_LOCKED)
        return result;
    const uintptr_t start = (uintptr_t)result, end = start + request->length;
    if (range_touches(start, end) && range_make_foreign(start, end) != 0)
        lock_give_up();
    if (count) {
        memory_prepare();
        spare_prepare();
        plain_add(start, request->length, identified ? class_get(request) : NULL);
    } else {
        plain_remove(start, end);
    }
    layer_leave();
    return result;
}

static void count_piece(void)
{
    if (++layer.stats.live_pieces > layer.stats.peak_live_pieces)
        layer.stats.peak_live_pieces = layer.stats.live_pieces;
}

static void count_copy(uint64_t length)
{
    layer.stats.copied++;
    layer.stats.copied_bytes += length;
    count_piece();
}

/* What was placed and counted cannot be had after all: its spot is given back. */
static void place_undo(const struct request *request, uintptr_t address, bool copied)
{
    if (layer_enter() != ENTER_LOCKED)
        return;
    layer.stats.carved -= !copied;
    layer.stats.copied -= copied;
    layer.stats.copied_bytes -= copied ? request->length : 0;
    layer.stats.live_pieces -= layer.stats.live_pieces > 0;
    range_release(address, address + request->length);
    layer_leave();
}

/* Fills the place of a copy. Its address, or 0 if the file cannot be read so. */
static uintptr_t copy_finish(const struct request *request, uintptr_t address)
{
    if (copy_fill(request, address) != 0) {
        place_undo(request, address, true);
        return 0;
    }
    PROBE(copy, address, request->length, request->offset, request->file.inode);
    return address;
}

/* An identified request. The address, or 0 and why the kernel should have it. */
static uintptr_t map_folded(const struct request *request, enum mf_pass_reason *reason)
{
    uintptr_t address = 0;
    bool copied = false;
    const enum entry entry = layer_enter();
    if (entry != ENTER_LOCKED) {
        *reason = entry == ENTER_INTERRUPTED ? MF_PASS_INTERRUPTED : MF_PASS_OFF;
        return 0;
    }
    memory_prepare();
    struct class *class = class_get(request);
    *reason = MF_PASS_NO_MEMORY;
    if (class != NULL) {
        class->held++;
        if (class_carve(class, request, &address, reason) == 0) {
            layer.stats.carved++;
            count_piece();
            PROBE(carve, address, request->length, request->offset, request->file.inode);
        } else if (copy_wanted(class, request, *reason)) {
            copied = copy_place(class, request, &address) == 0;
            if (copied)
                count_copy(request->length);
            if (copied && *reason == MF_PASS_DEPTH)
                copy_keep_original(class, request);
        }
        class->held--;
        class_put(class);
    }
    layer_leave();
    if (copied)
        return copy_finish(request, address);
    if (address != 0 && (request->flags & MAP_TYPE) == MAP_PRIVATE &&
        !identity_may_read(request->fd)) {
        place_undo(request, address, false);
        *reason = MF_PASS_FILE;
        return 0;
    }
    return address;
}

/* Mappings in a row whose files were asked for and that did not fold. */
static uint32_t asked_in_vain;

static bool worth_asking(void)
{
    return fold_asks(__atomic_load_n(&asked_in_vain, __ATOMIC_RELAXED),
                     (uint32_t)__atomic_load_n(&layer.stats.maps, __ATOMIC_RELAXED));
}

static void asked(bool folded)
{
    const uint32_t in_vain = __atomic_load_n(&asked_in_vain, __ATOMIC_RELAXED);
    if (folded ? in_vain != 0 : in_vain < ASKED_IN_VAIN)
        __atomic_store_n(&asked_in_vain, folded ? 0 : in_vain + 1, __ATOMIC_RELAXED);
}

static long map(struct request *request, size_t length)
{
    if (request->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
        return map_fixed(request, length);
    if (!may_fold(request, length))
        return map_plainly(request, length, MF_PASS_FLAGS, false);
    if (layer.options.off)
        return map_plainly(request, length, MF_PASS_OFF, false);
    if (future_lock())
        return map_plainly(request, length, MF_PASS_LOCKED, false);
    /* With so few pieces in all, no class can have enough: spare the look at the file. */
    if ((extents_now() == 0 && plain_count() + 1 < layer.options.promote_pieces) || !worth_asking())
        return map_plainly(request, length, MF_PASS_FEW, false);
    enum mf_pass_reason reason = identity_of(request);
    const bool identified = reason == MF_PASS_REASONS;
    const uintptr_t address = identified ? map_folded(request, &reason) : 0;
    asked(address != 0);
    return address != 0 ? (long)address : map_plainly(request, length, reason, identified);
}

static uint64_t timer(void)
{
    struct timespec now;
    if (!layer.options.timed || clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void *mf_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    layer_begin();
    struct request request = {.address = (uintptr_t)address,
                              .length = page_up(length),
                              .protection = protection,
                              .flags = flags,
                              .fd = fd,
                              .offset = (uint64_t)offset};
    const uint64_t begun = timer();
    const long result = map(&request, length);
    layer_count(&layer.stats.maps);
    if (begun != 0)
        layer.stats.nanoseconds += timer() - begun;
    if (sys_failed(result)) {
        errno = (int)-result;
        return MAP_FAILED;
    }
    return (void *)result;
}

/* The middle of a kernel map costs another one. */
long kernel_unmap(uintptr_t start, size_t length)
{
    const long result = sys_munmap(start, length);
    return result == -ENOMEM && spare_release() ? sys_munmap(start, length) : result;
}

/*
 * Unmaps a range that touches extents. What lies outside of them goes first and from the top down,
 * since of that the kernel may refuse a part: beyond the end of the address space, or at the limit
 * of maps.
 */
long range_unmap(uintptr_t start, uintptr_t end)
{
    plain_remove(start, end);
    uintptr_t to = end;
    for (uint32_t i = extents_below(end); i-- > 0 && extent_end(layer_sorted[i]) > start;) {
        const uintptr_t from = extent_end(layer_sorted[i]);
        const long result = from < to ? kernel_unmap(from, to - from) : 0;
        if (sys_failed(result))
            return result;
        to = layer_sorted[i]->start;
    }
    const long result = start < to ? kernel_unmap(start, to - start) : 0;
    if (sys_failed(result))
        return result;
    const uint64_t before = layer.stats.live_bytes;
    const int released = range_release(start, end);
    if (layer.stats.live_bytes != before && layer.stats.live_pieces > 0)
        layer.stats.live_pieces--;
    return released;
}

static long unmap(uintptr_t start, size_t length)
{
    if ((extents_now() == 0 && plain_count() == 0) || !range_is_sane(start, length))
        return sys_munmap(start, length);
    const uintptr_t end = start + page_up(length);
    const enum entry entry = layer_enter();
    if (entry == ENTER_INTERRUPTED && layer_touches(start, end))
        return layer_queue(LATE_UNMAP, start, end) ? 0 : -ENOMEM;
    if (entry != ENTER_LOCKED)
        return sys_munmap(start, length);
    if (range_touches(start, end)) {
        const long result = range_unmap(start, end);
        layer_leave();
        return result;
    }
    plain_remove(start, end);
    layer_leave();
    return kernel_unmap(start, length);
}

int mf_munmap(void *address, size_t length)
{
    layer_begin();
    const uint64_t begun = timer();
    const long result = unmap((uintptr_t)address, length);
    layer_count(&layer.stats.unmaps);
    if (begun != 0)
        layer.stats.nanoseconds += timer() - begun;
    if (sys_failed(result)) {
        errno = (int)-result;
        return -1;
    }
    return 0;
}
