/* SPDX-License-Identifier: MIT */
/*
 * mapfold bench: another executable, so that a program under `mapfold run` does not wait until the
 * libraries of all workloads and rivals have been loaded.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int bench_command(int argc, char **argv)
{
    (void)argc;
    char path[4096];
    if (cli_library("mapfold-bench", path, sizeof(path)))
        execv(path, argv);
    cli_error("cannot run %s: %s; is mapfold installed?", path, strerror(errno));
    return CLI_FAILURE;
}
