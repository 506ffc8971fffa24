"""Which fsspeckit is installed: PyPI has another project of this name."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import fsspeckit

SUMMARY = "MERGE for plain Parquet: insert, update, upsert and delete rows by key in a directory of Parquet files"
"""The summary of this distribution, as in pyproject.toml."""
# Of the project on PyPI; no file of ours has such a name.
_FOREIGN = ("common", "storage_options", "core/ext", "core/filesystem")


def folder() -> Path:
    return Path(fsspeckit.__file__).parent


def description() -> str:
    """The version, what this is, and where it is installed."""
    return (
        f"fsspeckit {fsspeckit.__version__}\n"
        "MERGE for plain Parquet; not the project of that name on PyPI\n"
        f"{folder()}, Python {platform.python_version()}"
    )


def problems(package: Path | None = None) -> list[str]:
    """What is wrong with the installation: files of both projects, or the metadata of the other one."""
    package = package or folder()
    names = [name for name in _FOREIGN if (package / name).exists() or (package / f"{name}.py").exists()]
    wrong = []
    if names:
        wrong.append(
            f"{package} also has files of the project called fsspeckit on PyPI ({', '.join(names)}). Remove the folder "
            "and install again from a checkout."
        )
    others = [dist for dist in metadata.distributions(name="fsspeckit") if dist.metadata["Summary"] != SUMMARY]
    if others:
        wrong.append(
            f"Version {others[0].version} of the project called fsspeckit on PyPI is installed too. Run: pip uninstall "
            "fsspeckit (until nothing is left), then install again from a checkout."
        )
    return wrong
