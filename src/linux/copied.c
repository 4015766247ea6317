/* SPDX-License-Identifier: MIT */
/*
 * Copies: private pieces that cannot be carved, as pages of one arena, filled when they are mapped.
 * To the kernel an arena is one anonymous mapping, whatever is in it.
 *
 * There is an arena for each protection a copy can have, reserved whole when it is first needed. A
 * page that is given back stays as it is and is overwritten when it is handed out again, so that a
 * program which maps and unmaps in turn makes no more page faults; when far more are free than in
 * use, the free ones are dropped.
 *
 * A class that is copied because it overlaps keeps one extent of which nothing is handed out (its
 * *original*): MADV_DONTNEED and growth need the file's bytes again when the program's descriptor
 * may be closed. Classes that are copied because the process nears its limit of kernel maps have
 * none.
 *
 * A place is taken with the lock held, and filled without it: nobody knows of it yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>

#include "linux/cgroup.h"
#include "linux/fold_rules.h"
#include "linux/layer.h"
#include "linux/maps.h"

enum {
    BOUNCE = 4096,         /* bytes; the smallest page there is */
    FREE_PAGES = 4096,     /* free pages that are kept whatever is in use */
    RECOUNT_AFTER = 16384, /* pieces, once the process is past half its limit */
    RECOUNT_BEFORE = 1024,
};

struct arena {
    struct extent *extent;
    uintptr_t used_end;  /* above it nothing was ever handed out */
    uint64_t free_pages; /* below used_end, and not dropped */
    bool refused;
};
static struct arena arenas[2]; /* writable, and read-only */

static struct arena *arena_for(int protection)
{
    return &arenas[(protection & PROT_WRITE) ? 0 : 1];
}

/* Its record may come to be used for something else. */
void copy_forget_arena(const struct extent *extent)
{
    for (int i = 0; i < 2; i++)
        if (arenas[i].extent == extent)
            arenas[i] = (struct arena){.extent = NULL};
}

/* A quarter of the memory that this process may have. */
static uint64_t default_limit(void)
{
    struct sysinfo info = {0};
    if (sys_failed(sys_call(SYS_sysinfo, (long)&info, 0, 0, 0, 0, 0)))
        return 0;
    uint64_t memory = (uint64_t)info.totalram * info.mem_unit;
    const uint64_t limit = cgroup_memory_limit();
    if (limit < memory)
        memory = limit;
    return memory / 4 & ~(uint64_t)(layer.page - 1);
}

