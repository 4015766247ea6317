/* SPDX-License-Identifier: MIT */
/*
 * The tables of the mapping layer, for its own files.
 *
 * Extents and arenas are address ranges that the layer made and of which it hands out parts. Each
 * has a space (`live`) that says of each page what it is; a page in none of its areas is FREE:
 *
 *   FREE     mapped as the extent was made, without private pages: may be handed out as it is
 *   LIVE     handed out; with CHANGED bits where the program changed its kernel mapping
 *   PENDING  given back, but it may hold private pages, which are dropped before it is handed out
 *   FOREIGN  not the layer's any more (replaced, moved away, made a hole, or a stranger's): never
 *            touched again, and the kernel's answer is right for it
 *
 *   FREE -> LIVE -> FREE or PENDING -> (dropped) FREE;  anything -> FOREIGN, for ever
 *
 * The program sees LIVE and FOREIGN pages; FREE and PENDING ones are *holes* to it, though they are
 * mapped. So a call over visible pages only can go to the kernel as it is, and one over holes is
 * cut at them. Invariant: a page that is LIVE is a kernel mapping of the right bytes at any moment.
 *
 * A class is what may share an extent: file, sharing, protection, and, if shared, whether the
 * descriptor may write. A class exists as long as it has extents, copies, or live pieces that were
 * left to the kernel.
 *
 * Everything here needs the lock of layer_lock.h unless it says otherwise. No function touches
 * errno.
 */
#ifndef MF_LINUX_LAYER_H
#define MF_LINUX_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mapfold/mmap.h>
#include <mapfold/space.h>

#include "linux/layer_lock.h"
#include "linux/sys.h"

/* Tags of an extent's areas: a state, what was changed, and in an arena the class of the copy. */
#define STATE_MASK UINT64_C(3)
#define STATE_LIVE UINT64_C(1)
#define STATE_PENDING UINT64_C(2)
#define STATE_FOREIGN UINT64_C(3)
#define CHANGED_PROTECTION (UINT64_C(1) << 2)
#define CHANGED_LOCK (UINT64_C(1) << 3)
#define CHANGED_ADVICE (UINT64_C(1) << 4)
#define CHANGED_FOR_GOOD (UINT64_C(1) << 5) /* what cannot be undone */
#define CHANGED_MASK (UINT64_C(15) << 2)
#define NO_CLASS UINT32_MAX

/* In an arena: the class of a copy. */
static inline uint64_t tag_of_class(uint32_t id)
{
    return (uint64_t)id << 16;
}

static inline uint32_t tag_class(uint64_t tag)
{
    return (uint32_t)((tag & ~MF_TAG_MERGE) >> 16);
}

/* Records that were never used cost nothing; one in use has tables of a page or more. */
enum { MAX_EXTENTS = 16384, MAX_PENDING = 256, MAX_PENDING_PAGES = 8192 };

struct identity {
    uint64_t device, inode, mount;
};

struct extent {
    uintptr_t start;
    size_t length; /* 0 = this record is free */
    struct mf_space *live;
    uint64_t live_bytes;
    uint32_t class; /* NO_CLASS: an arena */
    int protection;
    bool shared;
    bool original;         /* nothing is handed out of it: see copied.c */
    bool closed;           /* an arena that was dissolved: it goes with its last copy */
    struct extent *deeper; /* of the same class */
    uint64_t idle_since;   /* when the last piece went (ms), if it lingers; else 0 */
};

struct class
{
    struct identity file;
    uint32_t id;
    uint8_t protection, shared, writable;
    uint8_t held;       /* a call works with it */
    uint8_t refused;    /* enum mf_pass_reason, while plain < promote_at */
    uint8_t executable; /* its copies may become so; known once there are some */
    uint32_t next;      /* in its hash chain, or in the list of free ones */
    uint32_t plain;     /* live pieces left to the kernel */
    uint32_t promote_at;
    uint32_t depth;           /* extents */
    uint32_t carved, changed; /* pieces since it was promoted, and how many changes to parts */
    struct extent *extents;
    struct extent *original;
    bool original_refused;
    uint64_t copied; /* live bytes of copies */
};

/* A request of mf_mmap. */
struct request {
    uintptr_t address;
    size_t length; /* rounded up to pages */
    int protection, flags, fd;
    uint64_t offset;
    struct identity file;
    bool writable; /* the descriptor may write; false for private pieces: it does not matter */
};

/* What is read without the lock by every call, and hardly ever written, shares no line with
 * counters. */
struct layer {
    size_t page;   /* 0: layer_begin was never called */
    uintptr_t end; /* above the last address that the process can have */
    struct mf_map_options options;
    uint32_t extents;      /* in layer_sorted[] */
    uint32_t idle;         /* of them, lingering */
    uint64_t extent_bytes; /* of address space, in all of them */
    struct mf_map_stats stats __attribute__((aligned(128)));
};
extern struct layer layer;
extern struct extent *layer_sorted[MAX_EXTENTS]; /* by address; layer.extents of them */

/* Counts without the lock; two at once may count as one. */
/* NOLINTNEXTLINE(readability-non-const-parameter): clang-tidy does not see the atomic store */
static inline void layer_count(uint64_t *counter)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* Without the lock: a piece that the caller knows of is in an extent that is counted. */
static inline uint32_t extents_now(void)
{
    return __atomic_load_n(&layer.extents, __ATOMIC_RELAXED);
}

