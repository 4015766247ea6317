/* SPDX-License-Identifier: MIT */
/*
 * The lock of the mapping layer's tables, made for a library that lies under a program's mmap.
 *
 * The lock word holds its owner: the thread pointer, which is the owner's alone among the threads
 * of a process and is known without a system call. Taking the lock and becoming its owner is one
 * step, so a signal handler can always tell whether it interrupted its own thread inside.
 *
 * After fork the child has one thread, and the tables as another thread may have left them in the
 * middle of a change. A page with MADV_WIPEONFORK tells the child that it is one: there `alive`
 * reads 0. The first call in the child then looks at the lock word that it inherited:
 *   0                  nobody was inside: the tables are whole.
 *   the caller itself  fork was called in a signal handler that interrupted a call of the same
 *                      thread; that call will go on in the child, too. The caller must be the
 *                      thread that forked, which is the child's first one (its thread id is the
 *                      process id), since a later thread may have got a dead one's pointer.
 *   anybody else       that thread does not exist here: the tables may be torn. The child gives
 *                      them up for good and passes every call to the kernel.
 *
 * Giving up is safe because every live piece is a kernel mapping of its own bytes in every state of
 * the tables, and nothing new is placed: the kernel's munmap, mprotect and mremap of a piece do
 * what they say. Only spots that were free stay mapped until the child ends.
 *
 * Rules: enter and leave in pairs; nothing between them may touch memory of the program other than
 * by system calls, or block for other threads.
 */
#ifndef MF_LINUX_LAYER_LOCK_H
#define MF_LINUX_LAYER_LOCK_H

#include <stdbool.h>
#include <stdint.h>

enum entry {
    ENTER_LOCKED,      /* the tables are the caller's until layer_leave */
    ENTER_GIVEN_UP,    /* pass everything: torn by a fork, or the lock cannot be had here */
    ENTER_INTERRUPTED, /* a signal handler interrupted this thread inside: pass, or queue */
};

enum entry lock_enter(void);
void lock_leave(void);

/* Passes everything from now on. */
void lock_give_up(void);
bool lock_given_up(void);

/* Whether mlockall(MCL_FUTURE) is in force. Needs no lock. */
void future_lock_set(bool locked);
bool future_lock(void);

#endif
