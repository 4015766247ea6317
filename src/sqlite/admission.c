/* SPDX-License-Identifier: MIT */
/*
 * Wishes are counted by extent (beyond ADMISSION_PLACES several share a count). A period ends when
 * an extent has had PERIOD wishes on average; then all counts are halved. Mapped is what has more
 * than STANDS_OUT times the average: the upper pages of trees get there in the first period, rows
 * at random and scans of a table never do, since to them all extents are alike.
 *
 * That would be wrong where what is mapped is no longer used, and a program works as evenly in
 * another part of the file. So a period also says how many of the mapped extents were used in it;
 * if less than half, the next is generous: ENOUGH wishes will do.
 */
#include "sqlite/admission.h"

#include <stddef.h>

enum { PERIOD = 8, STANDS_OUT = 3, ENOUGH = 4, MAPPED = 1, USED = 2 };

static size_t places_of(uint64_t extents)
{
    return extents < ADMISSION_PLACES ? (size_t)extents : ADMISSION_PLACES;
}

static void end_period(struct admission *admission, size_t places)
{
    uint32_t mapped = 0, used = 0;
    for (size_t i = 0; i < places; i++) {
        const uint8_t wishes =
            atomic_load_explicit(&admission->places[i].wishes, memory_order_relaxed);
        const uint8_t state =
            atomic_load_explicit(&admission->places[i].state, memory_order_relaxed);
        atomic_store_explicit(&admission->places[i].wishes, wishes / 2, memory_order_relaxed);
        atomic_store_explicit(&admission->places[i].state, state & MAPPED, memory_order_relaxed);
        mapped += (state & MAPPED) != 0;
        used += (state & USED) != 0;
    }
    atomic_store_explicit(&admission->generous, 2 * used <= mapped, memory_order_relaxed);
}

bool admission_wish(struct admission *admission, uint64_t extent, uint64_t extents)
{
    const size_t places = places_of(extents), place = extent % places;
    uint32_t total = atomic_fetch_add_explicit(&admission->total, 1, memory_order_relaxed) + 1;
    uint8_t wishes = atomic_load_explicit(&admission->places[place].wishes, memory_order_relaxed);
    wishes += wishes < UINT8_MAX;
    const uint32_t enough = atomic_load_explicit(&admission->generous, memory_order_relaxed)
                                ? ENOUGH
                                : ENOUGH + (uint32_t)((uint64_t)STANDS_OUT * total / places);
    const bool worth = wishes >= enough;
    atomic_store_explicit(&admission->places[place].wishes, worth ? 0 : wishes,
                          memory_order_relaxed);
    atomic_store_explicit(&admission->places[place].state, worth ? MAPPED | USED : 0,
                          memory_order_relaxed);
    if (total >= PERIOD * places &&
        atomic_compare_exchange_strong_explicit(&admission->total, &total, total / 2,
                                                memory_order_relaxed, memory_order_relaxed))
        end_period(admission, places);
    return worth;
}

void admission_hit(struct admission *admission, uint64_t extent, uint64_t extents)
{
    _Atomic uint8_t *state = &admission->places[extent % places_of(extents)].state;
    if (atomic_load_explicit(state, memory_order_relaxed) != (MAPPED | USED))
        atomic_store_explicit(state, MAPPED | USED, memory_order_relaxed);
}
