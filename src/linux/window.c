/* SPDX-License-Identifier: MIT */
/*
 * Windows. A file is cut into extents at multiples of the pool's extent size; a piece within one of
 * them has the key (file, 1 extent, its number). A piece that crosses a boundary has an extent of
 * its own that spans all it touches, so that it is contiguous: (file, n extents, the first's
 * number).
 *
 * An extent is mapped as long as the file was when it was installed (rounded up, so that small
 * files of similar length can take each other's place). A piece beyond that dooms it and maps a
 * longer one; those who have the old one pinned keep it.
 */
#include <stdlib.h>
#include <time.h>

#include "linux/pool.h"
#include "linux/system.h"

enum {
    PIN_FLAGS = MF_WRITE | MF_MAY_COPY | MF_ZERO_END | MF_CHECK_SIZE | MF_IF_MAPPED,
};

/* Of windows that are pinned. */

static bool has_slot(const struct mf_window *w)
{
    return !(window_place(w) & WINDOW_NO_SLOT);
}

static uint32_t slot_of(const struct mf_window *w)
{
    return window_place(w) & ((1 << WINDOW_SLOT_BITS) - 1);
}

static struct mf_pool *pool_of(const struct mf_window *w)
{
    const uint64_t index = window_place(w) >> WINDOW_SLOT_BITS & (POOLS_MAX - 1);
    return atomic_load_explicit(&registry[index], memory_order_relaxed);
}

static uint64_t size_seen(const struct mf_file *file)
{
    return atomic_load_explicit(&file->size, memory_order_relaxed);
}

/* Pieces. */

/* Where the budget has no room for whole extents, an extent of just the pages touched. Its key has
 * the number of pages in the place of extents, and says so in the highest bit. */
static int locate_tight(struct mf_file *file, uint64_t offset, size_t length, bool write,
                        uint64_t limit, struct piece *piece)
{
    const uint64_t start = offset & ~(system_page - 1);
    const uint64_t bytes = round_up(offset + length, system_page) - start;
    if (bytes > limit || bytes / system_page > 1 << SPAN_BITS)
        return -E2BIG;
    piece->key =
        piece_key(file, UINT64_C(1) << 63 | start / system_page, bytes / system_page, write);
    piece->request = (struct request){file, start, bytes, write};
    piece->in_extent = offset - start;
    piece->length = length;
    return 0;
}

int piece_locate(struct mf_file *file, uint64_t offset, size_t length, bool write,
                 struct piece *piece)
{
    struct mf_pool *pool = file->pool;
    const uint32_t shift = pool->extent_shift;
    const uint64_t first = offset >> shift, end = offset + length;
    const uint64_t span = ((end - 1) >> shift) - first + 1;
    const uint64_t start = first << shift;
    if (span > 1 << SPAN_BITS)
        return -E2BIG;

    /* All of the extent that the file has; of a lone small one, a power of two of pages. */
    const uint64_t size = size_seen(file) > end ? size_seen(file) : end;
    uint64_t bytes = round_up(size - start, system_page);
    if (span == 1)
        bytes = UINT64_C(1) << (64 - __builtin_clzll(bytes - 1));
    if (bytes > span << shift)
        bytes = span << shift;
    const uint64_t limit = atomic_load_explicit(&pool->budget.bytes_limit, memory_order_relaxed);
    if (bytes > limit)
        return locate_tight(file, offset, length, write, limit, piece);
    piece->key = piece_key(file, first, span, write);
    piece->request = (struct request){file, start, bytes, write};
    piece->in_extent = offset - start;
    piece->length = length;
    return 0;
}

/* Gives a pin back that its owner has not got. */
static void piece_put(struct mf_pool *pool, struct pool_block *block, uint32_t slot)
{
    struct pool_counter *counter = block ? pool_counter(block, slot) : NULL;
    /* From the note of the pin, if there is one, and with its mark: the window gets the next. */
    if (counter)
        pool_unpin_note(block, counter, slot,
                        atomic_load_explicit(&block->note_mark, memory_order_relaxed));
    pool_unpin(&pool->core, block, slot);
    pool_settle(block);
}

/* Where the piece lies in an extent that is pinned; NULL: not in there. */
static char *place_in(struct mf_pool *pool, uint32_t slot, const struct piece *piece)
{
    if (!extent_fits(pool, slot, piece->in_extent, piece->length))
        return NULL;
    const struct machine_slot *machine = &pool->core.slots[slot].machine;
    if (piece->in_extent + piece->length >
        atomic_load_explicit(&machine->usable, memory_order_relaxed))
        extent_resize(pool, slot); /* next time it is a hit */
    return atomic_load_explicit(&machine->base, memory_order_relaxed) + piece->in_extent;
}

