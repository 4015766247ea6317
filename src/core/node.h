/* SPDX-License-Identifier: MIT */
/*
 * The two kinds of node of a space's tree, and what can be done to one of them alone.
 *
 * A leaf holds up to LEAF_ROWS areas in address order, column by column. Bounds are granule
 * numbers, both inclusive. Most leaves need little of the 32 bytes that an area is:
 *
 *     bounds   two 32-bit numbers where all share their upper half (`window`), else FORMAT_WIDE:
 * two 64-bit tags     nothing where all are equal (`tag`), else FORMAT_TAGS: a column of 64-bit
 * numbers deltas   likewise (`delta`, FORMAT_DELTAS)
 *
 * A leaf in its fullest format still holds half the rows of any other plus one, so that rewriting a
 * leaf with up to two rows more than LEAF_ROWS never needs more than two.
 *
 * Each gap belongs to the area after it. What a parent knows of a child is its *summary*: its key
 * (the last granule of its last area), and of the gaps before its areas the longest and the best
 * aligned. A child covers the granules after the key before it (`low` below) up to its own key, so
 * that an insert changes no key, only a gap. The gap after the last area of all belongs to no node.
 *
 * How well a gap is aligned depends on how much of it must be left behind the aligned place.
 * `rooms` says it for four lengths, a byte each: 1 + the log2 of the best alignment at which so
 * many granules fit, or 0. In a gap [a, b] a piece of n may start in [a, b - n + 1], and the most
 * trailing zeros of a number in there is the highest bit in which a - 1 and b - n + 1 differ. The
 * best of many gaps is the highest bit of all these differences ORed together.
 */
#ifndef MAPFOLD_CORE_NODE_H
#define MAPFOLD_CORE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/slab.h"

enum {
    LEAF_ROWS = 44,    /* at most, in any format; a multiple of LANES */
    INNER_FANOUT = 26, /* children of an inner node, at most */
    INNER_KEYS = 28,   /* places for keys and rooms: whole blocks of four */
    LANES = 4,
    NO_ROW = 255,
};

enum { FORMAT_WIDE = 1, FORMAT_TAGS = 2, FORMAT_DELTAS = 4 };

/* An area, decoded. */
struct row {
    uint64_t first, last; /* granules */
    uint64_t tag, delta;
};

struct leaf {
    union {
        struct slab *slab;
        uint64_t same_size_on_all_machines;
    } memory;
    uint64_t tag, delta; /* of all rows, where there is no column for them */
    uint32_t window;     /* upper half of all bounds, where they are not wide */
    uint8_t count;
    uint8_t format;
    uint8_t newest; /* row that was inserted last, or NO_ROW: tells a run of inserts when the leaf
                       splits */
    uint8_t unused;
    uint64_t columns[92]; /* first, last, tags, deltas */
};

struct inner {
    struct slab *memory;
    uint64_t
        key[INNER_KEYS]; /* last granule of the child's last area; UINT64_MAX where no child is */
    uint64_t gap[INNER_FANOUT]; /* granules of the longest gap before an area of the child */
    uint32_t rooms[INNER_KEYS]; /* of those gaps, lane by lane */
    void *child[INNER_FANOUT];  /* struct inner, or struct leaf below the lowest of them */
    uint8_t count;
};

_Static_assert(sizeof(struct leaf) <= NODE_BYTES, "a leaf fills a node");
_Static_assert(sizeof(struct inner) <= NODE_BYTES, "an inner node fits a node");

struct summary {
    uint64_t key, gap;
    uint32_t rooms;
};

/* Rows that a leaf of a format holds: 736 bytes by the width of a row. */
static inline unsigned format_rows(unsigned format)
{
    static const uint8_t rows[8] = {44, 44, 44, 30, 44, 30, 30, 23};
    return rows[format];
}

/*
 * Rows that the columns of a format are laid out for: whole vectors, where they are scanned as
 * such.
 */
static inline unsigned format_stride(unsigned format)
{
    static const uint8_t stride[8] = {44, 44, 44, 30, 44, 30, 32, 23};
    return stride[format];
}

static inline uint32_t *leaf_first32(const struct leaf *leaf)
{
    return (uint32_t *)(uintptr_t)leaf->columns;
}

static inline uint32_t *leaf_last32(const struct leaf *leaf)
{
    return leaf_first32(leaf) + format_stride(leaf->format);
}

static inline uint64_t *leaf_first64(const struct leaf *leaf)
{
    return (uint64_t *)(uintptr_t)leaf->columns;
}

static inline uint64_t *leaf_last64(const struct leaf *leaf)
{
    return leaf_first64(leaf) + format_stride(leaf->format);
}

/* The column after the bounds; meaningful with FORMAT_TAGS. */
static inline uint64_t *leaf_tags(const struct leaf *leaf)
{
    const unsigned words = leaf->format & FORMAT_WIDE ? 2 : 1;
    return (uint64_t *)(uintptr_t)leaf->columns + (size_t)words * format_stride(leaf->format);
}

/* The last column; meaningful with FORMAT_DELTAS. */
static inline uint64_t *leaf_deltas(const struct leaf *leaf)
{
    return leaf_tags(leaf) + (leaf->format & FORMAT_TAGS ? format_rows(leaf->format) : 0);
}

