/* SPDX-License-Identifier: MIT */
/* What `mapfold bench` becomes. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    static char name[] = "mapfold bench";
    if (argc > 0)
        argv[0] = name;
    return cli_finish(bench_command(argc, argv));
}
