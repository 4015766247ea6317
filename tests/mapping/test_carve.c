/* SPDX-License-Identifier: MIT */
/* Carving: what programs see of pieces in extents, and what the kernel sees. */
#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE };

static void many_pieces_of_a_file_are_few_kernel_maps(void **state)
{
    (void)state;
    enum { PAGES = 2000 };
    const int fd = file_make(PAGES);
    static char *pieces[PAGES];
    const uint64_t before = kernel_maps();
    for (unsigned i = 0; i < PAGES; i++)
        pieces[i] = map_pages(fd, PROT_READ, MAP_SHARED, i, 1);
    assert_true(kernel_maps() <= before + 4);
    for (unsigned i = 0; i < PAGES; i++)
        assert_true(page_is(pieces[i], i));
    for (unsigned i = 0; i < PAGES; i++)
        unmap_pages(pieces[i], 1);
    assert_int_equal(extents(), 0);
    assert_true(kernel_maps() <= before + 2);
    close(fd);
}

static void overlapping_private_pieces_do_not_see_each_other(void **state)
{
    (void)state;
    const int fd = file_make(4);
    char *pieces[4];
    for (int i = 0; i < 4; i++) {
        pieces[i] = map_pages(fd, RW, MAP_PRIVATE, 0, 4);
        assert_int_equal(kind_at(pieces[i]), MF_MAP_CARVED);
        memset(pieces[i], 'a' + i, P);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pieces[i][17], 'a' + i);
        assert_true(page_is(pieces[i] + P, 1));
        unmap_pages(pieces[i], 4);
    }
    close(fd);
}

static void a_written_private_page_never_shows_again(void **state)
{
    (void)state;
    const int fd = file_make(64);
    char *keeper = map_pages(fd, RW, MAP_PRIVATE, 63, 1);
    for (unsigned round = 0; round < 2000; round++) {
        const unsigned page = round * 7 % 60, pages = 1 + round % 3;
        char *piece = map_pages(fd, RW, MAP_PRIVATE, page, pages);
        for (unsigned i = 0; i < pages; i++)
            assert_true(page_is(piece + i * P, page + i));
        if (round % 2)
            memset(piece, 'x', (size_t)pages * P);
        unmap_pages(piece, pages);
    }
    unmap_pages(keeper, 1);
    close(fd);
}

static void writes_to_shared_pieces_reach_the_file_and_each_other(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *a = map_pages(fd, RW, MAP_SHARED, 2, 2), *b = map_pages(fd, RW, MAP_SHARED, 3, 2);
    a[P + 5] = 'q';
    assert_int_equal(b[5], 'q');
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 3 * P + 5), 1);
    assert_int_equal(byte, 'q');
    unmap_pages(a, 2);
    unmap_pages(b, 2);
    close(fd);
}

static void a_file_may_grow_under_its_pieces(void **state)
{
    (void)state;
    const int fd = file_make(1);
    char *piece = map_pages(fd, PROT_READ, MAP_SHARED, 0, 8);
    file_fill(fd, 8);
    for (unsigned i = 0; i < 8; i++)
        assert_true(page_is(piece + i * P, i));
    unmap_pages(piece, 8);
    close(fd);
}

static void the_middle_of_a_piece_can_be_unmapped(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 0, 8);
    unmap_pages(piece + 3 * P, 2);
    unsigned char resident[8];
    assert_int_equal(mf_mincore(piece, 8 * P, resident), -1);
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(mf_mprotect(piece, 8 * P, PROT_READ), -1);
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(mf_msync(piece, 8 * P, MS_ASYNC), -1);
    assert_int_equal(errno, ENOMEM);
    assert_true(page_is(piece + 2 * P, 2));
    assert_true(page_is(piece + 5 * P, 5));
    unmap_pages(piece, 8);
    assert_int_equal(extents(), 0);
    close(fd);
}

