/* SPDX-License-Identifier: MIT */
/* mapfold inspect: options, and one process or saved file from its opening to its report. */
#include "cli/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

enum { KEY_WARN = 0x5001, KEY_JSON, KEY_PLOT, KEY_SMAPS, KEY_LIMIT };

static const struct argp_option option_list[] = {
    {"all", 'a', NULL, 0, "Rank all processes by how much of the limit they use", 0},
    {"file", 'f', "SAVED_MAPS", 0, "Read a saved copy of /proc/PID/maps or smaps (-: stdin)", 0},
    {"warn", KEY_WARN, "PCT", 0, "Exit with 3 if more than so many percent are used", 0},
    {"limit", KEY_LIMIT, "N", 0, "Compare with N, not with this machine's vm.max_map_count", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object for each process, one a line", 0},
    {"plot", KEY_PLOT, "FILE.svg", 0, "Draw the address space, coloured by what uses it", 0},
    {"smaps", KEY_SMAPS, NULL, 0,
     "Also tell resident memory; slow, and can hold up the process meanwhile", 0},
    {0},
};

static bool parse_pid(const char *text, pid_t *pid)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value <= 0 || value > INT32_MAX ||
        text[0] < '0' || text[0] > '9')
        return false;
    *pid = (pid_t)value;
    return true;
}

static error_t parse_warn(struct argp_state *state, const char *arg, double *warn)
{
    char *end;
    *warn = strtod(arg, &end);
    if (end != arg && *end == '\0' && isfinite(*warn) && *warn > 0)
        return 0;
    return cli_wrong(state, "--warn: '%s' is no percentage above 0", arg);
}

static error_t parse_limit(struct argp_state *state, const char *arg, uint64_t *limit)
{
    char *end;
    errno = 0;
    *limit = strtoull(arg, &end, 10);
    if (errno == 0 && end != arg && *end == '\0' && arg[0] != '-' && *limit > 0 &&
        *limit <= INT32_MAX)
        return 0;
    return cli_wrong(state, "--limit: '%s' is no number from 1 to %d", arg, INT32_MAX);
}

