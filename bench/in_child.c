/* SPDX-License-Identifier: MIT */
#include "in_child.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

int run_in_child(struct bench *bench, const struct bench_row *named,
                 int (*job)(struct bench *bench, const void *argument, struct child_rows *rows),
                 const void *argument)
{
    struct child_rows *rows =
        mmap(NULL, sizeof(*rows), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED) {
        cli_error("cannot share memory with a child process: %s", strerror(errno));
        return CLI_FAILURE;
    }
    fflush(stdout);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() == parent ? job(bench, argument, rows) : CLI_FAILURE);
    }
    int status = 0;
    if (child < 0)
        cli_error("cannot make a child process for %s: %s", named->system, strerror(errno));
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i < rows->count; i++)
        bench_report(bench, &rows->rows[i]);
    munmap(rows, sizeof(*rows));
    if (child > 0 && WIFSIGNALED(status)) {
        struct bench_row row = *named;
        snprintf(row.note, sizeof(row.note), "killed: %s", strsignal(WTERMSIG(status)));
        bench_report(bench, &row);
        return CLI_OK;
    }
    return child > 0 && WEXITSTATUS(status) == CLI_OK ? CLI_OK : CLI_FAILURE;
}
