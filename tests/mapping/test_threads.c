/* SPDX-License-Identifier: MIT */
/* Threads, forks and signal handlers in the middle of each other's calls. */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

#include "helpers.h"

enum { RW = PROT_READ | PROT_WRITE, THREADS = 4, FORKS = 300, PAGES = 64 };

static int files[THREADS];
static atomic_bool stop;
static atomic_uint wrong;

/* Maps, checks, writes and unmaps pieces of one file until it is told to stop. */
static void *worker(void *argument)
{
    const int fd = files[(uintptr_t)argument];
    unsigned random = (unsigned)(uintptr_t)argument * 7919 + 1;
    while (!atomic_load(&stop)) {
        random = random * 1103515245 + 12345;
        const unsigned page = random >> 8 & (PAGES - 1), kind = random >> 20;
        const int flags = kind & 1 ? MAP_PRIVATE : MAP_SHARED;
        char *piece = mf_mmap(NULL, P, kind & 2 ? RW : PROT_READ, flags, fd, (off_t)page * P);
        if (piece == MAP_FAILED || !page_is(piece, page))
            atomic_fetch_add(&wrong, 1);
        if ((kind & 3) == 3)
            piece[8] = 'x';
        if (mf_munmap(piece, P) != 0)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

static void start(pthread_t *threads, int fd_each)
{
    atomic_store(&stop, false);
    atomic_store(&wrong, 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        if (fd_each || i == 0)
            files[i] = file_make(PAGES);
        else
            files[i] = files[0];
        assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)i), 0);
    }
}

static void finish(pthread_t *threads, int fd_each)
{
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < (fd_each ? THREADS : 1); i++)
        close(files[i]);
    assert_int_equal(atomic_load(&wrong), 0);
}

