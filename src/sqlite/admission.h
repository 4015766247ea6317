/* SPDX-License-Identifier: MIT */
/*
 * Which extents are worth a place in a full budget. Mapping one then evicts another, and costs more
 * than reading many pages; so the answer is no, but for what is wanted far more often than the
 * rest.
 *
 * Rules: all functions may be called by several threads at once, on one struct; what they then lose
 * of each other's counts does not matter. `extents` is how many the file has.
 */
#ifndef MF_SQLITE_ADMISSION_H
#define MF_SQLITE_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { ADMISSION_PLACES = 1 << 14 };

/* Zeroed before use. */
struct admission {
    _Atomic uint32_t total; /* wishes in this period */
    _Atomic bool generous;
    struct {
        _Atomic uint8_t wishes; /* in this period, and half of those before; at most 255 */
        _Atomic uint8_t state;
    } places[ADMISSION_PLACES];
};

/* An extent that is not mapped is wanted: whether to map it. */
bool admission_wish(struct admission *admission, uint64_t extent, uint64_t extents);
/* An extent was found mapped. */
void admission_hit(struct admission *admission, uint64_t extent, uint64_t extents);

#endif