int piece_pin(struct mf_file *file, struct pool_block *block, struct piece *piece,
              uint64_t deadline, uint32_t *slot, char **data)
{
    struct mf_pool *pool = file->pool;
    for (;;) {
        const int err = pool_pin(&pool->core, block, piece->key, &piece->request, deadline, slot);
        if (err == -ENOMEM && process_make_room(pool, piece->request.length, 1))
            continue;
        if (err)
            return err;
        if ((*data = place_in(pool, *slot, piece)))
            return 0;
        /* Failed, or the file has grown since: out of the way with it. */
        const struct pool_victim victim = {*slot, pool_generation(&pool->core, *slot)};
        const bool failed = extent_failed(pool, *slot);
        piece_put(pool, block, *slot);
        pool_doom(&pool->core, &victim, 1);
        const uint64_t end = piece->request.offset + piece->in_extent + piece->length;
        const int gone = failed ? file_check_range(file, end) : 0;
        if (gone)
            return gone;
    }
}

int piece_unpin_slow(struct mf_pool *pool, uint32_t slot, int err)
{
    const struct pool_victim victim = {slot, pool_generation(&pool->core, slot)};
    pool_unpin_slow(&pool->core, slot);
    if (pool->flags & MF_POOL_DEBUG)
        pool_doom(&pool->core, &victim, 1);
    return err;
}

int piece_unpin_generic(struct mf_pool *pool, uint32_t slot, uint64_t *mark, struct mf_window *w)
{
    const int saved = errno;
    struct pool_block *block = thread_block(pool);
    const struct pool_victim victim = {slot, pool_generation(&pool->core, slot)};
    const int err = extent_failed(pool, slot) ? -EIO : 0;
    /* If not: out of memory, or the thread is ending. Then the unpin is counted in common, and not
     * noted for a fork. */
    const bool noted = pool_counter_ready(&pool->core, block, slot);
    if (noted)
        pool_unpin_note(block, pool_counter(block, slot), slot, mark);
    if (mark)
        mark_clear(mark);
    if (w)
        window_wipe(w);
    pool_unpin(&pool->core, noted ? block : NULL, slot);
    if (noted)
        pool_settle(block);
    if (pool->flags & MF_POOL_DEBUG)
        pool_doom(&pool->core, &victim, 1);
    errno = saved;
    return err;
}

static uint32_t piece_slot(struct mf_pool *pool, const struct piece *piece)
{
    return pool_walk(&pool->core, pool_first(&pool->core, piece->key), piece->key);
}

bool piece_is_mapped(struct mf_pool *pool, const struct piece *piece)
{
    return piece_slot(pool, piece) != POOL_NONE;
}

static bool has_room(const struct mf_pool *pool)
{
    const struct budget *b = &pool->budget;
    return atomic_load_explicit(&b->maps, memory_order_relaxed) <
               atomic_load_explicit(&b->maps_max, memory_order_relaxed) &&
           atomic_load_explicit(&b->bytes, memory_order_relaxed) +
                   (UINT64_C(1) << pool->extent_shift) <=
               atomic_load_explicit(&b->bytes_max, memory_order_relaxed);
}

/* A word is a key's hash, and in its lowest bits how often it was touched since it came, or since
 * the last time that was often enough. */
bool ghost_touch(struct mf_pool *pool, struct pool_key key)
{
    enum { TOUCHES = 7, ENOUGH = 2, ENOUGH_TO_EVICT = 4 };
    const uint64_t hash =
        (key.owner * UINT64_C(0x9e3779b97f4a7c15) ^ key.index) * UINT64_C(0xd6e8feb86659fd93);
    _Atomic uint64_t *ghost = &pool->ghosts[hash >> 40 & pool->ghosts_mask];
    const uint64_t found = atomic_load_explicit(ghost, memory_order_relaxed);
    const uint64_t name = hash & ~(uint64_t)TOUCHES;
    const uint64_t touches = (found & ~(uint64_t)TOUCHES) == name ? (found & TOUCHES) + 1 : 1;
    const bool enough = touches >= ENOUGH_TO_EVICT || (touches >= ENOUGH && has_room(pool));
    atomic_store_explicit(ghost, name | (enough ? 1 : touches), memory_order_relaxed);
    return enough;
}

/* Private copies. */

