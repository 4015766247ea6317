/* SPDX-License-Identifier: MIT */
/*
 * Random ops. Each episode draws its own mix, so that one maps a single page of one file again and
 * again while another splits, moves and protects a few large pieces. What is drawn may be invalid;
 * it is drawn anew then.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "diff.h"

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static uint32_t below(struct world *w, uint32_t bound)
{
    return (uint32_t)(random_next(&w->tape->random) >> 33) % bound;
}

static bool percent(struct world *w, uint32_t chance)
{
    return below(w, 100) < chance;
}

#define PICK(w, ...)                                                                               \
    (((const int[]){__VA_ARGS__})[below((w), sizeof(int[]){__VA_ARGS__} / sizeof(int))])

/* Three episodes of four go where a layer folds: many equal pieces of few files. */
static void mix_fold(struct mix *mix, uint64_t draw)
{
    mix->files = 1 + draw % 3;
    mix->fixed /= 5;
    mix->arena /= 5;
    mix->anonymous /= 8;
    mix->wrong /= 2;
    mix->private = draw >> 8 & 1 ? 100 : draw >> 9 & 1 ? 0 : mix->private;
    mix->writable = draw >> 10 & 1 ? 100 : draw >> 11 & 1 ? 0 : mix->writable;
    if (draw >> 12 & 1) { /* and whole pieces, rarely split */
        mix->sub /= 8;
        mix->weight[OP_MPROTECT] /= 8;
        mix->weight[OP_MADVISE] /= 8;
        mix->weight[OP_MREMAP] /= 8;
        mix->weight[OP_MLOCK] /= 8;
    }
}

void mix_draw(struct mix *mix, uint64_t seed, uint32_t without)
{
    static const uint16_t base[OP_KINDS] = {
        [OP_MMAP] = 300,      [OP_MUNMAP] = 120, [OP_MPROTECT] = 60, [OP_MREMAP] = 60,
        [OP_MADVISE] = 60,    [OP_MSYNC] = 30,   [OP_MINCORE] = 30,  [OP_MLOCK] = 20,
        [OP_MUNLOCK] = 15,    [OP_LOAD] = 80,    [OP_STORE] = 120,   [OP_READ_INTO] = 15,
        [OP_WRITE_FROM] = 15, [OP_PWRITE] = 20,  [OP_TRUNCATE] = 6,  [OP_OPEN] = 20,
        [OP_CLOSE] = 8,       [OP_LOCK] = 5,     [OP_STATE] = 4,     [OP_FORK] = 1,
        [OP_CHECK] = 10,      [OP_PROBE] = 3,    [OP_FILES] = 2,     [OP_MAPS] = 3,
    };
    static const uint8_t factors[8] = {0, 1, 1, 2, 2, 2, 4, 8};
    static const uint16_t lives[6] = {4, 12, 30, 60, 120, 250};
    static const uint8_t sizes[6] = {1, 2, 4, 8, 16, 40};
    uint64_t state = seed;
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const bool kept = kind == OP_MMAP || kind == OP_OPEN || kind >= OP_FORK;
        const uint32_t factor = factors[random_next(&state) >> 61];
        mix->weight[kind] = base[kind] * (kept ? 2 : factor);
    }
    mix->files = 1 + (uint32_t)(random_next(&state) >> 40) % FILES;
    mix->live = lives[(random_next(&state) >> 40) % 6];
    mix->max_pages = sizes[(random_next(&state) >> 40) % 6];
    mix->fixed = (uint32_t)(random_next(&state) >> 40) % 50;
    mix->arena = (uint32_t)(random_next(&state) >> 40) % 60;
    mix->wrong = (uint32_t)(random_next(&state) >> 40) % 8;
    mix->private = (uint32_t)(random_next(&state) >> 40) % 101;
    mix->writable = (uint32_t)(random_next(&state) >> 40) % 101;
    mix->anonymous = (uint32_t)(random_next(&state) >> 40) % 25;
    mix->hot = (uint32_t)(random_next(&state) >> 40) % 80;
    mix->sub = (uint32_t)(random_next(&state) >> 40) % 80;
    mix->step = (uint32_t)(random_next(&state) >> 40) % FILES;
    if (random_next(&state) >> 62 != 0)
        mix_fold(mix, random_next(&state));
    const uint32_t pages = mix->live * mix->max_pages / 2;
    if (pages > 100) /* looking at all memory costs as much as there is */
        mix->weight[OP_CHECK] = mix->weight[OP_CHECK] * 100 / pages + 1;
    for (int kind = 0; kind < OP_KINDS; kind++)
        mix->weight[kind] *= !(without >> kind & 1);
}