static inline uint64_t leaf_first(const struct leaf *leaf, unsigned i)
{
    if (leaf->format & FORMAT_WIDE)
        return leaf_first64(leaf)[i];
    return (uint64_t)leaf->window << 32 | leaf_first32(leaf)[i];
}

static inline uint64_t leaf_last(const struct leaf *leaf, unsigned i)
{
    if (leaf->format & FORMAT_WIDE)
        return leaf_last64(leaf)[i];
    return (uint64_t)leaf->window << 32 | leaf_last32(leaf)[i];
}

static inline uint64_t leaf_tag(const struct leaf *leaf, unsigned i)
{
    return leaf->format & FORMAT_TAGS ? leaf_tags(leaf)[i] : leaf->tag;
}

static inline uint64_t leaf_delta(const struct leaf *leaf, unsigned i)
{
    return leaf->format & FORMAT_DELTAS ? leaf_deltas(leaf)[i] : leaf->delta;
}

static inline struct row leaf_row(const struct leaf *leaf, unsigned i)
{
    return (struct row){leaf_first(leaf, i), leaf_last(leaf, i), leaf_tag(leaf, i),
                        leaf_delta(leaf, i)};
}

/* ---- rooms: four lanes of a byte, none above 65 ---- */

enum { ROOM_LANES = 4 };

#define ROOM_BYTES UINT32_C(0x01010101)
#define ROOM_TOPS (ROOM_BYTES << 7)

/* The lengths, log2 of granules. */
static inline unsigned room_log2(unsigned lane)
{
    static const uint8_t log2[ROOM_LANES] = {0, 1, 4, 9};
    return log2[lane];
}

/* The lane to ask for pieces of a length: that of the longest length which is not longer. */
static inline unsigned room_lane(uint64_t length)
{
    unsigned lane = ROOM_LANES - 1;
    while (length >> room_log2(lane) == 0)
        lane--;
    return lane;
}

static inline unsigned rooms_lane(uint32_t rooms, unsigned lane)
{
    return (rooms >> (8 * lane)) & 0xff;
}

/* The top bits of the lanes in which a is at least b. */
static inline uint32_t rooms_at_least(uint32_t a, uint32_t b)
{
    return ((a | ROOM_TOPS) - b) & ROOM_TOPS;
}

static inline uint32_t rooms_max(uint32_t a, uint32_t b)
{
    const uint32_t mask = (rooms_at_least(a, b) >> 7) * 0xff;
    return (a & mask) | (b & ~mask);
}

/* The top bits of the lanes that are not 0 and in which a and b are equal. */
static inline uint32_t rooms_equal(uint32_t a, uint32_t b)
{
    return rooms_at_least(a, b) & rooms_at_least(b, a) & rooms_at_least(a, ROOM_BYTES);
}

/*
 * The rooms of the gap [first, last]; free of branches, since gaps are what is random in a space.
 */
static inline uint32_t gap_rooms(uint64_t first, uint64_t last)
{
    uint32_t rooms = 0;
#pragma GCC unroll 4
    for (unsigned lane = 0; lane < ROOM_LANES; lane++) {
        const uint64_t rest = (UINT64_C(1) << room_log2(lane)) - 1;
        const uint64_t differ = ((first - 1) ^ (last - rest)) | 1;
        const uint32_t log2 = first == 0 ? 65 : 64 - (uint32_t)__builtin_clzll(differ);
        rooms |= last - first >= rest ? log2 << (8 * lane) : 0;
    }
    return rooms;
}

/* The first row whose last granule is at or above `granule`; leaf->count if there is none. */
unsigned leaf_search(const struct leaf *leaf, uint64_t granule);

/* low: the first granule that the leaf covers. */
struct summary leaf_summary(const struct leaf *leaf, uint64_t low);

/*
 * The summary of a leaf whose summary was `known` before part of a gap was filled, which was `gap`
 * granules long and had these rooms: only what that gap alone may have given is looked for anew.
 */
struct summary leaf_summary_without(const struct leaf *leaf, uint64_t low, struct summary known,
                                    uint64_t gap, uint32_t rooms);

/*
 * The first row at or after i whose gap is at least `length` granules; leaf->count if there is
 * none.
 */
unsigned leaf_next_gap(const struct leaf *leaf, uint64_t low, unsigned i, uint64_t length);

/* The last row before `end` whose gap is at least `length` granules; end if there is none. */
unsigned leaf_previous_gap(const struct leaf *leaf, uint64_t low, unsigned end, uint64_t length);

/* Whether a row could join the leaf as it stands, without another format or more room. */
bool leaf_accepts(const struct leaf *leaf, const struct row *row);

/* Inserts a row that leaf_accepts() before row i. */
void leaf_insert(struct leaf *leaf, unsigned i, const struct row *row);

/* Takes out rows [i, i + n). */
void leaf_erase(struct leaf *leaf, unsigned i, unsigned n);

/* Gives row i new bounds; false, and nothing done, where the format cannot say them. */
bool leaf_set_bounds(struct leaf *leaf, unsigned i, uint64_t first, uint64_t last);

/* All rows, decoded; returns how many. */
unsigned leaf_decode(const struct leaf *leaf, struct row *rows);

/*
 * Makes the leaf hold these rows in the narrowest format; false, and nothing done, if there are too
 * many.
 */
bool leaf_encode(struct leaf *leaf, const struct row *rows, unsigned count);

#endif
