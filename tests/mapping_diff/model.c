/* SPDX-License-Identifier: MIT */
/*
 * What is known to be mapped. Invariant: a page of the arena is always known, live or hole; a page
 * of a slot is known when live, or when it became a hole in this epoch (no call since then could
 * have put something there). An op is valid when all it can touch is known: it then has one right
 * result.
 */
#include <string.h>
#include <sys/mman.h>

#include "diff.h"

#if defined(__SANITIZE_ADDRESS__)
static char *const low_region = (char *)0x200000000000; /* above the shadow */
#else
static char *const low_region = (char *)0x2000000000; /* far below what a kernel chooses */
#endif

struct region *region_of(const struct world *w, struct sym sym)
{
    return sym.region <= SLOTS ? &w->regions[sym.region] : NULL;
}

void slot_set(struct world *w, uint32_t slot, char *base)
{
    struct region *r = &w->regions[slot];
    r->live = 0;
    r->base = slot == ARENA ? low_region + (size_t)w->number * (4096 * page_size) : base;
    r->pages = slot == ARENA ? ARENA_PAGES : SLOT_PAGES;
    memset(r->page, 0, r->pages * sizeof *r->page);
}

char *sym_address(const struct world *w, struct sym sym)
{
    const struct region *r = region_of(w, sym);
    char *base = r ? r->base : NULL;
    if (sym.region == AT_HINT)
        base = low_region + (size_t)(WORLDS + w->number) * (4096 * page_size);
    if (sym.region == AT_KERNEL)
        base = (char *)0xffff800000000000;
    return base + (ptrdiff_t)sym.page * (ptrdiff_t)page_size + sym.byte;
}

uint64_t pages_of(uint64_t length)
{
    return length / page_size + (length % page_size != 0);
}

bool page_known(const struct world *w, const struct region *r, uint32_t page)
{
    const bool holes = w->options->threads < 2 && !(w->options->without & WITHOUT_HOLES);
    return r == w->regions || r->page[page].live ||
           (holes && r->base && r->page[page].epoch == w->epoch);
}

static bool range_inside(const struct region *r, struct sym at, uint64_t pages)
{
    return r && r->base && at.page >= 0 && (uint32_t)at.page < r->pages &&
           pages <= r->pages - (uint32_t)at.page;
}

bool model_known(const struct world *w, struct sym at, uint64_t pages)
{
    const struct region *r = region_of(w, at);
    if (!range_inside(r, at, pages))
        return false;
    for (uint32_t i = 0; i < pages; i++) {
        if (!page_known(w, r, (uint32_t)at.page + i))
            return false;
    }
    return true;
}

bool model_live(const struct world *w, struct sym at, uint64_t pages)
{
    const struct region *r = region_of(w, at);
    if (!range_inside(r, at, pages))
        return false;
    for (uint32_t i = 0; i < pages; i++) {
        if (!r->page[(uint32_t)at.page + i].live)
            return false;
    }
    return true;
}

static bool is_copied(const struct page *p)
{
    return p->copied;
}

static bool is_moved(const struct page *p)
{
    return p->moved;
}

static bool is_anonymous(const struct page *p)
{
    return p->anonymous;
}

static bool model_has(const struct world *w, struct sym at, uint64_t pages,
                      bool (*is)(const struct page *))
{
    const struct region *r = region_of(w, at);
    for (uint64_t i = 0; r && i < pages && (uint64_t)at.page + i < r->pages; i++) {
        const struct page *p = &r->page[(uint64_t)at.page + i];
        if (p->live && is(p))
            return true;
    }
    return false;
}

bool model_has_copied(const struct world *w, struct sym at, uint64_t pages)
{
    return model_has(w, at, pages, is_copied);
}

/* 1: one kernel mapping for sure; 2: more for sure, or a hole; 0: it depends on what merged. */
int model_vmas(const struct world *w, struct sym at, uint64_t pages)
{
    const struct region *r = region_of(w, at);
    int answer = 1;
    const struct page *first = &r->page[at.page];
    for (uint32_t i = 0; i < pages; i++) {
        const struct page *p = &first[i];
        if (!p->live || p->file != first->file || p->anonymous != first->anonymous ||
            p->shared != first->shared)
            return 2;
        if (p->vma != first->vma)
            answer = 0;
    }
    return answer;
}

