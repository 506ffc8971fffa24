"""A look at a bucket, and lakes in it, that does not go through the code under test."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from s3.servers import BUCKET


class Bucket:
    def __init__(self, client: Any, name: str = BUCKET) -> None:
        self.client, self.name = client, name

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def etags(self, prefix: str) -> dict[str, str]:
        """Keys and ETags below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return {o["Key"]: o["ETag"] for page in pages for o in page.get("Contents", ())}

    def uploads(self, prefix: str) -> list[str]:
        answer = self.client.list_multipart_uploads(Bucket=self.name, Prefix=prefix)
        return [upload["Key"] for upload in answer.get("Uploads") or ()]

    def write(self, prefix: str, files: Mapping[str, pa.Table], **options: Any) -> str:
        for name, table in files.items():
            sink = io.BytesIO()
            pq.write_table(table, sink, **options)
            self.put(f"{prefix}/{name}", sink.getvalue())
        return f"s3://{self.name}/{prefix}"

    def rows(self, prefix: str) -> list[dict[str, Any]]:
        keys = [key for key in self.etags(f"{prefix}/") if key.endswith(".parquet")]
        return [row for key in keys for row in pq.ParquetFile(io.BytesIO(self.get(key))).read().to_pylist()]

    def litter(self, lake: str) -> list[str]:
        """What is of ours beside or in a lake at rest, its head left out, and uploads that are pending."""
        folder, _, name = lake.rpartition("/")
        keys = [k for k in self.etags(f"{folder}/.fsspeckit-{name}/") if not k.endswith("/head")]
        keys += [k for k in self.etags(f"{lake}/") if not k.endswith(".parquet")]
        return keys + self.uploads(f"{lake}/")


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)
