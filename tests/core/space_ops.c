/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "space_ops.h"

/* splitmix64: any seed will do, and neighbours among seeds give unrelated streams */
static uint64_t random_64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t take_bytes(struct choices *choices, unsigned count)
{
    uint64_t value = 0;
    for (; count > 0 && choices->left > 0; count--, choices->left--)
        value = value << 8 | *choices->bytes++;
    return value;
}

uint64_t choose(struct choices *choices, uint64_t count)
{
    if (count <= 1)
        return 0;
    uint64_t value;
    if (choices->endless)
        value = random_64(&choices->seed) >> 11;
    else
        value = take_bytes(choices, count <= 256 ? 1 : count <= 65536 ? 2 : 4);
    return value % count;
}

static uint64_t any_number(struct choices *choices)
{
    return choices->endless ? random_64(&choices->seed) : take_bytes(choices, 8);
}

/* A number of any magnitude: each number of bits is as likely as any other. */
static uint64_t any_magnitude(struct choices *choices, unsigned most_bits)
{
    const unsigned bits = (unsigned)choose(choices, most_bits + 1);
    return bits == 0 ? 0 : any_number(choices) >> (64 - bits);
}

static uint64_t within(uint64_t address, uint64_t low, uint64_t last)
{
    const uint64_t span = last - low + 1;
    return span == 0 ? address : low + address % span;
}

static uint64_t round_down(uint64_t address, uint64_t granule)
{
    return address & ~(granule - 1);
}

struct bounds {
    uint64_t low, last, granule;
};

static const struct bounds all_bounds[] = {
    {0x10000, 0x7fffffffffff, 4096},            /* a program's */
    {0, UINT64_MAX, 1},                         /* everything */
    {0, UINT64_MAX, 4096},                      /* everything, in pages */
    {UINT64_MAX - 0xfffffff, UINT64_MAX, 4096}, /* the top */
    {0, 0xffffff, 4096},                        /* a small one, soon full */
    {0x40, 0x7f, 1},                            /* tiny */
    {UINT64_MAX - 31, UINT64_MAX, 1},           /* tiny, at the top */
    {0, UINT64_MAX, UINT64_C(1) << 58},         /* everything in 64 granules */
    {0, UINT64_MAX, UINT64_C(1) << 63},         /* everything in two granules */
    {UINT64_C(1) << 32, (UINT64_C(1) << 47) - 1, UINT64_C(1) << 21},
    {0x1000, UINT64_MAX - 0x1000, 4096},
    {0, 0xffffffffffff, 64},
};

static const uint64_t spreads[] = {8, 64, 1024, 65536, UINT64_C(1) << 30, UINT64_C(1) << 33};
static const uint64_t long_lengths[] = {1, 4, 64, 64, 1024, UINT64_C(1) << 28};

static bool holds(const struct bounds *bounds, size_t areas)
{
    return (bounds->last - bounds->low) / bounds->granule >= areas;
}

void terrain_choose(struct terrain *terrain, struct choices *choices, size_t crowd)
{
    const size_t bounds_count = sizeof(all_bounds) / sizeof(all_bounds[0]);
    size_t which = choose(choices, bounds_count);
    while (!holds(&all_bounds[which], crowd))
        which = (which + 1) % bounds_count;
    const struct bounds *bounds = &all_bounds[which];
    *terrain = (struct terrain){
        .low = bounds->low,
        .last = bounds->last,
        .granule = bounds->granule,
        .spread = spreads[choose(choices, sizeof(spreads) / sizeof(spreads[0]))],
        .long_length = long_lengths[choose(choices, sizeof(long_lengths) / sizeof(uint64_t))],
        .tag_count = (unsigned)choose(choices, 5) * 2,
        .delta_mode = (unsigned)choose(choices, 4),
        .align_mode = (unsigned)choose(choices, 3),
        .nonsense = choose(choices, 4) ? 32 : 0,
        .denial = choose(choices, 4) ? 0 : 1 + (unsigned)choose(choices, 2),
        .crowd = crowd,
    };
    const unsigned hub_count = 1 + (unsigned)choose(choices, 8);
    for (unsigned i = 0; i < 8; i++)
        terrain->hubs[i] = i < hub_count
                               ? within(round_down(any_magnitude(choices, 64), terrain->granule),
                                        terrain->low, terrain->last)
                               : terrain->hubs[i - hub_count];
    const unsigned merging = (unsigned)choose(choices, 3); /* none, some, all */
    for (unsigned i = 0; i < 8; i++) {
        const bool merges = merging == 2 || (merging == 1 && i % 2);
        terrain->tags[i] = (any_magnitude(choices, 63)) | (merges ? MF_TAG_MERGE : 0);
    }
}

