/* SPDX-License-Identifier: MIT */
/*
 * Without floating point: weight = 2^(16 - 0.99 log2 rank), both functions bit by bit in fixed
 * point. An error of 2^-16 in the logarithm is one of 10^-5 in the weight.
 */
#include "kernel/zipf.h"
#include "kernel/memory.h"
#include "kernel/work.h"

enum { ONE = 1 << 16 };

static uint32_t *sums; /* of the weights up to each rank */
static uint32_t ranks;

/* log2(x) for x >= 1, in units of 2^-16: squaring doubles the logarithm. */
static uint32_t log2_fixed(uint32_t x)
{
    const unsigned whole = 31 - (unsigned)__builtin_clz(x);
    uint64_t y = (uint64_t)x << (31 - whole); /* 1 to 2, in units of 2^-31 */
    uint32_t log = whole;
    for (int bit = 0; bit < 16; bit++) {
        y = y * y >> 31;
        log = log << 1 | (y >> 32 & 1);
        if (y >> 32)
            y >>= 1;
    }
    return log;
}

/* 2^-x for x in units of 2^-16; the result in units of 2^-28. */
static uint32_t exp2_negative_fixed(uint32_t x)
{
    /* 2^-(1/2), 2^-(1/4), ..., in units of 2^-32 */
    static const uint32_t root[16] = {
        3037000500, 3611622603, 3938502376, 4112874773, 4202935003, 4248701965,
        4271771996, 4283353945, 4289156690, 4292061010, 4293513907, 4294240540,
        4294603903, 4294785595, 4294876445, 4294921870,
    };
    uint32_t y = 1u << 28;
    for (unsigned bit = 0; bit < 16; bit++)
        if (x >> (15 - bit) & 1)
            y = (uint32_t)((uint64_t)y * root[bit] >> 32);
    return y >> (x >> 16);
}

bool zipf_start(uint32_t n)
{
    size_t bytes = PAGE;
    while (bytes < n * sizeof(*sums))
        bytes *= 2;
    sums = lowmem_alloc(bytes);
    if (!sums)
        return false;
    uint32_t sum = 0;
    for (uint32_t rank = 1; rank <= n; rank++) {
        const uint32_t log = log2_fixed(rank);
        sum += exp2_negative_fixed((uint32_t)((uint64_t)log * 64881 >> 16)); /* 0.99 */
        sums[rank - 1] = sum;
    }
    ranks = n;
    return true;
}

uint32_t zipf_draw(uint32_t *state)
{
    const uint32_t at = random_below(state, sums[ranks - 1]);
    uint32_t low = 0, high = ranks - 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (sums[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