static inline void extents_set(uint32_t count)
{
    __atomic_store_n(&layer.extents, count, __ATOMIC_RELAXED);
}

static inline uintptr_t page_up(uintptr_t n)
{
    return (n + layer.page - 1) & ~(layer.page - 1);
}

size_t address_space_left(void);

/* Whether [address, address + length) can be a range of pages, by the kernel's own checks. */
static inline bool range_is_sane(uintptr_t address, size_t length)
{
    return (address & (layer.page - 1)) == 0 && length != 0 && page_up(length) != 0 &&
           address + page_up(length) > address && address + page_up(length) <= layer.end;
}

static inline uintptr_t extent_end(const struct extent *extent)
{
    return extent->start + extent->length;
}

/* layer.c: entering, leaving, the calls that interrupted */
void layer_begin(void); /* first of all; needs no lock */
enum entry layer_enter(void);
void layer_leave(void);
enum late { LATE_UNMAP, LATE_FOREIGN, LATE_CHANGED };
bool layer_queue(enum late what, uintptr_t start, uintptr_t end);
bool layer_touches_copies(uintptr_t start, uintptr_t end);
bool layer_touches(uintptr_t start, uintptr_t end); /* needs no lock in an interrupting handler */
void layer_pass(enum mf_pass_reason reason);
uint64_t layer_now_ms(void);

/* memory.c: for tables */
void memory_prepare(void);
const struct mf_alloc *layer_memory(void);

/* spare.c: kernel maps for when the process has no more */
void spare_prepare(void);
bool spare_release(void);
bool spare_refuses(void);

/* extent.c: the address ranges */
long extent_map(size_t length, int protection, int flags, int fd);
struct extent *extent_at_or_above(uintptr_t address); /* the first that ends above address */

static inline bool range_touches(uintptr_t start, uintptr_t end)
{
    const struct extent *extent = extent_at_or_above(start);
    return extent != NULL && extent->start < end;
}

uint32_t extents_below(uintptr_t address);
struct extent *extent_add(uintptr_t start, size_t length);
void extent_destroy(struct extent *extent);
int extent_release(struct extent *extent, uintptr_t start, uintptr_t end);
int extent_make_foreign(struct extent *extent, uintptr_t start, uintptr_t end);
bool extent_is_free(struct extent *extent, uintptr_t start, uintptr_t end, bool *pending);
int extent_take(struct extent *extent, uintptr_t start, uintptr_t end);
void extents_expire(void);
void extent_settle(struct extent *extent, uintptr_t start, uintptr_t end);

struct run {
    uintptr_t start, end;
    bool hole;
    bool copied;
};
/* The part of [from, end) that begins at from and is a hole, or copied, or neither, as a whole. */
struct run run_at(uintptr_t from, uintptr_t end);
uintptr_t visible_end(uintptr_t start, uintptr_t end);
bool range_has_hole(uintptr_t start, uintptr_t end);
int range_mark_changed(uintptr_t start, uintptr_t end, uint64_t bits);
int range_make_foreign(uintptr_t start, uintptr_t end);
int range_punch(uintptr_t start, uintptr_t end);
int range_release(uintptr_t start, uintptr_t end);
void range_resync(uintptr_t start, uintptr_t end);
int extents_dissolve(void);

/* mapping.c */
long range_unmap(uintptr_t start, uintptr_t end);
long kernel_unmap(uintptr_t start, size_t length);
long pass_mmap(const struct request *request, size_t length);

/* dirty.c: dropping the private pages of what was released */
void dirty_add(struct extent *extent, uintptr_t start, uintptr_t end);
void dirty_flush(void);
void dirty_drop(uintptr_t start, uintptr_t end);

/* identity.c, no lock needed: which file is it, and may it be folded at all */
enum mf_pass_reason identity_of(struct request *request);
bool identity_may_read(int fd);
bool identity_may_execute(int fd);
int identity_read(int fd, struct identity *file, uint64_t *size);
enum mf_pass_reason identity_foldable(int fd, bool any_file_system);

/* reopen.c: an extent from a description of our own */
bool limits_forbid_private(void);
bool address_space_is_limited(void);
enum mf_pass_reason reopen_map(const struct request *request, uintptr_t *start, size_t *length);

/* copied.c */
bool copy_wanted(const struct class *class, const struct request *request,
                 enum mf_pass_reason reason);
int copy_place(struct class *class, const struct request *request, uintptr_t *address);
int copy_fill(const struct request *request, uintptr_t address); /* needs no lock */
void copy_forget_arena(const struct extent *extent);
void copy_freed(struct extent *extent, uint64_t length);
void copy_keep_original(struct class *class, const struct request *request);
void copy_refresh(uintptr_t start, uintptr_t end);
long copy_grow(uintptr_t start, size_t old_length, size_t new_length);

/* class.c */
struct class *class_of(uint32_t id);
struct class *class_get(const struct request *request);
void class_put(struct class *class); /* gives it up if nothing holds it */
int class_carve(struct class *class, const struct request *request, uintptr_t *address,
                enum mf_pass_reason *reason);
void class_forget_extent(struct extent *extent);
void plain_add(uintptr_t start, size_t length, struct class *class);
void plain_remove(uintptr_t start, uintptr_t end);
uint32_t plain_count(void);
uint64_t classes_bytes(void);

#endif