/* An address near something: an area's edge, a hub, an end of the space. */
static uint64_t choose_address(const struct terrain *terrain, const struct model *model,
                               struct choices *choices)
{
    uint64_t address;
    const unsigned kind = (unsigned)choose(choices, 16);
    if (kind < 8 && model->count > 0) {
        const struct mf_area *area = &model->areas[choose(choices, model->count)];
        const uint64_t granules = area->length / terrain->granule;
        address = area->start;
        if (kind < 2)
            address += area->length;
        else if (kind < 4)
            address -= terrain->granule * choose(choices, 4);
        else if (kind < 6)
            address += terrain->granule * choose(choices, granules < 1 << 20 ? granules : 1 << 20);
    } else if (kind < 14) {
        address =
            terrain->hubs[choose(choices, 8)] + terrain->granule * choose(choices, terrain->spread);
    } else if (kind < 15) {
        const uint64_t inside = terrain->granule * choose(choices, 4);
        address = choose(choices, 2) ? terrain->low + inside : terrain->last + 1 - inside;
    } else {
        address = any_magnitude(choices, 64);
    }
    return within(round_down(address, terrain->granule), terrain->low, terrain->last);
}

static uint64_t choose_length(const struct terrain *terrain, const struct model *model,
                              struct choices *choices)
{
    const unsigned kind = (unsigned)choose(choices, 16);
    if (kind < 6)
        return terrain->granule;
    if (kind < 13)
        return terrain->granule * (1 + choose(choices, terrain->long_length));
    if (kind < 15 && model->count > 0) { /* just what a gap or an area holds */
        const size_t i = choose(choices, model->count);
        const struct mf_area *area = &model->areas[i];
        if (kind == 13 || i == 0 || area[-1].start + area[-1].length == area->start)
            return area->length;
        return area->start - (area[-1].start + area[-1].length);
    }
    const uint64_t length = round_down(any_magnitude(choices, 64), terrain->granule);
    return length ? length : terrain->granule;
}

/* A place for an area that overlaps none: in the gap above some area, at its bottom or top or all
 * of it. False where there is no gap. */
static bool choose_free_range(struct op *op, const struct terrain *terrain,
                              const struct model *model, struct choices *choices)
{
    if (model->count == 0)
        return false;
    size_t i = choose(choices, model->count);
    uint64_t start = 0, end = 0;
    for (unsigned tries = 0; tries < 8 && start == end; tries++, i = (i + 1) % model->count) {
        const struct mf_area *below = &model->areas[i];
        start = below->start + below->length;
        end = i + 1 < model->count ? below[1].start : terrain->last + 1;
    }
    const uint64_t gap = end - start;
    if (gap == 0)
        return false;
    const uint64_t wanted = choose_length(terrain, model, choices);
    const unsigned where = (unsigned)choose(choices, 4);
    op->length = where == 0 || wanted > gap ? gap : wanted;
    op->start = where == 1 ? end - op->length : start;
    if (where == 2)
        op->start += round_down(choose(choices, gap - op->length + 1), terrain->granule);
    return true;
}

static uint64_t choose_tag(const struct terrain *terrain, struct choices *choices)
{
    if (terrain->tag_count == 0)
        return any_number(choices);
    return terrain->tags[choose(choices, terrain->tag_count)];
}

