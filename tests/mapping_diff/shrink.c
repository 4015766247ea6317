/* SPDX-License-Identifier: MIT */
/*
 * Makes a failing program small: leaves out halves, quarters, ... and at last single ops as long as
 * it still fails, then makes each op's numbers simpler. An op that lost what it needs is skipped by
 * both sides alike, so that any sublist is a program.
 */
#include <string.h>
#include <time.h>

#include "diff.h"

enum { SECONDS = 60 }; /* then what there is must do */

static struct op trial[1 << 18];
static time_t deadline;

static bool late(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > deadline;
}

static bool fails_without(const struct op *ops, uint32_t count, uint32_t from, uint32_t length,
                          bool (*fails)(const struct op *, uint32_t))
{
    memcpy(trial, ops, from * sizeof *ops);
    memcpy(trial + from, ops + from + length, (count - from - length) * sizeof *ops);
    return fails(trial, count - length);
}

static uint32_t ops_leave_out(struct op *ops, uint32_t count,
                              bool (*fails)(const struct op *, uint32_t))
{
    for (uint32_t length = count / 2 ? count / 2 : 1;;) {
        bool shorter = false;
        for (uint32_t end = count; end > 0 && count > 1 && !late();) {
            const uint32_t from = end > length ? end - length : 0;
            if (end - from < count && fails_without(ops, count, from, end - from, fails)) {
                memmove(ops + from, ops + end, (count - end) * sizeof *ops);
                count -= end - from;
                shorter = true;
            }
            end = from;
        }
        if (length == 1 && (!shorter || late()))
            return count;
        length = length > 1 ? length / 2 : 1;
    }
}

/* Candidates for a simpler op, one number at a time; false when there are no more. */
static bool op_simplify(const struct op *op, unsigned step, struct op *simple)
{
    const uint64_t old_pages = pages_of(op->length), new_pages = pages_of(op->length2);
    const uint64_t lengths[5] = {0, page_size, 2 * page_size, old_pages / 2 * page_size,
                                 old_pages * page_size};
    *simple = *op;
    switch (step) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        simple->length = lengths[step];
        return true;
    case 5:
        simple->length2 = new_pages * page_size;
        return true;
    case 6:
        simple->at.byte = 0;
        return true;
    case 7:
        simple->to.byte = 0;
        return true;
    case 8:
        simple->flags = op->kind == OP_MMAP ? op->flags & 3 : 0;
        return true;
    case 9:
        simple->value = op->kind == OP_FORK ? 1 : 0;
        return true;
    case 10:
        simple->offset = 0;
        return true;
    case 11:
        simple->prot = 0;
        return true;
    case 12:
        simple->prot = 1;
        return true;
    default:
        return false;
    }
}

/* Simpler is smaller, or whole pages instead of a part of one. */
static bool op_is_simpler(const struct op *simple, const struct op *op)
{
    const bool whole = simple->length % page_size == 0 && op->length % page_size != 0 &&
                       pages_of(simple->length) <= pages_of(op->length);
    const bool whole2 = simple->length2 % page_size == 0 && op->length2 % page_size != 0;
    return memcmp(simple, op, sizeof *op) != 0 && (simple->length <= op->length || whole) &&
           (simple->length2 <= op->length2 || whole2) && simple->prot <= op->prot;
}

static void ops_simplify(struct op *ops, uint32_t count, bool (*fails)(const struct op *, uint32_t))
{
    for (uint32_t i = 0; i < count && !late(); i++) {
        struct op simple;
        for (unsigned step = 0; op_simplify(&ops[i], step, &simple); step++) {
            if (!op_is_simpler(&simple, &ops[i]))
                continue;
            const struct op kept = ops[i];
            ops[i] = simple;
            if (!fails(ops, count))
                ops[i] = kept;
        }
    }
}

uint32_t program_shrink(struct op *ops, uint32_t count, bool (*fails)(const struct op *, uint32_t))
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    deadline = now.tv_sec + SECONDS;
    count = ops_leave_out(ops, count, fails);
    ops_simplify(ops, count, fails);
    return ops_leave_out(ops, count, fails);
}
