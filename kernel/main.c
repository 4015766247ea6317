/* SPDX-License-Identifier: MIT */
/* The order in which things start; then the workloads of the command line, and the way out. */
#include "kernel/console.h"
#include "kernel/cpu.h"
#include "kernel/kmap.h"
#include "kernel/options.h"
#include "kernel/paging.h"
#include "kernel/round.h"
#include "kernel/work.h"

enum { MULTIBOOT_CALLER = 0x2badb002 };

/* Where flushes are left out stale slots are what is wanted, and the contents tell the rest. */
static bool is_flushed(void)
{
    const uint32_t stale = cpu_counts_all().stale;
    if (same_text(options.flush, "off") || !stale)
        return true;
    print("%u slots were used again before every processor had flushed them\n", stale);
    return false;
}

static bool run_workloads(void)
{
    bool well = true;
    const char *at = options.run;
    while (*at) {
        char name[16];
        unsigned n = 0;
        for (; *at && *at != ','; at++)
            if (n < sizeof(name) - 1)
                name[n++] = *at;
        name[n] = 0;
        at += *at == ',';
        const struct workload *workload = work_find(name);
        if (!workload)
            panic("there is no workload %s", name);
        well &= workload->run();
    }
    return well;
}

_Noreturn void kernel_main(uint32_t magic, uint32_t multiboot);
_Noreturn void kernel_main(uint32_t magic, uint32_t multiboot)
{
    cpu_first();
    console_open();
    if (magic != MULTIBOOT_CALLER)
        panic("this kernel is booted by multiboot");
    options_read(multiboot);
    memory_start(multiboot);
    paging_start();
    if (!cpu_start_all(options.cpus))
        panic("%u processors do not start", options.cpus);
    const struct kmap_options kmap = {
        .pool2002 = same_text(options.pool, "2002"),
        .fences = same_text(options.barrier, "fence"),
        .slots = options.slots,
        .batch = options.batch,
        .inject = options.inject,
    };
    kmap_start(&kmap);
    if (same_text(options.flush, "off"))
        round_leave_flushes_out();
    const bool well = run_workloads();
    leave(is_flushed() && well);
}
