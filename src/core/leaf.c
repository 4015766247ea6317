/* SPDX-License-Identifier: MIT */
/*
 * Leaves. Narrow bounds are scanned four at a time in the compilers' portable vector types (SSE2,
 * NEON, or plain code where there is neither). Rows of the last-column behind `count` are
 * UINT32_MAX, so that a search by whole vectors does not count them.
 */
#include "core/node.h"

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t signed_lanes __attribute__((vector_size(4 * LANES)));

#define LOAD(vector, address) __builtin_memcpy(&(vector), (address), sizeof(vector))

static inline unsigned lanes_sum(const uint32_t *v)
{
    return v[0] + v[1] + v[2] + v[3];
}

unsigned leaf_search(const struct leaf *leaf, uint64_t granule)
{
    const unsigned count = leaf->count;
    unsigned below = 0;
    if (leaf->format & FORMAT_WIDE) {
        const uint64_t *last = leaf_last64(leaf);
        for (unsigned i = 0; i < count; i++)
            below += last[i] < granule;
        return below;
    }
    if (granule >> 32 != leaf->window)
        return granule >> 32 < leaf->window ? 0 : count;
    const uint32_t *last = leaf_last32(leaf);
    const uint32_t low = (uint32_t)granule;
    const lanes wanted = {low, low, low, low};
    lanes sum = {0};
    for (unsigned i = 0; i < count; i += LANES) {
        lanes v;
        LOAD(v, last + i);
        sum -= (lanes)(v < wanted);
    }
    uint32_t parts[LANES];
    __builtin_memcpy(parts, &sum, sizeof parts);
    return lanes_sum(parts);
}

static uint64_t narrow_longest(const struct leaf *leaf)
{
    const uint32_t *first = leaf_first32(leaf), *last = leaf_last32(leaf);
    const int32_t count = leaf->count;
    const signed_lanes steps = {0, 1, 2, 3}, end = {count, count, count, count};
    lanes best = {0};
    for (int32_t i = 1; i < count; i += LANES) {
        lanes before, after;
        LOAD(before, last + i - 1);
        LOAD(after, first + i);
        const lanes gap = (after - before - 1) & (lanes)(steps + i < end);
        const lanes more = (lanes)(gap > best);
        best = (gap & more) | (best & ~more);
    }
    uint32_t parts[LANES];
    __builtin_memcpy(parts, &best, sizeof parts);
    uint32_t longest = parts[0];
    for (unsigned i = 1; i < LANES; i++)
        longest = parts[i] > longest ? parts[i] : longest;
    return longest;
}

/* In which bits a - 1 and b - rest differ, over all gaps [a, b] longer than rest. */
static uint64_t narrow_differ(const struct leaf *leaf, uint32_t rest)
{
    const uint32_t *first = leaf_first32(leaf), *last = leaf_last32(leaf);
    const int32_t count = leaf->count;
    const signed_lanes steps = {0, 1, 2, 3}, end = {count, count, count, count};
    lanes bits = {0};
    for (int32_t i = 1; i < count; i += LANES) {
        lanes before, after;
        LOAD(before, last + i - 1);
        LOAD(after, first + i);
        const lanes gap = after - before - 1;
        bits |= (before ^ (after - 1 - rest)) & (lanes)(gap > rest) & (lanes)(steps + i < end);
    }
    uint32_t parts[LANES];
    __builtin_memcpy(parts, &bits, sizeof parts);
    return parts[0] | parts[1] | parts[2] | parts[3];
}

static uint64_t wide_longest(const struct leaf *leaf)
{
    const uint64_t *first = leaf_first64(leaf), *last = leaf_last64(leaf);
    uint64_t longest = 0;
    for (unsigned i = 1; i < leaf->count; i++) {
        const uint64_t gap = first[i] - last[i - 1] - 1;
        longest = gap > longest ? gap : longest;
    }
    return longest;
}

static uint64_t wide_differ(const struct leaf *leaf, uint64_t rest)
{
    const uint64_t *first = leaf_first64(leaf), *last = leaf_last64(leaf);
    uint64_t bits = 0;
    for (unsigned i = 1; i < leaf->count; i++)
        bits |= first[i] - last[i - 1] - 1 > rest ? last[i - 1] ^ (first[i] - 1 - rest) : 0;
    return bits;
}

