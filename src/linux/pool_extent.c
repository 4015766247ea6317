/* SPDX-License-Identifier: MIT */
/*
 * Extents: the translations of a Linux process. A slot's extent is a kernel mapping of a range of
 * one file, and its address is the slot's until it is retired. Reuse for another range of the same
 * length puts the new mapping in its place with one mmap(MAP_FIXED); for that the old one's pages
 * were zapped in a batch before (machine_drop), since zapping them one extent at a time interrupts
 * the other processors each time.
 *
 * An extent whose munmap fails (the kernel would have to split a merged neighbour, and is at its
 * limit) keeps its address and its place in the budget; munmap is tried again when there is no
 * other room (machine_is_kept).
 */
#include "linux/maps.h"
#include "linux/pool.h"
#include "linux/probes.h"
#include "linux/system.h"

enum { HUGE = 2 << 20, CHUNK_STORE = 64 << 10 };

static struct mf_pool *pool_of(struct pool *core)
{
    return (struct mf_pool *)core;
}

static struct machine_slot *payload(struct mf_pool *pool, uint32_t slot)
{
    return &pool->core.slots[slot].machine;
}

static char *base_of(struct mf_pool *pool, uint32_t slot)
{
    return atomic_load_explicit(&payload(pool, slot)->base, memory_order_relaxed);
}

static size_t length_of(struct mf_pool *pool, uint32_t slot)
{
    return atomic_load_explicit(&pool->extents[slot].length, memory_order_relaxed);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): kept, to be written through */
static void set_place(struct mf_pool *pool, uint32_t slot, char *base, size_t length)
{
    atomic_store_explicit(&payload(pool, slot)->base, base, memory_order_relaxed);
    atomic_store_explicit(&pool->extents[slot].length, length, memory_order_relaxed);
}

/*
 * What the quick ways may pin of an extent that is pinned or being installed. Under files_lock, as
 * is whoever lowers a size, so that it is never more than the size allows. The fault handler stores
 * failed, then 0; we store, then read failed: in one order of all four, 0 is what stays.
 */
static void set_usable_locked(struct mf_pool *pool, uint32_t slot)
{
    struct machine_slot *machine = payload(pool, slot);
    const struct extent *extent = &pool->extents[slot];
    const uint64_t size = atomic_load_explicit(&extent->file->size, memory_order_relaxed);
    const size_t length = length_of(pool, slot);
    const uint64_t room = size > extent->offset ? size - extent->offset : 0;
    if (atomic_load_explicit(&machine->failed, memory_order_relaxed))
        return; /* it is 0, or will be */
    atomic_store_explicit(&machine->usable, room < length ? (size_t)room : length,
                          memory_order_seq_cst);
    if (atomic_load_explicit(&machine->failed, memory_order_seq_cst))
        atomic_store_explicit(&machine->usable, 0, memory_order_seq_cst);
}

void extent_resize(struct mf_pool *pool, uint32_t slot)
{
    pthread_mutex_lock(&pool->files_lock);
    set_usable_locked(pool, slot);
    pthread_mutex_unlock(&pool->files_lock);
}

void extents_resize(struct mf_file *file, uint64_t size)
{
    struct mf_pool *pool = file->pool;
    pthread_mutex_lock(&pool->files_lock);
    atomic_store_explicit(&file->size, size, memory_order_relaxed);
    for (uint32_t slot = file->first_extent; slot != POOL_NONE; slot = pool->extents[slot].next)
        set_usable_locked(pool, slot);
    pthread_mutex_unlock(&pool->files_lock);
}

/* The counters of one pool, cut from larger pieces; under the core's lock. */
struct chunk_store {
    struct chunk_store *next;
    size_t used;
};

void *machine_chunk(struct pool *core, size_t bytes)
{
    struct mf_pool *pool = pool_of(core);
    struct chunk_store *store = pool->chunks;
    if (!store || CHUNK_STORE - store->used < bytes) {
        store = metadata_map(CHUNK_STORE);
        if (!store)
            return NULL;
        store->next = pool->chunks;
        store->used = bytes; /* the head takes the room of one chunk: all stay aligned */
        pool->chunks = store;
    }
    store->used += bytes;
    return (char *)store + store->used - bytes;
}

