/* SPDX-License-Identifier: MIT */
/*
 * Kernel maps that are kept back, so that a process at its limit of maps can go on: a region of
 * pages with two protections in turn, which are as many maps, and are none any more once it is
 * unmapped.
 *
 *   no spare -> (many pieces have gone to the kernel) kept
 *   kept -> (a piece, or a change of a part, met the limit) given back: libc, threads and changes
 *   of parts have these maps now, and file mappings that the kernel would get are refused
 *   given back -> (the process has fewer maps) no spare
 *
 * While it refuses, one of RECOUNT requests has the maps counted, since maps that libc and raw
 * system calls give back are not seen.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "linux/layer.h"
#include "linux/maps.h"

enum { SPARE = 128, RECOUNT = 16, LATER = 4096 };

static _Atomic uintptr_t kept; /* the region */
static _Atomic uint32_t
    refused_from; /* so many plain pieces were too many; 0: nothing is refused */
static _Atomic uint32_t refusals;

static bool at_the_limit(void)
{
    return maps_count() > maps_limit() - SPARE;
}

static uintptr_t region_make(void)
{
    const size_t page = layer.page, length = (size_t)SPARE * page;
    const long made =
        sys_mmap(0, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sys_failed(made))
        return 0;
    const uintptr_t start = (uintptr_t)made;
    for (uintptr_t at = start; at < start + length; at += 2 * page) {
        if (!sys_failed(sys_mprotect(at, page, PROT_READ)))
            continue;
        sys_munmap(start, length);
        return 0;
    }
    return start;
}

/* In calls that may map anything, with the lock held. */
void spare_prepare(void)
{
    static uint32_t wanted_from;
    if (atomic_load_explicit(&kept, memory_order_relaxed) != 0 || plain_count() < wanted_from)
        return;
    if (wanted_from == 0) {
        wanted_from = (uint32_t)maps_limit() / 4;
        return;
    }
    if (atomic_load_explicit(&refused_from, memory_order_relaxed) != 0)
        return;
    const uintptr_t start = region_make();
    if (start == 0)
        wanted_from = plain_count() + LATER;
    atomic_store_explicit(&kept, start, memory_order_relaxed);
}

/* The kernel has said ENOMEM: true if a further try may succeed now. Needs no lock. */
bool spare_release(void)
{
    if (atomic_load_explicit(&kept, memory_order_relaxed) == 0 || !at_the_limit())
        return false;
    const uintptr_t start = atomic_exchange_explicit(&kept, 0, memory_order_relaxed);
    if (start == 0)
        return false;
    sys_munmap(start, (size_t)SPARE * layer.page);
    atomic_store_explicit(&refused_from, plain_count(), memory_order_relaxed);
    return true;
}

/* Whether a file mapping must not have another kernel map. Needs no lock. */
bool spare_refuses(void)
{
    const uint32_t from = atomic_load_explicit(&refused_from, memory_order_relaxed);
    if (from == 0 || plain_count() < from)
        return false;
    if (atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed) % RECOUNT != 0 ||
        at_the_limit())
        return true;
    atomic_store_explicit(&refused_from, 0, memory_order_relaxed);
    return false;
}
