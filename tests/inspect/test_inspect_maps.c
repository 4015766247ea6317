/* SPDX-License-Identifier: MIT */
/* From saved maps to causes, the fold and the advice. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "../unit.h"
#include "cli/text.h"
#include "inspect_fixture.h"

/* Text that grows line by line. */
struct script {
    char *text;
    size_t length;
    FILE *out;
};

static void script_begin(struct script *script)
{
    script->out = open_memstream(&script->text, &script->length);
    if (!script->out)
        abort();
}

__attribute__((format(printf, 2, 3))) static void add(struct script *script, const char *format,
                                                      ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(script->out, format, arguments);
    va_end(arguments);
    fputc('\n', script->out);
}

static void script_run(struct script *script, struct inspection *inspection)
{
    fclose(script->out);
    assert_int_equal(inspect_text(inspection, script->text, script->length), 0);
    free(script->text);
}

static void inspect(struct inspection *inspection, const char *text)
{
    assert_int_equal(inspect_text(inspection, text, strlen(text)), 0);
}

/* The name of the only file, as it would be shown. */
static void assert_file(const struct inspection *inspection, const char *name, bool deleted)
{
    assert_int_equal(inspection->file_count, 1);
    char *shown = printable_file(inspection, 0);
    assert_string_equal(shown, name);
    assert_int_equal(inspection->files[0].deleted, deleted);
    free(shown);
}

static const struct advice *find(const struct inspection *inspection, enum action action)
{
    for (size_t i = 0; i < inspection->advice_count; i++) {
        if (inspection->advice[i].action == action)
            return &inspection->advice[i];
    }
    return NULL;
}

static void the_vsyscall_line_is_no_map(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "1000-2000 rw-p 0 00:00 0\n"
                         "7ffd1000-7ffd2000 r-xp 0 00:00 0   [vdso]\n"
                         "ffffffffff600000-ffffffffff601000 --xp 0 00:00 0  [vsyscall]\n");
    assert_int_equal(inspection.count, 2);
    assert_int_equal(inspection.gates, 1);
    assert_int_equal(inspection.causes[CAUSE_KERNEL].maps, 1);
    inspection_destroy(&inspection);
    inspection = (struct inspection){0};
    inspect(&inspection, "10000-11000 rw-p 0 00:00 0\n" /* 32-bit arm */
                         "ffff0000-ffff1000 r-xp 0 00:00 0  [vectors]\n");
    assert_int_equal(inspection.count, 1);
    inspection_destroy(&inspection);
}

static void each_kind_of_map_has_its_cause(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "400000-401000 r--p 0 08:01 1 /bin/x\n"
                         "401000-402000 r-xp 1000 08:01 1 /bin/x\n"
                         "500000-600000 rw-p 0 00:00 0 [heap]\n"
                         "700000-701000 r--p 0 08:01 2 /data/a b.sst\n"
                         "702000-703000 rw-s 0 08:01 3 /data/gone.log (deleted)\n"
                         "704000-705000 rw-s 0 00:01 4 /memfd:ring (deleted)\n"
                         "706000-707000 rw-s 0 00:05 5 /dev/zero (deleted)\n"
                         "708000-709000 rw-s 0 00:06 6 /dev/dri/card0\n"
                         "70a000-70b000 rw-s 0 00:0f 7 anon_inode:[io_uring]\n"
                         "70c000-70d000 rw-p 0 00:00 0\n"
                         "70e000-70f000 rw-p 0 00:00 0 [anon:name of it]\n"
                         "710000-711000 rwxp 0 00:00 0\n"
                         "712000-713000 rw-p 0 00:00 0 [anon: glibc: malloc arena]\n"
                         "800000-801000 ---p 0 00:00 0\n"
                         "801000-901000 rw-p 0 00:00 0\n"
                         "a00000-a01000 rw-p 0 00:00 0 [stack:123]\n"
                         "7ff000000000-7ff000021000 rw-p 0 00:00 0 [stack]\n"
                         "7ff100000000-7ff100001000 r--p 0 00:00 0 [vvar_vclock]\n");
    static const uint64_t expected[CAUSES] = {
        [CAUSE_FILE] = 1,  [CAUSE_DELETED] = 1, [CAUSE_SHARED] = 4, [CAUSE_ANONYMOUS] = 2,
        [CAUSE_STACK] = 4, [CAUSE_CODE] = 3,    [CAUSE_HEAP] = 2,   [CAUSE_KERNEL] = 1};
    for (int i = 0; i < CAUSES; i++)
        assert_int_equal(inspection.causes[i].maps, expected[i]);
    inspection_destroy(&inspection);
}