static uint64_t choose_delta(const struct terrain *terrain, struct choices *choices)
{
    switch (terrain->delta_mode) {
    case 0:
        return 0;
    case 1:
        return choose(choices, 3) << 40;
    case 2:
        return choose(choices, 16) ? UINT64_C(0) - terrain->low : any_number(choices);
    default:
        return any_number(choices);
    }
}

static void choose_fit(struct mf_fit *fit, const struct terrain *terrain, const struct model *model,
                       struct choices *choices)
{
    *fit = (struct mf_fit){.length = choose_length(terrain, model, choices),
                           .align = 1,
                           .last = UINT64_MAX,
                           .policy = (enum mf_policy)choose(choices, 3)};
    if (terrain->align_mode == 2 || (terrain->align_mode == 1 && choose(choices, 4) == 0)) {
        const unsigned usual = (unsigned)choose(choices, 4);
        fit->align =
            usual ? terrain->granule << choose(choices, 8) : UINT64_C(1) << choose(choices, 64);
        if (fit->align == 0)
            fit->align = 1;
    }
    if (fit->policy == MF_FIT_HINT)
        fit->hint = choose_address(terrain, model, choices) + choose(choices, 3) * 7;
    switch (choose(choices, 8)) {
    case 0:
        fit->low = choose_address(terrain, model, choices) - choose(choices, 2);
        break;
    case 1:
        fit->last = choose_address(terrain, model, choices) - choose(choices, 2);
        break;
    case 2:
        fit->low = choose_address(terrain, model, choices);
        fit->last = choose_address(terrain, model, choices) + choose(choices, 3) * 5;
        if (fit->low > fit->last) {
            const uint64_t swapped = fit->low;
            fit->low = fit->last;
            fit->last = swapped;
        }
        break;
    default:
        break;
    }
}

/* A range to work on: one area, a part of one, or everything from one address to another. */
static void choose_range(struct op *op, const struct terrain *terrain, const struct model *model,
                         bool wide, struct choices *choices)
{
    const unsigned kind = (unsigned)choose(choices, 8);
    if (kind < 4 && model->count > 0) {
        const size_t first = choose(choices, model->count);
        const uint64_t most = wide ? model->count - first : 2;
        const size_t step = choose(choices, most);
        const size_t end = first + step < model->count ? first + step : model->count - 1;
        op->start = model->areas[first].start;
        op->length = model->areas[end].start + model->areas[end].length - op->start;
        if (kind == 0 && op->length > terrain->granule)
            op->length -= terrain->granule;
        if (kind == 1 && op->length > terrain->granule) {
            op->start += terrain->granule;
            op->length -= terrain->granule;
        }
        if (kind == 2 && op->length > 2 * terrain->granule) {
            op->start += terrain->granule;
            op->length -= 2 * terrain->granule;
        }
        return;
    }
    op->start = choose_address(terrain, model, choices);
    op->length = choose_length(terrain, model, choices);
    if (wide && kind < 6) {
        const uint64_t other = choose_address(terrain, model, choices);
        const uint64_t low = other < op->start ? other : op->start;
        op->length = (other < op->start ? op->start : other) - low + terrain->granule;
        op->start = low;
    }
}

static void choose_retag(struct op *op, const struct terrain *terrain, struct choices *choices)
{
    switch (choose(choices, 8)) {
    case 0:
        op->clear = MF_TAG_MERGE;
        break;
    case 1:
        op->set = MF_TAG_MERGE;
        break;
    case 2:
        op->clear = any_magnitude(choices, 64);
        op->set = any_magnitude(choices, 64);
        break;
    case 3:
        op->clear = 3;
        op->set = choose(choices, 4);
        break;
    default:
        op->clear = UINT64_MAX;
        op->set = choose_tag(terrain, choices);
        break;
    }
}

