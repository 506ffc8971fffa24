"""The options that `merge` and `plan` share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from fsspeckit.core import defaults
from fsspeckit.datasets.options import EngineName, MergeOptions, Strategy

if TYPE_CHECKING:
    from fsspeckit.datasets.io import DatasetIO

ENGINES = get_args(EngineName)


@dataclass(frozen=True, kw_only=True)
class MergeCommand:
    """A merge as the command line describes it; `options` are those of `DatasetIO.merge`."""

    sources: tuple[str, ...]
    target: str
    keys: tuple[str, ...]
    strategy: Strategy
    partitions: tuple[str, ...]
    engine: str
    master: str | None
    conf: dict[str, str]
    storage_options: dict[str, str] = field(repr=False)
    options: MergeOptions
    as_json: bool
    html: str | None

    @property
    def positional(self) -> tuple[Strategy, list[str], list[str] | None]:
        """Strategy, key columns and partition columns, as `DatasetIO` takes them."""
        return self.strategy, list(self.keys), list(self.partitions) or None

    def dataset_io(self) -> DatasetIO[Any]:
        return open_engine(self.engine, self.master, self.conf, self.storage_options)


def open_engine(
    engine: str,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DatasetIO[Any]:
    """The engine's `DatasetIO`; Spark gets a session on `master` with the settings `conf`."""
    from fsspeckit.api import dataset_io

    options: dict[str, Any] = {"storage_options": storage_options or None}
    if engine != "spark":
        if master or conf:
            raise click.UsageError("--master and --conf are Spark's; add --engine spark.")
        return dataset_io(engine, **options)
    if not (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        check_java()
    io = dataset_io("spark", **options)
    if not (master or conf):
        return io
    from fsspeckit.datasets.spark import start_session

    return dataset_io("spark", spark=start_session(master, dict(conf or {})), **options)


def _pair(setting: str) -> tuple[str, str]:
    name, _, value = setting.partition("=")
    return name, value


def check_java() -> None:
    """Without Java, Spark would fail with a long traceback."""
    from fsspeckit.core.errors import ArgumentError

    home = os.environ.get("JAVA_HOME")
    if not (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)) and shutil.which("java") is None:
        raise ArgumentError("The spark engine needs Java 17 or newer. Install it, or set JAVA_HOME.")


def _spark_settings(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value.strip("="):
            raise click.BadParameter(f"{value!r} is not of the form key=value.")
    return dict(_pair(value) for value in values)


def _storage_options(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The message shows no value, because it may be a secret."""
    if any("=" not in value.strip("=") for value in values):
        raise click.BadParameter("give it as key=value, e.g. region=eu-west-1.")
    return dict(_pair(value) for value in values)


storage_option = click.option(
    "--storage-option",
    "storage_options",
    metavar="K=V",
    multiple=True,
    callback=_storage_options,
    help="How to reach s3:// paths, in addition to the AWS environment: endpoint, region, access_key_id, "
    "secret_access_key, profile, allow_http and others. May be repeated. Other users of this machine can see it.",
)


lock_timeout_option = click.option(
    "--lock-timeout",
    type=click.FloatRange(0),
    default=defaults.LOCK_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another writer.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")


def _check_html(ctx: click.Context, parameter: click.Parameter, file: str | None) -> str | None:
    """Check before the merge. An error after the merge would look as if the merge had failed."""
    if file is not None and not os.access(os.path.dirname(file) or ".", os.W_OK):
        raise click.BadParameter(f"{os.path.dirname(file) or '.'!r} is not a folder that can be written to.")
    return file


_OPTIONS = [
    click.argument("sources", metavar="SOURCE...", nargs=-1, required=True),
    click.argument("target"),
    click.option("-k", "--key", "keys", multiple=True, required=True, help="A key column; repeat for composite keys."),
    click.option(
        "-s",
        "--strategy",
        type=click.Choice(get_args(Strategy)),
        default="upsert",
        show_default=True,
        help="insert adds rows with new keys, update replaces rows with existing keys, upsert does both.",
    ),
    click.option(
        "-p",
        "--partition",
        "partitions",
        multiple=True,
        help="A partition column of a new data set. Existing partitions are detected from the paths.",
    ),
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="pyarrow",
        show_default=True,
        help="The engine that runs the merge.",
    ),
    click.option("--master", metavar="URL", help="Spark's master, e.g. local[4] or spark://host:7077."),
    click.option(
        "--conf", metavar="K=V", multiple=True, callback=_spark_settings, help="A Spark setting; may be repeated."
    ),
    storage_option,
    click.option(
        "--compression",
        type=click.Choice(defaults.CODECS),
        default=defaults.COMPRESSION,
        show_default=True,
        help="Codec of new files.",
    ),
    click.option(
        "--max-rows-per-file",
        type=click.IntRange(1),
        default=defaults.MAX_ROWS_PER_FILE,
        show_default=True,
        help="Maximum number of rows in a new file.",
    ),
    click.option(
        "--row-group-size",
        type=click.IntRange(1),
        default=defaults.ROW_GROUP_SIZE,
        show_default=True,
        help="Maximum number of rows in a row group of a new file.",
    ),
    click.option(
        "--replace",
        type=click.Choice(("in_place", "new_file")),
        help="Whether rewritten files keep their names. The default is in_place; under Spark and on s3:// new_file.",
    ),
    lock_timeout_option,
    click.option(
        "--partition-timezone",
        metavar="ZONE",
        help="Time zone of timestamps in partition folder names. Default: UTC, under Spark the session's zone.",
    ),
    click.option(
        "--source-timezone",
        metavar="ZONE",
        help="Time zone of source timestamps that have none, if the target's timestamps have one.",
    ),
    json_option,
    click.option(
        "--html",
        metavar="FILE",
        type=click.Path(dir_okay=False, writable=True),
        callback=_check_html,
        help="Also write the report as a web page.",
    ),
]


def merge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command, which gets them as one `MergeCommand`."""

    @wraps(command)
    def with_merge_command(**parameters: Any) -> Any:
        options = {name: parameters.pop(name) for name in sorted(MergeOptions.__optional_keys__ & parameters.keys())}
        fields = MergeCommand.__dataclass_fields__.keys() & parameters.keys()
        arguments = {name: parameters.pop(name) for name in sorted(fields)}
        return command(MergeCommand(options=cast(MergeOptions, options), **arguments), **parameters)

    wrapped: Callable[..., Any] = with_merge_command
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
