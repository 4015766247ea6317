/* SPDX-License-Identifier: MIT */
#include "guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

const int ending_signals[ENDING_SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

/* Writing ends that are open here: a later guardian must not keep an earlier one waiting. */
enum { GUARDIANS = 4 };
static volatile int pipes[GUARDIANS] = {-1, -1, -1, -1};

static volatile int *pipe_place(int end)
{
    for (size_t i = 0; i < GUARDIANS; i++) {
        if (pipes[i] == end)
            return &pipes[i];
    }
    return NULL;
}

/* In a session of its own, so that the terminal's signals pass it by. */
static void guard(int pipe_end, int (*last)(const void *argument), const void *argument)
{
    char byte;
    setsid();
    for (size_t i = 0; i < ENDING_SIGNALS; i++)
        signal(ending_signals[i], SIG_IGN);
    while (read(pipe_end, &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(last(argument) ? 1 : 0);
}

int guardian_start(struct guardian *guardian, int (*last)(const void *argument),
                   const void *argument)
{
    int ends[2];
    volatile int *place = pipe_place(-1);
    if (!place) {
        errno = EMFILE;
        return -1;
    }
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        for (size_t i = 0; i < GUARDIANS; i++) {
            if (pipes[i] >= 0)
                close(pipes[i]);
        }
        /* Whoever reads our output through a pipe must not wait for the guardian. */
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd = 0; null >= 0 && fd <= 2; fd++)
            dup2(null, fd);
        guard(ends[0], last, argument);
    }
    const int error = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        errno = error;
        return -1;
    }
    *place = ends[1];
    *guardian = (struct guardian){pid, ends[1]};
    return 0;
}

int guardian_end(struct guardian *guardian)
{
    int status = 0;
    volatile int *place = pipe_place(guardian->pipe);
    close(guardian->pipe);
    if (place)
        *place = -1;
    while (waitpid(guardian->process, &status, 0) < 0 && errno == EINTR)
        ;
    guardian->process = 0;
    return status ? -1 : 0;
}
