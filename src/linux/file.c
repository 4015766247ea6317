/* SPDX-License-Identifier: MIT */
/*
 * Files and their descriptors.
 *
 * A file opened by path may have its descriptor closed whenever nobody is using it, and gets
 * another when somebody needs it (file_fd_get ... file_fd_put): a clock runs over those that are
 * open. What is opened again must be the same file: device, inode and file handle are compared,
 * since the handle has a generation and inode numbers are reused at once; where there are no
 * handles, the time of birth. A file that has lost its last link could not be found again, so it
 * keeps its descriptor.
 *
 * A struct mf_file lives until its handle is closed and its last extent and copy are gone.
 */
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "linux/pool.h"
#include "linux/system.h"

/* Where mappings do not do what they should: another host may change or drop the file. */
bool file_is_network(int fd)
{
    static const uint32_t network[] = {
        0x6969 /* nfs */,      0x517b /* smb */,       0xff534d42 /* cifs */, 0xfe534d42 /* smb2 */,
        0x5346414f /* afs */,  0x6b414653 /* kafs */,  0x73757245 /* coda */, 0x01021997 /* 9p */,
        0x00c36400 /* ceph */, 0x7461636f /* ocfs2 */, 0x01161970 /* gfs2 */,
    };
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return false;
    for (size_t i = 0; i < sizeof(network) / sizeof(network[0]); i++)
        if ((uint32_t)fs.f_type == network[i])
            return true;
    return false;
}

int file_identify(int fd, struct stat *st, struct file_identity *identity)
{
    if (system_fstat(fd, st) != 0)
        return -errno;
    memset(identity, 0, sizeof(*identity));
    identity->device = st->st_dev;
    identity->inode = st->st_ino;
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } u;
    u.handle.handle_bytes = MAX_HANDLE_SZ;
    int mount;
    if (name_to_handle_at(fd, "", &u.handle, &mount, AT_EMPTY_PATH) == 0) {
        identity->handle_type = (uint32_t)u.handle.handle_type;
        identity->handle_bytes = u.handle.handle_bytes;
        memcpy(identity->handle, u.handle.f_handle,
               u.handle.handle_bytes < HANDLE_BYTES ? u.handle.handle_bytes : HANDLE_BYTES);
        return 0;
    }
    struct statx stx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) == 0 && stx.stx_mask & STATX_BTIME) {
        identity->birth_sec = stx.stx_btime.tv_sec;
        identity->birth_nsec = stx.stx_btime.tv_nsec;
    }
    return 0;
}

/* A block device has its size where the end is. */
static int64_t size_of(int fd, const struct stat *st)
{
    if (!S_ISBLK(st->st_mode))
        return st->st_size;
    uint64_t bytes;
    return ioctl(fd, BLKGETSIZE64, &bytes) == 0 ? (int64_t)bytes : -errno;
}

void file_ref(struct mf_file *file)
{
    atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
}

void file_unref(struct mf_file *file)
{
    /* acq_rel: whoever frees it comes after all others' use */
    if (atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) != 1)
        return;
    free(file->path);
    free(file);
}

/* The ring of files whose descriptor may be closed. Under files_lock. */

static void ring_insert_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    if (!pool->clock) {
        pool->clock = file->clock_next = file->clock_before = file;
        return;
    }
    file->clock_next = pool->clock;
    file->clock_before = pool->clock->clock_before;
    file->clock_before->clock_next = file;
    file->clock_next->clock_before = file;
}

static void ring_remove_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    if (!file->clock_next)
        return;
    if (pool->clock == file)
        pool->clock = file->clock_next == file ? NULL : file->clock_next;
    file->clock_next->clock_before = file->clock_before;
    file->clock_before->clock_next = file->clock_next;
    file->clock_next = file->clock_before = NULL;
}

/* All files not yet closed. Under files_lock. */

static void list_insert_locked(struct mf_file *file)
{
    file->list_before = NULL;
    file->list_next = file->pool->files;
    if (file->list_next)
        file->list_next->list_before = file;
    file->pool->files = file;
}

static void list_remove_locked(struct mf_file *file)
{
    if (file->list_before)
        file->list_before->list_next = file->list_next;
    else
        file->pool->files = file->list_next;
    if (file->list_next)
        file->list_next->list_before = file->list_before;
}

static int fd_of(const struct mf_file *file)
{
    return atomic_load_explicit(&file->fd, memory_order_relaxed);
}

/* Takes the file out of the ring and returns its descriptor for the caller to close, and to count
 * as closed when it is. */
static int take_fd_locked(struct mf_file *file)
{
    ring_remove_locked(file);
    return atomic_exchange_explicit(&file->fd, -1, memory_order_relaxed);
}