void chunks_destroy(struct mf_pool *pool)
{
    while (pool->chunks) {
        struct chunk_store *next = pool->chunks->next;
        metadata_unmap(pool->chunks, CHUNK_STORE);
        pool->chunks = next;
    }
}

/* The lists of a file's extents. */

static void attach(struct mf_pool *pool, uint32_t slot, const struct request *request)
{
    struct extent *extent = &pool->extents[slot];
    struct mf_file *file = request->file;
    file_ref(file);
    pthread_mutex_lock(&pool->files_lock);
    extent->file = file;
    extent->offset = request->offset;
    extent->write = request->write;
    extent->born = pool->installs++;
    extent->before = POOL_NONE;
    extent->next = file->first_extent;
    if (file->first_extent != POOL_NONE)
        pool->extents[file->first_extent].before = slot;
    file->first_extent = slot;
    set_usable_locked(pool, slot);
    pthread_mutex_unlock(&pool->files_lock);
}

static void detach(struct mf_pool *pool, uint32_t slot)
{
    struct extent *extent = &pool->extents[slot];
    struct mf_file *file = extent->file;
    if (!file)
        return;
    pthread_mutex_lock(&pool->files_lock);
    if (extent->before != POOL_NONE)
        pool->extents[extent->before].next = extent->next;
    else
        file->first_extent = extent->next;
    if (extent->next != POOL_NONE)
        pool->extents[extent->next].before = extent->before;
    extent->file = NULL;
    pool->failed_retired +=
        atomic_load_explicit(&payload(pool, slot)->failed, memory_order_relaxed) != 0;
    pthread_mutex_unlock(&pool->files_lock);
    file_unref(file);

    atomic_store_explicit(&payload(pool, slot)->failed, 0, memory_order_relaxed);
    atomic_store_explicit(&extent->faults, 0, memory_order_relaxed);
    const uint32_t repairs = atomic_exchange_explicit(&extent->repairs, 0, memory_order_relaxed);
    budget_give(&pool->budget, 0, repairs);
    budget_give(&process_budget, 0, repairs);
}

/* The machine's functions. */

/* What is given up by a shorter request is given back when the old extent is gone: in install. */
int machine_admit(struct pool *core, uint32_t slot, void *request)
{
    struct mf_pool *pool = pool_of(core);
    const struct request *r = request;
    const size_t old = length_of(pool, slot);
    /* Looked up before with other limits: it would stand first in the queue for ever. */
    if (r->length > atomic_load_explicit(&pool->budget.bytes_limit, memory_order_seq_cst))
        return -E2BIG;
    return r->length <= old || budget_take(&pool->budget, r->length - old, !old);
}

/*
 * At the hint if that is free, else anywhere; where the piece is long enough, so that huge pages of
 * the page cache can be mapped as such. Without MAP_FIXED: see map_over.
 */
static char *map_near(char *hint, const struct request *r, int prot, int fd)
{
    const off_t offset = (off_t)r->offset;
    char *base = system_mmap(hint, r->length, prot, MAP_SHARED, fd, offset);
    if (base == MAP_FAILED || r->length < HUGE || system_page >= HUGE)
        return base;
    const size_t off = ((uintptr_t)base - r->offset) & (HUGE - 1);
    if (!off || system_munmap(base, r->length) != 0)
        return base;
    return system_mmap(base - off, r->length, prot, MAP_SHARED, fd, offset);
}

/* EAGAIN (RLIMIT_MEMLOCK) is to our callers something else: that all is pinned. */
static int mmap_error(void)
{
    return errno == EAGAIN ? -ENOMEM : -errno;
}

/* What was mapped in a slot before. */
struct place {
    char *base;
    size_t length;
    uint64_t offset, inode;
    bool found;
};

static struct place place_of(struct mf_pool *pool, uint32_t slot)
{
    const struct extent *extent = &pool->extents[slot];
    return (struct place){base_of(pool, slot), length_of(pool, slot), extent->offset,
                          extent->file ? extent->file->identity.inode : 0, false};
}

