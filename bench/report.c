/* SPDX-License-Identifier: MIT */
/* Rows on their way out: JSON at once, or kept for the tables. */
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "cli/cli.h"

/* Tenths of nanoseconds are more than the clock can tell; more digits would only look exact. */
static json_t *rounded(double value)
{
    return json_real((double)(long long)(value * 10 + 0.5) / 10);
}

static void lock_json(json_t *object, const struct lock_figures *lock)
{
    if (lock->counted) {
        json_object_set_new(object, "lock_total", json_integer((json_int_t)lock->total));
        json_object_set_new(object, "lock_spin", json_real(lock->spin));
        json_object_set_new(object, "lock_reject", json_real(lock->reject));
    }
    if (lock->timed) {
        json_object_set_new(object, "lock_util", json_real(lock->util));
        json_object_set_new(object, "lock_hold_mean_ns", rounded(lock->hold_mean_ns));
        json_object_set_new(object, "lock_hold_max_ns", rounded(lock->hold_max_ns));
        json_object_set_new(object, "lock_wait_mean_ns", rounded(lock->wait_mean_ns));
        json_object_set_new(object, "lock_wait_max_ns", rounded(lock->wait_max_ns));
        json_object_set_new(object, "lock_wait_cpu", json_real(lock->wait_cpu));
    }
    if (lock->stepped) {
        json_object_set_new(object, "lock_steps_mean", rounded(lock->steps_mean));
        json_object_set_new(object, "lock_steps_max", json_integer((json_int_t)lock->steps_max));
    }
}

static void print_json(const struct bench_row *row)
{
    json_t *object = json_object();
    json_object_set_new(object, "workload", json_string(row->workload));
    json_object_set_new(object, "system", json_string(row->system));
    json_object_set_new(object, "n", json_integer((json_int_t)row->n));
    if (row->count)
        json_object_set_new(object, "count", json_integer((json_int_t)row->count));
    json_object_set_new(object, "threads", json_integer(row->threads));
    json_object_set_new(object, "ops", json_integer((json_int_t)row->ops));
    if (row->ops) {
        json_object_set_new(object, "ns_per_op", rounded(row->ns_per_op));
    }
    if (row->ops && !row->only_mean) {
        json_object_set_new(object, "p50_ns", rounded(row->p50_ns));
        json_object_set_new(object, "p99_ns", rounded(row->p99_ns));
    }
    if (row->p999_ns > 0)
        json_object_set_new(object, "p999_ns", rounded(row->p999_ns));
    if (row->sampled > 1)
        json_object_set_new(object, "sampled", json_integer(row->sampled));
    if (row->counts_misses)
        json_object_set_new(object, "misses_per_op", json_real(row->misses_per_op));
    if (row->kernel_maps)
        json_object_set_new(object, "kernel_maps", json_integer((json_int_t)row->kernel_maps));
    if (row->bytes_per_area > 0)
        json_object_set_new(object, "bytes_per_area", rounded(row->bytes_per_area));
    lock_json(object, &row->lock);
    if (row->note[0])
        json_object_set_new(object, "note", json_string(row->note));
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
    putchar('\n');
    fflush(stdout);
    json_decref(object);
}

void bench_report(struct bench *bench, const struct bench_row *row)
{
    if ((bench->row_count & (bench->row_count - 1)) == 0) {
        const size_t room = bench->row_count ? 2 * bench->row_count : 1;
        struct bench_row *rows = realloc(bench->rows, room * sizeof(*rows));
        if (!rows) {
            cli_error("cannot keep %zu rows: out of memory", room);
            exit(CLI_FAILURE);
        }
        bench->rows = rows;
    }
    bench->rows[bench->row_count++] = *row;
    if (bench->json)
        print_json(row);
}

const struct bench_row *bench_row_find(const struct bench *bench, const struct bench_row *key)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if ((!key->n || row->n == key->n) && (!key->count || row->count == key->count) &&
            (!key->threads || row->threads == key->threads) &&
            strcmp(row->workload, key->workload) == 0 && strcmp(row->system, key->system) == 0)
            return row;
    }
    return NULL;
}

static void print_row(const struct bench *bench, FILE *out, const struct bench_row *row)
{
    fprintf(out, "  %9llu  %-9s", (unsigned long long)row->n, row->system);
    if (row->ops == 0) {
        fprintf(out, " %s\n", row->note);
        return;
    }
    const struct bench_row key = {.workload = row->workload,
                                  .system = bench->workload->systems[0],
                                  .n = row->n,
                                  .count = row->count};
    const struct bench_row *base = bench_row_find(bench, &key);
    fprintf(out, " %9.1f %9.0f %9.0f", row->ns_per_op, row->p50_ns, row->p99_ns);
    if (base && base->ops && base->ns_per_op > 0)
        fprintf(out, " %9.2f", row->ns_per_op / base->ns_per_op);
    else
        fprintf(out, " %9s", "-");
    if (row->bytes_per_area > 0)
        fprintf(out, " %7.1f", row->bytes_per_area);
    else
        fprintf(out, " %7s", "-");
    if (row->kernel_maps)
        fprintf(out, " %11llu", (unsigned long long)row->kernel_maps);
    if (row->note[0])
        fprintf(out, "\n  %9s  %-9s %s", "", "", row->note);
    fputc('\n', out);
}

void bench_print_by_n(const struct bench *bench, FILE *out, const char *workload, const char *title)
{
    bool first = true;
    uint64_t n = 0;
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (strcmp(row->workload, workload) != 0)
            continue;
        if (first) {
            char ratio[32];
            snprintf(ratio, sizeof(ratio), "/%s", bench->workload->systems[0]);
            fprintf(out, "%s: %s\n  %9s  %-9s %9s %9s %9s %9s %7s %11s\n", workload, title, "n",
                    "system", "ns/op", "p50", "p99", ratio, "B/area", "kernel maps");
        } else if (row->n != n) {
            fputc('\n', out);
        }
        first = false;
        n = row->n;
        print_row(bench, out, row);
    }
    if (!first)
        fputc('\n', out);
}

void bench_progress(const struct bench *bench, const char *format, ...)
{
    static int terminal = -1;
    (void)bench;
    if (terminal < 0)
        terminal = isatty(STDERR_FILENO);
    if (!terminal)
        return;
    va_list arguments;
    va_start(arguments, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, arguments);
    fflush(stderr);
    va_end(arguments);
}