void files_after_fork(struct mf_pool *pool)
{
    pthread_cond_init(&pool->files_changed, NULL);
    for (struct mf_file *file = pool->files, *next; file; file = next) {
        next = file->list_next;
        file->users = 0;
        file->opening = false;
        if (file->closed) {
            list_remove_locked(file);
            close(take_fd_locked(file));
            pool->open--;
        }
    }
}

/* A descriptor to close, not lately used; -1: all are in use or must stay. *busy: some are in use.
 */
static int pick_victim_locked(struct mf_pool *pool, bool *busy)
{
    *busy = false;
    struct mf_file *file = pool->clock;
    for (uint64_t left = 2 * (uint64_t)pool->open; file && left; left--) {
        struct mf_file *next = file->clock_next;
        struct stat st;
        if (file->users) {
            *busy = true;
        } else if (file->recent && left > pool->open) {
            file->recent = false;
        } else if (system_fstat(fd_of(file), &st) == 0 && st.st_nlink == 0) {
            ring_remove_locked(file); /* for good: it could not be found again */
        } else {
            pool->clock = next;
            return take_fd_locked(file);
        }
        file = pool->clock ? next : NULL;
    }
    return -1;
}

int files_trim_locked(struct mf_pool *pool, uint32_t limit)
{
    while (pool->open > limit) {
        bool busy;
        const int fd = pick_victim_locked(pool, &busy);
        if (fd >= 0) {
            close(fd);
            pool->open--;
        } else if (busy || pool->files_in_transit) {
            pthread_cond_wait(&pool->files_changed, &pool->files_lock);
        } else {
            return -EMFILE;
        }
    }
    return 0;
}

/* Descriptors that are neither in a file nor closed: fork waits until there are none. */
static void end_transit_locked(struct mf_pool *pool)
{
    pool->files_in_transit--;
    pthread_cond_broadcast(&pool->files_changed);
}

/* Opens the path; where the process is out of descriptors, with fewer of ours. Not under a lock,
 * but in transit. */
