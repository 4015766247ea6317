/* SPDX-License-Identifier: MIT */
/*
 * window: pinned pieces of files, handed out by a pool that reuses a bounded number of kernel maps.
 *
 * A pool keeps a few large kernel mappings (extents) of its files. mf_window_pin gives a pointer to
 * any piece of any file, of any length at any offset; it stays valid until mf_window_unpin. A piece
 * whose extent is mapped costs a few nanoseconds: no lock, no system call, no shared cache line
 * written. For others an extent is mapped, and beyond the pool's limits the extents nobody has
 * pinned are reused, those not used lately first.
 *
 * Rules for the caller:
 *  - Functions return 0 or a count, or a negative errno, and then have changed nothing.
 *  - A struct mf_window belongs to the caller and stays where it is: it is zeroed before its first
 *    use, and neither copied nor moved while pinned. Any thread may check, sync or unpin it, one at
 *    a time; unpin clears it.
 *  - The bytes of a window are the file's own: they change when the file is written. A file that is
 *    cut short under a window raises SIGBUS at the next touch, as with mmap(2), unless
 *    mf_fault_install was called; then the lost pages read as zeros, and mf_window_check and
 *    mf_window_unpin return -EIO. Believe what was read only after one of them has returned 0. A
 *    cut in the middle of a page zeroes the rest of that page without any fault or error.
 *  - overlayfs (the root of most containers) is an exception, as it is for mmap(2): windows of a
 *    file that was opened for reading while it was in the lower layer, and is then written by
 *    anybody, go on showing the bytes before that, with no error; later it may be -ESTALE. A file
 *    that may be written there is opened with MF_FILE_WRITE, with MF_FILE_COPY, or anew.
 *  - Windows keep working after mf_file_close of their file, and pin its extents until unpinned;
 *    but the size of a closed file is no longer asked for.
 *  - After fork(2) parent and child each hold all windows that were pinned. In the child those of
 *    other threads stay pinned until the child unpins them; one whose pin or unpin was under way is
 *    not pinned there, and other threads' local windows are given back. (Where memory was so short
 *    that a thread got no counters, a pin of its that was under way may stay in the child.)
 *  - Every function here may be called by any thread at any time, also from thread-exit
 *    destructors. None is a cancellation point (asynchronous cancellation is not supported). Only
 *    mf_fault_handle, mf_copy and mf_window_check without MF_CHECK_SIZE are async-signal-safe;
 *    nothing else may be called from a signal handler, nor may fork(2) where the handler may have
 *    interrupted one of these functions.
 */
#ifndef MAPFOLD_WINDOW_H
#define MAPFOLD_WINDOW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <mapfold/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mf_pool;
struct mf_file;

/*
 * What a pool may hold at once, never exceeded.
 * bytes  mapped, and held in private copies; at least one extent
 * maps   kernel maps of extents, 1 to 65,536; the kernel may merge neighbours and then counts fewer
 * files  descriptors of files opened by path, at least 1; borrowed ones do not count
 */
struct mf_pool_limits {
    uint64_t bytes;
    uint32_t maps;
    uint32_t files;
};

/* Flags of mf_pool_create. */
enum {
    /* To find misuse: extents of one page, unmapped as soon as nobody has them pinned, so that a
     * pointer used after its unpin faults. */
    MF_POOL_DEBUG = 1u << 0,
};

/* Exact at the moment of the call, except that counts of running calls may be a few behind. */
struct mf_pool_stats {
    uint64_t bytes_mapped;   /* of extents, idle ones too: agrees with /proc/self/maps */
    uint64_t bytes_copied;   /* of private copies */
    uint32_t maps;           /* kernel maps; a bound, since the kernel merges neighbours */
    uint32_t files_open;     /* descriptors of files opened by path */
    uint64_t pinned;         /* pins not yet unpinned, copies left out */
    uint64_t hits;           /* pins that found their extent mapped */
    uint64_t misses;         /* pins that installed an extent */
    uint64_t revived;        /* pins that found their extent evicted but not yet reused */
    uint64_t copies;         /* pins served by a private copy */
    uint64_t evicted;        /* extents taken from idle files */
    uint64_t rounds;         /* eviction rounds: one barrier and one flush for many extents */
    uint64_t waits;          /* pins that slept until another was unpinned */
    uint64_t failed;         /* extents marked failed by a fault */
    uint64_t reopened;       /* descriptors opened again after the limit had closed them */
    uint64_t lock_taken;     /* acquisitions of the pool's lock */
    uint64_t lock_contended; /* those that found it held */
    uint64_t lock_steps;     /* slots looked at under it, all told */
    uint32_t lock_steps_max; /* the most in one acquisition */
};

