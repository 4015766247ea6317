/* SPDX-License-Identifier: MIT */
#include "cli/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SCRIPTS = 5, /* as many of them as the kernel goes through */
#ifdef __aarch64__
    OUR_MACHINE = EM_AARCH64
#else
    OUR_MACHINE = EM_X86_64
#endif
};

/* The dynamic linker of glibc, as a program's interpreter or called by its name. */
static bool is_linker_of_glibc(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    return strncmp(base, "ld-linux", 8) == 0 || strncmp(base, "ld-2.", 5) == 0;
}

static enum program_kind look_at_linker(const char *path)
{
    char *real = realpath(path, NULL);
    const bool linker = is_linker_of_glibc(path) || (real != NULL && is_linker_of_glibc(real));
    free(real);
    return linker ? PROGRAM_FOLDS : PROGRAM_STATIC;
}

static enum program_kind look_at_elf(int fd, const Elf64_Ehdr *header, const char *path)
{
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != OUR_MACHINE)
        return PROGRAM_MACHINE;
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr program;
        const off_t at = (off_t)header->e_phoff + i * (off_t)header->e_phentsize;
        if (pread(fd, &program, sizeof(program), at) != (ssize_t)sizeof(program))
            return PROGRAM_FOLDS;
        if (program.p_type != PT_INTERP)
            continue;
        char name[4096];
        const size_t length = program.p_filesz < sizeof(name) ? program.p_filesz : sizeof(name) - 1;
        const ssize_t got = pread(fd, name, length, (off_t)program.p_offset);
        name[got > 0 ? got : 0] = '\0';
        return is_linker_of_glibc(name) ? PROGRAM_FOLDS : PROGRAM_LIBC;
    }
    return look_at_linker(path);
}

/* The interpreter in the line "#! interpreter argument", terminated, in place; NULL: there is none.
 */
static char *script_interpreter(char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, " \t")] = '\0';
    return *name != '\0' ? name : NULL;
}

enum program_kind program_look(const char *path, char *file, size_t size)
{
    union {
        Elf64_Ehdr header;
        char text[4096];
    } start;
    char next[sizeof(start.text)];
    for (int i = 0; i <= SCRIPTS; i++) {
        if (file != NULL)
            snprintf(file, size, "%s", path);
        const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return PROGRAM_FOLDS;
        memset(&start, 0, sizeof(start.header));
        const ssize_t got = read(fd, start.text, sizeof(start.text) - 1);
        start.text[got > 0 ? got : 0] = '\0';
        enum program_kind kind = PROGRAM_FOLDS;
        const bool elf = got > EI_NIDENT && memcmp(start.text, ELFMAG, SELFMAG) == 0;
        if (elf)
            kind = look_at_elf(fd, &start.header, path);
        close(fd);
        const char *interpreter = !elf && got > 2 && memcmp(start.text, "#!", 2) == 0
                                      ? script_interpreter(start.text)
                                      : NULL;
        if (interpreter == NULL)
            return kind;
        snprintf(next, sizeof(next), "%s", interpreter);
        path = next;
    }
    return PROGRAM_FOLDS;
}
