/* SPDX-License-Identifier: MIT */
/* What a caller may ask of the layer, and tell it: options, counters, and what lies at an address.
 */
#include <errno.h>

#include "linux/layer.h"
#include "linux/maps.h"
#include "linux/report.h"

void mf_map_get_options(struct mf_map_options *options)
{
    *options = layer.options;
}

int mf_map_set_options(const struct mf_map_options *options)
{
    if (options->promote_pieces == 0 || options->max_depth == 0)
        return -EINVAL;
    layer_begin();
    if (options->explain && !layer.options.explain)
        report_begin();
    const enum entry entry = layer_enter();
    layer.options = *options;
    if (entry == ENTER_LOCKED)
        layer_leave();
    return 0;
}

void mf_map_stats(struct mf_map_stats *stats)
{
    layer_begin();
    const enum entry entry = layer_enter();
    *stats = layer.stats;
    stats->extents = layer.extents;
    stats->metadata_bytes = classes_bytes();
    for (uint32_t i = 0; i < layer.extents; i++) {
        struct mf_space_stats space;
        mf_space_stats(layer_sorted[i]->live, &space);
        stats->metadata_bytes += space.metadata_bytes + sizeof(*layer_sorted[i]);
    }
    if (entry == ENTER_LOCKED)
        layer_leave();
    const int64_t maps = maps_count();
    stats->kernel_maps = maps > 0 ? (uint64_t)maps : 0;
}

const char *mf_pass_reason_text(enum mf_pass_reason reason)
{
    static const char *const texts[MF_PASS_REASONS] = {
        [MF_PASS_FLAGS] = "anonymous, executable, fixed or otherwise never folded",
        [MF_PASS_FILE] = "no regular file, or a descriptor that does not allow it",
        [MF_PASS_FILE_SYSTEM] = "a file system that is not folded",
        [MF_PASS_SEALABLE] = "a memfd that has seals or may get them",
        [MF_PASS_FEW] = "too few live pieces of its kind",
        [MF_PASS_SPLIT] = "pieces of its kind are changed in part again and again",
        [MF_PASS_DEPTH] = "overlaps too many live pieces and cannot be copied",
        [MF_PASS_LIMITS] = "resource limits or overcommit leave no room for an extent",
        [MF_PASS_REOPEN] = "its file cannot be opened again, or is leased",
        [MF_PASS_LOCKED] = "mlockall(MCL_FUTURE) is in force",
        [MF_PASS_OFF] = "folding is off",
        [MF_PASS_INTERRUPTED] = "a signal handler interrupted another call",
        [MF_PASS_NO_MEMORY] = "no memory for tables",
        [MF_PASS_EXTENTS] = "the process has as many extents as there can be",
    };
    return (unsigned)reason < MF_PASS_REASONS ? texts[reason] : "";
}

struct looked_up {
    uint64_t address;
    struct mf_map_info *info;
    bool found;
};

static bool look(const struct map_line *line, void *context)
{
    struct looked_up *wanted = context;
    if (wanted->address < line->start || wanted->address >= line->end)
        return false;
    *wanted->info = (struct mf_map_info){.kind = MF_MAP_PASSED,
                                         .start = line->start,
                                         .length = line->end - line->start,
                                         .device = line->device,
                                         .inode = line->inode};
    if (line->inode != 0)
        wanted->info->offset = line->offset + (wanted->address - line->start);
    wanted->found = true;
    return true;
}

/* 0 with info, -ENOENT for a hole, 1 for what only the kernel knows. */
static int query_ours(uintptr_t address, struct mf_map_info *info)
{
    const struct extent *extent = extent_at_or_above(address);
    if (extent == NULL || extent->start > address)
        return 1;
    struct mf_area area;
    if (mf_space_find(extent->live, address, &area) != 0)
        return -ENOENT;
    if ((area.tag & STATE_MASK) == STATE_FOREIGN)
        return 1;
    if ((area.tag & STATE_MASK) != STATE_LIVE)
        return -ENOENT;
    const bool copied = extent->class == NO_CLASS;
    const struct class *class = class_of(copied ? tag_class(area.tag) : extent->class);
    *info = (struct mf_map_info){.kind = copied ? MF_MAP_COPIED : MF_MAP_CARVED,
                                 .start = area.start,
                                 .length = area.length,
                                 .device = class->file.device,
                                 .inode = class->file.inode,
                                 .offset = address + area.delta};
    return 0;
}

int mf_map_query(const void *address, struct mf_map_info *info)
{
    layer_begin();
    int result = 1;
    const enum entry entry = layer_enter();
    if (entry == ENTER_INTERRUPTED)
        return -EAGAIN;
    if (entry == ENTER_LOCKED) {
        result = query_ours((uintptr_t)address, info);
        layer_leave();
    }
    if (result <= 0)
        return result;
    struct looked_up wanted = {(uintptr_t)address, info, false};
    result = maps_each(look, &wanted);
    if (result != 0)
        return result;
    return wanted.found ? 0 : -ENOENT;
}
