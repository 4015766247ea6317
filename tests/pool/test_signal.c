/* SPDX-License-Identifier: MIT */
/*
 * Handlers that interrupt a repair, forks beside an install, and a cancellation that comes with a
 * fork. The library is one whose system calls ask us first, so that each comes at its worst moment.
 */
#include "common.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "linux/system.h"

static _Atomic int stalled;                 /* 1: shall stall, 2: does */
static _Atomic int stall_at = SYSTEM_CALLS; /* the call that shall */
static volatile sig_atomic_t interrupt;     /* the next mmap is interrupted by SIGUSR1 */

static void stall(void)
{
    atomic_store(&stalled, 2);
    while (atomic_load(&stalled) == 2)
        usleep(1000);
}

static void wait_for_stall(void)
{
    while (atomic_load(&stalled) != 2)
        usleep(1000);
}

int system_inject(enum system_call call)
{
    if (call == SYSTEM_MMAP && interrupt) {
        interrupt = 0;
        raise(SIGUSR1);
    }
    if ((int)call == atomic_load(&stall_at) && atomic_load(&stalled) == 1)
        stall();
    return 0;
}

size_t system_read_at_most(void)
{
    return SIZE_MAX;
}

/* cmocka has a SIGBUS handler of its own, and sets it before each test. */
static struct sigaction ours;
static sigjmp_buf back;
static volatile sig_atomic_t child;

