/* SPDX-License-Identifier: MIT */
/*
 * How much memory the process's control groups let it have. Both versions are looked for where
 * systemd and containers mount them, below /sys/fs/cgroup.
 */
#ifndef MF_LINUX_CGROUP_H
#define MF_LINUX_CGROUP_H

#include <stdint.h>

/* In bytes; UINT64_MAX: as much as there is. Needs the lock of layer_lock.h. */
uint64_t cgroup_memory_limit(void);

/* The same from the text of /proc/self/cgroup, with version 2 mounted at root. */
uint64_t cgroup_memory_limit_in(const char *text, const char *root);

#endif
