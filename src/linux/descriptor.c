/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of files opened by path. One that nobody is using may be closed at any time, to keep
 * the limit, and is opened again when somebody needs it (file_fd_get ... file_fd_put).
 *
 * An open descriptor stands in one of three places:
 *   the ring      over which a clock runs: not lately used, it is closed. A file that is found to
 *                 have lost its last link then could not be opened again: it leaves the ring and
 *                 keeps its descriptor for good
 *   on trial      opened again when the ring had its share already, and not lately before. Used
 *                 once more, it goes into the ring; else it is closed together with the others on
 *                 trial, whose numbers mostly follow each other, in one call
 *   neither       kept for good
 * So a pass over many files, each touched once, costs an open and a small share of a close, and
 * leaves the ring alone. Pools of few descriptors have a ring only.
 *
 * pool->open counts descriptors from before they are opened until after they are closed. What is
 * between open and its place, or between its place and close, is in transit: a fork waits for it.
 * System calls are made without the lock.
 */
#include <stdio.h>

#include "linux/pool.h"
#include "linux/system.h"

static int fd_of(const struct mf_file *file)
{
    return atomic_load_explicit(&file->fd, memory_order_relaxed);
}

/* All files not yet closed. */

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

/* The places. */

static void ring_insert_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    file->recent = true;
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

/* How many descriptors are for those on trial; half of them are closed together. */
static uint32_t trial_share(const struct mf_pool *pool)
{
    return pool->open_max / 8 < TRIALS_MAX ? pool->open_max / 8 : TRIALS_MAX;
}

static void trial_remove_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    if (!file->trial)
        return;
    struct mf_file *last = pool->trials[--pool->trial_count];
    pool->trials[file->trial - 1] = last;
    last->trial = file->trial;
    file->trial = 0;
}

/* Gives a descriptor that was opened again its place: the ring's, while that has not its share, or
 * where the ring would have kept it since it was opened last. */
static void place_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    const uint32_t others = pool->open - pool->trial_count;
    const bool warm = file->reopened && pool->reopened - file->reopened < pool->open_max;
    file->reopened = ++pool->reopened;
    if (warm || others <= pool->open_max - trial_share(pool) || pool->trial_count == TRIALS_MAX) {
        ring_insert_locked(file);
    } else {
        pool->trials[pool->trial_count++] = file;
        file->trial = pool->trial_count;
    }
}

/* Takes the descriptor out of its place, for the caller to close. */
static int take_fd_locked(struct mf_file *file)
{
    ring_remove_locked(file);
    trial_remove_locked(file);
    return atomic_exchange_explicit(&file->fd, -1, memory_order_relaxed);
}

/* Closing. */

static void end_transit_locked(struct mf_pool *pool)
{
    pool->files_in_transit--;
    pthread_cond_broadcast(&pool->files_changed);
}

static void sort(int *numbers, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const int number = numbers[i];
        uint32_t k = i;
        for (; k && numbers[k - 1] > number; k--)
            numbers[k] = numbers[k - 1];
        numbers[k] = number;
    }
}

/* All are open and ours, so in a run of numbers there is nobody else's. */
static void close_all(int *fds, uint32_t count)
{
    sort(fds, count);
    for (uint32_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && fds[i + n] == fds[i] + (int)n;)
            n++;
        if (n > 1 && system_close_range(fds[i], fds[i + n - 1]) == 0)
            continue;
        for (uint32_t k = i; k < i + n; k++)
            close(fds[k]);
    }
}

/* Closed first and counted after, so that the limit holds. Lets go of the lock meanwhile. */
static void close_locked(struct mf_pool *pool, int *fds, uint32_t count)
{
    pool->files_in_transit++;
    pthread_mutex_unlock(&pool->files_lock);
    close_all(fds, count);
    pthread_mutex_lock(&pool->files_lock);
    pool->open -= count;
    end_transit_locked(pool);
}

/* A user less. The last one of a closed file does what file_fd_close left to it. */
static void release_locked(struct mf_file *file)
{
    if (!file->users || --file->users)
        return;
    if (file->closed) {
        list_remove_locked(file);
        int fd = take_fd_locked(file);
        if (fd >= 0)
            close_locked(file->pool, &fd, 1);
    }
    pthread_cond_broadcast(&file->pool->files_changed);
}

/* Closes those on trial that nobody is using; how many. */
static uint32_t close_trials_locked(struct mf_pool *pool, bool *busy)
{
    int fds[TRIALS_MAX];
    uint32_t count = 0;
    for (uint32_t i = pool->trial_count; i-- > 0;)
        if (pool->trials[i]->users)
            *busy = true;
        else
            fds[count++] = take_fd_locked(pool->trials[i]);
    if (count)
        close_locked(pool, fds, count);
    return count;
}