/* CASES 50, 58 */
static void a_descriptor_that_may_not_write_gives_no_more_rights(void **state)
{
    (void)state;
    char name[] = "./rights-XXXXXX";
    const int writer = file_fill(mkstemp(name), 2);
    const int reader = open(name, O_RDONLY);
    char *a = map_pages(writer, PROT_READ, MAP_SHARED, 0, 1);
    char *b = map_pages(reader, PROT_READ, MAP_SHARED, 0, 1);
    assert_int_equal(kind_at(b), MF_MAP_CARVED);
    assert_int_equal(mf_mprotect(a, P, RW), 0);
    assert_int_equal(mf_mprotect(b, P, RW), -1);
    assert_int_equal(errno, EACCES);
    assert_ptr_equal(mf_mmap(NULL, P, RW, MAP_SHARED, reader, 0), MAP_FAILED);
    assert_int_equal(errno, EACCES);
    const int blind = open(name, O_WRONLY);
    assert_ptr_equal(mf_mmap(NULL, P, PROT_READ, MAP_PRIVATE, blind, 0), MAP_FAILED);
    assert_int_equal(errno, EACCES);
    const int path = open(name, O_PATH);
    assert_ptr_equal(mf_mmap(NULL, P, PROT_READ, MAP_PRIVATE, path, 0), MAP_FAILED);
    assert_int_equal(errno, EBADF);
    assert_int_equal(extents(), 2);
    assert_ptr_equal(mf_mmap(NULL, P, PROT_WRITE, MAP_SHARED, blind, 0), MAP_FAILED);
    assert_int_equal(errno, EACCES);
    char *own = map_pages(reader, RW, MAP_PRIVATE, 1, 1);
    char *later = map_pages(reader, PROT_READ, MAP_PRIVATE, 1, 1);
    assert_int_equal(mf_mprotect(later, P, RW), 0);
    own[0] = later[0] = 'x';
    unmap_pages(own, 1);
    unmap_pages(later, 1);
    own = map_pages(reader, PROT_READ, MAP_SHARED, 1, 1);
    assert_true(page_is(own, 1));
    unmap_pages(own, 1);
    unmap_pages(a, 1);
    unmap_pages(b, 1);
    assert_int_equal(extents(), 0);
    close(writer), close(reader), close(blind), close(path), unlink(name);
}

/* CASES 47 */
static void a_fixed_request_replaces_what_it_covers(void **state)
{
    (void)state;
    const int fd = file_make(4);
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 0, 4);
    assert_ptr_equal(mf_mmap(piece + 2 * P, P, RW, MAP_PRIVATE | MAP_FIXED, -1, 0), MAP_FAILED);
    assert_int_equal(errno, EBADF);
    assert_true(page_is(piece + 2 * P, 2));
    const int reader = open("/proc/self/exe", O_RDONLY);
    assert_ptr_equal(mf_mmap(piece + 2 * P, P, RW, MAP_SHARED | MAP_FIXED, reader, 0), MAP_FAILED);
    assert_int_equal(errno, EACCES);
    close(reader);
    assert_true(page_is(piece + 2 * P, 2));
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    assert_ptr_equal(mf_mmap(piece + 2 * P, P, RW, flags | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED);
    assert_int_equal(errno, EEXIST);
    assert_ptr_equal(mf_mmap(piece + 2 * P, P, RW, flags | MAP_FIXED, -1, 0), piece + 2 * P);
    assert_int_equal(piece[2 * P], 0);
    assert_true(page_is(piece + P, 1));
    assert_true(page_is(piece + 3 * P, 3));
    unmap_pages(piece, 4);
    assert_int_equal(extents(), 0);
    close(fd);
}

/* CASES 47 */
static void a_piece_moved_onto_another_replaces_what_it_covers(void **state)
{
    (void)state;
    const int fd = file_make(4), other = file_make(8);
    char *piece = map_pages(fd, RW, MAP_SHARED, 0, 4);
    char *mover = map_pages(other, RW, MAP_SHARED, 7, 1);
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    assert_ptr_equal(mf_mremap(mover, P, P, flags, piece + 2 * P), piece + 2 * P);
    assert_true(page_is(piece + P, 1) && page_is(piece + 2 * P, 7) && page_is(piece + 3 * P, 3));
    piece[2 * P] = 'm';
    char byte;
    assert_int_equal(pread(other, &byte, 1, 7 * P), 1);
    assert_int_equal(byte, 'm');
    char *again = map_pages(fd, RW, MAP_SHARED, 2, 1),
         *stays = map_pages(other, RW, MAP_SHARED, 7, 1);
    assert_true(page_is(again, 2));
    unmap_pages(piece, 4);
    assert_true(page_is(again, 2));
    assert_int_equal(stays[0], 'm');
    unmap_pages(again, 1);
    unmap_pages(stays, 1);
    assert_int_equal(extents(), 0);
    close(fd), close(other);
}