/*
 * Makes a pool. extent is the size of one kernel map in bytes, a power of two and at least a page;
 * 0 lets the pool choose (2 MiB, or less where bytes / maps or a small budget asks for it).
 * 0; -EINVAL (a limit of 0, more than 65,536 maps, bytes below one extent, extent not a power of
 * two or below a page, unknown flag); -ENOMEM; -ENOSPC (64 pools exist). Does not block.
 */
MF_PUBLIC int mf_pool_create(const struct mf_pool_limits *limits, size_t extent, uint32_t flags,
                             struct mf_pool **out);

/*
 * Changes the limits, giving up idle extents, and closing descriptors, where the new ones are
 * lower. With pool = NULL it sets what all pools of the process may hold together (no limit at
 * first; files are not counted). Not by two threads at once. Whoever waits for
 * more than lowered limits allow gets -E2BIG.
 * 0; -EINVAL as mf_pool_create; -EBUSY (more is pinned, or open and not closable, than the new
 * limits allow: nothing is changed, though idle extents may be gone, and pins of other threads may
 * have found no room meanwhile).
 */
MF_PUBLIC int mf_pool_set_limits(struct mf_pool *pool, const struct mf_pool_limits *limits);

/* Fills in the figures. Blocks for other threads in the pool's functions for a moment. */
MF_PUBLIC void mf_pool_stats(struct mf_pool *pool, struct mf_pool_stats *stats);

/*
 * Unmaps all and frees the pool. The caller sees to it that no other thread is using it.
 * 0 (also for NULL); -EBUSY (a window is pinned or a file not closed; nothing is changed).
 */
MF_PUBLIC int mf_pool_destroy(struct mf_pool *pool);

/* Flags of mf_file_open and mf_file_from_fd. */
enum {
    MF_FILE_WRITE = 1u << 0, /* windows may be pinned with MF_WRITE, and mf_write works */
    MF_FILE_COPY = 1u << 1,  /* never mapped: every window is a private copy, and errors of the file
                                system come back from pin. Set by itself on network file systems
                                and on hugetlbfs */
};

/*
 * Opens a file by path. The pool may close its descriptor to keep the limit and open the path again
 * when it needs to, if it still leads to the same file (device and file handle). It finds that out
 * before it opens it: if the path has become another file's, that one keeps its locks (but see
 * docs/POOL.md for a limit of one descriptor, or no /proc, and for what is then left open). A file
 * that loses its last link keeps its descriptor if the pool has it open, and has used it more than
 * once lately or since mf_file_open; else it is -ESTALE from then on. Do not use this for files
 * that the process locks with fcntl(2): closing any descriptor of a file drops the process's locks
 * on it. Such files, and paths that are not to be walked again, come by mf_file_from_fd. All
 * descriptors are close-on-exec. Blocks as open(2) does, also until another process has given up a
 * lease.
 * 0; -EISDIR, -ENODEV (a directory; a FIFO, socket or device that has no bytes to map); -EINVAL
 * (unknown flag); -EMFILE (the limit of files is used up by files without links or descriptors in
 * use); -ENOMEM; what open(2), fstat(2) and statfs(2) say.
 */
MF_PUBLIC int mf_file_open(struct mf_pool *pool, const char *path, uint32_t flags,
                           struct mf_file **out);

/*
 * Uses a descriptor of the caller's, who keeps it open until mf_file_close. It is never closed,
 * duplicated or moved.
 * 0; -EBADF (not open, or O_PATH); -EACCES (not readable, or MF_FILE_WRITE and not writable);
 * -EINVAL (also MF_FILE_WRITE and O_APPEND, with which all writes go to the end); else as
 * mf_file_open.
 */
MF_PUBLIC int mf_file_from_fd(struct mf_pool *pool, int fd, uint32_t flags, struct mf_file **out);

/*
 * Unmaps the file's extents that nobody has pinned, and lets the pinned ones go with their last
 * unpin; later pins map anew. For files that were deleted, replaced or truncated. 0.
 */
MF_PUBLIC int mf_file_forget(struct mf_file *file);

/*
 * Forgets the files and frees them; their windows stay valid until unpinned. One call for many
 * files costs one barrier. NULL entries are allowed. 0.
 */
MF_PUBLIC int mf_file_close(struct mf_file *file);
MF_PUBLIC int mf_file_close_many(struct mf_file *const *files, size_t count);

/* Asks the kernel to read the range ahead; does not wait for it. 0; -ESTALE, -EMFILE and errors of
 * open(2) where the descriptor had been closed; what posix_fadvise(3) says. */
