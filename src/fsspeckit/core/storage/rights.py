"""Who may read a file of a local disk, and whether it may be replaced: mode, owner, group, ACL and user xattrs."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterable, Sequence

from fsspeckit.core.errors import StorageError

_ACL = "system.posix_acl_access"
# What file systems answer that have no xattrs, or none of this name.
_NO_ATTRIBUTE = (errno.ENOTSUP, errno.ENODATA, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_CHOWN = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
# FS_IOC_GETFLAGS, and the flags of `chattr +i` and `chattr +a`.
_GET_FLAGS = (2 << 30) | (struct.calcsize("l") << 16) | (ord("f") << 8) | 1
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


def make_private_folder(path: str, like: str) -> None:
    """Make a folder that only we may look into. Files in it get the group of `like`, if that is a setgid folder."""
    os.mkdir(path, 0o700)
    model = os.stat(like)
    if model.st_mode & stat.S_ISGID:
        with contextlib.suppress(OSError):
            os.chown(path, -1, model.st_gid)
        if os.stat(path).st_gid == model.st_gid:
            os.chmod(path, 0o2700)


def share_with_group(path: str, folders: Sequence[str]) -> None:
    """Let the group into a private folder if it may write to all of `folders`. An ACL says more than mode and group."""
    here, models = os.stat(path), [os.stat(folder) for folder in folders]
    if any(model.st_gid != here.st_gid or model.st_mode & 0o070 != 0o070 for model in models):
        return
    if not any(_ACL in _attributes(folder) for folder in [path, *folders]):
        os.chmod(path, stat.S_IMODE(here.st_mode) | 0o070)


def copy_rights(source: str, target: str) -> None:
    """Give `target`, to which only we have access, the rights of `source`, and at no moment more.

    The owner is kept as far as we may set it. Where the group cannot be kept, the new one may do what all may do.
    """
    old, attributes = os.stat(source), _attributes(source)
    acl, mode = attributes.pop(_ACL, None), stat.S_IMODE(old.st_mode)
    for name, value in attributes.items():
        _set_attribute(source, target, name, value)
    if not _set_owner(target, old):
        if acl is not None:
            raise _not_kept(source, "ACL", OSError(errno.EPERM, f"only a member of group {old.st_gid} may set it"))
        mode &= ~0o070 | (mode & 0o007) << 3
    if acl is not None:
        _set_attribute(source, target, _ACL, acl)
    elif _ACL in _attributes(target):  # of the default ACL of the folder that it was made in
        os.removexattr(target, _ACL)
    os.chmod(target, mode)


def _attributes(path: str) -> dict[str, bytes]:
    """The user xattrs and the ACL of a file."""
    if not hasattr(os, "listxattr"):
        return {}
    try:
        names = [name for name in os.listxattr(path) if name == _ACL or name.startswith("user.")]
        return {name: os.getxattr(path, name) for name in names}
    except OSError as error:
        if error.errno in _NO_ATTRIBUTE:
            return {}
        raise


def _set_attribute(source: str, target: str, name: str, value: bytes) -> None:
    try:
        os.setxattr(target, name, value)
    except OSError as error:
        raise _not_kept(source, "ACL" if name == _ACL else f"xattr {name}", error) from error


def _not_kept(source: str, what: str, error: OSError) -> StorageError:
    way = "setfacl -b" if what == "ACL" else f"setfattr -x {what.partition(' ')[2]}"
    return StorageError(
        f"Cannot keep the {what} of {source}: {error.strerror}. Merge as a user and on a file system that can set it, "
        f"or remove it first (`{way}`). Nothing was changed.",
        error,
        operation="stage",
    )


def _set_owner(target: str, old: os.stat_result) -> bool:
    """Is the group kept?"""
    for owner in (old.st_uid, -1):
        now = os.stat(target)
        if (now.st_uid if owner >= 0 else -1, now.st_gid) == (owner, old.st_gid):
            return True
        try:
            os.chown(target, owner, old.st_gid)
        except OSError as error:
            if error.errno not in _NO_CHOWN:
                raise
    return os.stat(target).st_gid == old.st_gid


def check_replaceable(paths: Iterable[str]) -> None:
    """Raise if a file could not be put at one of these paths, or what is there could not be removed.

    The system has no call for that. It refuses paths that are too long, files of others in a folder with the sticky
    bit, files that are immutable or append-only, and mount points. Folders are only asked for their attributes.
    """
    mounts: frozenset[str] | None = None
    for path in paths:
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        _check_unprotected(path, found)
        if stat.S_ISDIR(found.st_mode):
            continue
        mounts = _mount_points() if mounts is None else mounts
        if path in mounts:
            raise OSError(errno.EBUSY, "it is a mount point", path)
        folder = os.stat(os.path.dirname(path))
        if folder.st_mode & stat.S_ISVTX and not _acts_for_owner(path, found, folder):
            raise OSError(errno.EPERM, "its folder has the sticky bit, and it belongs to another user", path)


def _check_unprotected(path: str, found: os.stat_result) -> None:
    """Raise if a file or folder is immutable or append-only."""
    flags = array.array("i", [0])
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        with contextlib.suppress(OSError):  # we may not open it, or its file system has no flags
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.ioctl(handle, _GET_FLAGS, flags)
            finally:
                os.close(handle)
    of_bsd = getattr(found, "st_flags", 0)
    if flags[0] & _IMMUTABLE or of_bsd & (stat.UF_IMMUTABLE | stat.SF_IMMUTABLE):
        raise OSError(errno.EPERM, "it is immutable (chattr +i)", path)
    if flags[0] & _APPEND_ONLY or of_bsd & (stat.UF_APPEND | stat.SF_APPEND):
        raise OSError(errno.EPERM, "it is append-only (chattr +a)", path)


def _acts_for_owner(path: str, found: os.stat_result, folder: os.stat_result) -> bool:
    """Are we the owner of the file or of its folder, or may we act for the owner, as the system sees it?"""
    if os.geteuid() in (found.st_uid, folder.st_uid):
        return True
    if not stat.S_ISREG(found.st_mode) or not hasattr(os, "O_NOATIME"):
        return os.geteuid() == 0
    try:  # the right to open it so is the right that the sticky bit asks for
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOATIME))
    except PermissionError:
        return False
    return True


def _mount_points() -> frozenset[str]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            points = [line.split(" ")[4] for line in lines]
    except (OSError, IndexError):
        return frozenset()
    return frozenset(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point) for point in points)
