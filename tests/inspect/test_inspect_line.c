/* SPDX-License-Identifier: MIT */
/* Lines of maps and smaps, and the reader that cuts them out of text. */
#include <errno.h>
#include <stdio.h>

#include "../unit.h"
#include "inspect_fixture.h"

static int parse(const char *text, struct map_line *line)
{
    return map_line_parse(text, strlen(text), line);
}

static void assert_name(const struct map_line *line, const char *name)
{
    assert_int_equal(line->name_length, strlen(name));
    assert_memory_equal(line->name, name, strlen(name));
}

static void a_line_gives_all_its_fields(void **state)
{
    (void)state;
    struct map_line line;
    assert_int_equal(
        parse("7f5c00000000-7f5c00003000 r-xs 0001f000 103:1a3 8390000123    /a/b", &line), 0);
    assert_true(line.start == 0x7f5c00000000 && line.end == 0x7f5c00003000);
    assert_int_equal(line.protection, MAP_READ | MAP_EXEC);
    assert_true(line.shared);
    assert_true(line.offset == 0x1f000 && line.inode == 8390000123);
    assert_int_equal(line.major, 0x103);
    assert_int_equal(line.minor, 0x1a3);
    assert_name(&line, "/a/b");
}

static void devices_have_as_many_digits_as_they_need(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned major, minor;
    } cases[] = {
        {"1000-2000 r--p 0 103:03 5 /x", 0x103, 3},
        {"1000-2000 r--p 0 00:100 5 /x", 0, 0x100},
        {"1000-2000 r--p 0 0:5 5 /x", 0, 5},
        {"1000-2000 r--p 0 fff:fffff 5 /x", 0xfff, 0xfffff},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct map_line line;
        assert_int_equal(parse(cases[i].text, &line), 0);
        assert_int_equal(line.major, cases[i].major);
        assert_int_equal(line.minor, cases[i].minor);
    }
}

static void a_line_without_a_name_has_none_with_blanks_behind_it_or_not(void **state)
{
    (void)state;
    static const char *const texts[] = {"00400000-00401000 rw-p 00000000 00:00 0",
                                        "00400000-00401000 rw-p 00000000 00:00 0 ",
                                        "00400000-00401000 rw-p 00000000 00:00 0          "};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct map_line line;
        assert_int_equal(parse(texts[i], &line), 0);
        assert_true(line.start == 0x400000);
        assert_int_equal(line.name_length, 0);
    }
}

static void a_name_is_the_rest_of_the_line_with_all_its_blanks(void **state)
{
    (void)state;
    static const char *const names[] = {
        "/sp ace",    "/a/ lead",          "/trail ",          "/a  b",       "/dir/[heap]",
        "/tab\there", "/caf\xc3\xa9 \xff", "[anon:my  data ]", "/x (deleted)"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[200];
        struct map_line line;
        snprintf(text, sizeof(text), "1000-2000 r--p 00000000 08:01 77      %s", names[i]);
        assert_int_equal(parse(text, &line), 0);
        assert_name(&line, names[i]);
    }
}

static void the_highest_addresses_are_read(void **state)
{
    (void)state;
    struct map_line line;
    assert_int_equal(parse("ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]", &line),
                     0);
    assert_true(line.end == 0xffffffffff601000);
    assert_int_equal(line.protection, MAP_EXEC);
}

static void what_is_no_line_of_maps_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "-",
        "1000",
        "1000-",
        "1000-2000",
        "1000-2000 ",
        "1000-2000 r--",
        "1000-2000 r--- 0 08:01 7 /x", /* neither p nor s */
        "1000-2000 r--P 0 08:01 7 /x",
        "1000-2000 rwxrp 0 08:01 7 /x",
        "1000-2000 xwrp 0 08:01 7 /x",
        "1000-2000 r--p  08:01 7 /x",
        "1000-2000 r--p 0 08 7 /x",
        "1000-2000 r--p 0 :01 7 /x",
        "1000-2000 r--p 0 08:01 /x",
        "1000-2000 r--p 0 08:01 7/x",
        "1000-2000 r--p 0 08:01 -7 /x",
        "1000-2000 r--p 0 1ffffffff:01 7 /x",
        "2000-1000 r--p 0 08:01 7 /x",
        "1000-1000 r--p 0 08:01 7 /x",
        "10000000000000000-10000000000001000 r--p 0 08:01 7 /x",
        "1000-2000 r--p 0 08:01 18446744073709551616 /x",
        "g000-2000 r--p 0 08:01 7 /x",
        "0x1000-0x2000 r--p 0 08:01 7 /x",
        "Size:                  4 kB",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct map_line line;
        assert_int_equal(parse(texts[i], &line), -EINVAL);
    }
}