/* CASES 44 */
static void children_of_a_busy_parent_can_map_and_unmap(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    start(threads, 0);
    char *piece = map_pages(files[0], RW, MAP_PRIVATE, 5, 2);
    piece[0] = 'p';
    for (int i = 0; i < FORKS; i++) {
        const pid_t child = fork();
        if (child == 0) {
            bool right = piece[0] == 'p' && page_is(piece + P, 6);
            for (unsigned j = 0; j < 20 && right; j++) {
                char *mine = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, files[0], (off_t)j * P);
                right = mine != MAP_FAILED && page_is(mine, j) && page_is(mine + P, j + 1);
                if (right)
                    mine[P] = 'c';
                right = right && mf_munmap(mine, 2 * P) == 0;
            }
            right = right && mf_munmap(piece, 2 * P) == 0;
            _exit(right ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(piece[0], 'p');
    unmap_pages(piece, 2);
    finish(threads, 0);
}

/* To the kernel a copy is anonymous memory: what would drop its bytes, or grow it by zeros. */
static bool copy_is_no_anonymous_memory(char *copy)
{
    if (mf_madvise(copy, P, MADV_FREE) == 0 || errno != EINVAL ||
        mf_madvise(copy, P, MADV_WIPEONFORK) == 0 || errno != EINVAL ||
        mf_madvise(copy, P, MADV_REMOVE) == 0 || errno != EACCES)
        return false;
    if (mf_mremap(copy, P, P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED ||
        errno != EINVAL)
        return false;
    char *grown = mf_mremap(copy, P, 2 * P, MREMAP_MAYMOVE, NULL);
    return grown == MAP_FAILED ? errno == ENOMEM && page_is(copy, 0)
                               : page_is(grown, 0) && page_is(grown + P, 1);
}

/*
 * In a child whose tables were torn, a copy whose bytes cannot be brought back keeps them; they are
 * never zeros.
 */
static void a_child_of_a_busy_parent_never_loses_the_bytes_of_a_copy(void **state)
{
    (void)state;
    enum { DEEP = 40 };
    pthread_t threads[THREADS];
    const int fd = file_make(2);
    char *pieces[DEEP];
    for (int i = 0; i < DEEP; i++)
        pieces[i] = map_pages(fd, RW, MAP_PRIVATE, 0, 1);
    assert_int_equal(kind_at(pieces[DEEP - 1]), MF_MAP_COPIED);
    start(threads, 0);
    for (int i = 0; i < FORKS; i++) {
        const pid_t child = fork();
        if (child == 0) {
            bool right = true;
            for (int j = 0; j < DEEP && right; j++)
                right = mf_madvise(pieces[j], P, MADV_DONTNEED) == 0 && page_is(pieces[j], 0);
            _exit(right && copy_is_no_anonymous_memory(pieces[DEEP - 1]) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    finish(threads, 0);
    for (int i = 0; i < DEEP; i++)
        unmap_pages(pieces[i], 1);
    close(fd);
}

struct server {
    int fd;         /* of the userfaultfd */
    char *unmapped; /* a piece that it unmaps before it answers */
};

/* Answers one fault, and calls the layer before it does. */
static void *fault_serve(void *context)
{
    static char page[P];
    const struct server *server = context;
    struct uffd_msg message;
    if (read(server->fd, &message, sizeof(message)) != sizeof(message) ||
        mf_munmap(server->unmapped, P) != 0)
        return context;
    memset(page, 'u', P);
    struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(uint64_t)(P - 1),
                               .src = (uintptr_t)page,
                               .len = P};
    return ioctl(server->fd, UFFDIO_COPY, &copy) == 0 ? NULL : context;
}

static void populating_waits_for_a_thread_that_unmaps(void **state)
{
    (void)state;
    const int fd = memfd_create("pieces", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 8 * P) == 0);
    struct server server = {.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC)};
    struct uffdio_api api = {.api = UFFD_API};
    if (server.fd < 0 || ioctl(server.fd, UFFDIO_API, &api) != 0)
        skip(); /* not allowed here */
    char *piece = map_pages(fd, RW, MAP_SHARED, 5, 1);
    server.unmapped = map_pages(fd, RW, MAP_SHARED, 2, 1);
    assert_int_equal(kind_at(piece), MF_MAP_CARVED);
    struct uffdio_register wanted = {.range = {(uintptr_t)piece, P},
                                     .mode = UFFDIO_REGISTER_MODE_MISSING};
    assert_int_equal(ioctl(server.fd, UFFDIO_REGISTER, &wanted), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fault_serve, &server), 0);
    assert_int_equal(mf_madvise(piece, P, 22 /* MADV_POPULATE_READ */), 0);
    void *failed;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(piece[7], 'u');
    unmap_pages(piece, 1);
    assert_int_equal(extents(), 0);
    close(server.fd), close(fd);
}

/* Takes note of pages that go, and calls the layer before it does. */
static void *removal_serve(void *context)
{
    const struct server *server = context;
    struct pollfd pending = {.fd = server->fd, .events = POLLIN};
    struct uffd_msg message;
    if (poll(&pending, 1, -1) != 1 || mf_munmap(server->unmapped, P) != 0 ||
        read(server->fd, &message, sizeof(message)) != sizeof(message))
        return context;
    return message.event == UFFD_EVENT_REMOVE ? NULL : context;
}

static void dropping_pages_waits_for_a_thread_that_unmaps(void **state)
{
    (void)state;
    static const int advices[] = {MADV_REMOVE, MADV_DONTNEED};
    for (int i = 0; i < 2; i++) {
        const int fd = memfd_create("pieces", MFD_CLOEXEC);
        assert_true(fd >= 0 && ftruncate(fd, 8 * P) == 0);
        struct server server = {.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC)};
        struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE};
        if (server.fd < 0 || ioctl(server.fd, UFFDIO_API, &api) != 0)
            skip(); /* not allowed here */
        char *piece = map_pages(fd, RW, MAP_SHARED, 5, 1);
        server.unmapped = map_pages(fd, RW, MAP_SHARED, 2, 1);
        struct uffdio_register wanted = {.range = {(uintptr_t)piece, P},
                                         .mode = UFFDIO_REGISTER_MODE_MISSING};
        assert_int_equal(ioctl(server.fd, UFFDIO_REGISTER, &wanted), 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, removal_serve, &server), 0);
        assert_int_equal(mf_madvise(piece, P, advices[i]), 0);
        void *failed;
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
        close(server.fd);
        unmap_pages(piece, 1);
        assert_int_equal(extents(), 0);
        close(fd);
    }
}

static void threads_on_one_file_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    start(threads, 0);
    usleep(300000);
    finish(threads, 0);
    assert_int_equal(extents(), 0);
}

static void threads_on_files_of_their_own_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    start(threads, 1);
    usleep(300000);
    finish(threads, 1);
    assert_int_equal(extents(), 0);
}

static atomic_uint handled, handler_wrong;
static int handler_file;

/* One signal, some microseconds from now: the next is asked for when this one has been handled. */
static void alarm_soon(unsigned round)
{
    const struct itimerval once = {{0, 0}, {0, 1 + round * 7 % 97}};
    assert_int_equal(setitimer(ITIMER_REAL, &once, NULL), 0);
}