/* CASES 48 */
static void an_old_length_of_0_makes_a_second_piece_of_what_is_shared(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *shared = map_pages(fd, RW, MAP_SHARED, 2, 2), *own = map_pages(fd, RW, MAP_PRIVATE, 2, 2);
    char *second = mf_mremap(shared, 0, 2 * P, MREMAP_MAYMOVE, NULL);
    assert_ptr_not_equal(second, MAP_FAILED);
    second[P] = 's';
    assert_int_equal(shared[P], 's');
    assert_ptr_equal(mf_mremap(own, 0, 2 * P, MREMAP_MAYMOVE, NULL), MAP_FAILED);
    assert_int_equal(errno, EINVAL);
    assert_true(page_is(own, 2));
    unmap_pages(shared, 2);
    assert_int_equal(second[P], 's');
    unmap_pages(second, 2);
    unmap_pages(own, 2);
    assert_int_equal(extents(), 0);
    close(fd);
}

/* CASES 48 */
static void growing_a_piece_never_runs_into_its_neighbour(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *a = map_pages(fd, RW, MAP_PRIVATE, 0, 1), *b = map_pages(fd, RW, MAP_PRIVATE, 1, 1);
    assert_ptr_equal(b, a + P);
    b[0] = 'b';
    a[0] = 'a';
    assert_ptr_equal(mf_mremap(a, P, 2 * P, 0, NULL), MAP_FAILED);
    assert_int_equal(errno, ENOMEM);
    char *moved = mf_mremap(a, P, 2 * P, MREMAP_MAYMOVE, NULL);
    assert_ptr_not_equal(moved, MAP_FAILED);
    assert_ptr_not_equal(moved, a);
    assert_int_equal(moved[0], 'a');
    assert_true(page_is(moved + P, 1));
    assert_int_equal(b[0], 'b');
    char *grown = mf_mremap(b, P, 3 * P, 0, NULL);
    assert_ptr_equal(grown, b);
    assert_true(page_is(b + P, 2));
    unmap_pages(moved, 2);
    unmap_pages(b, 3);
    assert_int_equal(extents(), 0);
    close(fd);
}

static void a_refused_target_leaves_no_hole_behind(void **state)
{
    (void)state;
    const int fd = file_make(8);
    char *piece = map_pages(fd, RW, MAP_SHARED, 0, 1);
    char *target = map_pages(fd, RW, MAP_SHARED, 2, 1);
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    assert_ptr_equal(mf_mremap(piece, P, P, flags, target + 8), MAP_FAILED);
    assert_int_equal(errno, EINVAL);
    char *behind = map_pages(fd, RW, MAP_SHARED, 3, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_true(page_is(behind + (size_t)i * P, i + 3));
    unmap_pages(behind, 5);
    unmap_pages(target, 1);
    unmap_pages(piece, 1);
    close(fd);
}

/* The kernel cannot merge its maps again where pages were written while they were apart. */
static char *piece_over_split_maps(int fd)
{
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 0, 8);
    assert_int_equal(mf_madvise(piece, 4 * P, MADV_RANDOM), 0);
    piece[0] = piece[5 * P] = 'x';
    unmap_pages(piece, 8);
    return map_pages(fd, RW, MAP_PRIVATE, 0, 8);
}

