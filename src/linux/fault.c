/* SPDX-License-Identifier: MIT */
/*
 * Pages that vanish under a window: the SIGBUS handler.
 *
 * The order of things is what makes a planted zero harmless. The first fault marks the extent
 * failed before anything is repaired; whoever reads a zero from a repaired page and then asks
 * (check, unpin, mf_read) finds the mark. So the mark is tested after the bytes were read, never
 * before.
 *
 * A fault in copy_guarded is not repaired: the copy ends there. One in a pinned extent is: past the
 * end of the file one anonymous map covers the rest of the extent; inside the file (a medium error)
 * one page, and after REPAIRS_MAX of them, or when the budget of maps is used up, or where the
 * kernel refuses, one map covers the whole extent, which adds none. Where the file ends is asked of
 * its descriptor; if that is closed, the pages that can be read tell. Everything else is not ours
 * and goes to the handler that was there before.
 *
 * All of it runs in the handler: no lock, no allocation. An extent's place does not change while it
 * is pinned, and who faults in it legitimately has it pinned; the pools themselves stay as long as
 * fault_handlers is not 0. Meanwhile all signals are blocked: a handler that left ours by a jump,
 * or forked in it, would leave that count wrong.
 */
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "linux/pool.h"
#include "linux/probes.h"
#include "linux/system.h"

_Atomic bool fault_ready;
_Atomic uint32_t fault_handlers;

static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed;            /* under install_lock */
static struct sigaction previous; /* set before our handler can run */
static _Atomic bool previous_used_up;

void fault_after_fork(void)
{
    atomic_store_explicit(&fault_handlers, 0, memory_order_relaxed);
    pthread_mutex_init(&install_lock, NULL);
}

#if defined(__x86_64__)
static uintptr_t get_pc(const ucontext_t *context)
{
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}
static void set_pc(ucontext_t *context, uintptr_t pc)
{
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
}
#elif defined(__aarch64__)
static uintptr_t get_pc(const ucontext_t *context)
{
    return context->uc_mcontext.pc;
}
static void set_pc(ucontext_t *context, uintptr_t pc)
{
    context->uc_mcontext.pc = pc;
}
#else
#error "mapfold's copies know x86-64 and aarch64"
#endif

/* Finding the extent. */

struct place {
    struct mf_pool *pool;
    uint32_t slot;
    char *base;
    size_t length;
};

static bool find_in_pool(struct mf_pool *pool, const char *address, struct place *place)
{
    const uint32_t used = atomic_load_explicit(&pool->extents_used, memory_order_acquire);
    for (uint32_t i = 0; i < used; i++) {
        struct machine_slot *machine = &pool->core.slots[i].machine;
        char *base = atomic_load_explicit(&machine->base, memory_order_relaxed);
        const size_t length = atomic_load_explicit(&pool->extents[i].length, memory_order_relaxed);
        if (!base || address < base || address >= base + length)
            continue;
        if (!pool_pinned(&pool->core, i))
            continue; /* kept after its unpin; or the two words are not of one moment */
        *place = (struct place){pool, i, base, length};
        return true;
    }
    return false;
}

static bool find_extent(const char *address, struct place *place)
{
    for (uint32_t i = 0; i < POOLS_MAX; i++) {
        struct mf_pool *pool = atomic_load_explicit(&registry[i], memory_order_seq_cst);
        if (pool && find_in_pool(pool, address, place))
            return true;
    }
    return false;
}

/* Repairing. */

/* A bare system call: to ThreadSanitizer mmap(3) is a write to the pages, and a race with those who
 * read them at this moment. They do; it is what the mark is for. */
static bool cover(const struct place *place, size_t from, size_t length)
{
    const int prot = PROT_READ | (place->pool->extents[place->slot].write ? PROT_WRITE : 0);
    return !system_fails(SYSTEM_MMAP) &&
           syscall(SYS_mmap, place->base + from, length, prot,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1L, 0L) != -1;
}

/* Asks a system call that reads the bytes before it finds out that it cannot do what it is to do;
 * one that no sandbox forbids. Reads the page from the device if need be. */
