"""The lowest versions that pyproject.toml promises, as pip takes them: `pyarrow>=21` becomes `pyarrow==21.*`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def lowest(requirement: str) -> str:
    """`pandas>=2.2,<3` as `pandas==2.2.*`; a version of three numbers is exact.

    >>> lowest("pyspark[connect]>=4.0,<5"), lowest("duckdb>=1.1.3"), lowest("fsspec>=2024.6")
    ('pyspark[connect]==4.0.*', 'duckdb==1.1.3', 'fsspec==2024.6.*')
    """
    name, version = re.fullmatch(r"([\w\[\],-]+)>=([0-9.]+).*", requirement).groups()  # type: ignore[union-attr]
    return f"{name}=={version}" if version.count(".") == 2 else f"{name}=={version}.*"


if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in ("duckdb", "spark", "s3", "sql")]
    print("\n".join(lowest(each) for each in [*project["dependencies"], *(each for extra in extras for each in extra)]))
