/* SPDX-License-Identifier: MIT */
/*
 * Ranges are kept as [start, last] in here, last being inclusive, so that nothing is ever beyond
 * 2^64. Every change writes a whole new array beside the old one: each old area is emitted, cut or
 * left out in turn.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "space_model.h"

static uint64_t area_last(const struct mf_area *area)
{
    return area->start + (area->length - 1);
}

static bool power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

int model_create(struct model *model, uint64_t low, uint64_t last, uint64_t granule)
{
    if (!power_of_two(granule) || low > last || low % granule != 0 || (last + 1) % granule != 0)
        return -EINVAL;
    *model = (struct model){.low = low, .last = last, .granule = granule};
    return 0;
}

void model_destroy(struct model *model)
{
    free(model->areas);
    free(model->next);
    *model = (struct model){0};
}

/* Makes room for the largest array that an operation can end with: one area more than now, and one
 * more for each end of a range that may cut. */
static void begin_change(struct model *model)
{
    if (model->count + 3 > model->room) {
        model->room = 2 * (model->count + 3);
        model->areas = realloc(model->areas, model->room * sizeof(*model->areas));
        model->next = realloc(model->next, model->room * sizeof(*model->next));
        if (!model->areas || !model->next)
            abort();
    }
    model->next_count = 0;
}

static bool can_join(const struct mf_area *lower, const struct mf_area *upper)
{
    return lower->start + lower->length == upper->start && lower->tag == upper->tag &&
           (lower->tag & MF_TAG_MERGE) != 0 && lower->delta == upper->delta &&
           lower->length + upper->length != 0; /* 0 stands for 2^64 */
}

/* Appends [start, last] with the area's delta and this tag, joined to what is below if it can be.
 */
static void emit(struct model *model, const struct mf_area *area, uint64_t start, uint64_t last,
                 uint64_t tag)
{
    const struct mf_area piece = {start, last - start + 1, tag, area->delta};
    struct mf_area *below = model->next_count ? &model->next[model->next_count - 1] : NULL;
    if (below && can_join(below, &piece))
        below->length += piece.length;
    else
        model->next[model->next_count++] = piece;
}

static void emit_whole(struct model *model, const struct mf_area *area)
{
    emit(model, area, area->start, area_last(area), area->tag);
}

static void end_change(struct model *model)
{
    struct mf_area *const old = model->areas;
    model->areas = model->next;
    model->count = model->next_count;
    model->next = old;
}

static int check_range(const struct model *model, uint64_t start, uint64_t length)
{
    if (length == 0 || length % model->granule != 0 || start % model->granule != 0)
        return -EINVAL;
    const uint64_t last = start + (length - 1);
    if (last < start)
        return -EOVERFLOW;
    if (start < model->low || last > model->last)
        return -ERANGE;
    return 0;
}

int model_insert(struct model *model, const struct mf_area *area)
{
    const int error = check_range(model, area->start, area->length);
    if (error)
        return error;
    for (size_t i = 0; i < model->count; i++)
        if (model->areas[i].start <= area_last(area) && area_last(&model->areas[i]) >= area->start)
            return -EEXIST;

    begin_change(model);
    size_t i = 0;
    while (i < model->count && model->areas[i].start < area->start)
        emit_whole(model, &model->areas[i++]);
    emit_whole(model, area);
    while (i < model->count)
        emit_whole(model, &model->areas[i++]);
    end_change(model);
    return 0;
}

int model_remove(struct model *model, uint64_t start, uint64_t length)
{
    const int error = check_range(model, start, length);
    if (error)
        return error;
    const uint64_t last = start + (length - 1);

    begin_change(model);
    for (size_t i = 0; i < model->count; i++) {
        const struct mf_area *area = &model->areas[i];
        if (area_last(area) < start || area->start > last) {
            emit_whole(model, area);
            continue;
        }
        if (area->start < start)
            emit(model, area, area->start, start - 1, area->tag);
        if (area_last(area) > last)
            emit(model, area, last + 1, area_last(area), area->tag);
    }
    end_change(model);
    return 0;
}

int model_retag(struct model *model, uint64_t start, uint64_t length, uint64_t clear, uint64_t set)
{
    const int error = check_range(model, start, length);
    if (error)
        return error;
    const uint64_t last = start + (length - 1);

    begin_change(model);
    for (size_t i = 0; i < model->count; i++) {
        const struct mf_area *area = &model->areas[i];
        const uint64_t tag = (area->tag & ~clear) | set;
        const bool outside = area_last(area) < start || area->start > last;
        if (outside || tag == area->tag) {
            emit_whole(model, area);
            continue;
        }
        const uint64_t from = area->start < start ? start : area->start;
        const uint64_t to = area_last(area) > last ? last : area_last(area);
        if (area->start < from)
            emit(model, area, area->start, from - 1, area->tag);
        emit(model, area, from, to, tag);
        if (area_last(area) > to)
            emit(model, area, to + 1, area_last(area), area->tag);
    }
    end_change(model);
    return 0;
}