static void region_count(struct world *w, struct region *r, struct page *p, bool live)
{
    const bool had = r->live != 0;
    r->live += (uint32_t)live - p->live;
    p->live = live;
    if (r != w->regions)
        w->live_slots += (uint32_t)(r->live != 0) - had;
}

/* forget: whether something else is there now cannot be known. */
void model_unmap(struct world *w, struct sym at, uint64_t pages, bool forget)
{
    struct region *r = region_of(w, at);
    for (uint32_t i = 0; i < pages; i++) {
        struct page *p = &r->page[(uint32_t)at.page + i];
        region_count(w, r, p, false);
        *p = (struct page){.epoch = forget ? 0 : w->epoch};
    }
}

void model_map(struct world *w, struct sym at, uint64_t pages, const struct page *first)
{
    struct region *r = region_of(w, at);
    w->vma++;
    for (uint32_t i = 0; i < pages; i++) {
        struct page *p = &r->page[(uint32_t)at.page + i];
        region_count(w, r, p, true);
        *p = *first;
        p->live = true;
        p->file_page = first->file_page + i;
        p->vma = w->vma << 8;
    }
}

/* A call treated these pages apart from their neighbours. */
void model_split(struct world *w, struct sym at, uint64_t pages)
{
    struct region *r = region_of(w, at);
    w->vma++;
    for (uint32_t i = 0; i < pages && (uint32_t)at.page + i < r->pages; i++) {
        struct page *p = &r->page[(uint32_t)at.page + i];
        p->vma = (p->vma ^ w->vma) * 2654435761u;
    }
}

static bool huge(uint64_t length)
{
    return length >> 47;
}

/*
 * A call that fails after it has unmapped something (mmap of a file whose own mmap fails, mremap to
 * a fixed address) leaves holes, and outside the arena another thread may have mapped something
 * there before they are looked at: such calls have no one right result.
 */
static bool others_take_holes(const struct world *w, struct sym at)
{
    return w->options->threads > 1 && at.region != ARENA && at.region <= SLOTS;
}

static bool mmap_valid(const struct world *w, const struct op *op)
{
    if (!locks_comparable && op->flags & MAP_LOCKED)
        return false;
    if (!(op->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))) {
        if (op->dst == 0 || op->dst > SLOTS || w->regions[op->dst].live)
            return false;
        const struct region *r = region_of(w, op->at);
        /* a free spot as a hint may or may not be taken, and the model could not tell */
        return !r || model_live(w, op->at, 1);
    }
    if (op->at.region == AT_NULL || op->at.region == AT_HINT)
        return false;
    if (others_take_holes(w, op->at) && !(op->flags & MAP_ANONYMOUS) && op->fd < DESCRIPTORS &&
        w->descriptors[op->fd].open && w->descriptors[op->fd].file >= FILES)
        return false;
    return op->at.region == AT_KERNEL || huge(op->length) ||
           model_known(w, op->at, pages_of(op->length));
}

static bool mremap_valid(const struct world *w, const struct op *op)
{
    const uint64_t old_pages = pages_of(op->length), new_pages = pages_of(op->length2);
    const bool fixed = op->flags & MREMAP_FIXED;
    if (huge(op->length) || (!huge(op->length2) && new_pages > SLOT_PAGES))
        return false;
    if (op->at.region > SLOTS)
        return op->at.region == AT_KERNEL && !fixed;
    if (!model_known(w, op->at, old_pages ? old_pages : 1))
        return false;
    if (fixed && (op->to.region > SLOTS || !model_known(w, op->to, new_pages)))
        return false;
    if (fixed && (others_take_holes(w, op->at) || others_take_holes(w, op->to)))
        return false;
    if (!fixed && op->flags & MREMAP_MAYMOVE &&
        (op->dst == 0 || op->dst > SLOTS || w->regions[op->dst].live))
        return false;
    if (model_has_copied(w, op->at, old_pages ? old_pages : 1) &&
        (new_pages > old_pages || op->flags & 4))
        return false;
    const bool grows = new_pages > old_pages;
    if (grows && !fixed && !huge(op->length2) && old_pages &&
        (op->at.region == ARENA || !(op->flags & MREMAP_MAYMOVE))) {
        /* in the arena a neighbour stays what it is, also beyond the arena's end */
        if (!model_known(w, op->at, new_pages))
            return false;
    }
    if (!grows && !fixed && !(op->flags & 4))
        return true;
    if (model_vmas(w, op->at, old_pages ? old_pages : 1) == 0)
        return kernel_moves_many && fixed && old_pages == new_pages && !(op->flags & 4);
    return true;
}

