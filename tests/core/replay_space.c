/* SPDX-License-Identifier: MIT */
/* Runs the fuzz target once over each file of the directory given: the kept corpus as a test. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz_space.h"

enum { MOST_BYTES = 65536 };

static int replay(const char *directory, const char *name)
{
    static unsigned char bytes[MOST_BYTES];
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    const size_t size = fread(bytes, 1, sizeof(bytes), file);
    const int failed = ferror(file);
    fclose(file);
    if (failed) {
        perror(path);
        return 1;
    }
    return LLVMFuzzerTestOneInput(bytes, size);
}

int main(int count, char **arguments)
{
    DIR *directory = count == 2 ? opendir(arguments[1]) : NULL;
    if (!directory) {
        fprintf(stderr, "usage: replay_space DIRECTORY, one that can be read\n");
        return 2;
    }
    unsigned files = 0;
    int result = 0;
    for (const struct dirent *entry; result == 0 && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        result = replay(arguments[1], entry->d_name);
        files++;
    }
    closedir(directory);
    printf("%u inputs replayed\n", files);
    return result != 0 || files == 0;
}
