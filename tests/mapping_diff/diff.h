/* SPDX-License-Identifier: MIT */
/*
 * The differential tester of the mapping layer: its data, told once.
 *
 * One random program runs in two processes on equal files: the *oracle* makes plain system calls,
 * the *subject* makes the same calls through the layer (or through a mutant, a layer broken on
 * purpose). What a program can see of each call goes to the side's *tape*; the supervisor compares
 * the tapes.
 *
 * A program is a list of ops. Addresses in it are symbolic: a region and a page in it. Regions are
 * the *arena*, an address range that is the same in both processes and where only fixed requests
 * go, so that adjacency and holes are exact there; and *slots*, one for each address the kernel (or
 * the layer) chose. Both sides keep the same model of what is mapped, fed by their own results, and
 * generate the same ops from the same seed as long as the results agree; the first record that
 * differs is the bug.
 *
 * What is not specified is not compared: which address is chosen; whether mremap may move what it
 * moved; what lies beside a slot. A page of a slot that was unmapped is known to be a hole only
 * until the next call that may choose an address (it may choose this one): the world's epoch counts
 * those.
 */
#ifndef MAPPING_DIFF_H
#define MAPPING_DIFF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum {
    ARENA_PAGES = 192,
    SLOT_PAGES = 48,
    SLOTS = 384,
    DESCRIPTORS = 12,
    WORLDS = 16, /* most threads */
};

/* The files of one side, and files that cannot be mapped or are of another kind. */
enum {
    FILE_LARGE = 7,
    FILE_READONLY,
    FILES,
    FILE_PROC = FILES,
    FILE_ZERO,
    FILE_DIRECTORY,
    FILE_KINDS
};

/* Regions of a symbolic address; 1..SLOTS are the slots. */
enum { ARENA = 0, AT_NULL = SLOTS + 1, AT_HINT, AT_KERNEL, REGIONS };

enum kind {
    OP_NONE,
    /* the calls of the layer */
    OP_MMAP,
    OP_MUNMAP,
    OP_MPROTECT,
    OP_MREMAP,
    OP_MADVISE,
    OP_MSYNC,
    OP_MINCORE,
    OP_MLOCK,
    OP_MUNLOCK,
    /* what a program does with the memory and the files */
    OP_LOAD,
    OP_STORE,
    OP_READ_INTO,  /* pread(2) into mapped memory */
    OP_WRITE_FROM, /* pwrite(2) out of mapped memory */
    OP_PWRITE,
    OP_TRUNCATE,
    OP_OPEN,
    OP_CLOSE,
    OP_LOCK,  /* fcntl F_SETLK or flock */
    OP_STATE, /* descriptors' offsets, locks as another process sees them */
    OP_FORK,  /* the next `value` ops run in a child */
    /* comparisons */
    OP_CHECK, /* all live memory */
    OP_PROBE, /* which pages are mapped */
    OP_FILES, /* what the files hold */
    OP_MAPS,  /* which files the process still holds mapped */
    OP_KINDS,
};

static inline bool op_is_call(enum kind kind)
{
    return kind >= OP_MMAP && kind <= OP_MUNLOCK;
}

struct sym {
    uint16_t region;
    uint16_t byte;
    int32_t page;
};

struct op {
    uint8_t kind;
    uint8_t fd;   /* descriptor slot; DESCRIPTORS and more are bad ones */
    uint16_t dst; /* slot for a new address */
    int32_t prot;
    int32_t flags; /* also: advice, open mode, kind of lock */
    struct sym at, to;
    uint64_t length, length2, offset, value;
};

struct record {
    uint32_t op, sub;
    int32_t ret, error;
    uint32_t signal; /* signal number << 16 | si_code & 0xffff */
    uint32_t note;   /* not compared: for the copying oracle */
    uint64_t data;   /* hash, bytes or bits of what was seen */
    uint64_t aside;  /* not compared either: pages that were filled again */
};

/* Bits beside those of kinds: an unmapped page of a slot is never looked at again; no length 2^47.
 */
enum { WITHOUT_HOLES = 1, WITHOUT_HUGE = 1 << 30 };
enum { NOTE_SKIPPED = 1, NOTE_COPIED = 2, ERRORS = 134 };

struct tape {
    uint64_t random;
    uint32_t position, calls, records, child;
    uint32_t ended; /* position after the last op of the program */
    uint32_t op_capacity, record_capacity;
    bool replay, finished;
    uint32_t counts[OP_KINDS][ERRORS + 2]; /* by errno; the last two: faults, skipped */
    uint64_t carved, copied, passed;       /* pieces that mmap made on the subject's side */
    struct op *ops;
    struct record *log;
};

/* Weights and habits of one episode, drawn from its seed: each episode looks elsewhere. */
struct mix {
    uint32_t weight[OP_KINDS];
    uint32_t files, live, max_pages, fixed, arena, wrong, private, writable, anonymous, hot, sub,
        step;
};

struct page {
    uint8_t live : 1, shared : 1, anonymous : 1, copied : 1, no_fork : 1;
    uint8_t moved : 1; /* a copy that mremap moved: anonymous memory from then on, as documented */
    uint8_t writable : 1; /* as far as is known: a hint to the generator */
    int8_t file;
    uint32_t file_page;
    uint32_t epoch; /* hole: when it was made */
    uint32_t vma;   /* equal numbers: surely one kernel mapping */
};

struct region {
    char *base;
    uint32_t pages, live;
    struct page *page;
};

struct descriptor {
    int number;
    int8_t file;
    bool open, flock;
};