static void a_file_named_like_the_kernels_own_is_a_file(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection,
            "1000-2000 r--p 0 08:01 1 /d/[heap]\n3000-4000 r--p 0 08:01 1 /d/[heap]\n");
    assert_int_equal(inspection.causes[CAUSE_FILE].maps, 2);
    assert_file(&inspection, "/d/[heap]", false);
    inspection_destroy(&inspection);
}

static void a_malloc_arena_and_its_rest_are_heap(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "7f5c00000000-7f5c00021000 rw-p 0 00:00 0 \n"
                         "7f5c00021000-7f5c04000000 ---p 0 00:00 0 \n");
    assert_int_equal(inspection.causes[CAUSE_HEAP].maps, 2);
    inspection_destroy(&inspection);
}

static void a_range_cut_up_by_mprotect_is_one_range_and_folding_does_not_help(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    struct script script;
    script_begin(&script);
    for (int i = 0; i < 65530; i++)
        add(&script, "%lx-%lx %s 00000000 00:00 0 ", 0x7f0000000000 + i * 0x1000L,
            0x7f0000001000 + i * 0x1000L, i % 2 ? "rw-p" : "---p");
    script_run(&script, &inspection);
    assert_int_equal(inspection.causes[CAUSE_SPLIT].maps, 65530);
    assert_int_equal(inspection.split_ranges, 1);
    assert_int_equal(inspection.split_alike, 0);
    assert_int_equal(inspection.fold.after, 65530);
    const struct advice *last = &inspection.advice[inspection.advice_count - 1];
    assert_int_equal(last->action, ACT_PROGRAM);
    assert_non_null(strstr(last->text, "Folding files would not help"));
    for (size_t i = 0; i < inspection.advice_count; i++)
        assert_true(inspection.advice[i].action != ACT_FOLD);
    inspection_destroy(&inspection);
}

static void many_stacks_with_guards_are_no_splits(void **state)
{
    (void)state;
    struct inspection inspection = {.limit = 1000};
    struct script script;
    script_begin(&script);
    for (int i = 0; i < 400; i++) {
        const long at = 0x7f0000000000 + i * 0x801000L;
        add(&script, "%lx-%lx ---p 00000000 00:00 0", at, at + 0x1000);
        add(&script, "%lx-%lx rw-p 00000000 00:00 0", at + 0x1000, at + 0x801000);
    }
    script_run(&script, &inspection);
    assert_int_equal(inspection.causes[CAUSE_STACK].maps, 800);
    assert_non_null(strstr(inspection.advice[inspection.advice_count - 1].text, "guard"));
    inspection_destroy(&inspection);
}

/* count pieces of one file, each a page, `apart` bytes of the file apart. */
static void add_pieces(struct script *script, int count, long apart, const char *protection)
{
    for (int i = 0; i < count; i++)
        add(script, "%lx-%lx %s %08lx 103:03 42      /d/one", 0x7f0000000000 + i * 0x2000L,
            0x7f0000001000 + i * 0x2000L, protection, i * apart);
}

static struct fold fold_of(int count, long apart, const char *protection)
{
    struct inspection inspection = {0};
    struct script script;
    script_begin(&script);
    add_pieces(&script, count, apart, protection);
    script_run(&script, &inspection);
    const struct fold fold = inspection.fold;
    inspection_destroy(&inspection);
    return fold;
}

static void pieces_side_by_side_fold_to_one_extent_beside_the_first_fourteen(void **state)
{
    (void)state;
    const struct fold fold = fold_of(60000, 0x2000, "r--s");
    assert_int_equal(fold.classes, 1);
    assert_int_equal(fold.extents, 1);
    assert_int_equal(fold.early, 14);
    assert_int_equal(fold.after, 14 + 1 + 8);
}

static void fewer_than_fifteen_pieces_stay(void **state)
{
    (void)state;
    assert_int_equal(fold_of(7, 0x2000, "r--s").after, 7);
    assert_int_equal(fold_of(14, 0x2000, "r--s").after, 14);
    assert_int_equal(fold_of(15, 0x2000, "r--s").after, 14 + 1 + 8);
    assert_int_equal(fold_of(30, 0x2000, "r--s").after, 14 + 1 + 8);
}

