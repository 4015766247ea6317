/* SPDX-License-Identifier: MIT */
/*
 * A page of the file has an entry: 0 if it is not in memory, its place (1 up) if it is, and MOVING
 * set while one thread reads it in or finds out whether it may go.
 *
 * Why no page goes that is in use. A reader maps the page, passes a light barrier, and looks at the
 * entry again: only if it is what it was, is the page the right one and the mapping kept. Who wants
 * the place sets MOVING, passes a heavy barrier, and then asks whether the page is mapped. One of
 * them notices the other. It is the pool's own argument (docs/POOL.md), one storey up. Local
 * mappings are counted nowhere: those that there are after the barrier are waited for.
 *
 * Second chance: a hit sets the place's mark, if it is not set; so a hot page's mark is written
 * once in a round of the hand. Each processor has its own share of the places, with a hand and a
 * lock, and takes from others' when it finds nothing in its own. A place that was taken and is not
 * filled yet is found by the hand, but its entry is another's: the claim fails.
 */
#include "core/machine.h"

#include "kernel/cache.h"
#include "kernel/console.h"
#include "kernel/kmap.h"
#include "kernel/work.h"

enum { BATCH = 16, MOVING = 1u << 31, NOWHERE = UINT32_MAX };

static struct place {
    struct page *page;
    _Atomic uint32_t index; /* of the page in the file; written before the entry says so */
    _Atomic uint8_t recent;
} places[CACHE_PAGES];

static struct share {
    struct spin lock;
    uint32_t first, count; /* places */
    uint32_t fresh;        /* of them, how many were ever used */
    uint32_t hand;
    uint32_t empty[BATCH], empties; /* places evicted and not used again yet */
} shares[CPUS_MAX] __attribute__((aligned(64)));

static _Atomic uint32_t entries[CACHE_FILE_PAGES];

void cache_start(uint32_t highmem)
{
    static bool started;
    if (started)
        return;
    started = true;
    for (uint32_t i = 0; i < CACHE_PAGES; i++)
        places[i].page = highmem_page(highmem + i);
    for (unsigned i = 0; i < cpu_count; i++) {
        shares[i].first = CACHE_PAGES * i / cpu_count;
        shares[i].count = CACHE_PAGES * (i + 1) / cpu_count - shares[i].first;
    }
}

uint32_t cache_word(uint32_t index, uint32_t word)
{
    return scatter(index << 10 | word);
}

static bool claim(uint32_t index, uint32_t entry)
{
    return atomic_compare_exchange_strong_explicit(&entries[index], &entry, entry | MOVING,
                                                   memory_order_seq_cst, memory_order_relaxed);
}

static void set_entry(uint32_t index, uint32_t entry)
{
    atomic_store_explicit(&entries[index], entry, memory_order_release);
}

/* Sure once the place's entry is claimed. */
static uint32_t index_of(uint32_t at)
{
    return atomic_load_explicit(&places[at].index, memory_order_relaxed);
}

/* Walks the share's hand, and claims the entries of up to BATCH places not used lately. */
static uint32_t choose_locked(struct share *share, uint32_t *batch)
{
    uint32_t found = 0;
    for (uint32_t steps = 2 * share->count; steps && found < BATCH; steps--) {
        const uint32_t at = share->first + share->hand;
        share->hand = share->hand + 1 == share->count ? 0 : share->hand + 1;
        if (atomic_exchange_explicit(&places[at].recent, 0, memory_order_relaxed) == 0 &&
            claim(index_of(at), at + 1))
            batch[found++] = at;
    }
    return found;
}

/* Evicts a batch, so that one barrier does for many. */
static void evict_locked(struct share *share)
{
    uint32_t batch[BATCH];
    const uint32_t count = choose_locked(share, batch);
    if (!count)
        return;
    machine_barrier_heavy(); /* pairs with the light one in cache_get */
    kmap_wait_local();
    for (uint32_t i = 0; i < count; i++) {
        const bool mapped = kmap_is_mapped(places[batch[i]].page);
        set_entry(index_of(batch[i]), mapped ? batch[i] + 1 : 0);
        if (!mapped)
            share->empty[share->empties++] = batch[i];
    }
}

/* A place of the share that holds no page, or NOWHERE. */
static uint32_t take_from(struct share *share)
{
    uint32_t at = NOWHERE;
    spin_lock(&share->lock);
    if (!share->empties && share->fresh < share->count)
        at = share->first + share->fresh++;
    else if (!share->empties)
        evict_locked(share);
    if (share->empties)
        at = share->empty[--share->empties];
    spin_unlock(&share->lock);
    return at;
}

static uint32_t take(void)
{
    const unsigned own = this_cpu()->number;
    for (unsigned i = 0;; i++) {
        const uint32_t at = take_from(&shares[(own + i) % cpu_count]);
        if (at != NOWHERE)
            return at;
        cpu_pause();
    }
}

static void read_in(uint32_t index)
{
    if (!claim(index, 0))
        return;
    const uint32_t at = take();
    uint32_t *words = kmap_local(places[at].page);
    for (uint32_t i = 0; i < PAGE / sizeof(*words); i++)
        words[i] = cache_word(index, i);
    kunmap_local();
    atomic_store_explicit(&places[at].index, index, memory_order_relaxed);
    atomic_store_explicit(&places[at].recent, 1, memory_order_relaxed);
    set_entry(index, at + 1);
}

const uint32_t *cache_get(uint32_t index, bool local)
{
    for (;;) {
        const uint32_t entry = atomic_load_explicit(&entries[index], memory_order_acquire);
        if (!entry || entry & MOVING) {
            if (entry)
                thread_yield();
            else
                read_in(index);
            continue;
        }
        struct place *place = &places[entry - 1];
        const uint32_t *words = local ? kmap_local(place->page) : kmap(place->page);
        machine_barrier_light(); /* pairs with the heavy one in evict_locked */
        if (atomic_load_explicit(&entries[index], memory_order_acquire) == entry) {
            if (!atomic_load_explicit(&place->recent, memory_order_relaxed))
                atomic_store_explicit(&place->recent, 1, memory_order_relaxed);
            return words;
        }
        if (local)
            kunmap_local();
        else
            kunmap(place->page);
    }
}

void cache_put(uint32_t index, bool local)
{
    if (local) {
        kunmap_local();
        return;
    }
    /* The page is mapped, so its entry is what it was, but perhaps for MOVING. */
    const uint32_t entry = atomic_load_explicit(&entries[index], memory_order_relaxed) & ~MOVING;
    kunmap(places[entry - 1].page);
}
