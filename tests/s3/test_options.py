"""`storage_options` wherever a path goes, and on the command line, while the environment knows of no store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.cli.commands import cli
from fsspeckit.datasets.pyarrow import merge_parquet_dataset_pyarrow
from s3 import servers
from s3.bucket import Bucket
from s3.servers import BUCKET, KEY, SECRET, Moto

SOURCE = pa.table({"id": [2, 3], "x": ["B", "c"]})
MERGED = {1: "a", 2: "B", 3: "c"}


@pytest.fixture
def options(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    return servers.options(moto.endpoint)


@pytest.fixture
def url(moto_bucket: Bucket, prefix: str) -> str:
    return moto_bucket.write(prefix, {"a.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})})


def by_id(table: pa.Table) -> dict[int, str]:
    return {row["id"]: row["x"] for row in table.to_pylist()}


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_the_front_door(options: dict[str, Any], url: str, moto_bucket: Bucket, prefix: str, name: Any) -> None:
    """Target and source lie in the store; `s3a://` means the same."""
    source = moto_bucket.write(f"{prefix}-source", {"new.parquet": SOURCE}).replace("s3://", "s3a://")
    for path in (source, f"{source}/new.parquet", [source]):
        planned = fsspeckit.plan(path, url, key_columns="id", engine=name, storage_options=options)
        assert (planned.updated, planned.inserted) == (1, 1)
    result = fsspeckit.merge(source, url, key_columns="id", engine=name, storage_options=options)
    assert (result.updated, result.inserted) == (1, 1)
    assert by_id(fsspeckit.read(url, engine=name, storage_options=options)) == MERGED
    assert fsspeckit.inspect(url, "id", storage_options=options).keys["id"].upper == "3"
    assert fsspeckit.recover(url, storage_options=options) == []
    assert dataset_io(name, storage_options=options).write_dataset(SOURCE, url).rows == 2
    anonymous = {name: value for name, value in options.items() if not name.endswith(("key", "key_id"))}
    with pytest.raises(fsspeckit.StorageError, match="No credentials for s3://"):
        fsspeckit.read(url, engine=name, storage_options=anonymous)


def test_the_function_of_the_spec(options: dict[str, Any], url: str) -> None:
    result: Any = merge_parquet_dataset_pyarrow(SOURCE, url, "upsert", ["id"], storage_options=options)
    assert (result.updated, result.inserted) == (1, 1)


def run(options: dict[str, Any], *arguments: str) -> Result:
    given = [f"--storage-option={name}={value}" for name, value in options.items()]
    return CliRunner().invoke(cli, [*arguments, *given], catch_exceptions=False, prog_name="fsspeckit")


def test_the_command_line(options: dict[str, Any], url: str, tmp_path: Path, moto_bucket: Bucket, prefix: str) -> None:
    pq.write_table(SOURCE, tmp_path / "new.parquet")
    new = str(tmp_path / "new.parquet")
    runs = [
        run(options, "plan", new, url, "-k", "id", "--json"),
        run(options, "merge", new, url, "-k", "id", "--json", "--html", str(tmp_path / "page.html")),
        run(options, "inspect", url, "-k", "id", "--json"),
        run(options, "recover", url, "--json"),
        run(options, "merge", f"s3://{BUCKET}/{prefix}", f"{url}-copy", "-k", "id", "--engine", "duckdb"),
    ]
    assert [done.exit_code for done in runs] == [0] * 5
    plan, merged, inspected, recovered = (json.loads(done.stdout) for done in runs[:4])
    assert (plan["updated"], merged["updated"], merged["inserted"], inspected["rows"]) == (1, 1, 1, 3)
    assert (recovered["target"], recovered["done"]) == (url, [])
    assert len(moto_bucket.rows(f"{prefix}-copy")) == 3
    page = (tmp_path / "page.html").read_text()
    assert "1 … 2" in page and "Not on the map are 1 of 2 files: their footers were not read again." in page
    everything = "".join(done.output for done in runs) + page
    assert SECRET not in everything and KEY not in everything


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"secret_access_key": "a-secret"}, 1, "access_key_id and secret_access_key together"),
        ({"allow_http": "a-secret"}, 1, "allow_http is true or false"),
        ({"lease": "a-secret"}, 1, "number of seconds"),
        ({"endpoint": "a-secret"}, 1, "endpoint is not a URL"),
        ({"sekret": "a-secret"}, 1, "Unknown storage option 'sekret'"),
        ({"": "a-secret"}, 2, "give it as key=value"),
    ],
)
@pytest.mark.parametrize("command", ["merge", "inspect", "recover"])
def test_refusals_show_no_value(given: dict[str, str], code: int, words: str, command: str, tmp_path: Path) -> None:
    pq.write_table(SOURCE, tmp_path / "new.parquet")
    sources = [str(tmp_path / "new.parquet")] if command == "merge" else []
    done = run(given, command, *sources, "s3://b/lake", *(["-k", "id"] if command == "merge" else []))
    assert (done.exit_code, "a-secret" in done.output) == (code, False)
    assert words in " ".join(done.stderr.split())


def test_an_option_without_a_name() -> None:
    done = CliRunner().invoke(cli, ["inspect", "s3://b/lake", "--storage-option", "a-secret"], prog_name="fsspeckit")
    assert (done.exit_code, "a-secret" in done.output) == (2, False)