/* The gap between area index - 1 and area index, as [first, last]; false where they touch. */
static bool gap_below(const struct model *model, size_t index, uint64_t *first, uint64_t *last)
{
    *first = model->low;
    *last = model->last;
    if (index > 0) {
        const uint64_t below = area_last(&model->areas[index - 1]);
        if (below == model->last)
            return false;
        *first = below + 1;
    }
    if (index < model->count) {
        if (model->areas[index].start == *first)
            return false;
        *last = model->areas[index].start - 1;
    }
    return true;
}

/* The lowest or highest place for the piece in [first, last]. */
static bool place_in(uint64_t first, uint64_t last, uint64_t length, uint64_t align, bool highest,
                     uint64_t *start)
{
    if (last - first < length - 1)
        return false;
    const uint64_t up = first + (align - 1);
    const uint64_t lowest = up & ~(align - 1);
    if (up < first || lowest > last || last - lowest < length - 1)
        return false;
    *start = highest ? (last - (length - 1)) & ~(align - 1) : lowest;
    return true;
}

/* Walks the gaps from the bottom, each cut to [low, last]. */
static int walk_gaps(const struct model *model, const struct mf_fit *fit, uint64_t low,
                     uint64_t *start)
{
    const uint64_t align = fit->align > model->granule ? fit->align : model->granule;
    const bool highest = fit->policy == MF_FIT_HIGHEST;
    int result = -ENOSPC;
    for (size_t i = 0; i <= model->count; i++) {
        uint64_t first, last;
        if (!gap_below(model, i, &first, &last))
            continue;
        first = first > low ? first : low;
        last = last < fit->last ? last : fit->last;
        if (first > last || !place_in(first, last, fit->length, align, highest, start))
            continue;
        result = 0;
        if (!highest)
            break;
    }
    return result;
}

int model_find_gap(const struct model *model, const struct mf_fit *fit, uint64_t *start)
{
    if (fit->length == 0 || fit->length % model->granule != 0 || !power_of_two(fit->align) ||
        fit->low > fit->last)
        return -EINVAL;
    switch (fit->policy) {
    case MF_FIT_LOWEST:
    case MF_FIT_HIGHEST:
        return walk_gaps(model, fit, fit->low, start);
    case MF_FIT_HINT:
        if (fit->hint > fit->low && walk_gaps(model, fit, fit->hint, start) == 0)
            return 0;
        return walk_gaps(model, fit, fit->low, start);
    default:
        return -EINVAL;
    }
}

int model_place(struct model *model, const struct mf_fit *fit, uint64_t tag, uint64_t offset,
                struct mf_area *area)
{
    uint64_t start;
    const int error = model_find_gap(model, fit, &start);
    if (error)
        return error;
    const struct mf_area piece = {start, fit->length, tag, offset - start};
    if (area)
        *area = piece;
    return model_insert(model, &piece);
}

int model_next(const struct model *model, uint64_t address, struct mf_area *area)
{
    for (size_t i = 0; i < model->count; i++) {
        if (area_last(&model->areas[i]) >= address) {
            *area = model->areas[i];
            return 0;
        }
    }
    return -ENOENT;
}

int model_find(const struct model *model, uint64_t address, struct mf_area *area)
{
    struct mf_area next;
    const int error = model_next(model, address, &next);
    if (error || next.start > address)
        return -ENOENT;
    *area = next;
    return 0;
}

__extension__ typedef unsigned __int128 wide;

static uint64_t at_most_64_bits(wide value)
{
    return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

void model_stats(const struct model *model, struct mf_space_stats *stats)
{
    wide unused = 0, largest = 0;
    for (size_t i = 0; i <= model->count; i++) {
        uint64_t first, last;
        if (!gap_below(model, i, &first, &last))
            continue;
        const wide gap = (wide)(last - first) + 1;
        unused += gap;
        largest = gap > largest ? gap : largest;
    }
    wide used = 0;
    for (size_t i = 0; i < model->count; i++)
        used += model->areas[i].length;

    *stats = (struct mf_space_stats){
        .areas = model->count,
        .used = at_most_64_bits(used),
        .free = at_most_64_bits(unused),
        .largest_gap = at_most_64_bits(largest),
        .fragmentation = unused ? (uint32_t)(1000 - 1000 * largest / unused) : 0,
    };
}