static int take_copy_locked(struct mf_pool *pool, size_t bytes)
{
    /* The pool's last: what is taken of it and given back, a thread that waits for it may miss. */
    if (!budget_take(&process_budget, bytes, 0))
        return -ENOMEM;
    if (!budget_take(&pool->budget, bytes, 0)) {
        budget_give(&process_budget, bytes, 0);
        return -EAGAIN;
    }
    pool->copied += bytes;
    if (thread_self) {
        thread_self->copying = bytes;
        thread_self->copying_in = pool;
    }
    return 0;
}

/* Counted in the budget; for idle extents' bytes if need be. The thread notes it for fork. */
static int reserve_copy(struct mf_pool *pool, size_t bytes)
{
    if (bytes > atomic_load_explicit(&pool->budget.bytes_limit, memory_order_relaxed))
        return -E2BIG;
    thread_record();
    for (;;) {
        pthread_mutex_lock(&pool->files_lock);
        const int err = take_copy_locked(pool, bytes);
        pthread_mutex_unlock(&pool->files_lock);
        if (!err)
            return 0;
        if (!pool_shrink(&pool->core, 1) && (err == -EAGAIN || !process_make_room(pool, bytes, 0)))
            return err;
    }
}

static void settle_copy(void)
{
    if (thread_self)
        thread_self->copying_in = NULL;
}

/* Gives the bytes back and clears the window, if there is one yet: for a fork both at once. */
static void release_copy(struct mf_pool *pool, size_t bytes, struct mf_window *w)
{
    pthread_mutex_lock(&pool->files_lock);
    if (w)
        window_clear(w);
    pool->copied -= bytes;
    budget_give(&pool->budget, bytes, 0);
    budget_give(&process_budget, bytes, 0);
    settle_copy();
    pthread_mutex_unlock(&pool->files_lock);
    pool_budget_changed(&pool->core);
}

/* One byte more than the piece, for MF_ZERO_END. */
static int pin_copy(struct mf_file *file, uint64_t offset, size_t length, uint32_t flags,
                    struct mf_window *w)
{
    if (flags & MF_IF_MAPPED)
        return -EAGAIN;
    struct mf_pool *pool = file->pool;
    int err = reserve_copy(pool, length + 1);
    if (err)
        return err;
    char *copy = malloc(length + 1);
    err = copy ? file_pread_all(file, copy, length, offset) : -ENOMEM;
    if (err) {
        free(copy);
        release_copy(pool, length + 1, NULL);
        return err;
    }
    copy[length] = 0;
    file_ref(file);
    pthread_mutex_lock(&pool->files_lock); /* for a fork: the window has the bytes, or nobody */
    *w = (struct mf_window){.data = copy, .length = length, .flags = flags | MF_WINDOW_COPY};
    w->opaque[WINDOW_FILE] = (uintptr_t)file;
    window_own(w, pool, WINDOW_NO_SLOT);
    pool->copies++;
    settle_copy();
    pthread_mutex_unlock(&pool->files_lock);
    return 0;
}

/* Pinning. */

static inline __attribute__((always_inline)) void fill(struct mf_window *w,
                                                       const struct mf_pool *pool, uint32_t slot,
                                                       const char *data, size_t length,
                                                       uint32_t flags)
{
    w->data = data;
    w->length = length;
    atomic_signal_fence(memory_order_release); /* else they are put together first, at more cost */
    w->flags = flags;
    window_own(w, pool, slot);
}

static void fill_empty(struct mf_window *w, struct mf_pool *pool, uint32_t flags)
{
    *w = (struct mf_window){.flags = flags};
    window_own(w, pool, WINDOW_NO_SLOT);
}

static int check_arguments(const struct mf_file *file, uint64_t offset, size_t length,
                           uint32_t flags, const struct mf_window *w)
{
    if (flags & ~(uint32_t)PIN_FLAGS || window_is_in_use(w) || offset > INT64_MAX ||
        length > INT64_MAX - offset)
        return -EINVAL;
    if (!(flags & MF_WRITE))
        return 0;
    if (file->copy_only || flags & MF_ZERO_END)
        return -ENOTSUP;
    return file->write ? 0 : -EACCES;
}

/* A small file that nobody has touched lately is read, not mapped. */
static bool is_cold(struct mf_file *file, const struct piece *piece)
{
    return size_seen(file) <= SMALL_FILE && piece->request.length <= SMALL_FILE &&
           file->first_extent == POOL_NONE && !ghost_touch(file->pool, piece->key);
}

/* What mmap(2) says of a file that cannot be mapped, or not now, but can perhaps be read. */
static bool is_refusal(int err)
{
    return err == -ENOMEM || err == -ENODEV || err == -EACCES || err == -EPERM;
}

