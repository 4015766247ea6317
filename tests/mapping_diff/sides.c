/* SPDX-License-Identifier: MIT */
/*
 * The two processes of an episode. The supervisor never maps or unmaps anything in between, so both
 * start from equal address spaces; they report through tapes in memory shared with it. With copying
 * on, the oracle runs after the subject, whose tape tells it what was copied.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "diff.h"

enum {
    OPS_PER_CALL = 8,
    SPARE_OPS = 4096,
    SPARE_RECORDS = 1 << 19,
    SECONDS = 1200, /* an episode takes a few; only a hang may last so long on a busy machine */
    SECONDS_REPLAY = 120
};

size_t page_size;
bool kernel_moves_many, locks_comparable, residency_stable;

static struct tape *tapes[2][WORLDS];

static void *memory_shared(size_t length)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fprintf(stderr, "cannot map %zu bytes for the tapes: %m\n", length);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool probe_moves_many(void)
{
    char *at = mmap(NULL, 6 * page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    mprotect(at, page_size, PROT_NONE);
    const bool many = mremap(at, 2 * page_size, 2 * page_size, MREMAP_MAYMOVE | MREMAP_FIXED,
                             at + 3 * page_size) != MAP_FAILED;
    munmap(at, 6 * page_size);
    return many;
}

/* What one thread may lock must not depend on what the others have locked just then. */
static bool locks_prepare(uint32_t threads)
{
    const struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit limit;
    return threads == 1 || setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0 ||
           (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY);
}

int sides_prepare(const struct options *options)
{
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    kernel_moves_many = probe_moves_many();
    locks_comparable = locks_prepare(options->threads);
    struct statfs system;
    struct sysinfo info;
    residency_stable = statfs(options->directory, &system) == 0 && system.f_type == TMPFS_MAGIC &&
                       sysinfo(&info) == 0 && info.totalswap == 0;
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    const uint32_t ops = options->episode * OPS_PER_CALL + SPARE_OPS;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < options->threads; i++) {
            struct tape *tape = memory_shared(sizeof *tape);
            if (!tape)
                return -1;
            *tape = (struct tape){.record_capacity = ops + SPARE_RECORDS};
            tape->ops = memory_shared(ops * sizeof *tape->ops);
            tape->log = memory_shared(tape->record_capacity * sizeof *tape->log);
            if (!tape->ops || !tape->log)
                return -1;
            tapes[side][i] = tape;
        }
    }
    return 0;
}

struct tape *side_tape(bool oracle, int world)
{
    return tapes[oracle][world];
}

static void tape_reset(struct tape *tape, const struct options *options, uint64_t seed)
{
    tape->random = seed;
    tape->position = tape->calls = tape->records = tape->child = 0;
    tape->ended = UINT32_MAX;
    tape->carved = tape->copied = tape->passed = 0;
    tape->finished = false;
    memset(tape->counts, 0, sizeof tape->counts);
    if (!tape->replay)
        tape->op_capacity = options->episode * OPS_PER_CALL + SPARE_OPS - 64;
}

void sides_load(const struct op *ops, uint32_t count)
{
    for (int side = 0; side < 2; side++) {
        struct tape *tape = tapes[side][0];
        tape->replay = true;
        tape->op_capacity = count;
        memcpy(tape->ops, ops, count * sizeof *ops);
    }
}

static int world_init(struct world *w, const struct options *options, bool oracle, int number,
                      uint64_t seed)
{
    *w = (struct world){.calls = oracle ? &plain_calls : subject_calls(options),
                        .options = options,
                        .tape = tapes[oracle][number],
                        .number = number,
                        .oracle = oracle,
                        .epoch = 1};
    if (oracle && options->copying)
        w->subject = tapes[0][number];
    snprintf(w->directory, sizeof w->directory, "%s/%s", options->directory,
             oracle ? "plain" : "fold");
    const size_t pages = ARENA_PAGES + SLOTS * SLOT_PAGES;
    const size_t scratch = (2 * SLOT_PAGES + 1) * page_size;
    const size_t bytes = (SLOTS + 1) * sizeof(struct region) + pages * sizeof(struct page);
    w->scratch =
        mmap(NULL, scratch + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->scratch == MAP_FAILED)
        return -1;
    w->regions = (struct region *)(w->scratch + scratch);
    struct page *page = (struct page *)&w->regions[SLOTS + 1];
    for (uint32_t i = 0; i <= SLOTS; i++)
        w->regions[i].page = i == ARENA ? page : page + ARENA_PAGES + (i - 1) * SLOT_PAGES;
    slot_set(w, ARENA, NULL);
    mix_draw(&w->mix, seed, options->without);
    return 0;
}

static const uint8_t finals[6] = {OP_CHECK, OP_PROBE, OP_FILES, OP_MAPS, OP_STATE, OP_FILES};

enum kind final_kind(uint32_t after)
{
    return after < sizeof finals ? finals[after] : OP_NONE;
}

static void ops_final(struct world *w, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const struct op op = {.kind = finals[i]};
        w->tape->position++;
        if (!(w->options->without >> op.kind & 1))
            op_execute(w, &op);
    }
}

/* The end of each program: everything compared, everything unmapped, and nothing held then. */
static void world_finish(struct world *w)
{
    w->tape->ended = w->tape->position;
    ops_final(w, 0, 3);
    for (uint32_t i = 0; i <= SLOTS; i++) {
        const struct region *r = &w->regions[i];
        for (uint32_t j = 0; r->live && j < r->pages; j++) {
            if (!r->page[j].live)
                continue;
            w->calls->munmap(r->base + j * page_size, page_size);
            model_unmap(w, (struct sym){(uint16_t)i, 0, (int)j}, 1, false);
        }
    }
    ops_final(w, 3, sizeof finals);
    w->tape->finished = true;
}

