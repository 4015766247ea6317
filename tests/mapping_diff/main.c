/* SPDX-License-Identifier: MIT */
/* mapping_diff: the command line, the episodes, and the report of what differed. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "diff.h"

static struct options options = {
    .calls = 100000, .seed = 1, .episode = 20000, .threads = 1, .shrink = true};
static volatile sig_atomic_t stopped;
static struct tape totals;
static uint64_t episode_seed, first_seed;

static void on_stop(int number)
{
    (void)number;
    stopped = 1;
}

static const char usage[] =
    "Usage: mapping_diff [OPTION]...\n"
    "Runs random programs plain and over the mapping layer, and compares what they see.\n"
    "  --calls N      calls of the layer in all (100000)\n"
    "  --seed S       (1)\n"
    "  --first S      the first episode's seed, as a difference reports it\n"
    "  --episode N    calls between two fresh starts (20000)\n"
    "  --threads N    each thread with pieces and some files of its own (1)\n"
    "  --copying      let the layer copy; the oracle copies the same pieces\n"
    "  --strict       the layer's strict mode: accesses to unmapped pieces are compared, too\n"
    "  --long         until stopped by a signal or a difference\n"
    "  --plain        plain calls on both sides: the tester tests itself\n"
    "  --mutant N     a layer broken on purpose; 0 lists them\n"
    "  --mutants      each of them: passes if all are found within --calls\n"
    "  --without KIND no ops of this kind, to look past a known difference (repeatable);\n"
    "                 holes: unmapped pages outside the arena are not looked at;\n"
    "                 huge: no lengths of 2^47\n"
    "  --promote N, --depth N   options of the layer (drawn from the seed)\n"
    "  --replay FILE  run a program that was saved\n"
    "  --save FILE    where a failing program goes (mapping_diff.failed)\n"
    "  --no-shrink    report the failing program as it is\n"
    "  --directory D  where the test files are made (/dev/shm or $TMPDIR)\n";

static int usage_error(const char *what, const char *why)
{
    fprintf(stderr, "mapping_diff: %s: %s\n%s", what, why, usage);
    return 2;
}

static void mutants_list(void)
{
    for (int i = 1; i <= mutant_count(); i++)
        printf("%2d  %s\n", i, mutant_name(i));
    exit(0);
}

static int options_read(int argc, char **argv)
{
    static const struct option names[] = {
        {"calls", 1, NULL, 'c'},   {"seed", 1, NULL, 's'},      {"episode", 1, NULL, 'e'},
        {"threads", 1, NULL, 't'}, {"copying", 0, NULL, 'y'},   {"strict", 0, NULL, 'S'},
        {"long", 0, NULL, 'l'},    {"plain", 0, NULL, 'p'},     {"mutant", 1, NULL, 'm'},
        {"promote", 1, NULL, 'P'}, {"depth", 1, NULL, 'D'},     {"replay", 1, NULL, 'r'},
        {"save", 1, NULL, 'o'},    {"no-shrink", 0, NULL, 'n'}, {"directory", 1, NULL, 'd'},
        {"first", 1, NULL, 'f'},   {"mutants", 0, NULL, 'M'},   {"help", 0, NULL, 'h'},
        {"without", 1, NULL, 'w'}, {NULL, 0, NULL, 0}};
    options.save = "mapping_diff.failed";
    const char *directory = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
    for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
        const uint64_t number = optarg ? strtoull(optarg, NULL, 0) : 0;
        switch (c) {
        case 'c':
            options.calls = number;
            break;
        case 's':
            options.seed = number;
            break;
        case 'e':
            options.episode = (uint32_t)number;
            break;
        case 't':
            options.threads = (uint32_t)number;
            break;
        case 'y':
            options.copying = true;
            break;
        case 'S':
            options.strict = true;
            break;
        case 'l':
            options.forever = true;
            break;
        case 'p':
            options.plain = true;
            break;
        case 'm':
            options.mutant = (int)number;
            break;
        case 'M':
            options.mutants = true;
            break;
        case 'P':
            options.promote = (uint32_t)number;
            break;
        case 'D':
            options.depth = (uint32_t)number;
            break;
        case 'r':
            options.replay = optarg;
            break;
        case 'o':
            options.save = optarg;
            break;
        case 'n':
            options.shrink = false;
            break;
        case 'd':
            directory = optarg;
            break;
        case 'w':
            options.without |= !strcmp(optarg, "holes") ? WITHOUT_HOLES : 0;
            options.without |= !strcmp(optarg, "huge") ? WITHOUT_HUGE : 0;
            for (int kind = 1; kind < OP_KINDS; kind++)
                options.without |= (uint32_t)!strcmp(optarg, kind_names[kind]) << kind;
            break;
        case 'f':
            first_seed = number;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            return usage_error("options", "not understood");
        }
        if (c == 'm' && number == 0)
            mutants_list();
    }
    if (options.threads < 1 || options.threads > WORLDS || options.episode < 1 ||
        options.episode > 1000000 || options.mutant > mutant_count() || optind != argc)
        return usage_error("options", "a number is out of range, or an argument too many");
    const char *fraction = getenv("MAPFOLD_TEST_SHRINK"); /* for builds that are slow */
    if (fraction && atoi(fraction) > 0)
        options.calls /= (uint64_t)atoi(fraction);
    snprintf(options.directory, sizeof options.directory, "%s/mapping_diff.XXXXXX",
             directory ? directory : "/tmp");
    return 0;
}

