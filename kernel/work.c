/* SPDX-License-Identifier: MIT */
/* The list of workloads, and how figures are printed. */
#include "kernel/work.h"
#include "kernel/console.h"
#include "kernel/options.h"

static const struct workload workloads[] = {
    {"read1", work_read1},     {"zipf", work_zipf},         {"verify", work_verify},
    {"exhaust", work_exhaust}, {"copyuser", work_copyuser}, {"space", work_space},
};

const struct workload *work_find(const char *name)
{
    for (unsigned i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
        if (same_text(workloads[i].name, name))
            return &workloads[i];
    return NULL;
}

void figures_begin(struct figures *figures)
{
    kmap_forget_worst();
    figures->kmap = kmap_counts();
    figures->cpu = cpu_counts_all();
    figures->time = timestamp();
}

void figures_end(struct figures *figures)
{
    figures->time = timestamp() - figures->time;
    const struct cpu_counts cpu = cpu_counts_all();
    const uint32_t *now = (const uint32_t *)&cpu;
    uint32_t *before = (uint32_t *)&figures->cpu;
    for (unsigned i = 0; i < sizeof(cpu) / sizeof(*now); i++)
        before[i] = now[i] - before[i];
    const struct kmap_counts kmap = kmap_counts();
    struct kmap_counts *was = &figures->kmap;
    *was = (struct kmap_counts){
        .hits = kmap.hits - was->hits,
        .misses = kmap.misses - was->misses,
        .revived = kmap.revived - was->revived,
        .waits = kmap.waits - was->waits,
        .locks = kmap.locks - was->locks - 1, /* one to count, see figures_begin */
        .lock_steps = kmap.lock_steps - was->lock_steps,
        .passed = kmap.passed - was->passed,
        .lock_steps_max = kmap.lock_steps_max,
        .passed_max = kmap.passed_max,
    };
}

void figures_print(const struct figures *f, const char *workload, const char *map, const char *kind,
                   uint64_t ops, uint32_t errors)
{
    print("{\"workload\":\"%s\",\"pool\":\"%s\",\"map\":\"%s\",\"kind\":\"%s\",\"cpus\":%u,"
          "\"slots\":%u,\"batch\":%u,\"barrier\":\"%s\",\"ops\":%llu,"
          "\"hits\":%llu,\"misses\":%llu,\"revived\":%llu,\"waits\":%llu,"
          "\"pool_locks\":%llu,\"lock_steps\":%llu,\"lock_steps_max\":%u,"
          "\"passed\":%llu,\"passed_max\":%u,",
          workload, options.pool, map, kind, options.cpus, options.slots, options.batch,
          options.barrier, ops, f->kmap.hits, f->kmap.misses, f->kmap.revived, f->kmap.waits,
          f->kmap.locks, f->kmap.lock_steps, f->kmap.lock_steps_max, f->kmap.passed,
          f->kmap.passed_max);
    print("\"locks\":%u,\"locks_waited\":%u,\"flush_rounds\":%u,\"flush_ipis\":%u,"
          "\"barrier_rounds\":%u,\"barrier_ipis\":%u,\"other_rounds\":%u,\"other_ipis\":%u,"
          "\"wake_ipis\":%u,\"invalidations\":%u,"
          "\"full_flushes\":%u,\"local_maps\":%u,\"sleeps\":%u,\"faults\":%u,\"stale_slots\":%u,",
          f->cpu.locks, f->cpu.locks_waited, f->cpu.flush_rounds, f->cpu.flush_ipis,
          f->cpu.barrier_rounds, f->cpu.barrier_ipis, f->cpu.other_rounds, f->cpu.other_ipis,
          f->cpu.wake_ipis, f->cpu.invalidations, f->cpu.flushes, f->cpu.local_maps, f->cpu.sleeps,
          f->cpu.faults, f->cpu.stale);
    if (options.instructions)
        print("\"instructions\":%llu,", f->time);
    print("\"errors\":%u}\n", errors);
}
