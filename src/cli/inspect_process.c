/* SPDX-License-Identifier: MIT */
/*
 * /proc/PID. An unreadable and an empty maps file have several causes, and what helps differs; they
 * are told apart by /proc/PID/stat, which anybody may read.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "linux/cgroup.h"

enum { KERNEL_THREAD_FLAG = 0x200000 }; /* PF_KTHREAD */

/* What a small file of /proc holds, terminated. Its length, or a negative errno. */
static ssize_t read_small(const char *path, char *text, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const ssize_t got = read(fd, text, room - 1);
    const ssize_t result = got < 0 ? -errno : got;
    close(fd);
    if (result >= 0)
        text[result] = '\0';
    return result;
}

uint64_t read_limit(void)
{
    enum { DEFAULT_LIMIT = 65530 };
    char text[32];
    if (read_small("/proc/sys/vm/max_map_count", text, sizeof(text)) <= 0)
        return DEFAULT_LIMIT;
    const uint64_t limit = strtoull(text, NULL, 10);
    return limit ? limit : DEFAULT_LIMIT;
}

uint64_t read_copy_limit(pid_t pid)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const uint64_t memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    char path[64] = "/proc/self/cgroup", root[64] = "/sys/fs/cgroup", text[8192] = "";
    if (pid != 0) {
        snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
        snprintf(root, sizeof(root), "/proc/%d/root/sys/fs/cgroup", (int)pid);
    }
    if (read_small(path, text, sizeof(text)) < 0)
        text[0] = '\0';
    const uint64_t bound = cgroup_memory_limit_in(text, root);
    return (bound < memory ? bound : memory) / 4;
}

enum program_kind process_program(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    return program_look(path, NULL, 0);
}

bool proc_hides_processes(void)
{
    return access("/proc/1", F_OK) != 0 && kill(1, 0) != 0 && errno == EPERM;
}

/* PID (command) state, then numbers; the command may hold blanks and parentheses. */
static bool parse_stat(char *text, struct process *process)
{
    enum { FLAGS = 9, THREADS = 20, START = 22 };
    char *const open = strchr(text, '(');
    char *const close = strrchr(text, ')');
    if (!open || !close || close < open || close[1] != ' ' || close[2] == '\0')
        return false;
    *close = '\0';
    snprintf(process->command, sizeof(process->command), "%s", open + 1);
    process->state = close[2];
    char *at = close + 3;
    for (int field = 4; field <= START; field++) {
        char *end;
        const uint64_t value = strtoull(at, &end, 10);
        if (end == at)
            return false;
        at = end;
        if (field == FLAGS)
            process->kernel_thread = (value & KERNEL_THREAD_FLAG) != 0;
        else if (field == THREADS)
            process->threads = value;
        else if (field == START)
            process->start_time = value;
    }
    return true;
}

int process_read(pid_t pid, struct process *process)
{
    char path[64], text[2048];
    *process = (struct process){.pid = pid};
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const ssize_t got = read_small(path, text, sizeof(text));
    if (got < 0)
        return (int)got;
    return parse_stat(text, process) ? 0 : -EIO;
}

static int told(bool quiet, int status, const struct process *process, const char *why)
{
    if (!quiet)
        cli_error("cannot read the maps of process %d: %s", (int)process->pid, why);
    return status;
}

static int no_such_process(const struct process *process, bool quiet)
{
    if (access("/proc/self", F_OK) != 0)
        return told(quiet, CLI_FAILURE, process,
                    "/proc shows no processes; is it mounted, and for these?");
    if (kill(process->pid, 0) == 0)
        return told(quiet, CLI_FAILURE, process, "it is there, but /proc does not show it");
    if (errno == EPERM)
        return told(quiet, INSPECT_DENIED, process,
                    "/proc hides other users' processes (hidepid); run this as root");
    return told(quiet, INSPECT_GONE, process,
                "there is no such process, or it has exited; `mapfold inspect --all' lists those "
                "there are");
}

int process_gone(const struct process *process, bool quiet)
{
    struct process now;
    if (process_read(process->pid, &now) == 0 && now.start_time == process->start_time) {
        if (now.kernel_thread)
            return told(quiet, INSPECT_NO_MAPS, process,
                        "it is a kernel thread, which has no address space and no maps");
        if (now.state == 'Z' || now.state == 'X')
            return told(quiet, INSPECT_GONE, process,
                        "it has exited (a zombie: its parent has not waited for it yet)");
        return told(quiet, INSPECT_GONE, process,
                    "it gave up its memory meanwhile (it exits, or runs another program now); try "
                    "again");
    }
    return told(quiet, INSPECT_GONE, process, "it exited while it was being looked at");
}

int process_open_maps(struct process *process, const char *what, bool quiet, int *fd)
{
    const pid_t pid = process->pid;
    const int failed = process_read(pid, process);
    if (failed == -ENOENT || failed == -ESRCH)
        return no_such_process(process, quiet);
    if (failed != 0)
        return told(quiet, failed == -EACCES || failed == -EPERM ? INSPECT_DENIED : CLI_FAILURE,
                    process, strerror(-failed));
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd >= 0)
        return 0;
    if (process->kernel_thread)
        return process_gone(process, quiet);
    if (errno == EACCES || errno == EPERM)
        return told(quiet, INSPECT_DENIED, process,
                    "permission denied; run this as its user or as root (in a container: with "
                    "CAP_SYS_PTRACE)");
    if (errno == ENOENT || errno == ESRCH)
        return process_gone(process, quiet);
    return told(quiet, CLI_FAILURE, process, strerror(errno));
}
