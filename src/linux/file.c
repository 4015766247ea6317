/* SPDX-License-Identifier: MIT */
/*
 * Files: what they are, how long, and the bytes that are read of them. Their descriptors are in
 * descriptor.c.
 *
 * What is opened again must be the same file: device and file handle are compared, since the handle
 * has a generation and inode numbers are reused at once; where there are no handles, inode and time
 * of birth.
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

/* Where mappings do not do what they should: another host may change or drop the file, or there are
 * huge pages only (hugetlbfs), of which an extent would be a part. */
static bool is_not_to_be_mapped(int fd)
{
    static const uint32_t kinds[] = {
        0x6969 /* nfs */,       0x517b /* smb */,      0xff534d42 /* cifs */,
        0xfe534d42 /* smb2 */,  0x5346414f /* afs */,  0x6b414653 /* kafs */,
        0x73757245 /* coda */,  0x01021997 /* 9p */,   0x00c36400 /* ceph */,
        0x7461636f /* ocfs2 */, 0x01161970 /* gfs2 */, 0x958458f6 /* hugetlbfs */,
    };
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return false;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if ((uint32_t)fs.f_type == kinds[i])
            return true;
    return false;
}

/* Room for any handle. */
union handle_room {
    struct file_handle handle;
    char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

/*
 * Whether the kernel gives each mount a number of its own, for good, and tells it with a handle
 * (6.12). Two calls must agree on it: the second would write beyond an int where an emulator passes
 * on a flag that it does not know, so the first must show that it knows such numbers.
 */
static bool mounts_are_unique(int fd)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int answer;
    const int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known != UNKNOWN)
        return known == YES;
    struct statx stx = {0};
    union handle_room u;
    uint64_t mount = 0;
    bool yes = statx(fd, "", AT_EMPTY_PATH, STATX_MOUNT_UNIQUE, &stx) == 0 &&
               stx.stx_mask & STATX_MOUNT_UNIQUE;
    u.handle.handle_bytes = MAX_HANDLE_SZ;
    if (yes && system_handle(fd, NULL, &u.handle, (int *)&mount, HANDLE_MOUNT_UNIQUE) != 0) {
        if (errno != EINVAL)
            return false; /* of this file there is no handle; of the next there may be */
        yes = false;
    }
    yes = yes && mount == stx.stx_mnt_id;
    atomic_store_explicit(&answer, yes ? YES : NO, memory_order_relaxed);
    return yes;
}

/* The file handle; also the mount's number, if unique, that is never used again, else 0. */
static int read_handle(int fd, const char *path, bool unique, struct file_identity *identity)
{
    union handle_room u;
    uint64_t mount = 0;
    u.handle.handle_bytes = MAX_HANDLE_SZ;
    if (system_handle(fd, path, &u.handle, (int *)&mount, unique ? HANDLE_MOUNT_UNIQUE : 0) != 0)
        return -errno;
    identity->mount = unique ? mount : 0;
    identity->handle_type = (uint32_t)u.handle.handle_type;
    identity->handle_bytes = u.handle.handle_bytes;
    memcpy(identity->handle, u.handle.f_handle,
           u.handle.handle_bytes < HANDLE_BYTES ? u.handle.handle_bytes : HANDLE_BYTES);
    return 0;
}

static void read_birth(int fd, struct file_identity *identity)
{
    struct statx stx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) == 0 && stx.stx_mask & STATX_BTIME) {
        identity->birth_sec = stx.stx_btime.tv_sec;
        identity->birth_nsec = stx.stx_btime.tv_nsec;
    }
}

static int identify(int fd, struct stat *st, struct file_identity *identity)
{
    if (system_fstat(fd, st) != 0)
        return -errno;
    memset(identity, 0, sizeof(*identity));
    identity->device = st->st_dev;
    identity->inode = st->st_ino;
    if (read_handle(fd, NULL, mounts_are_unique(fd), identity) != 0)
        read_birth(fd, identity);
    return 0;
}

static bool same_handle(const struct file_identity *a, const struct file_identity *b)
{
    return a->handle_type == b->handle_type && a->handle_bytes == b->handle_bytes &&
           memcmp(a->handle, b->handle, sizeof(a->handle)) == 0;
}

/*
 * One call where the handle comes with the number of the same mount: a mount never changes its
 * device. On another mount (the path leads through one that is new) the device is asked for. The
 * time of birth counts only where there never was a handle: clocks tick so slowly that a file, and
 * another one with its inode, can be born in the same tick.
 */
int file_recognize(const struct mf_file *file, int fd)
{
    const struct file_identity *kept = &file->identity;
    struct file_identity now = {0};
    if (kept->handle_bytes) {
        const int err = read_handle(fd, NULL, mounts_are_unique(fd), &now);
        if (err) /* it had a handle, so what has none is another file */
            return err == -EOPNOTSUPP ? -ESTALE : err;
        if (!same_handle(&now, kept))
            return -ESTALE;
        if (now.mount && now.mount == kept->mount)
            return 0;
    }
    struct stat st;
    if (system_fstat(fd, &st) != 0)
        return -errno;
    if (!kept->handle_bytes)
        read_birth(fd, &now);
    const bool same = st.st_dev == kept->device && st.st_ino == kept->inode &&
                      now.birth_sec == kept->birth_sec && now.birth_nsec == kept->birth_nsec;
    return same ? 0 : -ESTALE;
}

bool file_is_at_path(const struct mf_file *file)
{
    const struct file_identity *kept = &file->identity;
    struct file_identity now = {0};
    return kept->handle_bytes && kept->mount &&
           read_handle(AT_FDCWD, file->path, true, &now) == 0 && same_handle(&now, kept) &&
           now.mount == kept->mount;
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
    /* Where it has grown, the quick ways find out one by one: extent_resize. */
    uint64_t seen = atomic_load_explicit(&file->size, memory_order_relaxed);
    while (seen < (uint64_t)size)
        if (atomic_compare_exchange_weak_explicit(&file->size, &seen, (uint64_t)size,
                                                  memory_order_relaxed, memory_order_relaxed))
            return 0;
    if (seen > (uint64_t)size)
        extents_resize(file, (uint64_t)size);
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
    int err = identify(fd, &st, &file->identity);
    if (!err)
        err = kind_error(st.st_mode);
    const int64_t size = err ? err : size_of(fd, &st);
    if (size < 0) {
        free(file);
        return (int)size;
    }
    file->pool = pool;
    file->owner = (1 + atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed)) << MODE_BITS;
    atomic_init(&file->size, (uint64_t)size);
    file->write = flags & MF_FILE_WRITE;
    file->copy_only = flags & MF_FILE_COPY || is_not_to_be_mapped(fd);
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
    const int fd = fd_open(pool, path, flags & MF_FILE_WRITE);
    if (fd < 0)
        return fd == -ENXIO ? -ENODEV : fd; /* open(2) of a socket */
    struct mf_file *file;
    const int err = make_file(pool, fd, flags, &file);
    if (err) {
        fd_give_up(pool, fd);
        return err;
    }
    file->path = path;
    fd_adopt(file);
    *out = file;
    return 0;
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
    else if (flags & MF_FILE_WRITE && mode & O_APPEND)
        err = -EINVAL; /* pwrite(2) would write at the end, wherever it is told to */
    struct mf_file *file;
    if (!err)
        err = make_file(pool, fd, flags, &file);
    if (!err) {
        file->borrowed = true;
        fd_adopt(file);
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
            if (files[k]) {
                file_fd_close(files[k]);
                file_unref(files[k]);
            }
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
