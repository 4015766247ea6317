/* SPDX-License-Identifier: MIT */
/*
 * mapping: mmap(2) and its family, with many small file mappings folded into few kernel ones.
 *
 * The functions take what their namesakes in <sys/mman.h> take and answer as they do: MAP_FAILED or
 * -1 with errno, or what the call returns; errno is untouched when they succeed. A piece they hand
 * out is memory of the kernel's own, at an address of its own until it is unmapped. What is
 * folded, what goes to the kernel unchanged, and each deviation stand in docs/MAPPING.md.
 *
 * Rules for the caller:
 *  - What mf_mmap gave must be changed and released through these functions, never by munmap(2) and
 *    the like. Memory of other origin may be given to them: it is passed to the kernel.
 *  - All are thread-safe, and may be called in a child after fork, at any time, and in a signal
 *    handler; one that interrupts another of them in the same thread is passed to the kernel where
 *    that is safe (a munmap is carried out when the interrupted one ends). A handler must not leave
 *    an interrupted one by longjmp.
 *  - They block as their namesakes do, and for other threads in these functions.
 *  - None of them calls malloc, stdio or anything else of libc that takes a lock.
 */
#ifndef MAPFOLD_MMAP_H
#define MAPFOLD_MMAP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <mapfold/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * As mmap(2). A file mapping (MAP_PRIVATE or MAP_SHARED, not PROT_EXEC, not MAP_FIXED) of a regular
 * local file is folded once its file has several live ones. An address without MAP_FIXED is only a
 * hint. The descriptor, its file offset and its locks are untouched and it may be closed at once.
 */
MF_PUBLIC void *mf_mmap(void *address, size_t length, int protection, int flags, int fd,
                        off_t offset);

/* As munmap(2), over any mixture of folded and other memory. */
MF_PUBLIC int mf_munmap(void *address, size_t length);

/* As mprotect(2). Changing part of folded memory costs kernel maps until that part is unmapped. */
MF_PUBLIC int mf_mprotect(void *address, size_t length, int protection);

/* As pkey_mprotect(2); the spot is not used again while its extent lives. */
MF_PUBLIC int mf_pkey_mprotect(void *address, size_t length, int protection, int key);

/* As mremap(2); new_address counts only with MREMAP_FIXED or MREMAP_DONTUNMAP. */
MF_PUBLIC void *mf_mremap(void *old_address, size_t old_length, size_t new_length, int flags,
                          void *new_address);

/* As madvise(2), msync(2), mincore(2). */
MF_PUBLIC int mf_madvise(void *address, size_t length, int advice);
MF_PUBLIC int mf_msync(void *address, size_t length, int flags);
MF_PUBLIC int mf_mincore(void *address, size_t length, unsigned char *vector);

/* As mlock(2) and its relatives. mf_mlockall makes plain kernel maps of all carved pieces first. */
MF_PUBLIC int mf_mlock(const void *address, size_t length);
MF_PUBLIC int mf_mlock2(const void *address, size_t length, unsigned flags);
MF_PUBLIC int mf_munlock(const void *address, size_t length);
MF_PUBLIC int mf_mlockall(int flags);
MF_PUBLIC int mf_munlockall(void);

/* As shmat(2) and remap_file_pages(2), which put something else where folded memory may be. */
MF_PUBLIC void *mf_shmat(int segment, const void *address, int flags);
MF_PUBLIC int mf_remap_file_pages(void *address, size_t length, int protection, size_t page,
                                  int flags);

enum mf_map_kind {
    MF_MAP_PASSED, /* the kernel's: not folded, or no longer */
    MF_MAP_CARVED, /* in an extent: its pages are the file's own until they are written */
    MF_MAP_COPIED, /* in the arena: its bytes are the file's as they were when it was mapped */
};

/*
 * What is known of an address.
 * start, length  the largest range around it of which all this holds, in bytes
 * device, inode  of its file (device as st_dev); 0 for memory without one
 * offset         in the file, of address itself, in bytes
 */
struct mf_map_info {
    enum mf_map_kind kind;
    uint64_t start;
    uint64_t length;
    uint64_t device;
    uint64_t inode;
    uint64_t offset;
};

/*
 * Tells what lies at address. For a passed address it reads /proc/self/maps, which takes time
 * proportional to the number of kernel maps.
 * 0; -ENOENT where nothing is mapped; -EAGAIN in a handler that interrupted one of these functions;
 * or a negative errno from reading /proc/self/maps. errno is untouched.
 */
