/* SPDX-License-Identifier: MIT */
/*
 * argp would print a one-line hint on errors and exit with 64; ours exit with 2 and show the usage.
 * So argp runs with its own help and exit switched off, and a parser around the command's adds
 * --help and --usage and does both.
 */
#include "cli/cli.h"
#include "cli/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The name of the running command for messages; set by cli_parse, once, before any thread. */
static const char *command_name = "mapfold";

enum { KEY_HELP = 'h', KEY_USAGE = 0x7001 };

static const struct argp_option help_options[] = {
    {"help", KEY_HELP, NULL, 0, "Show this help and exit", -1},
    {"usage", KEY_USAGE, NULL, 0, "Show the usage in short and exit", -1},
    {0},
};

struct parse {
    const struct argp *whole;
    void *input;
};

/* argp says what the type is. NOLINTNEXTLINE(readability-non-const-parameter) */
static error_t parse_help(int key, char *arg, struct argp_state *state)
{
    const struct parse *parse = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = parse->input;
        return 0;
    case KEY_HELP:
        argp_help(parse->whole, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, state->name);
        exit(cli_finish(CLI_OK));
    case KEY_USAGE:
        argp_help(parse->whole, stdout, ARGP_HELP_USAGE, state->name);
        exit(cli_finish(CLI_OK));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, int *next,
               void *input)
{
    command_name = argv[0];
    const struct argp_child children[] = {{argp, 0, NULL, 0}, {0}};
    struct argp whole = {help_options, parse_help, NULL, NULL, children, NULL, NULL};
    struct parse parse = {&whole, input};
    /* With its own error output off (argp_error included), argp would stay silent; with
     * ARGP_NO_EXIT it prints the message and a pointer to --help, and comes back. */
    const error_t failed =
        argp_parse(&whole, argc, argv, flags | ARGP_NO_HELP | ARGP_NO_EXIT, next, &parse);
    if (failed == 0)
        return;
    argp_help(&whole, stderr, ARGP_HELP_USAGE, argv[0]);
    exit(CLI_USAGE);
}

/* The message, fit for a terminal: names in it may hold any bytes. NULL: no memory. */
__attribute__((format(printf, 1, 0))) static char *message_make(const char *format,
                                                                va_list arguments)
{
    char *text = NULL;
    const int length = vasprintf(&text, format, arguments);
    char *shown = length < 0 ? NULL : printable(text, (size_t)length);
    if (length >= 0)
        free(text);
    return shown;
}

void cli_error(const char *format, ...)
{
    const int saved = errno;
    va_list arguments;
    char start[80];
    fflush(stdout);
    snprintf(start, sizeof(start), "%s: ", command_name);
    va_start(arguments, format);
    errno = saved;
    char *text = message_make(format, arguments);
    va_end(arguments);
    /* One line for programs that read it, and for the logs. */
    if (text == NULL)
        fprintf(stderr, "%scannot tell an error: out of memory\n", start);
    else if (isatty(STDERR_FILENO))
        text_wrap(stderr, text, start, "  ");
    else
        fprintf(stderr, "%s%s\n", start, text);
    free(text);
    errno = saved;
}

int cli_wrong(struct argp_state *state, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = message_make(format, arguments);
    va_end(arguments);
    argp_error(state, "%s", text != NULL ? text : "out of memory");
    free(text);
    return EINVAL;
}

int cli_finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    cli_error("cannot write the results to standard output: %s", strerror(errno));
    return CLI_FAILURE;
}

const char *cli_library(const char *in_build, char *path, size_t size)
{
    const char *slash = strrchr(in_build, '/');
    const char *name = slash != NULL ? slash + 1 : in_build;
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length > 0) {
        self[length] = '\0';
        char *end = strrchr(self, '/');
        *(end != NULL ? end : self) = '\0';
        const char *const from[] = {"", MAPFOLD_LIBRARIES_FROM_BIN "/", ""};
        const char *const what[] = {in_build, name, name};
        for (int i = 0; i < 3; i++)
            if ((size_t)snprintf(path, size, "%s/%s%s", self, from[i], what[i]) < size &&
                access(path, R_OK) == 0)
                return path;
    }
    snprintf(path, size, "%s/%s", MAPFOLD_LIBRARIES, name);
    return access(path, R_OK) == 0 ? path : NULL;
}
