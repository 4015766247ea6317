/* SPDX-License-Identifier: MIT */
/*
 * Results are written into variables full of a pattern, on both sides, so that a result written on
 * an error shows. An operation that says -ENOMEM must have met a failing allocation, change
 * nothing, and succeed when it is repeated, which it is, except in a famine: then memory stays at
 * the edge of what is needed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/space.h"
#include "space_pair.h"

struct answer {
    int result;
    uint64_t start;
    struct mf_area area;
};

static const struct answer untouched = {
    0,
    0x6b6b6b6b6b6b6b6b,
    {0x6b6b6b6b6b6b6b6b, 0x7c7c7c7c7c7c7c7c, 0x1d1d1d1d1d1d1d1d, 0x2e2e2e2e}};

static bool __attribute__((format(printf, 2, 3))) differ(struct pair *pair, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(pair->why, sizeof(pair->why), format, arguments);
    va_end(arguments);
    return false;
}

static bool same_area(const struct mf_area *one, const struct mf_area *other)
{
    return one->start == other->start && one->length == other->length && one->tag == other->tag &&
           one->delta == other->delta;
}

bool pair_create(struct pair *pair, uint64_t low, uint64_t last, uint64_t granule)
{
    *pair = (struct pair){.full_every = 1024};
    checked_alloc_init(&pair->memory);
    struct mf_space *const poison = (struct mf_space *)&pair->memory;
    struct mf_space *space = poison;
    const int expected = model_create(&pair->model, low, last, granule);
    const int result = mf_space_create(low, last, granule, &pair->memory.alloc, &space);
    if (result != expected)
        return differ(pair, "create: %d, reference %d", result, expected);
    if (result == 0)
        pair->space = space;
    else if (space != poison || pair->memory.live_blocks != 0)
        return differ(pair, "create failed but wrote its result or kept memory");
    return true;
}

bool pair_destroy(struct pair *pair)
{
    mf_space_destroy(pair->space);
    model_destroy(&pair->model);
    pair->space = NULL;
    if (pair->memory.live_blocks != 0)
        return differ(pair, "destroy leaked %zu blocks", pair->memory.live_blocks);
    return true;
}

static bool compare_stats(struct pair *pair)
{
    struct mf_space_stats got, want;
    mf_space_stats(pair->space, &got);
    model_stats(&pair->model, &want);
    if (got.metadata_bytes != pair->memory.live_bytes)
        return differ(pair, "stats: metadata %" PRIu64 ", the allocator says %zu",
                      got.metadata_bytes, pair->memory.live_bytes);
    if (got.areas != want.areas || got.used != want.used || got.free != want.free ||
        got.largest_gap != want.largest_gap || got.fragmentation != want.fragmentation)
        return differ(pair,
                      "stats: areas %" PRIu64 " used %#" PRIx64 " free %#" PRIx64 " gap %#" PRIx64
                      " frag %u, reference %" PRIu64 " %#" PRIx64 " %#" PRIx64 " %#" PRIx64 " %u",
                      got.areas, got.used, got.free, got.largest_gap, got.fragmentation, want.areas,
                      want.used, want.free, want.largest_gap, want.fragmentation);
    return true;
}

/* Walks the space from `address` with next, against the reference's areas from index `first` on. */
static bool compare_areas(struct pair *pair, uint64_t address, size_t first, size_t count)
{
    const struct model *model = &pair->model;
    for (size_t i = first; i <= model->count && i - first <= count; i++) {
        struct mf_area got = untouched.area;
        const int result = mf_space_next(pair->space, address, &got);
        if (i == model->count) {
            if (result != -ENOENT || !same_area(&got, &untouched.area))
                return differ(pair,
                              "next(%#" PRIx64 "): %d, area %#" PRIx64 "+%#" PRIx64
                              " but there is none",
                              address, result, got.start, got.length);
            break;
        }
        const struct mf_area *want = &model->areas[i];
        if (result != 0 || !same_area(&got, want))
            return differ(pair,
                          "next(%#" PRIx64 "): %d, %#" PRIx64 "+%#" PRIx64 " tag %#" PRIx64
                          " delta %#" PRIx64 ", reference %#" PRIx64 "+%#" PRIx64 " tag %#" PRIx64
                          " delta %#" PRIx64,
                          address, result, got.start, got.length, got.tag, got.delta, want->start,
                          want->length, want->tag, want->delta);
        address = want->start + want->length;
        if (address == 0)
            break;
    }
    return true;
}

bool pair_compare(struct pair *pair)
{
    char why[256];
    if (space_check(pair->space, why, sizeof(why)) != 0)
        return differ(pair, "invariant broken: %s", why);
    return compare_areas(pair, 0, 0, pair->model.count) && compare_stats(pair);
}

/* Compares the areas around an address: the one before it and a few after. */
static bool compare_near(struct pair *pair, uint64_t address)
{
    const struct model *model = &pair->model;
    size_t i = 0;
    while (i < model->count && model->areas[i].start + (model->areas[i].length - 1) < address)
        i++;
    if (i == 0)
        return compare_areas(pair, 0, 0, 2);
    return compare_areas(pair, model->areas[i - 1].start, i - 1, 3);
}

