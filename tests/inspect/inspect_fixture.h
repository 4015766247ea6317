/* SPDX-License-Identifier: MIT */
/* An inspection made from text, as of a saved file or as of a process by its /proc/PID/maps. */
#ifndef TESTS_INSPECT_FIXTURE_H
#define TESTS_INSPECT_FIXTURE_H

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/inspect.h"

/* A descriptor from which the bytes are read. */
static inline int text_file(const char *text, size_t length)
{
    const int fd = memfd_create("maps", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    return fd;
}

/* The inspection's limits (65,530 maps, 1 GiB of copies if they are 0) are kept. 0, or a negative
 * errno. */
static inline int inspect_text(struct inspection *inspection, const char *text, size_t length)
{
    struct maps_reader reader;
    inspection->path = "test";
    inspection->limit = inspection->limit ? inspection->limit : 65530;
    inspection->copy_limit = inspection->copy_limit ? inspection->copy_limit : 1 << 30;
    if (maps_reader_open(&reader, text_file(text, length), true, false) != 0)
        abort();
    int result = inspection_collect(inspection, &reader);
    maps_reader_close(&reader);
    if (result == 0 && inspection->count > 0) {
        inspection_classify(inspection);
        result = inspection_fold(inspection);
        if (result == 0)
            inspection_advise(inspection);
    }
    return result;
}

#endif
