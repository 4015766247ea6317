/* SPDX-License-Identifier: MIT */
/*
 * What the files of the window layer share: the pool of a Linux process, its files and extents.
 *
 * Locks, in the order in which they may be taken (each may be left out):
 *   registry walk           no pool goes away; not held over a fork, new in the child
 *   registry (thread.c)     pools and threads known
 *   pool->core's lock       slots; the core's
 *   pool->files_lock        files, their descriptors and lists of extents, copies under way
 * None is held over a system call that can block, except the registry's while a pool is destroyed.
 */
#ifndef MF_LINUX_POOL_H
#define MF_LINUX_POOL_H

#include <fcntl.h>
#include <mapfold/window.h>
#include <sys/stat.h>

#define MF_MACHINE "linux/machine_linux.h"
#include "core/pool.h"

enum {
    POOLS_MAX = 64,
    LOCALS_MAX = 16,
    LOCAL_BUFFER = 64 << 10,
    REPAIRS_MAX = 16,       /* pages of one extent repaired one by one */
    SMALL_FILE = 128 << 10, /* up to here a first touch is served by copy */
    BATCH_MAX = 256,        /* extents that one round frees, or forgets */
    TRIALS_MAX = 64,        /* descriptors on trial */
    HANDLE_BYTES = 64,      /* of a file handle that is compared; longer ones are cut */
    SPAN_BITS = 24,         /* of a key's owner: extents spanned - 1 */
};

/* The half of a slot that a hit does not need. Written by install and retire, list and file under
 * files_lock too. */
struct extent {
    struct mf_file *file;  /* NULL: none; a reference is held */
    uint64_t offset;       /* in the file, bytes */
    uint32_t next, before; /* the file's extents */
    uint64_t born;         /* count of installs: forget leaves alone what came after it */
    bool write;
    _Atomic uint32_t faults;
    _Atomic uint32_t repairs; /* kernel maps that repairs have added */
};

/* bytes_mapped and maps are reserved before and given back after, so they are bounds at any time
 * and exact at rest. */
struct budget {
    _Atomic uint64_t bytes_max, maps_max; /* none are taken beyond */
    _Atomic uint64_t bytes_limit;         /* a wish beyond can never be granted; it is bytes_max but
                                             while new limits are tried, which may be in vain */
    _Atomic uint64_t bytes;               /* mapped and copied */
    _Atomic uint64_t maps;
};

struct mf_pool {
    struct pool core; /* first: the machine's functions are given this */
    uint32_t index;   /* in the registry */
    uint32_t extent_shift;
    uint64_t extent_mask; /* its size - 1 */
    uint32_t flags;
    struct extent *extents;
    _Atomic uint32_t extents_used; /* slots that ever had one: as far as the fault handler looks */
    _Atomic uint64_t *ghosts;      /* what was touched once; a table of hashes, mask + 1 entries */
    uint32_t ghosts_mask;
    struct budget budget;

    pthread_mutex_t files_lock;
    pthread_cond_t files_changed; /* a descriptor is no longer in use */
    uint64_t copied;              /* bytes in private copies */
    uint64_t copies, reopened, installs, failed_retired;
    struct mf_file *files; /* not yet closed */
    uint32_t files_in_transit;
    uint32_t open, open_max;
    struct mf_file *clock; /* the ring, where the hand is */
    struct mf_file *trials[TRIALS_MAX];
    uint32_t trial_count;
    struct chunk_store *chunks;
    void *memory; /* one mapping for all that has a fixed size */
    size_t memory_bytes;
};

struct file_identity {
    uint64_t device, inode;
    uint64_t mount; /* by which the handle was got; 0: not known */
    int64_t birth_sec;
    uint32_t birth_nsec;
    uint32_t handle_type, handle_bytes;
    unsigned char handle[HANDLE_BYTES];
};

struct mf_file {
    struct mf_pool *pool;
    uint64_t owner;        /* of its keys; never used again */
    _Atomic uint64_t size; /* as last seen */
    bool write, copy_only, borrowed;
    _Atomic uint32_t references; /* the handle, each extent, each copy */
    struct file_identity identity;
    char *path;              /* absolute; NULL: borrowed */
    _Atomic uint32_t mapped; /* bit 0: for reading, once at least; bit 1: for writing */

