"""Permissions of files on a local disk (mode, owner, group, ACL, user xattrs), and whether a file can be replaced."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence

from fsspeckit.core.errors import StorageError

_ACL, _DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
# Errors of file systems without xattrs, or without one of this name.
_NO_ATTRIBUTE = (errno.ENOTSUP, errno.ENODATA, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_CHOWN = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
# FS_IOC_GETFLAGS, and the flags of `chattr +i` and `chattr +a`.
_GET_FLAGS = (2 << 30) | (struct.calcsize("l") << 16) | (ord("f") << 8) | 1
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


def make_private_folder(path: str, like: str) -> None:
    """Make a folder that only this user can open. Files in it get the group of `like`, if that is a setgid folder."""
    os.mkdir(path, 0o700)
    example = os.stat(like)
    if example.st_mode & stat.S_ISGID:
        with contextlib.suppress(OSError):
            os.chown(path, -1, example.st_gid)
        if os.stat(path).st_gid == example.st_gid:
            os.chmod(path, 0o2700)


def share_with_group(path: str, folders: Sequence[str]) -> None:
    """Let the group into a private folder if the group may write to all of `folders`, and none of them has an ACL."""
    own, others = os.stat(path), [os.stat(folder) for folder in folders]
    if any(other.st_gid != own.st_gid or other.st_mode & 0o070 != 0o070 for other in others):
        return
    if not any(_ACL in _attributes(folder) for folder in [path, *folders]):
        os.chmod(path, stat.S_IMODE(own.st_mode) | 0o070)


def copy_rights(source: str, target: str) -> None:
    """Give `target`, to which only this user has access, the permissions of `source`, and at no moment more.

    The owner is kept if this user may set it. If the group cannot be kept, the new group gets what all users have.
    """
    old, attributes = os.stat(source), _attributes(source)
    acl, mode = attributes.pop(_ACL, None), stat.S_IMODE(old.st_mode)
    for name, value in attributes.items():
        _set_attribute(source, target, name, value)
    if not _set_owner(target, old):
        if acl is not None:
            raise _group_not_kept(source, old.st_gid)
        mode = _without_group(mode)
    if acl is not None:
        _set_attribute(source, target, _ACL, acl)
    elif _ACL in _attributes(target):  # from the default ACL of its folder
        os.removexattr(target, _ACL)
    os.chmod(target, mode)


def take_rights(neighbour: str, target: str, folder: str) -> bool:
    """Give a new file in a folder the mode, the group and the ACL of a file there, but not more than that.

    In a setgid folder it gets the group of the folder. If the group cannot be kept, the new group gets what all users
    have. Returns false if the folder has a default ACL, which decides.
    """
    with contextlib.suppress(OSError):
        os.getxattr(folder, _DEFAULT_ACL)
        return False
    old, parent, acl = os.stat(neighbour), os.stat(folder), _attributes(neighbour).get(_ACL)
    mode, group = stat.S_IMODE(old.st_mode) & 0o777, parent.st_gid if parent.st_mode & stat.S_ISGID else old.st_gid
    if not _set_group(target, group):
        if acl is not None:
            raise _group_not_kept(neighbour, group)
        mode = _without_group(mode)
    if acl is not None:
        _set_attribute(neighbour, target, _ACL, acl)
    elif _ACL in _attributes(target):  # from the default ACL of the staging folder
        os.removexattr(target, _ACL)
    os.chmod(target, mode)
    return True


def owner_of(path: str) -> str:
    """Owner, group and ACL of a file as a text."""
    status = os.stat(path)
    return f"{status.st_uid}:{status.st_gid}:{_attributes(path).get(_ACL, b'').hex()}"


def copy_common_rights(sources: Sequence[str], target: str) -> None:
    """Give `target` the permissions of files with the same owner, group and ACL: what all of their modes allow.

    It also gets the user xattrs on which they agree.
    """
    first, others = sources[0], sources[1:]
    copy_rights(first, target)
    mode = stat.S_IMODE(os.stat(target).st_mode)
    for path in others:
        mode &= stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(target, mode)
    own = {name: value for name, value in _attributes(first).items() if name != _ACL}
    if own:
        of_others = [_attributes(path) for path in others]
        for name, value in own.items():
            if any(attributes.get(name) != value for attributes in of_others):
                os.removexattr(target, name)


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
    command = "setfacl -b" if what == "ACL" else f"setfattr -x {what.partition(' ')[2]}"
    return StorageError(
        f"Cannot keep the {what} of {source}: {error.strerror}. Merge as a user and on a file system that can set it, "
        f"or remove it first (`{command}`). Nothing was changed.",
        error,
        operation="stage",
    )


def _group_not_kept(source: str, group: int) -> StorageError:
    return _not_kept(source, "ACL", OSError(errno.EPERM, f"only a member of group {group} may set it"))


def _without_group(mode: int) -> int:
    """A mode in which the group may do what all users may do."""
    return mode & (~0o070 | (mode & 0o007) << 3)


def _set_owner(target: str, old: os.stat_result) -> bool:
    """Keep the owner, if this user may set it, and the group. Is the group kept?"""
    now = os.stat(target)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with _chown_errors():
            os.chown(target, old.st_uid, old.st_gid)
    return _set_group(target, old.st_gid)


def _set_group(target: str, group: int) -> bool:
    """Is this the group of the file now?"""
    if os.stat(target).st_gid != group:
        with _chown_errors():
            os.chown(target, -1, group)
    return os.stat(target).st_gid == group


@contextlib.contextmanager
def _chown_errors() -> Iterator[None]:
    """Pass over the errors of users who may not set an owner or a group, and of file systems without them."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_CHOWN:
            raise