/* Slots in use go round, so that a number comes back late and a shortened program stays valid. */
static uint16_t slot_free(struct world *w)
{
    for (int i = 0; i < SLOTS; i++) {
        w->slot = w->slot % SLOTS + 1;
        if (w->regions[w->slot].live == 0)
            return (uint16_t)w->slot;
    }
    return 0;
}

static uint16_t slot_live(struct world *w)
{
    if (w->live_slots == 0)
        return ARENA;
    uint32_t slot = 1 + below(w, SLOTS);
    while (w->regions[slot].live == 0)
        slot = slot % SLOTS + 1;
    return (uint16_t)slot;
}

static uint16_t region_any(struct world *w)
{
    const bool arena = percent(w, w->regions[ARENA].live ? w->mix.arena : 5);
    return arena ? ARENA : slot_live(w);
}

/* A slot whose piece was unmapped just now: a hole for sure, until something is placed. */
static struct sym hole_any(struct world *w, uint32_t *pages)
{
    for (int tries = 0; tries < 24; tries++) {
        const uint32_t slot = tries < 4 ? ARENA : 1 + below(w, SLOTS);
        const struct region *r = &w->regions[slot];
        const uint32_t page = below(w, slot == ARENA ? ARENA_PAGES : 4);
        uint32_t count = 0;
        while (r->base && page + count < r->pages && !r->page[page + count].live &&
               page_known(w, r, page + count))
            count++;
        if (count) {
            *pages = count;
            return (struct sym){(uint16_t)slot, 0, (int)page};
        }
    }
    return (struct sym){AT_NULL, 0, 0};
}

static uint64_t length_of(struct world *w, uint32_t pages)
{
    const uint64_t length = pages * page_size;
    return percent(w, 20) && pages ? length - below(w, (uint32_t)page_size) : length;
}

static void range_any(struct world *w, struct op *op)
{
    const uint16_t region = region_any(w);
    const struct region *r = &w->regions[region];
    uint32_t first = 0, pages = r->pages;
    if (region == ARENA) {
        first = below(w, ARENA_PAGES);
        for (int i = 0; i < 20 && !r->page[first].live && percent(w, 90); i++)
            first = below(w, ARENA_PAGES);
        pages = 1 + below(w, percent(w, 10) ? 64 : 12);
    } else {
        while (first + 1 < r->pages && !r->page[first].live)
            first++;
        if (percent(w, w->mix.sub))
            first += below(w, r->live);
        for (pages = 0; first + pages < r->pages && page_known(w, r, first + pages);)
            pages++;
        if (pages && percent(w, w->mix.sub))
            pages = 1 + below(w, pages);
    }
    if (percent(w, 3)) {
        uint32_t room = 1;
        op->at = hole_any(w, &room);
        op->length = length_of(w, 1 + below(w, room));
        return;
    }
    op->at = (struct sym){region, 0, (int)first};
    op->length = length_of(w, pages);
}

static uint64_t length_wrong(struct world *w)
{
    static const uint64_t lengths[6] = {
        0, UINT64_MAX, UINT64_MAX - 4095, UINT64_MAX - 8191, UINT64_C(1) << 63, UINT64_C(1) << 47};
    return lengths[below(w, w->options->without & WITHOUT_HUGE ? 5 : 6)];
}

