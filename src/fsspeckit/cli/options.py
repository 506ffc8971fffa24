"""The options of the commands that change a data set."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, get_args

import click

from fsspeckit.cli.columns import key_option, split_columns
from fsspeckit.cli.row_options import ROW_OPTIONS, SCHEMA_OPTIONS
from fsspeckit.cli.watching import quiet_option, watching
from fsspeckit.core import defaults
from fsspeckit.datasets.options import DeleteOptions, EngineName, MergeOptions, PlanOptions, Strategy

if TYPE_CHECKING:
    from fsspeckit.core.progress import OnProgress
    from fsspeckit.datasets.io import DatasetIO

ENGINES = get_args(EngineName)


@dataclass(frozen=True, kw_only=True)
class Command:
    """What all commands that change a data set have: the target, the engine, and the form of the report."""

    target: str
    engine: str
    master: str | None
    conf: dict[str, str]
    storage_options: dict[str, str] = field(repr=False)
    as_json: bool
    quiet: bool
    html: str | None = None

    def __post_init__(self) -> None:
        check_page_outside(self.html, self.target)

    def watching(self, done: str | None = None) -> contextlib.AbstractContextManager[OnProgress]:
        """The `on_progress` of an operation; `done` is what Ctrl-C says after it, if it changes something."""
        return watching(done, quiet=self.quiet, as_json=self.as_json)

    def dataset_io(self) -> DatasetIO[Any]:
        return open_engine(self.engine, self.master, self.conf, self.storage_options)


@dataclass(frozen=True, kw_only=True)
class MergeCommand(Command):
    """A merge as the command line describes it; `options` are those of `DatasetIO.merge`."""

    sources: tuple[str, ...]
    keys: tuple[str, ...]
    strategy: Strategy
    partitions: tuple[str, ...]
    options: MergeOptions

    @property
    def positional(self) -> tuple[Strategy, list[str], list[str] | None]:
        """Strategy, key columns and partition columns, as `DatasetIO` takes them."""
        return self.strategy, list(self.keys), list(self.partitions) or None

    @property
    def plan_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name in PlanOptions.__optional_keys__}


_MASTERS = ("local", "spark://", "k8s://", "sc://", "mesos://")


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
    if master is not None and master != "yarn" and not master.startswith(_MASTERS):
        raise click.UsageError(f"--master {master!r} is no Spark master, such as local[4], spark://host:7077 or yarn.")
    if not (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        check_java()
    io = dataset_io("spark", **options)
    if not (master or conf):
        return io
    from fsspeckit.datasets.spark import start_session

    return dataset_io("spark", spark=start_session(master, dict(conf or {})), **options)


def wrong_pair(values: Sequence[str]) -> str | None:
    """The first value that is not of the form key=value."""
    return next((value for value in values if "=" not in value.strip("=")), None)


def pairs(values: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in values)}


def check_java() -> None:
    """Without Java, Spark would fail with a long traceback."""
    from fsspeckit.core.errors import ArgumentError

    home = os.environ.get("JAVA_HOME")
    if not (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)) and shutil.which("java") is None:
        raise ArgumentError("The spark engine needs Java 17 or newer. Install it, or set JAVA_HOME.")


def _spark_settings(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    wrong = wrong_pair(values)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not of the form key=value.")
    return pairs(values)


def _storage_options(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The message shows no value, because it may be a secret."""
    if wrong_pair(values) is not None:
        raise click.BadParameter("give it as key=value, e.g. region=eu-west-1.")
    return pairs(values)


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
    help="How long to wait for another writer to finish.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the report, or the error, as one JSON document."
)
undoable_option = click.option(
    "--undoable",
    is_flag=True,
    help="Keep the files that are replaced or removed, so that `fsspeckit undo` can put them back.",
)


def _check_html(ctx: click.Context, parameter: click.Parameter, file: str | None) -> str | None:
    """Check before the merge. An error after the merge would look as if the merge had failed."""
    if file == "":
        raise click.BadParameter("the name of the file is empty.")
    if file is not None and not os.access(os.path.dirname(file) or ".", os.W_OK):
        raise click.BadParameter(f"{os.path.dirname(file) or '.'!r} is not a folder that can be written to.")
    return file


def check_page_outside(file: str | None, target: str) -> None:
    """A page among the files of a data set breaks readers that open every file of a folder."""
    if file is None or not target or "://" in target:
        return
    folder = os.path.realpath(os.path.expanduser(target))
    if os.path.realpath(file).startswith(os.path.join(folder, "")):
        raise click.UsageError(
            f"--html {file} is in the data set {target}, where it would be read as a file of the data set. Name a file "
            "outside of it."
        )


