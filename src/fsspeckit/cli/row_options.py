"""Options about single rows and about schema changes."""

from __future__ import annotations

import click

from fsspeckit.cli.columns import columns_option, list_or_none

on_move_option = click.option(
    "--on-move",
    type=click.Choice(("refuse", "move")),
    help="If a key is already in another partition: refuse the merge (default), or move the row.",
)
ROW_OPTIONS = [
    click.option(
        "--small-files",
        type=click.Choice(("new", "append")),
        help="Put new rows into new files (the default), or append them to a small file of their partition.",
    ),
    click.option(
        "--delete-column", metavar="COLUMN", help="A column of SOURCE that marks rows to delete. It is not stored."
    ),
    click.option(
        "--delete-value",
        "delete_values",
        metavar="VALUE",
        multiple=True,
        callback=list_or_none,
        help="A value of --delete-column that means delete, e.g. D. May be repeated. Not needed if the column is "
        "Boolean.",
    ),
    columns_option(
        "--sequence-by",
        help="The columns that order the changes of a key, e.g. updated_at. An older row never replaces a newer one.",
    ),
    click.option(
        "--on-duplicates",
        type=click.Choice(("refuse", "latest")),
        help="If SOURCE has several rows for one key: refuse the merge (default), or keep the latest by --sequence-by.",
    ),
    columns_option("--update-column", "update_columns", help="Update only these columns of existing rows."),
    columns_option("--exclude-column", "exclude_columns", help="Update all columns of existing rows except these."),
    click.option(
        "--delete-missing",
        type=click.Choice(("all", "partitions")),
        help="Delete rows of TARGET whose key is not in SOURCE: all of them, or only those in partitions for which "
        "SOURCE has rows.",
    ),
    on_move_option,
]
SCHEMA_OPTIONS = [
    click.option(
        "--on-schema-change",
        type=click.Choice(("refuse", "evolve")),
        help="What to do about columns that only the source has and numbers that do not fit: refuse them (the "
        "default), or add the columns and widen the types.",
    ),
    click.option(
        "--evolve-files",
        type=click.Choice(("all", "touched")),
        help="Which files get a new column: all (the default), or only those with changed rows.",
    ),
    click.option(
        "--evolve-max-bytes",
        type=click.IntRange(0),
        metavar="BYTES",
        help="How many bytes of files without a changed row a schema change may rewrite. Default: 100 GB.",
    ),
]
