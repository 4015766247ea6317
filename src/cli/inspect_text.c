/* SPDX-License-Identifier: MIT */
/* One screen of text, at most 100 columns wide. */
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"
#include "cli/text.h"
#include "linux/fold_rules.h"

/* Files and groups with fewer maps than FEWEST are not worth a line. */
enum { WIDTH = TEXT_WIDTH, SHOWN = 5, FEWEST = 2 };

/* The beginning and the end of a name that is too long: what tells files apart is at the end. */
static void print_short(const char *text, size_t room)
{
    enum { HEAD = 20 };
    const size_t all = text ? text_columns(text) : 0;
    if (all <= room) {
        fputs(text ? text : "(no memory)", stdout);
        return;
    }
    size_t at = 0;
    for (const char *c = text; *c; c++) {
        at += ((unsigned char)*c & 0xc0) != 0x80;
        if (at <= HEAD || at > all - (room - HEAD - 3))
            putchar(*c);
        else if (at == HEAD + 1 && ((unsigned char)*c & 0xc0) != 0x80)
            fputs("...", stdout);
    }
}

static void print_head(const struct inspection *inspection)
{
    char used[32], limit[32], left[32], text[200];
    char *name = inspection->process.pid
                     ? printable(inspection->process.command, strlen(inspection->process.command))
                     : printable(inspection->path, strlen(inspection->path));
    if (inspection->process.pid)
        printf("process %d (%s)", (int)inspection->process.pid, name ? name : "");
    else
        fputs("saved maps ", stdout), print_short(name, 60);
    free(name);
    printf(": %s of %s maps used, %.1f %%\n", format_count(inspection->count, used),
           format_count(inspection->limit, limit),
           percent_of(inspection->count, inspection->limit));
    /* The kernel refuses a map when it has more than the limit already. */
    const uint64_t most = inspection->limit + 1;
    if (inspection->count >= most)
        snprintf(text, sizeof(text),
                 "It is at the limit: the next map, or split of one, fails with ENOMEM.");
    else
        snprintf(text, sizeof(text),
                 "%s more, then mmap, mprotect and the like fail with ENOMEM%s.",
                 format_count(most - inspection->count, left),
                 inspection->limit_guessed
                     ? " (by this machine's limit; --limit N gives the one they were saved under)"
                     : "");
    text_wrap(stdout, text, "", "");
}

static void print_causes(const struct inspection *inspection)
{
    char maps[32], bytes[32], rss[32];
    printf("\n  %-24s %11s %7s %12s%s\n", "what", "maps", "share", "address space",
           inspection->has_rss ? "     resident" : "");
    bool shown[CAUSES] = {false};
    for (int rows = 0; rows < CAUSES; rows++) {
        int most = -1;
        for (int i = 0; i < CAUSES; i++) {
            if (!shown[i] &&
                (most < 0 || inspection->causes[i].maps > inspection->causes[most].maps))
                most = i;
        }
        const struct cause_total *total = &inspection->causes[most];
        shown[most] = true;
        if (total->maps == 0)
            break;
        printf("  %-24s %11s %5.1f %% %13s", cause_names[most], format_count(total->maps, maps),
               percent_of(total->maps, inspection->count), format_bytes(total->bytes, bytes));
        if (inspection->has_rss)
            printf(" %12s", format_bytes(total->rss << 10, rss));
        if (most == CAUSE_SPLIT)
            printf("  (%s range%s)", format_count(inspection->split_ranges, maps),
                   inspection->split_ranges == 1 ? "" : "s");
        putchar('\n');
    }
}

static void print_files(const struct inspection *inspection)
{
    uint32_t top[TOP_FILES];
    char maps[32];
    size_t files = top_files(inspection, top, SHOWN);
    while (files > 0 && inspection->files[top[files - 1]].maps < FEWEST)
        files--;
    if (files == 0)
        return;
    puts("\n  files with the most maps (executables aside)");
    for (size_t i = 0; i < files; i++) {
        const struct map_file *file = &inspection->files[top[i]];
        char *name = printable_file(inspection, top[i]);
        const char *note = file->deleted     ? file->ambiguous ? "  (deleted?)" : "  (deleted)"
                           : file->ambiguous ? "  (name uncertain)"
                                             : "";
        printf("  %11s  ", format_count(file->maps, maps));
        print_short(name, WIDTH - 15 - strlen(note));
        puts(note);
        free(name);
    }
}

static void print_groups(const struct inspection *inspection, bool suffixes)
{
    uint32_t top[TOP_FILES];
    char maps[32];
    const size_t there = top_names(inspection, suffixes, top, suffixes ? 4 : 3);
    const struct name *const names = inspection->names.names;
    const uint64_t most = there == 0 ? 0
                          : suffixes ? names[top[0]].with_suffix
                                     : names[top[0]].in_directory;
    if (most < FEWEST)
        return;
    puts(suffixes ? "\n  by suffix" : "\n  by directory");
    for (size_t i = 0; i < there; i++) {
        const struct name *name = &names[top[i]];
        if ((suffixes ? name->with_suffix : name->in_directory) < FEWEST)
            break;
        char *shown = printable_name(inspection, top[i]);
        printf("  %11s  ", format_count(suffixes ? name->with_suffix : name->in_directory, maps));
        print_short(shown && *shown ? shown : "(none)", WIDTH - 15);
        putchar('\n');
        free(shown);
    }
}

