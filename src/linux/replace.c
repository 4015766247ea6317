/* SPDX-License-Identifier: MIT */
/*
 * Two calls beside mmap(MAP_FIXED) that put something else where a piece is: shmat at an address,
 * and remap_file_pages, which shows other pages of the file there. The kernel does either; what it
 * has replaced is FOREIGN from then on, so that the spot is not handed out again as the file's.
 *
 * Holes of an extent are mapped, but not to the program: they are made real first where the
 * kernel's answer depends on it. With SHM_REMAP it does not.
 */
#include <errno.h>
#include <sys/shm.h>

#include "linux/layer.h"

struct replacement {
    uintptr_t start, end; /* in whole pages */
    bool holes_matter;
    long (*call)(const struct replacement *replacement);
    long arguments[5];
};

static long replace(const struct replacement *replacement)
{
    const uintptr_t start = replacement->start, end = replacement->end;
    if ((extents_now() == 0 && plain_count() == 0) || !range_is_sane(start, end - start))
        return replacement->call(replacement);
    const enum entry entry = layer_enter();
    if (entry != ENTER_LOCKED) {
        const long result = replacement->call(replacement);
        if (entry == ENTER_INTERRUPTED && !sys_failed(result) && layer_touches(start, end) &&
            !layer_queue(LATE_FOREIGN, start, end))
            lock_give_up();
        return result;
    }
    long result = 0;
    if (replacement->holes_matter && range_touches(start, end))
        result = range_punch(start, end);
    if (result == 0)
        result = replacement->call(replacement);
    if (sys_failed(result)) {
        range_resync(start, end);
    } else {
        plain_remove(start, end);
        if (range_make_foreign(start, end) != 0)
            lock_give_up();
    }
    layer_leave();
    return result;
}

static long call_shmat(const struct replacement *replacement)
{
    const long *arguments = replacement->arguments;
    return sys_call(SYS_shmat, arguments[0], arguments[1], arguments[2], 0, 0, 0);
}

void *mf_shmat(int segment, const void *address, int flags)
{
    layer_begin();
    struct replacement replacement = {.holes_matter = !(flags & SHM_REMAP),
                                      .call = call_shmat,
                                      .arguments = {segment, (long)address, flags}};
    struct shmid_ds state = {0};
    if (address != NULL &&
        !sys_failed(sys_call(SYS_shmctl, segment, IPC_STAT, (long)&state, 0, 0, 0))) {
        replacement.start = (uintptr_t)address & ~(layer.page - 1);
        replacement.end = replacement.start + page_up(state.shm_segsz);
    }
    const long result = replace(&replacement);
    if (sys_failed(result)) {
        errno = (int)-result;
        return (void *)-1;
    }
    return (void *)result;
}

static long call_remap(const struct replacement *replacement)
{
    const long *arguments = replacement->arguments;
    return sys_call(SYS_remap_file_pages, arguments[0], arguments[1], arguments[2], arguments[3],
                    arguments[4], 0);
}

int mf_remap_file_pages(void *address, size_t length, int protection, size_t page, int flags)
{
    layer_begin();
    const uintptr_t start = (uintptr_t)address & ~(layer.page - 1);
    /* The kernel rounds both down. */
    const struct replacement replacement = {
        .start = start,
        .end = start + (length & ~(layer.page - 1)),
        .holes_matter = true,
        .call = call_remap,
        .arguments = {(long)address, (long)length, protection, (long)page, flags}};
    const long result = replace(&replacement);
    if (sys_failed(result)) {
        errno = (int)-result;
        return -1;
    }
    return (int)result;
}