/* Of the ring, not lately used; NULL: all are in use, or there are none. */
static struct mf_file *pick_victim_locked(struct mf_pool *pool, bool *busy)
{
    struct mf_file *file = pool->clock;
    for (uint64_t left = 2 * (uint64_t)pool->open; file && left; left--, file = file->clock_next) {
        if (file->users) {
            *busy = true;
        } else if (file->recent && left > pool->open) {
            file->recent = false;
        } else {
            pool->clock = file->clock_next;
            return file;
        }
    }
    return NULL;
}

/* Closes it, unless it is found to have no links, or somebody has begun to use it meanwhile: we
 * look at it as one of its users, without the lock. */
static void close_victim_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    struct stat st;
    pool->files_in_transit++;
    file->users++;
    file_ref(file);
    pthread_mutex_unlock(&pool->files_lock);
    const bool lost = system_fstat(fd_of(file), &st) == 0 && st.st_nlink == 0;
    pthread_mutex_lock(&pool->files_lock);
    if (file->users == 1 && !file->closed && lost) {
        ring_remove_locked(file);
    } else if (file->users == 1 && !file->closed) {
        int fd = take_fd_locked(file);
        close_locked(pool, &fd, 1);
    }
    release_locked(file);
    end_transit_locked(pool);
    file_unref(file);
}

/* Closes one descriptor of the ring, or else all on trial; false: there are none that can be. After
 * true look again: it may also have been kept. */
static bool shed_locked(struct mf_pool *pool, bool *busy)
{
    *busy = false;
    struct mf_file *victim = pick_victim_locked(pool, busy);
    if (!victim)
        return close_trials_locked(pool, busy) != 0;
    close_victim_locked(victim);
    return true;
}

int files_trim_locked(struct mf_pool *pool, uint32_t more)
{
    while (pool->open + more > pool->open_max) { /* which may have changed while we waited */
        bool busy;
        if (shed_locked(pool, &busy))
            continue;
        if (!busy && !pool->files_in_transit)
            return -EMFILE;
        pthread_cond_wait(&pool->files_changed, &pool->files_lock);
    }
    return 0;
}

/* Opening. */

/* Counts one descriptor more, closing others where the limit asks for it. */
static int reserve_locked(struct mf_pool *pool)
{
    bool busy;
    if (pool->trial_count && 2 * pool->trial_count >= trial_share(pool))
        close_trials_locked(pool, &busy);
    const int err = files_trim_locked(pool, 1);
    if (!err) {
        pool->open++;
        pool->files_in_transit++;
    }
    return err;
}

/* And another one for a moment, if there is room without a wait. */
static bool reserve_other_locked(struct mf_pool *pool)
{
    bool busy;
    if (pool->open >= pool->open_max)
        shed_locked(pool, &busy);
    if (pool->open >= pool->open_max)
        return false;
    pool->open++;
    return true;
}

/* O_NONBLOCK: a FIFO is refused later, and must not hold us up now. But for a lease that another
 * process has on a file open(2) waits until it is given up, and so do we. */