static uint64_t leaf_longest(const struct leaf *leaf)
{
    return leaf->format & FORMAT_WIDE ? wide_longest(leaf) : narrow_longest(leaf);
}

/* A lane of the rooms of all gaps but the first. */
static uint32_t leaf_lane(const struct leaf *leaf, unsigned lane)
{
    const uint32_t rest = (UINT32_C(1) << room_log2(lane)) - 1;
    const uint64_t differ =
        leaf->format & FORMAT_WIDE ? wide_differ(leaf, rest) : narrow_differ(leaf, rest);
    return differ ? (64 - (uint32_t)__builtin_clzll(differ)) << (8 * lane) : 0;
}

struct summary leaf_summary(const struct leaf *leaf, uint64_t low)
{
    const uint64_t first = leaf_first(leaf, 0), longest = leaf_longest(leaf);
    uint32_t rooms = first > low ? gap_rooms(low, first - 1) : 0;
    for (unsigned lane = 0; lane < ROOM_LANES && longest >> room_log2(lane) != 0; lane++)
        rooms = rooms_max(rooms, leaf_lane(leaf, lane));
    return (struct summary){
        .key = leaf_last(leaf, leaf->count - 1u),
        .gap = first - low > longest ? first - low : longest,
        .rooms = rooms,
    };
}

struct summary leaf_summary_without(const struct leaf *leaf, uint64_t low, struct summary known,
                                    uint64_t gap, uint32_t rooms)
{
    const uint64_t first = leaf_first(leaf, 0);
    const uint32_t leading = first > low ? gap_rooms(low, first - 1) : 0;
    if (gap == known.gap) {
        const uint64_t longest = leaf_longest(leaf);
        known.gap = first - low > longest ? first - low : longest;
    }
    for (uint32_t lost = rooms_equal(rooms, known.rooms); lost; lost &= lost - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(lost) / 8;
        const uint32_t mask = UINT32_C(0xff) << (8 * lane);
        known.rooms = (known.rooms & ~mask) | rooms_max(leaf_lane(leaf, lane), leading & mask);
    }
    return known;
}

unsigned leaf_next_gap(const struct leaf *leaf, uint64_t low, unsigned i, uint64_t length)
{
    const unsigned count = leaf->count;
    if (i == 0) {
        if (count && leaf_first(leaf, 0) - low >= length)
            return 0;
        i = 1;
    }
    if (leaf->format & FORMAT_WIDE) {
        const uint64_t *first = leaf_first64(leaf), *last = leaf_last64(leaf);
        while (i < count && first[i] - last[i - 1] - 1 < length)
            i++;
    } else {
        const uint32_t *first = leaf_first32(leaf), *last = leaf_last32(leaf);
        while (i < count && first[i] - last[i - 1] - 1 < length)
            i++;
    }
    return i < count ? i : count;
}

unsigned leaf_previous_gap(const struct leaf *leaf, uint64_t low, unsigned end, uint64_t length)
{
    unsigned i = end;
    if (leaf->format & FORMAT_WIDE) {
        const uint64_t *first = leaf_first64(leaf), *last = leaf_last64(leaf);
        while (i-- > 1) {
            if (first[i] - last[i - 1] - 1 >= length)
                return i;
        }
    } else {
        const uint32_t *first = leaf_first32(leaf), *last = leaf_last32(leaf);
        while (i-- > 1) {
            if (first[i] - last[i - 1] - 1 >= length)
                return i;
        }
    }
    return end > 0 && leaf_first(leaf, 0) - low >= length ? 0 : end;
}

static inline bool leaf_says(const struct leaf *leaf, uint64_t first, uint64_t last)
{
    return leaf->format & FORMAT_WIDE ||
           (first >> 32 == leaf->window && last >> 32 == leaf->window);
}

bool leaf_accepts(const struct leaf *leaf, const struct row *row)
{
    return leaf->count < format_rows(leaf->format) && leaf_says(leaf, row->first, row->last) &&
           (leaf->format & FORMAT_TAGS || row->tag == leaf->tag) &&
           (leaf->format & FORMAT_DELTAS || row->delta == leaf->delta);
}