    /* Under files_lock. */
    _Atomic int fd; /* -1: closed; read by the fault handler without the lock */
    uint32_t users; /* of the descriptor, at this moment */
    bool opening, closed, recent;
    struct mf_file *list_next, *list_before;
    struct mf_file *clock_next, *clock_before; /* NULL: not in the ring */
    uint64_t reopened;             /* the pool's count when it was opened again last; 0: never */
    uint32_t trial;                /* place among those on trial + 1; 0: not there */
    _Atomic uint32_t first_extent; /* changed under the lock, read without for a guess */
};

/* What machine_admit and machine_install are given. */
struct request {
    struct mf_file *file;
    uint64_t offset;
    size_t length; /* bytes to map, whole pages */
    bool write;
};

/* A local window, and what it has pinned, which has to be known when its memory is gone: so the
 * pin's mark is here, and not in the window. */
struct local {
    struct mf_window *window;
    struct mf_pool *pool;
    uint32_t slot;   /* POOL_NONE: none */
    uint64_t pinned; /* the mark */
};

/* One thread's record; handed on to another when it exits. */
struct thread {
    struct thread *next_all, *next_free;
    struct pool_block *blocks[POOLS_MAX];
    uint64_t copying; /* bytes of a copy counted but not handed over; under its pool's files_lock */
    struct mf_pool *copying_in;
    uint32_t locals;
    uint32_t ending; /* rounds of destructors so far */
    size_t local_used;
    char *local_buffer;
    struct local local[LOCALS_MAX];
};

extern uint64_t system_page; /* bytes; constant after machine_start */

static inline uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) & ~(to - 1);
}

/* Around what may be a cancellation point: a thread that ended there would leave a descriptor, a
 * slot in transit or a waiting fork behind it. */
static inline int cancel_off(void)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

static inline void cancel_restore(int state)
{
    pthread_setcancelstate(state, NULL);
}

/* thread.c: threads and pools known, fork */
extern __thread struct thread *thread_self __attribute__((tls_model("initial-exec")));
extern _Atomic(struct mf_pool *) registry[POOLS_MAX];
struct thread *thread_record(void); /* NULL: no memory, or the thread is ending */
struct pool_block *thread_block_generic(struct mf_pool *pool);
int registry_add(struct mf_pool *pool); /* 0, -ENOSPC, -ENOMEM */
void registry_remove(struct mf_pool *pool);
void registry_walk_begin(void); /* until the end no pool is destroyed; pools may be shrunk */
void registry_walk_end(void);
void *metadata_map(size_t bytes); /* zeroed pages, or NULL */
void metadata_unmap(void *memory, size_t bytes);

/* The calling thread's counters, or NULL. */
static inline struct pool_block *thread_block(struct mf_pool *pool)
{
    struct thread *self = thread_self;
    if (__builtin_expect(self != NULL, true)) {
        struct pool_block *block = self->blocks[pool->index];
        if (__builtin_expect(block != NULL, true))
            return block;
    }
    return thread_block_generic(pool);
}

/* budget in pool.c */
bool budget_take(struct budget *budget, uint64_t bytes, uint64_t maps);
void budget_give(struct budget *budget, uint64_t bytes, uint64_t maps);
extern struct budget process_budget;
/* Where the process's cap is in the way of that much: gives up idle extents of all pools but this
 * one. Whether it is worth another try. Not under a lock, nor with a slot in transit. */
bool process_make_room(const struct mf_pool *pool, uint64_t bytes, uint64_t maps);

/* descriptor.c */
/* The descriptor, opened again if need be, kept open until file_fd_put. -errno. All of it between
 * cancel_off and cancel_restore. */
int file_fd_get(struct mf_file *file);
void file_fd_put(struct mf_file *file);
/* Closes it, if it is ours, as soon as nobody is using it; the file is no longer one of the pool's.
 */
