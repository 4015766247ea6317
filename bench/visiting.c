/* SPDX-License-Identifier: MIT */
/* Drawing visits and making them: what the parts of the window workload have in common. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "workload_window.h"

const volatile uint32_t visit_zero = 0;

/* Zipf's law by Walker's aliases: place i keeps itself below limit[i] of 2^32, else it is other[i].
 */
static int draw_zipf(struct draw *draw)
{
    const double exponent = 0.99;
    const uint32_t n = draw->files;
    double *share = malloc(n * sizeof(*share));
    uint32_t *small = malloc(2 * (size_t)n * sizeof(*small));
    draw->limit = malloc(n * sizeof(*draw->limit));
    draw->other = malloc(n * sizeof(*draw->other));
    if (!share || !small || !draw->limit || !draw->other) {
        free(share);
        free(small);
        return -ENOMEM;
    }
    uint32_t *large = small + n;
    uint32_t smalls = 0;
    uint32_t larges = 0;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += share[i] = pow(i + 1.0, -exponent);
    for (uint32_t i = 0; i < n; i++) {
        share[i] *= n / sum;
        *(share[i] < 1 ? &small[smalls++] : &large[larges++]) = i;
        draw->limit[i] = UINT32_MAX;
        draw->other[i] = i;
    }
    while (smalls && larges) {
        const uint32_t less = small[--smalls];
        const uint32_t more = large[--larges];
        draw->limit[less] = (uint32_t)(share[less] * UINT32_MAX);
        draw->other[less] = more;
        share[more] -= 1 - share[less];
        *(share[more] < 1 ? &small[smalls++] : &large[larges++]) = more;
    }
    free(share);
    free(small);
    return 0;
}

int draw_open(struct draw *draw, uint32_t files, uint32_t pages, bool zipf)
{
    *draw = (struct draw){.files = files, .pages = pages};
    return zipf ? draw_zipf(draw) : 0;
}

/* The popular ones are spread over all, by a prime. */
static uint32_t draw_ranked(const struct draw *draw, uint64_t *random)
{
    const uint32_t place = bench_random_below(random, draw->files);
    const bool keeps = (uint32_t)bench_random(random) <= draw->limit[place];
    const uint64_t rank = keeps ? place : draw->other[place];
    return (uint32_t)(rank * 2654435761u % draw->files);
}

/* A cache line a page further than in the page before. */
static struct visit visit_of(uint32_t file, uint32_t page)
{
    enum { LINE = 64 };
    return (struct visit){file, page * VISIT_PAGE + page * LINE % VISIT_PAGE};
}

struct visit draw_visit(const struct draw *draw, uint64_t *random)
{
    struct visit visit = visit_of(0, bench_random_below(random, draw->pages));
    if (draw->limit)
        visit.file = draw_ranked(draw, random);
    else if (draw->files > 1)
        visit.file = bench_random_below(random, draw->files);
    return visit;
}

int visiting_prepare(void *state, size_t count)
{
    struct visiting *visiting = state;
    for (size_t i = 0; i < count; i++)
        visiting->batch[i] = draw_visit(visiting->draw, &visiting->random);
    visiting->visits += count;
    return 0;
}

int visiting_run(void *state, size_t first, size_t count)
{
    struct visiting *visiting = state;
    const struct visitor *visitor = visiting->run->visitor;
    const struct window_part *part = visiting->run->part;
    return (part->copies ? visitor->copy
            : part->chained
                ? visitor->chain
                : visitor->run)(visiting->system, visiting->batch + first, count, &visiting->sum);
}

/* The pages first..first+count-1 of all files in turn. */
static void prepare_in_turn(struct visiting *visiting, uint64_t first, size_t count)
{
    const uint32_t pages = visiting->draw->pages;
    for (size_t i = 0; i < count; i++)
        visiting->batch[i] =
            visit_of((uint32_t)((first + i) / pages), (uint32_t)((first + i) % pages));
    visiting->visits += count;
}

int visiting_warm(struct visiting *visiting)
{
    enum { STEP = 64 };
    const struct draw *draw = visiting->draw;
    const uint64_t pages = (uint64_t)draw->files * draw->pages;
    const bool fits = pages * VISIT_PAGE <= visiting->run->world.budget_bytes;
    const uint64_t until = bench_now() + 8 * window_slice(visiting->run->bench);
    const uint64_t total = fits ? pages : UINT64_MAX;
    int error = 0;
    if (visiting->run->visitor->calls)
        return 0; /* it keeps nothing */
    for (uint64_t done = 0; done < total && !error && (fits || bench_now() < until); done += STEP) {
        const size_t count = total - done < STEP ? (size_t)(total - done) : STEP;
        if (fits)
            prepare_in_turn(visiting, done, count);
        else
            visiting_prepare(visiting, count);
        error = visiting_run(visiting, 0, count);
    }
    return error;
}

static int compare_times(const void *a, const void *b)
{
    const double x = ((const struct bench_time *)a)->ns_per_op;
    const double y = ((const struct bench_time *)b)->ns_per_op;
    return (x > y) - (x < y);
}

struct bench_time median_time(struct bench_time *times, size_t count)
{
    qsort(times, count, sizeof(*times), compare_times);
    return times[count / 2];
}
