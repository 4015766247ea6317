/* SPDX-License-Identifier: MIT */
/* shmat and remap_file_pages: what they put over a piece is not taken for the file's bytes later.
 */
#include <sys/shm.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE, PIECES = 16 };

struct pieces {
    int fd;
    char *at[PIECES]; /* pages 0, 2, 4, ... of the file */
};

static void pieces_map(struct pieces *pieces)
{
    pieces->fd = file_make(2 * PIECES);
    for (unsigned i = 0; i < PIECES; i++)
        pieces->at[i] = map_pages(pieces->fd, RW, MAP_SHARED, 2 * i, 1);
    assert_int_equal(kind_at(pieces->at[PIECES - 1]), MF_MAP_CARVED);
}

static void pieces_unmap(struct pieces *pieces)
{
    for (unsigned i = 0; i < PIECES; i++)
        unmap_pages(pieces->at[i], 1);
    assert_int_equal(extents(), 0);
    close(pieces->fd);
}

/* The piece is mapped anew: it is the file's page, and what is written to it reaches the file. */
static void piece_renew(struct pieces *pieces, unsigned i)
{
    unmap_pages(pieces->at[i], 1);
    pieces->at[i] = map_pages(pieces->fd, RW, MAP_SHARED, 2 * i, 1);
    assert_true(page_is(pieces->at[i], 2 * i));
    pieces->at[i][0] = 'z';
    char byte = 0;
    assert_int_equal(pread(pieces->fd, &byte, 1, (off_t)(2 * i * P)), 1);
    assert_int_equal(byte, 'z');
}

static int segment_make(void)
{
    const int segment = shmget(IPC_PRIVATE, P, 0600 | IPC_CREAT);
    if (segment < 0)
        skip();
    return segment;
}

/* CASES 47 */
static void a_segment_over_a_piece_never_shows_as_the_files_bytes(void **state)
{
    (void)state;
    const int segment = segment_make();
    struct pieces pieces;
    pieces_map(&pieces);
    assert_ptr_equal(mf_shmat(segment, pieces.at[5], SHM_REMAP), pieces.at[5]);
    assert_int_equal(shmctl(segment, IPC_RMID, NULL), 0);
    memset(pieces.at[5], 's', P);
    assert_int_equal(kind_at(pieces.at[5]), MF_MAP_PASSED);
    piece_renew(&pieces, 5);
    pieces_unmap(&pieces);
}

static void a_segment_that_is_detached_leaves_the_pieces_beside_it_alone(void **state)
{
    (void)state;
    const int segment = segment_make();
    struct pieces pieces;
    pieces_map(&pieces);
    assert_ptr_equal(mf_shmat(segment, pieces.at[5], SHM_REMAP), pieces.at[5]);
    assert_int_equal(shmctl(segment, IPC_RMID, NULL), 0);
    assert_int_equal(shmdt(pieces.at[5]), 0);
    piece_renew(&pieces, 5);
    assert_true(page_is(pieces.at[4], 8) && page_is(pieces.at[6], 12));
    pieces_unmap(&pieces);
}

static void a_segment_fits_where_nothing_is_and_not_over_a_piece(void **state)
{
    (void)state;
    const int segment = segment_make();
    struct pieces pieces;
    pieces_map(&pieces);
    assert_ptr_equal(mf_shmat(segment, pieces.at[5], 0), (void *)-1);
    assert_int_equal(errno, EINVAL);
    assert_true(page_is(pieces.at[5], 10));
    char *hole = pieces.at[5] + P;
    assert_ptr_equal(mf_shmat(segment, hole, 0), hole);
    assert_int_equal(shmctl(segment, IPC_RMID, NULL), 0);
    memset(hole, 's', P);
    pieces_unmap(&pieces);
    assert_int_equal(hole[P - 1], 's');
    assert_int_equal(shmdt(hole), 0);
}

static void a_segment_without_an_address_is_the_kernels(void **state)
{
    (void)state;
    const int segment = segment_make();
    struct pieces pieces;
    pieces_map(&pieces);
    char *memory = mf_shmat(segment, NULL, 0);
    assert_ptr_not_equal(memory, (void *)-1);
    assert_int_equal(shmctl(segment, IPC_RMID, NULL), 0);
    pieces_unmap(&pieces);
    memory[0] = 's';
    assert_int_equal(shmdt(memory), 0);
    assert_ptr_equal(mf_shmat(-1, NULL, 0), (void *)-1);
    assert_int_equal(errno, EINVAL);
}

static void pages_of_the_file_in_another_order_do_not_outlive_their_piece(void **state)
{
    (void)state;
    struct pieces pieces;
    pieces_map(&pieces);
    if (mf_remap_file_pages(pieces.at[6], P, 0, 20, 0) != 0)
        skip(); /* not every kernel has it */
    assert_true(page_is(pieces.at[6], 20));
    piece_renew(&pieces, 6);
    assert_int_equal(mf_remap_file_pages(pieces.at[7] + P, P, 0, 20, 0), -1);
    assert_int_equal(errno, EINVAL);
    pieces_unmap(&pieces);
}

static struct pieces *handled;

/* Puts memory of its own over a piece, takes it away again, and unmaps another piece. */
static void replace_in_handler(int number)
{
    (void)number;
    char *at = handled->at[3];
    char *over = mf_mmap(at, P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (over == at)
        memset(over, 'a', P);
    mf_munmap(handled->at[4], P);
}

static void a_stack_far_from_the_processs_own_changes_nothing(void **state)
{
    (void)state;
    enum { STACK = 256 << 10 };
    char *low = (char *)0x20000000; // NOLINT(performance-no-int-to-ptr)
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(low, STACK, RW, flags, -1, 0) != low)
        skip();
    struct pieces pieces;
    pieces_map(&pieces);
    handled = &pieces;
    const stack_t stack = {.ss_sp = low, .ss_size = STACK}, none = {.ss_flags = SS_DISABLE};
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    const struct sigaction action = {.sa_handler = replace_in_handler, .sa_flags = SA_ONSTACK};
    struct sigaction before;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(kind_at(pieces.at[3]), MF_MAP_PASSED);
    assert_int_equal(mf_map_query(pieces.at[4], &(struct mf_map_info){0}), -ENOENT);
    pieces.at[4] = map_pages(pieces.fd, RW, MAP_SHARED, 8, 1);
    piece_renew(&pieces, 3);
    pieces_unmap(&pieces);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    assert_int_equal(sigaltstack(&none, NULL), 0);
    munmap(low, STACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_over_a_piece_never_shows_as_the_files_bytes),
        cmocka_unit_test(a_segment_that_is_detached_leaves_the_pieces_beside_it_alone),
        cmocka_unit_test(a_segment_fits_where_nothing_is_and_not_over_a_piece),
        cmocka_unit_test(a_segment_without_an_address_is_the_kernels),
        cmocka_unit_test(pages_of_the_file_in_another_order_do_not_outlive_their_piece),
        cmocka_unit_test(a_stack_far_from_the_processs_own_changes_nothing),
    };
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
