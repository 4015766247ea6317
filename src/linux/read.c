/* SPDX-License-Identifier: MIT */
/*
 * Reading and writing by copy. Where a SIGBUS handler is there to end a copy that faults, reads of
 * mapped extents are copies; whatever goes wrong with one is told by pread(2), which is asked for
 * the bytes instead. So the answers are those of pread, but for the size last seen. An extent that
 * was read by pread twice within a short time is mapped.
 */
#include "linux/pool.h"
#include "linux/system.h"

/* Pins a piece whose extent is not mapped; NULL: pread must do. */
static char *__attribute__((noinline))
pin_slow(struct mf_file *file, uint64_t offset, size_t length, uint32_t *slot)
{
    struct pool_block *block = thread_block(file->pool);
    if (block)
        pool_give_up(&file->pool->core, block);
    pool_mark(block, NULL);
    struct piece piece;
    char *data;
    if (piece_locate(file, offset, length, false, &piece) != 0 ||
        !(piece_is_mapped(file->pool, &piece) || ghost_touch(file->pool, piece.key)) ||
        piece_pin(file, block, &piece, MF_NOWAIT, slot, &data) != 0)
        return NULL;
    return data;
}

/* Copies from an extent that is mapped; 0: pread must do. Within one extent, within the file. */
static size_t read_mapped(struct mf_file *file, uint64_t offset, void *buffer, size_t length)
{
    struct mf_pool *pool = file->pool;
    struct pool_block *block = thread_quick[pool->index];
    char *data;
    uint32_t slot;
    bool pinned = false;
    if (__builtin_expect(block != NULL, true)) {
        pool_mark(block, NULL);
        pinned = piece_try(file, pool, block, offset, length, false, &slot, &data);
    }
    if (__builtin_expect(!pinned, false) && !(data = pin_slow(file, offset, length, &slot)))
        return 0;
    /* Not settled: the child of a fork during the copy has no use for the pin. */
    const size_t left = copy_guarded(buffer, data, length);
    return piece_unpin(pool, thread_quick[pool->index], slot, NULL, NULL) == 0 && !left ? length
                                                                                        : 0;
}

static ssize_t read_file(struct mf_file *file, uint64_t offset, void *buffer, size_t length,
                         uint32_t flags)
{
    const uint64_t size = atomic_load_explicit(&file->size, memory_order_relaxed);
    const uint64_t extent = UINT64_C(1) << file->pool->extent_shift;
    size_t done = 0;
    if (atomic_load_explicit(&fault_ready, memory_order_relaxed) && !file->copy_only)
        while (done < length && offset + done < size) {
            const uint64_t here = offset + done;
            uint64_t n = extent - (here & (extent - 1));
            n = n < length - done ? n : length - done;
            n = n < size - here ? n : size - here;
            if (!read_mapped(file, here, (char *)buffer + done, n))
                break;
            done += n;
        }
    /* Asked after the copy: what a cut inside a page has zeroed is then beyond the end. */
    if (flags & MF_CHECK_SIZE && done) {
        const int err = file_refresh_size(file);
        if (err)
            return err;
        if (offset + done > atomic_load_explicit(&file->size, memory_order_relaxed))
            done = 0;
    }
    if (done == length)
        return (ssize_t)done;
    int why;
    const ssize_t n = file_pread(file, (char *)buffer + done, length - done, offset + done, &why);
    if (n < 0)
        return done ? (ssize_t)done : n;
    if (done + (size_t)n < length || offset + done + (size_t)n > size)
        file_refresh_size(file); /* it ends elsewhere than we thought */
    return (ssize_t)done + n;
}

ssize_t mf_read(struct mf_file *file, uint64_t offset, void *buffer, size_t length, uint32_t flags)
{
    if (flags & ~(uint32_t)MF_CHECK_SIZE || offset > INT64_MAX)
        return -EINVAL;
    if (length > INT64_MAX - offset)
        length = INT64_MAX - offset;
    const int saved = errno;
    const ssize_t n = read_file(file, offset, buffer, length, flags);
    errno = saved;
    return n;
}

static ssize_t write_file(struct mf_file *file, uint64_t offset, const void *buffer, size_t length)
{
    const int fd = file_fd_get(file);
    if (fd < 0)
        return fd;
    ssize_t n;
    do
        n = pwrite(fd, buffer, length, (off_t)offset);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        n = -errno;
    file_fd_put(file);
    return n;
}

ssize_t mf_write(struct mf_file *file, uint64_t offset, const void *buffer, size_t length)
{
    if (offset > INT64_MAX)
        return -EINVAL;
    if (!file->write)
        return -EBADF;
    const int saved = errno, cancel = cancel_off();
    const ssize_t n = write_file(file, offset, buffer, length);
    cancel_restore(cancel);
    if (n > 0 && offset + (uint64_t)n > atomic_load_explicit(&file->size, memory_order_relaxed))
        file_refresh_size(file);
    errno = saved;
    return n;
}
