/* SPDX-License-Identifier: MIT */
/* Windows where two promises meet: copies and budgets, ends of files, threads and files that end.
 */
#include "common.h"

#include <linux/loop.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

static void end(struct mf_pool *pool, struct mf_file *file)
{
    assert_int_equal(stats_of(pool).pinned, 0);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void where_a_copy_has_no_room_a_map_serves(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(page, 4, 4, page);
    struct mf_file *a = open_file(pool, make_bytes("a", page, 1), 0);
    struct mf_file *b = open_file(pool, make_bytes("b", page, 2), 0);
    struct mf_window w = {0}, x = {0};
    assert_int_equal(mf_window_pin(a, 0, page, MF_MAY_COPY, MF_FOREVER, &w), 0);
    assert_bytes(w.data, 0, page, 1);
    assert_int_equal(mf_window_pin(b, 0, 9, MF_MAY_COPY, MF_NOWAIT, &x), -EAGAIN);
    assert_int_equal(mf_window_pin(b, 0, 9, MF_MAY_COPY, mf_deadline_in(1000000), &x), -ETIMEDOUT);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_file_close(b), 0);
    end(pool, a);
}

static void an_empty_window_at_any_end_has_its_zero_byte(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 4, 4, page);
    struct mf_file *file = open_file(pool, make_bytes("a", 100, 1), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 100, 0, MF_ZERO_END, MF_NOWAIT, &w), 0);
    assert_non_null(w.data);
    assert_int_equal(*(const char *)w.data, 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    end(pool, file);
}

static void the_zero_byte_is_there_whatever_a_writer_has_put_after_the_end(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 4, 4, page);
    const char *path = make_bytes("a", 100, 1);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char *map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    for (int dirty = 0; dirty < 2; dirty++) {
        assert_int_equal(mf_window_pin(file, 50, 50, MF_ZERO_END, MF_NOWAIT, &w), 0);
        assert_bytes(w.data, 50, 50, 1);
        assert_int_equal(((const char *)w.data)[50], 0);
        assert_int_equal(mf_window_unpin(&w), 0);
        map[100] = 'x';
    }
    munmap(map, page);
    close(fd);
    end(pool, file);
}

static void what_the_kernel_does_not_map_is_copied_if_allowed(void **state)
{
    (void)state;
    const char *path = "/sys/kernel/notes"; /* has a size, and no mmap */
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        skip();
    close(fd);
    struct mf_pool *pool = make_pool(64 * page, 4, 4, page);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mf_window_pin(file, 0, 16, MF_MAY_COPY, MF_NOWAIT, &w), 0);
        assert_true(w.flags & MF_WINDOW_COPY);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    end(pool, file);
}

/* A loop device on a file; -1 where there is none to be had. */
static int make_device(int backing, char *path, size_t room)
{
    const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    if (control >= 0)
        close(control);
    snprintf(path, room, "/dev/loop%d", number);
    const int device = number < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (device >= 0 && ioctl(device, LOOP_SET_FD, backing) == 0)
        return device;
    if (device >= 0)
        close(device);
    return -1;
}

/* CASES 20 */
static void a_device_ends_where_it_ends(void **state)
{
    (void)state;
    char path[32];
    const int backing = open(make_bytes("disk", 4 * page, 1), O_RDWR | O_CLOEXEC);
    const int device = make_device(backing, path, sizeof(path));
    close(backing);
    if (device < 0)
        skip();
    struct mf_pool *pool = make_pool(64 * page, 4, 4, 16 * page);
    struct mf_file *file = NULL;
    const int err = mf_file_open(pool, path, 0, &file);
    struct mf_window w[3] = {{0}};
    int results[3] = {1, 1, 1};
    if (!err) {
        results[0] = mf_window_pin(file, 0, 4 * page + 1, 0, MF_NOWAIT, &w[0]);
        results[1] = mf_window_pin(file, 0, 4 * page, 0, MF_NOWAIT, &w[1]);
        results[2] = mf_window_pin(file, page, 3 * page, MF_ZERO_END, MF_NOWAIT, &w[2]);
    }
    ioctl(device, LOOP_CLR_FD, 0); /* takes effect when nobody has it open any more */
    close(device);
    assert_int_equal(err, 0);
    assert_int_equal(results[0], -ERANGE);
    assert_int_equal(results[1], 0);
    assert_int_equal(results[2], 0);
    assert_bytes(w[1].data, 0, 4 * page, 1);
    assert_bytes(w[2].data, page, 3 * page, 1);
    assert_int_equal(((const char *)w[2].data)[3 * page], 0);
    assert_int_equal(mf_window_unpin(&w[1]), 0);
    assert_int_equal(mf_window_unpin(&w[2]), 0);
    end(pool, file);
}

