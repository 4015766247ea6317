/* SPDX-License-Identifier: MIT */
/*
 * console: the serial line, and the two ways out of the emulator.
 *
 * print() knows %s, %c, %u (unsigned), %d (int), %x (unsigned), %llu (uint64_t), %p and %%. A call
 * comes out in one piece whichever processors print at once.
 */
#ifndef MF_KERNEL_CONSOLE_H
#define MF_KERNEL_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

void console_open(void);
void print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the emulator, with 33 if all went well and 35 if not. 0 would be no proof: that is how it
 * ends when it is told to. */
_Noreturn void leave(bool well);

/* Says what is wrong and leaves. */
_Noreturn void panic(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