/* The hit alone, for a thread that may be new in this pool. */
static int pin_if_mapped(struct mf_file *file, uint64_t offset, size_t length, uint32_t flags,
                         struct mf_window *w)
{
    struct mf_pool *pool = file->pool;
    struct pool_block *block = thread_block(pool);
    struct piece piece;
    const int err = piece_locate(file, offset, length, flags & MF_WRITE, &piece);
    if (err || !block)
        return err ? err : -EAGAIN;
    pool_mark(block, &w->opaque[WINDOW_WORD]);
    const uint32_t held = piece_slot(pool, &piece);
    if (held == POOL_NONE || !pool_hit_ready(&pool->core, block, held))
        return -EAGAIN;
    const uint32_t slot = pool_hit(&pool->core, block, piece.key);
    if (slot == POOL_NONE)
        return -EAGAIN;
    const char *data = place_in(pool, slot, &piece);
    if (!data) {
        piece_put(pool, block, slot);
        return -EAGAIN;
    }
    fill(w, pool, slot, data, length, flags);
    pool_settle(block);
    return 0;
}

static int pin_mapped(struct mf_file *file, uint64_t offset, size_t length, uint32_t flags,
                      uint64_t deadline, struct mf_window *w)
{
    if (flags & MF_IF_MAPPED)
        return pin_if_mapped(file, offset, length, flags, w);
    struct piece piece;
    int err = piece_locate(file, offset, length, flags & MF_WRITE, &piece);
    if (err)
        return err;
    /* Never what is written through: that is the file, or nothing. */
    const bool may_copy = (flags & (MF_MAY_COPY | MF_WRITE)) == MF_MAY_COPY;
    if (may_copy && is_cold(file, &piece)) {
        err = pin_copy(file, offset, length, flags, w);
        if (err != -EAGAIN && err != -E2BIG && err != -ENOMEM)
            return err; /* else there is more room for a map, or time to wait for one */
    }
    struct pool_block *block = thread_block(file->pool);
    pool_mark(block, &w->opaque[WINDOW_WORD]);
    uint32_t slot;
    char *data;
    do
        err = piece_pin(file, block, &piece, deadline, &slot, &data);
    while (err == -E2BIG /* the limits are others now */ &&
           (err = piece_locate(file, offset, length, flags & MF_WRITE, &piece)) == 0);
    if (!err) {
        fill(w, file->pool, slot, data, length, flags);
        pool_settle(block);
    } else if (is_refusal(err) && may_copy) {
        err = pin_copy(file, offset, length, flags, w);
    }
    return err;
}

/* Whether the byte after the window is 0. It is not where somebody has written there through a
 * mapping: the file system clears it only when it writes the page. */
static bool is_zero_after(const struct mf_window *w)
{
    char byte = 1;
    return mf_copy(&byte, (const char *)w->data + w->length, 1) == 1 && !byte;
}

/* Of a piece that ends at the end of the file, and within a page. */
static int pin_with_zero(struct mf_file *file, uint64_t offset, size_t length, uint32_t flags,
                         uint64_t deadline, struct mf_window *w)
{
    const int err = pin_mapped(file, offset, length, flags, deadline, w);
    if (err || w->flags & MF_WINDOW_COPY || is_zero_after(w))
        return err;
    mf_window_unpin(w);
    return pin_copy(file, offset, length, flags, w);
}

static int __attribute__((noinline))
pin_generic(struct mf_file *file, uint64_t offset, size_t length, uint32_t flags, uint64_t deadline,
            struct mf_window *w)
{
    struct pool_block *block = thread_block_ready(file->pool);
    if (block)
        pool_give_up(&file->pool->core, block);
    int err = check_arguments(file, offset, length, flags, w);
    if (err)
        return err;
    const int saved = errno;
    const uint64_t end = offset + length;
    if (flags & (MF_CHECK_SIZE | MF_ZERO_END) || end > size_seen(file))
        err = file_check_range(file, end);
    if (!err) {
        const bool zero = flags & MF_ZERO_END && end == size_seen(file);
        if (!length && !zero)
            fill_empty(w, file->pool, flags);
        else if (file->copy_only || (zero && (!length || (end & (system_page - 1)) == 0)))
            err = pin_copy(file, offset, length, flags, w);
        else if (zero)
            err = pin_with_zero(file, offset, length, flags, deadline, w);
        else
            err = pin_mapped(file, offset, length, flags, deadline, w);
    }
    errno = saved;
    return err;
}

