/* SPDX-License-Identifier: MIT */
/* Who makes the calls: the kernel, the layer under test, or a mutant. */
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mapfold/mmap.h>

#include "diff.h"
#include "mutants.h"

/* System calls, since sanitizers put themselves before libc's functions and make some do nothing.
 */
static void *plain_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, length, prot, flags, fd, offset);
}

static int plain_munmap(void *at, size_t length)
{
    return (int)syscall(SYS_munmap, at, length);
}

static int plain_mprotect(void *at, size_t length, int prot)
{
    return (int)syscall(SYS_mprotect, at, length, prot);
}

static void *plain_mremap(void *at, size_t length, size_t new_length, int flags, void *to)
{
    return (void *)syscall(SYS_mremap, at, length, new_length, flags, to);
}

static int plain_madvise(void *at, size_t length, int advice)
{
    return (int)syscall(SYS_madvise, at, length, advice);
}

static int plain_msync(void *at, size_t length, int flags)
{
    return (int)syscall(SYS_msync, at, length, flags);
}

static int plain_mincore(void *at, size_t length, unsigned char *vector)
{
    return (int)syscall(SYS_mincore, at, length, vector);
}

static int plain_mlock(const void *at, size_t length)
{
    return (int)syscall(SYS_mlock, at, length);
}

static int plain_munlock(const void *at, size_t length)
{
    return (int)syscall(SYS_munlock, at, length);
}

const struct calls plain_calls = {
    plain_mmap,  plain_munmap,  plain_mprotect, plain_mremap,  plain_madvise,
    plain_msync, plain_mincore, plain_mlock,    plain_munlock, NULL,
};

static char layer_kind(const void *address)
{
    struct mf_map_info info = {.kind = MF_MAP_PASSED};
    if (mf_map_query(address, &info) != 0)
        return '?';
    return info.kind == MF_MAP_CARVED ? 'c' : info.kind == MF_MAP_COPIED ? 'y' : 'p';
}

static const struct calls layer_calls = {
    mf_mmap,  mf_munmap,  mf_mprotect, mf_mremap,  mf_madvise,
    mf_msync, mf_mincore, mf_mlock,    mf_munlock, layer_kind,
};

const struct calls *subject_calls(const struct options *options)
{
    if (options->mutant) {
        mutant_choose(options->mutant);
        return &mutant_calls;
    }
    return options->plain ? &plain_calls : &layer_calls;
}

/* Each episode has options of its own: small programs must reach promotion, depth and copies, too.
 */
static void layer_options(const struct options *options, uint64_t seed, uint32_t *promote,
                          uint32_t *depth)
{
    static const uint32_t promotes[4] = {1, 2, 4, 8}, depths[4] = {1, 2, 4, 16};
    uint64_t state = seed ^ 0x6c61796572;
    const uint64_t draw = random_next(&state);
    *promote = options->promote ? options->promote : promotes[draw & 3];
    *depth = options->depth ? options->depth : depths[draw >> 2 & 3];
}

void subject_prepare(const struct options *options, uint64_t seed)
{
    if (options->mutant || options->plain)
        return;
    struct mf_map_options layer;
    mf_map_get_options(&layer);
    layer_options(options, seed, &layer.promote_pieces, &layer.max_depth);
    layer.strict = options->strict;
    if (!options->copying)
        layer.max_copy_bytes = 0;
    if (mf_map_set_options(&layer) != 0)
        fprintf(stderr, "mapping_diff: the layer refused its options\n");
}

/* The options that make the same subject again. */
void subject_describe(const struct options *options, uint64_t seed, FILE *out)
{
    uint32_t promote, depth;
    layer_options(options, seed, &promote, &depth);
    if (options->mutant)
        fprintf(out, " --mutant %d", options->mutant);
    else if (options->plain)
        fprintf(out, " --plain");
    else
        fprintf(out, " --promote %u --depth %u%s%s", promote, depth,
                options->copying ? " --copying" : "", options->strict ? " --strict" : "");
}