void file_fd_close(struct mf_file *file);
/* Opens a path, counted; to be adopted with the file made of it, or given up. -errno. */
int fd_open(struct mf_pool *pool, const char *path, bool write);
void fd_give_up(struct mf_pool *pool, int fd);
/* The file is one of the pool's now, and its descriptor, unless borrowed, open until it is needed.
 */
void fd_adopt(struct mf_file *file);
/* Closes descriptors until there is room for so many more. 0, -EMFILE. Under files_lock; may let go
 * of it. */
int files_trim_locked(struct mf_pool *pool, uint32_t more);
/* In the child, under the lock: what used descriptors in other threads is gone. */
void files_after_fork(struct mf_pool *pool);

/* file.c */
/* Whether the descriptor is of this file: 0, -ESTALE, -errno. */
int file_recognize(const struct mf_file *file, int fd);
int file_refresh_size(struct mf_file *file); /* 0, -errno */
/* 0, or -ERANGE where [offset, end) is not in the file as it is now. */
int file_check_range(struct mf_file *file, uint64_t end);
void file_ref(struct mf_file *file);
void file_unref(struct mf_file *file);
/* The count, and in *why 0 or the error that ended it early; without a count the error. */
ssize_t file_pread(struct mf_file *file, void *to, size_t length, uint64_t offset, int *why);
/* All of it: 0, -ERANGE where the file ends before, or the error. */
int file_pread_all(struct mf_file *file, void *to, size_t length, uint64_t offset);

/* pool_extent.c */
void extent_unmap(struct mf_pool *pool, uint32_t slot);
void extents_destroy(struct mf_pool *pool);
/* Dooms the file's extents installed before now; count of victims kept in the batch for later. */
void files_forget(struct mf_pool *pool, struct mf_file *const *files, size_t count);
void chunks_destroy(struct mf_pool *pool);

/* fault.c and copy.c */
extern _Atomic bool fault_ready;        /* a SIGBUS handler that calls mf_fault_handle is there */
extern _Atomic uint32_t fault_handlers; /* running now */
void fault_after_fork(void);
/* Bytes NOT copied. Faults end it early if fault_ready. */
size_t copy_guarded(void *to, const void *from, size_t length);
/* Where a fault at this program counter goes on, or 0 if it is not in copy_guarded. */
uintptr_t copy_fixup(uintptr_t pc);

/* local.c */
/* Gives a local window's pin back, by the counters of the thread that made it. The window, which
 * may be gone, is left alone. */
void local_put(struct pool_block *block, struct local *local);

/* window.c, for local.c and read.c */
struct piece {
    struct pool_key key;
    struct request request;
    uint64_t in_extent; /* offset of the piece in the extent */
    size_t length;
};
/* 0; -E2BIG */
int piece_locate(struct mf_file *file, uint64_t offset, size_t length, bool write,
                 struct piece *piece);
/* Pins the extent of a piece; *data is where the piece lies. Errors of pool_pin. */
int piece_pin(struct mf_file *file, struct piece *piece, uint64_t deadline, uint32_t *slot,
              char **data);
/* Gives a pin back that its owner has not got. */
void piece_put(struct mf_pool *pool, uint32_t slot);
/* Whether the key was touched lately; remembers it. */
bool ghost_touch(struct mf_pool *pool, struct pool_key key);
int piece_unpin_slow(struct mf_pool *pool, uint32_t slot, int err) __attribute__((cold));
/* piece_unpin for a thread that has no counter for the slot. */
int piece_unpin_generic(struct mf_pool *pool, uint32_t slot, struct mf_window *w)
    __attribute__((cold));

/* The last opaque word of all windows is a token that is right only where the window was pinned. */
enum { WINDOW_TOKEN = 3 };

static inline uint64_t window_token(const struct mf_window *w, bool local)
{
    return (uint64_t)(uintptr_t)w ^ UINT64_C(0x6d6170666f6c6420) ^ local;
}

static inline bool window_is_pinned(const struct mf_window *w, bool local)
{
    return w->opaque[WINDOW_TOKEN] == window_token(w, local);
}

static inline bool window_is_in_use(const struct mf_window *w)
{
    return (w->opaque[WINDOW_TOKEN] ^ window_token(w, false)) <= 1;
}