static void run_on_space(const struct pair *pair, const struct op *op, uint64_t offset,
                         struct answer *answer)
{
    struct mf_space *space = pair->space;
    const struct mf_area area = {op->start, op->length, op->tag, op->delta};
    *answer = untouched;
    switch (op->kind) {
    case OP_INSERT:
        answer->result = mf_space_insert(space, &area);
        break;
    case OP_PLACE:
        answer->result = mf_space_place(space, &op->fit, op->tag, offset, &answer->area);
        break;
    case OP_REMOVE:
        answer->result = mf_space_remove(space, op->start, op->length);
        break;
    case OP_RETAG:
        answer->result = mf_space_retag(space, op->start, op->length, op->clear, op->set);
        break;
    case OP_FIND_GAP:
        answer->result = mf_space_find_gap(space, &op->fit, &answer->start);
        break;
    case OP_FIND:
        answer->result = mf_space_find(space, op->start, &answer->area);
        break;
    case OP_NEXT:
        answer->result = mf_space_next(space, op->start, &answer->area);
        break;
    case OP_RESERVE:
        answer->result = mf_space_reserve(space, op->operations);
        break;
    case OP_STATS:
        break;
    }
}

static void run_on_model(struct model *model, const struct op *op, uint64_t offset,
                         struct answer *answer)
{
    const struct mf_area area = {op->start, op->length, op->tag, op->delta};
    *answer = untouched;
    switch (op->kind) {
    case OP_INSERT:
        answer->result = model_insert(model, &area);
        break;
    case OP_PLACE:
        answer->result = model_place(model, &op->fit, op->tag, offset, &answer->area);
        break;
    case OP_REMOVE:
        answer->result = model_remove(model, op->start, op->length);
        break;
    case OP_RETAG:
        answer->result = model_retag(model, op->start, op->length, op->clear, op->set);
        break;
    case OP_FIND_GAP:
        answer->result = model_find_gap(model, &op->fit, &answer->start);
        break;
    case OP_FIND:
        answer->result = model_find(model, op->start, &answer->area);
        break;
    case OP_NEXT:
        answer->result = model_next(model, op->start, &answer->area);
        break;
    case OP_RESERVE:
        answer->result = op->operations > UINT64_C(1) << 32 ? -EINVAL : 0;
        break;
    case OP_STATS:
        break;
    }
}

