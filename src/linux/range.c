/* SPDX-License-Identifier: MIT */
/*
 * The calls that work on a range of what is mapped: mprotect, madvise, msync, mincore, mlock.
 *
 * To the kernel a hole in an extent is mapped, to the program it is not. So a range is cut into
 * runs of visible pages, which go to the kernel as they are, and holes, where the kernel would have
 * found nothing: mprotect, mincore, munlock and populating stop at the first hole with ENOMEM, what
 * they did before it stays done; madvise and msync go on behind it and say ENOMEM at the end; mlock
 * is said to fail without bringing pages in, so its holes are made real before the kernel is asked.
 *
 * Whether arguments are right at all is asked of the kernel with a length of 0 first, where the
 * range begins with a hole, so that EINVAL comes before ENOMEM.
 */
#include <errno.h>
#include <sys/mman.h>

#include "linux/layer.h"

static int answer(long result)
{
    if (!sys_failed(result))
        return (int)result;
    errno = (int)-result;
    return -1;
}

/* How a call goes on. */
enum way {
    WAY_KERNEL, /* not ours: the kernel gets it as it is, and no lock is held */
    WAY_OURS,   /* it touches extents: cut it; the lock is held */
};

/* changed: what the call does to the kernel's mapping, 0 for one that changes nothing. */
static enum way range_enter(uintptr_t start, size_t length, uint64_t changed)
{
    layer_begin();
    if (extents_now() == 0 || !range_is_sane(start, length))
        return WAY_KERNEL;
    const uintptr_t end = start + page_up(length);
    const enum entry entry = layer_enter();
    if (entry == ENTER_INTERRUPTED && changed != 0 && layer_touches(start, end) &&
        !layer_queue(LATE_CHANGED, start, end))
        lock_give_up();
    if (entry != ENTER_LOCKED)
        return WAY_KERNEL;
    if (range_touches(start, end))
        return WAY_OURS;
    layer_leave();
    return WAY_KERNEL;
}

static long raw_protect(uintptr_t start, size_t length, int protection, int key)
{
    if (key == -1)
        return sys_mprotect(start, length, protection);
    return sys_call(SYS_pkey_mprotect, (long)start, (long)length, protection, key, 0, 0);
}

/* At the limit of maps, with those that are held back for changes of parts. */
static long kernel_protect(uintptr_t start, size_t length, int protection, int key)
{
    const long result = raw_protect(start, length, protection, key);
    return result == -ENOMEM && spare_release() ? raw_protect(start, length, protection, key)
                                                : result;
}

/*
 * Up to where there are no copies of what the kernel would not let have this protection: a shared
 * piece of a descriptor that may not write, or a file whose mount allows nothing to be executed.
 */
static uintptr_t allowed_end(uintptr_t start, uintptr_t end, int protection)
{
    while (start < end) {
        const struct run run = run_at(start, end);
        struct mf_area area;
        for (uintptr_t at = run.start; run.copied && at < run.end; at = area.start + area.length) {
            if (mf_space_find(extent_at_or_above(at)->live, at, &area) != 0)
                return at;
            const struct class *class = class_of(tag_class(area.tag));
            if (((protection & PROT_WRITE) && class->shared) ||
                ((protection & PROT_EXEC) && !class->executable))
                return at;
        }
        start = run.end;
    }
    return end;
}

/* The first page that cannot be changed ends it, and what lies before is changed. */
static long protect_ours(uintptr_t start, uintptr_t end, int protection, int key)
{
    const uintptr_t visible = visible_end(start, end);
    const uintptr_t allowed =
        (protection & (PROT_WRITE | PROT_EXEC)) ? allowed_end(start, visible, protection) : visible;
    const long stopped = allowed < visible ? -EACCES : visible < end ? -ENOMEM : 0;
    const int known = PROT_READ | PROT_WRITE | PROT_EXEC;
    if (allowed == start) {
        const int valid = known | 0x8 /* PROT_SEM */;
        return (protection & ~valid) ? -EINVAL : stopped;
    }
    const bool plain = key == -1 && (protection & ~known) == 0;
    if (range_mark_changed(start, allowed, plain ? CHANGED_PROTECTION : CHANGED_FOR_GOOD) != 0)
        return -ENOMEM;
    const long result = kernel_protect(start, allowed - start, protection, key);
    return result == 0 ? stopped : result;
}