static void executable_pieces_are_never_folded(void **state)
{
    (void)state;
    const struct fold fold = fold_of(1000, 0x2000, "r-xp");
    assert_int_equal(fold.pieces, 0);
    assert_int_equal(fold.after, 1000);
}

static void pieces_of_one_page_are_copied_if_private_and_stay_if_shared(void **state)
{
    (void)state;
    const struct fold private = fold_of(30007, 0, "rw-p");
    assert_int_equal(private.extents, 4 + 1); /* and the one that keeps the file */
    assert_int_equal(private.copied, 30007 - 14 - 4);
    assert_int_equal(private.after, 14 + 4 + 1 + 1 + 8);
    const struct fold shared = fold_of(30007, 0, "rw-s");
    assert_int_equal(shared.too_deep, 30007 - 14 - 4);
    assert_int_equal(shared.after, 30007 + 8);
}

static void copies_end_at_their_bound(void **state)
{
    (void)state;
    enum { COPIES = 1000 };
    struct inspection inspection = {.copy_limit = COPIES * 4096 + 4095};
    struct script script;
    script_begin(&script);
    add_pieces(&script, 30007, 0, "rw-p");
    script_run(&script, &inspection);
    const struct fold *fold = &inspection.fold;
    assert_int_equal(fold->copied, COPIES);
    assert_int_equal(fold->copied_bytes, COPIES * 4096);
    assert_int_equal(fold->refused, 30007 - 14 - 4 - COPIES);
    assert_int_equal(fold->after, 14 + 4 + 1 + 1 + 8 + fold->refused);
    inspection_destroy(&inspection);
}

static void a_program_that_is_static_or_folded_already_gets_no_estimate(void **state)
{
    (void)state;
    static const struct {
        const char *code[3];
        enum program_kind program;
        bool folded;
    } cases[] = {
        {{"/bin/x", "/lib/ld-linux-x86-64.so.2"}, PROGRAM_FOLDS, false},
        {{"/bin/x"}, PROGRAM_STATIC, false},
        {{"/bin/x", "/usr/lib/ld-2.31.so", "/usr/lib/mapfold/libmapfold-run.so (deleted)"},
         PROGRAM_FOLDS,
         true},
        {{NULL}, PROGRAM_FOLDS, false}, /* a part of the maps tells nothing */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct inspection inspection = {0};
        struct script script;
        script_begin(&script);
        for (int j = 0; j < 3 && cases[i].code[j]; j++)
            add(&script, "%x000-%x000 r-xp 00000000 08:01 %d %s", 1 + j, 2 + j, 1 + j,
                cases[i].code[j]);
        add_pieces(&script, 40000, 0x2000, "r--s");
        script_run(&script, &inspection);
        assert_int_equal(inspection.program, cases[i].program);
        assert_int_equal(inspection.folded, cases[i].folded);
        const bool folds = cases[i].program == PROGRAM_FOLDS && !cases[i].folded;
        assert_int_equal(inspection.fold.after < 100, folds);
        assert_int_equal(find(&inspection, ACT_FOLD) != NULL, folds);
        assert_int_equal(find(&inspection, ACT_RAISE) != NULL, !folds);
        if (!folds)
            assert_int_equal(inspection.fold.after, inspection.count);
        inspection_destroy(&inspection);
    }
}

static void overlap_to_a_depth_of_four_needs_no_more_than_four_extents(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    struct script script;
    script_begin(&script);
    for (int i = 0; i < 54; i++) /* 40 below the first fourteen, four of each page */
        add(&script, "%x-%x r--s %08x 08:01 42 /d/one", 0x10000 + i * 0x2000, 0x11000 + i * 0x2000,
            i < 40 ? i / 4 * 0x1000 : 0);
    script_run(&script, &inspection);
    assert_int_equal(inspection.fold.extents, 4);
    assert_int_equal(inspection.fold.too_deep, 0);
    inspection_destroy(&inspection);
}

/* As many pieces, each with seven others on its pages: extents that hold many may be more. */
static void deeper_overlap_takes_as_many_extents_as_are_worth_it(void **state)
{
    (void)state;
    for (int each = 4; each <= 400; each *= 100) {
        struct inspection inspection = {.limit = 100000};
        struct script script;
        script_begin(&script);
        for (int i = 0; i < 8 * each; i++)
            add(&script, "%x-%x r--s %08x 08:01 42 /d/one", 0x10000 + i * 0x2000,
                0x11000 + i * 0x2000, i % each * 0x1000);
        script_run(&script, &inspection);
        assert_int_equal(inspection.fold.extents, each == 4 ? 4 : 8);
        inspection_destroy(&inspection);
    }
}

