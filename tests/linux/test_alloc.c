/* SPDX-License-Identifier: MIT */
/* The allocator of pages: what it promises in mapfold/base.h. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <mapfold/base.h>

#include "../unit.h"

static const size_t SIZE_1K = 1024;
static const size_t SIZE_1M = 1024 * 1024;

static void *take(size_t size, size_t align)
{
    const struct mf_alloc *alloc = mf_alloc_system();
    return alloc->alloc(alloc->context, size, align);
}

static void give_back(void *memory, size_t size)
{
    const struct mf_alloc *alloc = mf_alloc_system();
    alloc->free(alloc->context, memory, size);
}

static bool is_aligned(const void *memory, size_t align)
{
    return ((uintptr_t)memory & (align - 1)) == 0;
}

/* mincore fails where nothing is mapped. */
static bool is_mapped(void *memory)
{
    unsigned char resident;
    return mincore(memory, 1, &resident) == 0;
}

static void there_is_one_allocator_for_all(void **state)
{
    (void)state;
    assert_non_null(mf_alloc_system());
    assert_ptr_equal(mf_alloc_system(), mf_alloc_system());
}

static void memory_has_the_alignment_asked_for_and_can_be_written_to_its_last_byte(void **state)
{
    (void)state;
    for (size_t size = 4 * SIZE_1K; size <= 8 * SIZE_1M; size *= 2) {
        for (size_t align = 1; align <= 16 * SIZE_1M; align *= 4) {
            char *memory = take(size, align);
            assert_non_null(memory);
            assert_true(is_aligned(memory, align));
            memset(memory, 0x5a, size);
            assert_int_equal(memory[size - 1], 0x5a);
            give_back(memory, size);
        }
    }
}

static void sizes_that_are_no_whole_pages_are_served(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 4097, 2 * SIZE_1M + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *memory = take(sizes[i], 1);
        assert_non_null(memory);
        memory[sizes[i] - 1] = 1;
        give_back(memory, sizes[i]);
        assert_false(is_mapped(memory));
    }
}

static void large_memory_begins_on_a_huge_page(void **state)
{
    (void)state;
    char *memory = take(2 * SIZE_1M, 64);
    assert_non_null(memory);
    assert_true(is_aligned(memory, 2 * SIZE_1M));
    give_back(memory, 2 * SIZE_1M);
}

static void memory_given_back_is_unmapped_to_its_last_page(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = take(SIZE_1M, 4 * SIZE_1M);
    assert_non_null(memory);
    assert_true(is_mapped(memory));
    assert_true(is_mapped(memory + SIZE_1M - page));
    give_back(memory, SIZE_1M);
    assert_false(is_mapped(memory));
    assert_false(is_mapped(memory + SIZE_1M - page));
}

static void success_and_failure_both_keep_errno(void **state)
{
    (void)state;
    errno = ENOTTY;
    char *memory = take(4 * SIZE_1K, 4 * SIZE_1K);
    assert_non_null(memory);
    assert_int_equal(errno, ENOTTY);
    give_back(memory, 4 * SIZE_1K);
    assert_int_equal(errno, ENOTTY);
    assert_null(take(SIZE_MAX / 2, 4 * SIZE_1K));
    assert_int_equal(errno, ENOTTY);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    assert_null(take(SIZE_MAX, 1));
    assert_null(take(SIZE_MAX - 4 * SIZE_1K, 1));
    assert_null(take(SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1));
}

static void a_full_address_space_gives_null_and_recovers(void **state)
{
    (void)state;
    struct rlimit before;
    struct rlimit seen;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit none = {.rlim_cur = SIZE_1M, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    errno = ENOTTY;
    void *small = take(4 * SIZE_1K, 4 * SIZE_1K);
    void *large = take(64 * SIZE_1M, 2 * SIZE_1M);
    const int kept = errno;
    const int limits = getrlimit(RLIMIT_AS, &seen);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(limits, 0);
    if (seen.rlim_cur != none.rlim_cur)
        skip(); /* qemu-user accepts the limit and does not apply it */
    assert_null(small);
    assert_null(large);
    assert_int_equal(kept, ENOTTY);
    void *again = take(4 * SIZE_1K, 4 * SIZE_1K);
    assert_non_null(again);
    give_back(again, 4 * SIZE_1K);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_one_allocator_for_all),
        cmocka_unit_test(memory_has_the_alignment_asked_for_and_can_be_written_to_its_last_byte),
        cmocka_unit_test(sizes_that_are_no_whole_pages_are_served),
        cmocka_unit_test(large_memory_begins_on_a_huge_page),
        cmocka_unit_test(memory_given_back_is_unmapped_to_its_last_page),
        cmocka_unit_test(success_and_failure_both_keep_errno),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(a_full_address_space_gives_null_and_recovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
