/* SPDX-License-Identifier: MIT */
/*
 * The part of cmocka that mapfold's unit tests use, for machines to which we cross-compile and for
 * which no distribution packages cmocka. A failed assertion leaves the test by longjmp and the run
 * goes on; results are printed as TAP; the program's exit status is the number of failed tests.
 */
#ifndef MAPFOLD_STAND_IN_CMOCKA_H
#define MAPFOLD_STAND_IN_CMOCKA_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*setup_func)(void **state);
    int (*teardown_func)(void **state);
    void *initial_state;
};

enum { STAND_IN_FAILED = 1, STAND_IN_SKIPPED };

static jmp_buf stand_in_end __attribute__((unused));

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f, NULL, NULL, NULL                                                                    \
    }
#define cmocka_unit_test_setup(f, setup)                                                           \
    {                                                                                              \
#f, f, setup, NULL, NULL                                                                   \
    }
#define cmocka_unit_test_teardown(f, teardown)                                                     \
    {                                                                                              \
#f, f, NULL, teardown, NULL                                                                \
    }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                        \
    {                                                                                              \
#f, f, setup, teardown, NULL                                                               \
    }
#define cmocka_unit_test_prestate(f, state)                                                        \
    {                                                                                              \
#f, f, NULL, NULL, state                                                                   \
    }

__attribute__((format(printf, 3, 4), noreturn, unused)) static inline void
stand_in_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# %s:%d: ", file, line);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    longjmp(stand_in_end, STAND_IN_FAILED);
}

#define fail_msg(...) stand_in_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail() fail_msg("failed")
#define skip() longjmp(stand_in_end, STAND_IN_SKIPPED)
#define print_message(...) printf(__VA_ARGS__)
#define print_error(...) fprintf(stderr, __VA_ARGS__)

#define stand_in_compare(a, relation, b)                                                           \
    do {                                                                                           \
        const uintmax_t stand_in_left = (uintmax_t)(a), stand_in_right = (uintmax_t)(b);           \
        if (!(stand_in_left relation stand_in_right))                                              \
            fail_msg("%s %s %s: %#" PRIxMAX ", %#" PRIxMAX, #a, #relation, #b, stand_in_left,      \
                     stand_in_right);                                                              \
    } while (0)
#define assert_true(c)                                                                             \
    do {                                                                                           \
        if (!(c))                                                                                  \
            fail_msg("%s", #c);                                                                    \
    } while (0)
#define assert_false(c) assert_true(!(c))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_ptr_not_equal(a, b) assert_true((const void *)(a) != (const void *)(b))
#define assert_int_equal(a, b) stand_in_compare(a, ==, b)
#define assert_int_not_equal(a, b) stand_in_compare(a, !=, b)
#define assert_in_range(v, low, last)                                                              \
    do {                                                                                           \
        stand_in_compare(v, >=, low);                                                              \
        stand_in_compare(v, <=, last);                                                             \
    } while (0)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_string_not_equal(a, b) assert_true(strcmp(a, b) != 0)
#define assert_memory_equal(a, b, size) assert_true(memcmp(a, b, size) == 0)
#define assert_memory_not_equal(a, b, size) assert_true(memcmp(a, b, size) != 0)
#define assert_return_code(code, error) assert_true((code) >= 0)

/* 0, STAND_IN_FAILED or STAND_IN_SKIPPED; the teardown runs whatever the test did. */
__attribute__((unused)) static inline int stand_in_run_test(const struct CMUnitTest *test,
                                                            void *group_state)
{
    static void *state;
    state = test->initial_state ? test->initial_state : group_state;
    if (test->setup_func && test->setup_func(&state) != 0)
        return STAND_IN_FAILED;
    const int result = setjmp(stand_in_end);
    if (result == 0)
        test->test_func(&state);
    if (test->teardown_func && test->teardown_func(&state) != 0)
        return STAND_IN_FAILED;
    return result;
}

__attribute__((unused)) static inline int stand_in_run(const struct CMUnitTest *tests, size_t count,
                                                       int (*setup)(void **),
                                                       int (*teardown)(void **))
{
    void *state = NULL;
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%zu\n", count);
    if (setup && setup(&state) != 0) {
        printf("Bail out! The group's setup failed.\n");
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        const int result = stand_in_run_test(&tests[i], state);
        failed += result == STAND_IN_FAILED;
        printf("%s %zu - %s%s\n", result == STAND_IN_FAILED ? "not ok" : "ok", i + 1, tests[i].name,
               result == STAND_IN_SKIPPED ? " # SKIP" : "");
    }
    if (teardown && teardown(&state) != 0) {
        printf("# The group's teardown failed.\n");
        failed++;
    }
    return failed;
}

#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    stand_in_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    cmocka_run_group_tests(tests, setup, teardown)

#endif
