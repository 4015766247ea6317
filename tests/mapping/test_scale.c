/* SPDX-License-Identifier: MIT */
/* Numbers of pieces that end a plain program at vm.max_map_count. */
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE, PIECES = 80000, FILES = 70000, RANDOM = 300000 };

#define LIMIT "/proc/sys/vm/max_map_count"

static char *pieces[RANDOM];
static unsigned sizes[RANDOM];

static long kernel_maps_limit(void)
{
    char text[32] = "";
    const int fd = open(LIMIT, O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    return strtol(text, NULL, 10);
}

static int sparse_file(uint64_t bytes)
{
    const int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

/* CASES 3 */
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

/* A thousand at a time of far more: what tables keep of all that has gone counts, too. */
static void a_thousand_live_pieces_take_64_bytes_of_tables_each(void **state)
{
    (void)state;
    enum { LIVE = 1000, TURNS = 50 * LIVE, FILE_PAGES = (1 << 30) / P };
    static const int protections[] = {PROT_READ, PROT_READ | PROT_WRITE};
    const int fd = sparse_file(1 << 30);
    uint64_t random = 88172645463325252;
    for (unsigned way = 0; way < 2; way++) {
        for (unsigned i = 0; i < TURNS; i++) {
            const unsigned slot = i % LIVE;
            if (i >= LIVE)
                unmap_pages(pieces[slot], sizes[slot]);
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            sizes[slot] = 1 + (unsigned)(random % 64);
            pieces[slot] = map_pages(fd, protections[way], MAP_PRIVATE,
                                     (unsigned)(random >> 20) % (FILE_PAGES - 64), sizes[slot]);
        }
        struct mf_map_stats stats;
        mf_map_stats(&stats);
        print_message("%.1f bytes of tables for each of 1,000 live pieces\n",
                      (double)stats.metadata_bytes / LIVE);
        assert_in_range(stats.metadata_bytes, 1, 64 * LIVE);
        for (unsigned i = 0; i < LIVE; i++)
            unmap_pages(pieces[i], sizes[i]);
    }
    close(fd);
}

static int reader_of(int fd)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int reader = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(reader >= 0);
    close(fd);
    return reader;
}

static void small_files_keep(int flags)
{
    for (unsigned i = 0; i < FILES; i++) {
        const int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        assert_int_equal(pwrite(fd, &i, sizeof(i), 0), sizeof(i));
        const int reader = reader_of(fd);
        pieces[i] = map_pages(reader, PROT_READ, flags, 0, 1);
        close(reader);
    }
    assert_true(kernel_maps() < 40000);
    for (unsigned i = 0; i < FILES; i++) {
        assert_memory_equal(pieces[i], &i, sizeof(i));
        unmap_pages(pieces[i], 1);
    }
}

/* CASES 1 */
static void many_small_files_mapped_private_and_kept(void **state)
{
    (void)state;
    small_files_keep(MAP_PRIVATE);
}

/* Four files again and again, shared. How many pieces there were before the kernel refused one. */
static unsigned four_files_keep(const int *files)
{
    unsigned count = 0;
    for (; count < FILES; count++) {
        pieces[count] = mf_mmap(NULL, P, PROT_READ, MAP_SHARED, files[count % 4], 0);
        if (pieces[count] == MAP_FAILED)
            break;
    }
    for (unsigned i = 0; i < count; i++) {
        assert_true(page_is(pieces[i], 0));
        unmap_pages(pieces[i], 1);
    }
    return count;
}

/* CASES 1: shared, of different files or more deeply than the extents of one allow. */
static void what_is_shared_meets_the_limit_unless_it_may_be_a_snapshot(void **state)
{
    (void)state;
    struct mf_map_options before, options;
    mf_map_get_options(&before);
    int files[4];
    for (int i = 0; i < 4; i++)
        files[i] = reader_of(file_make(1));
    struct mf_map_stats stats;
    const unsigned count = four_files_keep(files);
    mf_map_stats(&stats);
    assert_true(count == FILES ? kernel_maps_limit() > FILES : stats.refused_maps > 0);
    options = before;
    options.snapshot = 1;
    assert_int_equal(mf_map_set_options(&options), 0);
    assert_int_equal(four_files_keep(files), FILES);
    small_files_keep(MAP_SHARED);
    assert_int_equal(mf_map_set_options(&before), 0);
    for (int i = 0; i < 4; i++)
        close(files[i]);
}

/* Each page with another protection than the one before it. */
static bool maps_use_up(unsigned count)
{
    char *region = mmap(NULL, (size_t)count * P, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (unsigned i = 0; region != MAP_FAILED && i < count; i += 2)
        if (mprotect(region + (size_t)i * P, P, PROT_READ) != 0)
            return false;
    return region != MAP_FAILED;
}

static void small_name(char *name, unsigned i)
{
    snprintf(name, 32, "./small-%u", i);
}

/* Makes and maps files of 64 KiB until the kernel refuses one; half are unmapped before the end. */
static bool files_write_until_refused(unsigned most)
{
    char name[32];
    unsigned i = 0;
    for (; i < most; i++) {
        small_name(name, i);
        const int fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, 16 * P) != 0)
            return false;
        pieces[i] = mf_mmap(NULL, 16 * P, RW, MAP_SHARED, fd, 0);
        close(fd);
        if (pieces[i] == MAP_FAILED)
            break;
        memcpy(pieces[i], "begin...", 8);
        memcpy(pieces[i] + 16 * P - 8, "...ended", 8);
    }
    if (i == most || errno != ENOMEM || unlink(name) != 0)
        return false;
    for (unsigned j = 0; j < i; j += 2)
        if (mf_munmap(pieces[j], 16 * P) != 0)
            return false;
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    return stats.refused_maps > 0;
}

