/* SPDX-License-Identifier: MIT */
/*
 * vm.max_map_count, raised for a run and always restored: a guardian writes the old value back when
 * this process ends, and before the command returns where we still can.
 *
 * Two runs at once would take each other's raised value for the true one, so the guardian's
 * lifetime is also a lock: an abstract socket name, which leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench.h"
#include "cli/cli.h"
#include "guardian.h"

static const char sysctl_path[] = "/proc/sys/vm/max_map_count";

static struct {
    struct guardian guardian; /* none: the limit is not raised */
    uint64_t old;
    uint64_t raised;
    bool on_terminal; /* what is written to standard error is seen */
} limit = {.guardian = {0, -1}};

static int write_limit(uint64_t value)
{
    char text[24];
    const int length = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);
    const int fd = open(sysctl_path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const ssize_t written = write(fd, text, (size_t)length);
    const int error = errno;
    close(fd);
    errno = error;
    return written == length ? 0 : -1;
}

/* A value that somebody else has set in the meantime is theirs. */
static int restore_limit(void)
{
    return bench_max_map_count() == limit.raised ? write_limit(limit.old) : 0;
}

static int take_lock(void)
{
    static const char name[] = "mapfold-raise-limit";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    memcpy(address.sun_path + 1, name, sizeof(name) - 1);
    const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(name));
    if (bind(fd, (const struct sockaddr *)&address, length) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int restore_last(const void *unused)
{
    (void)unused;
    return restore_limit();
}

void limit_restore(void)
{
    if (limit.guardian.process && guardian_end(&limit.guardian) && restore_limit())
        cli_error("cannot restore vm.max_map_count: %s; do it with: sysctl vm.max_map_count=%llu",
                  strerror(errno), (unsigned long long)limit.old);
}

/* Only calls that a signal handler may make: the guardian does the work. */
static void end_by_signal(int number)
{
    /* On a terminal a line of progress stands there. */
    static const char text[] = "\nmapfold bench: interrupted\n";
    const size_t skipped = !limit.on_terminal;
    if (write(STDERR_FILENO, text + skipped, sizeof(text) - 1 - skipped) < 0) {
        /* nobody is there to read it */
    }
    if (limit.guardian.process > 0)
        guardian_end(&limit.guardian);
    signal(number, SIG_DFL);
    raise(number);
}

void limit_catch_signals(void)
{
    struct sigaction action = {.sa_handler = end_by_signal};
    limit.on_terminal = isatty(STDERR_FILENO);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ENDING_SIGNALS; i++) {
        struct sigaction old;
        /* What was ignored (nohup) stays ignored. */
        if (sigaction(ending_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &action, NULL);
    }
}

int limit_raise(uint64_t maps)
{
    limit.old = bench_max_map_count();
    if (limit.old >= maps)
        return 0;
    limit.raised = maps;
    const int lock = take_lock();
    if (lock < 0) {
        if (errno == EADDRINUSE)
            cli_error("cannot raise vm.max_map_count: another run of mapfold bench has raised it; "
                      "wait for its end");
        else
            cli_error("cannot raise vm.max_map_count: no lock: %s", strerror(errno));
        return -1;
    }
    const int failed = guardian_start(&limit.guardian, restore_last, NULL);
    const int error = errno;
    close(lock);
    if (failed) {
        errno = error;
        cli_error("cannot raise vm.max_map_count: no guardian to restore it: %s", strerror(errno));
        return -1;
    }
    if (write_limit(maps)) {
        cli_error("cannot raise vm.max_map_count to %llu: %s; --raise-limit needs root: run it "
                  "with sudo, or without the option",
                  (unsigned long long)maps, strerror(errno));
        limit_restore();
        return -1;
    }
    return 0;
}

uint64_t limit_raised_from(void)
{
    return limit.guardian.process ? limit.old : 0;
}