static void sharing_and_protection_part_the_classes_of_a_file(void **state)
{
    (void)state;
    static const char *const protections[] = {"r--p", "rw-p", "r--s", "rw-s"};
    struct inspection inspection = {0};
    struct script script;
    script_begin(&script);
    for (int i = 0; i < 400; i++)
        add(&script, "%x-%x %s %08x 08:01 42 /d/one", 0x10000 + i * 0x2000, 0x11000 + i * 0x2000,
            protections[i % 4], i * 0x1000);
    script_run(&script, &inspection);
    assert_int_equal(inspection.fold.classes, 4);
    assert_int_equal(inspection.fold.extents, 4);
    assert_int_equal(inspection.fold.after, 4 * (7 + 1) + 7 + 8);
    inspection_destroy(&inspection);
}

static void small_private_files_are_copied_beyond_half_the_limit(void **state)
{
    (void)state;
    static const struct {
        const char *protection;
        uint64_t copy_limit, spared, after;
    } cases[] = {
        {"r--p", 1 << 30, 400, 501 + 8},
        {"r--p", 100 * 4096 + 4095, 100, 801 + 8},
        {"r--p", 4095, 0, 900},
        {"r--s", 1 << 30, 0, 900},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct inspection inspection = {.limit = 1000, .copy_limit = cases[i].copy_limit};
        struct script script;
        script_begin(&script);
        for (int j = 0; j < 900; j++)
            add(&script, "%x-%x %s 00000000 08:01 %d /d/f%d", 0x10000 + j * 0x2000,
                0x11000 + j * 0x2000, cases[i].protection, 100 + j, j);
        script_run(&script, &inspection);
        assert_int_equal(inspection.fold.spared, cases[i].spared);
        assert_int_equal(inspection.fold.after, cases[i].after);
        assert_int_equal(inspection.fold.copied_bytes, cases[i].spared * 4096);
        inspection_destroy(&inspection);
    }
}

static void deleted_files_of_a_saved_copy_are_counted_and_told_to_be_uncertain(void **state)
{
    (void)state;
    struct inspection inspection = {.limit = 100};
    struct script script;
    script_begin(&script);
    for (int i = 0; i < 90; i++)
        add(&script, "%x-%x rw-s 00000000 08:01 %d /d/seg%d.tmp (deleted)", 0x10000 + i * 0x3000,
            0x12000 + i * 0x3000, 100 + i, i);
    script_run(&script, &inspection);
    assert_int_equal(inspection.causes[CAUSE_DELETED].maps, 90);
    assert_int_equal(inspection.ambiguous, 90);
    uint32_t top[TOP_FILES];
    assert_int_equal(top_names(&inspection, true, top, TOP_FILES), 1);
    char *suffix = printable_name(&inspection, top[0]);
    assert_string_equal(suffix, ".tmp");
    free(suffix);
    assert_int_equal(top_names(&inspection, false, top, TOP_FILES), 1);
    char *directory = printable_name(&inspection, top[0]);
    assert_string_equal(directory, "/d/");
    free(directory);
    inspection_destroy(&inspection);
}

static void names_with_any_bytes_can_be_shown(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shown;
    } cases[] = {{"/a\\b", "/a\\134b"},
                 {"/\x1b[31m", "/\\033[31m"},
                 {"/\xff\xfe", "/\\377\\376"},
                 {"/caf\xc3\xa9", "/caf\xc3\xa9"},
                 {"/\xc2\x9b", "/\\302\\233"},
                 {"/\xe2\x80\xae", "/\\342\\200\\256"},
                 {"/\xed\xa0\x80", "/\\355\\240\\200"},
                 {"/\xc3", "/\\303"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *shown = printable(cases[i].name, strlen(cases[i].name));
        assert_string_equal(shown, cases[i].shown);
        free(shown);
    }
}

static void lines_that_overlap_are_cut_to_what_is_new(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "1000-4000 r--p 00000000 08:01 1 /a\n"
                         "2000-3000 r--p 00001000 08:01 1 /a\n"
                         "2000-6000 r--p 00001000 08:01 1 /a\n"
                         "8000-9000 r--p 00000000 08:01 1 /a\n");
    assert_int_equal(inspection.count, 3);
    assert_int_equal(inspection.torn, 2);
    assert_true(inspection.maps[1].start == 0x4000 && inspection.maps[1].offset == 0x3000);
    assert_true(inspection.mapped_bytes == 0x6000);
    inspection_destroy(&inspection);
}

