/* SPDX-License-Identifier: MIT */
/*
 * One op on one side: what the program would see of it becomes a record. Faults of loads and stores
 * are results too: the handler jumps out of the one guarded step, and a fault anywhere else is not
 * caught, so that a layer that breaks the tester's own memory dies where it did.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "diff.h"

/* ThreadSanitizer runs handlers with signals blocked, which a jump out of one must undo. */
#if defined(__SANITIZE_THREAD__)
enum { SAVE_MASK = 1 };
#else
enum { SAVE_MASK = 0 };
#endif

static _Thread_local sigjmp_buf guard;
static _Thread_local volatile sig_atomic_t guard_on;
static _Thread_local uint32_t guard_signal;
static _Thread_local uintptr_t guard_address;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (!guard_on) {
        signal(number, SIG_DFL);
        return;
    }
    guard_signal = (uint32_t)number << 16 | ((uint32_t)info->si_code & 0xffff);
    guard_address = (uintptr_t)info->si_addr;
    siglongjmp(guard, 1);
}

void signals_install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

int guarded(void (*step)(void *), void *context, uint32_t *signal_seen, uintptr_t *address)
{
    if (sigsetjmp(guard, SAVE_MASK)) {
        guard_on = 0;
        *signal_seen = guard_signal;
        *address = guard_address;
        return -1;
    }
    guard_on = 1;
    step(context);
    guard_on = 0;
    return 0;
}

/* 1 mapped, 0 hole; by the calls under test, which so are tested once more. */
static int probe_by(const struct world *w, const char *address)
{
    unsigned char resident;
    char *page = (char *)((uintptr_t)address & ~(page_size - 1));
    return w->calls->mincore(page, page_size, &resident) == 0;
}

int probe_page(const struct world *w, const char *address)
{
    const int saved = errno;
    const int answer = probe_by(w, address);
    errno = saved;
    return answer;
}

struct access {
    volatile unsigned char *at;
    uint64_t length, value, hash;
};

/* Which thread had an address before is not the sanitizer's business: maps change under it. */
#define ANY_MEMORY __attribute__((no_sanitize("thread", "address")))

ANY_MEMORY static void step_load(void *context)
{
    struct access *access = context;
    uint64_t hash = 0;
    if (((uintptr_t)access->at | access->length) % 8 == 0) {
        const volatile uint64_t *words = (const volatile uint64_t *)access->at;
        for (uint64_t i = 0; i < access->length / 8; i++) {
            hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15;
            hash ^= hash >> 29;
        }
    } else {
        for (uint64_t i = 0; i < access->length; i++)
            hash = (hash ^ access->at[i]) * 0x100000001b3 + 1;
    }
    access->hash = hash;
}

ANY_MEMORY static void step_store(void *context)
{
    struct access *access = context;
    for (uint64_t i = 0; i < access->length; i++)
        access->at[i] = (unsigned char)(access->value + i * 7);
}

static void execute_access(struct world *w, const struct op *op, struct record *r)
{
    char *address = sym_address(w, op->at);
    struct access access = {(volatile unsigned char *)address, op->length, op->value, 0};
    uint32_t seen = 0;
    uintptr_t fault = 0;
    r->ret = guarded(op->kind == OP_LOAD ? step_load : step_store, &access, &seen, &fault);
    const bool hole = !model_live(w, op->at, pages_of(op->at.byte + op->length));
    /* the layer may answer for a hole of its own with another code, but with no other signal */
    r->signal = hole && op->at.region != ARENA ? seen & ~0xffffu : seen;
    r->data = r->ret == 0 ? access.hash : fault - (uintptr_t)address;
}

static void execute_transfer(struct world *w, const struct op *op, struct record *r)
{
    char *address = sym_address(w, op->at);
    const int number =
        op->fd < DESCRIPTORS && w->descriptors[op->fd].open ? w->descriptors[op->fd].number : -1;
    errno = 0;
    /* not through libc, where a sanitizer would look at memory whose maps it does not follow */
    const long done = syscall(op->kind == OP_READ_INTO ? SYS_pread64 : SYS_pwrite64, number,
                              address, op->length, op->offset);
    r->ret = (int)done;
    r->error = done < 0 ? errno : 0;
}

