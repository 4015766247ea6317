/* SPDX-License-Identifier: MIT */
/*
 * The layer's calls: what is recorded of a result, and what the model learns from it. Addresses are
 * recorded as "where it was asked for", "in the arena at page n" or "elsewhere". After a failed
 * call that may have unmapped or replaced something, each page it named is probed.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "diff.h"

enum { AS_ASKED = 1, ELSEWHERE = 2, MISALIGNED = 3, IN_ARENA = 1000 };

static _Thread_local unsigned char residency[4 * SLOT_PAGES + ARENA_PAGES];

static int place_of(const struct world *w, const char *address, const char *asked)
{
    if (address == asked)
        return AS_ASKED;
    if ((uintptr_t)address % page_size)
        return MISALIGNED;
    const struct region *arena = &w->regions[ARENA];
    if (address >= arena->base && address < arena->base + ARENA_PAGES * page_size)
        return IN_ARENA + (int)((size_t)(address - arena->base) / page_size);
    return ELSEWHERE;
}

/* What a failed call left of the pages it named: bits to compare, and the model made true again. */
static uint64_t range_probe(struct world *w, struct sym at, uint64_t pages)
{
    struct region *region = region_of(w, at);
    uint64_t bits = 1;
    if (!region || !model_known(w, at, pages))
        return bits;
    for (uint32_t i = 0; i < pages; i++) {
        const struct sym sym = {at.region, 0, at.page + (int)i};
        const bool mapped = probe_page(w, sym_address(w, sym));
        bits = bits * 3 + mapped;
        const struct page *p = &region->page[sym.page];
        if (p->live && !mapped)
            model_unmap(w, sym, 1, false);
        else if (!p->live && mapped)
            model_map(w, sym, 1, &(struct page){.file = -1});
    }
    return bits;
}

static int descriptor_number(const struct world *w, const struct op *op)
{
    const struct descriptor *d = op->fd < DESCRIPTORS ? &w->descriptors[op->fd] : NULL;
    return d && d->open ? d->number : op->fd == DESCRIPTORS ? -1 : 977;
}

static void call_mmap(struct world *w, const struct op *op, struct record *r)
{
    char *asked = sym_address(w, op->at);
    const bool fixed = op->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
    const uint64_t pages = pages_of(op->length);
    char *got = w->calls->mmap(asked, op->length, op->prot, op->flags, descriptor_number(w, op),
                               (off_t)op->offset);
    if (got == MAP_FAILED) {
        r->ret = -1;
        r->error = errno;
        if (fixed && pages <= ARENA_PAGES)
            r->data = range_probe(w, op->at, pages);
        return;
    }
    r->ret = place_of(w, got, fixed ? asked : NULL);
    const bool anonymous = op->flags & MAP_ANONYMOUS;
    struct page first = {.shared = (op->flags & MAP_TYPE) != MAP_PRIVATE,
                         .anonymous = anonymous,
                         .writable = (op->prot & PROT_WRITE) != 0,
                         .file = anonymous ? (int8_t)-1 : w->descriptors[op->fd].file,
                         .file_page = (uint32_t)(op->offset / page_size)};
    if (!fixed)
        w->epoch++;
    if (!fixed && pages > SLOT_PAGES) { /* too large for the model: seen that it works, and gone */
        r->data = (uint64_t)w->calls->munmap(got, op->length);
        return;
    }
    if (!fixed)
        slot_set(w, op->dst, got);
    else if (r->ret != AS_ASKED)
        return;
    const struct sym at = fixed ? op->at : (struct sym){op->dst, 0, 0};
    const char kind = w->calls->kind_of && !anonymous ? w->calls->kind_of(got) : 0;
    w->tape->carved += kind == 'c';
    w->tape->copied += kind == 'y';
    w->tape->passed += kind == 'p' || (anonymous && w->calls->kind_of);
    if (kind == 'y')
        r->note |= NOTE_COPIED;
    copying_mapped(w, op, got, pages, r);
    first.copied = (r->note & NOTE_COPIED) != 0;
    model_map(w, at, pages, &first);
}

static void call_munmap(struct world *w, const struct op *op, struct record *r)
{
    r->ret = w->calls->munmap(sym_address(w, op->at), op->length);
    r->error = r->ret < 0 ? errno : 0;
    if (r->ret == 0)
        model_unmap(w, op->at, pages_of(op->length), false);
}

struct moved {
    struct page page[SLOT_PAGES];
    uint64_t count;
};

/*
 * The pages at the new address: those that moved, and growth, which continues the last of them.
 * Where the old range had a hole, the kernel leaves what is at the new address alone.
 */
static void moved_place(struct world *w, struct sym to, const struct moved *moved, uint64_t pages)
{
    for (uint64_t i = 0; i < pages; i++) {
        struct page page = moved->page[i < moved->count ? i : moved->count - 1];
        if (i >= moved->count)
            page.file_page += (uint32_t)(i - moved->count + 1);
        const struct sym sym = {to.region, 0, to.page + (int)i};
        const uint32_t vma = page.vma;
        if (!page.live)
            continue;
        page.moved |= page.copied;
        model_map(w, sym, 1, &page);
        region_of(w, sym)->page[sym.page].vma = vma ^ 0x5bd1e995u * w->op;
    }
}