static void jump_out(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static void fork_here(int signal)
{
    (void)signal;
    child = fork();
}

/* A window of a page that is gone, and what the next repair is interrupted by. */
static struct mf_pool *pool;
static struct mf_file *file;
static struct mf_window window;

static void begin(void (*handler)(int))
{
    const struct sigaction interruption = {.sa_handler = handler};
    assert_int_equal(sigaction(SIGUSR1, &interruption, NULL), 0);
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
    pool = make_pool(16 * page, 8, 4, page);
    const char *path = make_bytes("interrupted", page, 1);
    file = open_file(pool, path, 0);
    assert_int_equal(mf_window_pin(file, 0, page, 0, MF_NOWAIT, &window), 0);
    assert_int_equal(truncate(path, 0), 0);
    interrupt = 1;
}

/* 0 in the end, or what is wrong. */
static int end(void)
{
    alarm(60);
    const int wrong = mf_window_unpin(&window) != -EIO ? 1 : mf_file_close(file) ? 2 : 0;
    if (wrong || mf_pool_destroy(pool) != 0)
        return wrong ? wrong : 3;
    alarm(0);
    return 0;
}

static void a_handler_that_jumps_out_of_a_repair_does_not_keep_a_pool_alive(void **state)
{
    (void)state;
    begin(jump_out);
    volatile bool touched = false;
    if (sigsetjmp(back, 1) == 0) {
        (void)*(volatile const char *)window.data;
        touched = true;
    }
    assert_false(touched);
    assert_int_equal(end(), 0);
}

static void a_handler_that_forks_in_a_repair_leaves_both_processes_sound(void **state)
{
    (void)state;
    begin(fork_here);
    child = -1;
    assert_int_equal(*(volatile const char *)window.data, 0);
    const int wrong = end();
    if (child == 0)
        _exit(wrong);
    int status;
    assert_int_equal(wrong, 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A fork while another thread is in mf_fault_install, before or after the handler is there. */

static _Atomic int stall_install; /* 1: before, 2: after */

int sigaction(int signal, const struct sigaction *new, struct sigaction *old)
{
    static int (*next)(int, const struct sigaction *, struct sigaction *);
    if (!next)
        next = (typeof(next))(uintptr_t)dlsym(RTLD_NEXT, "sigaction");
    if (signal != SIGBUS || !new || !atomic_load(&stall_install))
        return next(signal, new, old);
    const bool before = atomic_exchange(&stall_install, 0) == 1;
    if (before)
        stall();
    const int result = next(signal, new, old);
    if (!before)
        stall();
    return result;
}

static void *install(void *unused)
{
    (void)unused;
    mf_fault_install();
    return NULL;
}

static void handler_before_ours(int signal)
{
    (void)signal;
    _exit(0);
}

static int install_in_child(void)
{
    alarm(60);
    if (mf_fault_install() != 0)
        return 2;
    const char *path = make_bytes("late", page, 1);
    struct mf_file *late = open_file(pool, path, 0);
    struct mf_window w = {0};
    if (mf_window_pin(late, 0, page, 0, MF_NOWAIT, &w) != 0 || truncate(path, 0) != 0)
        return 3;
    if (*(volatile const char *)w.data != 0 || mf_window_unpin(&w) != -EIO)
        return 4;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *foreign = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
    (void)*(volatile char *)foreign; /* handler_before_ours */
    return 5;
}

static int install_main(const char *when)
{
    const struct sigaction before = {.sa_handler = handler_before_ours};
    sigaction(SIGBUS, &before, NULL);
    pool = make_pool(16 * page, 8, 4, page);
    atomic_store(&stall_install, strcmp(when, "before") == 0 ? 1 : 2);
    pthread_t thread;
    if (pthread_create(&thread, NULL, install, NULL) != 0)
        return 6;
    wait_for_stall();
    child = fork();
    if (child == 0)
        _exit(install_in_child());
    int status;
    waitpid(child, &status, 0);
    atomic_store(&stalled, 0);
    pthread_join(thread, NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
}

static void the_child_of_a_fork_beside_an_install_can_install(void **state)
{
    (void)state;
    if (emulated())
        skip();
    assert_int_equal(run_self("before"), 0);
    assert_int_equal(run_self("after"), 0);
}

/* A file that is closed while another thread looks at it: its descriptor is the child's to close.
 */

static void *look(void *unused)
{
    (void)unused;
    mf_window_check(&window);
    return NULL;
}

static void *fork_when_cancelled(void *status)
{
    pthread_cancel(pthread_self());
    const pid_t pid = fork();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    if (pid == 0)
        _exit(7);
    waitpid(pid, status, 0);
    return NULL;
}

static void end_soon(void)
{
    alarm(60);
}

static void a_thread_that_is_to_end_reaches_the_end_of_its_fork(void **state)
{
    (void)state;
    pool = make_pool(16 * page, 8, 4, page);
    file = open_file(pool, make_bytes("closed", page, 1), 0);
    assert_int_equal(mf_window_pin(file, 0, page, MF_CHECK_SIZE, MF_NOWAIT, &window), 0);
    atomic_store(&stall_at, SYSTEM_FSTAT);
    atomic_store(&stalled, 1);
    pthread_t looking, forking;
    assert_int_equal(pthread_create(&looking, NULL, look, NULL), 0);
    wait_for_stall();
    atomic_store(&stall_at, SYSTEM_CALLS);
    assert_int_equal(mf_file_close(file), 0);
    int status = 0;
    assert_int_equal(pthread_create(&forking, NULL, fork_when_cancelled, &status), 0);
    pthread_join(forking, NULL);
    atomic_store(&stalled, 0);
    pthread_join(looking, NULL);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_int_equal(mf_window_unpin(&window), 0);
    assert_int_equal(mf_pool_destroy(pool), 0);
}

int main(int argc, char **argv)
{
    pthread_atfork(NULL, NULL, end_soon); /* before the library's: earlier in the child */
    if (argc > 1) {
        if (begin_directory(NULL) != 0)
            return 9;
        const int status = install_main(argv[1]);
        end_directory(NULL);
        _exit(status); /* what is open stays open: no leak to look for */
    }
    if (mf_fault_install() != 0 || sigaction(SIGBUS, NULL, &ours) != 0)
        return 9;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_that_jumps_out_of_a_repair_does_not_keep_a_pool_alive),
        cmocka_unit_test(a_handler_that_forks_in_a_repair_leaves_both_processes_sound),
        cmocka_unit_test(the_child_of_a_fork_beside_an_install_can_install),
        cmocka_unit_test(a_thread_that_is_to_end_reaches_the_end_of_its_fork),
    };
    return cmocka_run_group_tests(tests, begin_directory, end_directory);
}