static void remap_over_split_maps(unsigned pages, bool fixed)
{
    const int fd = file_make(16);
    char *keeper = map_pages(fd, RW, MAP_PRIVATE, 15, 1);
    char *place = mmap(NULL, 10 * P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *piece = piece_over_split_maps(fd);
    char *wall = map_pages(fd, RW, MAP_PRIVATE, 8, 1); /* it cannot grow where it is */
    piece[3 * P + 9] = piece[7 * P + 9] = 'y';
    char *moved = mf_mremap(piece, (size_t)8 * P, (size_t)pages * P,
                            MREMAP_MAYMOVE | (fixed ? MREMAP_FIXED : 0), place);
    assert_ptr_not_equal(moved, MAP_FAILED);
    assert_true(moved == place || !fixed);
    for (unsigned i = 0; i < pages; i++) {
        assert_true(page_is(moved + (size_t)i * P, i));
        assert_int_equal(moved[i * P + 9] == 'y', i == 3 || i == 7);
    }
    assert_true(page_is(wall, 8));
    unmap_pages(moved, pages);
    unmap_pages(wall, 1);
    munmap(place, 10 * P);
    unmap_pages(keeper, 1);
    close(fd);
}

static void a_piece_over_several_kernel_maps_moves_and_grows_as_one(void **state)
{
    (void)state;
    for (unsigned pages = 6; pages <= 10; pages += 2) {
        remap_over_split_maps(pages, false);
        remap_over_split_maps(pages, true);
    }
}

static void a_child_has_the_pieces_of_its_parent(void **state)
{
    (void)state;
    const int fd = file_make(16);
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 3, 2);
    piece[0] = 'p';
    const pid_t child = fork();
    if (child == 0) {
        bool right = piece[0] == 'p' && page_is(piece + P, 4);
        piece[0] = 'c';
        char *mine = mf_mmap(NULL, 4 * P, PROT_READ, MAP_PRIVATE, fd, 0);
        right = right && mine != MAP_FAILED && page_is(mine + P, 1);
        right = right && mf_munmap(mine, 4 * P) == 0 && mf_munmap(piece, 2 * P) == 0;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(piece[0], 'p');
    unmap_pages(piece, 2);
    close(fd);
}

static void changes_to_a_part_are_undone_when_it_is_unmapped(void **state)
{
    (void)state;
    const int fd = file_make(16);
    char *keeper = map_pages(fd, RW, MAP_PRIVATE, 0, 1);
    const uint64_t before = kernel_maps();
    for (int round = 0; round < 20; round++) {
        char *piece = map_pages(fd, RW, MAP_PRIVATE, 4, 4);
        piece[P] = 'w';
        assert_int_equal(mf_mprotect(piece + P, P, PROT_READ), 0);
        assert_int_equal(mf_mlock(piece + 2 * P, P), 0);
        assert_int_equal(mf_madvise(piece + 3 * P, P, MADV_RANDOM), 0);
        unmap_pages(piece, 4);
        char *again = map_pages(fd, RW, MAP_PRIVATE, 4, 4);
        for (unsigned i = 0; i < 4; i++)
            assert_true(page_is(again + i * P, 4 + i));
        memset(again, 0, 4 * P);
        unmap_pages(again, 4);
    }
    assert_true(kernel_maps() <= before + 4);
    unmap_pages(keeper, 1);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_pieces_of_a_file_are_few_kernel_maps),
        cmocka_unit_test(overlapping_private_pieces_do_not_see_each_other),
        cmocka_unit_test(a_written_private_page_never_shows_again),
        cmocka_unit_test(writes_to_shared_pieces_reach_the_file_and_each_other),
        cmocka_unit_test(a_file_may_grow_under_its_pieces),
        cmocka_unit_test(the_middle_of_a_piece_can_be_unmapped),
        cmocka_unit_test(a_descriptor_that_may_not_write_gives_no_more_rights),
        cmocka_unit_test(a_fixed_request_replaces_what_it_covers),
        cmocka_unit_test(a_piece_moved_onto_another_replaces_what_it_covers),
        cmocka_unit_test(an_old_length_of_0_makes_a_second_piece_of_what_is_shared),
        cmocka_unit_test(growing_a_piece_never_runs_into_its_neighbour),
        cmocka_unit_test(a_refused_target_leaves_no_hole_behind),
        cmocka_unit_test(a_piece_over_several_kernel_maps_moves_and_grows_as_one),
        cmocka_unit_test(a_child_has_the_pieces_of_its_parent),
        cmocka_unit_test(changes_to_a_part_are_undone_when_it_is_unmapped),
    };
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
