/* SPDX-License-Identifier: MIT */
/* What all of mapfold's headers share: visibility and the allocator interface. */
#ifndef MAPFOLD_BASE_H
#define MAPFOLD_BASE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MF_PUBLIC __attribute__((visibility("default")))
#else
#define MF_PUBLIC
#endif

/*
 * Where a layer's metadata comes from.
 * alloc  returns size bytes aligned to align (a power of two), or NULL; contents need not be zero
 * free   takes back what alloc gave, with the same size
 * Sizes are powers of two from 4 KiB up, so an allocator of pages serves well.
 */
struct mf_alloc {
    void *(*alloc)(void *context, size_t size, size_t align);
    void (*free)(void *context, void *memory, size_t size);
    void *context;
};

/*
 * An allocator that takes anonymous memory from the kernel, on huge pages where a request is large
 * enough for them. Never NULL; thread-safe, async-signal-safe; keeps errno.
 */
MF_PUBLIC const struct mf_alloc *mf_alloc_system(void);

#ifdef __cplusplus
}
#endif

#endif
