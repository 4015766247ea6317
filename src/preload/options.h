/* SPDX-License-Identifier: MIT */
/*
 * MAPFOLD_OPTIONS: what `mapfold run` tells the drop-in. Words with commas between them, as the
 * command's options without their dashes; a value stands behind '=' and holds no comma:
 *
 *   stats  stats=FILE  explain  off  strict  snapshot  any-fs  promote=N  linger=MS
 *   max-copy=BYTES
 *
 * What is not understood is left out: the command checks it before.
 */
#ifndef MF_PRELOAD_OPTIONS_H
#define MF_PRELOAD_OPTIONS_H

#define MAPFOLD_OPTIONS "MAPFOLD_OPTIONS"

/* program is what the report calls the process. */
void options_read(const char *program, char **environment);
void options_report(void);

#endif
