/* SPDX-License-Identifier: MIT */
/*
 * space: an ordered set of areas (address ranges) and the gaps between them.
 *
 * A space answers two questions at a cost that does not grow with the number of its areas: which
 * area holds this address, and where is a gap that fits? It is what a kernel calls
 * get_unmapped_area over its vmas, and it stands alone: it allocates a program's address space as
 * well as a GPU's, an IOMMU's or a guest's. Nothing is ever read or written at the addresses
 * themselves.
 *
 * Rules for the caller:
 *  - Addresses are any 64-bit numbers. Areas are whole granules; the granule is fixed at creation.
 *  - Functions that take a const space only read and may run side by side. All others need the
 *    caller's lock. No function blocks; none may be called from a signal handler that may have
 *    interrupted one.
 *  - A function returns 0, or a negative errno and then has changed nothing.
 *  - Memory comes from the allocator given at creation and from nowhere else. Only mf_space_create,
 *    mf_space_reserve, mf_space_insert, mf_space_place, mf_space_remove (when it cuts the middle
 *    out of an area) and mf_space_retag allocate; after mf_space_reserve(n) the next n of them
 *    cannot fail for want of memory. Removing whole areas, or their ends, never allocates.
 *  - The search for a gap costs a logarithm of the areas. With an alignment above the granule it
 *    may cost more where many gaps are long enough and many hold an aligned address, but few both.
 */
#ifndef MAPFOLD_SPACE_H
#define MAPFOLD_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include <mapfold/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mf_space;

/*
 * One area: [start, start + length), in bytes, both multiples of the granule.
 * tag    what the owner says of it; areas merge only if their tags are equal and have MF_TAG_MERGE
 * delta  the owner's offset minus start, modulo 2^64: equal for two pieces that continue each
 *        other, and unchanged when an area is split; the owner's offset at address a is a + delta
 *
 * Two areas that touch, with equal delta and equal tags that allow it, are one area at once. Only
 * the halves of an area of all 2^64 bytes stay apart, since no length could say it.
 */
struct mf_area {
    uint64_t start;
    uint64_t length;
    uint64_t tag;
    uint64_t delta;
};

/*
 * The bit of a tag that lets an area merge with a neighbour of equal tag and delta. The other 63
 * are yours.
 */
#define MF_TAG_MERGE (UINT64_C(1) << 63)

enum mf_policy {
    MF_FIT_LOWEST,  /* the lowest address that fits */
    MF_FIT_HIGHEST, /* the highest address that fits */
    MF_FIT_HINT, /* the lowest that fits at or above hint; where there is none, the lowest of all */
};

/*
 * What a gap must offer.
 * length     bytes, a multiple of the granule, not 0
 * align      the start is a multiple of it; a power of two, and below the granule no condition
 * low, last  the piece lies within [low, last], both inclusive and clipped to the space's bounds
 * hint       for MF_FIT_HINT; need not be aligned
 */
struct mf_fit {
    uint64_t length;
    uint64_t align;
    uint64_t low;
    uint64_t last;
    uint64_t hint;
    enum mf_policy policy;
};

struct mf_space_stats {
    uint64_t areas;          /* after merging */
    uint64_t metadata_bytes; /* what the space holds of its allocator's memory, all counted */
    uint64_t used;           /* bytes in areas; 2^64 is given as UINT64_MAX, here and below */
    uint64_t free;           /* bytes in gaps */
    uint64_t largest_gap;    /* bytes */
    uint32_t fragmentation;  /* 1000 - 1000 * largest_gap / free: 0 if all free bytes are one gap */
};

/*
 * Makes an empty space over [low, last]. granule (bytes) is a power of two; low and last + 1 are
 * multiples of it, so the last granule below 2^64 can be used. alloc is kept and must outlive the
 * space.
 * 0, -EINVAL (granule, bounds, or no allocator), -ENOMEM.
 */
MF_PUBLIC int mf_space_create(uint64_t low, uint64_t last, uint64_t granule,
                              const struct mf_alloc *alloc, struct mf_space **out);

/* Gives all its memory back. NULL is allowed. */
MF_PUBLIC void mf_space_destroy(struct mf_space *space);

/*
 * Sets memory aside so that each of the next `operations` calls that may allocate cannot fail for
 * want of it: about 4 KiB each. Every such call uses up one, a retag one for each 2^32 granules
 * that its range touches. A further reserve sets the number anew, and 0 gives what is unused back
 * to the allocator.
 * 0, -ENOMEM, -EINVAL (more than 2^32).
 */
MF_PUBLIC int mf_space_reserve(struct mf_space *space, uint64_t operations);

/*
 * Finds where a piece fits and writes its start; the space is not changed.
 * 0, -EINVAL (length 0 or unaligned, align not a power of two, low > last, unknown policy),
 * -ENOSPC.
 */
MF_PUBLIC int mf_space_find_gap(const struct mf_space *space, const struct mf_fit *fit,
                                uint64_t *start);

/*
 * Finds a gap and inserts the piece in it: tag, and delta = offset - start. *area (may be NULL)
 * receives the piece as placed, before any merge. Errors of mf_space_find_gap, and -ENOMEM.
 */
MF_PUBLIC int mf_space_place(struct mf_space *space, const struct mf_fit *fit, uint64_t tag,
                             uint64_t offset, struct mf_area *area);

/*
 * Inserts an area where it says, merging it with its neighbours where tag and delta allow.
 * 0, -EINVAL (empty or unaligned), -EOVERFLOW (ends beyond 2^64), -ERANGE (outside the space),
 * -EEXIST (overlaps an area), -ENOMEM.
 */
MF_PUBLIC int mf_space_insert(struct mf_space *space, const struct mf_area *area);

/*
 * Takes [start, start + length) out of all areas it touches, splitting at its ends; holes are no
 * error.
 * 0, -EINVAL, -EOVERFLOW, -ERANGE as mf_space_insert; -ENOMEM only where the middle of an area
 * goes.
 */
MF_PUBLIC int mf_space_remove(struct mf_space *space, uint64_t start, uint64_t length);

/*
 * Gives every area in [start, start + length) the tag (tag & ~clear) | set, splitting at the ends
 * of the range and merging what has become equal; holes are no error. clear = UINT64_MAX replaces
 * the tag.
 * 0, -EINVAL, -EOVERFLOW, -ERANGE as mf_space_insert; -ENOMEM.
 */
MF_PUBLIC int mf_space_retag(struct mf_space *space, uint64_t start, uint64_t length,
                             uint64_t clear, uint64_t set);

/* The area that holds address. 0, -ENOENT. */
MF_PUBLIC int mf_space_find(const struct mf_space *space, uint64_t address, struct mf_area *area);

/*
 * The area that holds address or else the first one above it: to walk all areas, begin at 0 and go
 * on at start + length until that is 0 or -ENOENT comes.
 * 0, -ENOENT.
 */
MF_PUBLIC int mf_space_next(const struct mf_space *space, uint64_t address, struct mf_area *area);

/* Fills in the figures; fragmentation is per mille. */
MF_PUBLIC void mf_space_stats(const struct mf_space *space, struct mf_space_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