/* The calls under test. kind_of: 'c' carved, 'y' copied, 'p' passed. */
struct calls {
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    int (*mprotect)(void *, size_t, int);
    void *(*mremap)(void *, size_t, size_t, int, void *);
    int (*madvise)(void *, size_t, int);
    int (*msync)(void *, size_t, int);
    int (*mincore)(void *, size_t, unsigned char *);
    int (*mlock)(const void *, size_t);
    int (*munlock)(const void *, size_t);
    char (*kind_of)(const void *);
};

struct options {
    uint64_t calls, seed;
    uint32_t episode, threads;
    uint32_t without;        /* bits of kinds, and WITHOUT_... */
    uint32_t promote, depth; /* the layer's options; 0: drawn from the episode's seed */
    bool copying, strict, forever, plain, shrink, mutants;
    int mutant;
    const char *replay, *save;
    char directory[256];
};

struct world {
    const struct calls *calls;
    const struct options *options;
    const struct tape *subject; /* the oracle's view of the other side, where copying is on */
    struct tape *tape;
    struct mix mix;
    int number; /* thread */
    bool oracle, in_child, detailed;
    bool lost_pages; /* the child has not got all of its parent's: MADV_DONTFORK */
    uint32_t epoch, vma, op, sub, slot, live_slots;
    char directory[300];
    struct descriptor descriptors[DESCRIPTORS];
    int readers
        [FILES]; /* the tester's own: never closed, since that would drop the program's locks */
    struct region *regions; /* 1 + SLOTS */
    char *scratch;          /* 2 * SLOT_PAGES + 1 pages */
};

extern size_t page_size;
extern bool kernel_moves_many; /* mremap moves several kernel mappings at once: Linux 6.17 */
extern bool locks_comparable;  /* threads do not share a limit of what they may lock */
extern bool residency_stable;  /* files on tmpfs and no swap: mincore answers the same each time */

/* files.c: the files of one side */
const char *file_path(const struct world *w, int file, char path[320]);
int files_create(const struct world *w, bool own);
void files_remove(const struct world *w, bool own);
int files_open(struct world *w);
bool file_page_is_zero(const struct world *w, int file, uint64_t page);
uint64_t files_hash(const struct world *w);
uint64_t files_mapped(const struct world *w);
uint64_t files_locks(const struct world *w);
bool file_may_change(const struct world *w, int file);

/* text.c: programs as text */
void op_print(FILE *out, const struct op *op, const struct record *result);
int program_read(const char *path, struct op *ops, uint32_t capacity);
int program_write(FILE *out, const struct op *ops, uint32_t count);
extern const char *const kind_names[OP_KINDS];

/* model.c: what is known to be mapped */
struct region *region_of(const struct world *w, struct sym sym);
char *sym_address(const struct world *w, struct sym sym);
uint64_t pages_of(uint64_t length);
bool model_known(const struct world *w, struct sym at, uint64_t pages);
bool model_live(const struct world *w, struct sym at, uint64_t pages);
bool page_known(const struct world *w, const struct region *r, uint32_t page);
bool model_has_copied(const struct world *w, struct sym at, uint64_t pages);
int model_vmas(const struct world *w, struct sym at, uint64_t pages); /* 1 one, 2 more, 0 unknown */
void model_unmap(struct world *w, struct sym at, uint64_t pages, bool forget);
void model_map(struct world *w, struct sym at, uint64_t pages, const struct page *first);
void model_split(struct world *w, struct sym at, uint64_t pages);
void slot_set(struct world *w, uint32_t slot, char *base);
bool op_valid(const struct world *w, const struct op *op);

/* generate.c */
void mix_draw(struct mix *mix, uint64_t seed, uint32_t without);
void op_generate(struct world *w, struct op *op);
uint64_t random_next(uint64_t *state);

/* execute.c */
void op_execute(struct world *w, const struct op *op);
void world_run(struct world *w, uint32_t calls);
void signals_install(void);
int probe_page(const struct world *w, const char *address);
int guarded(void (*step)(void *), void *context, uint32_t *signal, uintptr_t *address);

/* execute_call.c: the layer's calls and what the model learns from them */
void execute_call(struct world *w, const struct op *op, struct record *r);

/* copying.c: what the oracle does where the layer copied a piece */
void copying_mapped(struct world *w, const struct op *op, char *address, uint64_t pages,
                    struct record *r);
int copying_dontneed(struct world *w, const struct op *op, struct record *r);

/* layers.c: plain calls, the layer, mutants */
extern const struct calls plain_calls;
const struct calls *subject_calls(const struct options *options);
int mutant_count(void);
const char *mutant_name(int mutant);
void subject_prepare(const struct options *options, uint64_t seed);
void subject_describe(const struct options *options, uint64_t seed, FILE *out);

/* sides.c: both processes of an episode */
enum kind final_kind(uint32_t after); /* what is compared after the last op, 0, 1, ... */
struct verdict {
    int world;   /* where the sides differ; -1: nowhere */
    uint32_t op; /* the first op with a difference */
    uint32_t record;
    const char *why;
    char text[80];
};
int sides_prepare(const struct options *options);
struct tape *side_tape(bool oracle, int world);
void sides_run(const struct options *options, uint64_t seed, uint32_t calls, bool detailed,
               struct verdict *verdict);
void sides_load(const struct op *ops, uint32_t count);

/* shrink.c */
uint32_t program_shrink(struct op *ops, uint32_t count, bool (*fails)(const struct op *, uint32_t));

#endif