static void a_line_cut_anywhere_is_a_map_with_a_shorter_name_or_refused(void **state)
{
    (void)state;
    static const char text[] = "1000-2000 r--p 00000000 08:01 77                        /a b";
    for (size_t length = 0; length < sizeof(text); length++) {
        struct map_line line;
        char *copy = malloc(length + 1); /* so that a sanitizer sees a byte too many */
        memcpy(copy, text, length);
        copy = realloc(copy, length ? length : 1);
        const int result = map_line_parse(copy, length, &line);
        assert_int_equal(result, length < 31 ? -EINVAL : 0);
        free(copy);
    }
}

static void details_of_smaps_are_known_by_their_keys(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum map_detail detail;
        uint64_t value;
    } lines[] = {
        {"Size:    4 kB", DETAIL_SIZE, 4},
        {"Rss:       132 kB", DETAIL_RSS, 132},
        {"Pss_Dirty: 1 kB", DETAIL_OTHER, 7},
        {"VmFlags: rd ex", DETAIL_OTHER, 7},
        {"THPeligible:    0", DETAIL_OTHER, 7},
        {"Shared_Hugetlb: 0 kB", DETAIL_OTHER, 7},
        {"Rss:", DETAIL_NONE, 7},
        {"Size: large", DETAIL_NONE, 7},
        {"", DETAIL_NONE, 7},
        {":", DETAIL_NONE, 7},
        {"no key", DETAIL_NONE, 7},
        {"9abc: 1", DETAIL_NONE, 7},
        {"Rss 5 kB", DETAIL_NONE, 7},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        uint64_t value = 7;
        assert_int_equal(map_detail_parse(lines[i].text, strlen(lines[i].text), &value),
                         lines[i].detail);
        if (lines[i].detail != DETAIL_NONE)
            assert_int_equal(value, lines[i].value);
    }
}

static void a_name_longer_than_the_buffer_is_cut_and_the_next_line_is_whole(void **state)
{
    (void)state;
    enum { LONG = 300000 };
    static const char head[] = "1000-2000 r--p 00000000 08:01 77 /";
    static const char tail[] = "\n3000-4000 r--p 00000000 08:01 78 /next\n";
    char *text = malloc(sizeof(head) + LONG + sizeof(tail));
    memcpy(text, head, sizeof(head) - 1);
    memset(text + sizeof(head) - 1, 'x', LONG);
    memcpy(text + sizeof(head) - 1 + LONG, tail, sizeof(tail));
    struct maps_reader reader;
    struct map_line line;
    assert_int_equal(maps_reader_open(&reader, text_file(text, strlen(text)), true, false), 0);
    assert_int_equal(maps_reader_next(&reader, &line), 1);
    assert_true(line.name_length > 100000 && line.name_length < LONG);
    assert_int_equal(maps_reader_next(&reader, &line), 1);
    assert_name(&line, "/next");
    assert_int_equal(maps_reader_next(&reader, &line), 0);
    assert_int_equal(reader.too_long, 1);
    assert_int_equal(reader.bad, 0);
    maps_reader_close(&reader);
    free(text);
}

static void lines_of_windows_and_a_missing_last_newline_are_read(void **state)
{
    (void)state;
    static const char text[] = "1000-2000 r--p 0 00:00 0\r\n2000-3000 r--p 0 08:01 7 /a\r\n"
                               "3000-4000 r--p 0 08:01 7 /b";
    static const char *const names[] = {"", "/a", "/b"};
    struct maps_reader reader;
    struct map_line line;
    assert_int_equal(maps_reader_open(&reader, text_file(text, sizeof(text) - 1), true, false), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(maps_reader_next(&reader, &line), 1);
        assert_name(&line, names[i]);
    }
    assert_int_equal(maps_reader_next(&reader, &line), 0);
    maps_reader_close(&reader);
}

static void a_read_error_is_returned(void **state)
{
    (void)state;
    struct maps_reader reader;
    struct map_line line;
    const int fd = open("/", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(maps_reader_open(&reader, fd, true, false), 0);
    assert_int_equal(maps_reader_next(&reader, &line), -EISDIR);
    maps_reader_close(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_gives_all_its_fields),
        cmocka_unit_test(devices_have_as_many_digits_as_they_need),
        cmocka_unit_test(a_line_without_a_name_has_none_with_blanks_behind_it_or_not),
        cmocka_unit_test(a_name_is_the_rest_of_the_line_with_all_its_blanks),
        cmocka_unit_test(the_highest_addresses_are_read),
        cmocka_unit_test(what_is_no_line_of_maps_is_refused),
        cmocka_unit_test(a_line_cut_anywhere_is_a_map_with_a_shorter_name_or_refused),
        cmocka_unit_test(details_of_smaps_are_known_by_their_keys),
        cmocka_unit_test(a_name_longer_than_the_buffer_is_cut_and_the_next_line_is_whole),
        cmocka_unit_test(lines_of_windows_and_a_missing_last_newline_are_read),
        cmocka_unit_test(a_read_error_is_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
