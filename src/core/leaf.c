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

static void narrow_summary(const struct leaf *leaf, uint64_t *longest, uint64_t *differ)
{
    const uint32_t *first = leaf_first32(leaf), *last = leaf_last32(leaf);
    const int32_t count = leaf->count;
    const signed_lanes steps = {0, 1, 2, 3};
    lanes best = {0}, bits = {0};
    for (int32_t i = 1; i < count; i += LANES) {
        lanes before, after;
        LOAD(before, last + i - 1);
        LOAD(after, first + i);
        after -= 1;
        const lanes valid = (lanes)(steps + i < (signed_lanes){count, count, count, count});
        const lanes gap = (after - before) & valid;
        bits |= (after ^ before) & valid;
        const lanes more = (lanes)(gap > best);
        best = (gap & more) | (best & ~more);
    }
    uint32_t gaps[LANES], parts[LANES];
    __builtin_memcpy(gaps, &best, sizeof gaps);
    __builtin_memcpy(parts, &bits, sizeof parts);
    for (unsigned i = 0; i < LANES; i++) {
        if (gaps[i] > *longest)
            *longest = gaps[i];
        *differ |= parts[i];
    }
}

static void wide_summary(const struct leaf *leaf, uint64_t *longest, uint64_t *differ)
{
    const uint64_t *first = leaf_first64(leaf), *last = leaf_last64(leaf);
    for (unsigned i = 1; i < leaf->count; i++) {
        const uint64_t gap = first[i] - last[i - 1] - 1;
        if (gap > *longest)
            *longest = gap;
        *differ |= (first[i] - 1) ^ last[i - 1];
    }
}

struct summary leaf_summary(const struct leaf *leaf, uint64_t low)
{
    const uint64_t first = leaf_first(leaf, 0);
    struct summary summary = {.key = leaf_last(leaf, leaf->count - 1u), .gap = first - low};
    uint64_t differ = 0;
    if (leaf->format & FORMAT_WIDE)
        wide_summary(leaf, &summary.gap, &differ);
    else
        narrow_summary(leaf, &summary.gap, &differ);
    summary.aligned = differ ? (uint8_t)(64 - __builtin_clzll(differ)) : 0;
    const uint8_t leading = first > low ? gap_aligned(low, first - 1) : 0;
    if (leading > summary.aligned)
        summary.aligned = leading;
    return summary;
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
