/* SPDX-License-Identifier: MIT */
/* Pages that vanish: the SIGBUS handler, and copies that end where they must. CASES 10 to 20. */
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* cmocka has a SIGBUS handler of its own, and sets it before each test. */
static struct sigaction ours;

static void use_our_handler(void)
{
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

static bool all_zero(const void *data, uint64_t length)
{
    const char *p = data;
    for (uint64_t i = 0; i < length; i++)
        if (p[i])
            return false;
    return true;
}

static void a_cut_file_reads_as_zeros_and_check_and_unpin_say_so(void **state)
{
    (void)state;
    use_our_handler();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("cut", 16 * page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0}, v = {0};
    assert_int_equal(mf_window_pin(file, 0, 16 * page, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(truncate(path, 4 * (off_t)page), 0);
    assert_bytes(w.data, 0, 4 * page, 1);
    assert_int_equal(mf_window_check(&w), 0);
    assert_true(all_zero((const char *)w.data + 4 * page, 12 * page));
    assert_int_equal(mf_window_check(&w), -EIO);
    assert_bytes(w.data, 0, 4 * page, 1); /* what is left stays the file's */
    /* No new pin gets the failed extent; the size is looked at. */
    assert_int_equal(mf_window_pin(file, 0, 16 * page, 0, MF_NOWAIT, &v), -ERANGE);
    assert_int_equal(mf_window_pin(file, 0, 4 * page, 0, MF_NOWAIT, &v), 0);
    assert_ptr_not_equal(v.data, w.data);
    assert_bytes(v.data, 0, 4 * page, 1);
    assert_int_equal(mf_window_check(&v), 0);
    /* Grown again: new pins see the file. */
    make_bytes("cut", 16 * page, 2);
    struct mf_window u = {0};
    assert_int_equal(mf_window_pin(file, 0, 16 * page, 0, MF_NOWAIT, &u), 0);
    assert_bytes(u.data, 0, 16 * page, 2);
    assert_int_equal(mf_window_unpin(&u), 0);
    assert_int_equal(mf_window_unpin(&v), 0);
    assert_int_equal(mf_window_unpin(&w), -EIO);
    const struct mf_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.failed, 1);
    mf_file_close(file);
    assert_int_equal(stats_of(pool).maps, 0);
    assert_int_equal(stats_of(pool).bytes_mapped, 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void reads_tell_the_truth_about_a_cut_file(void **state)
{
    (void)state;
    use_our_handler();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("read", 16 * page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 1, 0, MF_NOWAIT, &w), 0); /* it is mapped */
    char *buffer = malloc(16 * page);
    assert_int_equal(mf_read(file, 0, buffer, 16 * page, 0), 16 * page);
    assert_bytes(buffer, 0, 16 * page, 1);
    assert_int_equal(truncate(path, 4 * (off_t)page + 10), 0);
    assert_int_equal(mf_read(file, page, buffer, 15 * page, 0), 3 * page + 10);
    assert_bytes(buffer, page, 3 * page + 10, 1);
    assert_int_equal(mf_read(file, 8 * page, buffer, page, 0), 0);
    assert_int_equal(mf_window_unpin(&w), -EIO);
    assert_int_equal(mf_read(file, UINT64_MAX, buffer, page, 0), -EINVAL);
    free(buffer);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_copy_ends_at_the_exact_byte(void **state)
{
    (void)state;
    use_our_handler();
    const char *path = make_bytes("copy", 2 * page, 1);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *buffer = malloc(3 * page);
    for (size_t length = 0; length < 300; length++)
        for (size_t before = 0; before <= length && before < 80; before += 7) {
            assert_int_equal(mf_copy(buffer, map + page - before, length), length);
            assert_bytes(buffer, page - before, length, 1);
        }
    assert_int_equal(truncate(path, (off_t)page), 0);
    for (size_t length = 0; length < 300; length++)
        for (size_t before = 0; before < 80; before++) {
            const ssize_t want = before >= length ? (ssize_t)length
                                 : before         ? (ssize_t)before
                                                  : -EIO;
            assert_int_equal(mf_copy(buffer, map + page - before, length), want);
            assert_int_equal(mf_copy(map + page - before, buffer + 1, length), want);
            write_bytes(fd, 0, page, 1);
            if (want > 0)
                assert_bytes(map + page - before, page - before, (uint64_t)want, 1);
        }
    errno = 55;
    assert_int_equal(mf_copy(buffer, map + page, 1), -EIO);
    assert_int_equal(errno, 55);
    munmap(map, 2 * page);
    close(fd);
    free(buffer);
}

/* CASES 12 */
static void write_from_a_vanished_window_is_efault(void **state)
{
    (void)state;
    use_our_handler();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("x", 1, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(mf_window_pin(file, 0, 1, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(write(ends[1], w.data, 1), -1);
    assert_int_equal(errno, EFAULT);
    char byte = 'x';
    assert_int_equal(mf_copy(&byte, w.data, 1), -EIO);
    assert_int_equal(byte, 'x');
    assert_int_equal(mf_window_check(&w), -EIO); /* the copy's fault has marked it */
    assert_int_equal(*(volatile const char *)w.data, 0);
    assert_int_equal(mf_window_unpin(&w), -EIO);
    close(ends[0]);
    close(ends[1]);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 12: nor does a copy depend on what becomes of the file. */
static void a_copy_of_a_vanished_byte_can_be_read_and_written_from(void **state)
{
    (void)state;
    use_our_handler();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("x", 1, 1);
    struct mf_file *file = open_file(pool, path, MF_FILE_COPY);
    struct mf_window w = {0}, local = {0};
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(mf_window_pin(file, 0, 1, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(mf_local_pin(file, 0, 1, &local), 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_bytes(w.data, 0, 1, 1);
    assert_bytes(local.data, 0, 1, 1);
    assert_int_equal(write(ends[1], w.data, 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_bytes(&byte, 0, 1, 1);
    assert_int_equal(mf_local_unpin(&local), 0);
    assert_int_equal(mf_window_unpin(&w), 0);
    close(ends[0]);
    close(ends[1]);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* CASES 16: cut to nothing and written again, shorter, while it is pinned. */
static void a_file_written_anew_in_place_shows_its_new_bytes_and_where_it_ends(void **state)
{
    (void)state;
    use_our_handler();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    struct mf_file *file = open_file(pool, make_bytes("anew", 4 * page, 1), 0);
    struct mf_window head = {0}, tail = {0}, w = {0};
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &head), 0);
    assert_int_equal(mf_window_pin(file, page, 3 * page, 0, MF_NOWAIT, &tail), 0);
    make_bytes("anew", page, 2);
    assert_bytes(head.data, 0, page, 2);
    assert_int_equal(mf_window_check(&head), 0);
    assert_true(all_zero(tail.data, 3 * page));
    assert_int_equal(mf_window_unpin(&tail), -EIO);
    assert_int_equal(mf_window_unpin(&head), -EIO); /* the same extent */
    assert_int_equal(mf_window_pin(file, 0, page + 1, 0, MF_NOWAIT, &w), -ERANGE);
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, 0, page, 2);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_thousand_scattered_faults_cost_few_maps(void **state)
{
    (void)state;
    if (emulated())
        skip(); /* qemu-user dies of a system call that meets a page past the file's end */
    use_our_handler();
    enum { PAGES = 2048 };
    struct mf_pool *pool = make_pool(PAGES * page, 64, 4, PAGES * page);
    const char *path = make_bytes("scatter", PAGES * page, 1);
    /* Closed by the limit: the handler cannot ask where the file ends. */
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, PAGES * page, 0, MF_NOWAIT, &w), 0);
    const struct mf_pool_limits one = {PAGES * page, 64, 1};
    assert_int_equal(mf_pool_set_limits(pool, &one), 0);
    struct mf_file *other = open_file(pool, make_bytes("other", page, 1), 0);
    assert_int_equal(truncate(path, 0), 0);
    unsigned lines;
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(((volatile const char *)w.data)[(2 * i + 1) * page], 0);
    mapped_bytes(&lines);
    assert_true(lines <= 40);
    assert_true(stats_of(pool).maps <= 64);
    assert_int_equal(mf_window_unpin(&w), -EIO);
    mf_file_close(file);
    mf_file_close(other);
    assert_int_equal(stats_of(pool).maps, 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* The handler cannot ask for the size: the file was closed, or its descriptor to keep the limit. */
static void a_cut_is_found_without_a_descriptor_and_leaves_the_pages_before_it(void **state)
{
    (void)state;
    use_our_handler();
    if (emulated())
        skip(); /* an emulator does not say which pages can be read */
    enum { PAGES = 64 };
    static const unsigned cuts[] = {1, 2, 31, 32, 33, 50, 63};
    for (unsigned i = 0; i < 2 * sizeof(cuts) / sizeof(cuts[0]); i++) {
        const uint64_t left = cuts[i / 2] * page;
        struct mf_pool *pool = make_pool(PAGES * page, 3, 1, PAGES * page);
        const char *path = make_bytes("unasked", PAGES * page - 9, 1);
        struct mf_file *file = open_file(pool, path, MF_FILE_WRITE), *other = NULL;
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, 0, 33 * page, MF_WRITE, MF_NOWAIT, &w), 0);
        if (i % 2)
            other = open_file(pool, make_bytes("other", page, 1), 0);
        else
            mf_file_close(file);
        assert_int_equal(truncate(path, (off_t)left - 5), 0);
        volatile char *data = mf_window_data_mut(&w);
        for (unsigned k = PAGES; k-- > cuts[i / 2];)
            assert_int_equal(data[k * page], 0);
        assert_bytes((const char *)w.data, 0, left - 5, 1);
        assert_true(all_zero((const char *)w.data + left, PAGES * page - left));
        assert_int_equal(stats_of(pool).maps, 2);
        data[left - page] = 'w'; /* of the last page that is left */
        assert_int_equal(mf_window_unpin(&w), -EIO);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        char byte;
        assert_int_equal(pread(fd, &byte, 1, (off_t)(left - page)), 1);
        assert_int_equal(byte, 'w');
        close(fd);
        if (other)
            mf_file_close(file);
        mf_file_close(other);
        assert_int_equal(mf_pool_destroy(pool), 0);
    }
}

static void repairs_keep_the_budget_of_maps(void **state)
{
    (void)state;
    use_our_handler();
    struct mf_pool *pool = make_pool(64 * page, 1, 4, 64 * page);
    const char *path = make_bytes("budget", 64 * page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 64 * page, 0, MF_NOWAIT, &w), 0);
    assert_int_equal(truncate(path, 32 * (off_t)page), 0);
    assert_int_equal(((volatile const char *)w.data)[63 * page], 0);
    assert_int_equal(stats_of(pool).maps, 1);
    assert_int_equal(mf_window_unpin(&w), -EIO);
    assert_int_equal(mf_window_pin(file, 0, 32 * page, 0, MF_NOWAIT, &w), 0);
    assert_bytes(w.data, 0, 32 * page, 1);
    assert_int_equal(mf_window_unpin(&w), 0);
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

static void a_writer_of_a_vanished_window_lives(void **state)
{
    (void)state;
    use_our_handler();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("writer", 4 * page, 1);
    struct mf_file *file = open_file(pool, path, MF_FILE_WRITE);
    struct mf_window w = {0};
    assert_int_equal(mf_window_pin(file, 0, 4 * page, MF_WRITE, MF_NOWAIT, &w), 0);
    assert_int_equal(truncate(path, (off_t)page), 0);
    memset(mf_window_data_mut(&w), 'w', 4 * page);
    assert_int_equal(mf_window_sync(&w), -EIO);
    assert_int_equal(mf_window_unpin(&w), -EIO);
    char bytes[2];
    assert_int_equal(mf_read(file, page - 1, bytes, 2, 0), 1);
    assert_int_equal(bytes[0], 'w');
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* What must still kill. */

static char *vanished_map(void)
{
    const char *path = make_bytes("foreign", page, 1);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char *map = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
    truncate(path, 0) == 0 ? (void)0 : abort();
    return map;
}

static void touch_a_foreign_map(void)
{
    (void)*(volatile char *)vanished_map();
}

static void touch_after_unpin(void)
{
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("late", page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w);
    const volatile char *data = w.data;
    mf_window_unpin(&w);
    truncate(path, 0) == 0 ? (void)0 : abort();
    (void)*data;
}

static void send_the_signal(void)
{
    raise(SIGBUS);
}

static void touch_with_the_signal_blocked(void)
{
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("blocked", page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w);
    truncate(path, 0) == 0 ? (void)0 : abort();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)*(volatile const char *)w.data;
}

/* A page that went bad and that nobody has touched yet: asynchronous, though of a fault's code. */
static void tell_of_a_bad_page(void)
{
    siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_MCEERR_AO};
    if (syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info) != 0)
        _exit(98);
}

/* A sanitizer's handler is the one that was there before ours; it reports and exits. */
static bool killed(int status)
{
    return SANITIZED ? status != 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

static void a_fault_anywhere_else_kills_as_without_us(void **state)
{
    (void)state;
    use_our_handler();
    void (*const deeds[])(void) = {touch_a_foreign_map, touch_after_unpin, send_the_signal,
                                   tell_of_a_bad_page, touch_with_the_signal_blocked};
    for (unsigned i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
        if (emulated() &&
            (deeds[i] == touch_with_the_signal_blocked || deeds[i] == tell_of_a_bad_page))
            continue; /* an emulator does not die of them */
        const int status = in_child(deeds[i]);
        assert_true(killed(status));
    }
}

static void only_what_befalls_a_page_is_repaired(void **state)
{
    (void)state;
    const struct {
        int code, handled;
    } kinds[] = {{BUS_ADRALN, 0}, {BUS_MCEERR_AO, 0}, {SI_USER, 0},
                 {SI_QUEUE, 0},   {SI_KERNEL, 0},     {99, 0},
                 {BUS_ADRERR, 1}, {BUS_OBJERR, 1},    {BUS_MCEERR_AR, 1}};
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    struct mf_file *file = open_file(pool, make_bytes("kinds", 16 * page, 1), 0);
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct mf_window w = {0};
        assert_int_equal(mf_window_pin(file, 1, 3 * page, 0, MF_NOWAIT, &w), 0);
        siginfo_t info = {.si_signo = SIGBUS, .si_code = kinds[i].code};
        info.si_addr = (void *)(uintptr_t)w.data;
        ucontext_t context = {0};
        const int error = kinds[i].handled ? -EIO : 0;
        assert_int_equal(mf_fault_handle(SIGBUS, &info, &context), kinds[i].handled);
        assert_int_equal(mf_window_check(&w), error);
        if (!error)
            assert_bytes(w.data, 1, 3 * page, 1);
        assert_int_equal(mf_window_unpin(&w), error);
    }
    mf_file_close(file);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

/* Chaining, each in a process of its own that has not installed ours yet. */

static sig_atomic_t called, info_was_right, mask_was_right, on_stack;
static sigjmp_buf back;
static char stack[64 << 10];
static char *foreign;

static void old_handler(int signal, siginfo_t *info, void *context)
{
    (void)context;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    called++;
    info_was_right = signal == SIGBUS && info->si_addr == foreign && info->si_code == BUS_ADRERR;
    mask_was_right =
        sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGBUS) && !sigismember(&mask, SIGUSR2);
    const char *here = __builtin_frame_address(0); /* not a local variable: ASan moves them */
    on_stack = here >= stack && here < stack + sizeof(stack);
    siglongjmp(back, 1);
}

static void touch_foreign(void)
{
    if (sigsetjmp(back, 1) == 0)
        (void)*(volatile char *)foreign;
}

static int chain_main(const char *what)
{
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
    sigaltstack(&alternate, NULL);
    struct sigaction old = {.sa_sigaction = old_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaddset(&old.sa_mask, SIGUSR1);
    if (strcmp(what, "once") == 0)
        old.sa_flags |= SA_RESETHAND;
    if (strcmp(what, "ignore") == 0)
        old = (struct sigaction){.sa_handler = SIG_IGN};
    sigaction(SIGBUS, &old, NULL);
    char byte;
    foreign = vanished_map();
    if (mf_copy(&byte, foreign, 1) >= 0 || mf_copy(&byte, "y", 1) != 1 || byte != 'y')
        return 2; /* without a handler the kernel copies */
    for (int i = 0; i < 2; i++)
        if (mf_fault_install() != 0)
            return 3;
    if (strcmp(what, "ignore") == 0) {
        raise(SIGBUS); /* ignored */
        tell_of_a_bad_page();
        (void)*(volatile char *)foreign;
        return 4; /* not reached: a fault cannot be ignored */
    }
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("chained", page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w);
    if (truncate(path, 0) != 0 || *(volatile const char *)w.data != 0 || called)
        return 5;
    touch_foreign();
    if (called != 1 || !info_was_right || !mask_was_right || !on_stack)
        return 6;
    touch_foreign();
    return called == 2 ? 0 : 7;
}

static void the_handler_that_was_there_is_called_as_the_kernel_would(void **state)
{
    (void)state;
    use_our_handler();
    if (emulated())
        skip();
    assert_int_equal(run_self("chain"), 0);
    const int once = run_self("once"); /* SA_RESETHAND: the second fault kills */
    assert_true(killed(once));
    const int ignored = run_self("ignore");
    assert_true(killed(ignored));
}

/* A program with a handler of its own, which asks ours first. */
static void own_handler(int signal, siginfo_t *info, void *context)
{
    if (!mf_fault_handle(signal, info, context))
        _exit(8);
    called++;
}

static int own_main(void)
{
    struct sigaction own = {.sa_sigaction = own_handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &own, NULL);
    mf_fault_attach();
    struct mf_pool *pool = make_pool(64 * page, 16, 4, 16 * page);
    const char *path = make_bytes("own", page, 1);
    struct mf_file *file = open_file(pool, path, 0);
    struct mf_window w = {0};
    char byte;
    mf_window_pin(file, 0, page, 0, MF_NOWAIT, &w);
    if (truncate(path, 0) != 0 || mf_copy(&byte, w.data, 1) != -EIO || called != 1)
        return 5;
    if (*(volatile const char *)w.data != 0 || mf_window_unpin(&w) != -EIO || called != 2)
        return 6;
    return mf_fault_handle(SIGUSR1, NULL, NULL) == 0 ? 0 : 7;
}

static void a_program_with_its_own_handler_asks_ours(void **state)
{
    (void)state;
    use_our_handler();
    if (emulated())
        skip();
    assert_int_equal(run_self("own"), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        if (begin_directory(NULL) != 0)
            return 9;
        const int status = strcmp(argv[1], "own") == 0 ? own_main() : chain_main(argv[1]);
        end_directory(NULL);
        _exit(status); /* what is open stays open: no leak to look for */
    }
    if (mf_fault_install() != 0 || sigaction(SIGBUS, NULL, &ours) != 0)
        return 9;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_file_reads_as_zeros_and_check_and_unpin_say_so),
        cmocka_unit_test(reads_tell_the_truth_about_a_cut_file),
        cmocka_unit_test(a_copy_ends_at_the_exact_byte),
        cmocka_unit_test(write_from_a_vanished_window_is_efault),
        cmocka_unit_test(a_copy_of_a_vanished_byte_can_be_read_and_written_from),
        cmocka_unit_test(a_file_written_anew_in_place_shows_its_new_bytes_and_where_it_ends),
        cmocka_unit_test(a_thousand_scattered_faults_cost_few_maps),
        cmocka_unit_test(a_cut_is_found_without_a_descriptor_and_leaves_the_pages_before_it),
        cmocka_unit_test(repairs_keep_the_budget_of_maps),
        cmocka_unit_test(a_writer_of_a_vanished_window_lives),
        cmocka_unit_test(a_fault_anywhere_else_kills_as_without_us),
        cmocka_unit_test(only_what_befalls_a_page_is_repaired),
        cmocka_unit_test(the_handler_that_was_there_is_called_as_the_kernel_would),
        cmocka_unit_test(a_program_with_its_own_handler_asks_ours),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