static bool is_readable(const char *address)
{
    enum { NO_SUCH_CHANGE = -1, MASK_BYTES = 8 };
    return syscall(SYS_rt_sigprocmask, NO_SUCH_CHANGE, address, NULL, MASK_BYTES) == 0 ||
           errno != EFAULT;
}

/* Where the file ends if nobody can be asked: behind the last page that can be read, if all of the
 * file's end is gone with this page; else only this one is bad. (Where both a page is bad and the
 * end is gone it may be taken for the end. The extent is marked as failed in any case.) */
static size_t look_for_end(const struct place *place, size_t page)
{
    const struct extent *extent = &place->pool->extents[place->slot];
    const uint64_t size = atomic_load_explicit(&extent->file->size, memory_order_relaxed);
    const uint64_t seen = size > extent->offset ? round_up(size - extent->offset, system_page) : 0;
    const uint64_t end = seen < place->length ? seen : place->length;
    if (end > page + system_page && is_readable(place->base + end - system_page))
        return place->length;
    size_t low = 0, high = page; /* what is before low can be read, what is at high cannot */
    while (low < high) {
        const size_t middle = (low + (high - low) / 2) & ~(size_t)(system_page - 1);
        if (is_readable(place->base + middle))
            low = middle + system_page;
        else
            high = middle;
    }
    return high;
}

/* Where in the extent the file ends, in whole pages; at least its length if it is this page only
 * that cannot be read. */
static size_t end_in_extent(const struct place *place, size_t page)
{
    const struct extent *extent = &place->pool->extents[place->slot];
    const struct mf_file *file = extent->file;
    const int fd = atomic_load_explicit(&file->fd, memory_order_relaxed);
    struct stat st;
    /* The descriptor may be closed at this moment, and another file may have its number: hence the
     * look at what it is. (Not by fstat(3): ThreadSanitizer would call that a race.) */
    if (fd < 0 || syscall(SYS_fstat, fd, &st) != 0 || st.st_dev != file->identity.device ||
        st.st_ino != file->identity.inode)
        return look_for_end(place, page);
    if (!S_ISREG(st.st_mode))
        return place->length;
    const uint64_t size = round_up((uint64_t)st.st_size, system_page);
    if (size <= extent->offset)
        return 0;
    return size - extent->offset < place->length ? size - extent->offset : place->length;
}

/* A repair in the middle adds up to two kernel maps. */
static bool take_maps(const struct place *place, uint32_t maps)
{
    /* The pool's last: what is taken of it and given back, a thread that waits for it may miss. */
    if (!budget_take(&process_budget, 0, maps))
        return false;
    if (!budget_take(&place->pool->budget, 0, maps)) {
        budget_give(&process_budget, 0, maps);
        return false;
    }
    atomic_fetch_add_explicit(&place->pool->extents[place->slot].repairs, maps,
                              memory_order_relaxed);
    return true;
}

static bool repair(const struct place *place, const char *address)
{
    const size_t page = (size_t)(address - place->base) & ~(size_t)(system_page - 1);
    const size_t end = end_in_extent(place, page);
    PROBE(pool_fault, place->pool, place->slot, address, end);
    if (end && page >= end)
        return (take_maps(place, 1) && cover(place, end, place->length - end)) ||
               cover(place, 0, place->length);
    struct extent *extent = &place->pool->extents[place->slot];
    const uint32_t before = atomic_fetch_add_explicit(&extent->faults, 1, memory_order_relaxed);
    if (end && before < REPAIRS_MAX && take_maps(place, 2) && cover(place, page, system_page))
        return true;
    return cover(place, 0, place->length);
}

/* A page that is not there, cannot be read, or is broken. All else that has this signal (an access
 * that is not aligned) would come again after any repair. */
static bool is_of_a_page(const siginfo_t *info)
{
    return info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR ||
           info->si_code == BUS_MCEERR_AR;
}

/* Sent by somebody, or about a page that nobody has touched: it does not come again by itself. */
static bool is_asynchronous(const siginfo_t *info)
{
    return info->si_code <= 0 || info->si_code == BUS_MCEERR_AO;
}

