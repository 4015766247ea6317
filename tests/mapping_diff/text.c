/* SPDX-License-Identifier: MIT */
/*
 * Programs as text: one op a line, "kind name=value ...", fields that are zero left out, an address
 * as region+page or region+page+byte (arena+3, s17+0+100, hint+5, kernel+0, null). What follows a #
 * tells the flags' names and the result, for readers only.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "diff.h"

const char *const kind_names[OP_KINDS] = {
    [OP_NONE] = "none",         [OP_MMAP] = "mmap",        [OP_MUNMAP] = "munmap",
    [OP_MPROTECT] = "mprotect", [OP_MREMAP] = "mremap",    [OP_MADVISE] = "madvise",
    [OP_MSYNC] = "msync",       [OP_MINCORE] = "mincore",  [OP_MLOCK] = "mlock",
    [OP_MUNLOCK] = "munlock",   [OP_LOAD] = "load",        [OP_STORE] = "store",
    [OP_READ_INTO] = "read",    [OP_WRITE_FROM] = "write", [OP_PWRITE] = "pwrite",
    [OP_TRUNCATE] = "truncate", [OP_OPEN] = "open",        [OP_CLOSE] = "close",
    [OP_LOCK] = "lock",         [OP_STATE] = "state",      [OP_FORK] = "fork",
    [OP_CHECK] = "check",       [OP_PROBE] = "probe",      [OP_FILES] = "files",
    [OP_MAPS] = "maps",
};

struct name {
    int value;
    const char *name;
};

static const struct name advice_names[] = {
    {MADV_NORMAL, "NORMAL"},
    {MADV_RANDOM, "RANDOM"},
    {MADV_SEQUENTIAL, "SEQUENTIAL"},
    {MADV_WILLNEED, "WILLNEED"},
    {MADV_DONTNEED, "DONTNEED"},
    {MADV_FREE, "FREE"},
    {MADV_REMOVE, "REMOVE"},
    {MADV_DONTFORK, "DONTFORK"},
    {MADV_DOFORK, "DOFORK"},
    {MADV_NOHUGEPAGE, "NOHUGEPAGE"},
    {MADV_DONTDUMP, "DONTDUMP"},
    {MADV_DODUMP, "DODUMP"},
    {MADV_WIPEONFORK, "WIPEONFORK"},
    {MADV_KEEPONFORK, "KEEPONFORK"},
    {MADV_COLD, "COLD"},
    {22, "POPULATE_READ"},
    {23, "POPULATE_WRITE"},
    {24, "DONTNEED_LOCKED"},
    {102, "GUARD_INSTALL"},
    {103, "GUARD_REMOVE"},
    {0, NULL},
};

static const struct name map_names[] = {
    {MAP_ANONYMOUS, "ANONYMOUS"},
    {MAP_FIXED, "FIXED"},
    {MAP_FIXED_NOREPLACE, "FIXED_NOREPLACE"},
    {MAP_LOCKED, "LOCKED"},
    {MAP_POPULATE, "POPULATE"},
    {MAP_NORESERVE, "NORESERVE"},
    {MAP_STACK, "STACK"},
    {MAP_HUGETLB, "HUGETLB"},
    {0x80000, "SYNC"},
    {0, NULL},
};

static void flags_print(FILE *out, const struct name *names, int flags)
{
    for (; names->name; names++) {
        if (flags & names->value)
            fprintf(out, " %s", names->name);
    }
}

static void comment_print(FILE *out, const struct op *op)
{
    static const char *const sharing[4] = {"no-sharing", "SHARED", "PRIVATE", "SHARED_VALIDATE"};
    static const struct name remap_names[] = {
        {MREMAP_MAYMOVE, "MAYMOVE"}, {MREMAP_FIXED, "FIXED"}, {4, "DONTUNMAP"}, {0, NULL}};
    static const struct name sync_names[] = {
        {MS_ASYNC, "ASYNC"}, {MS_INVALIDATE, "INVALIDATE"}, {MS_SYNC, "SYNC"}, {0, NULL}};
    static const struct name open_names[] = {
        {O_WRONLY, "WRONLY"}, {O_RDWR, "RDWR"}, {O_PATH, "PATH"}, {O_APPEND, "APPEND"}, {0, NULL}};
    if (op->kind == OP_MMAP || op->kind == OP_MPROTECT)
        fprintf(out, " %c%c%c", op->prot & 1 ? 'r' : '-', op->prot & 2 ? 'w' : '-',
                op->prot & 4 ? 'x' : '-');
    if (op->kind == OP_MMAP) {
        fprintf(out, " %s", sharing[op->flags & 3]);
        flags_print(out, map_names, op->flags);
    }
    if (op->kind == OP_MREMAP)
        flags_print(out, remap_names, op->flags);
    if (op->kind == OP_MSYNC)
        flags_print(out, sync_names, op->flags);
    if (op->kind == OP_OPEN)
        flags_print(out, open_names, op->flags);
    if (op->kind == OP_MADVISE) {
        const struct name *name = advice_names;
        while (name->name && name->value != op->flags)
            name++;
        fprintf(out, " %s", name->name ? name->name : "unknown advice");
    }
}

static void sym_print(FILE *out, const char *label, struct sym sym)
{
    if (sym.region == AT_NULL)
        return;
    fprintf(out, " %s=", label);
    if (sym.region == ARENA)
        fprintf(out, "arena");
    else if (sym.region <= SLOTS)
        fprintf(out, "s%d", sym.region);
    else
        fprintf(out, "%s", sym.region == AT_HINT ? "hint" : "kernel");
    fprintf(out, "+%d", sym.page);
    if (sym.byte)
        fprintf(out, "+%d", sym.byte);
}

static void number_print(FILE *out, const char *label, uint64_t value, bool hexadecimal)
{
    if (value)
        fprintf(out, hexadecimal ? " %s=0x%" PRIx64 : " %s=%" PRIu64, label, value);
}

void op_print(FILE *out, const struct op *op, const struct record *r)
{
    fprintf(out, "%s", kind_names[op->kind]);
    number_print(out, "slot", op->dst, false);
    sym_print(out, "at", op->at);
    number_print(out, "length", op->length, op->length >> 40 != 0);
    sym_print(out, "to", op->to);
    number_print(out, "length2", op->length2, op->length2 >> 40 != 0);
    number_print(out, "fd", op->fd, false);
    number_print(out, "offset", op->offset, op->offset >> 40 != 0);
    number_print(out, "prot", (uint32_t)op->prot, true);
    number_print(out, "flags", (uint32_t)op->flags, true);
    number_print(out, "value", op->value, false);
    fprintf(out, " #");
    comment_print(out, op);
    if (r && r->note & NOTE_SKIPPED)
        fprintf(out, " -> skipped");
    else if (r && r->ret < 0 && r->error)
        fprintf(out, " -> %s", strerrorname_np(r->error));
    else if (r)
        fprintf(out, " -> %d", r->ret);
    if (r && r->signal)
        fprintf(out, " %s code %d", r->signal >> 16 == 7 ? "SIGBUS" : "SIGSEGV",
                (int16_t)(r->signal & 0xffff));
    if (r && r->data)
        fprintf(out, " data %" PRIx64, r->data);
    fputc('\n', out);
}

static struct sym sym_parse(const char *text)
{
    struct sym sym = {AT_NULL, 0, 0};
    if (!strncmp(text, "arena", 5))
        sym.region = ARENA;
    else if (!strncmp(text, "hint", 4))
        sym.region = AT_HINT;
    else if (!strncmp(text, "kernel", 6))
        sym.region = AT_KERNEL;
    else if (text[0] == 's')
        sym.region = (uint16_t)atoi(text + 1);
    if ((text = strchr(text, '+'))) {
        sym.page = atoi(text + 1);
        if ((text = strchr(text + 1, '+')))
            sym.byte = (uint16_t)atoi(text + 1);
    }
    return sym;
}

static bool op_parse(char *line, struct op *op)
{
    *op = (struct op){.at.region = AT_NULL, .to.region = AT_NULL};
    char *end = strchr(line, '#');
    if (end)
        *end = 0;
    char *save;
    char *word = strtok_r(line, " \t\n", &save);
    if (!word)
        return false;
    for (int kind = 1; kind < OP_KINDS; kind++) {
        if (!strcmp(word, kind_names[kind]))
            op->kind = (uint8_t)kind;
    }
    while ((word = strtok_r(NULL, " \t\n", &save))) {
        char *value = strchr(word, '=');
        if (!value)
            return false;
        *value++ = 0;
        const uint64_t number = strtoull(value, NULL, 0);
        if (!strcmp(word, "at"))
            op->at = sym_parse(value);
        else if (!strcmp(word, "to"))
            op->to = sym_parse(value);
        else if (!strcmp(word, "slot"))
            op->dst = (uint16_t)number;
        else if (!strcmp(word, "length"))
            op->length = number;
        else if (!strcmp(word, "length2"))
            op->length2 = number;
        else if (!strcmp(word, "fd"))
            op->fd = (uint8_t)number;
        else if (!strcmp(word, "offset"))
            op->offset = number;
        else if (!strcmp(word, "prot"))
            op->prot = (int)number;
        else if (!strcmp(word, "flags"))
            op->flags = (int)number;
        else if (!strcmp(word, "value"))
            op->value = number;
        else
            return false;
    }
    return op->kind != OP_NONE;
}

/* Number of ops, or -1 with a message. */
int program_read(const char *path, struct op *ops, uint32_t capacity)
{
    FILE *in = fopen(path, "r");
    if (!in) {
        fprintf(stderr, "cannot read the program %s: %m\n", path);
        return -1;
    }
    uint32_t count = 0;
    char line[512];
    for (int number = 1; fgets(line, sizeof line, in); number++) {
        if (line[strspn(line, " \t\n")] == 0 || line[strspn(line, " \t")] == '#')
            continue;
        if (count == capacity || !op_parse(line, &ops[count])) {
            fprintf(stderr, "%s:%d: not an op, or one too many\n", path, number);
            fclose(in);
            return -1;
        }
        count++;
    }
    fclose(in);
    return (int)count;
}

int program_write(FILE *out, const struct op *ops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        op_print(out, &ops[i], NULL);
    return ferror(out);
}