static unsigned files_check_and_remove(void)
{
    char name[32], bytes[16] = "";
    for (unsigned i = 0;; i++) {
        small_name(name, i);
        const int fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return i;
        assert_int_equal(lseek(fd, 0, SEEK_END), 16 * P);
        assert_int_equal(pread(fd, bytes, 8, 0), 8);
        assert_int_equal(pread(fd, bytes + 8, 8, 16 * P - 8), 8);
        assert_memory_equal(bytes, "begin......ended", 16);
        close(fd), unlink(name);
    }
}

/* CASES 4: different files shared have no fold; what was written before the limit is there. */
static void files_written_up_to_the_limit_have_their_bytes(void **state)
{
    (void)state;
    enum { LEFT = 400 };
    const long limit = kernel_maps_limit();
    if (limit > 200000)
        skip();
    files_check_and_remove();
    const pid_t child = fork();
    if (child == 0)
        _exit(maps_use_up((unsigned)(limit - LEFT - (long)kernel_maps())) &&
                      files_write_until_refused(2 * LEFT)
                  ? 0
                  : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(files_check_and_remove() > LEFT / 4);
    assert_int_equal(status, 0);
}

static bool is_kind(const char *piece, enum mf_map_kind kind)
{
    struct mf_map_info info;
    return mf_map_query(piece, &info) == 0 && info.kind == kind;
}

static bool snapshots_are_as_told(int fd)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int reader = open(path, O_RDONLY | O_CLOEXEC);
    struct mf_map_options options;
    mf_map_get_options(&options);
    for (int i = 0; i < 7; i++) /* files are not looked at before there are a few pieces */
        if (mf_mmap(NULL, P, RW, MAP_SHARED, fd, 0) == MAP_FAILED)
            return false;
    char *live = mf_mmap(NULL, P, PROT_READ, MAP_SHARED, reader, P);
    options.snapshot = 1;
    if (mf_map_set_options(&options) != 0 || !is_kind(live, MF_MAP_PASSED))
        return false;
    char *writable = mf_mmap(NULL, P, PROT_READ, MAP_SHARED, fd, P);
    char *before = mf_mmap(NULL, P, PROT_READ, MAP_PRIVATE, reader, P);
    char *copy = mf_mmap(NULL, P, PROT_READ, MAP_SHARED, reader, P);
    if (!is_kind(before, MF_MAP_COPIED) || copy != before + P)
        return false;
    if (!is_kind(writable, MF_MAP_PASSED) || !is_kind(copy, MF_MAP_COPIED) || !page_is(copy, 1))
        return false;
    if (mf_mprotect(copy, P, RW) != -1 || errno != EACCES)
        return false;
    if (mf_mprotect(before, 2 * P, RW) != -1 || errno != EACCES)
        return false;
    before[0] = 'w'; /* what lies before the first page that may not be changed is */
    return pwrite(fd, "x", 1, P) == 1 && live[0] == 'x' && writable[0] == 'x' && page_is(copy, 1) &&
           mf_munmap(before, 2 * P) == 0;
}