static void range_wrong(struct world *w, struct op *op)
{
    switch (below(w, 4)) {
    case 0:
        op->at.byte = (uint16_t)(1 + below(w, (uint32_t)page_size - 1));
        break;
    case 1:
        /* 2^47 bytes are refused by munmap alone: other calls would walk into foreign memory */
        op->length = length_wrong(w);
        if (op->kind != OP_MUNMAP && op->length == UINT64_C(1) << 47)
            op->length = 0;
        if (op->kind != OP_MUNMAP && op->length >> 62 == 2)
            op->length = UINT64_MAX;
        break;
    case 2:
        op->at = (struct sym){AT_KERNEL, 0, 3};
        break;
    default:
        op->flags = op->kind == OP_MADVISE ? PICK(w, -1, 5, 7, 26, 99)
                    : op->kind == OP_MSYNC ? PICK(w, MS_ASYNC | MS_SYNC, 8, 0x1000)
                                           : 0;
        op->prot = op->kind == OP_MPROTECT ? PICK(w, 0x10, 0x100, 0x01000000, 0x03000000) : 0;
        op->value = op->kind == OP_MINCORE;
    }
}

static int protection_any(struct world *w)
{
    if (percent(w, 4))
        return PICK(w, PROT_NONE, PROT_EXEC, PROT_READ | PROT_EXEC, PROT_WRITE);
    return percent(w, w->mix.writable) ? PROT_READ | PROT_WRITE : PROT_READ;
}

static uint8_t descriptor_any(struct world *w)
{
    for (int tries = 0; tries < 16; tries++) {
        const uint8_t fd = (uint8_t)below(w, DESCRIPTORS);
        if (w->descriptors[fd].open)
            return fd;
    }
    return (uint8_t)below(w, DESCRIPTORS + 2);
}

static void mmap_wrong(struct world *w, struct op *op)
{
    switch (below(w, 8)) {
    case 0:
        op->length = length_wrong(w);
        break;
    case 1:
        op->offset = op->offset + 1 + below(w, (uint32_t)page_size - 1);
        break;
    case 2:
        op->offset = PICK(w, 0, 1) ? UINT64_C(0x7ffffffffffff000) : UINT64_MAX - 4095;
        break;
    case 3:
        op->fd = (uint8_t)(DESCRIPTORS + below(w, 2));
        break;
    case 4:
        op->flags ^= PICK(w, MAP_PRIVATE, MAP_SHARED, MAP_PRIVATE | MAP_SHARED);
        break;
    case 5:
        op->flags |= PICK(w, MAP_HUGETLB, 0x80000, 0x80003, 0x4000000);
        break;
    case 6:
        op->prot |= PICK(w, 0x10, 0x100, PROT_EXEC);
        break;
    default:
        op->at.byte = 7;
    }
    if (percent(w, 30))
        mmap_wrong(w, op);
}

static void mmap_place(struct world *w, struct op *op, uint32_t pages)
{
    op->flags |= percent(w, 70) ? MAP_FIXED : MAP_FIXED_NOREPLACE;
    uint32_t room = 0;
    if (percent(w, 30)) {
        op->at = hole_any(w, &room);
    } else {
        const uint16_t region = region_any(w);
        const struct region *r = &w->regions[region];
        const uint32_t first = below(w, region == ARENA ? ARENA_PAGES : r->live);
        for (room = 0; first + room < r->pages && page_known(w, r, first + room);)
            room++;
        op->at = (struct sym){region, 0, (int)first};
    }
    op->length = length_of(w, room && pages > room ? room : pages);
}

