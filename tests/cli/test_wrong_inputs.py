"""Wrong inputs, as people make them: one clear line, the right exit code, the same in JSON, and nothing is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from fsspeckit.cli.commands import cli
from fsspeckit.cli.exit_codes import with_option_names
from support import fingerprint

Call = Callable[..., Result]

# What was typed, the exit code, the type of the error, and words of its message.
WRONG: dict[str, tuple[int, str, str]] = {
    # Usage
    "merge": (2, "UsageError", "Missing argument 'SOURCE...'"),
    "merge new.parquet lake": (2, "UsageError", "Missing option '-k'"),
    "merge new.parquet -k id": (2, "UsageError", "Missing argument"),
    "merge new.parquet lake -k": (2, "UsageError", "requires an argument"),
    "merge new.parquet lake --keys id": (2, "UsageError", "--keys"),
    "merge new.parquet lake -k id --strategy upsrt": (2, "UsageError", "'upsrt' is not one of 'insert'"),
    "merge new.parquet lake -k id --strategy full_merge": (2, "UsageError", "'full_merge' is not one of"),
    "merge new.parquet lake -k id --engine polars": (2, "UsageError", "'polars' is not one of"),
    "merge new.parquet lake -k id --compression zip": (2, "UsageError", "'zip' is not one of"),
    "merge new.parquet lake -k id --lock-timeout soon": (2, "UsageError", "'soon' is not a valid float"),
    "merge new.parquet lake -k id --lock-timeout -1": (2, "UsageError", "-1.0 is not in the range"),
    "merge new.parquet lake -k id --row-group-size 0": (2, "UsageError", "0 is not in the range"),
    "merge new.parquet lake -k id --master local[2]": (2, "UsageError", "add --engine spark"),
    "merge new.parquet lake -k id --engine spark --master locl[2]": (2, "UsageError", "such as local[4]"),
    "merge new.parquet lake -k id --html no/such/page.html": (2, "UsageError", "not a folder that can be written to"),
    "merge new.parquet lake -k id --storage-option region": (2, "UsageError", "give it as key=value"),
    "merge new.parquet - lake -k id": (2, "UsageError", "cannot be combined"),
    "delete lake": (2, "UsageError", "Give the keys of the rows"),
    "delete lake --keys new.parquet": (2, "UsageError", "--keys needs the key columns"),
    "delete lake --where id<3 -k id": (2, "UsageError", "-k has no effect with --where"),
    "inspect": (2, "UsageError", "Missing argument 'TARGET'"),
    "recover lake --finsh": (2, "UsageError", "--finish"),
    # Sources
    "merge nwe.parquet lake -k id": (1, "ArgumentError", "nwe.parquet does not exist"),
    "merge nwe.csv lake -k id": (1, "ArgumentError", "nwe.csv does not exist"),
    "merge nwe*.csv lake -k id": (1, "ArgumentError", "No file matches nwe*.csv"),
    "merge empty lake -k id": (1, "ArgumentError", "empty has no Parquet files"),
    "merge texts lake -k id": (1, "ArgumentError", "give the pattern texts/*.csv"),
    "merge table.xlsx lake -k id": (1, "ArgumentError", "pandas.read_excel"),
    "merge text.parquet lake -k id": (1, "UnreadableFileError", "Cannot read text.parquet"),
    "merge cut.parquet lake -k id": (1, "UnreadableFileError", "cut.parquet"),
    "merge nothing.parquet lake -k id": (1, "UnreadableFileError", "nothing.parquet"),
    "merge semicolons.csv lake -k id": (1, "ArgumentError", "separates columns by ';'"),
    "merge short.csv lake -k id": (1, "ArgumentError", "short.csv, line 3"),
    "merge words.csv lake -k id": (1, "SchemaMismatchError", "words.csv, line 2: column 'id' is int64, and 'one'"),
    "merge nothing.csv lake -k id": (1, "ArgumentError", "nothing.csv has no header"),
    "merge array.json lake -k id": (1, "ArgumentError", "Write one object per line"),
    "merge broken.jsonl lake -k id": (1, "ArgumentError", "broken.jsonl, line 2: not a JSON object"),
    "merge text.arrow lake -k id": (1, "UnreadableFileError", "text.arrow"),
    "merge nope://new lake -k id": (1, "ArgumentError", "Cannot reach nope://new"),
    "merge new.parquet words.parquet lake -k id": (1, "SchemaMismatchError", "id"),
    # Keys and columns
    "merge new.parquet lake -k Id": (1, "ArgumentError", "Did you mean 'id'?"),
    "merge new.parquet lake -k id,id": (1, "ArgumentError", "names a column twice"),
    "merge new.parquet lake -k id,": (2, "UsageError", "'id,' has an empty column name"),
    "merge new.parquet lake -k ,": (2, "UsageError", "',' has an empty column name"),
    "merge new.parquet lake -k id --html lake/page.html": (2, "UsageError", "would be read as a file of the data set"),
    "plan new.parquet lake -k id --html ./lake/month=01/page.html": (2, "UsageError", "in the data set lake"),
    "merge not.csv.gz lake -k id": (1, "UnreadableFileError", "not.csv.gz: it is not gzip, or it is damaged"),
    "merge new.parquet / -k id": (1, "TargetError", "/ is the root of the file system"),
    "compact lake --target-size 128": (1, "ArgumentError", "'128' has no unit. Write 128MB"),
    "merge new.parquet lake -k id --html=": (2, "UsageError", "the name of the file is empty"),
    "merge http://127.0.0.1:1/new.parquet lake -k id": (
        1,
        "UnreadableFileError",
        "Cannot read http://127.0.0.1:1/new.parquet: ",
    ),
    "merge http://127.0.0.1:1/new.csv lake -k id": (
        1,
        "UnreadableFileError",
        "Cannot read http://127.0.0.1:1",
    ),
    "merge nulls.parquet lake -k id": (1, "NullKeyError", "contain NULL values"),
    "merge new.parquet new.parquet lake -k id": (1, "DuplicateKeyError", "201, 202, 900"),
    "merge moved.parquet lake -k id": (1, "PartitionMoveError", "cannot change for existing keys"),
    "merge words.parquet lake -k id": (1, "SchemaMismatchError", "'id' is string in the source and int64"),
    "merge missing.parquet lake -k id": (1, "SchemaMismatchError", "Columns missing from the source: ['name']"),
    "merge extra.parquet lake -k id": (1, "SchemaMismatchError", "the target does not have: ['more']"),
    "merge lists.parquet lists -k id": (1, "MergeValidationError", "id"),
    "merge new.parquet lake -k id -p day": (1, "ArgumentError", "['day']"),
    "merge new.parquet lake -k id --update-column nmae": (1, "ArgumentError", "Did you mean 'name'?"),
    "merge new.parquet lake -k id --update-column id": (1, "ArgumentError", "Keys do not change"),
    "merge new.parquet lake -k id --delete-column op": (1, "ArgumentError", "'op'"),
    "merge new.parquet lake -k id --delete-value D": (1, "ArgumentError", "--delete-value needs --delete-column"),
    "merge new.parquet lake -k id --sequence-by when": (1, "ArgumentError", "'when'"),
    "merge new.parquet lake -k id --on-duplicates latest": (1, "ArgumentError", "--on-duplicates needs --sequence-by"),
    "merge new.parquet lake -k id --source-timezone Mars": (1, "ArgumentError", "Mars"),
    "merge huge.csv lake -k id": (1, "SchemaMismatchError", "huge.csv, line 2: column 'id' is int64"),
    # Targets
    "merge new.parquet laek -k id --must-exist": (1, "TargetError", "Did you mean lake?"),
    "merge new.parquet new.parquet -k id": (1, "TargetError", "new.parquet is a file"),
    "merge new.parquet delta -k id": (1, "TargetError", "Delta Lake table"),
    "merge new.parquet damaged -k id": (1, "UnreadableFileError", "damaged/f.parquet"),
    "merge new.parquet gs://bucket/lake -k id": (1, "ArgumentError", "gs: is not supported"),
    "merge new.parquet s3://bucket -k id": (1, "TargetError", "bucket's root"),
    "delete laek --where id<3": (1, "TargetError", "no data set at laek"),
    "delete lake --where idd<3": (1, "ArgumentError", "'idd'"),
    "delete lake --where id=three": (1, "MergeValidationError", "three"),
    "delete lake --where id": (1, "ArgumentError", "id"),
    "inspect laek": (1, "ArgumentError", "laek does not exist"),
    "inspect lake -k idd": (1, "ArgumentError", "'idd'"),
    "recover laek": (1, "ArgumentError", "laek does not exist"),
    "recover lake --finish --discard": (1, "ArgumentError", "not both"),
    # Plans
    "plan new.parquet lake": (2, "UsageError", "Missing option '-k'"),
    "plan nwe.parquet lake -k id": (1, "ArgumentError", "nwe.parquet does not exist"),
    "plan new.parquet lake -k idd": (1, "ArgumentError", "Did you mean 'id'?"),
    "plan new.parquet lake -k id --dry-run": (2, "UsageError", "--dry-run"),
    "merge new.parquet lake -k id --compare": (2, "UsageError", "--compare is for --dry-run"),
    # Writes
    "write lake": (2, "UsageError", "Missing argument"),
    "write new.parquet lake -k id": (2, "UsageError", "-k is for --mode full_merge"),
    "write new.parquet lake --mode full_merge": (2, "UsageError", "needs the key columns (-k)"),
    "write new.parquet lake --mode replace": (2, "UsageError", "'replace' is not one of 'append'"),
    "write new.parquet lake --mode overwrite": (
        1,
        "ArgumentError",
        "would remove 600 rows of lake. Nothing was changed",
    ),
    "write new.parquet lake --partition month=01": (2, "UsageError", "--partition is for --mode overwrite_partitions"),
    "write new.parquet lake --mode overwrite_partitions --partition month": (
        2,
        "UsageError",
        "of the form column=value",
    ),
    "write new.parquet lake --mode overwrite_partitions --partition moth=02": (1, "ArgumentError", "['moth']"),
    "write new.parquet lake --mode overwrite_partitions --partition month=01 --yes": (
        1,
        "ArgumentError",
        "outside of the partitions that are named",
    ),
    "write new.parquet lake --partition-by name": (1, "ArgumentError", "is partitioned by ['month']"),
    "write new.parquet other --partition-by nmae": (1, "ArgumentError", "Did you mean 'name'?"),
    "merge new.parquet other -k id -p nmae": (1, "ArgumentError", "Partition columns ['nmae'] are not in the source"),
    "write words.parquet lake": (1, "SchemaMismatchError", "'id' is string in the source and int64"),
    "write new.parquet new.parquet": (1, "TargetError", "new.parquet is a file"),
    "write new.parquet delta": (1, "TargetError", "Delta Lake table"),
    "write new.parquet lake --max-rows-per-file many": (2, "UsageError", "'many' is not a valid"),
    # Compaction
    "compact": (2, "UsageError", "Missing argument 'TARGET'"),
    "compact laek": (1, "TargetError", "no data set at laek. Check the path. Did you mean lake?"),
    "compact lake --target-size big": (1, "ArgumentError", "256MB or 1GiB"),
    "compact lake --target-size 0": (1, "ArgumentError", "256MB or 1GiB"),
    "compact lake --sort-by nmae": (1, "ArgumentError", "Did you mean 'name'?"),
    "compact lake --partition month": (2, "UsageError", "the form column=value"),
    "compact lake --partition month=99": (1, "ArgumentError", "no partition {'month': '99'}"),
    "compact damaged": (1, "UnreadableFileError", "damaged/f.parquet"),
    # Commits
    "undo lake": (1, "FsspeckitError", "no commit that can be undone"),
    "undo laek": (1, "TargetError", "Did you mean lake?"),
    "undo new.parquet": (1, "TargetError", "new.parquet is a file"),
    "history laek": (1, "TargetError", "Did you mean lake?"),
    "history new.parquet": (1, "TargetError", "new.parquet is a file"),
    "history lake --keep all": (2, "UsageError", "'all' is not a valid"),
    "history lake --older-than yesterday": (1, "ArgumentError", "'7d', '12h' or '30m'"),
    "recover new.parquet": (1, "TargetError", "new.parquet is a file"),
    "recover lake --forget-stream orders": (1, "ArgumentError", "no stream 'orders'. It has none."),
    "inspect lake -k id,nmae": (1, "ArgumentError", "Did you mean 'name'?"),
    # The installation, and what is no command
    "doctor --engine polars": (2, "UsageError", "'polars' is not one of"),
    "mrege new.parquet lake -k id": (2, "UsageError", "Did you mean 'merge'?"),
}
RAW = re.compile(
    r"Traceback|pyarrow\.|\bArrow(Invalid|TypeError|KeyError|NotImplemented)|duckdb\.|Exception|Errno|KeyError|IndexError"
    r"|<class|object at 0x|Binder Error|Conversion Error|None of|NoneType|magic bytes|metadata bytes|Expecting"
)


@pytest.fixture
def inputs(here: Path) -> Path:
    new = pq.read_table("new.parquet")
    pq.write_table(pa.table({"id": [201], "name": ["A"], "month": ["03"]}), "moved.parquet")
    pq.write_table(pa.table({"id": ["one"], "name": ["A"], "month": ["03"]}), "words.parquet")
    pq.write_table(pa.table({"id": [1, None], "name": ["A", "B"], "month": ["01", "01"]}), "nulls.parquet")
    pq.write_table(new.drop_columns(["name"]), "missing.parquet")
    pq.write_table(new.append_column("more", [[1, 2, 3]]), "extra.parquet")
    pq.write_table(pa.table({"id": [[1]]}), "lists.parquet")
    Path("cut.parquet").write_bytes(Path("new.parquet").read_bytes()[:-10])
    Path("nothing.parquet").touch()
    for name, text in {
        "text.parquet": "not Parquet",
        "text.arrow": "not Arrow",
        "table.xlsx": "PK",
        "texts/a.csv": "id\n1\n",
        "semicolons.csv": "id;name\n1;a\n",
        "short.csv": "id,name,month\n1,a,01\n2,b\n",
        "words.csv": "id,name,month\none,a,01\n",
        "huge.csv": "id,name,month\n99999999999999999999,a,01\n",
        "nothing.csv": "",
        "not.csv.gz": "id\n1\n",
        "array.json": '[\n{"id": 1}\n]\n',
        "broken.jsonl": '{"id": 1, "name": "a", "month": "01"}\n{"id": 2,\n',
        "damaged/f.parquet": "not Parquet",
        "delta/_delta_log/00000.json": "{}",
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    Path("empty").mkdir()
    return here


def test_there_are_many_of_them() -> None:
    assert len(WRONG) >= 60
    commands = {typed.split()[0] for typed in WRONG}
    assert commands >= {
        "merge",
        "plan",
        "delete",
        "write",
        "compact",
        "undo",
        "history",
        "inspect",
        "recover",
        "doctor",
    }


@pytest.mark.parametrize("typed", WRONG)
def test_a_wrong_input_is_one_clear_line(call: Call, inputs: Path, typed: str) -> None:
    code, kind, words = WRONG[typed]
    before = fingerprint(".")
    said = call(*typed.split())
    *usage, line = said.stderr.splitlines()
    assert (said.exit_code, said.stdout) == (code, ""), said.stderr
    assert line.startswith("Error: ") and words in line
    assert not usage or code == 2
    assert len(line) < 300
    assert not RAW.search(line), line
    command, *rest = typed.split()
    told = json.loads(call(command, "--json", *rest).stdout)["error"]
    assert told["exit_code"] == code
    assert f"Error: {told['message']}" == line
    assert told["type"] == kind or (kind == "MergeValidationError" and told["type"].endswith("Error"))
    assert fingerprint(".") == before


REFUSED_MERGES = [typed for typed, (code, *_) in WRONG.items() if code == 1 and typed.startswith("merge")]


@pytest.mark.parametrize("typed", REFUSED_MERGES)
def test_duckdb_says_the_same(call: Call, inputs: Path, typed: str) -> None:
    assert call(*typed.split(), "--engine", "duckdb").stderr == call(*typed.split()).stderr


def test_a_url_that_needs_another_package_names_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(url: str) -> None:
        raise ImportError('HTTPFileSystem requires "requests" and "aiohttp" to be installed')

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    assert call("merge", "https://host/new.csv", "lake", "-k", "id").stderr == (
        "Error: Cannot reach https://host/new.csv: this needs packages that are not installed. Run: pip install "
        "aiohttp requests, or download the file.\n"
    )


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Pass undoable=True, and update_columns.", "Pass --undoable, and --update-column."),
        ("strategy='update' with sequence_by=[…]", "--strategy update with --sequence-by […]"),
        ("Give key_columns=[…].", "Give --key […]."),
        ("Don't: 'on_move' and lake/on_move=1/a", "Don't: 'on_move' and lake/on_move=1/a"),
        ("Call fsspeckit.merge(…, on_move='move').", "Call fsspeckit.merge(…, on_move='move')."),
        ("no_such_option=True", "no_such_option=True"),
    ],
)
def test_messages_of_a_merge_name_options_as_they_are_typed(message: str, shown: str) -> None:
    assert with_option_names(cli.get_command(click.Context(cli), "merge"), message) == shown


def test_a_data_set_with_the_name_of_an_argument_keeps_it(call: Call, inputs: Path) -> None:
    assert call("compact", "target_size").stderr == "Error: There is no data set at target_size. Check the path.\n"


def test_messages_of_a_write_name_its_own_options() -> None:
    message = (
        "Name them as partition_columns for a new data set, or as partitions=[…] with mode='overwrite_partitions'."
    )
    assert with_option_names(cli.get_command(click.Context(cli), "write"), message) == (
        "Name them as --partition-by for a new data set, or as --partition […] with --mode overwrite_partitions."
    )