/* Spoils an operation in one way or another: most of what comes out is to be refused. */
static void spoil(struct op *op, const struct terrain *terrain, struct choices *choices)
{
    const uint64_t value = any_magnitude(choices, 64);
    switch (choose(choices, 11)) {
    case 0:
        op->length = op->fit.length = 0;
        break;
    case 1:
        op->length = op->fit.length = value;
        break;
    case 2:
        op->start = value;
        break;
    case 3:
        op->fit.align = value;
        break;
    case 4:
        op->fit.align = 0;
        break;
    case 5:
        op->fit.low = value;
        break;
    case 6:
        op->fit.last = value;
        break;
    case 7:
        op->fit.policy = (enum mf_policy)(3 + choose(choices, 3));
        break;
    case 8:
        op->operations = (size_t)value;
        break;
    case 9: /* beyond 2^64 from anywhere, also from outside the space */
        op->length = UINT64_C(0) - terrain->granule * (1 + choose(choices, 4));
        if (choose(choices, 2))
            op->start = terrain->low - terrain->granule * choose(choices, 8);
        break;
    default:
        op->length = ~op->start + 1; /* to 2^64 exactly */
        op->start -= choose(choices, 2) * op->length;
        break;
    }
}

static const unsigned char mixes[PHASES][9] = {
    /* insert, place, remove, retag, find_gap, find, next, stats, reserve: in 256ths */
    [PHASE_GROW] = {90, 90, 10, 10, 22, 12, 12, 8, 2},
    [PHASE_CHURN] = {40, 50, 80, 30, 22, 12, 12, 8, 2},
    [PHASE_RANGES] = {60, 60, 20, 60, 22, 12, 12, 8, 2},
    [PHASE_SHRINK] = {10, 20, 140, 30, 22, 12, 12, 8, 2},
};

void op_choose(struct op *op, const struct terrain *terrain, const struct model *model,
               enum phase phase, struct choices *choices)
{
    if (phase != PHASE_SHRINK && model->count > terrain->crowd)
        phase = PHASE_SHRINK;
    unsigned dice = (unsigned)choose(choices, 256);
    unsigned kind = 0;
    while (kind < 8 && dice >= mixes[phase][kind])
        dice -= mixes[phase][kind++];

    *op = (struct op){.kind = (enum op_kind)kind};
    switch (op->kind) {
    case OP_INSERT:
        if (choose(choices, 4) == 0 || !choose_free_range(op, terrain, model, choices)) {
            op->start = choose_address(terrain, model, choices);
            op->length = choose_length(terrain, model, choices);
        }
        op->tag = choose_tag(terrain, choices);
        op->delta = choose_delta(terrain, choices);
        break;
    case OP_PLACE:
        op->tag = choose_tag(terrain, choices);
        op->delta = choose_delta(terrain, choices);
        choose_fit(&op->fit, terrain, model, choices);
        break;
    case OP_FIND_GAP:
        choose_fit(&op->fit, terrain, model, choices);
        break;
    case OP_REMOVE:
        choose_range(op, terrain, model, phase == PHASE_RANGES && choose(choices, 8) == 0, choices);
        break;
    case OP_RETAG:
        choose_range(op, terrain, model, phase == PHASE_RANGES, choices);
        choose_retag(op, terrain, choices);
        break;
    case OP_FIND:
    case OP_NEXT:
        op->start = choose_address(terrain, model, choices) + choose(choices, 3) - 1;
        break;
    case OP_RESERVE:
        if (terrain->denial) /* what is set aside would keep want of memory away */
            op->kind = OP_STATS;
        else
            op->operations = choose(choices, 2) ? choose(choices, 64) : 0;
        break;
    case OP_STATS:
        break;
    }
    if (terrain->nonsense && choose(choices, terrain->nonsense) == 0)
        spoil(op, terrain, choices);
    if (op->kind == OP_RESERVE && op->operations > 64 && op->operations <= UINT64_C(1) << 32)
        op->operations %= 64;
    if (terrain->denial == 1)
        op->fail_at = 1 + (size_t)choose(choices, 4);
    op->famine = terrain->denial == 2 && model->count > terrain->crowd / 2;
}
