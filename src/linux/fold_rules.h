/* SPDX-License-Identifier: MIT */
/* What is worth folding, in numbers: for the mapping layer, and for `mapfold inspect`, which
 * foretells it. */
#ifndef MF_LINUX_FOLD_RULES_H
#define MF_LINUX_FOLD_RULES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PROMOTE_PIECES = 8,   /* live pieces of a class at which it gets an extent */
    MAX_DEPTH = 16,       /* extents of a class, if each holds PIECES_A_DEPTH carved pieces */
    ALWAYS_DEPTH = 4,     /* extents made for overlap without asking what they hold */
    DEEP_DEPTH = 128,     /* the most, if each holds four times as many pieces */
    PIECES_A_DEPTH = 16,  /* how many carved pieces justify one more extent */
    MAX_COPY_PAGES = 256, /* of a piece that is copied because it overlaps */
    SMALL_PAGES = 16,     /* of one that is copied to spare kernel maps */
    ASKED_IN_VAIN = 64,   /* mappings in a row whose files were asked for and that did not fold */
    ASK_ONE_IN = 4,       /* from then on one in so many is asked for, until one folds */
};

/*
 * Whether the turn-th mapping has its file asked for. Asking is most of what a mapping pays that is
 * not folded; a program that maps file after file, each once, is asked less often. Which mapping
 * is, follows no pattern that the program could share, so every class comes to be asked for.
 */
static inline bool fold_asks(uint32_t in_vain, uint32_t turn)
{
    return in_vain < ASKED_IN_VAIN || turn * UINT32_C(0x9e3779b9) < UINT32_MAX / ASK_ONE_IN;
}

#endif