static long protect(uintptr_t start, size_t length, int protection, int key)
{
    if (range_enter(start, length, CHANGED_PROTECTION) == WAY_KERNEL)
        return kernel_protect(start, length, protection, key);
    const long result = protect_ours(start, start + page_up(length), protection, key);
    layer_leave();
    return result;
}

int mf_mprotect(void *address, size_t length, int protection)
{
    return answer(protect((uintptr_t)address, length, protection, -1));
}

int mf_pkey_mprotect(void *address, size_t length, int protection, int key)
{
    return answer(protect((uintptr_t)address, length, protection, key));
}

/* Advice that older headers lack. */
enum {
    ADVICE_COLD = 20,
    ADVICE_PAGEOUT,
    ADVICE_POPULATE_READ,
    ADVICE_POPULATE_WRITE,
    ADVICE_DONTNEED_LOCKED,
};

/* What an advice does to the kernel's mapping. */
static uint64_t advice_changes(int advice)
{
    switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
        return CHANGED_ADVICE;
    case MADV_WILLNEED:
    case MADV_DONTNEED:
    case MADV_FREE:
    case MADV_REMOVE:
    case MADV_WIPEONFORK: /* no file mapping can have it */
    case ADVICE_COLD:
    case ADVICE_PAGEOUT:
    case ADVICE_POPULATE_READ:
    case ADVICE_POPULATE_WRITE:
    case ADVICE_DONTNEED_LOCKED:
        return 0;
    default:
        return CHANGED_FOR_GOOD;
    }
}

static bool advice_stops_at_holes(int advice)
{
    return advice == ADVICE_POPULATE_READ || advice == ADVICE_POPULATE_WRITE;
}

/* To these, private file mappings and anonymous memory answer differently. */
static bool advice_tells_copies(int advice)
{
    return advice == MADV_DONTNEED || advice == ADVICE_DONTNEED_LOCKED || advice == MADV_FREE ||
           advice == MADV_REMOVE || advice == MADV_WIPEONFORK;
}

/* Asked by an advice that the kernel refuses for locked memory, and that does no harm elsewhere. */
static bool is_locked(uintptr_t start, uintptr_t end)
{
    return sys_madvise(start, end - start, ADVICE_COLD) == -EINVAL;
}

/* Copies are anonymous memory to the kernel, and pages of a private file mapping to the program. */
static long advise_copied(uintptr_t start, uintptr_t end, int advice)
{
    switch (advice) {
    case MADV_DONTNEED:
        if (is_locked(start, end))
            return -EINVAL;
        copy_refresh(start, end);
        return 0;
    case ADVICE_DONTNEED_LOCKED:
        copy_refresh(start, end);
        return 0;
    case MADV_FREE:
    case MADV_WIPEONFORK:
        return -EINVAL;
    case MADV_REMOVE:
        return is_locked(start, start + layer.page) ? -EINVAL : -EACCES; /* it goes no further */
    default:
        return sys_madvise(start, end - start, advice);
    }
}

/* Gives each visible run to the kernel; ENOMEM at the end if there was a hole. */
static long advise_ours(uintptr_t start, uintptr_t end, int advice)
{
    long result = sys_madvise(start, 0, advice);
    if (result != 0)
        return result;
    while (start < end) {
        const struct run run = run_at(start, end);
        start = run.end;
        if (run.hole) {
            result = -ENOMEM;
            continue;
        }
        if (range_mark_changed(run.start, run.end, advice_changes(advice)) != 0)
            return -EAGAIN;
        const long part = run.copied ? advise_copied(run.start, run.end, advice)
                                     : sys_madvise(run.start, run.end - run.start, advice);
        if (part != 0 && part != -ENOMEM)
            return part;
        if (part != 0)
            result = part;
    }
    return result;
}