static void a_struct_in_use_is_refused_whoever_pinned_it(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 4, 4, page);
    struct mf_file *file = open_file(pool, make_bytes("a", page, 1), 0);
    struct mf_window window = {0}, local = {0};
    assert_int_equal(mf_window_pin(file, 0, 10, 0, MF_NOWAIT, &window), 0);
    assert_int_equal(mf_local_pin(file, 0, 10, &window), -EINVAL);
    assert_int_equal(mf_local_pin(file, 0, 10, &local), 0);
    assert_int_equal(mf_local_pin(file, 0, 10, &local), -EINVAL);
    assert_int_equal(mf_window_pin(file, 0, 10, 0, MF_NOWAIT, &local), -EINVAL);
    assert_int_equal(mf_window_unpin(&local), -EINVAL);
    assert_int_equal(mf_local_unpin(&window), -EINVAL);
    assert_int_equal(mf_local_unpin(&local), 0);
    assert_int_equal(mf_window_unpin(&window), 0);
    end(pool, file);
}

static void a_window_outlives_its_closed_file_in_every_respect(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 4, 4, page);
    struct mf_file *file = open_file(pool, make_bytes("a", page, 1), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 10, MF_CHECK_SIZE, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_file_close(file), 0);
    assert_int_equal(mf_window_check(&w), 0);
    assert_bytes(w.data, 0, 10, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static struct mf_file *the_file;
static _Atomic bool stop;

static void *pin_copies(void *unused)
{
    (void)unused;
    struct mf_window w = {0};
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        if (mf_window_pin(the_file, 0, 60000, 0, MF_NOWAIT, &w) == 0)
            mf_window_unpin(&w);
    return NULL;
}

static void copies_under_way_do_not_show_as_maps(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(1 << 20, 16, 4, 1 << 16);
    the_file = open_file(pool, make_bytes("a", 60000, 1), MF_FILE_COPY);
    atomic_store(&stop, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pin_copies, NULL), 0);
    for (int i = 0; i < 200000; i++)
        assert_int_equal(stats_of(pool).bytes_mapped, 0);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    end(pool, the_file);
}

static pthread_key_t key;
static struct mf_window of_thread;
static int unpinned_late;

static void unpin_late(void *unused)
{
    (void)unused;
    unpinned_late = mf_local_unpin(&of_thread);
}

static void *leave_a_local_window(void *late)
{
    for (int i = 0; i < 3; i++) { /* a copy, then the extent */
        if (mf_local_pin(the_file, 0, 10, &of_thread))
            return NULL;
        if (i < 2)
            mf_local_unpin(&of_thread);
    }
    if (late)
        pthread_setspecific(key, &of_thread);
    return &of_thread;
}

