/* SPDX-License-Identifier: MIT */
/*
 * A space as a driver's address allocator: what an IOMMU (or a GPU) sees of memory, apart from any
 * process. Buffers get addresses that their device can reach, and a faulting address leads back to
 * its buffer.
 *
 *     cc -O2 -o gapalloc gapalloc.c $(pkg-config --cflags --libs mapfold)
 *     ./gapalloc
 *
 * Things to see:
 *  - A device that knows 32 bits gets an address below 4 GiB, from the top down, so that the room
 *    below stays in one piece; one that knows 48 gets what it likes above (io_map).
 *  - The tag is the buffer's number. It lets no neighbours merge: each buffer stays an area.
 *  - The delta makes an address an offset in the buffer without a table (io_fault).
 *  - Room is set aside before it is needed, so that giving back can never fail (io_unmap).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mapfold/space.h>

enum { PAGE = 4096, LARGE_PAGE = 2 << 20 };

#define LAST_OF(bits) ((UINT64_C(1) << (bits)) - 1)

/* Reserved by the hardware, for interrupts sent as writes. */
enum { MSI_START = 0xfee00000, MSI_LENGTH = 0x100000 };
#define TAG_RESERVED 0 /* buffers are numbered from 1 */

/* An address for a buffer; large ones on large pages. 0 or a negative errno. */
static int io_map(struct mf_space *space, uint64_t buffer, uint64_t bytes, unsigned device_bits,
                  uint64_t *address)
{
    const struct mf_fit fit = {
        .length = (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1),
        .align = bytes >= LARGE_PAGE ? LARGE_PAGE : PAGE,
        .low = device_bits > 32 ? LAST_OF(32) + 1 : PAGE, /* leave to the old what only they need */
        .last = LAST_OF(device_bits),
        .policy = device_bits > 32 ? MF_FIT_LOWEST : MF_FIT_HIGHEST,
    };
    struct mf_area area;
    const int err = mf_space_place(space, &fit, buffer, 0, &area);
    if (err == 0)
        *address = area.start;
    return err;
}

static int io_unmap(struct mf_space *space, uint64_t address)
{
    struct mf_area area;
    const int err = mf_space_find(space, address, &area);
    return err ? err : mf_space_remove(space, area.start, area.length);
}

/* What an address of a fault means. */
static void io_fault(const struct mf_space *space, uint64_t address)
{
    struct mf_area area;
    printf("fault at 0x%" PRIx64 ": ", address);
    if (mf_space_find(space, address, &area) < 0)
        puts("nothing is mapped there");
    else if (area.tag == TAG_RESERVED)
        puts("reserved for interrupts");
    else
        printf("buffer %" PRIu64 ", offset 0x%" PRIx64 "\n", area.tag, address + area.delta);
}

static void print_stats(const struct mf_space *space, const char *when)
{
    struct mf_space_stats stats;
    mf_space_stats(space, &stats);
    printf("%s: %" PRIu64 " areas, %" PRIu64 " KiB used, %.1f bytes of tables each\n", when,
           stats.areas, stats.used / 1024, (double)stats.metadata_bytes / (double)stats.areas);
}

/* 100,000 buffers of 1 to 64 pages; every second one goes again, and small ones take their place.
 */
static int fill_and_reuse(struct mf_space *space)
{
    enum { BUFFERS = 100000 };
    uint64_t *addresses = calloc(BUFFERS, sizeof(*addresses)), address = 0, reused = 0;
    if (!addresses)
        return -ENOMEM;
    int err = 0;
    for (uint64_t i = 0; i < BUFFERS && err == 0; i++)
        err = io_map(space, i + 1, PAGE * (1 + i * 7 % 64), 48, &addresses[i]);
    if (err == 0)
        print_stats(space, "full");
    for (uint64_t i = 0; i < BUFFERS && err == 0; i += 2)
        err = io_unmap(space, addresses[i]);
    for (uint64_t i = 0; i < BUFFERS / 2 && err == 0; i++) {
        err = io_map(space, BUFFERS + i + 1, PAGE, 48, &address);
        reused += address < addresses[BUFFERS - 1];
    }
    if (err == 0) {
        print_stats(space, "half given back, and filled with pages");
        printf("of %d new pages %" PRIu64 " lie in gaps of old buffers\n", BUFFERS / 2, reused);
    }
    free(addresses);
    return err;
}

static int run(struct mf_space *space)
{
    const struct mf_area reserved = {.start = MSI_START, .length = MSI_LENGTH, .tag = TAG_RESERVED};
    uint64_t network = 0, disk = 0, frame = 0;
    int err = mf_space_insert(space, &reserved);
    if (err == 0)
        err = io_map(space, 1, 9000, 32, &network);
    if (err == 0)
        err = io_map(space, 2, 24 << 20, 32, &disk);
    if (err == 0)
        err = io_map(space, 3, 8 << 20, 48, &frame);
    if (err < 0)
        return err;
    printf("32 bits, 9,000 bytes: 0x%" PRIx64 "\n32 bits, 24 MiB: 0x%" PRIx64
           "\n48 bits, 8 MiB: 0x%" PRIx64 "\n",
           network, disk, frame);
    io_fault(space, disk + 0x12345);
    io_fault(space, MSI_START + 16);
    io_fault(space, disk - 1);

    uint64_t none;
    err = io_map(space, 4, UINT64_C(5) << 30, 32, &none);
    printf("32 bits, 5 GiB: %s\n", err < 0 ? strerror(-err) : "there is room?");
    const struct mf_area overlapping = {.start = disk, .length = PAGE, .tag = 5};
    err = mf_space_insert(space, &overlapping);
    printf("another buffer over it: %s\n", err < 0 ? strerror(-err) : "allowed?");
    /* The middle of an area may go, too; that makes two of one, and can need memory: set aside. */
    err = mf_space_reserve(space, 1);
    if (err == 0)
        err = mf_space_remove(space, disk + PAGE, PAGE);
    if (err < 0)
        return err;
    io_fault(space, disk + PAGE);
    io_fault(space, disk + PAGE + PAGE);
    return fill_and_reuse(space);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        fprintf(stderr, "usage: gapalloc\n");
        return 2;
    }
    struct mf_space *space;
    /* Address 0 stays unused: it looks like an error in every log. */
    int err = mf_space_create(PAGE, LAST_OF(48), PAGE, mf_alloc_system(), &space);
    if (err == 0) {
        err = run(space);
        mf_space_destroy(space);
    }
    if (err < 0)
        fprintf(stderr, "gapalloc: %s\n", strerror(-err));
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "gapalloc: cannot write to standard output: %s\n", strerror(errno));
        return 1;
    }
    return err < 0;
}