static void generate_mmap(struct world *w, struct op *op)
{
    const struct mix *mix = &w->mix;
    uint32_t pages = 1 + below(w, mix->max_pages);
    op->fd = descriptor_any(w);
    op->prot = protection_any(w);
    op->flags = percent(w, mix->private) ? MAP_PRIVATE : percent(w, 10) ? 3 : MAP_SHARED;
    op->length = length_of(w, pages);
    op->offset = percent(w, mix->hot) ? 0 : below(w, percent(w, 90) ? 16 : 70) * page_size;
    if (op->fd < DESCRIPTORS && w->descriptors[op->fd].file == FILE_LARGE && percent(w, 50))
        op->offset = below(w, 262150) * page_size;
    if (percent(w, mix->anonymous)) {
        op->flags |= MAP_ANONYMOUS;
        op->offset = 0;
    }
    if (percent(w, 6))
        op->flags |= PICK(w, MAP_LOCKED, MAP_POPULATE, MAP_NORESERVE, MAP_STACK, MAP_NONBLOCK);
    if (percent(w, mix->fixed))
        mmap_place(w, op, pages);
    else if (percent(w, 5))
        op->at = (struct sym){percent(w, 50) ? AT_HINT : slot_live(w), 0, (int)below(w, 8)};
    else if (percent(w, 1) && !(op->flags & (MAP_LOCKED | MAP_POPULATE)))
        op->length = (1 + below(w, 300000)) * page_size;
    op->dst = op->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) ? 0 : slot_free(w);
    if (percent(w, mix->wrong))
        mmap_wrong(w, op);
}

static void generate_mremap(struct world *w, struct op *op)
{
    range_any(w, op);
    const uint32_t pages = (uint32_t)pages_of(op->length);
    op->flags =
        PICK(w, 0, 0, MREMAP_MAYMOVE, MREMAP_MAYMOVE, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED,
             MREMAP_MAYMOVE | MREMAP_FIXED, MREMAP_MAYMOVE | 4, MREMAP_MAYMOVE | MREMAP_FIXED | 4);
    uint32_t new_pages = percent(w, 30) ? pages : 1 + below(w, pages + 6);
    if (op->flags & 4 && percent(w, 90))
        new_pages = pages;
    op->length2 = length_of(w, new_pages);
    if (percent(w, 8))
        op->length = 0;
    if (op->flags & MREMAP_FIXED) {
        uint32_t room = 0;
        if (percent(w, 40))
            op->to = hole_any(w, &room);
        else
            op->to =
                (struct sym){region_any(w), 0, (int)below(w, percent(w, 50) ? 4 : ARENA_PAGES)};
    } else if (op->flags & MREMAP_MAYMOVE) {
        op->dst = slot_free(w);
    }
    if (percent(w, w->mix.wrong)) {
        const uint32_t what = below(w, 5);
        op->at.byte = what == 0 ? 8 : 0;
        op->to.byte = what == 1 ? 8 : 0;
        op->flags = what == 2 ? PICK(w, 2, 4, 8, 9, 6) : op->flags;
        op->length2 = what == 3 ? 0 : what == 4 ? length_wrong(w) : op->length2;
        op->dst = op->flags & MREMAP_FIXED || !(op->flags & MREMAP_MAYMOVE) ? 0 : slot_free(w);
    }
}

static void generate_range_call(struct world *w, struct op *op)
{
    range_any(w, op);
    op->prot = op->kind == OP_MPROTECT ? protection_any(w) : 0;
    if (op->kind == OP_MPROTECT && percent(w, 20))
        op->prot = PROT_NONE;
    if (op->kind == OP_MADVISE)
        op->flags =
            PICK(w, MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED,
                 MADV_DONTNEED, MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_REMOVE,
                 MADV_DONTFORK, MADV_DOFORK, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP,
                 MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_COLD, 22, 23, 24, 102, 103, 103);
    if (op->kind == OP_MSYNC)
        op->flags = PICK(w, MS_SYNC, MS_ASYNC, 0, MS_INVALIDATE, MS_SYNC | MS_INVALIDATE);
    if (percent(w, w->mix.wrong))
        range_wrong(w, op);
}

