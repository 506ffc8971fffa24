"""The only way to list, open, stage, rename, sync and lock.

A `Location` is a data set: a `Storage` and the folder in it. Local disks are read and written with PyArrow's native
files, S3 by `store` over the few requests of `objects`; everything else is reached through fsspec, for reading. Paths
handed to a `Storage` are absolute; data files are named relative to the data set, with `/`.
"""

import warnings

with warnings.catch_warnings():  # fsspec says of FSSPECKIT_LEASE and its kin that it ignores them, as it should
    warnings.filterwarnings("ignore", "Ignoring environment variable FSSPECKIT_")
    import fsspec  # noqa: F401

from fsspeckit.core.storage.base import Disk, Storage
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.core.storage.location import Access, DiskLocation, Location, StoreLocation, locate
from fsspeckit.core.storage.remote import FsspecStorage
from fsspeckit.core.storage.store import StoreStorage

__all__ = [
    "Access",
    "Disk",
    "DiskLocation",
    "FsspecStorage",
    "LocalStorage",
    "Location",
    "Storage",
    "StoreLocation",
    "StoreStorage",
    "locate",
]
