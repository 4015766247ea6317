/* SPDX-License-Identifier: MIT */
/* Saying something on standard error, if that is still the program's. Async-signal-safe. */
#ifndef MF_LINUX_REPORT_H
#define MF_LINUX_REPORT_H

#include <stdbool.h>
#include <stddef.h>

void report_begin(void); /* remembers what standard error is now */
void report_write(const char *text, size_t length);

#endif
