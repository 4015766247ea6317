/* SPDX-License-Identifier: MIT */
/*
 * What to do, in the order of what it costs: nothing while less than half of the limit is used;
 * `mapfold run` where it takes away at least a tenth of the limit; a higher limit where that leaves
 * more than half in use; and what only the program itself can change.
 */
#include <stdarg.h>

#include "cli/inspect.h"

enum { RECORD = 256, HIGH_LIMIT = 1 << 20 }; /* bytes of kernel memory a map, about */

static struct advice *advise(struct inspection *inspection, enum action action, const char *format,
                             ...) __attribute__((format(printf, 3, 4)));

static struct advice *advise(struct inspection *inspection, enum action action, const char *format,
                             ...)
{
    struct advice *advice = &inspection->advice[inspection->advice_count];
    if (inspection->advice_count < MAX_ADVICE - 1)
        inspection->advice_count++;
    advice->action = action;
    advice->command[0] = '\0';
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(advice->text, sizeof(advice->text), format, arguments);
    va_end(arguments);
    return advice;
}

static enum cause main_cause(const struct inspection *inspection)
{
    enum cause most = CAUSE_FILE;
    for (int i = 0; i < CAUSES; i++) {
        if (inspection->causes[i].maps > inspection->causes[most].maps)
            most = (enum cause)i;
    }
    return most;
}

static void advise_fold(struct inspection *inspection)
{
    char pieces[32], after[32], bytes[32], copies[100] = "";
    const struct fold *fold = &inspection->fold;
    if (fold->copied_bytes > 0)
        snprintf(copies, sizeof(copies), " It takes %s of memory for copies%s.",
                 format_bytes(fold->copied_bytes, bytes),
                 fold->refused > 0 ? ", and more would fold more (--max-copy)" : "");
    struct advice *advice =
        advise(inspection, ACT_FOLD,
               "Fold: start the program under `mapfold run', and its %s maps become about %s "
               "(%.1f %% of the limit).%s Its files have to be on a local file system.%s",
               format_count(inspection->count, pieces), format_count(fold->after, after),
               percent_of(fold->after, inspection->limit), copies,
               inspection->causes[CAUSE_DELETED].maps > inspection->count / 10
                   ? " Deleted files stay on the disk as long as the program maps them: folding"
                     " saves maps, not their blocks."
                   : "");
    snprintf(advice->command, sizeof(advice->command), "mapfold run PROGRAM [ARGUMENT...]");
}

/* Four times what is needed as a power of two, so that it is not needed again next month. */
static uint64_t higher_limit(const struct inspection *inspection, uint64_t needed)
{
    uint64_t limit = 262144;
    while (limit < 4 * needed || limit <= inspection->limit)
        limit *= 2;
    return limit;
}

static void advise_raise(struct inspection *inspection, uint64_t needed)
{
    char count[32], bytes[32];
    const uint64_t limit = higher_limit(inspection, needed);
    if (limit > INT32_MAX) {
        advise(inspection, ACT_PROGRAM,
               "The limit cannot go much higher: vm.max_map_count is at most 2,147,483,647.");
        return;
    }
    struct advice *advice =
        advise(inspection, ACT_RAISE,
               "Raise the limit to %s, as root, on the host if this is a container; it holds for "
               "all processes at once, and until the next boot unless it is also written to "
               "/etc/sysctl.d/. A process that uses it up takes about %s of kernel memory for it, "
               "and each fork copies the maps.",
               format_count(limit, count), format_bytes(limit * RECORD, bytes));
    snprintf(advice->command, sizeof(advice->command), "sysctl -w vm.max_map_count=%llu",
             (unsigned long long)limit);
}