static void a_snapshot_is_a_copy_of_what_is_shared_and_read_only(void **state)
{
    (void)state;
    if (kernel_maps_limit() > 70000)
        skip(); /* half of it is more than is used up here */
    const int fd = file_make(4);
    const pid_t child = fork();
    if (child == 0)
        _exit(maps_use_up(40000) && snapshots_are_as_told(fd) ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(fd);
}

static void *thread_main(void *argument)
{
    return argument;
}

static bool can_go_on(void)
{
    pthread_t thread;
    void *back;
    char token;
    if (pthread_create(&thread, NULL, thread_main, &token) != 0 ||
        pthread_join(thread, &back) != 0 || back != &token)
        return false;
    for (int i = 0; i < 20; i++)
        if (malloc((size_t)64 << 20) == NULL)
            return false;
    return true;
}

static unsigned map_until_refused(int fd)
{
    unsigned count = 0;
    while (count < RANDOM) {
        pieces[count] = mf_mmap(NULL, 4 * P, PROT_READ, MAP_SHARED, fd, 0);
        if (pieces[count] == MAP_FAILED)
            break;
        count++;
    }
    return count;
}

/* Shared pieces of more files than the limit have no fold; here one is never promoted. */
static void at_the_limit_threads_memory_and_changes_of_parts_still_work(void **state)
{
    (void)state;
    struct mf_map_options before, options;
    mf_map_get_options(&before);
    options = before;
    options.promote_pieces = 1;
    assert_int_equal(mf_map_set_options(&options), 0);
    const int fd = file_make(16), other = file_make(4);
    char *folded = map_pages(fd, RW, MAP_SHARED, 0, 12);
    assert_int_equal(kind_at(folded), MF_MAP_CARVED);
    options.promote_pieces = 1 << 20;
    assert_int_equal(mf_map_set_options(&options), 0);
    const unsigned count = map_until_refused(other);
    assert_int_equal(errno, ENOMEM);
    if (count < RANDOM) { /* vm.max_map_count is not out of reach */
        assert_true(can_go_on());
        assert_int_equal(mf_mprotect(folded + 3 * P, P, PROT_READ), 0);
        assert_int_equal(mf_munmap(folded + 6 * P, P), 0);
        assert_int_equal(mf_munmap(pieces[count / 2] + P, P), 0);
        assert_ptr_equal(mf_mmap(NULL, P, PROT_READ, MAP_SHARED, other, 0), MAP_FAILED);
        assert_int_equal(errno, ENOMEM);
        for (unsigned i = 0; i < 1000; i++)
            unmap_pages(pieces[i], 4);
        for (unsigned i = 0; i < 500; i++)
            pieces[i] = map_pages(other, PROT_READ, MAP_SHARED, 0, 4);
    }
    for (unsigned i = count == RANDOM ? 0 : 1000; i < count; i++)
        unmap_pages(pieces[i], 4);
    unmap_pages(folded, 12);
    assert_int_equal(mf_map_set_options(&before), 0);
}

enum { FILES_AT_MOST = 1024, KINDS = 4, DEPTHS = 4 };

static uint64_t passed_for_extents(void)
{
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    return stats.passed[MF_PASS_EXTENTS];
}

/* All extents that there can be, by kind and depth: in a child, which ends with them. */
static bool extents_are_used_up(void)
{
    struct mf_map_options options;
    mf_map_get_options(&options);
    options.promote_pieces = 1;
    if (mf_map_set_options(&options) != 0)
        return false;
    for (int i = 0; i < FILES_AT_MOST; i++) {
        const int fd = memfd_create("many", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, P) != 0)
            return false;
        for (int j = 0; j < KINDS * DEPTHS; j++)
            if (mf_mmap(NULL, P, j & 1 ? RW : PROT_READ, j & 2 ? MAP_PRIVATE : MAP_SHARED, fd, 0) ==
                MAP_FAILED)
                return false;
        close(fd);
    }
    const int fd = file_make(4);
    const uint64_t before = passed_for_extents();
    char *piece = mf_mmap(NULL, P, RW, MAP_SHARED, fd, 2 * P);
    return extents() == (uint64_t)FILES_AT_MOST * KINDS * DEPTHS && piece != MAP_FAILED &&
           page_is(piece, 2) && passed_for_extents() == before + 1 && mf_munmap(piece, P) == 0;
}

static void beyond_the_most_extents_pieces_go_to_the_kernel_and_are_told_apart(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0)
        _exit(extents_are_used_up() ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Until we end, no test that raises the limit for the whole machine runs. */
static int hold_the_limit(void **state)
{
    (void)state;
    const int fd = open(LIMIT, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : flock(fd, LOCK_SH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_is_a_copy_of_what_is_shared_and_read_only),
        cmocka_unit_test(each_page_of_a_file_by_a_call_of_its_own_in_both_orders),
        cmocka_unit_test(pieces_of_many_sizes_at_random_offsets),
        cmocka_unit_test(a_thousand_live_pieces_take_64_bytes_of_tables_each),
        cmocka_unit_test(many_small_files_mapped_private_and_kept),
        cmocka_unit_test(what_is_shared_meets_the_limit_unless_it_may_be_a_snapshot),
        cmocka_unit_test(files_written_up_to_the_limit_have_their_bytes),
        cmocka_unit_test(at_the_limit_threads_memory_and_changes_of_parts_still_work),
        cmocka_unit_test(beyond_the_most_extents_pieces_go_to_the_kernel_and_are_told_apart),
    };
    return cmocka_run_group_tests(tests, hold_the_limit, NULL);
}
