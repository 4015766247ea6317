/* SPDX-License-Identifier: MIT */
/*
 * What a program is to the drop-in, by its file: whether the dynamic linker would load it at all.
 *
 * A script is what its interpreter is, however many scripts stand between. What cannot be read, or
 * is no program as far as this knows, is taken for one that can be folded: exec will tell.
 */
#ifndef MAPFOLD_CLI_PROGRAM_H
#define MAPFOLD_CLI_PROGRAM_H

#include <stddef.h>

enum program_kind {
    PROGRAM_FOLDS,
    PROGRAM_STATIC,  /* nothing is loaded into it */
    PROGRAM_MACHINE, /* 32 bits, or another processor: its linker passes over the drop-in */
    PROGRAM_LIBC,    /* another libc than glibc, with which the drop-in cannot be linked */
};

/* file (may be NULL) becomes the path of the program that is run in the end: the interpreter's. */
enum program_kind program_look(const char *path, char *file, size_t size);

#endif