static uint64_t min(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static bool may_use_memory(enum op_kind kind)
{
    return kind == OP_INSERT || kind == OP_PLACE || kind == OP_REMOVE || kind == OP_RETAG;
}

/* How many of the operations reserved this one may use up: a retag one for each 2^32 granules that
 * its range touches. */
static uint64_t reserve_used(const struct pair *pair, const struct op *op)
{
    if (!may_use_memory(op->kind))
        return 0;
    if (op->kind != OP_RETAG || op->length == 0 || op->start + (op->length - 1) < op->start)
        return 1;
    const uint64_t first = op->start / pair->model.granule;
    const uint64_t last = (op->start + (op->length - 1)) / pair->model.granule;
    return (last >> 32) - (first >> 32) + 1;
}

/* Runs the operation on the space; *calls counts allocations, *denied says that one failed and the
 * space refused for it, before the operation was repeated. */
static bool run_denied(struct pair *pair, const struct op *op, uint64_t offset,
                       struct answer *answer, size_t *calls, bool *denied)
{
    struct checked_alloc *memory = &pair->memory;
    const size_t calls_before = memory->calls, failures_before = memory->failures;
    memory->fail_at = op->famine ? 1 : op->fail_at;
    memory->fail_forever = op->famine;
    memory->forbidden = may_use_memory(op->kind) && pair->reserved >= reserve_used(pair, op);
    run_on_space(pair, op, offset, answer);
    memory->fail_at = 0;
    memory->forbidden = false;
    *calls = memory->calls - calls_before;
    if (memory->forbidden_calls > 0)
        return differ(pair, "an operation that was reserved for allocated");
    *denied = answer->result == -ENOMEM;
    if (!*denied)
        return true;

    if (memory->failures == failures_before)
        return differ(pair, "-ENOMEM though no allocation failed");
    if (memcmp(&answer->area, &untouched.area, sizeof(answer->area)) != 0)
        return differ(pair, "-ENOMEM but the result was written");
    pair->denied++;
    if (op->famine && pair->denied % pair->full_every != 0)
        return compare_near(pair, op->start) && compare_near(pair, op->start + op->length);
    if (!pair_compare(pair)) {
        char why[sizeof(pair->why) - 64];
        memcpy(why, pair->why, sizeof(why));
        why[sizeof(why) - 1] = 0;
        return differ(pair, "changed by an operation that said -ENOMEM: %s", why);
    }
    if (!op->famine)
        run_on_space(pair, op, offset, answer);
    return true;
}

static bool compare_answers(struct pair *pair, const struct op *op, const struct answer *got,
                            const struct answer *want)
{
    if (got->result != want->result)
        return differ(pair, "result %d, reference %d", got->result, want->result);
    if (got->start != want->start)
        return differ(pair, "start %#" PRIx64 ", reference %#" PRIx64, got->start, want->start);
    if (!same_area(&got->area, &want->area))
        return differ(pair,
                      "area %#" PRIx64 "+%#" PRIx64 " tag %#" PRIx64 " delta %#" PRIx64
                      ", reference %#" PRIx64 "+%#" PRIx64 " tag %#" PRIx64 " delta %#" PRIx64,
                      got->area.start, got->area.length, got->area.tag, got->area.delta,
                      want->area.start, want->area.length, want->area.tag, want->area.delta);
    if (op->kind == OP_STATS)
        return compare_stats(pair);
    if (op->kind == OP_INSERT || op->kind == OP_REMOVE || op->kind == OP_RETAG)
        return compare_near(pair, op->start) && compare_near(pair, op->start + op->length);
    if (op->kind == OP_PLACE && got->result == 0)
        return compare_near(pair, got->area.start);
    return true;
}

/* Where two areas stand for all 2^64 bytes, which no length can say, it is the space's business
 * where they meet: the reference follows. */
static void follow_halves(struct pair *pair)
{
    struct mf_area got[2];
    if (pair->model.count != 2)
        return;
    struct mf_area *lower = pair->model.areas, *upper = lower + 1;
    if (lower->length + upper->length != 0 || lower->tag != upper->tag ||
        lower->delta != upper->delta || !(lower->tag & MF_TAG_MERGE) ||
        mf_space_next(pair->space, 0, &got[0]) != 0 || got[0].start != 0 ||
        mf_space_next(pair->space, got[0].length, &got[1]) != 0)
        return;
    lower->length = got[0].length;
    upper->start = got[0].length;
    upper->length = ~got[0].length + 1;
}

bool pair_apply(struct pair *pair, const struct op *op)
{
    uint64_t offset = op->delta, start;
    if (op->kind == OP_PLACE && model_find_gap(&pair->model, &op->fit, &start) == 0)
        offset += start;

    struct answer got, want;
    size_t calls = 0;
    bool denied = false;
    if (!run_denied(pair, op, offset, &got, &calls, &denied))
        return false;
    if (denied && op->famine) {
        pair->operations++;
        return true;
    }
    const size_t areas_before = pair->model.count;
    run_on_model(&pair->model, op, offset, &want);
    pair->operations++;
    if (op->kind == OP_RETAG)
        follow_halves(pair);
    if (!compare_answers(pair, op, &got, &want))
        return false;
    if (denied && want.result != 0)
        return differ(pair, "-ENOMEM before the repeated call's %d", want.result);
    const bool cut_in_two = op->kind == OP_REMOVE && pair->model.count > areas_before;
    if (calls != 0 && op->kind != OP_RESERVE &&
        (!may_use_memory(op->kind) || (op->kind == OP_REMOVE && !cut_in_two)))
        return differ(pair, "an operation allocated that must not");

    if (op->kind == OP_RESERVE && want.result == 0)
        pair->reserved = op->operations;
    else if (op->kind != OP_REMOVE || cut_in_two || want.result != 0)
        pair->reserved -= min(pair->reserved, reserve_used(pair, op));
    return pair->operations % pair->full_every != 0 || pair_compare(pair);
}

static const char *const kind_names[] = {"insert", "place", "remove", "retag",  "find_gap",
                                         "find",   "next",  "stats",  "reserve"};

void op_print(const struct op *op, char *text, size_t size)
{
    const struct mf_fit *fit = &op->fit;
    const char *name = kind_names[op->kind];
    switch (op->kind) {
    case OP_INSERT:
    case OP_REMOVE:
    case OP_RETAG:
        snprintf(text, size,
                 "%s start %#" PRIx64 " length %#" PRIx64 " tag %#" PRIx64 " delta %#" PRIx64
                 " clear %#" PRIx64 " set %#" PRIx64 " fail_at %zu",
                 name, op->start, op->length, op->tag, op->delta, op->clear, op->set, op->fail_at);
        break;
    case OP_PLACE:
    case OP_FIND_GAP:
        snprintf(text, size,
                 "%s length %#" PRIx64 " align %#" PRIx64 " low %#" PRIx64 " last %#" PRIx64
                 " hint %#" PRIx64 " policy %d tag %#" PRIx64 " delta %#" PRIx64 " fail_at %zu",
                 name, fit->length, fit->align, fit->low, fit->last, fit->hint, (int)fit->policy,
                 op->tag, op->delta, op->fail_at);
        break;
    case OP_FIND:
    case OP_NEXT:
        snprintf(text, size, "%s %#" PRIx64, name, op->start);
        break;
    case OP_STATS:
    case OP_RESERVE:
        snprintf(text, size, "%s %zu", name, op->operations);
        break;
    }
}
