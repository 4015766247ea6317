/* SPDX-License-Identifier: MIT */
/*
 * A group's limit holds for those below it, so the least on the way from the process's group up to
 * the root is what counts. In a container the path may be the host's, and not be there: then the
 * root, which is the container's own, says it.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>

#include "linux/cgroup.h"
#include "linux/sys.h"

enum { TEXT = 8192, PATH = 1024 };

/* UINT64_MAX for a file that is not there or says "max". */
static uint64_t number_in(const char *path)
{
    char text[24] = {0};
    const int fd = (int)sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return UINT64_MAX;
    const long got = sys_read(fd, text, sizeof(text));
    sys_close(fd);
    uint64_t value = 0;
    long i = 0;
    for (; i < got && text[i] >= '0' && text[i] <= '9'; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    return i == 0 ? UINT64_MAX : value;
}

/* What `file` says in the directory root/group. */
static uint64_t limit_of(const char *root, const char *group, size_t length, const char *file)
{
    char path[PATH];
    const size_t root_length = __builtin_strlen(root), file_length = __builtin_strlen(file) + 1;
    if (root_length + length + file_length > sizeof(path))
        return UINT64_MAX;
    __builtin_memcpy(path, root, root_length);
    __builtin_memcpy(path + root_length, group, length);
    __builtin_memcpy(path + root_length + length, file, file_length);
    return number_in(path);
}

/* The least of the limits of a group and of those above it. */
static uint64_t limit_along(const char *root, const char *group, size_t length, const char *file)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        const uint64_t limit = limit_of(root, group, length, file);
        least = limit < least ? limit : least;
        if (length == 0)
            return least;
        do
            length--;
        while (length > 0 && group[length] != '/');
    }
}

/* Whether a list of controllers that ends at a ':' names memory. */
static bool names_memory(const char *list)
{
    static const char memory[] = "memory";
    while (*list != ':') {
        size_t length = 0;
        while (list[length] != ',' && list[length] != ':')
            length++;
        if (length == sizeof(memory) - 1 && __builtin_memcmp(list, memory, length) == 0)
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

/* Lines are "number:controllers:group"; version 2 has no controllers there. */
uint64_t cgroup_memory_limit_in(const char *text, const char *root)
{
    static const char file_1[] = "/memory.limit_in_bytes", file_2[] = "/memory.max";
    char root_1[PATH];
    const size_t root_length = __builtin_strlen(root);
    if (root_length + sizeof("/memory") > sizeof(root_1))
        return UINT64_MAX;
    __builtin_memcpy(root_1, root, root_length);
    __builtin_memcpy(root_1 + root_length, "/memory", sizeof("/memory"));
    uint64_t least = limit_of(root, "", 0, file_2), limit = limit_of(root_1, "", 0, file_1);
    least = limit < least ? limit : least;
    for (const char *end; (end = __builtin_strchr(text, '\n')) != NULL; text = end + 1) {
        const char *list = __builtin_strchr(text, ':');
        const char *group = list != NULL && list < end ? __builtin_strchr(list + 1, ':') : NULL;
        if (group == NULL || group > end)
            continue;
        const size_t length = (size_t)(end - group) - 1;
        if (group == list + 1)
            limit = limit_along(root, group + 1, length, file_2);
        else if (names_memory(list + 1))
            limit = limit_along(root_1, group + 1, length, file_1);
        least = limit < least ? limit : least;
    }
    return least;
}

uint64_t cgroup_memory_limit(void)
{
    static char text[TEXT];
    const int fd = (int)sys_openat(AT_FDCWD, "/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    long held = 0, got = 0;
    if (fd >= 0) {
        while (held < TEXT - 1 && (got = sys_read(fd, text + held, (size_t)(TEXT - 1 - held))) > 0)
            held += got;
        sys_close(fd);
    }
    text[held] = '\0';
    return cgroup_memory_limit_in(text, "/sys/fs/cgroup");
}
