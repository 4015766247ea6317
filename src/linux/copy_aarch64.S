/* SPDX-License-Identifier: MIT */
/*
 * size_t copy_guarded(void *to [x0], const void *from [x1], size_t length [x2]): bytes not copied.
 *
 * x2 is what is left at every load and store. A fault in the wide part goes on byte by byte, so
 * that the count is exact; one there ends the copy. copy.c has the table.
 */
        .text
        .globl copy_guarded
        .hidden copy_guarded
        .type copy_guarded, %function
        .p2align 5
copy_guarded:
        hint #34 /* bti c */
        .globl copy_wide
        .hidden copy_wide
copy_wide:
        cmp x2, #32
        b.lo 1f
0:      ldp x3, x4, [x1]
        ldp x5, x6, [x1, #16]
        stp x3, x4, [x0]
        stp x5, x6, [x0, #16]
        add x1, x1, #32
        add x0, x0, #32
        sub x2, x2, #32
        cmp x2, #32
        b.hs 0b
1:      cmp x2, #8
        b.lo copy_bytes
        ldr x3, [x1]
        str x3, [x0]
        add x1, x1, #8
        add x0, x0, #8
        sub x2, x2, #8
        b 1b
        .globl copy_bytes
        .hidden copy_bytes
copy_bytes:
        cbz x2, copy_end
        ldrb w3, [x1]
        strb w3, [x0]
        add x1, x1, #1
        add x0, x0, #1
        sub x2, x2, #1
        b copy_bytes
        .globl copy_end
        .hidden copy_end
copy_end:
        mov x0, x2
        ret
        .size copy_guarded, . - copy_guarded
        .section .note.GNU-stack, "", %progbits
