/* SPDX-License-Identifier: MIT */
/*
 * Each system call of the layer fails in turn, at each of its places: what a program maps is right
 * or refused, and when the failures end all goes on. The sources are built with MF_SYS_INJECT for
 * it.
 */
#include <sys/syscall.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE, DEEP = 12, NEVER = -1 };

long mf_sys_inject(long number);

static long target = NEVER;
static int countdown, error;
static bool again, reached;  /* again: every later call fails, too */
static unsigned files_asked; /* statx */
static unsigned spans;       /* bit n: the n-th call is told that it spans several kernel maps */
static char *taken;          /* where another thread gets a page when the call fails */

long mf_sys_inject(long number)
{
    files_asked += number == SYS_statx;
    if (number != target)
        return 0;
    const bool spanning = spans & 1;
    spans >>= 1;
    if (countdown != 0) {
        countdown -= countdown > 0;
        return spanning ? -EFAULT : 0;
    }
    reached = true;
    if (!again)
        countdown = -1;
    if (taken != NULL) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        if (mmap(taken, P, RW, flags, -1, 0) != taken)
            _exit(13);
        taken[0] = 't';
    }
    return -error;
}

/* A piece that is right, or none. */
static char *map_or_not(int fd, int protection, int flags, unsigned page, unsigned pages)
{
    char *piece = mf_mmap(NULL, (size_t)pages * P, protection, flags, fd, (off_t)page * P);
    if (piece == MAP_FAILED)
        return NULL;
    for (unsigned i = 0; i < pages; i++)
        if (!page_is(piece + i * P, page + i))
            _exit(10);
    return piece;
}

static void unmap_or_not(char *piece, unsigned pages)
{
    if (piece != NULL && mf_munmap(piece, (size_t)pages * P) != 0 && errno == EINVAL)
        _exit(11);
}

/* A bit of everything; ends the process if a byte is wrong. */
static void program(int fd)
{
    char *pieces[DEEP];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < DEEP; i++) {
            pieces[i] = map_or_not(fd, i % 3 ? RW : PROT_READ, MAP_PRIVATE, 1, 2);
            if (pieces[i] != NULL && i % 3)
                pieces[i][P] = (char)i;
        }
        char *shared = map_or_not(fd, RW, MAP_SHARED, 4, 3);
        if (shared != NULL) {
            mf_mprotect(shared + P, P, PROT_READ);
            mf_madvise(shared, P, MADV_RANDOM);
            mf_mlock(shared, 3 * P);
            mf_msync(shared, 3 * P, MS_ASYNC);
            unmap_or_not(shared + P, 1);
        }
        for (int i = 0; i < DEEP; i++)
            if (pieces[i] != NULL && i % 3 && pieces[i][P] != (char)i)
                _exit(12);
        if (pieces[1] != NULL) {
            mf_madvise(pieces[1], 2 * P, MADV_DONTNEED);
            char *grown = mf_mremap(pieces[1], 2 * P, 4 * P, MREMAP_MAYMOVE, NULL);
            unmap_or_not(grown != MAP_FAILED ? grown : pieces[1], grown != MAP_FAILED ? 4 : 2);
        }
        if (shared != NULL)
            mf_mmap(shared, P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int i = 0; i < DEEP; i++)
            if (i != 1)
                unmap_or_not(pieces[i], 2);
        unmap_or_not(shared, 3);
    }
}

