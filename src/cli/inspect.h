/* SPDX-License-Identifier: MIT */
/*
 * mapfold inspect: how near a process is to vm.max_map_count, what its maps are, what would help.
 *
 * One look goes through the files in this order, each adding to one struct inspection:
 *
 *   inspect_line      a line of /proc/PID/maps as a struct map_line; knows the format, nothing else
 *   inspect_reader    lines one by one, from the kernel's query or from text, live or saved
 *   inspect_process   /proc/PID: who it is, whether it has maps at all, why they cannot be read
 *   inspect_resolve   what a file's name really is: "(deleted)" and "\012" can be part of it
 *   inspect_collect   lines become maps of 40 bytes and files; names are interned (inspect_names)
 *   inspect_classify  each map gets its cause; totals
 *   inspect_fold      what `mapfold run` would make of it
 *   inspect_advice    what to do
 *   inspect_text, _json, _plot    one way out each; inspect_all ranks all processes
 *
 * Rules: only inspect_process, _reader and _resolve make system calls on the target; no more than
 * one descriptor is open at a time beside the standard ones. Memory is 40 bytes a map, and some
 * tens and a name a file.
 */
#ifndef MAPFOLD_CLI_INSPECT_H
#define MAPFOLD_CLI_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "cli/program.h"

enum { MAP_READ = 1, MAP_WRITE = 2, MAP_EXEC = 4 };

/* Exit codes of the command beside those of cli.h. */
enum { INSPECT_OVER = 3, INSPECT_DENIED = 4, INSPECT_GONE = 5, INSPECT_NO_MAPS = 6 };

/* One line. The name is not terminated, and belongs to the reader until the next line. */
struct map_line {
    uint64_t start, end, offset, inode;
    uint32_t major, minor;
    uint8_t protection;
    bool shared;
    bool escaped; /* the name has newlines as \012, and backslashes as they are */
    const char *name;
    size_t name_length;
};

/* Reads a line without its newline. 0, or -EINVAL: it is no line of maps. Touches no memory beyond
 * text[length - 1], and text may hold any bytes. */
int map_line_parse(const char *text, size_t length, struct map_line *line);

/* What a line "Key: value" is, as smaps has them below a map. Size comes first, or in a summary
 * Rss. */
enum map_detail { DETAIL_NONE, DETAIL_OTHER, DETAIL_SIZE, DETAIL_RSS };

/* value is set for Size and Rss, in KiB; without a number they are no details. */
enum map_detail map_detail_parse(const char *text, size_t length, uint64_t *value);

/* ---- reader ---- */

struct maps_reader {
    int fd;
    bool saved;    /* a file that somebody kept, not /proc */
    bool by_query; /* PROCMAP_QUERY; else by text */
    uint64_t next; /* query: the lowest address not seen */
    char *buffer;
    size_t begin, end; /* text that was read and not handed out */
    bool at_end, crlf, in_long_line;
    bool has_rss;            /* it is smaps */
    bool in_details;         /* the map returned last has had its first line of smaps */
    uint64_t rss;            /* KiB, of the map before the one returned last */
    uint64_t lines, maps;    /* lines read, and those that are maps */
    uint64_t bad, first_bad; /* lines that are neither maps nor details, and the first's number */
    uint64_t too_long;       /* lines that were cut */
};

/* Takes over the open descriptor. query: ask the kernel map by map where it can do so; never for
 * smaps or saved files. 0, or -ENOMEM with the descriptor closed. */
int maps_reader_open(struct maps_reader *reader, int fd, bool saved, bool query);

/* The next map: 1; at the end: 0; or a negative errno. -ESRCH: the target has gone meanwhile. */
int maps_reader_next(struct maps_reader *reader, struct map_line *line);

/* Fills in the name of the line returned last. Only a query has to ask for it. */
void maps_reader_name(struct maps_reader *reader, struct map_line *line);

void maps_reader_close(struct maps_reader *reader);