int mf_window_pin(struct mf_file *file, uint64_t offset, size_t length, uint32_t flags,
                  uint64_t deadline, struct mf_window *w)
{
    /* The quick way: into a window that is zeroed, what piece_try can pin. Whatever is wrong with a
     * call is found out on the other. */
    const struct mf_pool *pool = file->pool;
    struct pool_block *block = thread_quick[pool->index];
    if (__builtin_expect(block && !(flags & ~(uint32_t)(MF_WRITE | MF_MAY_COPY | MF_IF_MAPPED)) &&
                             !w->opaque[WINDOW_WORD],
                         true)) {
        pool_mark(block, &w->opaque[WINDOW_WORD]);
        uint32_t slot;
        char *data;
        if (__builtin_expect(
                piece_try(file, pool, block, offset, length, flags & MF_WRITE, &slot, &data),
                true)) {
            fill(w, pool, slot, data, length, flags);
            pool_settle(block);
            return 0;
        }
    }
    return pin_generic(file, offset, length, flags, deadline, w);
}

/* Pinned windows. */

void *mf_window_data_mut(const struct mf_window *w)
{
    if (!window_is_pinned(w, false) || !(w->flags & MF_WRITE))
        return NULL;
    return (void *)(uintptr_t)w->data;
}

static struct mf_file *file_of(const struct mf_window *w)
{
    if (w->flags & MF_WINDOW_COPY)
        return (struct mf_file *)(uintptr_t)w->opaque[WINDOW_FILE];
    return has_slot(w) ? pool_of(w)->extents[slot_of(w)].file : NULL;
}

static uint64_t end_of(const struct mf_window *w)
{
    const struct mf_pool *pool = pool_of(w);
    const struct machine_slot *machine = &pool->core.slots[slot_of(w)].machine;
    return pool->extents[slot_of(w)].offset + w->length +
           (uint64_t)((const char *)w->data -
                      atomic_load_explicit(&machine->base, memory_order_relaxed));
}

int mf_window_check(const struct mf_window *w)
{
    if (!window_is_pinned(w, false))
        return -EINVAL;
    const bool mapped = has_slot(w);
    if (mapped && extent_failed(pool_of(w), slot_of(w)))
        return -EIO;
    if (!mapped || !(w->flags & MF_CHECK_SIZE))
        return 0;
    const int saved = errno;
    int err = file_check_range(file_of(w), end_of(w));
    if (err == -EBADF || err == -ESTALE)
        err = 0; /* closed, or without a path that leads to it: nobody knows its size any more */
    /* A fault may have come between the two looks. */
    if (!err && extent_failed(pool_of(w), slot_of(w)))
        err = -EIO;
    errno = saved;
    return err;
}

int mf_window_sync(const struct mf_window *w)
{
    if (!window_is_pinned(w, false))
        return -EINVAL;
    if (!(w->flags & MF_WRITE))
        return -EACCES;
    if (!has_slot(w))
        return 0;
    const int saved = errno, cancel = cancel_off();
    const uintptr_t start = (uintptr_t)w->data & ~(uintptr_t)(system_page - 1);
    const uintptr_t end = round_up((uintptr_t)w->data + w->length, system_page);
    int err = msync((void *)start, end - start, MS_SYNC) == 0 ? 0 : -errno;
    cancel_restore(cancel);
    if (!err && extent_failed(pool_of(w), slot_of(w)))
        err = -EIO;
    errno = saved;
    return err;
}

/* A copy, an empty window, or one that is not pinned. */
static int __attribute__((noinline)) unpin_other(struct mf_window *w)
{
    if (!window_is_pinned(w, false))
        return -EINVAL;
    struct mf_pool *pool = pool_of(w);
    struct mf_file *file = file_of(w);
    if (!file) {
        window_clear(w);
        return 0;
    }
    void *data = (void *)(uintptr_t)w->data;
    release_copy(pool, w->length + 1, w);
    free(data);
    file_unref(file);
    return 0;
}

int mf_window_unpin(struct mf_window *w)
{
    const uint64_t place = window_place(w);
    if (__builtin_expect(place >= WINDOW_NO_SLOT, false))
        return unpin_other(w);
    const uint32_t slot = place & ((1 << WINDOW_SLOT_BITS) - 1);
    struct pool_block *block = thread_quick[place >> WINDOW_SLOT_BITS];
    if (__builtin_expect(!block, false))
        return piece_unpin_generic(pool_of(w), slot, &w->opaque[WINDOW_WORD], w);
    return piece_unpin((struct mf_pool *)block->pool, block, slot, &w->opaque[WINDOW_WORD], w);
}

uint64_t mf_deadline_in(uint64_t nanoseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return nanoseconds < UINT64_MAX - 1 - now ? now + nanoseconds : MF_FOREVER;
}
