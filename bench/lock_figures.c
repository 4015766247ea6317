/* SPDX-License-Identifier: MIT */
#include "lock_figures.h"

#include <inttypes.h>
#include <string.h>

#include "bench.h"

/* "1.4us(1377us)": the mail's way to write a mean and a maximum; from 10 ms on, in ms. */
static void print_times(FILE *out, bool timed, double mean_ns, double max_ns)
{
    enum { LONG = 10000000 };
    char text[40];
    if (timed)
        snprintf(text, sizeof(text), "%.*f%s(%.0f%s)", mean_ns < 1e5 ? 2 : 0,
                 mean_ns / (mean_ns < LONG ? 1e3 : 1e6), mean_ns < LONG ? "us" : "ms",
                 max_ns / (max_ns < LONG ? 1e3 : 1e6), max_ns < LONG ? "us" : "ms");
    fprintf(out, " %16s", timed ? text : "-");
}

static void print_share(FILE *out, bool known, double share)
{
    if (known)
        fprintf(out, " %5.1f%%", 100 * share);
    else
        fprintf(out, " %6s", "-");
}

static void print_line(FILE *out, const struct bench_row *row)
{
    const struct lock_figures *lock = &row->lock;
    fprintf(out, " ");
    print_share(out, lock->timed, lock->util);
    print_share(out, true, lock->spin + lock->reject);
    print_times(out, lock->timed, lock->hold_mean_ns, lock->hold_max_ns);
    print_times(out, lock->timed && lock->spin > 0, lock->wait_mean_ns, lock->wait_max_ns);
    print_share(out, lock->timed, lock->wait_cpu);
    fprintf(out, " %9" PRIu64, lock->total);
    print_share(out, true, 1 - lock->spin - lock->reject);
    print_share(out, true, lock->spin);
    print_share(out, true, lock->reject);
    fprintf(out, "  %s\n", row->system);
}

void lock_print(const struct bench *bench, FILE *out, const char *workload, const char *title)
{
    bool any = false;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (!row->lock.counted || strcmp(row->workload, workload) != 0)
            continue;
        if (!any)
            fprintf(out, "%s\n  %6s %6s %16s %16s %6s %9s %6s %6s %6s\n", title, "UTIL", "CON",
                    "HOLD MEAN(MAX)", "WAIT MEAN(MAX)", "%CPU", "TOTAL", "NOWAIT", "SPIN", "RJECT");
        any = true;
        print_line(out, row);
    }
    if (any)
        fputc('\n', out);
}

void lock_print_steps(const struct bench *bench, FILE *out, const char *workload, const char *title)
{
    bool any = false;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (!row->lock.stepped || strcmp(row->workload, workload) != 0)
            continue;
        if (!any)
            fprintf(out, "%s\n  %6s  %-10s %12s %14s %14s\n", title, "slots", "system",
                    "ns CPU/map", "steps, mean", "steps, worst");
        any = true;
        fprintf(out, "  %6" PRIu64 "  %-10s %12.0f %14.2f %14" PRIu64 "\n", row->n, row->system,
                row->ns_per_op, row->lock.steps_mean, row->lock.steps_max);
    }
    if (any)
        fputc('\n', out);
}