static void execute_pwrite(struct world *w, const struct op *op, struct record *r)
{
    unsigned char bytes[2 * 65536];
    for (uint64_t i = 0; i < op->length; i++)
        bytes[i] = (unsigned char)(op->value + i * 13);
    r->ret = (int)pwrite(w->descriptors[op->fd].number, bytes, op->length, (off_t)op->offset);
    r->error = r->ret < 0 ? errno : 0;
}

static void execute_open(struct world *w, const struct op *op, struct record *r)
{
    char path[320];
    const int file = (int)op->value;
    const bool guardable = file < FILES && !file_may_change(w, file) && op->flags != O_PATH;
    const int number = open(file_path(w, file, path),
                            (guardable || file >= FILE_PROC ? O_RDONLY : op->flags) | O_CLOEXEC);
    struct descriptor *d = &w->descriptors[op->fd];
    *d = (struct descriptor){number, (int8_t)file, number >= 0, false};
    /* the lowest free number, as the program expects: a layer keeps no descriptors among these */
    r->ret = w->options->threads < 2 ? number : (number < 0 ? -1 : 0);
    r->error = number < 0 ? errno : 0;
}

static void execute_close(struct world *w, const struct op *op, struct record *r)
{
    struct descriptor *d = &w->descriptors[op->fd];
    if (d->flock) /* a mapping prolongs a flock; a folded one does not, as documented */
        flock(d->number, LOCK_UN);
    r->ret = close(d->number);
    d->open = false;
}

static void execute_lock(struct world *w, const struct op *op, struct record *r)
{
    struct descriptor *d = &w->descriptors[op->fd];
    if (op->flags & 1) {
        r->ret = flock(d->number, (op->flags & 2 ? LOCK_EX : LOCK_SH) | LOCK_NB);
        d->flock |= r->ret == 0;
    } else {
        struct flock lock = {.l_type = op->flags & 2 ? F_WRLCK : F_RDLCK,
                             .l_whence = SEEK_SET,
                             .l_start = (off_t)op->offset,
                             .l_len = (off_t)op->length};
        r->ret = fcntl(d->number, F_SETLK, &lock);
    }
    r->error = r->ret < 0 ? errno : 0;
}

static void execute_state(struct world *w, struct record *r)
{
    for (int i = 0; i < DESCRIPTORS; i++) {
        const struct descriptor *d = &w->descriptors[i];
        if (!d->open || d->file >= FILES)
            continue;
        const off_t offset = lseek(d->number, 0, SEEK_CUR);
        r->data = r->data * 31 + (uint64_t)(offset < 0 ? -errno : offset);
        if (offset >= 0)
            lseek(d->number, offset + 3, SEEK_SET);
    }
    r->data += files_locks(w);
}

/* The child goes on with the program; the parent continues where the child left it. */
static void execute_fork(struct world *w, const struct op *op, struct record *r)
{
    w->tape->child = (uint32_t)op->value;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        w->in_child = true;
        for (uint32_t i = 0; i <= SLOTS; i++) {
            struct region *region = &w->regions[i];
            for (uint32_t j = 0; region->live && j < region->pages; j++) {
                if (!region->page[j].live || !region->page[j].no_fork)
                    continue;
                model_unmap(w, (struct sym){(uint16_t)i, 0, (int32_t)j}, 1, false);
                w->lost_pages = true;
            }
        }
        return;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    r->ret = child < 0 ? -1 : status;
    r->error = child < 0 ? errno : 0;
}

static void log_record(struct world *w, struct record *r)
{
    struct tape *tape = w->tape;
    r->op = w->op;
    r->sub = w->sub++;
    if (tape->records < tape->record_capacity)
        tape->log[tape->records++] = *r;
}