static void generate_access(struct world *w, struct op *op)
{
    for (int i = 0; i < 3; i++) { /* rather where a store succeeds */
        range_any(w, op);
        const struct region *r = region_of(w, op->at);
        if (op->kind == OP_LOAD || (r && r->page[op->at.page].writable))
            break;
    }
    const uint32_t pages = (uint32_t)pages_of(op->length);
    op->at.page += (int)below(w, pages ? pages : 1);
    op->at.byte = (uint16_t)(percent(w, 30) ? 0 : below(w, (uint32_t)page_size));
    if (percent(w, 15)) /* over the border to the next page, which may be another piece or none */
        op->at.byte = (uint16_t)(page_size - 1 - below(w, 8));
    op->length = percent(w, 70) ? 1 + below(w, 8) : 1 + below(w, (uint32_t)page_size);
    op->value = below(w, 251);
    op->fd = descriptor_any(w);
    if (op->kind == OP_READ_INTO || op->kind == OP_WRITE_FROM)
        op->offset = below(w, 8) * page_size + below(w, (uint32_t)page_size);
}

static void generate_file(struct world *w, struct op *op)
{
    op->fd = op->kind == OP_OPEN ? (uint8_t)below(w, DESCRIPTORS) : descriptor_any(w);
    if (op->kind == OP_OPEN) {
        op->value = (w->mix.step + below(w, w->mix.files)) % FILES;
        if (percent(w, 4))
            op->value = FILE_PROC + below(w, FILE_KINDS - FILE_PROC);
        op->flags = percent(w, 6)    ? PICK(w, O_WRONLY, O_PATH, O_RDWR | O_APPEND)
                    : percent(w, 75) ? O_RDWR
                                     : O_RDONLY;
    }
    if (op->kind == OP_PWRITE) {
        op->offset = below(w, 20) * page_size + (percent(w, 50) ? 0 : below(w, 4000));
        op->length = 1 + below(w, percent(w, 70) ? 100 : (uint32_t)(2 * page_size));
        op->value = below(w, 251);
    }
    if (op->kind == OP_TRUNCATE) {
        op->value = (w->mix.step + below(w, w->mix.files)) % FILES;
        op->length = below(w, percent(w, 30) ? 3 : 70) * page_size +
                     (percent(w, 50) ? 0 : below(w, (uint32_t)page_size));
    }
    if (op->kind == OP_LOCK) {
        op->flags = (int)below(w, 4);
        op->offset = below(w, 100);
        op->length = below(w, 50);
    }
}

static enum kind kind_any(struct world *w)
{
    const struct mix *mix = &w->mix;
    if (w->live_slots > mix->live && percent(w, 30))
        return OP_MUNMAP;
    int open = 0;
    for (int i = 0; i < DESCRIPTORS; i++)
        open += w->descriptors[i].open;
    if (open < 5 && percent(w, 20))
        return OP_OPEN;
    uint32_t sum = 0;
    for (int kind = 0; kind < OP_KINDS; kind++)
        sum += mix->weight[kind];
    uint32_t at = below(w, sum), kind = 0;
    for (; at >= mix->weight[kind]; kind++)
        at -= mix->weight[kind];
    return kind;
}

static void op_draw(struct world *w, struct op *op)
{
    *op = (struct op){.kind = (uint8_t)kind_any(w), .at.region = AT_NULL, .to.region = AT_NULL};
    switch (op->kind) {
    case OP_MMAP:
        generate_mmap(w, op);
        break;
    case OP_MREMAP:
        generate_mremap(w, op);
        break;
    case OP_LOAD:
    case OP_STORE:
    case OP_READ_INTO:
    case OP_WRITE_FROM:
        generate_access(w, op);
        break;
    case OP_FORK:
        op->value = 1 + below(w, 20);
        break;
    default:
        if (op_is_call(op->kind))
            generate_range_call(w, op);
        else
            generate_file(w, op);
    }
    if (op->at.region == AT_NULL && op_is_call(op->kind) && op->kind != OP_MMAP)
        op->kind = OP_NONE;
}

void op_generate(struct world *w, struct op *op)
{
    do {
        op_draw(w, op);
    } while (!op_valid(w, op));
}