static inline void insert64(uint64_t *column, unsigned count, unsigned i, uint64_t value)
{
    __builtin_memmove(column + i + 1, column + i, sizeof(*column) * (count - i));
    column[i] = value;
}

static inline void insert32(uint32_t *column, unsigned count, unsigned i, uint32_t value)
{
    __builtin_memmove(column + i + 1, column + i, sizeof(*column) * (count - i));
    column[i] = value;
}

void leaf_insert(struct leaf *leaf, unsigned i, const struct row *row)
{
    const unsigned count = leaf->count;
    if (leaf->format & FORMAT_WIDE) {
        insert64(leaf_first64(leaf), count, i, row->first);
        insert64(leaf_last64(leaf), count, i, row->last);
    } else {
        insert32(leaf_first32(leaf), count, i, (uint32_t)row->first);
        insert32(leaf_last32(leaf), count, i, (uint32_t)row->last);
    }
    if (leaf->format & FORMAT_TAGS)
        insert64(leaf_tags(leaf), count, i, row->tag);
    if (leaf->format & FORMAT_DELTAS)
        insert64(leaf_deltas(leaf), count, i, row->delta);
    leaf->count++;
}

static inline void erase64(uint64_t *column, unsigned count, unsigned i, unsigned n)
{
    __builtin_memmove(column + i, column + i + n, sizeof(*column) * (count - i - n));
}

void leaf_erase(struct leaf *leaf, unsigned i, unsigned n)
{
    const unsigned count = leaf->count;
    if (leaf->format & FORMAT_WIDE) {
        erase64(leaf_first64(leaf), count, i, n);
        erase64(leaf_last64(leaf), count, i, n);
    } else {
        uint32_t *first = leaf_first32(leaf), *last = leaf_last32(leaf);
        __builtin_memmove(first + i, first + i + n, sizeof(*first) * (count - i - n));
        __builtin_memmove(last + i, last + i + n, sizeof(*last) * (count - i - n));
        for (unsigned k = count - n; k < count; k++)
            last[k] = UINT32_MAX;
    }
    if (leaf->format & FORMAT_TAGS)
        erase64(leaf_tags(leaf), count, i, n);
    if (leaf->format & FORMAT_DELTAS)
        erase64(leaf_deltas(leaf), count, i, n);
    leaf->count = (uint8_t)(count - n);
}

bool leaf_set_bounds(struct leaf *leaf, unsigned i, uint64_t first, uint64_t last)
{
    if (!leaf_says(leaf, first, last))
        return false;
    if (leaf->format & FORMAT_WIDE) {
        leaf_first64(leaf)[i] = first;
        leaf_last64(leaf)[i] = last;
    } else {
        leaf_first32(leaf)[i] = (uint32_t)first;
        leaf_last32(leaf)[i] = (uint32_t)last;
    }
    return true;
}

unsigned leaf_decode(const struct leaf *leaf, struct row *rows)
{
    for (unsigned i = 0; i < leaf->count; i++)
        rows[i] = leaf_row(leaf, i);
    return leaf->count;
}

static unsigned rows_format(const struct row *rows, unsigned count)
{
    unsigned format = rows[0].first >> 32 != rows[count - 1].last >> 32 ? FORMAT_WIDE : 0;
    for (unsigned i = 1; i < count; i++) {
        format |= rows[i].tag != rows[0].tag ? FORMAT_TAGS : 0;
        format |= rows[i].delta != rows[0].delta ? FORMAT_DELTAS : 0;
    }
    return format;
}

bool leaf_encode(struct leaf *leaf, const struct row *rows, unsigned count)
{
    const unsigned format = rows_format(rows, count);
    if (count > format_rows(format))
        return false;
    leaf->tag = rows[0].tag;
    leaf->delta = rows[0].delta;
    leaf->window = (uint32_t)(rows[0].first >> 32);
    leaf->count = 0;
    leaf->format = (uint8_t)format;
    leaf->newest = NO_ROW;
    leaf->unused = 0;
    if (!(format & FORMAT_WIDE))
        __builtin_memset(leaf_last32(leaf), 0xff, sizeof(uint32_t) * format_stride(format));
    for (unsigned i = 0; i < count; i++)
        leaf_insert(leaf, i, &rows[i]);
    return true;
}
