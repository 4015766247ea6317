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
#include <string.h>
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
    STRAYS_MAX = 4,         /* strays, and opens that may make one */
    HANDLE_BYTES = 64,      /* of a file handle that is compared; longer ones are cut */
    SPAN_BITS = 24,         /* extents that a piece may span, in a key's owner */
    MODE_BITS = 1 + SPAN_BITS,
};

/* The half of a slot that a hit does not need. Written by install and retire, list and file under
 * files_lock too. */
struct extent {
    struct mf_file *file;  /* NULL: none; a reference is held */
    uint64_t offset;       /* in the file, bytes */
    _Atomic size_t length; /* bytes mapped; 0: none, and its slot has no address */
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
    struct pool core;     /* first: the machine's functions are given this */
    uint32_t index;       /* in the registry */
    uint64_t window_base; /* index << WINDOW_SLOT_BITS */
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
    uint32_t strays;       /* descriptors open for good: see open_looked_at */
    uint32_t may_stray;    /* opens under way that may make one */
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
    uint64_t owner;        /* of its keys, in the bits from MODE_BITS on; never used again */
    _Atomic uint64_t size; /* as last seen; lowered under files_lock, see extents_resize */
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
/* The thread's counters by pool, for the quick ways; none, whatever there is, where the light
 * barrier is a fence. */
extern __thread struct pool_block *const *thread_quick __attribute__((tls_model("initial-exec")));
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
/* Whether its path leads to this file at this moment; false also where only a look at a descriptor
 * can tell. */
bool file_is_at_path(const struct mf_file *file);
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
/* Looks again how much of a pinned extent is within the file's size. */
void extent_resize(struct mf_pool *pool, uint32_t slot);
/* The same for all extents of a file that has become shorter. */
void extents_resize(struct mf_file *file, uint64_t size);
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
/* Pins the extent of a piece; *data is where the piece lies. Errors of pool_pin. block: the
 * caller's, with its mark, which the caller settles; or NULL. */
int piece_pin(struct mf_file *file, struct pool_block *block, struct piece *piece,
              uint64_t deadline, uint32_t *slot, char **data);
/* Whether its extent is mapped at this moment. */
bool piece_is_mapped(struct mf_pool *pool, const struct piece *piece);
/* Whether the key was touched lately; remembers it. */
bool ghost_touch(struct mf_pool *pool, struct pool_key key);
int piece_unpin_slow(struct mf_pool *pool, uint32_t slot, int err) __attribute__((cold));
/* piece_unpin for a thread that has no counter for the slot, or with a fence, or -EIO. */
int piece_unpin_generic(struct mf_pool *pool, uint32_t slot, uint64_t *mark, struct mf_window *w)
    __attribute__((cold));

/*
 * The first opaque word of a window says what it has pinned: its address, shifted, plus the pool's
 * index << 16 and the slot, and one of these. So it is right only where the window was pinned; 0
 * says that it is not. (It would be right by chance at some 8 TiB - 8 bytes, where no window lies.)
 */
enum { WINDOW_WORD, WINDOW_FILE }; /* opaque words; the file is that of a copy */
enum {
    WINDOW_SLOT_BITS = 16,
    WINDOW_NO_SLOT = 1 << 22, /* a copy, or empty */
    WINDOW_LOCAL = 1 << 23,
    WINDOW_ADDRESS_BIT = 21, /* of words that are 8 bytes long */
};

static inline uint64_t window_address(const struct mf_window *w)
{
    return ((uint64_t)(uintptr_t)w + 8) << WINDOW_ADDRESS_BIT;
}

/* What it has pinned: below WINDOW_NO_SLOT just pool and slot; from 2 * WINDOW_LOCAL on, nothing.
 */
static inline uint64_t window_place(const struct mf_window *w)
{
    return w->opaque[WINDOW_WORD] - window_address(w);
}

static inline bool window_is_pinned(const struct mf_window *w, bool local)
{
    return window_place(w) - (local ? WINDOW_LOCAL : 0) < WINDOW_LOCAL;
}

static inline bool window_is_in_use(const struct mf_window *w)
{
    return window_place(w) < 2 * WINDOW_LOCAL;
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

/* All other words of the window are there already. what: slot and marks. */
static inline void window_own(struct mf_window *w, const struct mf_pool *pool, uint32_t what)
{
    const uint64_t word = window_address(w) + pool->window_base + what;
    store_fence();
    *(volatile uint64_t *)&w->opaque[WINDOW_WORD] = word;
}

/* After what was noted, and before what comes next. */
static inline void mark_clear(uint64_t *mark)
{
    store_fence();
    *(volatile uint64_t *)mark = 0;
    store_fence();
}

/* What is not opaque. */
static inline void window_wipe(struct mf_window *w)
{
    memset(w, 0, offsetof(struct mf_window, opaque));
}

static inline void window_clear(struct mf_window *w)
{
    mark_clear(&w->opaque[WINDOW_WORD]);
    window_wipe(w);
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
    return (struct pool_key){file->owner | write | (span - 1) << 1, first};
}

/* The calling thread's counters if it has some already. */
static inline struct pool_block *thread_block_ready(const struct mf_pool *pool)
{
    return thread_self ? thread_self->blocks[pool->index] : NULL;
}

/* Whether a piece lies in the extent, and that is sound; else the slot is no use. */
static inline bool extent_fits(struct mf_pool *pool, uint32_t slot, uint64_t in_extent,
                               size_t length)
{
    const struct machine_slot *machine = &pool->core.slots[slot].machine;
    return !atomic_load_explicit(&machine->failed, memory_order_relaxed) &&
           in_extent + length <=
               atomic_load_explicit(&pool->extents[slot].length, memory_order_relaxed);
}

/*
 * Pins a piece, neither empty nor beyond the size last seen, if it lies in one extent, mapped and
 * sound; takes no lock and calls nothing. *data is where it is, to be settled; false:
 * pool_give_up must follow. block: from thread_quick.
 */
static inline __attribute__((always_inline)) bool
piece_try(const struct mf_file *file, const struct mf_pool *pool, struct pool_block *block,
          uint64_t offset, size_t length, bool write, uint32_t *slot, char **data)
{
    const struct pool_key key = piece_key(file, offset >> pool->extent_shift, 1, write);
    const uint32_t i = pool_first(&pool->core, key);
    const struct pool_slot *held = &pool->core.slots[i];
    if (__builtin_expect(i == POOL_NONE, false) ||
        !pool_try(block, i, held, key, machine_barrier_compiler))
        return false;
    const uint64_t in_extent = offset & pool->extent_mask;
    const size_t usable = atomic_load_explicit(&held->machine.usable, memory_order_relaxed);
    const uint64_t last = in_extent + (length - 1);
    if (__builtin_expect(last < in_extent, false) || __builtin_expect(last >= usable, false))
        return false;
    *slot = i;
    *data = atomic_load_explicit(&held->machine.base, memory_order_relaxed) + in_extent;
    return true;
}

/*
 * Clears the mark and the window, either NULL where there is none, and gives the extent back; debug
 * pools unmap it. -EIO if a page of it vanished. The note is there before anything changes: the
 * child of a fork in between has the mark cleared and the extent unpinned. block: from
 * thread_quick, or NULL.
 */
static inline __attribute__((always_inline)) int piece_unpin(struct mf_pool *pool,
                                                             struct pool_block *block,
                                                             uint32_t slot, uint64_t *mark,
                                                             struct mf_window *w)
{
    if (__builtin_expect(!block || extent_failed(pool, slot), false))
        return piece_unpin_generic(pool, slot, mark, w);
    const uintptr_t chunk = pool_chunk(block, slot, memory_order_relaxed);
    if (__builtin_expect(!chunk, false))
        return piece_unpin_generic(pool, slot, mark, w);
    struct pool_counter *counter = pool_counter_in(chunk, slot);
    const uint32_t before = pool_unpin_note(block, counter, slot, mark);
    if (mark)
        mark_clear(mark);
    if (w)
        window_wipe(w);
    pool_count_unpin(counter, before);
    pool_settle(block);
    if (__builtin_expect(pool_is_awaited(&pool->core, machine_barrier_compiler), false))
        return piece_unpin_slow(pool, slot, 0);
    return 0;
}

#endif
