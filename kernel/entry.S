/* SPDX-License-Identifier: MIT */
/*
 * What the interrupt descriptor table points at. A trap's frame is struct trap_frame (trap.h).
 * There is no user mode, so stack and segments stay what they are.
 */
        .macro  error vector
entry\vector:
        pushl   $\vector
        jmp     common
        .endm
        .macro  plain vector
entry\vector:
        pushl   $0
        pushl   $\vector
        jmp     common
        .endm

        .text
        .irp    v, 0, 1, 2, 3, 4, 5, 6, 7, 9, 15, 16, 18, 19, 20, 22, 23, 24, 25, 26, 27, 28, 29, 31
        plain   \v
        .endr
        .irp    v, 8, 10, 11, 12, 13, 14, 17, 21, 30
        error   \v
        .endr
common: pushal
        cld
        pushl   %esp
        call    trap
        addl    $4, %esp
        popal
        addl    $8, %esp                /* vector and error code */
        iretl

        .macro  interrupt name, handler
        .globl  \name
\name:  pushal
        cld
        call    \handler
        popal
        iretl
        .endm
        interrupt interrupt_round, round_answer
        interrupt interrupt_wake, apic_end
        .globl  interrupt_spurious
interrupt_spurious:
        iretl

/* void thread_switch_stack(uint32_t *save, uint32_t load) */
        .globl  thread_switch_stack
thread_switch_stack:
        movl    4(%esp), %eax
        movl    8(%esp), %edx
        pushl   %ebp
        pushl   %ebx
        pushl   %esi
        pushl   %edi
        movl    %esp, (%eax)
        movl    %edx, %esp
        popl    %edi
        popl    %esi
        popl    %ebx
        popl    %ebp
        ret

        .section .rodata
        .globl  trap_entries
        .align  4
trap_entries:
        .irp    v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        .long   entry\v
        .endr
        .irp    v, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        .long   entry\v
        .endr
        .section .note.GNU-stack, "", @progbits
