/* SPDX-License-Identifier: MIT */
/* The same as one JSON object in one line; man/mapfold-inspect.1 lists its members. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"
#include "cli/text.h"

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)(value < INT64_MAX ? value : INT64_MAX));
}

/* Frees the text, which may be NULL. */
static json_t *string(char *text)
{
    json_t *value = json_string(text ? text : "");
    free(text);
    return value;
}

static json_t *causes_json(const struct inspection *inspection)
{
    json_t *causes = json_object();
    for (int i = 0; i < CAUSES; i++) {
        const struct cause_total *total = &inspection->causes[i];
        json_t *one = json_object();
        json_object_set_new(one, "maps", integer(total->maps));
        json_object_set_new(one, "bytes", integer(total->bytes));
        if (inspection->has_rss)
            json_object_set_new(one, "resident_bytes", integer(total->rss << 10));
        if (i == CAUSE_SPLIT) {
            json_object_set_new(one, "ranges", integer(inspection->split_ranges));
            json_object_set_new(one, "same_protection", integer(inspection->split_alike));
        }
        json_object_set_new(causes, cause_keys[i], one);
    }
    return causes;
}

static json_t *files_json(const struct inspection *inspection)
{
    uint32_t top[TOP_FILES];
    json_t *files = json_array();
    const size_t count = top_files(inspection, top, TOP_FILES);
    for (size_t i = 0; i < count; i++) {
        const struct map_file *file = &inspection->files[top[i]];
        char device[24];
        snprintf(device, sizeof(device), "%x:%x", file->major, file->minor);
        json_t *one = json_object();
        json_object_set_new(one, "name", string(printable_file(inspection, top[i])));
        json_object_set_new(one, "maps", integer(file->maps));
        json_object_set_new(one, "bytes", integer(file->bytes));
        json_object_set_new(one, "device", json_string(device));
        json_object_set_new(one, "inode", integer(file->inode));
        json_object_set_new(one, "deleted", json_boolean(file->deleted));
        json_object_set_new(one, "ambiguous", json_boolean(file->ambiguous));
        json_array_append_new(files, one);
    }
    return files;
}

static json_t *groups_json(const struct inspection *inspection, bool suffixes)
{
    uint32_t top[TOP_FILES];
    json_t *groups = json_array();
    const size_t count = top_names(inspection, suffixes, top, TOP_FILES);
    for (size_t i = 0; i < count; i++) {
        const struct name *name = &inspection->names.names[top[i]];
        json_t *one = json_object();
        json_object_set_new(one, "name", string(printable_name(inspection, top[i])));
        json_object_set_new(one, "maps",
                            integer(suffixes ? name->with_suffix : name->in_directory));
        json_array_append_new(groups, one);
    }
    return groups;
}

static json_t *fold_json(const struct inspection *inspection)
{
    static const char *const states[] = {[PROGRAM_FOLDS] = "possible",
                                         [PROGRAM_STATIC] = "static",
                                         [PROGRAM_MACHINE] = "other machine",
                                         [PROGRAM_LIBC] = "other libc"};
    const struct fold *fold = &inspection->fold;
    json_t *object = json_object();
    json_object_set_new(object, "state",
                        json_string(inspection->folded ? "folded" : states[inspection->program]));
    json_object_set_new(object, "maps_after", integer(fold->after));
    json_object_set_new(object, "classes", integer(fold->classes));
    json_object_set_new(object, "pieces", integer(fold->pieces));
    json_object_set_new(object, "extents", integer(fold->extents));
    json_object_set_new(object, "copied", integer(fold->copied + fold->spared));
    json_object_set_new(object, "copied_bytes", integer(fold->copied_bytes));
    json_object_set_new(object, "stay", integer(fold->early + fold->too_deep + fold->refused));
    return object;
}

static json_t *gaps_json(const struct inspection *inspection)
{
    json_t *gaps = json_array();
    for (int i = 0; i < TOP_GAPS && inspection->gaps[i].end > 0; i++) {
        const struct gap *gap = &inspection->gaps[i];
        char start[24];
        snprintf(start, sizeof(start), "0x%llx", (unsigned long long)gap->start);
        json_t *one = json_object();
        json_object_set_new(one, "start", json_string(start));
        json_object_set_new(one, "bytes", integer(gap->end - gap->start));
        json_array_append_new(gaps, one);
    }
    return gaps;
}

static json_t *advice_json(const struct inspection *inspection)
{
    static const char *const actions[] = {"nothing", "fold", "raise", "program"};
    json_t *all = json_array();
    for (size_t i = 0; i < inspection->advice_count; i++) {
        const struct advice *advice = &inspection->advice[i];
        json_t *one = json_object();
        json_object_set_new(one, "action", json_string(actions[advice->action]));
        json_object_set_new(one, "text", json_string(advice->text));
        if (advice->command[0])
            json_object_set_new(one, "command", json_string(advice->command));
        json_array_append_new(all, one);
    }
    return all;
}

int inspection_print_json(const struct inspection *inspection)
{
    const struct process *process = &inspection->process;
    json_t *object = json_object();
    if (process->pid) {
        json_object_set_new(object, "pid", json_integer(process->pid));
        json_object_set_new(object, "command",
                            string(printable(process->command, strlen(process->command))));
        json_object_set_new(object, "threads", integer(process->threads));
    } else {
        json_object_set_new(object, "file",
                            string(printable(inspection->path, strlen(inspection->path))));
    }
    json_object_set_new(object, "used", integer(inspection->count));
    json_object_set_new(object, "limit", integer(inspection->limit));
    json_object_set_new(object, "percent",
                        json_real(percent_of(inspection->count, inspection->limit)));
    const uint64_t most = inspection->limit + 1;
    json_object_set_new(object, "left",
                        integer(most > inspection->count ? most - inspection->count : 0));
    json_object_set_new(object, "causes", causes_json(inspection));
    json_object_set_new(object, "files", files_json(inspection));
    json_object_set_new(object, "directories", groups_json(inspection, false));
    json_object_set_new(object, "suffixes", groups_json(inspection, true));
    json_object_set_new(object, "fold", fold_json(inspection));
    json_object_set_new(object, "mapped_bytes", integer(inspection->mapped_bytes));
    json_object_set_new(object, "gap_count", integer(inspection->gap_count));
    json_object_set_new(object, "largest_gaps", gaps_json(inspection));
    json_object_set_new(object, "fragmentation", json_real(inspection_fragmentation(inspection)));
    json_object_set_new(object, "changed_while_read", integer(inspection->torn));
    json_object_set_new(object, "ambiguous", integer(inspection->ambiguous));
    json_object_set_new(object, "advice", advice_json(inspection));
    const int failed = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(object);
    return failed && !ferror(stdout) ? -ENOMEM : 0; /* cli_finish tells the other */
}
