/* SPDX-License-Identifier: MIT */
/* /proc/self/maps, read by raw system calls into a buffer of the caller's stack. */
#ifndef MF_LINUX_MAPS_H
#define MF_LINUX_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct map_line {
    uint64_t start, end, offset, device, inode;
};

/* Calls each for every kernel map until it returns true. 0, or a negative errno. */
int maps_each(bool (*each)(const struct map_line *line, void *context), void *context);

/* Kernel maps of this process, or a negative errno. Takes time for each. */
int64_t maps_count(void);

/* vm.max_map_count, or its default where it cannot be read. */
int64_t maps_limit(void);

#endif
