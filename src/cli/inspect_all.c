/* SPDX-License-Identifier: MIT */
/*
 * All processes, the fullest first. Processes come and go meanwhile and many belong to others: what
 * cannot be read is counted and told below the table, and never ends the run.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/text.h"

struct row {
    struct process process;
    uint64_t used, after;
    double percent; /* as shown */
    bool over;
    uint64_t causes[CAUSES];
    int status; /* 0, or why it could not be read */
};

struct ranking {
    struct row *rows;
    size_t count, room;
};

static int by_use(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    if (a->used != b->used)
        return a->used > b->used ? -1 : 1;
    return (a->process.pid > b->process.pid) - (a->process.pid < b->process.pid);
}

static bool row_add(struct ranking *ranking, pid_t pid)
{
    if (ranking->count == ranking->room) {
        const size_t room = ranking->room ? 2 * ranking->room : 256;
        struct row *more = realloc(ranking->rows, room * sizeof(*more));
        if (!more)
            return false;
        ranking->rows = more;
        ranking->room = room;
    }
    ranking->rows[ranking->count++] = (struct row){.process.pid = pid};
    return true;
}

/* The directory is closed before any process is looked at: descriptors may be few. */
static bool list_processes(struct ranking *ranking)
{
    DIR *directory = opendir("/proc");
    if (!directory) {
        cli_error("cannot list the processes in /proc: %s", strerror(errno));
        return false;
    }
    bool good = true;
    for (const struct dirent *entry; good && (entry = readdir(directory)) != NULL;) {
        if (isdigit((unsigned char)entry->d_name[0]))
            good = row_add(ranking, (pid_t)strtol(entry->d_name, NULL, 10));
    }
    closedir(directory);
    if (!good)
        cli_error("cannot list the processes in /proc: %s", strerror(ENOMEM));
    else if (ranking->count == 0)
        cli_error("cannot list the processes: /proc shows none; is it mounted?");
    return good && ranking->count > 0;
}

static void look(const struct inspect_options *options, struct row *row)
{
    struct inspection inspection = {.process.pid = row->process.pid};
    row->status = inspect_process(options, true, &inspection);
    row->process = inspection.process;
    row->used = inspection.count;
    if (row->status == 0) {
        row->after = inspection.fold.after;
        row->over = inspection_over(options, &inspection);
        row->percent = percent_of(inspection.count, inspection.limit);
        for (int i = 0; i < CAUSES; i++)
            row->causes[i] = inspection.causes[i].maps;
    }
    inspection_destroy(&inspection);
}

static enum cause main_cause(const struct row *row)
{
    enum cause most = CAUSE_FILE;
    for (int i = 0; i < CAUSES; i++) {
        if (row->causes[i] > row->causes[most])
            most = (enum cause)i;
    }
    return most;
}

static void print_table(const struct ranking *ranking, const struct inspect_options *options)
{
    char used[32], after[32], limit[32];
    printf("%8s %9s %9s %8s  %-24s %s\n", "share", "maps", "folded", "pid", "mostly", "command");
    for (size_t i = 0; i < ranking->count; i++) {
        const struct row *row = &ranking->rows[i];
        if (row->status != 0)
            continue;
        char *command = printable(row->process.command, strlen(row->process.command));
        printf("%6.1f %% %9s %9s %8d  %-24s %.30s%s\n", row->percent, format_count(row->used, used),
               format_count(row->after, after), (int)row->process.pid, cause_names[main_cause(row)],
               command ? command : "", row->over ? " !" : "");
        free(command);
    }
    printf("\nThe limit (vm.max_map_count) is %s; \"folded\" is about what `mapfold run' would "
           "leave.\n",
           format_count(options->limit ? options->limit : read_limit(), limit));
}

static size_t count_status(const struct ranking *ranking, int status)
{
    size_t count = 0;
    for (size_t i = 0; i < ranking->count; i++)
        count += ranking->rows[i].status == status;
    return count;
}

static void print_missing(const struct ranking *ranking)
{
    const size_t denied = count_status(ranking, INSPECT_DENIED);
    const size_t gone = count_status(ranking, INSPECT_GONE);
    const size_t none = count_status(ranking, INSPECT_NO_MAPS);
    const size_t failed = count_status(ranking, CLI_FAILURE);
    if (denied)
        printf("Not shown: %zu of other users (permission denied; run this as root, or with "
               "CAP_SYS_PTRACE).\n",
               denied);
    if (proc_hides_processes())
        puts("Not shown: those of other users, which /proc hides (hidepid); run this as root.");
    if (gone)
        printf("Not shown: %zu that exited meanwhile.\n", gone);
    if (none)
        printf("Not shown: %zu kernel threads, which have no maps.\n", none);
    if (failed)
        printf("Not shown: %zu that could not be read.\n", failed);
}

/* Who asks for an alarm may not look at the table. */
static void warn_of_missing(const struct ranking *ranking)
{
    const size_t unread =
        count_status(ranking, INSPECT_DENIED) + count_status(ranking, CLI_FAILURE);
    if (proc_hides_processes())
        cli_error(
            "note: /proc hides other users' processes (hidepid), so --warn does not see them; "
            "run this as root");
    else if (unread > 0)
        cli_error("note: --warn does not see %zu process%s that could not be read; run this as "
                  "root, or with CAP_SYS_PTRACE",
                  unread, unread == 1 ? "" : "es");
}

static bool print_json(const struct row *row)
{
    static const char *const errors[] = {[CLI_FAILURE] = "failed",
                                         [INSPECT_DENIED] = "denied",
                                         [INSPECT_GONE] = "gone",
                                         [INSPECT_NO_MAPS] = "no maps"};
    char *command = printable(row->process.command, strlen(row->process.command));
    json_t *object = json_object();
    json_object_set_new(object, "pid", json_integer(row->process.pid));
    json_object_set_new(object, "command", json_string(command ? command : ""));
    free(command);
    if (row->status != 0) {
        json_object_set_new(object, "error", json_string(errors[row->status]));
    } else {
        json_t *causes = json_object();
        for (int i = 0; i < CAUSES; i++)
            json_object_set_new(causes, cause_keys[i], json_integer((json_int_t)row->causes[i]));
        json_object_set_new(object, "used", json_integer((json_int_t)row->used));
        json_object_set_new(object, "percent", json_real(row->percent));
        json_object_set_new(object, "causes", causes);
        json_object_set_new(object, "maps_after", json_integer((json_int_t)row->after));
    }
    const int failed = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(object);
    return failed == 0 || ferror(stdout); /* which cli_finish tells */
}

int inspect_all(const struct inspect_options *options)
{
    struct ranking ranking = {0};
    int status = CLI_FAILURE;
    if (list_processes(&ranking) && ranking.rows) {
        status = CLI_OK;
        for (size_t i = 0; i < ranking.count; i++) {
            look(options, &ranking.rows[i]);
            if (ranking.rows[i].over)
                status = INSPECT_OVER;
        }
        qsort(ranking.rows, ranking.count, sizeof(*ranking.rows), by_use);
        bool printed = true;
        for (size_t i = 0; options->json && i < ranking.count; i++)
            printed = print_json(&ranking.rows[i]) && printed;
        if (!options->json) {
            print_table(&ranking, options);
            print_missing(&ranking);
        }
        if (options->warn > 0)
            warn_of_missing(&ranking);
        if (!printed) {
            cli_error("cannot print all processes: out of memory");
            status = CLI_FAILURE;
        }
    }
    free(ranking.rows);
    return status;
}
