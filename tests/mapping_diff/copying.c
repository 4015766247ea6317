/* SPDX-License-Identifier: MIT */
/*
 * The oracle of copied pieces. A copied piece shows the file's bytes as of map time; later writes
 * and truncation are not seen. The oracle learns from the subject's tape which pieces were copied,
 * and has the kernel do the same by mapping a snapshot of the file, taken in a memfd, over its own
 * piece: so errno, faults past the end and copy-on-write stay the kernel's.
 *
 * MADV_DONTNEED may bring back the file's bytes of now or keep the piece's (both are documented).
 * The subject's record says which pages did what, and counts as wrong all that is neither.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "diff.h"

static const struct record *subject_record(const struct world *w)
{
    const uint32_t index = w->tape->records;
    return w->subject && index < w->subject->records ? &w->subject->log[index] : NULL;
}

static void snapshot_map(const struct world *w, const struct op *op, char *address, uint64_t pages)
{
    char *bytes = w->scratch;
    const int file = w->descriptors[op->fd].number;
    const int copy = memfd_create("snapshot", MFD_CLOEXEC);
    const ssize_t got = pread(file, bytes, pages * page_size, (off_t)op->offset);
    if (copy < 0 || got < 0 || pwrite(copy, bytes, (size_t)got, 0) != got ||
        syscall(SYS_mmap, address, op->length, op->prot,
                (op->flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED, copy, 0L) != (long)address)
        fprintf(stderr, "the copying oracle cannot take a snapshot: %m\n");
    close(copy);
}

void copying_mapped(struct world *w, const struct op *op, char *address, uint64_t pages,
                    struct record *r)
{
    const struct record *other = w->oracle ? subject_record(w) : NULL;
    if (!other || !(other->note & NOTE_COPIED))
        return;
    r->note |= NOTE_COPIED;
    if (pages <= SLOT_PAGES)
        snapshot_map(w, op, address, pages);
}

/* Which pages could be read, as bits; what was read is at bytes. */
static uint64_t content_read(const char *address, uint64_t pages, char *bytes)
{
    uint64_t readable = 0;
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    for (uint64_t i = 0; i < pages; i++) {
        const ssize_t got = pread(memory, bytes + i * page_size, page_size,
                                  (off_t)(uintptr_t)(address + i * page_size));
        readable |= (uint64_t)(got == (ssize_t)page_size) << i;
    }
    close(memory);
    return readable;
}

static void page_of_file(const struct world *w, const struct page *p, char *bytes)
{
    memset(bytes, 0, page_size);
    if (pread(w->readers[p->file], bytes, page_size, (off_t)p->file_page * (off_t)page_size) < 0)
        memset(bytes, 0xee, page_size);
}

static void page_write(char *address, const char *bytes)
{
    const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (pwrite(memory, bytes, page_size, (off_t)(uintptr_t)address) != (ssize_t)page_size)
        fprintf(stderr, "the copying oracle cannot write a page: %m\n");
    close(memory);
}

int copying_dontneed(struct world *w, const struct op *op, struct record *r)
{
    char *before = w->scratch, *after = before + SLOT_PAGES * page_size;
    char *now = after + SLOT_PAGES * page_size;
    char *address = sym_address(w, op->at);
    const uint64_t pages = pages_of(op->length);
    const struct page *page = &region_of(w, op->at)->page[op->at.page];
    const struct record *other = w->oracle ? subject_record(w) : NULL;
    if (pages > SLOT_PAGES)
        return w->calls->madvise(address, op->length, op->flags);
    const uint64_t readable = content_read(address, pages, before);
    const int ret = w->calls->madvise(address, op->length, op->flags);
    const int error = errno;
    content_read(address, pages, after);
    for (uint64_t i = 0; i < pages; i++) {
        const char *was = before + i * page_size, *is = after + i * page_size;
        if (!page[i].live || !page[i].copied || !(readable >> i & 1))
            continue;
        page_of_file(w, &page[i], now);
        if (other)
            page_write(address + i * page_size, other->aside >> i & 1 ? now : was);
        else if (memcmp(was, is, page_size) == 0)
            continue;
        else if (memcmp(now, is, page_size) == 0)
            r->aside |= UINT64_C(1) << i;
        else
            r->data |= UINT64_C(1) << i;
    }
    errno = error;
    return ret;
}