/* What is stored before is seen before: by the child of a fork in between. */
static inline void store_fence(void)
{
#if defined(__aarch64__)
    __asm__ volatile("dmb ishst" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* All other words of the window are there already. */
static inline void window_own(struct mf_window *w, bool local)
{
    store_fence();
    *(volatile uint64_t *)&w->opaque[WINDOW_TOKEN] = window_token(w, local);
}

static inline void window_clear(struct mf_window *w)
{
    *(volatile uint64_t *)&w->opaque[WINDOW_TOKEN] = 0;
    store_fence();
    w->data = NULL;
    w->length = 0;
    w->flags = 0;
}

/* Orders the reads of a window's bytes before that of the mark; pairs with the handler's store. */
static inline bool extent_failed(struct mf_pool *pool, uint32_t slot)
{
#if defined(__aarch64__)
    __asm__ volatile("dmb ishld" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
    return atomic_load_explicit(&pool->core.slots[slot].machine.failed, memory_order_acquire) != 0;
}

static inline struct pool_key piece_key(const struct mf_file *file, uint64_t first, uint64_t span,
                                        bool write)
{
    const uint64_t mode = write ? UINT64_C(1) << SPAN_BITS : 0;
    return (struct pool_key){file->owner | mode | (span - 1), first};
}

/* The calling thread's counters if it has some already. */
static inline struct pool_block *thread_block_ready(const struct mf_pool *pool)
{
    return thread_self ? thread_self->blocks[pool->index] : NULL;
}

/* Whether a piece within the file's size lies in a sound extent; else the slot is no use. */
static inline bool extent_fits(struct mf_pool *pool, uint32_t slot, uint64_t in_extent,
                               size_t length)
{
    const struct machine_slot *machine = &pool->core.slots[slot].machine;
    return !atomic_load_explicit(&machine->failed, memory_order_relaxed) &&
           in_extent + length <= atomic_load_explicit(&machine->length, memory_order_relaxed);
}

/* Pins a piece, neither empty nor beyond the size last seen, if it lies in one extent, mapped and
 * sound; takes no lock and calls nothing. Where it is, to be settled; or NULL, and pool_give_up to
 * follow. */
static inline __attribute__((always_inline)) char *
piece_try(const struct mf_file *file, struct mf_pool *pool, struct pool_block *block,
          uint64_t offset, size_t length, bool write, uint32_t *slot)
{
    const uint32_t shift = pool->extent_shift;
    const uint64_t first = offset >> shift, in_extent = offset & pool->extent_mask;
    if (__builtin_expect(in_extent + length - 1 > pool->extent_mask, false))
        return NULL;
    const struct pool_key key = piece_key(file, first, 1, write);
    *slot = pool_first(&pool->core, key);
    if (!pool_try(&pool->core, block, *slot, key) ||
        __builtin_expect(!extent_fits(pool, *slot, in_extent, length), false))
        return NULL;
    pool_count_hit(block);
    return atomic_load_explicit(&pool->core.slots[*slot].machine.base, memory_order_relaxed) +
           in_extent;
}

/*
 * Clears the window and gives its extent back; debug pools unmap it. w is NULL where there is none.
 * -EIO if a page of it vanished. The note is there before anything changes: the child of a fork in
 * between has the window cleared and the extent unpinned.
 */
static inline __attribute__((always_inline)) int piece_unpin(struct mf_pool *pool, uint32_t slot,
                                                             struct mf_window *w)
{
    struct pool_block *block = thread_block_ready(pool);
    const int err = extent_failed(pool, slot) ? -EIO : 0;
    struct pool_counter *counter =
        pool_unpin_note(block, slot, w ? &w->opaque[WINDOW_TOKEN] : NULL);
    if (__builtin_expect(!counter, false))
        return piece_unpin_generic(pool, slot, w);
    if (w) {
        store_fence();
        window_clear(w);
    }
    pool_count_unpin(counter);
    pool_settle(block);
    if (__builtin_expect(pool_is_awaited(&pool->core, slot), false))
        return piece_unpin_slow(pool, slot, err);
    return err;
}

#endif