ENGINE_OPTIONS = [
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="pyarrow",
        show_default=True,
        help="Execution engine.",
    ),
    click.option("--master", metavar="URL", help="Spark master, e.g. local[4] or spark://host:7077."),
    click.option(
        "--conf",
        metavar="K=V",
        multiple=True,
        callback=_spark_settings,
        help="A Spark configuration property. May be repeated.",
    ),
    storage_option,
]
NEW_FILE_OPTIONS = [
    click.option(
        "--compression",
        type=click.Choice(defaults.CODECS),
        help="Compression of new files. Default: that of the data set, or snappy in a new one.",
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
        help="Maximum number of rows in a row group of a new file. Default: as in the data set's files that have "
        "several row groups, or else 500,000.",
    ),
]
TIMEZONE_OPTIONS = [
    click.option(
        "--partition-timezone",
        metavar="ZONE",
        help="Time zone of timestamps in the names of partition folders. Default: UTC; with Spark, the session's.",
    ),
    click.option(
        "--source-timezone",
        metavar="ZONE",
        help="Time zone of SOURCE timestamps that do not have one, if those of TARGET do.",
    ),
]
REWRITE_OPTIONS = [
    click.option(
        "--replace",
        type=click.Choice(("in_place", "new_file")),
        help="Keep the names of rewritten files, or give them new ones. Default: in_place; new_file with Spark and on "
        "s3://.",
    ),
    lock_timeout_option,
    click.option("--commit-log", metavar="FILE", help="Append one JSON line about the commit to this file."),
    undoable_option,
    *TIMEZONE_OPTIONS,
]
html_option = click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    callback=_check_html,
    help="Also save the report as a web page.",
)
REPORT_OPTIONS = [quiet_option, json_option, html_option]


_MERGE_OPTIONS = [
    click.argument("sources", metavar="SOURCE...", nargs=-1, required=True),
    click.argument("target"),
    key_option(required=True),
    click.option(
        "-s",
        "--strategy",
        type=click.Choice(get_args(Strategy)),
        default="upsert",
        show_default=True,
        help="insert adds rows whose key is new; update replaces rows whose key exists; upsert does both; delete "
        "removes the rows whose key is in SOURCE.",
    ),
    click.option(
        "-p",
        "--partition",
        "partitions",
        metavar="COLUMNS",
        multiple=True,
        callback=split_columns,
        help="The partition columns of a new data set. Those of an existing one are detected.",
    ),
    click.option(
        "--must-exist",
        is_flag=True,
        default=None,
        help="Refuse a TARGET that does not exist. Without this option it is created.",
    ),
    *ROW_OPTIONS,
    *SCHEMA_OPTIONS,
    *ENGINE_OPTIONS,
    *NEW_FILE_OPTIONS,
    *REWRITE_OPTIONS,
    *REPORT_OPTIONS,
]
_DELETE_OPTIONS = [
    click.argument("target"),
    click.option(
        "--keys",
        "sources",
        metavar="FILE",
        multiple=True,
        help="A file, pattern or folder with the keys of the rows to delete, or - for standard input. Other columns "
        "are ignored. May be repeated.",
    ),
    key_option(),
    click.option(
        "--where",
        metavar="CONDITION",
        multiple=True,
        help="Delete the rows that meet this condition, e.g. 'day < 2025-01-01'. If repeated, all conditions must "
        "hold. Values are numbers, ISO dates or text.",
    ),
    *ENGINE_OPTIONS,
    *REWRITE_OPTIONS,
    *REPORT_OPTIONS,
]


def add_options(options: list[Any], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class DeleteCommand(Command):
    """A delete as the command line describes it; `options` are those of `DatasetIO.delete`."""

    sources: tuple[str, ...]
    keys: tuple[str, ...]
    where: tuple[str, ...]
    options: DeleteOptions

    def arguments(self) -> dict[str, Any]:
        """The arguments of `DatasetIO.delete` and `plan_delete`."""
        from fsspeckit.cli.sources import read_sources
        from fsspeckit.core.match.filter_text import parse_conditions

        if bool(self.sources) == bool(self.where):
            raise click.UsageError("Give the keys of the rows (--keys FILE -k COLUMN) or a condition (--where).")
        if self.where:
            if self.keys:
                raise click.UsageError("-k has no effect with --where; leave it out.")
            return {"filters": parse_conditions(self.where), **self.options}
        if not self.keys:
            raise click.UsageError("--keys needs the key columns (-k).")
        source = read_sources(self.sources, self.storage_options)
        return {"keys": source, "key_columns": list(self.keys), **self.options}


def delete_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a delete to a command, which gets them as one `DeleteCommand`."""
    return add_options(_DELETE_OPTIONS, gathered(command, DeleteCommand, DeleteOptions))


def merge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a merge to a command, which gets them as one `MergeCommand`."""
    return add_options(_MERGE_OPTIONS, gathered(command, MergeCommand, MergeOptions))


def gathered(
    command: Callable[..., Any], command_type: type[Any], option_type: Any, skip: Collection[str] = ()
) -> Callable[..., Any]:
    """Gather the parameters of a command into one `kind`; those of `option_type`, without `skip`, are its options."""

    @wraps(command)
    def with_command(**parameters: Any) -> Any:
        names = sorted(option_type.__optional_keys__ & parameters.keys() - set(skip))
        options = {name: value for name in names if (value := parameters.pop(name)) is not None}
        arguments = {
            name: parameters.pop(name) for name in sorted(command_type.__dataclass_fields__.keys() & parameters.keys())
        }
        return command(command_type(options=options, **arguments), **parameters)

    return with_command