MF_PUBLIC int mf_file_prefetch(struct mf_file *file, uint64_t offset, uint64_t length);

/* The size in bytes, asked of the file system and remembered: later pins are judged by it.
 * -ESTALE, -EMFILE, errors of open(2) and fstat(2). */
MF_PUBLIC int64_t mf_file_size(struct mf_file *file);

/* Flags of mf_window_pin. */
enum {
    MF_WRITE = 1u << 0,      /* mf_window_data_mut gives a pointer to write through */
    MF_MAY_COPY = 1u << 1,   /* a private copy will do: taken for the first touch of a small file
                                  (one; three where another extent would have to go), and where
                                  the kernel refuses to map; never with MF_WRITE */
    MF_ZERO_END = 1u << 2,   /* where the piece ends at the end of the file, data[length] can be
                                  read and is 0 when pinned (by a private copy if need be); who
                                  writes through another mapping can still change it */
    MF_CHECK_SIZE = 1u << 3, /* pin and check ask the file system for the size; check of a copy
                                  does not: a cut does not change it */
    MF_IF_MAPPED = 1u << 4,  /* only if its extent is mapped: where one would have to be, or a copy
                                  be taken, -EAGAIN; for callers with another way to the bytes */
    MF_WINDOW_COPY = 1u << 30, /* set by pin: this window is a private copy */
};

/*
 * A pinned piece. data is NULL only if length is 0 or the window is not pinned. flags are those of
 * pin, and MF_WINDOW_COPY. opaque is the library's.
 */
struct mf_window {
    const void *data;
    size_t length;
    uint32_t flags;
    uint64_t opaque[4];
};

/* Deadlines are nanoseconds on CLOCK_MONOTONIC, or one of these. */
#define MF_NOWAIT UINT64_C(0)
#define MF_FOREVER UINT64_MAX

/* The deadline that lies this many nanoseconds ahead. Async-signal-safe. */
MF_PUBLIC uint64_t mf_deadline_in(uint64_t nanoseconds);

/*
 * Pins [offset, offset + length) of a file, contiguous in memory. Blocks only for a free place
 * among the pinned (until the deadline), and for the file system, whatever the deadline (as where a
 * file is opened again on which another process has a lease). Waiting threads are served in
 * order.
 * 0;
 * -ERANGE    ends past the end of the file as last seen (seen again before it is refused)
 * -E2BIG     the pages it touches are more than the pool's bytes (or 2^24 of its extents)
 * -EAGAIN    MF_IF_MAPPED, and it is not mapped, or is being evicted or replaced at this moment; or
 *            MF_NOWAIT, and everything is pinned, or others wait for what is not; or a private copy
 *            has to serve (MF_FILE_COPY, MF_ZERO_END) and what is pinned leaves no room: copies
 *            never wait; or the kernel refuses membarrier(2), without which nothing can be evicted
 * -ETIMEDOUT the deadline came, and everything is pinned
 * -EINVAL    unknown flag, w still pinned, or offset + length beyond 2^63 - 1
 * -EACCES    MF_WRITE on a file opened without MF_FILE_WRITE
 * -ENOTSUP   MF_WRITE on a file that is not mapped (MF_FILE_COPY), or with MF_ZERO_END
 * -ESTALE    the path leads to another file than it did
 * -EIO       a copy was to be read, and the file system says so
 * -ENOMEM    the kernel refuses to map (vm.max_map_count, RLIMIT_AS) even after all idle extents
 *            were given up, and MF_MAY_COPY is not given or memory is out; or what all pools have
 *            pinned leaves no room under the limits of the process: for them nobody waits
 *            (The kernel does not say why. If /proc/self/maps has about as many lines as sysctl
 *            vm.max_map_count allows, it is the maps: `mapfold inspect PID` tells both numbers,
 *            what uses them up and what would help. MF_MAY_COPY gives the bytes all the same.)
 * -EBADF     the descriptor that was given to mf_file_from_fd was closed
 * -EMFILE    no descriptor is free; else what open(2), mmap(2), fstat(2) or pread(2) says
 */
MF_PUBLIC int mf_window_pin(struct mf_file *file, uint64_t offset, size_t length, uint32_t flags,
                            uint64_t deadline, struct mf_window *w);

/* The window's bytes for writing, straight into the file; NULL unless pinned with MF_WRITE. */
MF_PUBLIC void *mf_window_data_mut(const struct mf_window *w);

