"""Layouts of existing files, to write others like them, and whether they hold what is to be written."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.errors import LayoutError
from fsspeckit.core.model import Footer
from fsspeckit.core.rewrite.layout import Layout
from fsspeckit.core.storage import Location
from fsspeckit.core.target import thrift
from fsspeckit.core.target.footers import checked_footer, open_parquet, raw_footer, reading
from fsspeckit.core.values import arrays


def model_layout(location: Location, footer: Footer, *, loose: bool = False) -> Layout:
    """The layout of an existing file, to write another one like it; `loose` as of `Layout.like`."""
    return _layout_of(_Model(raw_footer(location, footer.path), loose, location, footer))


@dataclass(frozen=True, slots=True)
class _Model:
    """A raw footer, and the file that it was read from: others of the same bytes are the same."""

    raw: bytes
    loose: bool
    location: Location = field(compare=False)
    footer: Footer = field(compare=False)


@lru_cache(maxsize=4)
def _layout_of(model: _Model) -> Layout:
    """Merges into one data set take the same file as their model, again and again."""
    location, footer = model.location, model.footer
    if footer.metadata is None:
        with open_parquet(location, footer.path) as file:
            footer = replace(footer, metadata=file.metadata)
    assert footer.metadata is not None
    fields = checked_footer(location, footer.path, model.raw, footer.metadata)
    return own_layout(location, footer, fields, model.loose and footer.by_spark)


def own_layout(location: Location, footer: Footer, fields: thrift.Whole, loose: bool) -> Layout:
    """The layout of a file whose raw footer, decoded, is `fields`; `loose` as of `Layout.like`, if that can be."""
    with reading(location, footer.path):
        if loose:
            with contextlib.suppress(LayoutError):  # elements of lists in Spark's legacy format cannot be null
                return Layout.like(footer, fields, loose=True)
        return Layout.like(footer, fields)


def column_fits(column: pa.ChunkedArray, own: pa.Field | None) -> bool:
    """Can a file that has this field, or does not, store these values?"""
    if own is None:
        return bool(column.null_count == len(column))
    if column.null_count and not own.nullable:
        return False
    try:
        arrays.cast(column, own.type)
    except arrays.DoesNotFit:
        return False
    return True


def takes_all(own: pa.Schema, unified: pa.Schema) -> bool:
    """Does a layout of these columns take every row of the unified schema?"""
    fields = {f.name: f for f in own}
    return all(
        f.name in fields and f.type == fields[f.name].type and (fields[f.name].nullable or not f.nullable)
        for f in unified
    )


def codec_of(metadata: pq.FileMetaData) -> str:
    codec = metadata.row_group(0).column(0).compression.lower() if metadata.num_row_groups else "snappy"
    return "none" if codec == "uncompressed" else codec.replace("_raw", "")
