/* SPDX-License-Identifier: MIT */
/*
 * Threads and pools known to each other, and fork.
 *
 * A thread's record holds its counters in each pool. When the thread ends, the record goes to the
 * next new thread as it is: the counters' sums stay right whoever goes on counting, so nothing has
 * to be folded, and nobody who is summing is disturbed. Records and counters are freed with their
 * pool at the earliest; a process has as many as it ever had threads at one time.
 *
 * Fork: the parent waits until no pool has a slot between two states, and holds all locks over the
 * fork. The child has one thread; what others had begun and not finished is undone by what they
 * noted in their blocks and records. What they stored before the fork is seen in the child up to
 * some point of their program order and not beyond, since a thread that meets a page already
 * write-protected by the fork stops there; so notes written first are there first.
 */
#include <limits.h>
#include <string.h>

#include "linux/pool.h"
#include "linux/system.h"

__thread struct thread *thread_self;
static struct pool_block *const no_blocks[POOLS_MAX];
__thread struct pool_block *const *thread_quick = no_blocks;
static __thread bool thread_ended;

_Atomic(struct mf_pool *) registry[POOLS_MAX];
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t walk_lock = PTHREAD_MUTEX_INITIALIZER; /* no pool is destroyed meanwhile */
static struct thread *all_threads, *free_threads;             /* under registry_lock */
static pthread_key_t thread_key;
static int thread_key_error;

void *metadata_map(size_t bytes)
{
    void *memory = system_mmap(NULL, round_up(bytes, system_page), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void metadata_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, round_up(bytes, system_page));
}

void registry_walk_begin(void)
{
    pthread_mutex_lock(&walk_lock);
}

void registry_walk_end(void)
{
    pthread_mutex_unlock(&walk_lock);
}

/* Gives the thread's local windows back. Their memory may be gone: it is not touched. A pin or
 * unpin that a fork has interrupted is settled before, and its mark 0 (pool_thaw). */
static void release_locals(struct thread *thread)
{
    for (; thread->locals; thread->locals--) {
        struct local *local = &thread->local[thread->locals - 1];
        if (local->pinned)
            local_put(thread->blocks[local->pool->index], local);
    }
    thread->local_used = 0;
}

static void release_record_locked(struct thread *thread)
{
    thread->ending = 0;
    thread->next_free = free_threads;
    free_threads = thread;
}

/* A thread that still has local windows may unpin them in its later destructors, as long as the C
 * library calls them in further rounds. */
static void thread_end(void *record)
{
    struct thread *self = record;
    if (self->locals && ++self->ending < PTHREAD_DESTRUCTOR_ITERATIONS &&
        pthread_setspecific(thread_key, self) == 0)
        return;
    release_locals(self);
    thread_self = NULL;
    thread_quick = no_blocks;
    thread_ended = true; /* later destructors make do without */
    pthread_mutex_lock(&registry_lock);
    release_record_locked(record);
    pthread_mutex_unlock(&registry_lock);
}

static struct mf_pool *pool_at(uint32_t index)
{
    return atomic_load_explicit(&registry[index], memory_order_acquire);
}

static void fork_prepare(void)
{
    const int cancel = cancel_off();
    pthread_mutex_lock(&registry_lock);
    for (uint32_t i = 0; i < POOLS_MAX; i++)
        if (pool_at(i)) {
            pool_freeze(&pool_at(i)->core);
            pthread_mutex_lock(&pool_at(i)->files_lock);
            while (pool_at(i)->files_in_transit)
                pthread_cond_wait(&pool_at(i)->files_changed, &pool_at(i)->files_lock);
        }
    cancel_restore(cancel);
}

static void fork_parent(void)
{
    for (uint32_t i = POOLS_MAX; i-- > 0;)
        if (pool_at(i)) {
            pthread_mutex_unlock(&pool_at(i)->files_lock);
            pool_thaw(&pool_at(i)->core, false);
        }
    pthread_mutex_unlock(&registry_lock);
}