static bool is_place(const struct map_line *line, void *context)
{
    struct place *place = context;
    const uintptr_t base = (uintptr_t)place->base;
    if (base < line->start || base >= line->end)
        return false;
    place->found = line->inode == place->inode && base + place->length <= line->end &&
                   line->offset + (base - line->start) == place->offset;
    return true;
}

/*
 * Over the old mapping, which is one call less than unmapping it, and has the other threads wait
 * less for each other. But where it is the file's own mmap that fails (the file system is shut
 * down, for instance), the kernel has by then removed the old mapping, and another thread may
 * already have got the address: then it is no longer ours to unmap. (The kernel's own limits come
 * before.)
 */
static int map_over(struct mf_pool *pool, uint32_t slot, const struct request *r, int prot, int fd,
                    struct place *old)
{
    if (system_mmap(old->base, old->length, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)r->offset) !=
        MAP_FAILED)
        return 0;
    const int err = mmap_error();
    if (err != -ENOMEM && (maps_each(is_place, old) != 0 || !old->found))
        set_place(pool, slot, NULL, 0);
    return err;
}

/* Puts the request's mapping where the slot's was, or anywhere. What fails leaves the old one, or
 * none; the slot's place says which. A file that was never mapped so perhaps cannot be. */
static int map_request(struct mf_pool *pool, uint32_t slot, const struct request *r, int fd,
                       struct place *old)
{
    const int prot = r->write ? PROT_READ | PROT_WRITE : PROT_READ;
    const uint32_t mode = 1u << r->write;
    const bool same = old->length == r->length;
    if (same && atomic_load_explicit(&r->file->mapped, memory_order_relaxed) & mode)
        return map_over(pool, slot, r, prot, fd, old);
    if (old->length && system_munmap(old->base, old->length) != 0)
        return -errno;
    set_place(pool, slot, NULL, 0);
    char *base = map_near(same ? old->base : NULL, r, prot, fd);
    if (base == MAP_FAILED)
        return mmap_error();
    set_place(pool, slot, base, r->length);
    atomic_fetch_or_explicit(&r->file->mapped, mode, memory_order_relaxed);
    return 0;
}