static void local_windows_end_with_their_thread(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(64 * page, 4, 4, page);
    the_file = open_file(pool, make_bytes("a", page, 1), 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(the_file, 0, 1, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    assert_int_equal(pthread_key_create(&key, unpin_late), 0); /* after the library's own */
    for (uintptr_t late = 0; late < 2; late++) {
        memset(&of_thread, 0, sizeof(of_thread));
        unpinned_late = 1;
        pthread_t thread;
        void *result;
        assert_int_equal(pthread_create(&thread, NULL, leave_a_local_window, (void *)late), 0);
        pthread_join(thread, &result);
        assert_non_null(result);
        assert_int_equal(unpinned_late, late ? 0 : 1);
        assert_int_equal(stats_of(pool).pinned, 0);
    }
    pthread_key_delete(key);
    end(pool, the_file);
}

/* Calls all that may open, close, read or wait; what it did is undone by whoever finds it. */
static __attribute__((noinline)) void use_all(void)
{
    struct mf_pool *pool = make_pool(4 * page, 2, 1, 2 * page);
    struct mf_file *a = open_file(pool, path_of("a"), MF_FILE_WRITE);
    struct mf_file *b = open_file(pool, path_of("b"), MF_FILE_WRITE);
    char buffer[9];
    for (unsigned i = 0; i < 12; i++) {
        struct mf_file *file = i % 2 ? a : b;
        const uint64_t offset = i % 3 * 2 * page;
        const uint32_t flags = i % 4 == 0 ? MF_WRITE : i % 4 == 1 ? MF_MAY_COPY : MF_CHECK_SIZE;
        struct mf_window w = {0}, local = {0};
        assert_int_equal(mf_window_pin(file, offset, 9, flags, MF_FOREVER, &w), 0);
        assert_int_equal(mf_local_pin(file, offset, 9, &local), 0);
        assert_int_equal(mf_read(file, offset, buffer, 9, MF_CHECK_SIZE), 9);
        assert_int_equal(mf_write(file, offset, buffer, 9), 9);
        assert_int_equal(mf_file_size(file), 6 * page);
        assert_int_equal(mf_file_prefetch(file, 0, page), 0);
        assert_int_equal(mf_window_check(&w), 0);
        assert_int_equal(mf_window_sync(&w), flags & MF_WRITE ? 0 : -EACCES);
        assert_int_equal(mf_local_unpin(&local), 0);
        assert_int_equal(mf_window_unpin(&w), 0);
    }
    const struct mf_pool_limits limits = {2 * page, 1, 1};
    assert_int_equal(mf_pool_set_limits(pool, &limits), 0);
    assert_int_equal(mf_file_forget(a), 0);
    assert_int_equal(mf_file_close(a), 0);
    end(pool, b);
}

/* Without variables: AddressSanitizer does not see that their frame is left by the cancellation. */
static void *use_all_while_cancelled(void *untouched)
{
    pthread_cancel(pthread_self()); /* takes effect at the first cancellation point */
    use_all();
    *(bool *)untouched = true;
    pthread_testcancel();
    *(bool *)untouched = false;
    return NULL;
}

static void no_call_is_a_cancellation_point(void **state)
{
    (void)state;
    make_bytes("a", 6 * page, 1);
    make_bytes("b", 6 * page, 2);
    bool untouched = false;
    void *result;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_all_while_cancelled, &untouched), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_true(untouched);
}

static _Atomic bool stop;

static void *map_and_unmap(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        char *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (unsigned i = 0; memory != MAP_FAILED && i < 200; i++)
            *(volatile char *)(memory + i) = 1;
        munmap(memory, page);
    }
    return NULL;
}

/* In sysfs it is the file's own mmap that fails, when the kernel has already unmapped what was in
 * the way. */
static void a_file_that_cannot_be_mapped_takes_no_memory_of_other_threads(void **state)
{
    (void)state;
    struct mf_pool *pool = make_pool(page, 1, 4, page);
    struct mf_file *file = open_file(pool, make_bytes("a", 8 * page, 1), 0), *sysfs;
    if (mf_file_open(pool, "/sys/kernel/uevent_seqnum", 0, &sysfs)) {
        end(pool, file);
        skip();
    }
    atomic_store(&stop, false);
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, map_and_unmap, NULL), 0);
    struct mf_window w = {0};
    for (unsigned i = 0; i < 5000; i++) {
        assert_int_equal(mf_window_pin(file, i % 8 * page, 10, 0, MF_FOREVER, &w), 0);
        assert_bytes(w.data, i % 8 * page, 10, 1);
        assert_int_equal(mf_window_unpin(&w), 0);
        assert_int_equal(mf_window_pin(sysfs, 0, 1, 0, MF_FOREVER, &w), -ENODEV);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(mf_file_close(sysfs), 0);
    end(pool, file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_a_copy_has_no_room_a_map_serves),
        cmocka_unit_test(an_empty_window_at_any_end_has_its_zero_byte),
        cmocka_unit_test(the_zero_byte_is_there_whatever_a_writer_has_put_after_the_end),
        cmocka_unit_test(what_the_kernel_does_not_map_is_copied_if_allowed),
        cmocka_unit_test(a_device_ends_where_it_ends),
        cmocka_unit_test(a_struct_in_use_is_refused_whoever_pinned_it),
        cmocka_unit_test(a_window_outlives_its_closed_file_in_every_respect),
        cmocka_unit_test(copies_under_way_do_not_show_as_maps),
        cmocka_unit_test(local_windows_end_with_their_thread),
        cmocka_unit_test(no_call_is_a_cancellation_point),
        cmocka_unit_test(a_file_that_cannot_be_mapped_takes_no_memory_of_other_threads),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