static void mremap_learn(struct world *w, const struct op *op, char *got, struct record *r)
{
    const uint64_t old_pages = pages_of(op->length), new_pages = pages_of(op->length2);
    struct moved moved = {.count = old_pages < new_pages ? old_pages : new_pages};
    const struct region *source = region_of(w, op->at);
    memcpy(moved.page, &source->page[op->at.page],
           (moved.count ? moved.count : 1) * sizeof moved.page[0]);
    if (old_pages == 0)
        moved.count = 1;
    const bool fixed = op->flags & MREMAP_FIXED, keeps = op->flags & 4 || old_pages == 0;
    if (got == sym_address(w, op->at) &&
        (op->at.region == ARENA || new_pages <= old_pages || !(op->flags & MREMAP_MAYMOVE))) {
        r->ret = AS_ASKED;
        if (new_pages < old_pages)
            model_unmap(w, (struct sym){op->at.region, 0, op->at.page + (int)new_pages},
                        old_pages - new_pages, false);
        else if (new_pages > old_pages)
            moved_place(w, op->at, &moved, new_pages);
        return;
    }
    struct sym to = op->to;
    if (!fixed) { /* moved or not: the same to the model, and the old place is unknown from here */
        w->epoch++;
        const int place = place_of(w, got, NULL);
        r->ret = place;
        slot_set(w, op->dst, got);
        to = (struct sym){op->dst, 0, 0};
    } else {
        r->ret = place_of(w, got, sym_address(w, to));
    }
    if (!keeps)
        model_unmap(w, op->at, old_pages, !fixed);
    else
        model_split(w, op->at, old_pages);
    moved_place(w, to, &moved, new_pages);
}

static void call_mremap(struct world *w, const struct op *op, struct record *r)
{
    char *got = w->calls->mremap(sym_address(w, op->at), op->length, op->length2, op->flags,
                                 sym_address(w, op->to));
    if (got != MAP_FAILED) {
        mremap_learn(w, op, got, r);
        return;
    }
    r->ret = -1;
    r->error = errno;
    r->data = range_probe(w, op->at, pages_of(op->length));
    if (op->flags & MREMAP_FIXED)
        r->data += 7 * range_probe(w, op->to, pages_of(op->length2));
}

static void madvise_learn(struct world *w, const struct op *op)
{
    struct region *region = region_of(w, op->at);
    const uint64_t pages = pages_of(op->length);
    if (!region || !model_known(w, op->at, pages))
        return;
    model_split(w, op->at, pages);
    for (uint32_t i = 0; i < pages; i++) {
        struct page *p = &region->page[(uint32_t)op->at.page + i];
        if (p->live && op->flags == MADV_DONTFORK)
            p->no_fork = true;
        if (p->live && op->flags == MADV_DOFORK)
            p->no_fork = false;
    }
}

/*
 * Reclaim may take a page that was only read and holds zeros, even from tmpfs without swap; what
 * was written stays, and so do private anonymous pages.
 */
static bool residency_certain(const struct world *w, const struct page *p)
{
    if (!residency_stable || p->copied || (p->anonymous && p->shared))
        return false;
    return p->anonymous ||
           (w->options->threads < 2 && !file_page_is_zero(w, p->file, p->file_page));
}

static void call_mincore(struct world *w, const struct op *op, struct record *r)
{
    const uint64_t pages = pages_of(op->length);
    unsigned char *vector = op->value ? (unsigned char *)8 : residency;
    memset(residency, 0xee, sizeof residency);
    r->ret = w->calls->mincore(sym_address(w, op->at), op->length, vector);
    r->error = r->ret < 0 ? errno : 0;
    if (r->ret != 0 || op->value || pages >= sizeof residency || !region_of(w, op->at))
        return;
    const struct page *page = &region_of(w, op->at)->page[op->at.page];
    for (uint64_t i = 0; i < pages; i++) {
        const unsigned bit = residency_certain(w, &page[i]) ? residency[i] & 1 : 0;
        r->data = r->data * 3 + (residency[i] == 0xee ? 2 : bit);
    }
    r->data = r->data * 3 + (residency[pages] == 0xee);
}

static void call_protecting(struct world *w, const struct op *op, struct record *r)
{
    char *address = sym_address(w, op->at);
    if (op->kind == OP_MPROTECT)
        r->ret = w->calls->mprotect(address, op->length, op->prot);
    else if (op->kind == OP_MLOCK)
        r->ret = w->calls->mlock(address, op->length);
    else
        r->ret = w->calls->munlock(address, op->length);
    r->error = r->ret < 0 ? errno : 0;
    const uint64_t pages = pages_of(op->length + op->at.byte);
    if (op->at.region <= SLOTS && model_known(w, op->at, pages))
        model_split(w, op->at, pages);
}

void execute_call(struct world *w, const struct op *op, struct record *r)
{
    switch (op->kind) {
    case OP_MMAP:
        call_mmap(w, op, r);
        break;
    case OP_MUNMAP:
        call_munmap(w, op, r);
        break;
    case OP_MREMAP:
        call_mremap(w, op, r);
        break;
    case OP_MADVISE:
        if ((op->flags == MADV_DONTNEED || op->flags == 24) &&
            model_has_copied(w, op->at, pages_of(op->length)))
            r->ret = copying_dontneed(w, op, r);
        else
            r->ret = w->calls->madvise(sym_address(w, op->at), op->length, op->flags);
        r->error = r->ret < 0 ? errno : 0;
        madvise_learn(w, op);
        break;
    case OP_MSYNC:
        r->ret = w->calls->msync(sym_address(w, op->at), op->length, op->flags);
        r->error = r->ret < 0 ? errno : 0;
        break;
    case OP_MINCORE:
        call_mincore(w, op, r);
        break;
    default:
        call_protecting(w, op, r);
    }
}