/* In a child: the program while calls fail, and once more when they have ceased to. */
static bool survives(long number, int at, bool for_good, int with)
{
    const pid_t child = fork();
    if (child == 0) {
        const int fd = file_make(16);
        target = number;
        countdown = at;
        error = with;
        again = for_good;
        program(fd);
        const bool was_reached = reached;
        target = NEVER;
        again = false;
        program(fd);
        _exit(was_reached ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
        fail_msg("system call %ld failing at %d%s with %d: status %#x", number, at,
                 for_good ? " and on" : "", with, (unsigned)status);
    return WEXITSTATUS(status) == 0;
}

static void each_failing_system_call_is_survived(void **state)
{
    (void)state;
    static const struct {
        long number;
        int with;
    } calls[] = {
        {SYS_mmap, ENOMEM},          {SYS_munmap, ENOMEM},      {SYS_mprotect, ENOMEM},
        {SYS_madvise, EAGAIN},       {SYS_clone, EPERM},        {SYS_openat, EMFILE},
        {SYS_openat, EACCES},        {SYS_statx, ENOSYS},       {SYS_fcntl, EPERM},
        {SYS_fstatfs, EACCES},       {SYS_pread64, EIO},        {SYS_pwrite64, EIO},
        {SYS_ioctl, ENOTTY},         {SYS_process_madvise, 38}, {SYS_process_vm_readv, EPERM},
        {SYS_mremap, ENOMEM},        {SYS_readlinkat, ENOENT},  {SYS_prlimit64, EPERM},
        {SYS_rt_sigprocmask, EPERM}, {SYS_wait4, ECHILD},       {SYS_munlock, ENOMEM},
        {SYS_sysinfo, EPERM},        {SYS_mincore, EAGAIN},
    };
    for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        for (int at = 0; at < 8 && survives(calls[i].number, at, false, calls[i].with); at++)
            ;
        survives(calls[i].number, 0, true, calls[i].with);
        survives(calls[i].number, 3, true, calls[i].with);
    }
}

enum { SPLIT_PAGES = 8, DONTUNMAP = 4 /* MREMAP_DONTUNMAP, from Linux 5.7 on */ };

/* A piece whose last mark is in the second of the two kernel maps that it lies in. */
static char *split_piece_make(int fd)
{
    const size_t bytes = (size_t)SPLIT_PAGES * P;
    char *piece = mf_mmap(NULL, bytes, RW, MAP_PRIVATE, fd, 0);
    if (mf_madvise(piece, bytes / 2, MADV_RANDOM) != 0)
        _exit(20);
    piece[0] = piece[5 * P] = 'x'; /* keeps the two maps from becoming one again */
    if (mf_munmap(piece, bytes) != 0)
        _exit(21);
    piece = mf_mmap(NULL, bytes, RW, MAP_PRIVATE, fd, 0);
    for (unsigned i = 1; i < SPLIT_PAGES; i += 2)
        piece[i * P + 9] = 'y';
    return piece;
}

/* Every page of the file, with what was written to it or not. */
static bool pages_are(const char *piece, unsigned pages, bool written)
{
    for (unsigned i = 0; i < pages; i++)
        if (!page_is(piece + (size_t)i * P, i) ||
            (piece[(size_t)i * P + 9] == 'y') != (written && i % 2 == 1 && i < SPLIT_PAGES))
            return false;
    return true;
}

static bool split_piece_is_right(const char *piece, unsigned pages)
{
    return pages_are(piece, pages, true);
}

/* The move fails at one of its parts and is then asked for again. Status 1: it had not so many. */
static void split_piece_move(int at, unsigned pages, bool fixed, bool keep)
{
    const size_t bytes = (size_t)SPLIT_PAGES * P, new_bytes = (size_t)pages * P;
    const int flags = MREMAP_MAYMOVE | (fixed ? MREMAP_FIXED : 0) | (keep ? DONTUNMAP : 0);
    const int fd = file_make(16);
    char *keeper = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, 15 * P);
    char *place = mmap(NULL, 10 * P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *piece = split_piece_make(fd);
    char *wall = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, SPLIT_PAGES * P);
    target = SYS_mremap, countdown = at, error = ENOMEM;
    /* Linux from 6.17 on moves several maps at once, if it need not grow */
    spans = 1 << 0 | 1 << (keep ? 1 : 2);
    char *moved = mf_mremap(piece, bytes, new_bytes, flags, place);
    target = NEVER;
    if (reached && (moved != MAP_FAILED || errno != ENOMEM))
        _exit(22);
    if (reached && !(split_piece_is_right(piece, SPLIT_PAGES) && page_is(wall, SPLIT_PAGES)))
        _exit(23);
    if (reached)
        moved = mf_mremap(piece, bytes, new_bytes, flags, place);
    if (moved == MAP_FAILED || (fixed && moved != place) || !split_piece_is_right(moved, pages))
        _exit(24);
    if (keep && (!pages_are(piece, SPLIT_PAGES, false) || mf_munmap(piece, bytes) != 0))
        _exit(27);
    char *anew = mf_mmap(NULL, bytes, RW, MAP_PRIVATE, fd, 0);
    if (!pages_are(anew, SPLIT_PAGES, false))
        _exit(25);
    if (mf_munmap(moved, new_bytes) != 0 || mf_munmap(anew, bytes) != 0 ||
        mf_munmap(wall, P) != 0 || mf_munmap(keeper, P) != 0 || extents() != 0)
        _exit(26);
    _exit(reached ? 0 : 1);
}

