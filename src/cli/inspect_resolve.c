/* SPDX-License-Identifier: MIT */
/*
 * The kernel adds " (deleted)" to the name of a file that has no name any more, but a file's own
 * name may end so; its text writes a newline as \012, but a name may have these four characters.
 * The file itself tells: if a name as it stands leads to the device and inode of the map, that is
 * its name. Names are as this process sees them, or, in another mount namespace, as the target
 * does.
 *
 * Devices can differ although the file is the same (btrfs, overlayfs): then the inode alone would
 * be believed too easily, and the answer is that it is not known.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cli/inspect.h"

enum identity { IS_FILE, IS_OTHER, IS_UNKNOWN };

static const char deleted_suffix[] = " (deleted)";
static const char newline_escape[] = "\\012";

static enum identity identify(const char *root, const char *name, size_t length,
                              const struct map_line *line)
{
    char path[PATH_MAX];
    struct statx status;
    const size_t before = strlen(root);
    if (before + length >= sizeof(path) || memchr(name, '\0', length))
        return IS_UNKNOWN;
    memcpy(path, root, before);
    memcpy(path + before, name, length);
    path[before + length] = '\0';
    /* What is cached is enough, and does not wait for a server. */
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_INO,
              &status) != 0)
        /* Too long a name is not that of the path, which fits, but of a file that cannot be. */
        return errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG ? IS_OTHER : IS_UNKNOWN;
    if (status.stx_ino != line->inode)
        return IS_OTHER;
    return status.stx_dev_major == line->major && status.stx_dev_minor == line->minor ? IS_FILE
                                                                                      : IS_UNKNOWN;
}

static enum identity identify_anywhere(const struct inspection *inspection, const char *name,
                                       size_t length, const struct map_line *line)
{
    if (inspection->process.pid == 0)
        return IS_UNKNOWN;
    const enum identity here = identify("", name, length, line);
    if (here == IS_FILE || !inspection->other_root)
        return here;
    char root[32];
    snprintf(root, sizeof(root), "/proc/%d/root", (int)inspection->process.pid);
    return identify(root, name, length, line);
}

/* Replaces each \012 by a newline, in place. */
static size_t unescape(char *name, size_t length)
{
    size_t to = 0;
    for (size_t from = 0; from < length; to++) {
        if (length - from >= 4 && memcmp(name + from, newline_escape, 4) == 0) {
            name[to] = '\n';
            from += 4;
        } else {
            name[to] = name[from++];
        }
    }
    return to;
}

static bool ends_deleted(const char *name, size_t length)
{
    const size_t suffix = sizeof(deleted_suffix) - 1;
    return length > suffix && memcmp(name + length - suffix, deleted_suffix, suffix) == 0;
}

/* Of a name with \012 in it: both readings are tried, and only one can be the file. */
static void resolve_escapes(const struct inspection *inspection, const struct map_line *line,
                            struct map_file *file, char *name, size_t *length)
{
    file->ambiguous = true;
    char *other = malloc(*length);
    if (!other)
        return;
    memcpy(other, name, *length);
    const size_t shorter = unescape(other, *length);
    if (identify_anywhere(inspection, name, *length, line) == IS_FILE) {
        file->ambiguous = false;
    } else if (identify_anywhere(inspection, other, shorter, line) == IS_FILE) {
        file->ambiguous = false;
        memcpy(name, other, shorter);
        *length = shorter;
    }
    free(other);
}

bool root_differs(pid_t pid)
{
    static const char *const links[] = {"root", "ns/mnt"};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        char theirs[64], ours[64];
        struct stat a, b;
        snprintf(theirs, sizeof(theirs), "/proc/%d/%s", (int)pid, links[i]);
        snprintf(ours, sizeof(ours), "/proc/self/%s", links[i]);
        if (stat(theirs, &a) != 0 || stat(ours, &b) != 0 || a.st_ino != b.st_ino ||
            a.st_dev != b.st_dev)
            return true;
    }
    return false;
}

void file_resolve(const struct inspection *inspection, const struct map_line *line,
                  struct map_file *file, char *name, size_t *length)
{
    if (line->escaped && memmem(name, *length, newline_escape, 4))
        resolve_escapes(inspection, line, file, name, length);
    if (!ends_deleted(name, *length))
        return;
    switch (identify_anywhere(inspection, name, *length, line)) {
    case IS_FILE:
        return;
    case IS_OTHER:
        break;
    case IS_UNKNOWN:
        file->ambiguous = true;
        break;
    }
    file->deleted = true;
    *length -= sizeof(deleted_suffix) - 1;
}
