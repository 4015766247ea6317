/* SPDX-License-Identifier: MIT */
/*
 * What a compiler may call by itself in a freestanding world: the four memory functions, and the
 * helpers for 64-bit arithmetic that the core needs on 32 bits (there is no libgcc here).
 */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
int __ctzdi2(uint64_t value);
uint64_t __udivdi3(uint64_t value, uint64_t by);

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    void *at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(n)::"memory");
    return to;
}

void *memmove(void *to, const void *from, size_t n)
{
    if ((uintptr_t)to - (uintptr_t)from >= n)
        return memcpy(to, from, n);
    void *at = (char *)to + n - 1;
    from = (const char *)from + n - 1;
    __asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(at), "+S"(from), "+c"(n)::"memory");
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    void *at = to;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(byte) : "memory");
    return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++)
        if (x[i] != y[i])
            return x[i] - y[i];
    return 0;
}

/* Trailing zeros of a number that is not 0. */
int __ctzdi2(uint64_t value)
{
    const uint32_t low = (uint32_t)value;
    return low ? __builtin_ctz(low) : 32 + __builtin_ctz((uint32_t)(value >> 32));
}

/* gcc 12 does without: the core divides by constants only. Others call it. Bit by bit. */
uint64_t __udivdi3(uint64_t value, uint64_t by)
{
    uint64_t quotient = 0, rest = 0;
    for (int bit = 63; bit >= 0; bit--) {
        rest = rest << 1 | (value >> bit & 1);
        if (rest >= by) {
            rest -= by;
            quotient |= UINT64_C(1) << bit;
        }
    }
    return quotient;
}
