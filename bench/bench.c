/* SPDX-License-Identifier: MIT */
/* mapfold bench: options, the table of workloads, and the order of a run. */
#include "bench.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

static const struct bench_workload *const workloads[] = {
    &bench_space,  &bench_mmap_scan, &bench_mapping, &bench_kmap_lock, &bench_window, &bench_files,
#ifdef MAPFOLD_HAS_SQLITE
    &bench_sqlite,
#endif
};

enum {
    WORKLOADS = sizeof(workloads) / sizeof(workloads[0]),
    KEY_JSON = 'j',
    KEY_QUICK = 'q',
    KEY_PLOT = 'p',
    KEY_AGAINST = 'a',
    KEY_N = 'n',
    KEY_SECONDS = 's',
    KEY_DIR = 'd',
    KEY_PROFILE = 0x7101,
    KEY_RAISE,
};

static const struct argp_option options[] = {
    {"against", KEY_AGAINST, "LIST", 0, "Run only these systems, separated by commas", 0},
    {"n", KEY_N, "LIST", 0, "Sizes to run instead of the default ones, as in 1e3,250000", 0},
    {"quick", KEY_QUICK, NULL, 0, "Smaller sizes and fewer operations: seconds, rougher figures",
     0},
    {"seconds", KEY_SECONDS, "S", 0,
     "Stop a system's series after S seconds and say how far it came (default 300; quick 10)", 0},
    {"dir", KEY_DIR, "DIR", 0, "Where the test file is made (default $TMPDIR or /var/tmp)", 0},
    {"raise-limit", KEY_RAISE, NULL, 0,
     "Raise vm.max_map_count for the run, as root; it is restored at the end, whatever happens", 0},
    {"profile", KEY_PROFILE, NULL, 0, "Show where the time goes, with perf", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object a line instead of tables", 0},
    {"plot", KEY_PLOT, "FILE.svg", 0, "Draw the results with gnuplot", 0},
    {0},
};

static error_t choose_workload(struct bench *bench, const char *name, struct argp_state *state)
{
    if (bench->workload && bench->workload->takes_argument && !bench->argument) {
        bench->argument = name;
        return 0;
    }
    if (bench->workload)
        return cli_wrong(state, "one workload at a time: '%s' is one too many", name);
    for (size_t i = 0; i < WORKLOADS; i++) {
        if (strcmp(workloads[i]->name, name) == 0)
            bench->workload = workloads[i];
        for (const char *const *part = workloads[i]->parts; part && *part; part++) {
            if (strcmp(*part, name) == 0) {
                bench->workload = workloads[i];
                bench->part = *part;
            }
        }
    }
    if (bench->workload)
        return 0;
    return cli_wrong(state, "there is no workload '%s'", name);
}

/* Cuts a comma-separated list in place; the next word, or NULL at its end. */
static char *next_word(char **list)
{
    return *list ? strsep(list, ",") : NULL;
}

static error_t parse_systems(struct bench *bench, char *list, struct argp_state *state)
{
    size_t count = 0;
    for (char *word = next_word(&list); word; word = next_word(&list)) {
        if (!*word || count == BENCH_SYSTEMS)
            return cli_wrong(state, "--against wants systems separated by commas");
        bench->wanted[count++] = word;
    }
    return 0;
}

static error_t parse_sizes(struct bench *bench, char *list, struct argp_state *state)
{
    size_t count = 0;
    for (char *word = next_word(&list); word; word = next_word(&list)) {
        char *end = word;
        const double value = strtod(word, &end);
        const bool last = count + 1 == sizeof(bench->sizes) / sizeof(*bench->sizes);
        if (end == word || *end || !(value >= 1 && value <= 1e8) || floor(value) < value || last)
            return cli_wrong(
                state, "--n wants whole numbers from 1 to 1e8 separated by commas, not '%s'", word);
        bench->sizes[count++] = (uint64_t)value;
    }
    return 0;
}

static error_t parse_seconds(struct bench *bench, const char *arg, struct argp_state *state)
{
    char *end = NULL;
    bench->seconds = strtod(arg, &end);
    if (end == arg || *end || !(bench->seconds > 0 && bench->seconds < 1e6))
        return cli_wrong(state, "--seconds wants a number above 0, not '%s'", arg);
    return 0;
}

static bool has_system(const struct bench_workload *workload, const char *name)
{
    const char *const *system = workload->systems;
    while (*system && strcmp(*system, name) != 0)
        system++;
    return *system != NULL;
}

/* What can only be checked when all options are known. */
static error_t check_options(const struct bench *bench, struct argp_state *state)
{
    for (const char *const *wanted = bench->wanted; *wanted; wanted++) {
        bool known = false;
        for (size_t i = 0; i < WORKLOADS && !known; i++) {
            const bool chosen = !bench->workload || bench->workload == workloads[i];
            known = chosen && has_system(workloads[i], *wanted);
        }
        if (!known)
            return cli_wrong(state, "%s has no system '%s'; --help lists them",
                             bench->workload ? bench->workload->name : "this command", *wanted);
    }
    if (bench->plot && !bench->workload)
        return cli_wrong(state, "--plot draws one workload: say which");
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct bench *bench = state->input;
    switch (key) {
    case KEY_JSON:
        bench->json = true;
        return 0;
    case KEY_QUICK:
        bench->quick = true;
        return 0;
    case KEY_PLOT:
        bench->plot = arg;
        return 0;
    case KEY_AGAINST:
        return parse_systems(bench, arg, state);
    case KEY_N:
        return parse_sizes(bench, arg, state);
    case KEY_SECONDS:
        return parse_seconds(bench, arg, state);
    case KEY_DIR:
        bench->directory = arg;
        return 0;
    case KEY_PROFILE:
        bench->profile = true;
        return 0;
    case KEY_RAISE:
        bench->raise_limit = true;
        return 0;
    case ARGP_KEY_ARG:
        return choose_workload(bench, arg, state);
    case ARGP_KEY_SUCCESS:
        return check_options(bench, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Lists the workloads with their parts and systems below the options in --help. */
static char *filter_help(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)(uintptr_t)text;
    char *list = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&list, &length);
    if (!out)
        return NULL;
    fputs("Workloads:\n", out);
    for (size_t i = 0; i < WORKLOADS; i++) {
        fprintf(out, "  %s: %s\n", workloads[i]->name, workloads[i]->help);
        fputs("    systems:", out);
        for (const char *const *system = workloads[i]->systems; *system; system++)
            fprintf(out, " %s", *system);
        fputs(workloads[i]->parts ? "\n    parts:" : "", out);
        for (const char *const *part = workloads[i]->parts; part && *part; part++)
            fprintf(out, " %s", *part);
        fputc('\n', out);
    }
    fclose(out);
    return list;
}

bool bench_wants(const struct bench *bench, const char *system)
{
    if (!bench->wanted[0])
        return true;
    for (const char *const *wanted = bench->wanted; *wanted; wanted++) {
        if (strcmp(*wanted, system) == 0)
            return true;
    }
    return false;
}

bool bench_wants_part(const struct bench *bench, const char *part)
{
    return !bench->part || strcmp(bench->part, part) == 0;
}

/* How many maps to ask for: twice the largest n, since a piece that is cut in two needs two. */
static uint64_t maps_needed(const struct bench *bench)
{
    uint64_t maps = 0;
    for (size_t i = 0; i < WORKLOADS; i++) {
        const bool chosen = !bench->workload || bench->workload == workloads[i];
        maps = chosen && workloads[i]->maps > maps ? workloads[i]->maps : maps;
    }
    for (const uint64_t *n = bench->sizes; *n; n++)
        maps = *n > maps ? *n : maps;
    return 2 * maps + 1000;
}

/* named: it is the one that was asked for, not one of all. */
static int run_workload(struct bench *bench, const struct bench_workload *workload, bool named)
{
    bench->workload = workload;
    bench->row_count = 0;
    const int status = workload->run(bench);
    bench_progress(bench, "%s", "");
    if (status != CLI_OK)
        return status;
    if (bench->row_count == 0 && bench->wanted[0]) {
        /* A workload has all systems of its parts; a part may have fewer. */
        if (!named)
            return CLI_OK;
        cli_error("%s has none of the systems that --against names: nothing was measured",
                  bench->part ? bench->part : workload->name);
        return CLI_USAGE;
    }
    if (!bench->json)
        workload->print(bench, stdout);
    return bench->plot && plot_write(bench, bench->plot) ? CLI_FAILURE : CLI_OK;
}

static int run(struct bench *bench)
{
    if (bench->plot && plot_check(bench->plot))
        return CLI_FAILURE;
    if (bench->raise_limit && limit_raise(maps_needed(bench)))
        return CLI_FAILURE;
    if (limit_raised_from())
        fprintf(bench->json ? stderr : stdout,
                "vm.max_map_count is raised from %llu to %llu for this run and restored at its "
                "end.\n\n",
                (unsigned long long)limit_raised_from(), (unsigned long long)bench_max_map_count());
    if (bench->profile && profile_start())
        return CLI_FAILURE;
    const struct bench_workload *const only = bench->workload;
    int status = CLI_OK;
    for (size_t i = 0; i < WORKLOADS && status == CLI_OK; i++) {
        if (!only || only == workloads[i])
            status = run_workload(bench, workloads[i], only != NULL);
    }
    if (bench->profile && profile_stop(bench->json ? stderr : stdout))
        status = CLI_FAILURE;
    return status;
}

int bench_command(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse_option,
        "[WORKLOAD [DIR]]",
        "Measures mapfold beside its rivals, in one run: one workload, or all of them.\v",
        NULL,
        filter_help,
        NULL};
    const char *directory = getenv("TMPDIR");
    struct bench bench = {.directory = directory && *directory ? directory : "/var/tmp"};
    cli_parse(&argp, argc, argv, 0, NULL, &bench);
    if (bench.seconds <= 0)
        bench.seconds = bench.quick ? 10 : 300;
    limit_catch_signals();
    const int status = run(&bench);
    limit_restore();
    free(bench.rows);
    return status;
}
