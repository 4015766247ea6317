/* SPDX-License-Identifier: MIT */
/*
 * The errno values the core returns (negated). The core has no libc to ask; the values are those of
 * every Linux architecture, which src/linux/alloc.c asserts.
 */
#ifndef MAPFOLD_CORE_ERROR_H
#define MAPFOLD_CORE_ERROR_H

enum {
    MF_ENOENT = 2,
    MF_EAGAIN = 11,
    MF_ENOMEM = 12,
    MF_EEXIST = 17,
    MF_EINVAL = 22,
    MF_ENOSPC = 28,
    MF_ERANGE = 34,
    MF_EOVERFLOW = 75,
    MF_ETIMEDOUT = 110,
};

#endif
