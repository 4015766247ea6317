/* SPDX-License-Identifier: MIT */
/*
 * Where the time goes, as readprofile told it in the mail: symbol, ticks, share. perf samples this
 * very process into a memory file while the workload runs, and counts it up afterwards.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "children.h"
#include "cli/cli.h"

enum { SYMBOLS = 4096, SHOWN = 20, WAIT_MS = 5000 };

struct symbol {
    unsigned long ticks;
    char name[64];
    char object[32];
};

static pid_t perf;
static int samples = -1;
static int messages = -1;

/* perf's own last words, for the error message. */
static const char *perf_complaint(void)
{
    static char text[200];
    const ssize_t got = pread(messages, text, sizeof(text) - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    for (char *at = text; *at; at++) {
        if (*at == '\n')
            *at = ' ';
    }
    return text[0] ? text : "no reason given";
}

/* perf writes its header when it has attached; before that, nothing would be sampled. */
static bool perf_attached(void)
{
    for (int ms = 0; ms < WAIT_MS; ms += 10) {
        struct stat status;
        if (fstat(samples, &status) == 0 && status.st_size > 0)
            return true;
        if (kill(perf, 0) != 0)
            return false;
        nanosleep(&(const struct timespec){0, 10000000}, NULL);
    }
    return false;
}

int profile_start(void)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    const char *const argv[] = {"perf", "record", "-F", "997", "-p", pid, "-o", "-", NULL};
    if (!child_exists("perf")) {
        cli_error("cannot profile: perf is not installed; on Debian: apt-get install linux-perf");
        return -1;
    }
    samples = child_file("samples");
    messages = child_file("messages");
    if (samples < 0 || messages < 0) {
        cli_error("cannot profile: no memory file for the samples: %s", strerror(errno));
        return -1;
    }
    perf = child_start(argv, -1, samples, messages);
    if (perf > 0 && perf_attached())
        return 0;
    cli_error("cannot profile: perf record does not start: %s; see "
              "/proc/sys/kernel/perf_event_paranoid",
              perf > 0 ? perf_complaint() : strerror(errno));
    if (perf > 0)
        kill(perf, SIGKILL);
    return -1;
}

/* A line of perf report: ticks;symbol;object... */
static bool parse_symbol(char *line, struct symbol *symbol)
{
    char *save = NULL;
    const char *ticks = strtok_r(line, ";", &save);
    const char *name = strtok_r(NULL, ";", &save);
    const char *object = strtok_r(NULL, ";", &save);
    if (!ticks || !name || !object || (symbol->ticks = strtoul(ticks, NULL, 10)) == 0)
        return false;
    if (name[0] == '[' && name[1] && name[2] == ']')
        name += 4;
    snprintf(symbol->name, sizeof(symbol->name), "%.*s", (int)strcspn(name, " "), name);
    snprintf(symbol->object, sizeof(symbol->object), "%.*s", (int)strcspn(object, " "), object);
    return true;
}

static int by_ticks(const void *a, const void *b)
{
    const struct symbol *x = a;
    const struct symbol *y = b;
    return (x->ticks < y->ticks) - (x->ticks > y->ticks);
}

static size_t read_report(FILE *report, struct symbol *symbols)
{
    char *line = NULL;
    size_t room = 0;
    size_t count = 0;
    while (count < SYMBOLS && getline(&line, &room, report) > 0)
        count += line[0] != '#' && parse_symbol(line, &symbols[count]);
    free(line);
    qsort(symbols, count, sizeof(*symbols), by_ticks);
    return count;
}

static void print_symbols(const struct symbol *symbols, size_t count, FILE *out)
{
    unsigned long total = 0;
    for (size_t i = 0; i < count; i++)
        total += symbols[i].ticks;
    fprintf(out, "Where the time went, sampled 997 times a second (filling included):\n");
    fprintf(out, "  %-56s %-18s %8s %7s\n", "symbol", "in", "ticks", "share");
    for (size_t i = 0; i < count && i < SHOWN; i++)
        fprintf(out, "  %-56.56s %-18.18s %8lu %6.1f%%\n", symbols[i].name, symbols[i].object,
                symbols[i].ticks, 100.0 * (double)symbols[i].ticks / (double)total);
    fprintf(out, "  %-56s %-18s %8lu %6.1f%%\n\n", "total", "", total, 100.0);
}

int profile_stop(FILE *out)
{
    static const char *const argv[] = {
        "perf", "report", "-i",         "-",  "--stdio",           "-g",
        "none", "--sort", "symbol,dso", "-F", "sample,symbol,dso", "-t",
        ";",    NULL};
    kill(perf, SIGINT);
    child_wait(perf);
    const int report = child_file("report");
    lseek(samples, 0, SEEK_SET);
    const pid_t pid = report < 0 ? -1 : child_start(argv, samples, report, -1);
    const int code = pid < 0 ? -1 : child_wait(pid);
    struct symbol *symbols = calloc(SYMBOLS, sizeof(*symbols));
    FILE *in = report < 0 ? NULL : fdopen(report, "r");
    size_t count = 0;
    if (code == 0 && in && symbols) {
        rewind(in);
        count = read_report(in, symbols);
    }
    if (count > 0)
        print_symbols(symbols, count, out);
    else if (code == 0)
        cli_error("cannot show the profile: perf took no sample of so short a run; let it take "
                  "longer, without --quick or with a larger --n");
    else
        cli_error("cannot show the profile: perf report gave nothing (exit code %d): %s", code,
                  perf_complaint());
    if (in)
        fclose(in);
    free(symbols);
    close(samples);
    close(messages);
    return count > 0 ? 0 : -1;
}
