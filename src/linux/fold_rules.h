/* SPDX-License-Identifier: MIT */
/* What is worth folding, in numbers: for the mapping layer, and for `mapfold inspect`, which foretells it. */
#ifndef MF_LINUX_FOLD_RULES_H
#define MF_LINUX_FOLD_RULES_H

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

#endif