static void totals_add(void)
{
    for (uint32_t i = 0; i < options.threads; i++) {
        const struct tape *plain = side_tape(true, (int)i), *fold = side_tape(false, (int)i);
        for (int kind = 0; kind < OP_KINDS; kind++) {
            for (int error = 0; error < ERRORS + 2; error++)
                totals.counts[kind][error] += plain->counts[kind][error];
        }
        totals.calls += plain->calls;
        totals.position += plain->position;
        totals.carved += fold->carved;
        totals.copied += fold->copied;
        totals.passed += fold->passed;
    }
}

static void totals_print(void)
{
    printf("%-9s %9s  %s\n", "call", "succeeded", "failed");
    for (int kind = 1; kind < OP_KINDS; kind++) {
        const uint32_t *counts = totals.counts[kind];
        int column = printf("%-9s %9u ", kind_names[kind], counts[0]);
        for (int error = 1; error < ERRORS + 2; error++) {
            if (counts[error] == 0)
                continue;
            char text[40];
            const char *name = error == ERRORS       ? "fault"
                               : error == ERRORS + 1 ? "skipped"
                                                     : strerrorname_np(error);
            snprintf(text, sizeof text, " %s %u", name, counts[error]);
            if (column + strlen(text) > 98)
                column = printf("\n%20s", "") - 1;
            column += printf("%s", text);
        }
        putchar('\n');
    }
    printf("pieces: %" PRIu64 " carved, %" PRIu64 " copied, %" PRIu64 " passed\n", totals.carved,
           totals.copied, totals.passed);
}

static bool program_fails(const struct op *ops, uint32_t count)
{
    struct verdict verdict;
    sides_load(ops, count);
    sides_run(&options, episode_seed, UINT32_MAX, false, &verdict);
    return verdict.world >= 0;
}

static void record_print(const char *side, const struct tape *tape, const struct verdict *verdict)
{
    printf("  %s ", side);
    if (verdict->record >= tape->records) {
        printf("stopped before\n");
        return;
    }
    const struct record *r = &tape->log[verdict->record];
    struct op op = {.at.region = AT_NULL, .to.region = AT_NULL};
    if (r->op < tape->ended)
        op = tape->ops[r->op];
    else
        op.kind = (uint8_t)final_kind(r->op - tape->ended);
    op_print(stdout, &op, r);
    if (r->op >= tape->ended)
        printf("         (at the end%s)\n", r->op - tape->ended > 2 ? ", all unmapped" : "");
    if (op.kind == OP_CHECK || op.kind == OP_PROBE)
        printf("         (with a page's number, that is region %d page %d)\n", r->ret >> 16,
               r->ret & 0xffff);
}

static void records_print(const struct verdict *verdict)
{
    printf("op %u: %s\n", verdict->op + 1, verdict->why);
    record_print("plain: ", side_tape(true, verdict->world), verdict);
    record_print("folded:", side_tape(false, verdict->world), verdict);
}

/* The program with the plain side's results, and the first difference in detail. */
static void program_report(const struct op *ops, uint32_t count)
{
    struct verdict verdict;
    sides_load(ops, count);
    sides_run(&options, episode_seed, UINT32_MAX, true, &verdict);
    if (verdict.world < 0) {
        printf("the program does not fail again\n");
        return;
    }
    const struct tape *plain = side_tape(true, 0);
    for (uint32_t i = 0, r = 0; i < count; i++) {
        while (r < plain->records && plain->log[r].op < i)
            r++;
        while (r + 1 < plain->records && plain->log[r + 1].op == i)
            r++;
        printf("%3u  ", i + 1);
        op_print(stdout, &ops[i],
                 r < plain->records && plain->log[r].op == i ? &plain->log[r] : NULL);
    }
    records_print(&verdict);
}