/* ---- names: texts kept once each, with what was counted for them ---- */

struct name {
    uint64_t hash;
    size_t at;                          /* of the bytes in names.text */
    uint32_t length;                    /* bytes kept */
    bool cut;                           /* only its end was kept, for want of room */
    uint64_t in_directory, with_suffix; /* maps of files */
};

struct names {
    struct name *names;
    uint32_t count, room;
    uint32_t *table; /* number + 1; open addressing; table_size is a power of two */
    uint32_t table_size;
    char *text;
    size_t text_used, text_room;
};

enum { NO_NAME = UINT32_MAX };

/* The text's number, or NO_NAME if there is no memory. */
uint32_t name_intern(struct names *names, const char *text, size_t length);
void names_destroy(struct names *names);

/* ---- the inspection ---- */

enum cause {
    CAUSE_FILE,
    CAUSE_DELETED,
    CAUSE_SHARED,
    CAUSE_ANONYMOUS,
    CAUSE_STACK,
    CAUSE_SPLIT,
    CAUSE_CODE,
    CAUSE_HEAP,
    CAUSE_KERNEL,
    CAUSES
};

/* What a map's name says, where the map has no file. */
enum mark { MARK_NONE, MARK_HEAP, MARK_STACK, MARK_KERNEL, MARK_NAMED };

enum { NO_FILE = UINT32_MAX };

struct map {
    uint64_t start, end, offset;
    uint32_t file; /* a number in files, or NO_FILE */
    uint32_t rss;  /* KiB */
    uint8_t protection;
    bool shared;
    uint8_t mark;
    uint8_t cause;
};

enum file_kind { KIND_FILE, KIND_SHARED_MEMORY, KIND_DEVICE };

struct map_file {
    uint64_t inode;
    uint32_t major, minor;
    uint32_t directory, base, suffix; /* names */
    uint8_t kind;
    bool deleted;
    bool ambiguous;  /* "(deleted)" or "\012" may be part of its name, and nothing could tell */
    bool executable; /* one of its maps is */
    bool drop_in;    /* its name is that of the library of `mapfold run' */
    bool library;    /* its name is that of a shared library */
    uint64_t maps, bytes;
};

struct process {
    pid_t pid;
    char command[68]; /* as the kernel has it: any bytes but NUL */
    char state;
    bool kernel_thread;
    uint64_t threads, start_time;
};

struct cause_total {
    uint64_t maps, bytes, rss; /* rss in KiB */
};

struct gap {
    uint64_t start, end;
};

enum { TOP_GAPS = 3, TOP_FILES = 10, MAX_ADVICE = 4 };

struct fold {
    uint64_t classes;  /* of file, sharing and protection with enough pieces */
    uint64_t pieces;   /* in them */
    uint64_t extents;  /* made for them */
    uint64_t early;    /* the first of each class stay as they are */
    uint64_t copied;   /* private pieces that overlap too deeply: into an arena */
    uint64_t too_deep; /* shared ones, or large: they stay */
    uint64_t refused;  /* would be copied, but for the bound on copies: they stay, too */
    uint64_t spared;   /* small private files, copied beyond half the limit */
    uint64_t arenas;
    uint64_t copied_bytes; /* of copied and spared ones */
    uint64_t after;        /* maps then */
};

enum action { ACT_NOTHING, ACT_FOLD, ACT_RAISE, ACT_PROGRAM };

struct advice {
    enum action action;
    char text[700];
    char command[100]; /* "" = none */
};

struct inspection {
    struct process process; /* pid 0: a saved file */
    const char *path;       /* of the saved file */
    uint64_t limit;
    bool limit_guessed; /* a saved file's limit is not known */
    uint64_t page;      /* bytes */
    bool other_root;    /* names are to be looked up below /proc/PID/root as well */
    bool has_rss;
    enum program_kind program; /* what cannot be folded at all is told apart */
    bool folded;               /* it runs under `mapfold run' already */
    uint64_t copy_limit;       /* bytes of copies that `mapfold run' would hold */