static void a_piece_that_cannot_be_moved_in_all_its_parts_stays_whole_where_it_is(void **state)
{
    (void)state;
    static const struct {
        unsigned pages;
        bool fixed, keep;
        int parts; /* the call itself, and at least so many of its parts */
    } ways[] = {{SPLIT_PAGES - 2, true, false, 5}, {SPLIT_PAGES, true, false, 5},
                {SPLIT_PAGES + 2, true, false, 5}, {SPLIT_PAGES + 2, false, false, 5},
                {SPLIT_PAGES, true, true, 3},      {SPLIT_PAGES, false, true, 3}};
    for (unsigned way = 0; way < sizeof(ways) / sizeof(*ways); way++) {
        int status = 0, at = 0;
        for (; status == 0; at++) {
            const pid_t child = fork();
            if (child == 0)
                split_piece_move(at, ways[way].pages, ways[way].fixed, ways[way].keep);
            assert_int_equal(waitpid(child, &status, 0), child);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1)
            fail_msg("way %u, part %d fails: status %#x", way, at - 1, (unsigned)status);
        if (at <= ways[way].parts)
            fail_msg("way %u had %d parts only", way, at - 1);
    }
}

/* In a child. */
static void split_piece_move_is_robbed(void)
{
    const size_t bytes = (size_t)SPLIT_PAGES * P, last = bytes - P;
    const int fd = file_make(16);
    char *keeper = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, 15 * P);
    char *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *piece = split_piece_make(fd);
    target = SYS_mremap, countdown = 4, error = ENOMEM;
    spans = 1 << 0 | 1 << 2;
    taken = piece + last;
    if (mf_mremap(piece, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) != MAP_FAILED)
        _exit(30);
    target = NEVER;
    if (!reached || errno != EFAULT || taken[0] != 't' || kind_at(taken) != MF_MAP_PASSED)
        _exit(31);
    if (!split_piece_is_right(piece, SPLIT_PAGES - 1) || kind_at(piece) != MF_MAP_CARVED)
        _exit(32);
    char *anew = mf_mmap(NULL, P, RW, MAP_PRIVATE, fd, (off_t)last);
    if (!page_is(anew, SPLIT_PAGES - 1) || anew[9] == 'y')
        _exit(33);
    if (mf_munmap(piece, bytes) != 0 || mf_munmap(anew, P) != 0 || mf_munmap(keeper, P) != 0 ||
        extents() != 0)
        _exit(34);
    _exit(0);
}

static void what_another_thread_gets_where_a_piece_was_is_left_alone(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0)
        split_piece_move_is_robbed();
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

enum { IN_VAIN = 64, ONCE = 400, HELD = 16 };

/* Maps so many pages of a file, keeps them, and says how often the layer asked for the file. */
static unsigned map_and_keep(int fd, unsigned pages, char **pieces)
{
    const unsigned before = files_asked;
    for (unsigned i = 0; i < pages; i++)
        pieces[i] = map_pages(fd, PROT_READ, MAP_PRIVATE, i, 1);
    return files_asked - before;
}

static void
files_that_are_mapped_once_are_asked_for_less_often_and_the_next_still_fold(void **state)
{
    (void)state;
    struct mf_map_options folding_at_once, options;
    mf_map_get_options(&folding_at_once);
    options = folding_at_once;
    options.promote_pieces = 8;
    assert_int_equal(mf_map_set_options(&options), 0);
    const int held = file_make(HELD), once = file_make(1), last = file_make(ONCE);
    static char *pieces[HELD], *many[ONCE];
    map_and_keep(held, HELD, pieces);
    assert_int_equal(kind_at(pieces[HELD - 1]), MF_MAP_CARVED);

    for (int i = 0; i < IN_VAIN; i++)
        unmap_pages(map_pages(once, PROT_READ, MAP_PRIVATE, 0, 1), 1);
    unsigned before = files_asked;
    for (int i = 0; i < ONCE; i++)
        unmap_pages(map_pages(once, PROT_READ, MAP_PRIVATE, 0, 1), 1);
    assert_in_range(files_asked - before, ONCE / 5, ONCE / 3);

    map_and_keep(last, ONCE, many);
    assert_int_equal(kind_at(many[0]), MF_MAP_PASSED);
    for (unsigned i = ONCE / 4; i < ONCE; i++)
        assert_int_equal(kind_at(many[i]), MF_MAP_CARVED);
    unmap_pages(many[ONCE - 1], 1);
    assert_true(map_and_keep(last, 1, many + ONCE - 1) > 0);

    for (unsigned i = 0; i < HELD; i++)
        unmap_pages(pieces[i], 1);
    unmap_pages(many[ONCE - 1], 1);
    for (unsigned i = 0; i < ONCE - 1; i++)
        unmap_pages(many[i], 1);
    assert_int_equal(extents(), 0);
    assert_int_equal(mf_map_set_options(&folding_at_once), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failing_system_call_is_survived),
        cmocka_unit_test(
            files_that_are_mapped_once_are_asked_for_less_often_and_the_next_still_fold),
        cmocka_unit_test(a_piece_that_cannot_be_moved_in_all_its_parts_stays_whole_where_it_is),
        cmocka_unit_test(what_another_thread_gets_where_a_piece_was_is_left_alone),
    };
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