/* Why folding files does not help, and what would. */
static void advise_program(struct inspection *inspection)
{
    char maps[32], ranges[32];
    const enum cause cause = main_cause(inspection);
    const bool of_files = cause == CAUSE_FILE || cause == CAUSE_DELETED;
    const char *lead =
        inspection->folded ? "It runs under `mapfold run' already" : "Folding files would not help";
    if (of_files && !inspection->folded && inspection->program != PROGRAM_FOLDS) {
        advise(
            inspection, ACT_PROGRAM,
            "`mapfold run' cannot fold this program: %s. A program can also fold its maps itself, "
            "with mf_mmap of libmapfold, or map larger pieces.",
            inspection->program == PROGRAM_STATIC    ? "it is linked statically"
            : inspection->program == PROGRAM_MACHINE ? "it is no 64-bit program of this machine"
                                                     : "it uses another libc than glibc");
        return;
    }
    format_count(inspection->causes[cause].maps, maps);
    format_count(inspection->split_ranges, ranges);
    static const char *const reasons[CAUSES] = {
        [CAUSE_FILE] = "they are small groups of many different files, or pieces that overlap too "
                       "deeply; a program that maps fewer whole files, or reads small ones, needs "
                       "fewer",
        [CAUSE_DELETED] = "they are of many different deleted files, which the program still keeps "
                          "mapped; it has to unmap them, which also frees their blocks",
        [CAUSE_SHARED] = "they are memory without a file, or devices, which are not folded; the "
                         "program could share fewer, larger pieces",
        [CAUSE_ANONYMOUS] =
            "they are anonymous memory that lies apart or differs in protection; an "
            "allocator that reserves larger ranges needs fewer",
        [CAUSE_STACK] =
            "each stack and each guard is a map: fewer threads or coroutines need fewer, "
            "and on Linux 6.13 or later guards by madvise(MADV_GUARD_INSTALL) need none",
        [CAUSE_CODE] =
            "programs and libraries are never folded; fewer libraries, or one region for "
            "generated code, need fewer",
        [CAUSE_HEAP] = "they are the heap, of which parts were protected or given advice; "
                       "MALLOC_ARENA_MAX limits the arenas of glibc",
        [CAUSE_KERNEL] = "they are the kernel's own",
    };
    if (cause == CAUSE_SPLIT)
        advise(inspection, ACT_PROGRAM,
               "%s: %s maps are parts of %s, cut up by mprotect, "
               "madvise or mlock on parts of it. The program has to protect larger parts; on Linux "
               "6.13 or later it can make guard pages by madvise(MADV_GUARD_INSTALL), which cuts "
               "nothing.",
               lead, maps, inspection->split_ranges == 1 ? "one range" : ranges);
    else
        advise(inspection, ACT_PROGRAM, "%s%s: of %s maps (%s) %s.", lead,
               inspection->folded ? "" : " enough", maps, cause_names[cause], reasons[cause]);
}

void inspection_advise(struct inspection *inspection)
{
    const uint64_t used = inspection->count, after = inspection->fold.after;
    const uint64_t limit = inspection->limit, tenth = limit / 10 > 0 ? limit / 10 : 1;
    if (used <= limit / 2) {
        char saved[32];
        struct advice *advice = advise(inspection, ACT_NOTHING,
                                       "Nothing needs to be done: more than half of the limit is "
                                       "free.");
        if (used > after + used / 4 && used > after + 100)
            snprintf(advice->text, sizeof(advice->text),
                     "Nothing needs to be done: more than half of the limit is free. `mapfold run' "
                     "would still take away %s maps, and with them the cost of mapping them.",
                     format_count(used - after, saved));
        return;
    }
    const bool folds = used >= after + tenth;
    if (folds)
        advise_fold(inspection);
    const uint64_t left = folds ? after : used;
    if (left > limit / 2 && limit < HIGH_LIMIT)
        advise_raise(inspection, left);
    if (left > limit / 2 && limit >= HIGH_LIMIT)
        advise(inspection, ACT_PROGRAM,
               "A higher limit would not help for long: it is %.0f times the default already, and "
               "so many maps make forks, exits and page faults slow.",
               (double)limit / 65530);
    if (!folds)
        advise_program(inspection);
}
