/* SPDX-License-Identifier: MIT */
/*
 * The way into C, for the first processor (multiboot) and for the others (trampoline).
 *
 * Both switch on PAE paging with the same boot tables, which show the first GiB twice: at 0, where
 * the code runs that switches them on, and at DIRECT, where the kernel is linked. C then goes over
 * to tables of its own (paging.c) that have no map at 0. The boot tables stay as they are: no
 * processor runs on them that is not just starting.
 */
#include "kernel/layout.h"

#define PHYSICAL(x) ((x) - DIRECT)
#define MULTIBOOT 0x1badb002
#define MULTIBOOT_MEMORY 2

        .section .multiboot, "a"
        .align  4
        .long   MULTIBOOT, MULTIBOOT_MEMORY, -(MULTIBOOT + MULTIBOOT_MEMORY)

        .text
        .globl  boot_entry
boot_entry:
        cli
        cld
        movl    %eax, %ebp              /* multiboot: its magic number */
        movl    %ebx, %esi              /* and where its information is */

        movl    $PHYSICAL(boot_directory), %edi
        movl    $0x83, %eax             /* present, writable, 2 MiB */
        movl    $512, %ecx
1:      movl    %eax, (%edi)
        movl    $0, 4(%edi)
        addl    $0x200000, %eax
        addl    $8, %edi
        loop    1b
        movl    $PHYSICAL(boot_directory) + 1, %eax
        movl    %eax, PHYSICAL(boot_pointers)
        movl    %eax, PHYSICAL(boot_pointers) + 8 * (DIRECT >> 30)

        movl    $PHYSICAL(1f), %ebx
        jmp     enable_paging
1:      movl    $1f, %eax
        jmp     *%eax
1:      movl    $boot_stack_end, %esp
        pushl   %esi
        pushl   %ebp
        call    kernel_main
        hlt

/* Runs at its physical address, and goes on at %ebx. */
enable_paging:
        movl    %cr4, %eax
        orl     $0x20, %eax             /* PAE */
        movl    %eax, %cr4
        movl    $PHYSICAL(boot_pointers), %eax
        movl    %eax, %cr3
        movl    %cr0, %eax
        orl     $0x80010001, %eax       /* paging, write protection, protected mode */
        movl    %eax, %cr0
        jmp     *%ebx

/*
 * Copied to TRAMPOLINE, where the other processors begin in real mode, all at once. Each takes the
 * next number, and with it a stack.
 */
#define MOVED(x) (TRAMPOLINE + (x) - trampoline)
        .globl  trampoline, trampoline_end
        .code16
trampoline:
        cli
        cld
        xorw    %ax, %ax
        movw    %ax, %ds
        lgdtl   MOVED(flat_pointer)
        movl    %cr0, %eax
        orl     $1, %eax
        movl    %eax, %cr0
        ljmpl   $8, $MOVED(flat)
        .code32
flat:   movw    $16, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movl    $PHYSICAL(1f), %ebx
        movl    $PHYSICAL(enable_paging), %eax
        jmp     *%eax
        .align  8
flat_table:
        .quad   0, 0x00cf9a000000ffff, 0x00cf92000000ffff
flat_pointer:
        .word   . - flat_table - 1
        .long   MOVED(flat_table)
trampoline_end:

1:      movl    $1f, %eax
        jmp     *%eax
1:      movl    $1, %eax
        lock xaddl %eax, boot_next
        cmpl    $CPUS_MAX, %eax
        jae     2f
        movl    boot_stacks(, %eax, 4), %esp
        testl   %esp, %esp              /* more processors than the kernel was told of */
        jz      2f
        pushl   %eax
        call    cpu_enter
2:      cli
        hlt
        jmp     2b

        .data
        .globl  boot_next, boot_stacks
        .align  4
boot_next:      .long 1                 /* the number of the next processor */
boot_stacks:    .fill CPUS_MAX, 4, 0    /* where each begins its stack */

        .bss
        .align  4096
boot_directory: .skip 4096
boot_stack:     .skip STACK_BYTES
boot_stack_end:
        .align  32
boot_pointers:  .skip 32
        .section .note.GNU-stack, "", @progbits