    struct map *maps; /* by address; the gate page (vsyscall) is not among them */
    size_t count, room;
    struct map_file *files;
    uint32_t file_count, file_room;
    uint32_t *file_table; /* number + 1; open addressing */
    uint32_t file_table_size;
    struct names names;
    uint64_t gates; /* lines that are no maps of the process: vsyscall */
    uint64_t torn;  /* maps that overlapped one read before */
    uint64_t bad_lines, first_bad_line, long_lines;

    struct cause_total causes[CAUSES];
    uint64_t split_ranges, split_alike; /* alike: neighbours of equal protection */
    uint64_t ambiguous;                 /* maps of ambiguous files */
    uint64_t gap_count;
    uint64_t gap_bytes, mapped_bytes;
    struct gap gaps[TOP_GAPS]; /* the largest first; start == end: none */
    struct fold fold;
    struct advice advice[MAX_ADVICE];
    size_t advice_count;
};

struct inspect_options {
    pid_t pid;
    bool all, json, smaps;
    const char *file, *plot;
    double warn;    /* percent; 0: none given */
    uint64_t limit; /* 0: the machine's */
};

/* process.c: 0, or an exit code with the message told. quiet: no message. */
int process_read(pid_t pid, struct process *process);
int process_open_maps(struct process *process, const char *what, bool quiet, int *fd);
int process_gone(const struct process *process, bool quiet);
uint64_t read_limit(void);
enum program_kind process_program(pid_t pid);

/* What `mapfold run' bounds copies to by itself, where the process runs, or here (pid 0). Bytes. */
uint64_t read_copy_limit(pid_t pid);

/* Whether /proc keeps other users' processes to itself. */
bool proc_hides_processes(void);

/* resolve.c */
bool root_differs(pid_t pid);

/* Sets file->deleted and ->ambiguous, and makes the name what it really is, in place. */
void file_resolve(const struct inspection *inspection, const struct map_line *line,
                  struct map_file *file, char *name, size_t *length);

/* collect.c: 0, or a negative errno; -ESRCH: the target has gone. */
int inspection_collect(struct inspection *inspection, struct maps_reader *reader);
void inspection_destroy(struct inspection *inspection);

/* classify.c, fold.c, advice.c: fold may fail with -ENOMEM. */
void inspection_classify(struct inspection *inspection);
int inspection_fold(struct inspection *inspection);
void inspection_advise(struct inspection *inspection);

/* Collects, classifies, folds and advises. 0, or an exit code with the message told unless quiet.
 */
int inspect_process(const struct inspect_options *options, bool quiet,
                    struct inspection *inspection);

/* Whether more than --warn is used. */
bool inspection_over(const struct inspect_options *options, const struct inspection *inspection);

/* Rounded down to tenths. */
double percent_of(uint64_t part, uint64_t whole);

/* How much of the gaps between maps is not the largest one, in percent; 0: all of it is one. */
double inspection_fragmentation(const struct inspection *inspection);
extern const char *const cause_names[CAUSES];
extern const char *const cause_keys[CAUSES];

/* The numbers of the `most` files with the most maps, the most first; how many there are. */
size_t top_files(const struct inspection *inspection, uint32_t *top, size_t most);
size_t top_names(const struct inspection *inspection, bool suffixes, uint32_t *top, size_t most);

/* As printable() of text.h makes them: memory of the caller's, or NULL. */
char *printable_name(const struct inspection *inspection, uint32_t name);
char *printable_file(const struct inspection *inspection, uint32_t number);

void inspection_print(const struct inspection *inspection);
int inspection_print_json(const struct inspection *inspection);
int inspection_plot(const struct inspection *inspection, const char *path);
int inspect_all(const struct inspect_options *options);

/* Writes a count with commas, or bytes with a unit, into text; returns it. */
char *format_count(uint64_t count, char text[static 32]);
char *format_bytes(uint64_t bytes, char text[static 32]);

#endif