static void smaps_are_read_like_maps_and_give_resident_memory(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "1000-4000 r--p 00000000 08:01 1 /a\nSize: 12 kB\nRss:   8 kB\n"
                         "VmFlags: rd mr mw me\n"
                         "5000-6000 rw-p 00000000 00:00 0 \nSize: 4 kB\nRss:   4 kB\n");
    assert_true(inspection.has_rss);
    assert_int_equal(inspection.bad_lines, 0);
    assert_int_equal(inspection.causes[CAUSE_FILE].rss, 8);
    assert_int_equal(inspection.causes[CAUSE_ANONYMOUS].rss, 4);
    inspection_destroy(&inspection);
}

static void lines_that_are_no_maps_are_counted_and_skipped(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "Dynamic libraries:\n1000-2000 r--p 0 08:01 1 /a\n\ngarbage \001\002\n"
                         "3000-4000 r--- 0 08:01 1 /a\n5000-6000 r--p 0 08:01 1 /a\n7000-8");
    assert_int_equal(inspection.count, 2);
    assert_int_equal(inspection.bad_lines, 4);
    assert_int_equal(inspection.first_bad_line, 1);
    inspection_destroy(&inspection);
}

static void text_that_looks_like_smaps_is_no_part_of_maps(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "1000-2000 r--p 0 08:01 1 /a\nRegards: Bob\nRss: much\n"
                         "3000-4000 r--p 0 08:01 1 /a\nPss: 1 kB\nP.S.: Call me\n");
    assert_false(inspection.has_rss);
    assert_int_equal(inspection.bad_lines, 4);
    assert_int_equal(inspection.first_bad_line, 2);
    inspection_destroy(&inspection);
    inspection = (struct inspection){0};
    inspect(&inspection, "1000-2000 r--p 0 08:01 1 /a\nSize: 4 kB\nRss: 4 kB\nVmFlags: rd\n"
                         "3000-4000 ---p 0 00:00 0 [rollup]\nRss: 8 kB\nPss: 2 kB\n");
    assert_true(inspection.has_rss);
    assert_int_equal(inspection.bad_lines, 0);
    inspection_destroy(&inspection);
}

static void the_largest_gaps_are_found(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "1000-2000 rw-p 0 00:00 0\n3000-4000 rw-p 0 00:00 0\n"
                         "8000-9000 rw-p 0 00:00 0\n9000-a000 r--p 0 00:00 0\n"
                         "c000-d000 rw-p 0 00:00 0\n20000-21000 rw-p 0 00:00 0\n");
    assert_int_equal(inspection.gap_count, 4);
    assert_true(inspection.gaps[0].start == 0xd000 && inspection.gaps[0].end == 0x20000);
    assert_true(inspection.gaps[1].start == 0x4000);
    assert_true(inspection.gaps[2].start == 0xa000);
    /* 0x13 of 0x1a pages are in the largest. */
    assert_true(inspection_fragmentation(&inspection) == 26.9);
    inspection_destroy(&inspection);
}

static void larger_pages_are_known_by_the_addresses(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    inspect(&inspection, "aaaac0000000-aaaac0010000 rw-p 0 00:00 0\n"
                         "ffff80000000-ffff80030000 rw-p 0 00:00 0\n");
    assert_int_equal(inspection.page, 65536);
    inspection_destroy(&inspection);
}

static void advice_is_to_fold_where_that_helps_and_names_the_command(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    struct script script;
    script_begin(&script);
    add_pieces(&script, 60000, 0x2000, "r--s");
    script_run(&script, &inspection);
    assert_non_null(find(&inspection, ACT_FOLD));
    assert_null(find(&inspection, ACT_RAISE));
    inspection_destroy(&inspection);
}

static void advice_is_to_raise_the_limit_where_folding_leaves_too_much(void **state)
{
    (void)state;
    struct inspection inspection = {0};
    struct script script;
    script_begin(&script);
    for (int i = 0; i < 65000; i++)
        add(&script, "%lx-%lx rw-p 00000000 00:00 0", 0x7f0000000000 + i * 0x2000L,
            0x7f0000001000 + i * 0x2000L);
    script_run(&script, &inspection);
    const struct advice *raise = find(&inspection, ACT_RAISE);
    assert_null(find(&inspection, ACT_FOLD));
    assert_non_null(raise);
    assert_string_equal(raise->command, "sysctl -w vm.max_map_count=262144");
    inspection_destroy(&inspection);
}

