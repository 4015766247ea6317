/* SPDX-License-Identifier: MIT */
/* What the tests of the space layer share: a space over a checked allocator, and its full contents.
 */
#ifndef TESTS_CORE_SPACE_FIXTURE_H
#define TESTS_CORE_SPACE_FIXTURE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mapfold/space.h>

#include "../unit.h"
#include "checked_alloc.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const uint64_t PAGE = 4096;
static const uint64_t TOP = UINT64_MAX;
static const uint64_t MIB = 1 << 20;

struct fixture {
    struct checked_alloc memory;
    struct mf_space *space;
};

static inline void open_space(struct fixture *fixture, uint64_t low, uint64_t last,
                              uint64_t granule)
{
    checked_alloc_init(&fixture->memory);
    fixture->space = NULL;
    assert_int_equal(mf_space_create(low, last, granule, &fixture->memory.alloc, &fixture->space),
                     0);
    assert_non_null(fixture->space);
}

static inline void close_space(struct fixture *fixture)
{
    mf_space_destroy(fixture->space);
    assert_int_equal(fixture->memory.live_blocks, 0);
}

static inline int insert(struct fixture *fixture, uint64_t start, uint64_t length, uint64_t tag,
                         uint64_t delta)
{
    const struct mf_area area = {start, length, tag, delta};
    return mf_space_insert(fixture->space, &area);
}

static inline void assert_same_area(const struct mf_area *got, const struct mf_area *want)
{
    assert_int_equal(got->start, want->start);
    assert_int_equal(got->length, want->length);
    assert_int_equal(got->tag, want->tag);
    assert_int_equal(got->delta, want->delta);
}

/* The space holds these areas and no others, and its stats agree. */
static inline void assert_areas(const struct fixture *fixture, const struct mf_area *want,
                                size_t count)
{
    uint64_t address = 0;
    struct mf_area got;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(mf_space_next(fixture->space, address, &got), 0);
        assert_same_area(&got, &want[i]);
        address = got.start + got.length;
    }
    if (count == 0 || address != 0)
        assert_int_equal(mf_space_next(fixture->space, address, &got), -ENOENT);
    struct mf_space_stats stats;
    mf_space_stats(fixture->space, &stats);
    assert_int_equal(stats.areas, count);
    assert_int_equal(stats.metadata_bytes, fixture->memory.live_bytes);
}

/* All that can be seen of a space. */
struct dump {
    struct mf_area *areas;
    struct mf_space_stats stats;
};

static inline void take_dump(struct dump *dump, const struct mf_space *space)
{
    mf_space_stats(space, &dump->stats);
    dump->areas = calloc(dump->stats.areas + 1, sizeof(*dump->areas));
    assert_non_null(dump->areas);
    size_t count = 0;
    for (uint64_t address = 0;;
         address = dump->areas[count - 1].start + dump->areas[count - 1].length) {
        if ((count > 0 && address == 0) || mf_space_next(space, address, &dump->areas[count]) != 0)
            break;
        count++;
        assert_in_range(count, 0, dump->stats.areas);
    }
    assert_int_equal(count, dump->stats.areas);
}

/* The space is as it was; the memory that it holds may have grown. */
static inline void assert_unchanged(struct dump *before, const struct mf_space *space)
{
    struct dump now;
    take_dump(&now, space);
    assert_int_equal(now.stats.areas, before->stats.areas);
    assert_int_equal(now.stats.used, before->stats.used);
    assert_int_equal(now.stats.free, before->stats.free);
    assert_int_equal(now.stats.largest_gap, before->stats.largest_gap);
    assert_int_equal(now.stats.fragmentation, before->stats.fragmentation);
    for (size_t i = 0; i < now.stats.areas; i++)
        assert_same_area(&now.areas[i], &before->areas[i]);
    free(now.areas);
    free(before->areas);
    before->areas = NULL;
}

#endif