static int open_path(struct mf_pool *pool, const char *path, bool write)
{
    for (;;) {
        /* O_NONBLOCK: a FIFO is refused later, and must not hold us up now. */
        const int fd =
            system_open(path, (write ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
            return fd >= 0 ? fd : -errno;
        const int err = -errno;
        pthread_mutex_lock(&pool->files_lock);
        bool busy;
        const int victim = pick_victim_locked(pool, &busy);
        if (victim >= 0) {
            close(victim);
            pool->open--;
        }
        pthread_mutex_unlock(&pool->files_lock);
        if (victim < 0)
            return err;
    }
}

/* Counts one descriptor more, closing others where the limit asks for it. */
static int reserve_fd_locked(struct mf_pool *pool)
{
    const int err = files_trim_locked(pool, pool->open_max - 1);
    if (!err) {
        pool->open++;
        pool->files_in_transit++;
    }
    return err;
}

static bool same_file(const struct file_identity *a, const struct file_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->birth_sec == b->birth_sec &&
           a->birth_nsec == b->birth_nsec && a->handle_type == b->handle_type &&
           a->handle_bytes == b->handle_bytes &&
           memcmp(a->handle, b->handle, sizeof(a->handle)) == 0;
}

static int open_again(struct mf_file *file)
{
    const int fd = open_path(file->pool, file->path, file->write);
    if (fd < 0)
        return fd == -ENOENT || fd == -ENOTDIR ? -ESTALE : fd;
    struct stat st = {0}; /* for clang-tidy, as the next */
    struct file_identity identity = {0};
    int err = file_identify(fd, &st, &identity);
    if (!err && !same_file(&identity, &file->identity))
        err = -ESTALE;
    if (err) {
        close(fd);
        return err;
    }
    return fd;
}

/* The caller's, who should have kept it open: a number can have become another file's. */
static int borrowed_fd(struct mf_file *file)
{
    struct stat st;
    const int fd = fd_of(file);
    if (fd < 0 || system_fstat(fd, &st) != 0)
        return fd < 0 ? -EBADF : -errno;
    return st.st_dev == file->identity.device && st.st_ino == file->identity.inode ? fd : -ESTALE;
}

int file_fd_get(struct mf_file *file)
{
    if (file->borrowed)
        return borrowed_fd(file);
    struct mf_pool *pool = file->pool;
    pthread_mutex_lock(&pool->files_lock);
    while (file->opening)
        pthread_cond_wait(&pool->files_changed, &pool->files_lock);
    int fd = file->closed ? -EBADF : fd_of(file);
    if (fd == -1) {
        file->opening = true;
        fd = reserve_fd_locked(pool);
        if (!fd) {
            pthread_mutex_unlock(&pool->files_lock);
            fd = open_again(file);
            pthread_mutex_lock(&pool->files_lock);
            if (fd < 0) {
                pool->open--;
            } else {
                pool->reopened++;
                atomic_store_explicit(&file->fd, fd, memory_order_relaxed);
                ring_insert_locked(file);
            }
            end_transit_locked(pool);
        }
        file->opening = false;
        pthread_cond_broadcast(&pool->files_changed);
    }
    if (fd >= 0) {
        file->users++;
        file->recent = true;
    }
    pthread_mutex_unlock(&pool->files_lock);
    return fd;
}

/* Closes the descriptor of a closed file that nobody is using. Closed first and counted after, so
 * that the limit holds; in transit, so that a fork waits. Lets go of the lock meanwhile. */
static void close_fd_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    const int fd = take_fd_locked(file);
    pool->files_in_transit++;
    pthread_mutex_unlock(&pool->files_lock);
    close(fd);
    pthread_mutex_lock(&pool->files_lock);
    pool->open--;
    end_transit_locked(pool);
}

void file_fd_put(struct mf_file *file)
{
    if (file->borrowed)
        return;
    pthread_mutex_lock(&file->pool->files_lock);
    if (file->users && --file->users == 0) {
        if (file->closed && fd_of(file) >= 0) {
            list_remove_locked(file);
            close_fd_locked(file);
        }
        pthread_cond_broadcast(&file->pool->files_changed);
    }
    pthread_mutex_unlock(&file->pool->files_lock);
}

static int64_t ask_size(struct mf_file *file)
{
    const int fd = file_fd_get(file);
    if (fd < 0)
        return fd;
    struct stat st;
    const int64_t size = system_fstat(fd, &st) == 0 ? size_of(fd, &st) : -errno;
    file_fd_put(file);
    return size;
}

int file_refresh_size(struct mf_file *file)
{
    const int cancel = cancel_off();
    const int64_t size = ask_size(file);
    cancel_restore(cancel);
    if (size < 0)
        return (int)size;
    atomic_store_explicit(&file->size, (uint64_t)size, memory_order_relaxed);
    return 0;
}

int file_check_range(struct mf_file *file, uint64_t end)
{
    const int err = file_refresh_size(file);
    if (err)
        return err;
    return end > atomic_load_explicit(&file->size, memory_order_relaxed) ? -ERANGE : 0;
}

static ssize_t read_descriptor(struct mf_file *file, void *to, size_t length, uint64_t offset,
                               int *why)
{
    const int fd = file_fd_get(file);
    *why = fd < 0 ? fd : 0;
    if (fd < 0)
        return fd;
    size_t done = 0;
    ssize_t n = 0;
    while (done < length) {
        n = system_pread(fd, (char *)to + done, length - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    *why = n < 0 ? -errno : 0;
    file_fd_put(file);
    return done || !*why ? (ssize_t)done : *why;
}

ssize_t file_pread(struct mf_file *file, void *to, size_t length, uint64_t offset, int *why)
{
    const int cancel = cancel_off();
    const ssize_t n = read_descriptor(file, to, length, offset, why);
    cancel_restore(cancel);
    return n;
}

int file_pread_all(struct mf_file *file, void *to, size_t length, uint64_t offset)
{
    int why;
    if (file_pread(file, to, length, offset, &why) == (ssize_t)length)
        return 0;
    if (!why)
        why = file_check_range(file, offset + length);
    return why ? why : -ERANGE;
}

/* Making and closing. */

static int kind_error(mode_t mode)
{
    if (S_ISDIR(mode))
        return -EISDIR;
    return S_ISREG(mode) || S_ISBLK(mode) ? 0 : -ENODEV;
}

/* The file that stands on an open descriptor; counted by the pool. */
static int make_file(struct mf_pool *pool, int fd, uint32_t flags, struct mf_file **out)
{
    static _Atomic uint64_t serials;
    struct mf_file *file = calloc(1, sizeof(*file));
    if (!file)
        return -ENOMEM;
    struct stat st = {0};
    int err = file_identify(fd, &st, &file->identity);
    if (!err)
        err = kind_error(st.st_mode);
    const int64_t size = err ? err : size_of(fd, &st);
    if (size < 0) {
        free(file);
        return (int)size;
    }
    file->pool = pool;
    file->owner = (1 + atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed))
                  << (SPAN_BITS + 1);
    atomic_init(&file->size, (uint64_t)size);
    file->write = flags & MF_FILE_WRITE;
    file->copy_only = flags & MF_FILE_COPY || file_is_network(fd);
    atomic_init(&file->references, 1);
    atomic_init(&file->fd, fd);
    file->first_extent = POOL_NONE;
    *out = file;
    return 0;
}

/* Relative paths are made absolute, since the directory may change before the next open. */
static char *absolute(const char *path)
{
    if (path[0] == '/')
        return strdup(path);
    if (!path[0]) { /* would become the directory */
        errno = ENOENT;
        return NULL;
    }
    char *directory = getcwd(NULL, 0);
    if (!directory)
        return NULL;
    char *whole = malloc(strlen(directory) + 1 + strlen(path) + 1);
    if (whole)
        stpcpy(stpcpy(stpcpy(whole, directory), "/"), path);
    free(directory);
    return whole;
}

static int open_file(struct mf_pool *pool, char *path, uint32_t flags, struct mf_file **out)
{
    pthread_mutex_lock(&pool->files_lock);
    int err = reserve_fd_locked(pool);
    pthread_mutex_unlock(&pool->files_lock);
    if (err)
        return err;
    const int fd = open_path(pool, path, flags & MF_FILE_WRITE);
    struct mf_file *file = NULL;
    err = fd < 0 ? fd : make_file(pool, fd, flags, &file);
    if (err && fd >= 0)
        close(fd);
    pthread_mutex_lock(&pool->files_lock);
    if (err) {
        pool->open--;
    } else {
        file->path = path;
        file->recent = true;
        list_insert_locked(file);
        ring_insert_locked(file);
        *out = file;
    }
    end_transit_locked(pool);
    pthread_mutex_unlock(&pool->files_lock);
    return err == -ENXIO ? -ENODEV : err; /* open(2) of a socket */
}

int mf_file_open(struct mf_pool *pool, const char *path, uint32_t flags, struct mf_file **out)
{
    if (flags & ~(uint32_t)(MF_FILE_WRITE | MF_FILE_COPY))
        return -EINVAL;
    const int saved = errno, cancel = cancel_off();
    char *whole = absolute(path);
    int err = whole ? open_file(pool, whole, flags, out) : -errno;
    if (err)
        free(whole);
    cancel_restore(cancel);
    errno = saved;
    return err;
}

int mf_file_from_fd(struct mf_pool *pool, int fd, uint32_t flags, struct mf_file **out)
{
    if (flags & ~(uint32_t)(MF_FILE_WRITE | MF_FILE_COPY))
        return -EINVAL;
    const int saved = errno;
    const int mode = fcntl(fd, F_GETFL);
    int err = 0;
    if (mode < 0 || mode & O_PATH)
        err = -EBADF;
    else if ((mode & O_ACCMODE) == O_WRONLY ||
             (flags & MF_FILE_WRITE && (mode & O_ACCMODE) != O_RDWR))
        err = -EACCES;
    struct mf_file *file;
    if (!err)
        err = make_file(pool, fd, flags, &file);
    if (!err) {
        file->borrowed = true;
        pthread_mutex_lock(&pool->files_lock);
        list_insert_locked(file);
        pthread_mutex_unlock(&pool->files_lock);
        *out = file;
    }
    errno = saved;
    return err;
}

int mf_file_forget(struct mf_file *file)
{
    files_forget(file->pool, &file, 1);
    return 0;
}

static void close_file(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    pthread_mutex_lock(&pool->files_lock);
    file->closed = true;
    if (file->borrowed)
        atomic_store_explicit(&file->fd, -1, memory_order_relaxed);
    if (!file->users) { /* else by the last of them: file_fd_put */
        list_remove_locked(file);
        if (fd_of(file) >= 0)
            close_fd_locked(file);
    }
    pthread_mutex_unlock(&pool->files_lock);
    file_unref(file);
}

int mf_file_close_many(struct mf_file *const *files, size_t count)
{
    const int saved = errno, cancel = cancel_off();
    for (size_t i = 0, n; i < count; i += n) {
        n = 1;
        if (!files[i])
            continue;
        /* Neighbours of one pool go together. */
        while (i + n < count && (!files[i + n] || files[i + n]->pool == files[i]->pool))
            n++;
        files_forget(files[i]->pool, files + i, n);
        for (size_t k = i; k < i + n; k++)
            if (files[k])
                close_file(files[k]);
    }
    cancel_restore(cancel);
    errno = saved;
    return 0;
}

int mf_file_close(struct mf_file *file)
{
    return mf_file_close_many(&file, 1);
}

int mf_file_prefetch(struct mf_file *file, uint64_t offset, uint64_t length)
{
    if (offset > INT64_MAX || length > INT64_MAX)
        return -EINVAL;
    const int saved = errno, cancel = cancel_off();
    int err = file_fd_get(file);
    if (err >= 0) {
        err = -posix_fadvise(err, (off_t)offset, (off_t)length, POSIX_FADV_WILLNEED);
        file_fd_put(file);
    }
    cancel_restore(cancel);
    errno = saved;
    return err;
}

int64_t mf_file_size(struct mf_file *file)
{
    const int saved = errno;
    const int err = file_refresh_size(file);
    errno = saved;
    return err ? err : (int64_t)atomic_load_explicit(&file->size, memory_order_relaxed);
}