/*
 * Whether what was read through the window so far is the file's: 0; -EIO (a page of its extent
 * vanished, zeros may have been read); with MF_CHECK_SIZE also -ERANGE (the file now ends before
 * the window does; not of a private copy, nor where the size can no longer be asked: mf_file_close
 * has closed the file, or the pool its descriptor, and the path leads to another file), and
 * -EMFILE and what open(2) and fstat(2) say where it could not be asked now; -EINVAL (not pinned).
 */
MF_PUBLIC int mf_window_check(const struct mf_window *w);

/* Writes the window's changes to the device and waits. 0; -EINVAL (not pinned); -EACCES (not
 * pinned with MF_WRITE); -EIO, -ENOSPC and others from msync(2). */
MF_PUBLIC int mf_window_sync(const struct mf_window *w);

/*
 * Gives the window back and clears it. Never blocks for pins.
 * 0; -EIO (given back, but as mf_window_check); -EINVAL (not pinned, or unpinned before).
 */
MF_PUBLIC int mf_window_unpin(struct mf_window *w);

/*
 * Local windows: for the calling thread alone, at most 16 at once, unpinned in the reverse order.
 * They never wait for pins: where no extent is mapped and none can be had at once, the piece is
 * read into a buffer of the thread's (64 KiB for all its local windows). Those still pinned when
 * the thread ends are given back after its thread-exit destructors, or before them in the C
 * library's last round; mf_local_unpin then says -EINVAL.
 * Pin: 0; -ERANGE, -EINVAL, -ESTALE, -EMFILE, -EIO and system errors as mf_window_pin; -E2BIG (must
 * be read, and does not fit the buffer); -ENOSPC (16 local windows); -ENOMEM (no buffer).
 * Unpin: 0; -EIO as mf_window_unpin; -EINVAL (not this thread's last local window; it stays
 * pinned).
 */
MF_PUBLIC int mf_local_pin(struct mf_file *file, uint64_t offset, size_t length,
                           struct mf_window *w);
MF_PUBLIC int mf_local_unpin(struct mf_window *w);

/*
 * Reads or writes bytes of a file as pread(2) and pwrite(2) do. Reads are copies where an extent is
 * mapped and mf_fault_install was called; what goes wrong with a copy is asked of pread(2). Never
 * raises a signal for the file's sake. Where the file ends inside a page is judged by the size last
 * seen: after a cut there the rest of the page reads as zeros, unless MF_CHECK_SIZE asks for the
 * size. The count may be short: at the end of the file (0 there), or
 * before a page that cannot be read. flags: MF_CHECK_SIZE or 0. Blocks for the file system only.
 * The count; -EINVAL (flags, offset); -EIO (the first byte's page cannot be read or written);
 * -EBADF (mf_write without MF_FILE_WRITE); -ESTALE, -EMFILE; what open(2), pread(2) or pwrite(2)
 * says. mf_read of a buffer that faults is a fault of the program's own.
 */
MF_PUBLIC ssize_t mf_read(struct mf_file *file, uint64_t offset, void *buffer, size_t length,
                          uint32_t flags);
MF_PUBLIC ssize_t mf_write(struct mf_file *file, uint64_t offset, const void *buffer,
                           size_t length);

/*
 * Copies between memory of which either side may be a file mapping that vanishes. The number of
 * bytes copied, short before the first page that could not be touched; -EIO if that is the first
 * byte's. It also works without mf_fault_install, by a system call, and then returns -EFAULT for
 * addresses without memory and what process_vm_readv(2) says. Async-signal-safe.
 */
MF_PUBLIC ssize_t mf_copy(void *to, const void *from, size_t length);

/*
 * Installs the SIGBUS handler, once for the process. It deals with pages of pinned windows and
 * copies that are not there, cannot be read or are broken (BUS_ADRERR, BUS_OBJERR, BUS_MCEERR_AR);
 * all else, such as accesses that are not aligned, goes to the handler that was there, with its
 * mask and flags, or kills as it did. A thread that blocks SIGBUS dies of it. System calls given
 * the memory of a vanished page return EFAULT.
 * 0 (also if installed before); -errno of sigaction(2).
 */
MF_PUBLIC int mf_fault_install(void);

/*
 * For programs with a SIGBUS handler of their own: call it first in the handler with what the
 * handler was given. 1: dealt with, return from the handler; 0: not ours. Keeps errno, and blocks
 * all signals while it works.
 * The program's handler counts as installed after the first call or after mf_fault_attach.
 */
MF_PUBLIC int mf_fault_handle(int signal, void *info, void *context);

/* Says that the program's own handler calls mf_fault_handle, so that copies may rely on it. */
MF_PUBLIC void mf_fault_attach(void);

#ifdef __cplusplus
}
#endif

#endif
