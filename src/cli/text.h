/* SPDX-License-Identifier: MIT */
/* Text for terminals: names with any bytes made harmless, and lines of at most TEXT_WIDTH columns.
 */
#ifndef MAPFOLD_CLI_TEXT_H
#define MAPFOLD_CLI_TEXT_H

#include <stddef.h>
#include <stdio.h>

enum { TEXT_WIDTH = 100 };

/* Text that a terminal and JSON can bear: control characters, bytes that are no UTF-8 and
 * backslashes become \ooo. Memory of the caller's, or NULL. */
char *printable(const char *text, size_t length);

/* Columns that printable text takes. */
size_t text_columns(const char *text);

/* Writes words from text, the first line behind first, the others behind indent, and a newline. */
void text_wrap(FILE *out, const char *text, const char *first, const char *indent);

#endif
