/* SPDX-License-Identifier: MIT */
/*
 * machine: what the pool needs of the world below it.
 *
 * The core is compiled once for each machine: MF_MACHINE names a header that supplies what is
 * listed here, as types and static inline (or extern) functions. src/linux has the machine of a
 * Linux process, tests/ a scripted one, kernel/ that of bare processors. Without a name it is
 * core/machine_single.h, the smallest there is.
 *
 * Types
 *   struct machine_lock    a mutual exclusion lock; all zero is unlocked
 *   struct machine_event   one waiter's sticky signal; all zero is clear
 *   struct machine_slot    what the machine keeps in each slot, for instance its address; written
 *                          only by the functions marked (w), read by whoever has the slot pinned
 *
 * Functions; those marked (l) are called with the pool's lock held and must not wait for another
 * thread, nor sleep at all where the lock spins
 *   bool machine_lock_acquire(struct machine_lock *)          true if it had to wait
 *   void machine_lock_release(struct machine_lock *)
 *   void machine_event_clear(struct machine_event *)
 *   void machine_event_set(struct machine_event *)            (l) makes wait return, now or later
 *   bool machine_event_wait(struct machine_event *, uint64_t deadline)
 *                           false if the deadline (UINT64_MAX: never) came before a set
 *   void machine_barrier_light(void)
 *   bool machine_barrier_heavy(void)
 *                           The pair that makes pins cheap. Of two threads of which one stores x,
 *                           passes light and loads y, and the other stores y, passes heavy and
 *                           loads x, at least one sees the other's store. heavy returns false if
 *                           it could not be had; then nothing is evicted.
 *   void *machine_chunk(struct pool *, size_t bytes)                            (l)
 *                           zeroed memory for counters, kept as long as the pool; NULL: none
 *   int machine_admit(struct pool *, uint32_t slot, void *request)              (l)
 *                           whether the budget allows the request to be installed in this slot, in
 *                           place of what it holds: 1 and reserved; 0: not now; or a negative error
 *                           number: never, whatever is given up
 *   int machine_install(struct pool *, uint32_t slot, void *request)            (w)
 *                           installs the translation the request asks for, after admit, in place of
 *                           the dropped one if there is one. On failure a negative error number:
 *                           the slot then holds none and the reservation is given back. -ENOMEM
 *                           makes the pool give up idle translations and try again.
 *   void machine_restore(struct pool *, uint32_t slot)                          (l) (w)
 *                           makes a dropped translation usable again
 *   void machine_drop(struct pool *, const uint32_t *slots, uint32_t count)     (w)
 *                           drops these translations and flushes them everywhere, in one round
 *   void machine_retire(struct pool *, uint32_t slot)                           (w)
 *                           removes the translation for good and gives its budget back
 *   bool machine_is_kept(struct pool *, uint32_t slot)                          (l)
 *                           whether machine_install, or machine_retire, has failed to remove what
 *                           was in the slot: it is retired again when there is no other room
 */
#ifndef MF_CORE_MACHINE_H
#define MF_CORE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

#include "core/error.h"

#ifndef MF_MACHINE
#define MF_MACHINE "core/machine_single.h"
#endif
#include MF_MACHINE

#endif