static int open_once(const char *path, int flags)
{
    struct stat st;
    int fd = system_open(path, flags | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 || errno != EWOULDBLOCK || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return fd;
    do
        fd = system_open(path, flags | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Opens the path; where the process is out of descriptors, with fewer of ours. Not under a lock,
 * but in transit. */
static int open_path(struct mf_pool *pool, const char *path, int flags)
{
    for (;;) {
        const int fd = open_once(path, flags);
        if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
            return fd >= 0 ? fd : -errno;
        const int err = -errno;
        pthread_mutex_lock(&pool->files_lock);
        bool busy;
        const bool shed = shed_locked(pool, &busy);
        pthread_mutex_unlock(&pool->files_lock);
        if (!shed)
            return err;
    }
}

int fd_open(struct mf_pool *pool, const char *path, bool write)
{
    pthread_mutex_lock(&pool->files_lock);
    const int err = reserve_locked(pool);
    pthread_mutex_unlock(&pool->files_lock);
    if (err)
        return err;
    const int fd = open_path(pool, path, write ? O_RDWR : O_RDONLY);
    if (fd < 0)
        fd_give_up(pool, fd);
    return fd;
}

void fd_give_up(struct mf_pool *pool, int fd)
{
    if (fd >= 0)
        close(fd);
    pthread_mutex_lock(&pool->files_lock);
    pool->open--;
    end_transit_locked(pool);
    pthread_mutex_unlock(&pool->files_lock);
}

/* Into the ring, where it is not closed before a look at its links: who opens a file may remove it
 * at once. */
void fd_adopt(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    pthread_mutex_lock(&pool->files_lock);
    list_insert_locked(file);
    if (!file->borrowed) {
        ring_insert_locked(file);
        end_transit_locked(pool);
    }
    pthread_mutex_unlock(&pool->files_lock);
}

/* What an O_PATH descriptor stands for. */
static int open_found(struct mf_pool *pool, int found, int flags)
{
    char link[40];
    snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", found);
    return open_path(pool, link, flags);
}

static int open_known(struct mf_file *file, int flags)
{
    const int fd = open_path(file->pool, file->path, flags);
    const int err = fd < 0 ? fd : file_recognize(file, fd);
    if (err && fd >= 0)
        close(fd);
    return err ? err : fd;
}

/* Whether a descriptor is of a kind of file that programs lock. */
static bool may_be_locked(int fd)
{
    struct stat st;
    return fstat(fd, &st) != 0 || S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
}

/*
 * Opens a path that led to the file a moment ago. 0 with *fd; or the error. If it cannot be said
 * that it is the file, since another one has taken its place, *fd is *stray and never closed.
 */
static int open_looked_at(struct mf_file *file, int flags, int *fd, bool *stray)
{
    *fd = open_path(file->pool, file->path, flags);
    const int err = *fd < 0 ? *fd : file_recognize(file, *fd);
    *stray = err && *fd >= 0 && may_be_locked(*fd);
    if (err && *fd >= 0 && !*stray)
        close(*fd);
    return err;
}

/*
 * The path may lead to another file by now, and closing any descriptor of a file drops the locks
 * (fcntl) that the process has on it: on that other one too. So the path is looked at first. Where
 * that tells, and the pool can bear a descriptor that must not be closed, it is opened then: that
 * is the cheapest. Else the look is by an O_PATH descriptor, whose end drops no locks, and what
 * that stands for is opened by way of /proc. Without room for two descriptors, or without /proc,
 * the path is opened after the look, and looked at again: then a file that was put there between
 * the two loses its locks.
 */
static int open_again(struct mf_file *file, bool two, bool may_stray, bool *stray)
{
    const int flags = file->write ? O_RDWR : O_RDONLY;
    *stray = false;
    if (may_stray && file_is_at_path(file)) {
        int opened;
        const int error = open_looked_at(file, flags, &opened, stray);
        if (opened >= 0)
            return error ? error : opened;
    }
    const int found = open_path(file->pool, file->path, O_PATH);
    if (found < 0)
        return found == -ENOENT || found == -ENOTDIR ? -ESTALE : found;
    const int err = file_recognize(file, found);
    int fd = !err && two ? open_found(file->pool, found, flags) : -ENOENT;
    close(found);
    if (!err && fd < 0)
        fd = open_known(file, flags);
    return err ? err : fd == -ENOENT || fd == -ENOTDIR ? -ESTALE : fd;
}

/* Lets go of the lock meanwhile; others who want the descriptor wait. */
static int reopen_locked(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    file->opening = true;
    int fd = reserve_locked(pool);
    if (!fd) {
        const bool two = reserve_other_locked(pool);
        const bool may_stray =
            two && trial_share(pool) && pool->strays + pool->may_stray < STRAYS_MAX;
        bool stray;
        pool->may_stray += may_stray;
        pthread_mutex_unlock(&pool->files_lock);
        fd = open_again(file, two, may_stray, &stray);
        pthread_mutex_lock(&pool->files_lock);
        pool->may_stray -= may_stray;
        pool->strays += stray;
        pool->open -= two && !stray;
        if (fd < 0) {
            pool->open--;
        } else {
            atomic_store_explicit(&file->fd, fd, memory_order_relaxed);
            place_locked(file);
        }
        end_transit_locked(pool);
    }
    file->opening = false;
    pthread_cond_broadcast(&pool->files_changed);
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
    if (fd >= -1)
        file->users++;
    if (fd == -1) {
        fd = reopen_locked(file);
        if (fd < 0)
            release_locked(file);
    } else if (file->trial) {
        trial_remove_locked(file);
        ring_insert_locked(file);
    }
    file->recent = true;
    pthread_mutex_unlock(&pool->files_lock);
    return fd;
}

void file_fd_put(struct mf_file *file)
{
    if (file->borrowed)
        return;
    pthread_mutex_lock(&file->pool->files_lock);
    release_locked(file);
    pthread_mutex_unlock(&file->pool->files_lock);
}

void file_fd_close(struct mf_file *file)
{
    struct mf_pool *pool = file->pool;
    pthread_mutex_lock(&pool->files_lock);
    file->closed = true;
    if (file->borrowed)
        atomic_store_explicit(&file->fd, -1, memory_order_relaxed);
    file->users++;
    release_locked(file);
    pthread_mutex_unlock(&pool->files_lock);
}

void files_after_fork(struct mf_pool *pool)
{
    const int cancel = cancel_off(); /* close(2) */
    pthread_cond_init(&pool->files_changed, NULL);
    for (struct mf_file *file = pool->files, *next; file; file = next) {
        next = file->list_next;
        file->users = 0;
        file->opening = false;
        if (!file->closed)
            continue;
        list_remove_locked(file);
        const int fd = take_fd_locked(file);
        if (fd >= 0) {
            close(fd);
            pool->open--;
        }
    }
    cancel_restore(cancel);
}
