/* SPDX-License-Identifier: MIT */
/*
 * A byte through one pipe is a turn, a byte back through another says that the row is in the shared
 * memory. End-of-file tells the child that its parent wants no more, and the parent that its child
 * is gone.
 */
#include "turns.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

struct child {
    pid_t pid;
    int to, from;
    struct bench_row *row; /* shared */
    struct bench_row taken[TURNS_MAX];
    int count;
    bool gone;
};

static bool read_byte(int fd)
{
    char byte;
    ssize_t got;
    while ((got = read(fd, &byte, 1)) < 0 && errno == EINTR)
        ;
    return got == 1;
}

static bool write_byte(int fd)
{
    ssize_t put;
    while ((put = write(fd, "", 1)) < 0 && errno == EINTR)
        ;
    return put == 1;
}

static int serve(struct bench *bench, const struct turns *turns, const void *argument,
                 struct bench_row *row, int in, int out)
{
    void *state = NULL;
    int status = turns->begin(bench, argument, &state);
    while (status == CLI_OK && write_byte(out) && read_byte(in))
        status = turns->slice(state, row);
    return status;
}

/* The others' ends are closed in the child, or it would keep them from their end-of-file. */
static int child_begin(struct bench *bench, const struct turns *turns,
                       const struct turns_system *system, struct child *children, size_t index)
{
    struct child *child = &children[index];
    int to[2] = {-1, -1};
    int from[2] = {-1, -1};
    child->row =
        mmap(NULL, sizeof(*child->row), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (child->row == MAP_FAILED || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        return -1;
    fflush(stdout);
    const pid_t parent = getpid();
    child->pid = fork();
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(to[1]);
        close(from[0]);
        for (size_t i = 0; i < index; i++) {
            close(children[i].to);
            close(children[i].from);
        }
        _exit(getppid() != parent
                  ? CLI_FAILURE
                  : serve(bench, turns, system->argument, child->row, to[0], from[1]));
    }
    close(to[0]);
    close(from[1]);
    child->to = to[1];
    child->from = from[0];
    return child->pid < 0 ? -1 : 0;
}

/* CLI_OK for one that was killed: that is a result. */
static int child_end(const struct turns_system *system, struct child *child, struct bench_row *row)
{
    int status = 0;
    close(child->to);
    close(child->from);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    munmap(child->row, sizeof(*child->row));
    *row = system->named;
    if (WIFSIGNALED(status)) {
        snprintf(row->note, sizeof(row->note), "killed: %s", strsignal(WTERMSIG(status)));
        return CLI_OK;
    }
    return WEXITSTATUS(status);
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const struct bench_row *)a)->ns_per_op;
    const double y = ((const struct bench_row *)b)->ns_per_op;
    return (x > y) - (x < y);
}

static void take_median(struct child *child, struct bench_row *row)
{
    uint64_t ops = 0;
    if (child->count == 0)
        return;
    for (int i = 0; i < child->count; i++)
        ops += child->taken[i].ops;
    qsort(child->taken, (size_t)child->count, sizeof(child->taken[0]), by_time);
    char note[BENCH_NOTE];
    memcpy(note, row->note, sizeof(note));
    *row = child->taken[child->count / 2];
    row->ops = ops;
    if (note[0])
        memcpy(row->note, note, sizeof(note));
}

static void take_turns(const struct turns *turns, struct child *children, size_t count)
{
    for (size_t i = 0; i < count; i++)
        children[i].gone = !read_byte(children[i].from);
    for (int round = 0; round < turns->rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            struct child *child = &children[i];
            if (child->gone)
                continue;
            child->gone = !write_byte(child->to) || !read_byte(child->from);
            if (!child->gone)
                child->taken[child->count++] = *child->row;
        }
    }
}

int turns_run(struct bench *bench, const struct turns *turns, const struct turns_system *systems,
              size_t count)
{
    struct child *children = calloc(count ? count : 1, sizeof(*children));
    int status = children ? CLI_OK : CLI_FAILURE;
    size_t begun = 0;
    signal(SIGPIPE, SIG_IGN); /* a child that is gone is told by the write */
    for (; status == CLI_OK && begun < count; begun++) {
        if (child_begin(bench, turns, &systems[begun], children, begun)) {
            cli_error("cannot make a child process for %s: %s", systems[begun].named.system,
                      strerror(errno));
            status = CLI_FAILURE;
            break;
        }
    }
    if (status == CLI_OK)
        take_turns(turns, children, count);
    for (size_t i = 0; i < begun; i++) {
        struct bench_row row;
        const int ended = child_end(&systems[i], &children[i], &row);
        take_median(&children[i], &row);
        if (ended != CLI_OK)
            status = CLI_FAILURE;
        else if (status == CLI_OK)
            bench_report(bench, &row);
    }
    signal(SIGPIPE, SIG_DFL);
    free(children);
    return status;
}
