/* SPDX-License-Identifier: MIT */
/*
 * Dropping the private pages of released pieces: only those that were really written, and in
 * batches.
 *
 * A released private piece is PENDING and stands in the batch; when the batch is full (by pieces,
 * or by pages) all of it is looked through. A page that has to go is present or swapped and no file
 * page; PAGEMAP_SCAN finds those, pagemap's own bits where the kernel has no such call, and where
 * neither can be had everything in the range is dropped, which is always right and costs the next
 * reader a fault. Extents that end before that simply leave stale entries in the batch.
 *
 * pagemap is opened for each batch: a descriptor that is kept would show the parent's memory after
 * fork, and the program may close it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "linux/layer.h"

struct pending {
    struct extent *extent;
    uintptr_t start, end;
};
static struct pending batch[MAX_PENDING];
static uint32_t batched;

/* The kernel's struct pm_scan_arg and its numbers; headers before 6.7 do not have them. */
struct scan {
    uint64_t size, flags, start, end, walk_end, regions, regions_length, max_pages;
    uint64_t inverted, mask, any_of, returned;
};
struct scan_region {
    uint64_t start, end, categories;
};
#define SCAN_COMMAND 0xc0606610UL /* _IOWR('f', 16, struct scan) */
#define PAGE_FILE UINT64_C(4)
#define PAGE_PRESENT UINT64_C(8)
#define PAGE_SWAPPED UINT64_C(16)
_Static_assert(sizeof(struct scan) == 0x60, "the size is part of the command's number");

static int pagemap_open(void)
{
    return (int)sys_openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

/* Ranges to drop, collected so that the processors' TLBs are flushed once for all of them. */
enum { MAX_DROPS = 256, SELF = -10000 /* the kernel's PIDFD_SELF_THREAD, from 6.14 */ };
static struct iovec drops[MAX_DROPS];
static uint32_t drops_collected;

/* Locked behind the layer's back (mlockall in a handler that interrupted) it would be refused. */
static void drop_one(uintptr_t start, size_t length)
{
    if (sys_madvise(start, length, MADV_DONTNEED) != -EINVAL)
        return;
    sys_call(SYS_munlock, (long)start, (long)length, 0, 0, 0, 0);
    sys_madvise(start, length, MADV_DONTNEED);
}

static void drops_carry_out(void)
{
    size_t all = 0;
    for (uint32_t i = 0; i < drops_collected; i++)
        all += drops[i].iov_len;
    long done = -EBADF;
    if (drops_collected > 1)
        done =
            sys_call(SYS_process_madvise, SELF, (long)drops, drops_collected, MADV_DONTNEED, 0, 0);
    /* Kernels that cannot, or a range that stopped it: one by one, the done ones once more. */
    for (uint32_t i = 0; done != (long)all && i < drops_collected; i++)
        drop_one((uintptr_t)drops[i].iov_base, drops[i].iov_len);
    drops_collected = 0;
}

static void drop(uintptr_t start, uintptr_t end)
{
    if (drops_collected == MAX_DROPS)
        drops_carry_out();
    drops[drops_collected++] = (struct iovec){(void *)start, end - start};
    layer.stats.dropped_pages += (end - start) / layer.page;
}

/* 0, or a negative errno if the kernel cannot say. */
static int drop_by_scan(int pagemap, uintptr_t start, uintptr_t end)
{
    struct scan_region regions[64];
    struct scan scan = {.size = sizeof(scan),
                        .start = start,
                        .end = end,
                        .regions = (uint64_t)(uintptr_t)regions,
                        .regions_length = 64,
                        .inverted = PAGE_FILE,
                        .mask = PAGE_FILE,
                        .any_of = PAGE_PRESENT | PAGE_SWAPPED,
                        .returned = PAGE_FILE};
    while (scan.start < end) {
        const long found = sys_call(SYS_ioctl, pagemap, SCAN_COMMAND, (long)&scan, 0, 0, 0);
        if (sys_failed(found))
            return (int)found;
        for (long i = 0; i < found; i++)
            drop(regions[i].start, regions[i].end); /* NOLINT: the kernel has filled them */
        if (scan.walk_end <= scan.start)
            return -EIO;
        scan.start = scan.walk_end;
    }
    return 0;
}

static int drop_by_bits(int pagemap, uintptr_t start, uintptr_t end)
{
    enum { PAGES = 128 };
    uint64_t bits[PAGES];
    while (start < end) {
        size_t pages = (end - start) / layer.page;
        if (pages > PAGES)
            pages = PAGES;
        const long got = sys_pread(pagemap, bits, pages * 8, start / layer.page * 8);
        if (got != (long)(pages * 8))
            return -EIO;
        size_t from = 0;
        for (size_t i = 0; i <= pages; i++) {
            const bool private = /* NOLINTNEXTLINE: the kernel has filled them */
                i < pages && (bits[i] & (UINT64_C(3) << 62)) && !(bits[i] & (UINT64_C(1) << 61));
            if (private)
                continue;
            if (from < i)
                drop(start + from * layer.page, start + i * layer.page);
            from = i + 1;
        }
        start += pages * layer.page;
    }
    return 0;
}

static void drop_private(int pagemap, uintptr_t start, uintptr_t end)
{
    static bool no_scan;
    int result = -EBADF;
    if (pagemap >= 0 && !no_scan) {
        result = drop_by_scan(pagemap, start, end);
        if (result == -ENOTTY || result == -EINVAL)
            no_scan = true;
    }
    if (pagemap >= 0 && result != 0)
        result = drop_by_bits(pagemap, start, end);
    if (result != 0)
        drop(start, end);
}

void dirty_drop(uintptr_t start, uintptr_t end)
{
    const int pagemap = pagemap_open();
    drop_private(pagemap, start, end);
    if (pagemap >= 0)
        sys_close(pagemap);
    drops_carry_out();
}

/* What of the entry is still pending becomes free. */
static void settle(int pagemap, const struct pending *entry)
{
    struct extent *extent = entry->extent;
    if (extent->length == 0 || entry->start < extent->start || entry->end > extent_end(extent))
        return;
    struct mf_area area;
    for (uintptr_t at = entry->start; at < entry->end &&
                                      mf_space_next(extent->live, at, &area) == 0 &&
                                      area.start < entry->end;) {
        const uintptr_t from = area.start, to = area.start + area.length;
        at = to;
        if ((area.tag & STATE_MASK) != STATE_PENDING)
            continue;
        drop_private(pagemap, from, to);
        mf_space_remove(extent->live, from, to - from);
        layer.stats.pending_pages -= (to - from) / layer.page;
    }
}

void dirty_flush(void)
{
    if (batched == 0)
        return;
    const int pagemap = pagemap_open();
    for (uint32_t i = 0; i < batched; i++)
        settle(pagemap, &batch[i]);
    if (pagemap >= 0)
        sys_close(pagemap);
    drops_carry_out();
    batched = 0;
}

void dirty_add(struct extent *extent, uintptr_t start, uintptr_t end)
{
    layer.stats.pending_pages += (end - start) / layer.page;
    batch[batched++] = (struct pending){extent, start, end};
    if (batched == MAX_PENDING || layer.stats.pending_pages >= MAX_PENDING_PAGES)
        dirty_flush();
}
