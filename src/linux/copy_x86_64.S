/* SPDX-License-Identifier: MIT */
/*
 * size_t copy_guarded(void *to [rdi], const void *from [rsi], size_t length [rdx]): bytes not copied.
 *
 * rdx is what is left at every load and store. A fault in the wide part goes on byte by byte, so
 * that the count is exact; one there ends the copy. copy.c has the table.
 */
#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif
        .text
        .globl copy_guarded
        .hidden copy_guarded
        .type copy_guarded, @function
        .p2align 5
copy_guarded:
        _CET_ENDBR
        .globl copy_wide
        .hidden copy_wide
copy_wide:
        cmpq $64, %rdx
        jb 1f
0:      movups (%rsi), %xmm0
        movups 16(%rsi), %xmm1
        movups 32(%rsi), %xmm2
        movups 48(%rsi), %xmm3
        movups %xmm0, (%rdi)
        movups %xmm1, 16(%rdi)
        movups %xmm2, 32(%rdi)
        movups %xmm3, 48(%rdi)
        addq $64, %rsi
        addq $64, %rdi
        subq $64, %rdx
        cmpq $64, %rdx
        jae 0b
1:      cmpq $8, %rdx
        jb copy_bytes
        movq (%rsi), %rax
        movq %rax, (%rdi)
        addq $8, %rsi
        addq $8, %rdi
        subq $8, %rdx
        jmp 1b
        .globl copy_bytes
        .hidden copy_bytes
copy_bytes:
        testq %rdx, %rdx
        je copy_end
        movb (%rsi), %al
        movb %al, (%rdi)
        incq %rsi
        incq %rdi
        decq %rdx
        jmp copy_bytes
        .globl copy_end
        .hidden copy_end
copy_end:
        movq %rdx, %rax
        ret
        .size copy_guarded, . - copy_guarded
        .section .note.GNU-stack, "", @progbits