MF_PUBLIC int mf_map_query(const void *address, struct mf_map_info *info);

/* How the layer behaves: get, change, and set. One more field here, or in mf_map_stats, is another
 * soname. */
struct mf_map_options {
    uint64_t max_copy_bytes; /* copies beyond it are refused; 0 = no copies. Default: a quarter of
                                the memory that the process may have */
    uint32_t linger_ms;      /* how long an extent without pieces is kept; default 0 */
    uint32_t promote_pieces; /* live pieces of a kind at which an extent is made; default 8 */
    uint32_t max_depth;      /* extents of a kind that hold overlapping pieces; default 16, and
                                more as long as each holds many */
    unsigned char explain;   /* say on stderr why the first mapping of each kind was passed */
    unsigned char timed;     /* measure the time spent in mf_mmap and mf_munmap */
    unsigned char off;       /* pass everything to the kernel, only count */
    unsigned char strict;    /* unmapped memory faults at once; costs a kernel map each */
    unsigned char snapshot;  /* small files mapped shared and read-only may be copied, too */
    unsigned char any_file_system; /* fold on network file systems and FUSE; never on overlayfs */
};

/* Fills in what is in force. Any thread; async-signal-safe. */
MF_PUBLIC void mf_map_get_options(struct mf_map_options *options);

/* Puts options in force for what is mapped from now on. 0, -EINVAL (promote_pieces or max_depth 0).
 */
MF_PUBLIC int mf_map_set_options(const struct mf_map_options *options);

/* Why a mapping was left to the kernel. */
enum mf_pass_reason {
    MF_PASS_FLAGS,       /* anonymous, executable, huge, locked, fixed, ...: never folded */
    MF_PASS_FILE,        /* not a regular file, or a descriptor that does not allow it */
    MF_PASS_FILE_SYSTEM, /* on a file system that is not folded */
    MF_PASS_SEALABLE,    /* a memfd that has seals or may get them */
    MF_PASS_FEW,         /* its kind has too few live pieces yet */
    MF_PASS_SPLIT,       /* pieces of its kind are changed in part again and again */
    MF_PASS_DEPTH,       /* it overlaps too many live pieces and cannot be copied */
    MF_PASS_LIMITS,      /* RLIMIT_AS, RLIMIT_DATA, overcommit, or no room for an extent */
    MF_PASS_REOPEN,      /* its file could not be opened again, or is leased */
    MF_PASS_LOCKED,      /* mlockall(MCL_FUTURE) is in force */
    MF_PASS_OFF,         /* options say off, or a fork left the tables torn in this child */
    MF_PASS_INTERRUPTED, /* a signal handler interrupted another call */
    MF_PASS_NO_MEMORY,   /* no memory for tables */
    MF_PASS_EXTENTS,     /* the process has as many extents as it can have */
    MF_PASS_REASONS
};

/* What was done since the process began. Pieces are counted as mapped, whatever is unmapped at
 * once. */
struct mf_map_stats {
    uint64_t maps;                    /* calls of mf_mmap */
    uint64_t unmaps;                  /* calls of mf_munmap */
    uint64_t carved;                  /* pieces carved */
    uint64_t copied;                  /* pieces copied */
    uint64_t passed[MF_PASS_REASONS]; /* pieces passed, by reason */
    uint64_t live_bytes;              /* folded and mapped now */
    uint64_t live_pieces;       /* folded and mapped now; a call that unmaps several counts one */
    uint64_t peak_live_pieces;  /* the most of them at one time */
    uint64_t copied_bytes;      /* read from files into the arena, in all */
    uint64_t copies_live_bytes; /* of the arena, mapped now */
    uint64_t extents;           /* now */
    uint64_t extents_made;      /* in all */
    uint64_t dropped_pages;     /* private pages dropped on release */
    uint64_t pending_pages;     /* released, and not yet looked through */
    uint64_t metadata_bytes;    /* of tables, now */
    uint64_t kernel_maps;       /* of the process, as last counted */
    uint64_t nanoseconds;       /* spent in mf_mmap and mf_munmap, if time is measured */
    uint64_t refused_maps;      /* calls of mf_mmap that the kernel refused for want of maps */
};

/* Fills in the counters. Any thread; not async-signal-safe. */
MF_PUBLIC void mf_map_stats(struct mf_map_stats *stats);

/* The reason in a few words ("too few live pieces"). Static text; "" for a number that is none. */
MF_PUBLIC const char *mf_pass_reason_text(enum mf_pass_reason reason);

#ifdef __cplusplus
}
#endif

#endif
