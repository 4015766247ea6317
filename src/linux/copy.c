/* SPDX-License-Identifier: MIT */
/*
 * Copies that survive a page that vanishes, as a kernel's copies from and to user memory do: one
 * routine touches the memory, and a table says for each stretch of it where a fault goes on. The
 * handler sets the program counter and returns; nothing is unwound and nothing is skipped.
 */
#include <string.h>

#include "linux/pool.h"
#include "linux/system.h"

extern const char copy_wide[], copy_bytes[], copy_end[];

uintptr_t copy_fixup(uintptr_t pc)
{
    const struct {
        const char *first, *end, *fixup;
    } table[] = {
        {copy_wide, copy_bytes, copy_bytes},
        {copy_bytes, copy_end, copy_end},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (pc >= (uintptr_t)table[i].first && pc < (uintptr_t)table[i].end)
            return (uintptr_t)table[i].fixup;
    return 0;
}

/* The kernel's own guarded copy, slower by a system call. */
static ssize_t copy_by_kernel(void *to, const void *from, size_t length)
{
    size_t done = 0;
    while (done < length) {
        const struct iovec local = {(char *)to + done, length - done};
        const struct iovec remote = {(char *)(uintptr_t)from + done, length - done};
        const ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (n <= 0)
            return done ? (ssize_t)done : n ? -errno : -EFAULT;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

ssize_t mf_copy(void *to, const void *from, size_t length)
{
    const int saved = errno;
    if (length > PTRDIFF_MAX)
        length = PTRDIFF_MAX;
    ssize_t copied;
    if (atomic_load_explicit(&fault_ready, memory_order_acquire)) {
        copied = (ssize_t)(length - copy_guarded(to, from, length));
        if (!copied && length)
            copied = -EIO;
    } else {
        copied = copy_by_kernel(to, from, length);
    }
    errno = saved;
    return copied;
}