/*
 * Where the tables cannot be read (a torn child, a handler that interrupted), copies must still not
 * be taken for anonymous memory and lose their bytes.
 */
static long advise_unknown(uintptr_t start, size_t length, int advice)
{
    if (!advice_tells_copies(advice) || !layer_touches_copies(start, start + page_up(length)))
        return sys_madvise(start, length, advice);
    switch (advice) {
    case MADV_FREE:
    case MADV_WIPEONFORK:
        return -EINVAL;
    case MADV_REMOVE:
        return -EACCES;
    default:
        return 0;
    }
}

/* The run at start, looked up for a call that is then made without the lock. */
static struct run run_look_up(uintptr_t start, uintptr_t end)
{
    struct run run = {start, end, false, false};
    if (layer_enter() != ENTER_LOCKED)
        return run;
    run = run_at(start, end);
    layer_leave();
    return run;
}

/* One run of what changes no tables; *run says where it ends. */
static long advise_run(struct run *run, int advice)
{
    if (layer_enter() != ENTER_LOCKED)
        return advise_unknown(run->start, run->end - run->start, advice);
    *run = run_at(run->start, run->end);
    const bool answered = run->copied && advice_tells_copies(advice);
    const long result = answered ? advise_copied(run->start, run->end, advice) : 0;
    layer_leave();
    if (answered || run->hole)
        return run->hole ? -ENOMEM : result;
    return sys_madvise(run->start, run->end - run->start, advice);
}

/*
 * Advice that changes no tables may wait for a disk, or for another thread of the program (which
 * serves a userfaultfd), so the lock is not held while the kernel carries it out.
 */
static long advise_unlocked(uintptr_t start, uintptr_t end, int advice)
{
    long result = sys_madvise(start, 0, advice);
    while (start < end && (result == 0 || (result == -ENOMEM && !advice_stops_at_holes(advice)))) {
        struct run run = {start, end, false, false};
        const long part = advise_run(&run, advice);
        if (part != 0)
            result = part;
        start = run.end;
    }
    return result;
}

int mf_madvise(void *address, size_t length, int advice)
{
    layer_begin();
    const uintptr_t start = (uintptr_t)address;
    const uint64_t changes = advice_changes(advice);
    if (extents_now() == 0 || !range_is_sane(start, length))
        return answer(sys_madvise(start, length, advice));
    if (changes == 0)
        return answer(advise_unlocked(start, start + page_up(length), advice));
    if (range_enter(start, length, changes) == WAY_KERNEL)
        return answer(sys_madvise(start, length, advice));
    const long result = advise_ours(start, start + page_up(length), advice);
    layer_leave();
    return answer(result);
}

static long raw_sync(uintptr_t start, size_t length, int flags)
{
    return sys_call(SYS_msync, (long)start, (long)length, flags, 0, 0, 0);
}

/* Writing back takes long, so the lock is not held then: what is live is looked up run by run. */
int mf_msync(void *address, size_t length, int flags)
{
    layer_begin();
    uintptr_t start = (uintptr_t)address;
    if (extents_now() == 0 || !range_is_sane(start, length))
        return answer(raw_sync(start, length, flags));
    const uintptr_t end = start + page_up(length);
    long result = raw_sync(start, 0, flags);
    if (result != 0)
        return answer(result);
    while (start < end) {
        const struct run run = run_look_up(start, end);
        const long part = run.hole ? -ENOMEM : raw_sync(run.start, run.end - run.start, flags);
        if (part != 0 && part != -ENOMEM)
            return answer(part);
        if (part != 0)
            result = part;
        start = run.end;
    }
    return answer(result);
}

static long raw_incore(uintptr_t start, size_t length, unsigned char *vector)
{
    return sys_call(SYS_mincore, (long)start, (long)length, (long)vector, 0, 0, 0);
}