static void map_in_handler(int number)
{
    (void)number;
    const int saved = errno;
    char *piece = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, handler_file, 3 * P);
    if (piece == MAP_FAILED || !page_is(piece, 3) || !page_is(piece + P, 4))
        atomic_fetch_add(&handler_wrong, 1);
    piece[0] = 'h';
    if (mf_mprotect(piece, P, PROT_READ) != 0 || mf_munmap(piece, 2 * P) != 0)
        atomic_fetch_add(&handler_wrong, 1);
    atomic_fetch_add(&handled, 1);
    errno = saved;
}

static void a_handler_may_map_and_unmap_in_the_middle_of_a_call(void **state)
{
    (void)state;
    const int fd = handler_file = file_make(PAGES);
    char *keeper = map_pages(fd, RW, MAP_PRIVATE, 0, 1);
    struct sigaction action = {.sa_handler = map_in_handler}, before;
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    unsigned asked = 0;
    for (unsigned i = 0; atomic_load(&handled) < 500; i++) {
        if (atomic_load(&handled) == asked)
            alarm_soon(asked++);
        const unsigned page = i * 13 % (PAGES - 2);
        char *piece = map_pages(fd, RW, MAP_PRIVATE, page, 2);
        assert_true(page_is(piece, page));
        assert_true(page_is(piece + P, page + 1));
        piece[P] = 'm';
        unmap_pages(piece, 2);
    }
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(atomic_load(&handler_wrong), 0);
    unmap_pages(keeper, 1);
    assert_int_equal(extents(), 0);
    close(fd);
}