static void advice_is_nothing_below_half_of_the_limit(void **state)
{
    (void)state;
    struct inspection inspection = {.limit = 100};
    inspect(&inspection, "1000-2000 rw-p 0 00:00 0\n");
    assert_int_equal(inspection.advice_count, 1);
    assert_int_equal(inspection.advice[0].action, ACT_NOTHING);
    inspection_destroy(&inspection);
}

static void advice_is_that_neither_helps_at_a_limit_that_is_high_already(void **state)
{
    (void)state;
    struct inspection inspection = {.limit = 1 << 20, .count = 600000, .split_ranges = 1};
    inspection.causes[CAUSE_SPLIT].maps = inspection.fold.after = inspection.count;
    inspection_advise(&inspection);
    assert_int_equal(inspection.advice_count, 2);
    assert_int_equal(inspection.advice[0].action, ACT_PROGRAM);
    assert_int_equal(inspection.advice[1].action, ACT_PROGRAM);
}

static void names_are_bounded_whatever_their_length_and_number(void **state)
{
    (void)state;
    enum { NAMES = 20000, LENGTH = 4000 };
    struct names names = {0};
    char text[LENGTH];
    memset(text, 'x', sizeof(text));
    for (int i = 0; i < NAMES; i++) {
        snprintf(text, 12, "%d", i);
        text[11] = 'x';
        assert_int_equal(name_intern(&names, text, sizeof(text)), i);
        assert_int_equal(name_intern(&names, text, sizeof(text)), i);
    }
    assert_int_equal(names.count, NAMES);
    assert_true(names.text_used < 36u << 20); /* 80 MB were given */
    names_destroy(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vsyscall_line_is_no_map),
        cmocka_unit_test(each_kind_of_map_has_its_cause),
        cmocka_unit_test(a_file_named_like_the_kernels_own_is_a_file),
        cmocka_unit_test(a_malloc_arena_and_its_rest_are_heap),
        cmocka_unit_test(a_range_cut_up_by_mprotect_is_one_range_and_folding_does_not_help),
        cmocka_unit_test(many_stacks_with_guards_are_no_splits),
        cmocka_unit_test(pieces_side_by_side_fold_to_one_extent_beside_the_first_fourteen),
        cmocka_unit_test(fewer_than_fifteen_pieces_stay),
        cmocka_unit_test(executable_pieces_are_never_folded),
        cmocka_unit_test(pieces_of_one_page_are_copied_if_private_and_stay_if_shared),
        cmocka_unit_test(copies_end_at_their_bound),
        cmocka_unit_test(a_program_that_is_static_or_folded_already_gets_no_estimate),
        cmocka_unit_test(overlap_to_a_depth_of_four_needs_no_more_than_four_extents),
        cmocka_unit_test(deeper_overlap_takes_as_many_extents_as_are_worth_it),
        cmocka_unit_test(sharing_and_protection_part_the_classes_of_a_file),
        cmocka_unit_test(small_private_files_are_copied_beyond_half_the_limit),
        cmocka_unit_test(deleted_files_of_a_saved_copy_are_counted_and_told_to_be_uncertain),
        cmocka_unit_test(names_with_any_bytes_can_be_shown),
        cmocka_unit_test(lines_that_overlap_are_cut_to_what_is_new),
        cmocka_unit_test(smaps_are_read_like_maps_and_give_resident_memory),
        cmocka_unit_test(lines_that_are_no_maps_are_counted_and_skipped),
        cmocka_unit_test(text_that_looks_like_smaps_is_no_part_of_maps),
        cmocka_unit_test(the_largest_gaps_are_found),
        cmocka_unit_test(larger_pages_are_known_by_the_addresses),
        cmocka_unit_test(advice_is_to_fold_where_that_helps_and_names_the_command),
        cmocka_unit_test(advice_is_to_raise_the_limit_where_folding_leaves_too_much),
        cmocka_unit_test(advice_is_nothing_below_half_of_the_limit),
        cmocka_unit_test(advice_is_that_neither_helps_at_a_limit_that_is_high_already),
        cmocka_unit_test(names_are_bounded_whatever_their_length_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
