/* SPDX-License-Identifier: MIT */
#include "kmap_kernel.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

enum {
    ROWS = 64,
    NO_QEMU = 3, /* exit statuses of rows.py */
    NO_KERNEL = 4,
};

static json_t *rows[ROWS];
static size_t row_count;
static const char *missing;

/* kernel/rows.py beside the build directory that this command lies in. */
static bool find_script(char path[PATH_MAX])
{
    char self[PATH_MAX - 32];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0)
        return false;
    self[length] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(self, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
    snprintf(path, PATH_MAX, "%s/kernel/rows.py", self);
    return access(path, X_OK) == 0;
}

static bool keep(const struct bench *bench, const char *line)
{
    if (bench->json) {
        fputs(line, stdout);
        return true;
    }
    json_t *row = row_count < ROWS ? json_loads(line, 0, NULL) : NULL;
    if (row)
        rows[row_count++] = row;
    return row;
}

int kmap_kernel_run(const struct bench *bench)
{
    char path[PATH_MAX], command[PATH_MAX + 3], *line = NULL;
    if (!find_script(path) || strchr(path, '\'')) {
        missing = "an installed mapfold does not have them: run it from its source tree";
        return CLI_OK;
    }
    bench_progress(bench, "booting the 32-bit kernel");
    snprintf(command, sizeof(command), "'%s'", path);
    fflush(stdout);
    FILE *script = popen(command, "re"); /* NOLINT(cert-env33-c): a path of our own, quoted */
    if (!script) {
        cli_error("kmap_lock: %s cannot be started: %s", path, strerror(errno));
        return CLI_FAILURE;
    }
    size_t size = 0;
    bool sound = true;
    while (getline(&line, &size, script) > 0)
        sound = keep(bench, line) && sound;
    free(line);
    const int status = pclose(script);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_QEMU) {
        missing = "qemu-system-i386 is not installed (package qemu-system-x86)";
        return CLI_OK;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_KERNEL) {
        missing = "it cannot be built here (make -C kernel says why)";
        return CLI_OK;
    }
    if (status != 0 || !sound) {
        missing = "a boot failed";
        cli_error("kmap_lock: %s failed: run it alone to see why", path);
        return CLI_FAILURE;
    }
    return CLI_OK;
}

static double number(const json_t *row, const char *name)
{
    return json_number_value(json_object_get(row, name));
}

void kmap_kernel_print(FILE *out)
{
    if (missing)
        fprintf(out, "The kernel's rows: %s.\n", missing);
    if (!row_count)
        return;
    fprintf(out,
            "The pools as the kmap of a 32-bit kernel, 16 processors in QEMU (docs/KERNEL.md); "
            "for one map:\n  %-17s %-10s %6s %8s %8s %16s %8s %8s\n",
            "", "system", "slots", "misses", "locks", "steps mean,worst", "flushes", "IPIs");
    for (size_t i = 0; i < row_count; i++) {
        const json_t *row = rows[i];
        const char *part = json_string_value(json_object_get(row, "workload"));
        const char *system = json_string_value(json_object_get(row, "system"));
        const char *dot = part ? strchr(part, '.') : NULL;
        fprintf(out, "  %-17s %-10s %6.0f %8.4f %8.4f %10.2f %5.0f %8.4f %8.4f\n",
                dot ? dot + 1 : "?", system ? system : "?", number(row, "n"),
                number(row, "misses_per_op"), number(row, "locks_per_op"),
                number(row, "lock_steps_mean"), number(row, "lock_steps_max"),
                number(row, "flush_rounds_per_op"), number(row, "ipis_per_op"));
        json_decref(rows[i]);
    }
    row_count = 0;
}
