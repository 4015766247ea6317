/* SPDX-License-Identifier: MIT */
/* mapfold COMMAND: finds the command and hands over to it. Commands stand in the table below. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"bench", "measure mapfold beside its rivals, on this machine", bench_command},
    {"run", "run a program with its file mappings folded", run_command},
    {"inspect", "tell what uses a process's maps and what would help", inspect_command},
};

enum { COMMANDS = sizeof(commands) / sizeof(*commands), KEY_VERSION = 'V' };

static const struct argp_option options[] = {
    {"version", KEY_VERSION, NULL, 0, "Show the version and exit", -1},
    {0},
};

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    const struct command **command = state->input;
    switch (key) {
    case KEY_VERSION:
        puts("mapfold " MAPFOLD_VERSION);
        exit(cli_finish(CLI_OK));
    case ARGP_KEY_ARG:
        *command = find_command(arg);
        if (!*command)
            return cli_wrong(state, "there is no command '%s'", arg);
        state->quoted = state->next;
        state->next = state->argc; /* the rest is the command's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        return cli_wrong(state, "which command?");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Lists the commands below the options in --help. */
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
    fputs("Commands:\n", out);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`mapfold COMMAND --help' tells more. Exit codes: 0 done, 1 failed, 2 wrong usage; "
          "inspect has more, and run has the program's.",
          out);
    fclose(out);
    return list;
}

int main(int argc, char **argv)
{
    static char program[] = "mapfold";
    static const struct argp argp = {options,
                                     parse_option,
                                     "COMMAND [ARGUMENT...]",
                                     "Keeps file mappings cheap, whatever their number.\v",
                                     NULL,
                                     filter_help,
                                     NULL};
    const struct command *command = NULL;
    int next = argc;
    if (argc > 0)
        argv[0] = program;
    cli_parse(&argp, argc, argv, ARGP_IN_ORDER, &next, &command);
    int first = 1;
    while (first < argc && argv[first][0] == '-')
        first++;
    char name[32];
    snprintf(name, sizeof(name), "mapfold %s", command->name);
    argv[first] = name;
    return cli_finish(command->run(argc - first, argv + first));
}
