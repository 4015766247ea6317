/* SPDX-License-Identifier: MIT */
/*
 * An allocator for tests: counts what is out, checks the contract of struct mf_alloc on both sides,
 * hands out memory full of rubbish, and fails when told to. A breach of the
 * contract aborts.
 */
#ifndef TESTS_CORE_CHECKED_ALLOC_H
#define TESTS_CORE_CHECKED_ALLOC_H

#include <stdbool.h>

#include <mapfold/base.h>

struct checked_alloc {
    struct mf_alloc alloc; /* what to give to the code under test */
    size_t live_bytes, live_blocks;
    size_t calls;           /* of alloc, failed ones included */
    size_t failures;        /* how many of them were made to fail */
    size_t fail_at;         /* the k-th call from now on fails, then no more; 0: none does */
    bool fail_forever;      /* ... and every one after it too */
    bool forbidden;         /* alloc must not be called: gives nothing */
    size_t forbidden_calls; /* and was called nevertheless */
    void *blocks;           /* a tree of what is out: tsearch(3) */
};

void checked_alloc_init(struct checked_alloc *checked);

#endif
