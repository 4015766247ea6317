/* SPDX-License-Identifier: MIT */
/*
 * Local windows: the atomic kmaps. A thread's own, on a stack of their own; they borrow an extent
 * that is mapped, or that can be mapped without waiting for anybody's unpin once it was touched
 * twice; else the piece is read into the thread's buffer, of which the stack's top is given back
 * with its window. The window's second opaque word: bytes of the buffer before it.
 */

#include "linux/pool.h"
#include "linux/system.h"

enum { IN_BUFFER = WINDOW_WORD + 1 };

static inline __attribute__((always_inline)) void push(struct thread *self, struct mf_pool *pool,
                                                       uint32_t slot, const void *data,
                                                       size_t length, struct mf_window *w)
{
    w->data = data;
    w->length = length;
    w->flags = slot == POOL_NONE && length ? MF_WINDOW_COPY : 0;
    w->opaque[IN_BUFFER] = self->local_used;
    window_own(w, pool, WINDOW_LOCAL | (slot == POOL_NONE ? WINDOW_NO_SLOT : slot));
    self->local[self->locals] = (struct local){w, pool, slot, slot != POOL_NONE};
    store_fence();
    *(volatile uint32_t *)&self->locals = self->locals + 1;
}

/* Into the thread's buffer. */
static int push_read(struct thread *self, struct mf_file *file, uint64_t offset, size_t length,
                     struct mf_window *w)
{
    if (!self->local_buffer && !(self->local_buffer = metadata_map(LOCAL_BUFFER)))
        return -ENOMEM;
    if (length > LOCAL_BUFFER - self->local_used)
        return -E2BIG;
    char *to = self->local_buffer + self->local_used;
    const int err = file_pread_all(file, to, length, offset);
    if (err)
        return err;
    push(self, file->pool, POOL_NONE, to, length, w);
    self->local_used += round_up(length, 16);
    if (self->local_used > LOCAL_BUFFER)
        self->local_used = LOCAL_BUFFER;
    return 0;
}

static int pin_slow(struct thread *self, struct pool_block *block, struct mf_file *file,
                    uint64_t offset, size_t length, struct mf_window *w)
{
    const uint64_t end = offset + length;
    if (end > atomic_load_explicit(&file->size, memory_order_relaxed)) {
        const int err = file_check_range(file, end);
        if (err)
            return err;
    }
    if (!length) {
        push(self, file->pool, POOL_NONE, NULL, 0, w);
        return 0;
    }
    struct piece piece;
    uint32_t slot;
    char *data;
    const bool too_long = length > LOCAL_BUFFER - self->local_used;
    if (!file->copy_only && piece_locate(file, offset, length, false, &piece) == 0 &&
        (piece_is_mapped(file->pool, &piece) || ghost_touch(file->pool, piece.key) || too_long) &&
        piece_pin(file, block, &piece, MF_NOWAIT, &slot, &data) == 0) {
        push(self, file->pool, slot, data, length, w);
        pool_settle(block);
        return 0;
    }
    return push_read(self, file, offset, length, w);
}

static int __attribute__((noinline))
pin_generic(struct mf_file *file, uint64_t offset, size_t length, struct mf_window *w)
{
    const int saved = errno;
    struct pool_block *block = thread_block(file->pool);
    struct thread *self = thread_record();
    errno = saved;
    if (block)
        pool_give_up(&file->pool->core, block);
    if (offset > INT64_MAX || length > INT64_MAX - offset || window_is_in_use(w))
        return -EINVAL;
    if (!self)
        return -ENOMEM;
    if (self->locals == LOCALS_MAX)
        return -ENOSPC;
    pool_mark(block, &self->local[self->locals].pinned);
    const int err = pin_slow(self, block, file, offset, length, w);
    errno = saved;
    return err;
}

int mf_local_pin(struct mf_file *file, uint64_t offset, size_t length, struct mf_window *w)
{
    /* The quick way, as of mf_window_pin. */
    struct mf_pool *pool = file->pool;
    struct pool_block *block = thread_quick[pool->index];
    struct thread *self = thread_self;
    if (__builtin_expect(block && self->locals < LOCALS_MAX && !w->opaque[WINDOW_WORD], true)) {
        pool_mark(block, &self->local[self->locals].pinned);
        uint32_t slot;
        char *data;
        if (__builtin_expect(piece_try(file, pool, block, offset, length, false, &slot, &data),
                             true)) {
            push(self, pool, slot, data, length, w);
            pool_settle(block);
            return 0;
        }
    }
    return pin_generic(file, offset, length, w);
}

/* The child of a fork in between finds the mark cleared, and the pin given back. */
void local_put(struct pool_block *block, struct local *local)
{
    struct pool_counter *counter = block ? pool_counter(block, local->slot) : NULL;
    if (counter)
        pool_unpin_note(block, counter, local->slot, &local->pinned);
    mark_clear(&local->pinned);
    pool_unpin(&local->pool->core, block, local->slot);
    if (counter)
        pool_settle(block);
}

int mf_local_unpin(struct mf_window *w)
{
    struct thread *self = thread_self;
    if (!self || !window_is_pinned(w, true) || !self->locals ||
        self->local[self->locals - 1].window != w)
        return -EINVAL;
    struct local *local = &self->local[self->locals - 1];
    const size_t used = w->opaque[IN_BUFFER];
    struct mf_pool *pool = local->pool;
    const int err = local->slot == POOL_NONE ? 0
                                             : piece_unpin(pool, thread_quick[pool->index],
                                                           local->slot, &local->pinned, NULL);
    window_clear(w);
    self->locals--;
    self->local_used = used;
    return err;
}