static uint32_t thread_calls;

static void *world_thread(void *context)
{
    struct world *w = context;
    world_run(w, thread_calls);
    world_finish(w);
    return NULL;
}

static void worlds_run(struct world *worlds, const struct options *options)
{
    pthread_t threads[WORLDS];
    if (options->threads == 1) {
        world_thread(&worlds[0]);
        return;
    }
    for (uint32_t i = 0; i < options->threads; i++)
        pthread_create(&threads[i], NULL, world_thread, &worlds[i]);
    for (uint32_t i = 0; i < options->threads; i++)
        pthread_join(threads[i], NULL);
}

/* A process that stays on one processor spares the kernel interrupts for each TLB flush. */
static void processor_choose(bool oracle)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2)
        return;
    for (int i = 0, seen = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all) && seen++ == oracle)
            CPU_SET(i, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
}

static int files_renew(const struct world *w, bool own)
{
    files_remove(w, own); /* of an episode that died */
    return files_create(w, own);
}

static void side_main(const struct options *options, bool oracle, uint64_t seed, uint32_t calls,
                      bool detailed)
{
    static struct world worlds[WORLDS];
    alarm(tapes[0][0]->replay ? SECONDS_REPLAY : SECONDS); /* a layer may hang, too */
    if (options->threads == 1)
        processor_choose(oracle);
    signals_install();
    thread_calls = calls;
    for (int i = 0; i < (int)options->threads; i++) {
        if (world_init(&worlds[i], options, oracle, i, seed + (uint64_t)i) != 0)
            _exit(2);
        worlds[i].detailed = detailed;
        mkdir(worlds[i].directory, 0700);
        if (files_renew(&worlds[i], true) != 0 || (i == 0 && files_renew(&worlds[i], false) != 0))
            _exit(2);
    }
    for (uint32_t i = 0; i < options->threads; i++) {
        if (files_open(&worlds[i]) != 0)
            _exit(2);
    }
    if (!oracle)
        subject_prepare(options, seed);
    worlds_run(worlds, options);
    for (uint32_t i = 0; i < options->threads; i++)
        files_remove(&worlds[i], true);
    files_remove(&worlds[0], false);
    _exit(0);
}

static pid_t side_start(const struct options *options, bool oracle, uint64_t seed, uint32_t calls,
                        bool detailed)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        side_main(options, oracle, seed, calls, detailed);
    return pid;
}

static int side_wait(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static bool records_equal(const struct record *a, const struct record *b)
{
    return a->op == b->op && a->sub == b->sub && a->ret == b->ret && a->error == b->error &&
           a->signal == b->signal && a->data == b->data &&
           (a->note & NOTE_SKIPPED) == (b->note & NOTE_SKIPPED);
}

static bool tapes_differ(int world, struct verdict *verdict)
{
    const struct tape *a = tapes[0][world], *b = tapes[1][world];
    const uint32_t common = a->records < b->records ? a->records : b->records;
    uint32_t i = 0;
    while (i < common && records_equal(&a->log[i], &b->log[i]))
        i++;
    if (i == common && a->records == b->records)
        return false;
    verdict->world = world;
    verdict->record = i;
    verdict->op = i < common ? a->log[i].op : a->position ? a->position - 1 : 0;
    if (i < common && b->log[i].op < verdict->op)
        verdict->op = b->log[i].op;
    verdict->why = i < common ? "the results differ" : "one side stopped";
    return true;
}

static bool side_died(const struct options *options, bool oracle, int status,
                      struct verdict *verdict)
{
    if (status == 0)
        return false;
    verdict->world = 0;
    for (int i = (int)options->threads - 1; i >= 0; i--) {
        if (!tapes[oracle][i]->finished)
            verdict->world = i;
    }
    const struct tape *tape = tapes[oracle][verdict->world];
    verdict->op = tape->position ? tape->position - 1 : 0;
    verdict->record = tape->records;
    if (WIFSIGNALED(status))
        snprintf(verdict->text, sizeof verdict->text, "the %s process died of %s",
                 oracle ? "plain" : "folded", strsignal(WTERMSIG(status)));
    else
        snprintf(verdict->text, sizeof verdict->text, "the %s process ended with status %d",
                 oracle ? "plain" : "folded", WEXITSTATUS(status));
    verdict->why = verdict->text;
    return true;
}

void sides_run(const struct options *options, uint64_t seed, uint32_t calls, bool detailed,
               struct verdict *verdict)
{
    for (int i = 0; i < (int)options->threads; i++) {
        tape_reset(tapes[0][i], options, seed + (uint64_t)i);
        tape_reset(tapes[1][i], options, seed + (uint64_t)i);
    }
    *verdict = (struct verdict){.world = -1};
    const pid_t subject = side_start(options, false, seed, calls, detailed);
    int subject_status = options->copying ? side_wait(subject) : 0;
    const pid_t oracle = side_start(options, true, seed, calls, detailed);
    if (!options->copying)
        subject_status = side_wait(subject);
    const int oracle_status = side_wait(oracle);
    for (int i = 0; i < (int)options->threads; i++) {
        if (tapes_differ(i, verdict))
            break;
    }
    if (verdict->world < 0 || verdict->why[0] == 'o') {
        if (!side_died(options, false, subject_status, verdict))
            side_died(options, true, oracle_status, verdict);
    }
}
