/* SPDX-License-Identifier: MIT */
/*
 * What the commands of `mapfold COMMAND` share: their table, the parsing of options, and how an
 * error is told.
 *
 * Rules for a command:
 *  - It has one function, `int NAME_command(int argc, char **argv)`, declared here and entered in
 *    the table of main.c; argv[0] is "mapfold NAME", ready for messages. What it returns is the
 *    exit code: CLI_OK, CLI_FAILURE, CLI_USAGE, or one above them that its manual tells.
 *  - Options are read with argp through cli_parse, so that all commands answer --help and a wrong
 *    option alike: usage on stderr, exit 2.
 *  - An error is told once, by cli_error, on stderr: what was tried, on what, why it failed, what
 *    to do.
 */
#ifndef MAPFOLD_CLI_H
#define MAPFOLD_CLI_H

#include <argp.h>
#include <stddef.h>

enum {
    CLI_OK = 0,
    CLI_FAILURE = 1,
    CLI_USAGE = 2,
};

int bench_command(int argc, char **argv); /* in the command; and in what it becomes, bench/ */
int run_command(int argc, char **argv);
int inspect_command(int argc, char **argv);

/*
 * Parses argv as argp says. --help and --usage print and exit with 0. A wrong option, or one for
 * which the parser returned cli_wrong, leaves the message and the usage on stderr and exits with 2.
 * flags are argp's own (ARGP_IN_ORDER...); *next (may be NULL) receives the index of the first
 * argument that was not parsed. All its exits happen before a command has done anything.
 */
void cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, int *next,
               void *input);

/*
 * Writes "mapfold COMMAND: message" and a newline to stderr, in lines of at most 100 columns if
 * that is a terminal. Names may hold any bytes: those that could play with a terminal are shown as
 * \ooo. Keeps errno.
 */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same about a wrong option, for a parser of cli_parse, which then ends the command. EINVAL. */
int cli_wrong(struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Where a library or an executable of the command's is: under the directory of a command that was
 * not installed; or where it is when it was, as seen from the command, or in the place that it was
 * built for. NULL: none can be read, errno tells why of the last; then path is where it should be.
 */
const char *cli_library(const char *in_build, char *path, size_t size);

/*
 * Ends a command's output: flushes stdout and tells a write error (a full disk, a closed pipe).
 * The exit code: status as given, or CLI_FAILURE.
 */
int cli_finish(int status);

#endif