int mf_mincore(void *address, size_t length, unsigned char *vector)
{
    const uintptr_t start = (uintptr_t)address;
    if (range_enter(start, length, 0) == WAY_KERNEL)
        return answer(raw_incore(start, length, vector));
    const uintptr_t end = start + page_up(length);
    const uintptr_t visible = visible_end(start, end);
    long result = raw_incore(start, visible - start, vector);
    if (result == 0 && visible < end)
        result = -ENOMEM;
    layer_leave();
    return answer(result);
}

/* mlock takes any address and works on all pages that the range touches. */
static uintptr_t lock_start(const void *address, size_t *length)
{
    layer_begin();
    const uintptr_t inside = (uintptr_t)address & (layer.page - 1);
    if (*length + inside >= *length)
        *length += inside;
    return (uintptr_t)address - inside;
}

static long raw_lock(const void *address, size_t length, unsigned flags)
{
    if (flags == 0)
        return sys_call(SYS_mlock, (long)address, (long)length, 0, 0, 0, 0);
    return sys_call(SYS_mlock2, (long)address, (long)length, flags, 0, 0, 0);
}

static int lock_pages(const void *address, size_t length, unsigned flags)
{
    size_t whole = length;
    const uintptr_t start = lock_start(address, &whole);
    if (range_enter(start, whole, CHANGED_LOCK) == WAY_KERNEL)
        return answer(raw_lock(address, length, flags));
    const uintptr_t end = start + page_up(whole);
    long result = 0;
    if (range_has_hole(start, end))
        result = range_punch(start, end);
    if (result == 0)
        result = range_mark_changed(start, end, CHANGED_LOCK);
    layer_leave();
    /* Bringing pages in takes long: without the lock. */
    if (result == 0)
        result = raw_lock(address, length, flags);
    return answer(result);
}

int mf_mlock(const void *address, size_t length)
{
    return lock_pages(address, length, 0);
}

int mf_mlock2(const void *address, size_t length, unsigned flags)
{
    return lock_pages(address, length, flags);
}

int mf_munlock(const void *address, size_t length)
{
    size_t whole = length;
    const uintptr_t start = lock_start(address, &whole);
    if (range_enter(start, whole, CHANGED_LOCK) == WAY_KERNEL)
        return answer(sys_call(SYS_munlock, (long)address, (long)length, 0, 0, 0, 0));
    const uintptr_t end = start + page_up(whole);
    const uintptr_t visible = visible_end(start, end);
    long result = sys_call(SYS_munlock, (long)start, (long)(visible - start), 0, 0, 0, 0);
    if (result == 0 && visible < end)
        result = -ENOMEM;
    layer_leave();
    return answer(result);
}

/* So that a place is unlocked when its copy goes. */
static void copies_mark_locked(void)
{
    for (uint32_t i = 0; i < layer.extents; i++) {
        const struct extent *extent = layer_sorted[i];
        if (extent->class == NO_CLASS &&
            range_mark_changed(extent->start, extent_end(extent), CHANGED_LOCK) != 0)
            lock_give_up();
    }
}

int mf_mlockall(int flags)
{
    layer_begin();
    const int known = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
    if (flags == 0 || (flags & ~known) || flags == MCL_ONFAULT)
        return answer(-EINVAL);
    const enum entry entry = layer_enter();
    if (entry != ENTER_LOCKED)
        return answer(sys_call(SYS_mlockall, flags, 0, 0, 0, 0, 0));
    /* Otherwise whole extents would be locked and brought in. */
    long result = (flags & MCL_CURRENT) ? extents_dissolve() : 0;
    if (result == 0)
        result = sys_call(SYS_mlockall, flags, 0, 0, 0, 0, 0);
    if (result == 0 && (flags & MCL_CURRENT))
        copies_mark_locked();
    if (result == 0)
        future_lock_set((flags & MCL_FUTURE) != 0);
    layer_leave();
    return answer(result);
}

int mf_munlockall(void)
{
    layer_begin();
    const long result = sys_call(SYS_munlockall, 0, 0, 0, 0, 0, 0);
    if (result == 0)
        future_lock_set(false);
    return answer(result);
}