static bool arena_make(struct arena *arena, int protection)
{
    if (arena->extent != NULL && arena->extent->length != 0)
        return true;
    if (arena->refused)
        return false;
    arena->refused = true;
    if (layer.options.max_copy_bytes == UINT64_MAX)
        layer.options.max_copy_bytes = default_limit();
    const uint64_t most = layer.options.max_copy_bytes;
    /* Pieces of many sizes leave gaps between them: half as much again. */
    const uint64_t length = page_up(most + most / 2 + (MAX_COPY_PAGES * 16) * layer.page);
    if (most == 0 || length < most || length > address_space_left() || limits_forbid_private())
        return false;
    const long start =
        extent_map(length, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (sys_failed(start))
        return false;
    arena->extent = extent_add((uintptr_t)start, length);
    if (arena->extent == NULL) {
        sys_munmap((uintptr_t)start, length);
        return false;
    }
    arena->extent->protection = protection;
    arena->used_end = (uintptr_t)start;
    arena->free_pages = 0;
    arena->refused = false;
    sys_madvise((uintptr_t)start, length, MADV_HUGEPAGE);
    sys_call(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, start, (long)length,
             (long)"mapfold copies", 0);
    return true;
}

/*
 * Whether the process has more than half of the kernel maps it may have. Counting takes long, so it
 * is done anew when so many pieces have gone to the kernel that the answer may have changed.
 */
static bool maps_are_scarce(void)
{
    static uint64_t next_count;
    static bool scarce;
    uint64_t passed = layer.stats.copied;
    for (int i = 0; i < MF_PASS_REASONS; i++)
        passed += layer.stats.passed[i];
    if (passed < next_count)
        return scarce;
    const int64_t half = maps_limit() / 2, now = maps_count();
    scarce = now < 0 || now > half;
    const uint64_t left = scarce ? 0 : (uint64_t)(half - now) / 2;
    next_count = passed + (scarce ? RECOUNT_AFTER : left > RECOUNT_BEFORE ? left : RECOUNT_BEFORE);
    return scarce;
}

/* Whether what could not be carved, for this reason, should be copied. */
bool copy_wanted(const struct class *class, const struct request *request,
                 enum mf_pass_reason reason)
{
    if (!(request->protection & PROT_READ) || layer.options.max_copy_bytes == 0 ||
        layer.options.strict)
        return false;
    if (class->shared &&
        (!layer.options.snapshot || class->writable || request->protection != PROT_READ))
        return false;
    if (!class->shared && (reason == MF_PASS_DEPTH || reason == MF_PASS_EXTENTS))
        return request->length <= MAX_COPY_PAGES * layer.page;
    return (reason == MF_PASS_DEPTH || reason == MF_PASS_EXTENTS || reason == MF_PASS_FEW ||
            reason == MF_PASS_SPLIT) &&
           request->length <= SMALL_PAGES * layer.page && maps_are_scarce();
}

/* Takes a place for the request. 0 and *address, or a negative errno. */
int copy_place(struct class *class, const struct request *request, uintptr_t *address)
{
    struct arena *arena = arena_for(request->protection);
    if (!arena_make(arena, request->protection))
        return -ENOMEM;
    if (layer.stats.copies_live_bytes + request->length > layer.options.max_copy_bytes)
        return -ENOMEM;
    const struct mf_fit fit = {.length = request->length,
                               .align = layer.page,
                               .low = arena->extent->start,
                               .last = extent_end(arena->extent) - 1,
                               .policy = MF_FIT_LOWEST};
    struct mf_area area;
    if (mf_space_place(arena->extent->live, &fit,
                       STATE_LIVE | MF_TAG_MERGE | tag_of_class(class->id), request->offset,
                       &area) != 0)
        return -ENOMEM;
    const uintptr_t end = area.start + area.length;
    if (end > arena->used_end)
        arena->used_end = end;
    else
        arena->free_pages -= arena->free_pages < area.length / layer.page
                                 ? arena->free_pages
                                 : area.length / layer.page;
    if (class->copied == 0)
        class->executable = identity_may_execute(request->fd);
    class->copied += area.length;
    layer.stats.copies_live_bytes += area.length;
    layer.stats.live_bytes += area.length;
    arena->extent->live_bytes += area.length;
    *address = area.start;
    return 0;
}

/* A place came back. Now and then drops what is free. */
void copy_freed(struct extent *extent, uint64_t length)
{
    struct arena *arena = arenas[0].extent == extent ? &arenas[0] : &arenas[1];
    arena->free_pages += length / layer.page;
    if (arena->free_pages < FREE_PAGES + extent->live_bytes / layer.page / 2)
        return;
    uintptr_t from = extent->start;
    struct mf_area area;
    while (from < arena->used_end) {
        const bool more = mf_space_next(extent->live, from, &area) == 0;
        const uintptr_t to = more ? area.start : arena->used_end;
        if (from < to)
            sys_madvise(from, to - from, MADV_DONTNEED);
        if (!more)
            break;
        from = area.start + area.length;
    }
    arena->free_pages = 0;
}

/*
 * Reads the file's bytes into memory, with zeros behind its end; no lock. How many bytes of the
 * file there were, or a negative errno.
 */
static long fill(int fd, uintptr_t start, size_t length, uint64_t offset)
{
    size_t done = 0;
    while (done < length) {
        const long got = sys_pread(fd, (void *)(start + done), length - done, offset + done);
        if (got == -EINTR)
            continue;
        if (sys_failed(got))
            return got;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    /* Not for no bytes: what lies there may be another page, and a masked store to it is slow. */
    if (done < length)
        __builtin_memset((void *)(start + done), 0, length - done);
    return (long)done;
}

/*
 * The same for a place that may only be read: through /proc/self/mem, which writes where the
 * program may not, and leaves the kernel's mapping and the processors' TLBs alone.
 */
static long fill_read_only(int fd, uintptr_t start, size_t length, uint64_t offset)
{
    const int memory = (int)sys_openat(AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (memory < 0)
        return memory;
    char bytes[BOUNCE];
    long sum = 0;
    for (size_t done = 0; done < length && sum >= 0; done += BOUNCE) {
        const long got = fill(fd, (uintptr_t)bytes, BOUNCE, offset + done);
        if (sys_failed(got))
            sum = got;
        else if (sys_pwrite(memory, bytes, BOUNCE, start + done) != BOUNCE)
            sum = -EIO;
        else
            sum += got;
    }
    sys_close(memory);
    return sum;
}

/* Where that is forbidden: by changing what the program may do, for a moment. */
static long fill_protected(int fd, uintptr_t start, size_t length, uint64_t offset)
{
    const long opened = sys_mprotect(start, length, PROT_READ | PROT_WRITE);
    if (sys_failed(opened))
        return opened;
    const long got = fill(fd, start, length, offset);
    const long closed = sys_mprotect(start, length, PROT_READ);
    return sys_failed(closed) ? closed : got;
}

/*
 * Fills a place. 0, or a negative errno; -ERANGE: the file ends before the place's last page, and
 * there a mapping would fault.
 */
int copy_fill(const struct request *request, uintptr_t address)
{
    const size_t length = request->length;
    long got;
    if (request->protection & PROT_WRITE) {
        got = fill(request->fd, address, length, request->offset);
    } else {
        got = fill_read_only(request->fd, address, length, request->offset);
        if (sys_failed(got))
            got = fill_protected(request->fd, address, length, request->offset);
    }
    if (sys_failed(got))
        return (int)got;
    return length - (size_t)got >= layer.page ? -ERANGE : 0;
}

/*
 * Makes the class's original, if it has none. It may stay without: it must, if the class has copies
 * that are older than this request's. Without an original they pin no inode, so they may be of a
 * file that is gone, and whose number this request's file has got.
 */
void copy_keep_original(struct class *class, const struct request *request)
{
    uintptr_t start;
    size_t length;
    if (class->original != NULL || class->original_refused || class->copied != request->length)
        return;
    class->original_refused = true;
    if (reopen_map(request, &start, &length) != MF_PASS_REASONS)
        return;
    struct extent *extent = extent_add(start, length);
    if (extent == NULL) {
        sys_munmap(start, length);
        return;
    }
    extent->class = class->id;
    extent->shared = class->shared;
    extent->original = true;
    extent->protection = class->protection;
    class->original = extent;
    class->original_refused = false;
}

/* Where the original has those bytes of the class's file; 0 if it has them no longer. */
static uintptr_t original_at(const struct class *class, uint64_t offset, size_t length)
{
    struct extent *original = class->original;
    bool pending;
    if (original == NULL || offset + length > original->length)
        return 0;
    const uintptr_t start = original->start + offset;
    return extent_is_free(original, start, start + length, &pending) ? start : 0;
}

/* Reads [offset, offset + length) of the class's file into a writable place. */
static int refill(const struct class *class, uintptr_t start, size_t length, uint64_t offset)
{
    const uintptr_t original = original_at(class, offset, length);
    if (original == 0)
        return -ENOMEM;
    const long self = sys_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    const struct iovec to = {(void *)start, length};
    const struct iovec from = {(void *)original, length};
    const long got = sys_call(SYS_process_vm_readv, self, (long)&to, 1, (long)&from, 1, 0);
    return got == (long)length ? 0 : -ENOMEM;
}

/* The same for a place that may not be written, through /proc/self/mem; where that is not to be
 * had, the bytes stay. */
static void refill_protected(const struct class *class, uintptr_t start, size_t length,
                             uint64_t offset)
{
    const uintptr_t original = original_at(class, offset, length);
    if (original == 0)
        return;
    const int memory = (int)sys_openat(AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (memory < 0)
        return;
    sys_pwrite(memory, (const void *)original, length, start);
    sys_close(memory);
}

/* MADV_DONTNEED on a copied run: the file's bytes come back, where there is an original. */
void copy_refresh(uintptr_t start, uintptr_t end)
{
    struct extent *extent = extent_at_or_above(start);
    struct mf_area area;
    while (start < end && mf_space_find(extent->live, start, &area) == 0) {
        const uintptr_t to = area.start + area.length < end ? area.start + area.length : end;
        const struct class *class = class_of(tag_class(area.tag));
        if ((extent->protection & PROT_WRITE) &&
            !(area.tag & (CHANGED_PROTECTION | CHANGED_FOR_GOOD)))
            refill(class, start, to - start, start + area.delta);
        else
            refill_protected(class, start, to - start, start + area.delta);
        start = to;
    }
}

/*
 * Grows a copied piece by moving it to a new place, which has what the old one had and behind that
 * the file's bytes. The address, or a negative errno.
 */
long copy_grow(uintptr_t start, size_t old_length, size_t new_length)
{
    struct extent *extent = extent_at_or_above(start);
    struct mf_area area;
    if (mf_space_find(extent->live, start, &area) != 0 || (area.tag & CHANGED_MASK) ||
        area.start + area.length < start + old_length || !(extent->protection & PROT_WRITE))
        return -ENOMEM;
    struct class *class = class_of(tag_class(area.tag));
    const struct request request = {
        .length = new_length, .protection = extent->protection, .offset = start + area.delta};
    uintptr_t place;
    int result = copy_place(class, &request, &place);
    if (result != 0)
        return result;
    __builtin_memcpy((void *)place, (const void *)start, old_length);
    result =
        refill(class, place + old_length, new_length - old_length, request.offset + old_length);
    if (result != 0) {
        range_release(place, place + new_length);
        return result;
    }
    range_release(start, start + old_length);
    return (long)place;
}
