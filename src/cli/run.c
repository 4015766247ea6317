/* SPDX-License-Identifier: MIT */
/*
 * mapfold run: puts the drop-in before a program's libraries, and becomes that program. Options go
 * to the drop-in in one variable (preload/options.h); what it cannot take is refused here.
 *
 * The dynamic linker does not load it into a static program, one for another processor, nor one
 * with other rights than its caller's: those run as they are, and a note says so. Programs of
 * another libc would not even start with it, so they get none.
 */
#include "cli/cli.h"
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
    KEY_OFF = 0x6001,
    KEY_STRICT,
    KEY_SNAPSHOT,
    KEY_ANY_FS,
    KEY_PROMOTE,
    KEY_LINGER,
    KEY_MAX_COPY
};

/* Exit codes of the command beside those of cli.h: as env(1), nohup(1) and the shells have them. */
enum { RUN_NOT_EXECUTED = 126, RUN_NOT_FOUND = 127 };

/* As src/preload/options.h tells it. */
#define MAPFOLD_OPTIONS "MAPFOLD_OPTIONS"

static const struct argp_option options[] = {
    {"stats", 's', "FILE", OPTION_ARG_OPTIONAL,
     "At exit, append what was folded and what was not to FILE (default: stderr)", 0},
    {"explain", 'e', NULL, 0, "Say on stderr why the first mapping of each kind is not folded", 0},
    {"off", KEY_OFF, NULL, 0, "Fold nothing, only count", 0},
    {"strict", KEY_STRICT, NULL, 0,
     "Make access to unmapped memory fault at once; costs a kernel map for each", 0},
    {"snapshot", KEY_SNAPSHOT, NULL, 0,
     "Also copy small files that are mapped shared and read-only: for data that do not change", 0},
    {"any-fs", KEY_ANY_FS, NULL, 0, "Also fold on network file systems and FUSE", 0},
    {"promote", KEY_PROMOTE, "N", 0,
     "Fold a file's pieces of one kind once so many are live (default 8)", 0},
    {"linger", KEY_LINGER, "MS", 0, "Keep extents without pieces for so many milliseconds", 0},
    {"max-copy", KEY_MAX_COPY, "BYTES", 0,
     "Copy no more than so many bytes (K, M, G allowed; 0: nothing). Default: a quarter of the"
     " memory",
     0},
    {0},
};

/* The words of MAPFOLD_OPTIONS, and where in argv the program stands. */
struct words {
    char text[4096 + 256];
    size_t length;
    int program;
};

static bool word_add(struct words *words, const char *name, const char *value)
{
    const size_t room = sizeof(words->text) - words->length;
    const int written =
        snprintf(words->text + words->length, room, "%s%s%s%s", words->length ? "," : "", name,
                 value ? "=" : "", value ? value : "");
    if (written < 0 || (size_t)written >= room)
        return false;
    words->length += (size_t)written;
    return true;
}

/* A number, with one of the units (of "KMG") behind it or without. */
static bool number_read(const char *text, const char *units, unsigned long long *bytes)
{
    char *end;
    errno = 0;
    *bytes = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *text == '-')
        return false;
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        const unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (*bytes > UINT64_MAX >> shift)
            return false;
        *bytes <<= shift;
        end++;
    }
    return *end == '\0';
}

static error_t parse_stats(const char *file, struct argp_state *state)
{
    struct words *words = state->input;
    if (file == NULL)
        return word_add(words, "stats", NULL) ? 0 : ENOMEM;
    if (file[0] == '\0')
        return cli_wrong(state, "--stats: the name of its file is empty");
    /* Programs change their directory. */
    char path[4096] = "";
    if (file[0] != '/' && getcwd(path, sizeof(path)) == NULL)
        return cli_wrong(state, "--stats: no current directory: %s", strerror(errno));
    const size_t before = strlen(path), room = sizeof(path) - before;
    const int length = snprintf(path + before, room, "%s%s", before ? "/" : "", file);
    if (length < 0 || (size_t)length >= room || strchr(path, ',') != NULL)
        return cli_wrong(state, "--stats: '%s' is too long a name, or has a comma", file);
    /* At its exit, where the drop-in writes, nobody can be told any more. */
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return cli_wrong(state, "--stats: cannot write to %s: %s", path, strerror(errno));
    close(fd);
    return word_add(words, "stats", path) ? 0 : ENOMEM;
}

static error_t parse_number(const char *name, const char *text, unsigned long long least,
                            unsigned long long most, const char *units, struct argp_state *state)
{
    char value[24];
    unsigned long long number;
    if (!number_read(text, units, &number) || number < least || number > most)
        return cli_wrong(state, "--%s: '%s' is no number from %llu to %llu", name, text, least,
                         most);
    snprintf(value, sizeof(value), "%llu", number);
    return word_add(state->input, name, value) ? 0 : ENOMEM;
}

