/* SPDX-License-Identifier: MIT */
/*
 * Maps an extent from a description of our own.
 *
 * The program's description may not be mapped: its flock and leases would live as long as the
 * extent. So the file is opened again through /proc/self/fd. But closing any descriptor of a file
 * drops the POSIX locks that the process has on it, so opening, mapping and closing happen in a
 * helper: a child that shares the memory and not the descriptor table. Locks belong to the table,
 * and closing in the child's copy leaves the parent's alone. The parent sleeps until the child has
 * gone, with all signals blocked, so no handler runs on the child's stack. The child ends without a
 * signal to the parent, and wait(2) of the program does not see it.
 *
 * Once an extent; about 200 microseconds. Where any of it is refused, nothing is folded.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "linux/layer.h"

enum { STACK = 16 << 10, SLACK = 64 << 20, PATH = 40 };

struct job {
    const struct request *request;
    bool any_file_system;
    size_t most; /* bytes of address space that the extent may take */
    enum mf_pass_reason reason;
    uintptr_t start;
    size_t length;
};

static void path_of(char *path, int fd)
{
    static const char prefix[] = "/proc/self/fd/";
    __builtin_memcpy(path, prefix, sizeof(prefix) - 1);
    char digits[12];
    int count = 0;
    do
        digits[count++] = (char)('0' + fd % 10);
    while ((fd /= 10) != 0);
    char *at = path + sizeof(prefix) - 1;
    while (count > 0)
        *at++ = digits[--count];
    *at = '\0';
}

/* A descriptor of our own for the request's file, or a negative errno. */
static int file_reopen(const struct request *request)
{
    char path[PATH];
    path_of(path, request->fd);
    const int flags = (request->writable ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    long fd = sys_openat(AT_FDCWD, path, flags);
    if (fd == -EMFILE) {
        /* The table is a copy: any other descriptor can make room in it. */
        sys_close(request->fd == 0 ? 1 : 0);
        fd = sys_openat(AT_FDCWD, path, flags);
    }
    return (int)fd;
}

static bool limited(int resource)
{
    struct rlimit64 limit = {0};
    const long result = sys_call(SYS_prlimit64, 0, resource, 0, (long)&limit, 0, 0);
    return sys_failed(result) || limit.rlim_cur != RLIM64_INFINITY;
}

bool address_space_is_limited(void)
{
    return limited(RLIMIT_AS);
}

static bool overcommit_never(void)
{
    char mode = '2';
    const int fd =
        (int)sys_openat(AT_FDCWD, "/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    if (sys_read(fd, &mode, 1) != 1)
        mode = '2';
    sys_close(fd);
    return mode == '2';
}

bool limits_forbid_private(void)
{
    return limited(RLIMIT_AS) || limited(RLIMIT_DATA) || overcommit_never();
}

static void job_run(struct job *job)
{
    const struct request *request = job->request;
    const bool private = (request->flags & MAP_TYPE) == MAP_PRIVATE;
    job->reason = identity_foldable(request->fd, job->any_file_system);
    if (job->reason != MF_PASS_REASONS)
        return;
    job->reason = MF_PASS_LIMITS;
    if (limited(RLIMIT_AS) ||
        (private && (request->protection & PROT_WRITE) && limits_forbid_private()))
        return;
    job->reason = MF_PASS_REOPEN;
    const int fd = file_reopen(request);
    if (fd < 0)
        return;
    struct identity file;
    uint64_t size;
    if (identity_read(fd, &file, &size) == 0 &&
        __builtin_memcmp(&file, &request->file, sizeof(file)) == 0) {
        const uint64_t needed = request->offset + request->length;
        const uint64_t whole = page_up(size > needed ? size : needed);
        const int flags = (private ? MAP_PRIVATE : MAP_SHARED) | MAP_NORESERVE;
        job->reason = MF_PASS_LIMITS;
        for (int slack = 1; slack >= 0 && job->reason == MF_PASS_LIMITS; slack--) {
            job->length = slack ? whole * 2 + SLACK : whole;
            if (job->length < whole || job->length > job->most)
                continue;
            const long start = extent_map(job->length, request->protection, flags, fd);
            if (sys_failed(start))
                continue;
            job->start = (uintptr_t)start;
            job->reason = MF_PASS_REASONS;
        }
    }
    sys_close(fd);
}

static int child_main(void *argument)
{
    job_run(argument);
    return 0;
}

/* Runs function(argument) in a child on the given stack, and returns its pid or a negative errno.
 */
static long clone_and_call(int (*function)(void *), void *argument, void *stack_top)
{
    const long flags = CLONE_VM | CLONE_VFORK;
#ifdef MF_SYS_INJECT
    const long injected = mf_sys_inject(SYS_clone);
    if (injected != 0)
        return injected;
#endif
    void **top = stack_top;
    *--top = argument;
    *--top = (void *)(uintptr_t)function;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    long result;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "pop %%rax\n\t"
                     "pop %%rdi\n\t"
                     "call *%%rax\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(top), "d"(0), "r"(r10),
                       "r"(r8), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = SYS_clone;
    register long x0 __asm__("x0") = flags;
    register long x1 __asm__("x1") = (long)top;
    register long x2 __asm__("x2") = 0;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, #0\n\t"
                     "ldp x9, x0, [sp], #16\n\t"
                     "blr x9\n\t"
                     "mov x8, %[exit]\n\t"
                     "svc #0\n\t"
                     "brk #0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), [exit] "i"(SYS_exit)
                     : "x9", "x30", "memory");
    return x0;
#endif
}

/* A child made after unshare(CLONE_NEWPID) would be the init of that namespace, and end it. */
static bool children_in_our_namespace(void)
{
    char ours[PATH], theirs[PATH];
    const long a =
        sys_call(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/ns/pid", (long)ours, PATH, 0, 0);
    const long b = sys_call(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/ns/pid_for_children",
                            (long)theirs, PATH, 0, 0);
    return a > 0 && a == b && __builtin_memcmp(ours, theirs, (size_t)a) == 0;
}

/* Maps the request's file as an extent. MF_PASS_REASONS with *start and *length, or why not. */
enum mf_pass_reason reopen_map(const struct request *request, uintptr_t *start, size_t *length)
{
    static char stack[STACK] __attribute__((aligned(16)));
    struct job job = {.request = request,
                      .any_file_system = layer.options.any_file_system,
                      .most = address_space_left(),
                      .reason = MF_PASS_REOPEN};
    if (!children_in_our_namespace())
        return MF_PASS_REOPEN;
    const uint64_t all = UINT64_MAX;
    uint64_t before;
    if (sys_failed(sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&before,
                            sizeof(before), 0, 0)))
        return MF_PASS_REOPEN;
    const long child = clone_and_call(child_main, &job, stack + STACK);
    /* After wait its copy of the descriptor table is gone, too. */
    if (!sys_failed(child))
        sys_call(SYS_wait4, child, 0, __WALL, 0, 0, 0);
    sys_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof(before), 0, 0);
    *start = job.start;
    *length = job.length;
    /* The child that used the stack is gone. */
    /* NOLINTNEXTLINE(clang-analyzer-core.StackAddressEscape) */
    return job.reason;
}