/* CASES 44: all at once. */
static void children_are_made_while_threads_and_handlers_map(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    handler_file = file_make(PAGES);
    struct sigaction action = {.sa_handler = map_in_handler, .sa_flags = SA_RESTART}, before;
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    start(threads, 0);
    const struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (unsigned i = 0; i < FORKS; i++) {
        const pid_t child = fork();
        if (child == 0) {
            const unsigned page = i % PAGES;
            char *mine = mf_mmap(NULL, P, RW, MAP_PRIVATE, files[0], (off_t)page * P);
            _exit(mine != MAP_FAILED && page_is(mine, page) && mf_munmap(mine, P) == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    finish(threads, 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(atomic_load(&handler_wrong), 0);
    unmap_pages(map_pages(handler_file, RW, MAP_PRIVATE, 0, 1), 1); /* what handlers left is done */
    struct mf_map_stats stats;
    mf_map_stats(&stats);
    assert_int_equal(stats.live_bytes, 0);
    close(handler_file);
}

#if !defined(__SANITIZE_THREAD__)
static void map_at_exit(void)
{
    char *piece = mf_mmap(NULL, P, RW, MAP_PRIVATE, files[0], P);
    if (piece == MAP_FAILED || !page_is(piece, 1) || mf_munmap(piece, P) != 0)
        _exit(2);
}

/* CASES 44 */
static void a_process_may_exit_while_its_threads_map(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            pthread_t threads[THREADS];
            start(threads, 0);
            if (atexit(map_at_exit) != 0)
                _exit(1);
            usleep(1000);
            exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}
#endif

/* Shares the parent's memory, and so its tables. */
static __attribute__((noinline)) pid_t vfork_and_map(int fd)
{
    const pid_t child = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */
    if (child == 0) {
        char *mine = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, fd, 4 * P);
        _exit(mine != MAP_FAILED && page_is(mine + P, 5) && mf_munmap(mine, 2 * P) == 0 ? 0 : 1);
    }
    return child;
}

/* CASES 44 */
static void a_child_of_vfork_leaves_the_pieces_of_its_parent(void **state)
{
    (void)state;
    const int fd = file_make(PAGES);
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 1, 2);
    piece[0] = 'v';
    for (int i = 0; i < 20; i++) {
        int status;
        const pid_t child = vfork_and_map(fd);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(piece[0], 'v');
    assert_true(page_is(piece + P, 2));
    unmap_pages(piece, 2);
    assert_int_equal(extents(), 0);
    close(fd);
}

static atomic_uint fork_wrong, forks;

static void fork_in_handler(int number)
{
    (void)number;
    const int saved = errno;
    const pid_t child = fork();
    if (child == 0) {
        char *piece = mf_mmap(NULL, P, RW, MAP_PRIVATE, handler_file, P);
        _exit(piece != MAP_FAILED && page_is(piece, 1) && mf_munmap(piece, P) == 0 ? 0 : 1);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        atomic_fetch_add(&fork_wrong, 1);
    atomic_fetch_add(&forks, 1);
    errno = saved;
}

static void a_handler_may_fork_in_the_middle_of_a_call(void **state)
{
    (void)state;
    const int fd = handler_file = file_make(PAGES);
    char *keeper = map_pages(fd, RW, MAP_PRIVATE, 0, 1);
    struct sigaction action = {.sa_handler = fork_in_handler}, before;
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    unsigned asked = 0;
    for (unsigned i = 0; atomic_load(&forks) < 100; i++) {
        if (atomic_load(&forks) == asked)
            alarm_soon(asked++);
        char *piece = map_pages(fd, RW, MAP_PRIVATE, i % PAGES, 1);
        assert_true(page_is(piece, i % PAGES));
        piece[0] = 'm';
        unmap_pages(piece, 1);
    }
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(atomic_load(&fork_wrong), 0);
    unmap_pages(keeper, 1);
    close(fd);
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* The processor's trap flag: SIGTRAP after each instruction, but for those of its handler. */
static void trap_each_instruction(bool on)
{
    if (on)
        __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\t"
                         "lea 128(%%rsp), %%rsp" ::
                             : "memory", "cc");
    else
        __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\t"
                         "lea 128(%%rsp), %%rsp" ::
                             : "memory", "cc");
}

static unsigned traps_left;

static void map_at_one_instruction(int number, siginfo_t *info, void *context)
{
    (void)info;
    if (--traps_left != 0)
        return;
    map_in_handler(number);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100; /* no more */
}

/* In a child. 1: it is wrong. */
static int first_call_is_interrupted(unsigned at, char *piece)
{
    const struct sigaction action = {.sa_sigaction = map_at_one_instruction,
                                     .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    alarm(60); /* who waits for itself does so for ever */
    traps_left = at;
    trap_each_instruction(true);
    const int result = mf_munmap(piece, 2 * P);
    trap_each_instruction(false);
    char *again = mf_mmap(NULL, 2 * P, RW, MAP_PRIVATE, handler_file, 9 * P);
    return result != 0 || traps_left != 0 || atomic_load(&handler_wrong) != 0 ||
           !page_is(again + P, 10) || mf_munmap(again, 2 * P) != 0;
}

static void a_handler_may_map_at_any_instruction_of_a_childs_first_call(void **state)
{
    (void)state;
    enum { INSTRUCTIONS = 250 };
    const int fd = handler_file = file_make(PAGES);
    char *keeper = map_pages(fd, RW, MAP_PRIVATE, 0, 1),
         *piece = map_pages(fd, RW, MAP_PRIVATE, 9, 2);
    for (unsigned at = 1; at <= INSTRUCTIONS; at++) {
        const pid_t child = fork();
        if (child == 0)
            _exit(first_call_is_interrupted(at, piece));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    unmap_pages(piece, 2);
    unmap_pages(keeper, 1);
    close(fd);
}
#endif

static void spawned_programs_leave_the_parent_as_it_is(void **state)
{
    (void)state;
    const int fd = file_make(PAGES);
    char *piece = map_pages(fd, RW, MAP_PRIVATE, 1, 2);
    piece[0] = 's';
    for (int i = 0; i < 20; i++) {
        char name[] = "true";
        char *arguments[] = {name, NULL};
        pid_t child;
        int status;
        assert_int_equal(posix_spawnp(&child, name, NULL, NULL, arguments, environ), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(piece[0], 's');
    assert_true(page_is(piece + P, 2));
    unmap_pages(piece, 2);
    assert_int_equal(extents(), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_on_one_file_do_not_disturb_each_other),
        cmocka_unit_test(threads_on_files_of_their_own_do_not_disturb_each_other),
        cmocka_unit_test(children_of_a_busy_parent_can_map_and_unmap),
        cmocka_unit_test(a_handler_may_map_and_unmap_in_the_middle_of_a_call),
        cmocka_unit_test(a_handler_may_fork_in_the_middle_of_a_call),
#if !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(a_process_may_exit_while_its_threads_map),
#endif
        cmocka_unit_test(a_child_of_vfork_leaves_the_pieces_of_its_parent),
        cmocka_unit_test(populating_waits_for_a_thread_that_unmaps),
        cmocka_unit_test(dropping_pages_waits_for_a_thread_that_unmaps),
        cmocka_unit_test(spawned_programs_leave_the_parent_as_it_is),
        /* Last: the memory that copies are made in stays. */
        cmocka_unit_test(children_are_made_while_threads_and_handlers_map),
        cmocka_unit_test(a_child_of_a_busy_parent_never_loses_the_bytes_of_a_copy),
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(a_handler_may_map_at_any_instruction_of_a_childs_first_call),
#endif
    };
    return cmocka_run_group_tests(tests, fold_at_once, NULL);
}