static void fork_child(void)
{
    fault_after_fork();
    pthread_mutex_init(&walk_lock, NULL);
    free_threads = NULL;
    for (struct thread *t = all_threads; t; t = t->next_all) {
        if (t->copying_in && t != thread_self) {
            t->copying_in->copied -= t->copying;
            budget_give(&t->copying_in->budget, t->copying, 0);
            budget_give(&process_budget, t->copying, 0);
            t->copying_in = NULL;
        }
    }
    for (uint32_t i = POOLS_MAX; i-- > 0;)
        if (pool_at(i)) {
            files_after_fork(pool_at(i));
            pthread_mutex_unlock(&pool_at(i)->files_lock);
            pool_thaw(&pool_at(i)->core, true);
        }
    for (struct thread *t = all_threads; t; t = t->next_all)
        if (t != thread_self) {
            release_locals(t);
            release_record_locked(t);
        }
    pthread_mutex_unlock(&registry_lock);
}

static void start(void)
{
    thread_key_error = pthread_key_create(&thread_key, thread_end);
    if (!thread_key_error)
        thread_key_error = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

int registry_add(struct mf_pool *pool)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    if (thread_key_error)
        return -thread_key_error;
    int err = -ENOSPC;
    pthread_mutex_lock(&registry_lock);
    for (uint32_t i = 0; i < POOLS_MAX && err; i++)
        if (!pool_at(i)) {
            pool->index = i;
            pool->window_base = (uint64_t)i << WINDOW_SLOT_BITS;
            atomic_store_explicit(&registry[i], pool, memory_order_release);
            err = 0;
        }
    pthread_mutex_unlock(&registry_lock);
    return err;
}

/* Those in no thread's record too: a fork in the middle of thread_block_generic. */
static void blocks_destroy(struct mf_pool *pool)
{
    struct pool_block *block = atomic_load_explicit(&pool->core.blocks, memory_order_relaxed);
    while (block != &pool->core.common) {
        struct pool_block *next = block->next;
        metadata_unmap(block, sizeof(*block));
        block = next;
    }
    atomic_store_explicit(&pool->core.blocks, block, memory_order_relaxed);
}

void registry_remove(struct mf_pool *pool)
{
    registry_walk_begin();
    pthread_mutex_lock(&registry_lock);
    atomic_store_explicit(&registry[pool->index], NULL, memory_order_seq_cst);
    registry_walk_end();
    /* A fault handler that has found the pool may still be looking. */
    while (atomic_load_explicit(&fault_handlers, memory_order_seq_cst))
        sched_yield();
    for (struct thread *t = all_threads; t; t = t->next_all)
        t->blocks[pool->index] = NULL;
    pthread_mutex_unlock(&registry_lock);
    blocks_destroy(pool);
}

struct thread *thread_record(void)
{
    if (thread_self || thread_ended)
        return thread_self;
    pthread_mutex_lock(&registry_lock);
    struct thread *record = free_threads;
    if (record) {
        free_threads = record->next_free;
    } else if ((record = metadata_map(sizeof(*record)))) {
        record->next_all = all_threads;
        all_threads = record;
    }
    if (record && pthread_setspecific(thread_key, record) != 0) {
        release_record_locked(record);
        record = NULL;
    }
    pthread_mutex_unlock(&registry_lock);
    if (record && (MACHINE_ALWAYS_FENCES || !machine_fences))
        thread_quick = record->blocks;
    return thread_self = record;
}

struct pool_block *thread_block_generic(struct mf_pool *pool)
{
    struct thread *self = thread_record();
    if (!self)
        return NULL;
    struct pool_block *block = self->blocks[pool->index];
    if (!block && (block = metadata_map(sizeof(*block)))) {
        pool_block_add(&pool->core, block);
        /* The record goes to another thread in the child of a fork: what it has there is summed. */
        store_fence();
        self->blocks[pool->index] = block;
    }
    return block;
}