/* One target, and options that go with it. */
static error_t check(struct argp_state *state, const struct inspect_options *options)
{
    const char *wrong = NULL;
    if ((options->pid != 0) + options->all + (options->file != NULL) != 1)
        wrong = "name one of: PID, --all, --file SAVED_MAPS";
    else if (options->all && options->plot)
        wrong = "--plot draws one process, not --all";
    else if (options->smaps && !options->pid)
        wrong = "--smaps goes with a PID; a saved smaps file is known as one by itself";
    if (!wrong)
        return 0;
    return cli_wrong(state, "%s", wrong);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct inspect_options *options = state->input;
    switch (key) {
    case 'a':
        options->all = true;
        return 0;
    case 'f':
        options->file = arg;
        return 0;
    case KEY_WARN:
        return parse_warn(state, arg, &options->warn);
    case KEY_LIMIT:
        return parse_limit(state, arg, &options->limit);
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_PLOT:
        options->plot = arg;
        return 0;
    case KEY_SMAPS:
        options->smaps = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->pid == 0 && parse_pid(arg, &options->pid))
            return 0;
        return cli_wrong(state, "'%s' is %s", arg,
                         options->pid ? "one too many" : "no process number");
    case ARGP_KEY_END:
        return check(state, options);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

bool inspection_over(const struct inspect_options *options, const struct inspection *inspection)
{
    return options->warn > 0 &&
           (double)inspection->count * 100 > options->warn * (double)inspection->limit;
}

static int judge(const struct inspect_options *options, struct inspection *inspection)
{
    inspection->limit_guessed = options->file && !options->limit;
    inspection->limit = options->limit ? options->limit : read_limit();
    inspection->copy_limit = read_copy_limit(inspection->process.pid);
    if (inspection->process.pid != 0)
        inspection->program = process_program(inspection->process.pid);
    inspection_classify(inspection);
    const int failed = inspection_fold(inspection);
    if (failed == 0)
        inspection_advise(inspection);
    return failed;
}

int inspect_process(const struct inspect_options *options, bool quiet,
                    struct inspection *inspection)
{
    int fd;
    struct maps_reader reader;
    struct process *process = &inspection->process;
    int status = process_open_maps(process, options->smaps ? "smaps" : "maps", quiet, &fd);
    if (status != 0)
        return status;
    int failed = maps_reader_open(&reader, fd, false, !options->smaps);
    if (failed == 0) {
        /* Names are looked up there too if they may mean something else there. */
        inspection->other_root = root_differs(process->pid);
        failed = inspection_collect(inspection, &reader);
        maps_reader_close(&reader);
    }
    if (failed == -ESRCH || (failed == 0 && inspection->count == 0))
        return process_gone(process, quiet);
    if (failed == 0)
        failed = judge(options, inspection);
    if (failed == 0)
        return CLI_OK;
    if (!quiet)
        cli_error("cannot read the maps of process %d: %s", (int)process->pid, strerror(-failed));
    return failed == -EACCES || failed == -EPERM ? INSPECT_DENIED : CLI_FAILURE;
}

/* Lines that are no maps are told, and fail the command, but the others are reported. */
static int inspect_file(const struct inspect_options *options, struct inspection *inspection)
{
    struct maps_reader reader;
    const bool standard = strcmp(options->file, "-") == 0;
    inspection->path = standard ? "(standard input)" : options->file;
    const int fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                            : open(options->file, O_RDONLY | O_CLOEXEC);
    int failed = fd < 0 ? -errno : maps_reader_open(&reader, fd, true, false);
    if (failed == 0) {
        failed = inspection_collect(inspection, &reader);
        maps_reader_close(&reader);
    }
    if (failed == 0 && inspection->count > 0)
        failed = judge(options, inspection);
    if (failed != 0) {
        cli_error("cannot read %s: %s", inspection->path, strerror(-failed));
        return CLI_FAILURE;
    }
    if (inspection->count == 0) {
        cli_error("%s has no line as /proc/PID/maps has them; save them by `cat /proc/PID/maps'",
                  inspection->path);
        return CLI_FAILURE;
    }
    if (inspection->bad_lines == 0 && inspection->long_lines == 0)
        return CLI_OK;
    char bad[120] = "", cut[60] = "";
    const unsigned long long first = (unsigned long long)inspection->first_bad_line;
    if (inspection->bad_lines == 1)
        snprintf(bad, sizeof(bad), ": line %llu is no map and was left out", first);
    else if (inspection->bad_lines > 1)
        snprintf(bad, sizeof(bad),
                 ": %llu lines are no maps and were left out, line %llu the first",
                 (unsigned long long)inspection->bad_lines, first);
    if (inspection->long_lines > 0)
        snprintf(cut, sizeof(cut), ": %llu line%s too long and cut",
                 (unsigned long long)inspection->long_lines,
                 inspection->long_lines == 1 ? " was" : "s were");
    cli_error("%s%s%s", inspection->path, bad, cut);
    return CLI_FAILURE;
}

static int report(const struct inspect_options *options, const struct inspection *inspection,
                  int status)
{
    if (!options->json) {
        inspection_print(inspection);
    } else if (inspection_print_json(inspection) != 0) {
        cli_error("cannot print the JSON object: out of memory");
        return CLI_FAILURE;
    }
    if (options->plot && inspection_plot(inspection, options->plot) != 0)
        return CLI_FAILURE;
    /* What was counted of a damaged file is no ground for an alarm, nor for its absence. */
    return status == CLI_OK && inspection_over(options, inspection) ? INSPECT_OVER : status;
}

int inspect_command(int argc, char **argv)
{
    static const struct argp argp = {
        option_list,
        parse_option,
        "PID\n--all\n--file SAVED_MAPS",
        "Tells how near a process is to vm.max_map_count, what its maps are, and what would help."
        "\vExit codes: 0 done, 1 failed, 2 wrong usage, 3 over --warn, 4 no permission, 5 no such "
        "process or it exited, 6 a kernel thread, which has no maps.",
        NULL,
        NULL,
        NULL};
    struct inspect_options options = {0};
    struct inspection inspection = {0};
    cli_parse(&argp, argc, argv, 0, NULL, &options);
    if (options.all)
        return inspect_all(&options);
    if (options.smaps)
        cli_error("note: smaps walks all page tables of process %d, which can hold up its page "
                  "faults and mmap calls",
                  (int)options.pid);
    inspection.process.pid = options.pid;
    int status = options.file ? inspect_file(&options, &inspection)
                              : inspect_process(&options, false, &inspection);
    /* A saved file with some bad lines is still worth a report. */
    if (status == CLI_OK || (options.file && inspection.advice_count > 0))
        status = report(&options, &inspection, status);
    inspection_destroy(&inspection);
    return status;
}