def check_replaceable(paths: Iterable[str]) -> None:
    """Raise if a file could not be put at one of these paths, or what is there could not be removed.

    There is no system call for that. A rename fails for paths that are too long, for files of other users in a folder
    with the sticky bit, for immutable and append-only files, and for mount points. Of folders only flags are checked.
    """
    mounts: frozenset[str] | None = None
    for path in paths:
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        _check_unprotected(path, status)
        if stat.S_ISDIR(status.st_mode):
            continue
        mounts = _mount_points() if mounts is None else mounts
        if path in mounts:
            raise OSError(errno.EBUSY, "it is a mount point", path)
        folder = os.stat(os.path.dirname(path))
        if folder.st_mode & stat.S_ISVTX and not _acts_for_owner(path, status, folder):
            raise OSError(errno.EPERM, "its folder has the sticky bit, and it belongs to another user", path)


def _check_unprotected(path: str, status: os.stat_result) -> None:
    """Raise if a file or folder is immutable or append-only."""
    flags = array.array("i", [0])
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        with contextlib.suppress(OSError):  # it cannot be opened, or its file system has no flags
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.ioctl(handle, _GET_FLAGS, flags)
            finally:
                os.close(handle)
    of_bsd = getattr(status, "st_flags", 0)
    if flags[0] & _IMMUTABLE or of_bsd & (stat.UF_IMMUTABLE | stat.SF_IMMUTABLE):
        raise OSError(errno.EPERM, "it is immutable (chattr +i)", path)
    if flags[0] & _APPEND_ONLY or of_bsd & (stat.UF_APPEND | stat.SF_APPEND):
        raise OSError(errno.EPERM, "it is append-only (chattr +a)", path)


def _acts_for_owner(path: str, status: os.stat_result, folder: os.stat_result) -> bool:
    """Does this user own the file or its folder, or have the capability to act for the owner?"""
    if os.geteuid() in (status.st_uid, folder.st_uid):
        return True
    if not stat.S_ISREG(status.st_mode) or not hasattr(os, "O_NOATIME"):
        return os.geteuid() == 0
    try:  # O_NOATIME needs the same capability as a rename in a sticky folder
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
