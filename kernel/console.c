/* SPDX-License-Identifier: MIT */
/* A 16550 at the usual port, polled. Lines are put together first, so that they come out whole. */
#include <stdarg.h>

#include "kernel/console.h"
#include "kernel/lock.h"

enum { SERIAL = 0x3f8, LINE_STATUS = SERIAL + 5, CAN_SEND = 0x20, EXIT_PORT = 0xf4 };

static struct spin console_lock;
static char line[1024];
static unsigned used;

void console_open(void)
{
    static const uint8_t setup[][2] = {{1, 0x00}, {3, 0x80}, {0, 0x01},
                                       {1, 0x00}, {3, 0x03}, {2, 0xc7}};
    for (unsigned i = 0; i < sizeof(setup) / sizeof(setup[0]); i++)
        out8(SERIAL + setup[i][0], setup[i][1]);
}

static void send(char c)
{
    while (!(in8(LINE_STATUS) & CAN_SEND))
        cpu_pause();
    out8(SERIAL, (uint8_t)c);
}

static void put(char c)
{
    if (used < sizeof(line))
        line[used++] = c;
}

/* Divides by ten or sixteen in halves: there is no 64-bit division without libgcc. */
static void put_number(uint64_t value, uint32_t base)
{
    char digits[20];
    unsigned n = 0;
    do {
        uint32_t rest = 0;
        for (int shift = 48; shift >= 0; shift -= 16) {
            const uint32_t part = rest << 16 | (uint32_t)(value >> shift & 0xffff);
            value = (value & ~(UINT64_C(0xffff) << shift)) | (uint64_t)(part / base) << shift;
            rest = part % base;
        }
        digits[n++] = "0123456789abcdef"[rest];
    } while (value);
    while (n)
        put(digits[--n]);
}

static void put_signed(int value)
{
    if (value < 0)
        put('-');
    put_number(value < 0 ? 0u - (unsigned)value : (unsigned)value, 10);
}

static void put_all(const char *format, va_list args)
{
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            put(*f);
            continue;
        }
        switch (*++f) {
        case 's':
            for (const char *s = va_arg(args, const char *); *s; s++)
                put(*s);
            break;
        case 'c':
            put((char)va_arg(args, int));
            break;
        case 'u':
            put_number(va_arg(args, unsigned), 10);
            break;
        case 'd':
            put_signed(va_arg(args, int));
            break;
        case 'x':
        case 'p':
            put_number(va_arg(args, unsigned), 16);
            break;
        case 'l': /* %llu, the only one there is */
            f += 2;
            put_number(va_arg(args, uint64_t), 10);
            break;
        default:
            put(*f);
        }
    }
}

static void print_list(const char *format, va_list args)
{
    used = 0;
    put_all(format, args);
    for (unsigned i = 0; i < used; i++)
        send(line[i]);
}

void print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    spin_lock(&console_lock);
    print_list(format, args);
    spin_unlock(&console_lock);
    va_end(args);
}

void leave(bool well)
{
    for (;;)
        out8(EXIT_PORT, well ? 16 : 17); /* the emulator ends with twice that, plus one */
}

/* Takes no lock: its holder may be who panics. */
void panic(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_list(format, args);
    print_list("\n", args);
    va_end(args);
    leave(false);
}