static void program_save(const struct op *ops, uint32_t count)
{
    FILE *out = fopen(options.save, "w");
    if (!out) {
        fprintf(stderr, "mapping_diff: cannot save the program in %s: %s\n", options.save,
                strerror(errno));
        return;
    }
    fprintf(out, "# mapping_diff --replay THIS");
    subject_describe(&options, episode_seed, out);
    fputc('\n', out);
    program_write(out, ops, count);
    fclose(out);
    printf("run it again: mapping_diff --replay %s", options.save);
    subject_describe(&options, episode_seed, stdout);
    putchar('\n');
}

static void difference_report(const struct verdict *verdict)
{
    static struct op ops[1 << 18];
    const struct tape *tape = side_tape(true, verdict->world);
    const struct tape *other = side_tape(false, verdict->world);
    if (other->position > tape->position)
        tape = other;
    uint32_t count = verdict->op + 1 < tape->position ? verdict->op + 1 : tape->position;
    if (count > tape->ended)
        count = tape->ended;
    printf("DIFFERENCE in the episode of seed %" PRIu64 ", thread %d\n", episode_seed,
           verdict->world);
    records_print(verdict);
    if (count > sizeof ops / sizeof ops[0])
        return;
    memcpy(ops, tape->ops, count * sizeof *ops);
    options.threads = 1;
    if (!program_fails(ops, count)) {
        printf("the program does not fail again when it is replayed alone\n");
    } else {
        if (options.shrink)
            count = program_shrink(ops, count, program_fails);
        program_report(ops, count);
    }
    program_save(ops, count);
}

static int replay(void)
{
    static struct op ops[1 << 18];
    const int count = program_read(options.replay, ops, options.episode);
    if (count < 0)
        return 1;
    episode_seed = options.seed;
    if (!program_fails(ops, (uint32_t)count)) {
        printf("no difference in %d ops\n", count);
        return 0;
    }
    const uint32_t shrunk =
        options.shrink ? program_shrink(ops, (uint32_t)count, program_fails) : (uint32_t)count;
    program_report(ops, shrunk);
    return 1;
}

static uint32_t episodes_run(struct verdict *verdict)
{
    uint64_t seeds = options.seed * 0x100000001b3;
    uint32_t count = 0;
    verdict->world = -1;
    while (verdict->world < 0 && !stopped && (options.forever || totals.calls < options.calls)) {
        episode_seed = count == 0 && first_seed ? first_seed : random_next(&seeds);
        sides_run(&options, episode_seed, options.episode / options.threads, false, verdict);
        totals_add();
        count++;
    }
    return count;
}

/* Calls of the layer until the difference shows. */
static uint32_t calls_until(const struct verdict *verdict)
{
    const struct tape *tape = side_tape(true, verdict->world);
    uint32_t calls = totals.calls - tape->calls;
    for (uint32_t i = 0; i <= verdict->op && i < tape->position && i < tape->ended; i++)
        calls += op_is_call(tape->ops[i].kind);
    return calls;
}

/* Is each fault found that was made on purpose? */
static int mutants(void)
{
    int missed = 0;
    options.episode = options.episode < 4000 ? options.episode : 4000;
    for (options.mutant = 1; options.mutant <= mutant_count() && !stopped; options.mutant++) {
        struct verdict verdict;
        memset(&totals, 0, sizeof totals);
        episodes_run(&verdict);
        missed += verdict.world < 0;
        printf("%2d  %-8s after %6u calls: %s\n", options.mutant,
               verdict.world < 0 ? "MISSED" : "found",
               verdict.world < 0 ? totals.calls : calls_until(&verdict),
               mutant_name(options.mutant));
    }
    printf("%d mutants, %d missed\n", mutant_count(), missed);
    return missed != 0;
}

static int episodes(void)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    struct verdict verdict;
    const uint32_t count = episodes_run(&verdict);
    clock_gettime(CLOCK_MONOTONIC, &now);
    totals_print();
    printf("%u calls of the layer, %u ops in %u episodes, seed %" PRIu64 ", %.1f s: %s\n",
           totals.calls, totals.position, count, options.seed,
           (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9,
           verdict.world < 0 ? "no difference" : "DIFFERENT");
    if (verdict.world >= 0)
        difference_report(&verdict);
    return verdict.world >= 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const int wrong = options_read(argc, argv);
    if (wrong)
        return wrong;
    if (!mkdtemp(options.directory)) {
        fprintf(stderr, "mapping_diff: cannot make a directory %s: %s\n", options.directory,
                strerror(errno));
        return 1;
    }
    signal(SIGINT, on_stop);
    signal(SIGTERM, on_stop);
    const int failed = sides_prepare(&options) != 0 ? 1
                       : options.replay             ? replay()
                       : options.mutants            ? mutants()
                                                    : episodes();
    char path[300];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", options.directory, i ? "plain" : "fold");
        rmdir(path);
    }
    rmdir(options.directory);
    return failed;
}