/* Advice that tells private file mappings from anonymous memory. */
static bool advice_tells_anonymous(int advice)
{
    switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
    case MADV_REMOVE:
    case MADV_WIPEONFORK:
    case 24: /* DONTNEED_LOCKED */
        return true;
    default:
        return false;
    }
}

static bool madvise_valid(const struct world *w, const struct op *op)
{
    const uint64_t pages = pages_of(op->length);
    /* what was freed lazily may go at any time, or not; for files it is an error */
    if (op->flags == MADV_FREE && model_has(w, op->at, pages, is_anonymous))
        return false;
    if ((op->flags == 102 || op->flags == 103) && model_has(w, op->at, pages, is_copied))
        return false;
    return !advice_tells_anonymous(op->flags) || !model_has(w, op->at, pages, is_moved);
}

bool op_valid(const struct world *w, const struct op *op)
{
    const struct region *r = region_of(w, op->at);
    switch (op->kind) {
    case OP_MMAP:
        return mmap_valid(w, op);
    case OP_MREMAP:
        return mremap_valid(w, op);
    case OP_MADVISE:
        if (!madvise_valid(w, op))
            return false;
        __attribute__((fallthrough));
    case OP_MUNMAP:
    case OP_MPROTECT:
    case OP_MSYNC:
    case OP_MINCORE:
    case OP_MLOCK:
    case OP_MUNLOCK:
        if (op->kind == OP_MLOCK && !locks_comparable)
            return false;
        if (!r)
            return op->at.region == AT_KERNEL;
        return (huge(op->length) && r->base) ||
               model_known(w, op->at, pages_of(op->length + op->at.byte));
    case OP_LOAD:
    case OP_STORE:
    case OP_READ_INTO:
    case OP_WRITE_FROM: {
        const uint64_t pages = (op->at.byte + op->length + page_size - 1) / page_size;
        if (op->length > 4 * page_size)
            return false;
        /* bytes of an unmapped piece may stay readable: the one deviation, and none when strict */
        return op->at.region == ARENA || w->options->strict ? model_known(w, op->at, pages)
                                                            : model_live(w, op->at, pages);
    }
    case OP_FORK:
        return !w->in_child && op->value > 0 && op->value < 64;
    case OP_OPEN:
        return op->fd < DESCRIPTORS && !w->descriptors[op->fd].open && op->value < FILE_KINDS;
    case OP_MAPS:
        /* a fork beside another thread's call, or without pages of the parent, may leave extents */
        return !w->in_child || (w->options->threads < 2 && !w->lost_pages);
    case OP_LOCK:
        /* the flock of a child lives until the kernel has torn down the child's memory: some time
         */
        if (w->in_child && op->flags & 1)
            return false;
        /* the special files are the same ones on both sides, and threads share some files */
        return op->fd < DESCRIPTORS && w->descriptors[op->fd].open &&
               file_may_change(w, w->descriptors[op->fd].file);
    case OP_CLOSE:
        return op->fd < DESCRIPTORS && w->descriptors[op->fd].open;
    case OP_PWRITE:
        return op->fd < DESCRIPTORS && w->descriptors[op->fd].open &&
               file_may_change(w, w->descriptors[op->fd].file) && op->length <= 2 * page_size;
    case OP_TRUNCATE:
        return op->value < FILES && file_may_change(w, (int)op->value);
    default:
        return op->kind != OP_NONE && op->kind < OP_KINDS;
    }
}
