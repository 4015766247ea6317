/* SPDX-License-Identifier: MIT */
#include "children.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

bool child_exists(const char *program)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        const size_t length = strcspn(path, ":");
        char full[PATH_MAX];
        const int printed =
            snprintf(full, sizeof(full), "%.*s/%s", (int)length, length ? path : ".", program);
        if (printed < (int)sizeof(full) && access(full, X_OK) == 0)
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

int child_file(const char *name)
{
    return memfd_create(name, MFD_CLOEXEC);
}

static int redirect(posix_spawn_file_actions_t *actions, int fd, int target)
{
    if (fd < 0)
        return posix_spawn_file_actions_addopen(actions, target, "/dev/null", O_RDWR, 0);
    return posix_spawn_file_actions_adddup2(actions, fd, target);
}

pid_t child_start(const char *const *argv, int in, int out, int err)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        const int fds[] = {in, out, err};
        for (int target = 0; target <= 2 && !error; target++)
            error = redirect(&actions, fds[target], target);
        if (!error)
            error = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv,
                                 environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    errno = error;
    return error ? -1 : pid;
}

int child_wait(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
