/* SPDX-License-Identifier: MIT */
/*
 * The layer's state, the way in and out of it, and what a signal handler that interrupted a call of
 * its own thread may do: munmap and what it changed in folded memory stand in a queue, which the
 * interrupted call carries out before it gives up the lock.
 */
#include <stdatomic.h>
#include <sys/auxv.h>
#include <time.h>

#include "linux/fold_rules.h"
#include "linux/layer.h"
#include "linux/report.h"

struct layer layer = {.options = {.promote_pieces = PROMOTE_PIECES,
                                  .max_depth = MAX_DEPTH,
                                  .max_copy_bytes = UINT64_MAX}};

enum { QUEUE = 64 };

struct late_call {
    enum late what;
    uintptr_t start, end;
};
static struct late_call queue[QUEUE];
static _Atomic uint32_t queued;

/*
 * The stack that the kernel made is near the top of the address space, and AT_RANDOM's bytes are on
 * it; the caller's own stack may be anywhere.
 */
void layer_begin(void)
{
    if (__atomic_load_n(&layer.page, __ATOMIC_ACQUIRE) != 0)
        return;
    layer.end = (uintptr_t)1 << (64 - __builtin_clzl(getauxval(AT_RANDOM)));
    /* release: pairs with the acquire above; who sees the page's size sees the end */
    __atomic_store_n(&layer.page, getauxval(AT_PAGESZ), __ATOMIC_RELEASE);
}

uint64_t layer_now_ms(void)
{
    struct timespec now = {0, 0};
    sys_call(SYS_clock_gettime, CLOCK_MONOTONIC_COARSE, (long)&now, 0, 0, 0, 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

static void explain(enum mf_pass_reason reason)
{
    static const char before[] = "mapfold: mappings are left to the kernel: ";
    const char *why = mf_pass_reason_text(reason);
    char text[160];
    const size_t length = __builtin_strlen(why);
    __builtin_memcpy(text, before, sizeof(before) - 1);
    __builtin_memcpy(text + sizeof(before) - 1, why, length);
    text[sizeof(before) - 1 + length] = '\n';
    report_write(text, sizeof(before) + length);
}

void layer_pass(enum mf_pass_reason reason)
{
    layer_count(&layer.stats.passed[reason]);
    if (layer.options.explain && layer.stats.passed[reason] == 1)
        explain(reason);
}

/*
 * Only for a handler that interrupted; what does not fit in the queue is not carried out: false.
 * The place is taken before it is filled, since another signal may come in between; nobody reads it
 * before all handlers have returned.
 */
bool layer_queue(enum late what, uintptr_t start, uintptr_t end)
{
    const uint32_t at = atomic_fetch_add_explicit(&queued, 1, memory_order_relaxed);
    if (at >= QUEUE) {
        atomic_fetch_sub_explicit(&queued, 1, memory_order_relaxed);
        return false;
    }
    /* What the program has put over memory that is to be unmapped stays: then nothing of it is. */
    for (uint32_t i = 0; i < at && what == LATE_FOREIGN; i++)
        if (queue[i].what == LATE_UNMAP && queue[i].start < end && start < queue[i].end)
            queue[i].what = LATE_FOREIGN;
    queue[at] = (struct late_call){what, start, end};
    return true;
}

static void late_call_run(const struct late_call *call)
{
    int result = 0;
    if (call->what == LATE_UNMAP)
        range_unmap(call->start, call->end);
    else if (call->what == LATE_FOREIGN)
        result = range_make_foreign(call->start, call->end);
    else
        result = range_mark_changed(call->start, call->end, CHANGED_FOR_GOOD);
    if (result != 0)
        lock_give_up();
}

static void queue_run(void)
{
    uint32_t done = 0, all = atomic_load_explicit(&queued, memory_order_relaxed);
    do {
        for (; done < all; done++) {
            const struct late_call call = queue[done];
            late_call_run(&call);
        }
        /* A handler may have added to it meanwhile: then go on. */
    } while (!atomic_compare_exchange_strong_explicit(&queued, &all, 0, memory_order_relaxed,
                                                      memory_order_relaxed));
}

/* A call that came between an owner's last look at the queue and its leaving is carried out now. */
enum entry layer_enter(void)
{
    const enum entry entry = lock_enter();
    while (entry == ENTER_LOCKED && atomic_load_explicit(&queued, memory_order_relaxed) != 0)
        queue_run();
    return entry;
}

void layer_leave(void)
{
    if (layer.idle != 0)
        extents_expire();
    while (atomic_load_explicit(&queued, memory_order_relaxed) != 0)
        queue_run();
    lock_leave();
}