/* Whether "--stats FILE -- PROGRAM" was written, as other options may be: FILE would be run. */
static bool is_stats_file(const struct argp_state *state)
{
    const int at = state->next - 1;
    return at >= 2 && at + 1 < state->argc && strcmp(state->argv[at + 1], "--") == 0 &&
           (strcmp(state->argv[at - 1], "--stats") == 0 || strcmp(state->argv[at - 1], "-s") == 0);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case 's':
        return parse_stats(arg, state);
    case 'e':
        return word_add(state->input, "explain", NULL) ? 0 : ENOMEM;
    case KEY_OFF:
        return word_add(state->input, "off", NULL) ? 0 : ENOMEM;
    case KEY_STRICT:
        return word_add(state->input, "strict", NULL) ? 0 : ENOMEM;
    case KEY_SNAPSHOT:
        return word_add(state->input, "snapshot", NULL) ? 0 : ENOMEM;
    case KEY_ANY_FS:
        return word_add(state->input, "any-fs", NULL) ? 0 : ENOMEM;
    case KEY_PROMOTE:
        return parse_number("promote", arg, 1, 1 << 20, "", state);
    case KEY_LINGER:
        return parse_number("linger", arg, 0, UINT32_MAX, "", state);
    case KEY_MAX_COPY:
        return parse_number("max-copy", arg, 0, UINT64_MAX / 4, "KMG", state);
    case ARGP_KEY_ARG:
        if (is_stats_file(state))
            return cli_wrong(state, "--stats takes its file behind a '=': --stats=%s", arg);
        ((struct words *)state->input)->program = state->next - 1;
        state->next = state->argc; /* the rest is the program's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        return cli_wrong(state, "which program?");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Where execvp will find the program; false where it will not. */
static bool program_find(const char *name, char *path, size_t size)
{
    if (strchr(name, '/') != NULL)
        return (size_t)snprintf(path, size, "%s", name) < size && access(path, X_OK) == 0;
    const char *search = getenv("PATH");
    for (const char *at = search != NULL ? search : "/bin:/usr/bin"; at != NULL;) {
        const size_t length = strcspn(at, ":");
        const int written =
            snprintf(path, size, "%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
        struct stat stat_of;
        if (written > 0 && (size_t)written < size && access(path, X_OK) == 0 &&
            stat(path, &stat_of) == 0 && S_ISREG(stat_of.st_mode))
            return true;
        at = at[length] == ':' ? at + length + 1 : NULL;
    }
    return false;
}

/* Whether the kernel would give the program rights that its caller does not have: then the dynamic
 * linker takes no libraries from LD_PRELOAD. The file is no script's; those get none. */
static bool gains_rights(const char *path)
{
    struct stat stat_of;
    struct statvfs mount;
    if (stat(path, &stat_of) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
        (statvfs(path, &mount) == 0 && (mount.f_flag & ST_NOSUID)))
        return false;
    const bool user = (stat_of.st_mode & S_ISUID) && stat_of.st_uid != getuid();
    const bool group =
        (stat_of.st_mode & S_ISGID) && (stat_of.st_mode & S_IXGRP) && stat_of.st_gid != getgid();
    /* Root has all capabilities already. */
    return user || group || (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

/* Tells it if the program will run unfolded. What it is. */
static enum program_kind note_unfolded(const char *path)
{
    static const char *const reasons[] = {
        [PROGRAM_STATIC] = "is linked statically",
        [PROGRAM_MACHINE] = "is no 64-bit program of this machine's own kind",
        [PROGRAM_LIBC] = "uses another libc than glibc",
    };
    char file[4096];
    const enum program_kind kind = program_look(path, file, sizeof(file));
    if (kind != PROGRAM_FOLDS)
        cli_error("%s %s, so the drop-in is not loaded: unfolded", file, reasons[kind]);
    else if (gains_rights(file))
        cli_error("%s runs with rights of its own, so the drop-in is not loaded: unfolded", file);
    return kind;
}

/* The drop-in comes before what else is preloaded. */
static int preload_set(const char *library)
{
    const char *others = getenv("LD_PRELOAD");
    if (others == NULL || *others == '\0')
        return setenv("LD_PRELOAD", library, 1);
    const size_t size = strlen(library) + strlen(others) + 2;
    char *both = malloc(size);
    if (both == NULL)
        return -1;
    snprintf(both, size, "%s:%s", library, others);
    const int result = setenv("LD_PRELOAD", both, 1);
    free(both);
    return result;
}

int run_command(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse_option,
        "-- PROGRAM [ARGUMENT...]",
        "Runs PROGRAM with its file mappings folded: many small ones cost what few large ones do.\v"
        "Children inherit it. See mapfold-run(1) for what is folded, and for each difference.\n\n"
        "Exit codes: PROGRAM's own; 1 failed before it, 2 wrong usage, 126 PROGRAM cannot be "
        "executed, 127 there is no PROGRAM.",
        NULL,
        NULL,
        NULL};
    struct words words = {.length = 0};
    cli_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &words);
    char **const command = argv + words.program;
    char library[4096], program[4096];
    if (cli_library("src/preload/libmapfold-run.so", library, sizeof(library)) == NULL) {
        cli_error("cannot find the drop-in %s: %s; is mapfold installed (or, from a build, /proc "
                  "mounted)?",
                  library, strerror(errno));
        return CLI_FAILURE;
    }
    if (strpbrk(library, " :\t") != NULL) {
        cli_error("cannot preload %s: LD_PRELOAD takes no spaces or colons; install it elsewhere",
                  library);
        return CLI_FAILURE;
    }
    const bool found = program_find(command[0], program, sizeof(program));
    const bool preload = !found || note_unfolded(program) != PROGRAM_LIBC;
    if ((preload && preload_set(library) != 0) || setenv(MAPFOLD_OPTIONS, words.text, 1) != 0) {
        cli_error("cannot set LD_PRELOAD and " MAPFOLD_OPTIONS ": %s", strerror(errno));
        return CLI_FAILURE;
    }
    execvp(found ? program : command[0], command);
    cli_error("cannot run %s: %s%s", command[0], strerror(errno),
              errno == ENOENT && !strchr(command[0], '/') ? "; it is in no directory of PATH" : "");
    return errno == ENOENT ? RUN_NOT_FOUND : RUN_NOT_EXECUTED;
}