static bool handle(const siginfo_t *info, ucontext_t *context)
{
    if (!is_of_a_page(info))
        return false;
    struct place place;
    const bool ours = find_extent(info->si_addr, &place);
    if (ours) {
        /* Before the repair; pairs with the acquire after the bytes were read. Both seq_cst: see
         * set_usable_locked. */
        struct machine_slot *machine = &place.pool->core.slots[place.slot].machine;
        atomic_store_explicit(&machine->failed, 1, memory_order_seq_cst);
        atomic_store_explicit(&machine->usable, 0, memory_order_seq_cst);
    }
    const uintptr_t fixup = copy_fixup(get_pc(context));
    if (fixup) {
        set_pc(context, fixup);
        return true;
    }
    return ours && repair(&place, info->si_addr);
}

int mf_fault_handle(int signal, void *info, void *context)
{
    if (signal != SIGBUS)
        return 0;
    const int saved = errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store_explicit(&fault_ready, true, memory_order_release);
    /* seq_cst: pairs with registry_remove's: it waits for us, or we miss the pool */
    atomic_fetch_add_explicit(&fault_handlers, 1, memory_order_seq_cst);
    const bool done = handle(info, context);
    atomic_fetch_sub_explicit(&fault_handlers, 1, memory_order_release);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return done;
}

/* The handler that was there, as the kernel would have called it. */

static void call_previous(int signal, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_RESETHAND)
        atomic_store_explicit(&previous_used_up, true, memory_order_relaxed);
    /* What it blocks stays blocked until our own return restores the mask. */
    pthread_sigmask(SIG_BLOCK, &previous.sa_mask, NULL);
    if (previous.sa_flags & SA_NODEFER && !sigismember(&previous.sa_mask, SIGBUS)) {
        sigset_t own;
        sigemptyset(&own);
        sigaddset(&own, SIGBUS);
        pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    }
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(signal, info, context);
    else
        previous.sa_handler(signal);
}

static void die(const siginfo_t *info)
{
    struct sigaction standard;
    memset(&standard, 0, sizeof(standard));
    standard.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &standard, NULL);
    /* A fault comes again when we return; a signal that was sent has to be sent again. */
    if (is_asynchronous(info))
        raise(SIGBUS);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    if (mf_fault_handle(signal, info, context))
        return;
    const bool used_up = atomic_load_explicit(&previous_used_up, memory_order_relaxed);
    const bool plain = !(previous.sa_flags & SA_SIGINFO);
    if (!used_up && plain && previous.sa_handler == SIG_IGN && is_asynchronous(info))
        return; /* the kernel ignores all but faults */
    if (used_up || (plain && (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN)))
        die(info);
    else
        call_previous(signal, info, context);
}

/* 0, -errno. Under install_lock. In the child of a fork our handler may be there already, though
 * the thread that installed it has not come to say so. */
static int install_locked(void)
{
    struct sigaction before;
    struct sigaction ours;
    memset(&ours, 0, sizeof(ours));
    sigemptyset(&ours.sa_mask);
    ours.sa_sigaction = on_fault;
    if (sigaction(SIGBUS, NULL, &before) != 0)
        return -errno;
    if (before.sa_flags & SA_SIGINFO && before.sa_sigaction == on_fault)
        return 0;
    previous = before;
    /* Alternate stacks are used where there is one; system calls restart as before. */
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (previous.sa_flags & SA_RESTART);
    return sigaction(SIGBUS, &ours, NULL) == 0 ? 0 : -errno;
}

int mf_fault_install(void)
{
    const int saved = errno;
    pthread_mutex_lock(&install_lock);
    const int err = installed ? 0 : install_locked();
    installed = !err;
    if (!err)
        atomic_store_explicit(&fault_ready, true, memory_order_release);
    pthread_mutex_unlock(&install_lock);
    errno = saved;
    return err;
}

void mf_fault_attach(void)
{
    atomic_store_explicit(&fault_ready, true, memory_order_release);
}