static void execute_check(struct world *w, struct record *r)
{
    for (uint32_t i = 0; i <= SLOTS; i++) {
        const struct region *region = &w->regions[i];
        for (uint32_t j = 0; region->live && j < region->pages; j++) {
            if (!region->page[j].live)
                continue;
            struct access access = {(unsigned char *)region->base + j * page_size, page_size, 0, 0};
            uint32_t seen = 0;
            uintptr_t fault;
            if (guarded(step_load, &access, &seen, &fault) != 0)
                access.hash = seen;
            if (w->detailed) {
                struct record page = {.ret = (int)(i << 16 | j), .data = access.hash};
                log_record(w, &page);
            }
            r->data = (r->data ^ access.hash) * 0x9e3779b97f4a7c15 + (i << 8 | j);
        }
    }
}

static void execute_probe(struct world *w, struct record *r)
{
    for (uint32_t i = 0; i <= SLOTS; i++) {
        const struct region *region = &w->regions[i];
        for (uint32_t j = 0; j < region->pages; j++) {
            if (!page_known(w, region, j))
                continue;
            const int mapped = probe_page(w, region->base + j * page_size);
            if (w->detailed) {
                struct record page = {.ret = (int)(i << 16 | j), .data = (uint64_t)mapped};
                log_record(w, &page);
            }
            r->data = r->data * 3 + (uint64_t)mapped + 1;
            r->ret += mapped != region->page[j].live;
        }
    }
}

static void count_record(struct world *w, const struct op *op, const struct record *r)
{
    uint32_t *counts = w->tape->counts[op->kind];
    if (r->note & NOTE_SKIPPED)
        counts[ERRORS + 1]++;
    else if (r->signal)
        counts[ERRORS]++;
    else
        counts[r->ret < 0 && r->error < ERRORS ? r->error : 0]++;
}

static void execute_valid(struct world *w, const struct op *op, struct record *r)
{
    switch (op->kind) {
    case OP_LOAD:
    case OP_STORE:
        execute_access(w, op, r);
        break;
    case OP_READ_INTO:
    case OP_WRITE_FROM:
        execute_transfer(w, op, r);
        break;
    case OP_PWRITE:
        execute_pwrite(w, op, r);
        break;
    case OP_TRUNCATE: {
        char path[320];
        r->ret = truncate(file_path(w, (int)op->value, path), (off_t)op->length);
        r->error = r->ret < 0 ? errno : 0;
        break;
    }
    case OP_OPEN:
        execute_open(w, op, r);
        break;
    case OP_CLOSE:
        execute_close(w, op, r);
        break;
    case OP_LOCK:
        execute_lock(w, op, r);
        break;
    case OP_STATE:
        execute_state(w, r);
        break;
    case OP_FORK:
        execute_fork(w, op, r);
        break;
    case OP_CHECK:
        execute_check(w, r);
        break;
    case OP_PROBE:
        execute_probe(w, r);
        break;
    case OP_FILES:
        r->data = files_hash(w);
        break;
    case OP_MAPS:
        r->data = files_mapped(w);
        break;
    default:
        execute_call(w, op, r);
    }
}

void op_execute(struct world *w, const struct op *op)
{
    struct record r = {.op = 0};
    const bool valid = op_valid(w, op);
    w->op = w->tape->position - 1;
    w->sub = 0;
    if (valid)
        execute_valid(w, op, &r);
    else
        r.note = NOTE_SKIPPED;
    if (op->kind == OP_FORK && w->in_child && valid)
        return; /* the child begins here; the parent records its end */
    count_record(w, op, &r);
    log_record(w, &r);
}

static void child_end(struct world *w)
{
    const struct op check = {.kind = OP_CHECK};
    op_execute(w, &check);
    _exit(0);
}

/* In a replay the tape holds the ops; otherwise they are generated, `calls` calls of the layer. */
void world_run(struct world *w, uint32_t calls)
{
    struct tape *tape = w->tape;
    while (tape->position < tape->op_capacity && (tape->replay || tape->calls < calls)) {
        struct op *op = &tape->ops[tape->position];
        if (!tape->replay)
            op_generate(w, op);
        tape->position++;
        tape->calls += op_is_call(op->kind);
        const bool child = w->in_child;
        op_execute(w, op);
        if (child && --tape->child == 0)
            child_end(w);
    }
    if (w->in_child)
        child_end(w);
}
