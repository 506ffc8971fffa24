"""The PyArrow engine: `LocalEngine` with Arrow sources."""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.core.engine import Source
from fsspeckit.core.local_engine import ArrowSource, LocalEngine
from fsspeckit.core.storage import Access
from fsspeckit.datasets.sources import to_reader


class PyArrowEngine(LocalEngine):
    """See `core.engine.Engine`."""

    name = "pyarrow"

    def __init__(self, access: Access | None = None, threads: int | None = None) -> None:
        super().__init__(threads)
        self._access = access or Access()

    def open(self, source: object) -> Source:
        if isinstance(source, pa.Table):
            return ArrowSource(source.schema, source, self.spool_bytes)
        reader = to_reader(source, self._access)
        return ArrowSource(reader.schema, lambda: reader, self.spool_bytes)
