/* SPDX-License-Identifier: MIT */
/* Numbers of pieces that end a plain program at vm.max_map_count. */
#include <sys/resource.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE, PIECES = 80000, FILES = 70000, RANDOM = 300000 };

static char *pieces[RANDOM];
static unsigned sizes[RANDOM];

static int sparse_file(uint64_t bytes)
{
    const int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static void each_page_of_a_file_by_a_call_of_its_own_in_both_orders(void **state)
{
    (void)state;
    const int fd = sparse_file((uint64_t)PIECES * P);
    const uint64_t before = kernel_maps();
    for (int down = 0; down < 2; down++) {
        for (unsigned i = 0; i < PIECES; i++)
            pieces[i] = map_pages(fd, PROT_READ, MAP_SHARED, down ? PIECES - 1 - i : i, 1);
        assert_true(kernel_maps() < before + 64);
        for (unsigned i = 0; i < PIECES; i++)
            unmap_pages(pieces[i], 1);
        assert_int_equal(extents(), 0);
    }
    close(fd);
}

static void pieces_of_many_sizes_at_random_offsets(void **state)
{
    (void)state;
    const unsigned pages = (16ULL << 30) / P;
    const int fd = sparse_file(16ULL << 30);
    uint64_t random = 88172645463325252;
    for (unsigned i = 0; i < RANDOM; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        sizes[i] = 1 + (unsigned)(random % 64);
        pieces[i] = map_pages(fd, PROT_READ, MAP_PRIVATE, (unsigned)(random >> 20) % (pages - 64),
                              sizes[i]);
    }
    assert_true(kernel_maps() <= 1000);
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    assert_true(stats.metadata_bytes / RANDOM <= 64);
    for (unsigned i = 0; i < RANDOM; i++)
        unmap_pages(pieces[i], sizes[i]);
    assert_int_equal(extents(), 0);
    close(fd);
}

static void many_small_files_mapped_private_and_kept(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FILES; i++) {
        const int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        assert_int_equal(pwrite(fd, &i, sizeof(i), 0), sizeof(i));
        pieces[i] = map_pages(fd, PROT_READ, MAP_PRIVATE, 0, 1);
        close(fd);
    }
    assert_true(kernel_maps() < 40000);
    for (unsigned i = 0; i < FILES; i++) {
        assert_memory_equal(pieces[i], &i, sizeof(i));
        unmap_pages(pieces[i], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_page_of_a_file_by_a_call_of_its_own_in_both_orders),
        cmocka_unit_test(pieces_of_many_sizes_at_random_offsets),
        cmocka_unit_test(many_small_files_mapped_private_and_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