/* How far the fault handler looks. Installs run side by side: only ever raised. */
static void raise_extents_used(struct mf_pool *pool, uint32_t slot)
{
    uint32_t used = atomic_load_explicit(&pool->extents_used, memory_order_relaxed);
    while (used <= slot &&
           !atomic_compare_exchange_weak_explicit(&pool->extents_used, &used, slot + 1,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

int machine_install(struct pool *core, uint32_t slot, void *request)
{
    struct mf_pool *pool = pool_of(core);
    const struct request *r = request;
    const int saved = errno, cancel = cancel_off();
    struct place place = place_of(pool, slot);
    const size_t old = place.length;
    const size_t more = r->length > old ? r->length - old : 0; /* reserved by machine_admit */
    detach(pool, slot);
    const int fd = file_fd_get(r->file);
    int err = fd < 0 ? fd : 0;
    if (!err && more && !budget_take(&process_budget, more, !old))
        err = -ENOMEM;
    const bool charged = !err;
    if (!err)
        err = map_request(pool, slot, r, fd, &place);
    if (fd >= 0)
        file_fd_put(r->file);
    if (err && length_of(pool, slot) && system_munmap(place.base, old) == 0)
        set_place(pool, slot, NULL, 0);

    /* Both budgets go down from the larger of the two lengths to what is mapped now. */
    const size_t now = length_of(pool, slot);
    budget_give(&pool->budget, old + more - now, !now);
    if (charged)
        budget_give(&process_budget, old + more - now, !now);
    else
        budget_give(&process_budget, old - now, old && !now);
    if (!err) {
        raise_extents_used(pool, slot);
        attach(pool, slot, r);
    }
    PROBE(pool_miss, pool, slot, r->offset, r->length, err);
    cancel_restore(cancel);
    errno = saved;
    return err;
}

/* One call for all where the kernel has it for the own process (6.13), else one for each. What
 * fails here is only slower: the pages go when the address is reused. */
void machine_drop(struct pool *core, const uint32_t *slots, uint32_t count)
{
    enum { OWN_PROCESS = -10000 }; /* PIDFD_SELF_THREAD, 6.14 */
    static _Atomic bool refused;
    struct mf_pool *pool = pool_of(core);
    struct iovec ranges[POOL_BATCH_ROOM(BATCH_MAX)];
    const int saved = errno;
    PROBE(pool_evict, pool, count);
    for (uint32_t i = 0; i < count; i++)
        ranges[i] = (struct iovec){base_of(pool, slots[i]), length_of(pool, slots[i])};
    uint32_t done = 0;
    while (done < count && !atomic_load_explicit(&refused, memory_order_relaxed)) {
        const ssize_t bytes =
            system_process_madvise(OWN_PROCESS, ranges + done, count - done, MADV_DONTNEED);
        if (bytes <= 0) {
            if (errno != ENOMEM && errno != EINTR && errno != EAGAIN)
                atomic_store_explicit(&refused, true, memory_order_relaxed);
            break;
        }
        for (ssize_t left = bytes; done < count && left >= (ssize_t)ranges[done].iov_len; done++)
            left -= (ssize_t)ranges[done].iov_len;
        if (done < count)
            break;
    }
    for (; done < count; done++)
        system_madvise(ranges[done].iov_base, ranges[done].iov_len, MADV_DONTNEED);
    errno = saved;
}

/* Unmaps and gives the budget back; keeps both if the kernel will not. */
void extent_unmap(struct mf_pool *pool, uint32_t slot)
{
    const int saved = errno;
    const size_t length = length_of(pool, slot);
    if (length && system_munmap(base_of(pool, slot), length) == 0) {
        set_place(pool, slot, NULL, 0);
        budget_give(&pool->budget, length, 1);
        budget_give(&process_budget, length, 1);
    }
    errno = saved;
}

void machine_retire(struct pool *core, uint32_t slot)
{
    detach(pool_of(core), slot);
    extent_unmap(pool_of(core), slot);
}

bool machine_is_kept(struct pool *core, uint32_t slot)
{
    return length_of(pool_of(core), slot) != 0;
}

/* What cannot be unmapped between its neighbours perhaps can when they are gone. */
void extents_destroy(struct mf_pool *pool)
{
    const uint32_t used = atomic_load_explicit(&pool->extents_used, memory_order_relaxed);
    uint64_t before, maps = atomic_load_explicit(&pool->budget.maps, memory_order_relaxed);
    do {
        before = maps;
        for (uint32_t i = 0; i < used; i++)
            machine_retire(&pool->core, i);
        maps = atomic_load_explicit(&pool->budget.maps, memory_order_relaxed);
    } while (maps && maps < before);
}

/* Adds the file's extents that still can be found by their key and were there at the beginning. */
static uint32_t gather(struct mf_pool *pool, const struct mf_file *file, uint64_t until,
                       struct pool_victim *victims, uint32_t count)
{
    pthread_mutex_lock(&pool->files_lock);
    for (uint32_t slot = file->first_extent; slot != POOL_NONE && count < BATCH_MAX;
         slot = pool->extents[slot].next) {
        const uint32_t life =
            atomic_load_explicit(&pool->core.slots[slot].life, memory_order_acquire);
        const uint32_t state = pool_life_state(life);
        if (pool->extents[slot].born < until && state != POOL_DOOMED && state != POOL_BUSY)
            victims[count++] = (struct pool_victim){slot, life >> 3};
    }
    pthread_mutex_unlock(&pool->files_lock);
    return count;
}

void files_forget(struct mf_pool *pool, struct mf_file *const *files, size_t count)
{
    pthread_mutex_lock(&pool->files_lock);
    const uint64_t until = pool->installs;
    pthread_mutex_unlock(&pool->files_lock);
    struct pool_victim victims[BATCH_MAX];
    uint32_t gathered = 0;
    for (size_t i = 0; i < count;) {
        if (files[i] && files[i]->pool == pool)
            gathered = gather(pool, files[i], until, victims, gathered);
        if (gathered < BATCH_MAX) {
            i++;
            continue;
        }
        pool_doom(&pool->core, victims, gathered); /* and look at the same file again */
        gathered = 0;
    }
    pool_doom(&pool->core, victims, gathered);
}
