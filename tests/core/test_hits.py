"""The spool: rows come to their places from parts and hits in any order."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.actions import HitAction
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.match.hits import Hits, hit_batch, write_hits
from fsspeckit.core.model import FileInfo, Shape
from fsspeckit.core.rewrite import files
from fsspeckit.core.rows.exchange import pull
from fsspeckit.core.rows.spool import Part, PartWriter, Spool
from fsspeckit.core.rows.store import SharedFolder
from fsspeckit.core.storage import LocalStorage, locate

ROWS = 10


def spooled(folder: Path, parts: int) -> Spool:
    schema = pa.schema([("id", pa.int64()), ("x", pa.string())])
    shape, store = Shape(schema, ("id", "x"), ("id",), ()), SharedFolder(LocalStorage(), str(folder))
    written: list[Part] = []
    for part in range(parts):
        writer, ids = PartWriter(store, shape), range(part * ROWS, (part + 1) * ROWS)
        writer.write(pa.table({"id": ids, "x": [f"row {i}" for i in ids]}, schema))
        written += writer.finish()
    return Spool(shape, store, tuple(written))


def test_rows_of_interleaved_hits_reach_their_places(tmp_path: Path) -> None:
    """Hits come in the order of the target, which is not the order of the source's parts."""
    spool = spooled(tmp_path, 3)
    order, updates = [25, 3, 14, 7, 29, 11, 0], np.full(4, HitAction.UPDATE, dtype=np.int8)
    batches = [
        hit_batch(file, group, np.arange(4), updates, np.array(order[start : start + 4]), spool.offsets)
        for file, group, start in ((0, 0, 0), (0, 1, 1), (1, 0, 3))
    ]
    hits = Hits(spool.store, tuple(write_hits(spool.store, batches)), {"f": 0, "g": 1})
    buckets = {(0, 0): 0, (0, 1): 1, (1, 0): 2}
    sent = dict(files._send(spool, hits, buckets, range(3), None))
    assert sorted(sent) == [0, 1, 2]
    for (file, group), bucket in buckets.items():
        rows = sorted(zip(*(column.to_pylist() for column in sent[bucket].columns), strict=True))
        start = (0, 1, 3)[bucket]
        assert rows == [(file, group, i, 0, order[start + i], f"row {order[start + i]}") for i in range(4)]
        pulled = pull(spool, lambda parts, only: files._send(spool, hits, buckets, parts, only), bucket)
        assert pulled is not None and pulled.num_rows == 4


def test_a_footer_travels_without_its_bulk(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{i}": range(100) for i in range(50)}), tmp_path / "f.parquet", row_group_size=10)
    (footer,) = read_footers(
        locate(str(tmp_path)), [FileInfo("f.parquet", (tmp_path / "f.parquet").stat().st_size, 0)], ["c0"]
    )
    copy = pickle.loads(pickle.dumps(footer))
    assert footer.metadata is not None and copy.metadata is None
    assert (copy.path, copy.rows, copy.schema, copy.row_groups) == (footer.path, 100, footer.schema, footer.row_groups)
