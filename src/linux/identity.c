/* SPDX-License-Identifier: MIT */
/*
 * Which file a descriptor is of, what it may do, and whether its file may be folded at all.
 *
 * Device, inode and mount name a file only as long as something pins it: an extent pins its own, so
 * a request that has the identity of a live extent is of that extent's file. On overlayfs one
 * identity stands for two inodes, before and after copy-up, so nothing is folded there; nor on
 * bcachefs, where a file and its snapshots differ in their subvolume only.
 *
 * A map costs as few calls of the kernel as it can. What a descriptor may do belongs to the class
 * of a shared piece, so it is asked for first. To a private piece it matters only that it may be
 * read, and only if the piece is carved: a copy is read through it, and the rest is the kernel's.
 * So there the answer is asked for last, and a spot that was taken is given back.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "linux/layer.h"

/* Not all of these are in linux/magic.h. */
#define EROFS_MAGIC 0xE0F5E1E2
#define EXFAT_MAGIC 0x2011BAB0
#define JFS_MAGIC 0x3153464a
#define NTFS3_MAGIC 0x7366746e
#define UDF_MAGIC 0x15013346
#define ZFS_MAGIC 0x2fc12fc1

int identity_read(int fd, struct identity *file, uint64_t *size)
{
    /* The kernel fills all of it: 256 bytes need no clearing in each call, as hardening flags
     * would. */
    __attribute__((uninitialized)) struct statx stat;
    const unsigned asked = STATX_TYPE | STATX_INO | STATX_SIZE | STATX_MNT_ID;
    const long result = sys_statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, asked, &stat);
    if (sys_failed(result))
        return (int)result;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): it is filled */
    if ((stat.stx_mask & asked) != asked || !S_ISREG(stat.stx_mode))
        return -EOPNOTSUPP;
    *file = (struct identity){.device = makedev(stat.stx_dev_major, stat.stx_dev_minor),
                              .inode = stat.stx_ino,
                              .mount = stat.stx_mnt_id};
    if (size != NULL)
        *size = stat.stx_size;
    return 0;
}

/* O_RDONLY or O_RDWR; a negative number for a descriptor whose file may not be mapped. */
static long access_of(int fd)
{
    const long flags = sys_fcntl(fd, F_GETFL, 0);
    if (sys_failed(flags) || (flags & O_PATH))
        return -EBADF;
    const long access = flags & O_ACCMODE;
    return access == O_RDONLY || access == O_RDWR ? access : -EACCES;
}

bool identity_may_read(int fd)
{
    return access_of(fd) >= 0;
}

/* Whether a mapping of the file may become executable: a copy of it must not where that may not. */
bool identity_may_execute(int fd)
{
    struct statfs system = {0};
    return !sys_failed(sys_call(SYS_fstatfs, fd, (long)&system, 0, 0, 0, 0)) &&
           !(system.f_flags & ST_NOEXEC);
}

/* Completes the request. MF_PASS_REASONS, or why the kernel should have it. */
enum mf_pass_reason identity_of(struct request *request)
{
    if (identity_read(request->fd, &request->file, NULL) != 0)
        return MF_PASS_FILE;
    if ((request->flags & MAP_TYPE) == MAP_PRIVATE)
        return MF_PASS_REASONS;
    const long access = access_of(request->fd);
    request->writable = access == O_RDWR;
    if (access < 0 || ((request->protection & PROT_WRITE) && !request->writable))
        return MF_PASS_FILE;
    return MF_PASS_REASONS;
}

static bool known_local(uint32_t magic)
{
    switch (magic) {
    case BTRFS_SUPER_MAGIC:
    case EROFS_MAGIC:
    case EXFAT_MAGIC:
    case EXT4_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case ISOFS_SUPER_MAGIC:
    case JFS_MAGIC:
    case MSDOS_SUPER_MAGIC:
    case NILFS_SUPER_MAGIC:
    case NTFS3_MAGIC:
    case RAMFS_MAGIC:
    case SQUASHFS_MAGIC:
    case TMPFS_MAGIC:
    case UDF_MAGIC:
    case XFS_SUPER_MAGIC:
    case ZFS_MAGIC:
        return true;
    default:
        return false;
    }
}

static bool known_remote(uint32_t magic)
{
    switch (magic) {
    case AFS_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case CODA_SUPER_MAGIC:
    case FUSE_SUPER_MAGIC:
    case NFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case V9FS_MAGIC:
        return true;
    default:
        return false;
    }
}

/* MF_PASS_REASONS, or why no file like this one is folded. */
enum mf_pass_reason identity_foldable(int fd, bool any_file_system)
{
    struct statfs system = {0};
    if (sys_failed(sys_call(SYS_fstatfs, fd, (long)&system, 0, 0, 0, 0)))
        return MF_PASS_FILE_SYSTEM;
    const uint32_t magic = (uint32_t)system.f_type;
    if (!known_local(magic) && !(any_file_system && known_remote(magic)))
        return MF_PASS_FILE_SYSTEM;
    const long seals = sys_fcntl(fd, F_GET_SEALS, 0);
    if (seals != -EINVAL && seals != F_SEAL_SEAL)
        return MF_PASS_SEALABLE;
    const long lease = sys_fcntl(fd, F_GETLEASE, 0);
    if (lease != F_UNLCK && lease != -EINVAL)
        return MF_PASS_REOPEN;
    return MF_PASS_REASONS;
}