/* Why there is no estimate, or NULL. */
static const char *unfolded_reason(const struct inspection *inspection)
{
    static const char *const reasons[] = {
        [PROGRAM_STATIC] =
            "nothing: the program is linked statically, so that the drop-in cannot be "
            "loaded into it.",
        [PROGRAM_MACHINE] =
            "nothing: it is no 64-bit program of this machine's own kind, so that the "
            "drop-in cannot be loaded into it.",
        [PROGRAM_LIBC] = "nothing: the program uses another libc than glibc, so that the drop-in "
                         "cannot be loaded into it."};
    if (inspection->folded)
        return "it runs under it already; its extents are among the maps above.";
    return reasons[inspection->program];
}

/* The pieces, and what becomes of them. */
static void describe_fold(const struct inspection *inspection, FILE *out)
{
    const struct fold *fold = &inspection->fold;
    char all[32], count[32], bytes[32];
    const uint64_t maps =
        inspection->causes[CAUSE_FILE].maps + inspection->causes[CAUSE_DELETED].maps;
    const uint64_t carved =
        fold->pieces - fold->early - fold->copied - fold->too_deep - fold->refused;
    fprintf(out, "of %s maps of files %s would become ", format_count(maps, all),
            format_count(carved, count));
    fprintf(out, "%s extent%s", format_count(fold->extents, count), fold->extents == 1 ? "" : "s");
    if (fold->copied + fold->spared > 0)
        fprintf(out, ", %s be copied to %s (%s of memory)",
                format_count(fold->copied + fold->spared, count),
                fold->arenas == 1 ? "one arena" : "two arenas",
                format_bytes(fold->copied_bytes, bytes));
    if (fold->too_deep > 0)
        fprintf(out, ", %s overlap too deeply and stay", format_count(fold->too_deep, count));
    if (fold->refused > 0)
        fprintf(out, ", %s stay because copies end at %s (--max-copy)",
                format_count(fold->refused, count), format_bytes(inspection->copy_limit, bytes));
    fprintf(out, ": about %s maps in all, %.1f %%.", format_count(fold->after, count),
            percent_of(fold->after, inspection->limit));
}

static void print_fold(const struct inspection *inspection)
{
    const struct fold *fold = &inspection->fold;
    char text[700] = "";
    const char *reason = unfolded_reason(inspection);
    FILE *out = reason == NULL ? fmemopen(text, sizeof(text), "w") : NULL;
    if (out != NULL && (fold->pieces > 0 || fold->spared > 0))
        describe_fold(inspection, out);
    else if (out != NULL && inspection->causes[CAUSE_FILE].maps == 0 &&
             inspection->causes[CAUSE_DELETED].maps == 0)
        fputs("nothing to fold: no map is of a file, other than executables.", out);
    else if (out != NULL)
        fprintf(out, "nothing to fold: no file has %d maps, or %d beside others, of one kind.",
                2 * PROMOTE_PIECES - 1, PROMOTE_PIECES);
    if (out != NULL)
        fclose(out);
    putchar('\n');
    text_wrap(stdout, reason != NULL ? reason : text, "  mapfold run: ", "      ");
}

static void print_gaps(const struct inspection *inspection)
{
    char bytes[32], count[32];
    if (inspection->count == 0)
        return;
    printf("  address space: %s mapped", format_bytes(inspection->mapped_bytes, bytes));
    if (inspection->gap_count == 0) {
        puts(", without gaps.");
        return;
    }
    printf(", %s gap%s between maps; the largest:", format_count(inspection->gap_count, count),
           inspection->gap_count == 1 ? "" : "s");
    for (int i = 0; i < TOP_GAPS && inspection->gaps[i].end > 0; i++)
        printf("%s %s", i ? "," : "",
               format_bytes(inspection->gaps[i].end - inspection->gaps[i].start, bytes));
    printf(".\n  fragmentation: %.1f %% of the room between maps is not in the largest gap.\n",
           inspection_fragmentation(inspection));
}

static void print_notes(const struct inspection *inspection)
{
    char count[32], text[300];
    if (inspection->torn > 0) {
        snprintf(text, sizeof(text),
                 "%s maps changed while they were read; counts are that much uncertain.",
                 format_count(inspection->torn, count));
        text_wrap(stdout, text, "  note: ", "      ");
    }
    if (inspection->ambiguous > 0) {
        snprintf(text, sizeof(text),
                 "for %s maps nothing could tell whether \"(deleted)\" or \\012 is part of the "
                 "file's own name%s.",
                 format_count(inspection->ambiguous, count),
                 inspection->process.pid ? "" : " (only the living process can)");
        text_wrap(stdout, text, "  note: ", "      ");
    }
}

void inspection_print(const struct inspection *inspection)
{
    print_head(inspection);
    print_causes(inspection);
    print_files(inspection);
    print_groups(inspection, false);
    print_groups(inspection, true);
    print_fold(inspection);
    print_gaps(inspection);
    print_notes(inspection);
    for (size_t i = 0; i < inspection->advice_count; i++) {
        const struct advice *advice = &inspection->advice[i];
        putchar('\n');
        text_wrap(stdout, advice->text, "> ", "  ");
        if (advice->command[0])
            printf("      %s\n", advice->command);
    }
}
