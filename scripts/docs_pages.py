"""Gather the pages of the web site in a folder, for MkDocs: docs/, README, the changelog, examples and the reference.

    python scripts/docs_pages.py build/docs

Pages link to each other as files of the repository, so that they work where the repository is read. Here these links
become links between pages. The reference is written from docstrings, the command line and the JSON Schema.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import Any

import click

import fsspeckit
from fsspeckit.cli.commands import cli

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "docs/fsspeckit.schema.json"
RENAMED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "docs/decisions/README.md": "decisions/index.md",
}
ENGINES = ["PyArrowDatasetIO", "DuckDBDatasetIO", "SparkDatasetIO"]
LINK = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")([^)#\"\s]+)")
NO_PAGE = re.compile(r"\[([^\]]+)\]\(NO_PAGE[^)]*\)")


def sources() -> dict[str, str]:
    """Paths in the site by paths in the repository."""
    docs = [file for file in (ROOT / "docs").rglob("*") if file.is_file()]
    found = {str(file.relative_to(ROOT)): str(file.relative_to(ROOT / "docs")) for file in docs}
    examples = {f"examples/{file.name}": f"examples/{file.stem}.md" for file in (ROOT / "examples").glob("*.py")}
    charts = {f"benchmarks/{file.name}": f"images/{file.name}" for file in (ROOT / "benchmarks").glob("*.svg")}
    return {**found, **examples, **charts, **RENAMED}


def relinked(text: str, source: str, pages: Mapping[str, str]) -> str:
    """With links between pages. A link to a file that is no page, such as a module, becomes its text."""
    folder, here = posixpath.dirname(source), posixpath.dirname(pages[source])

    def moved(link: re.Match[str]) -> str:
        if re.match(r"\w+:|mailto", link[2]):
            return link[0]
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[1] + (posixpath.relpath(pages[target], here or ".") if target in pages else "NO_PAGE")

    return NO_PAGE.sub(r"\1", LINK.sub(moved, text))


def example_page(file: Path) -> str:
    """The docstring of a script as text, and the script."""
    code = file.read_text(encoding="utf-8")
    first = code.removeprefix('"""').partition("\n")[0].rstrip('"').rstrip(".")
    return f"# {first}\n\n`examples/{file.name}`, which a test runs:\n\n```python\n{code}```\n"


def entries(lines: list[str]) -> Iterator[str]:
    """List items for the lines below `Args:` or `Raises:`, of which deeper ones continue an entry."""
    for line in lines:
        name, _, text = line.strip().partition(": ")
        if line.startswith("     ") or not text:
            yield f"    {line.strip()}"
        else:
            yield f"- `{name}`: {text}"


def as_markdown(docstring: str) -> Iterator[str]:
    """Paragraphs, with doctests as code and sections as lists."""
    for paragraph in docstring.split("\n\n"):
        lines = paragraph.splitlines()
        if lines[0].startswith(">>>"):
            yield from ["```pycon", *lines, "```"]
        elif lines[0] in ("Args:", "Raises:"):
            yield from ["**Arguments**" if lines[0] == "Args:" else "**Raises**", "", *entries(lines[1:])]
        else:
            yield from lines
        yield ""


def signature(name: str, item: Any) -> list[str]:
    """A call in code, a line per parameter if it is long; types are in the docstring's words."""
    parameters = [p.replace(annotation=Parameter.empty) for p in inspect.signature(item).parameters.values()]
    parts = [str(parameter) for parameter in parameters if parameter.name != "self"]
    keyword_only = [str(parameter) for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY]
    if keyword_only:
        parts.insert(parts.index(keyword_only[0]), "*")
    call = f"{name}({', '.join(parts)})"
    if len(call) > 88:
        call = "\n    ".join([f"{name}(", *[f"{part}," for part in parts]]) + "\n)"
    return ["```python", call, "```", ""]


def methods(item: type) -> list[str]:
    """Public methods with a docstring. Those that all engines have are listed with the first one."""
    known = set(vars(item)) if item.__name__ != ENGINES[0] else set(dir(item)) - {"request"}
    found = inspect.getmembers(item, inspect.isfunction)
    return [name for name, method in found if name in known and method.__doc__ and not name.startswith("_")]


def described(name: str, item: Any) -> list[str]:
    engine = name in ENGINES
    lines = [f"### {name}", ""]
    if inspect.isfunction(item) or engine:
        lines += signature(name, item)
    lines += as_markdown(inspect.getdoc(item) or "")
    if engine and name != ENGINES[0]:
        lines += [f"It has all methods of `{ENGINES[0]}`, of which these differ:", ""]
    if is_dataclass(item):
        lines += ["Fields: " + ", ".join(f"`{field.name}`" for field in fields(item)) + ".", ""]
    for method in methods(item) if engine else ():
        lines += [f"#### {method}", "", *signature(method, getattr(item, method))]
        lines += as_markdown(inspect.getdoc(getattr(item, method)) or "")
    return lines


def python_reference() -> str:
    """Functions, engines, results and errors of the package, from their docstrings."""
    names = fsspeckit.__all__
    functions = [name for name in names if name.islower()]
    errors = [name for name in names if name.endswith("Error")]
    reports = [name for name in names if is_dataclass(getattr(fsspeckit, name))]
    parts = {"Functions": functions, "Engines": ENGINES, "Plans and results": reports, "Errors": errors}
    lines = ["# Python", "", "All names are imported from `fsspeckit`.", ""]
    for title, members in parts.items():
        lines += [f"## {title}", ""]
        for name in members:
            lines += described(name, getattr(fsspeckit, name))
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text in a table: angle brackets and bars as they are."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def command_reference() -> str:
    lines = ["# Command line", "", f"{cli.help}", "", "See also [exit codes and JSON](../command-line.md).", ""]
    for name, command in sorted(cli.commands.items()):
        context = click.Context(command, info_name=f"fsspeckit {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        text = re.sub(r"(?<!`)--[\w-]+", r"`\g<0>`", command.help or "").replace("\b\n", "")
        lines += [f"## {name}", "", f"    fsspeckit {name} {usage}", "", text, ""]
        options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
        records = [record for option in options if (record := option.get_help_record(context))]
        lines += [f"- `{option}`: {' '.join(about.split())}" for option, about in records]
        lines.append("")
    return "\n".join(lines)


def type_of(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "anyOf" in field or "oneOf" in field:
        return " or ".join(type_of(option) for option in field.get("anyOf") or field["oneOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {type_of(field.get('items', {}))}"
    kinds = field.get("type", "any value")
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)


def json_reference() -> str:
    schema = json.loads((ROOT / SCHEMA).read_text(encoding="utf-8"))
    lines = [
        "# JSON",
        "",
        f"{schema['description']} The schema: [fsspeckit.schema.json](../fsspeckit.schema.json).",
        "",
    ]
    first = [option["$ref"].rpartition("/")[2] for option in schema["oneOf"]]
    for name in dict.fromkeys([*first, *schema["$defs"]]):
        document = schema["$defs"][name]
        lines += [f"## {name}", "", f"{document.get('description', '')}", "", "| field | type | |", "|---|---|---|"]
        fields = document.get("properties", {}).items()
        lines += [f"| `{key}` | {type_of(field)} | {cell(field.get('description', ''))} |" for key, field in fields]
        lines.append("")
    return "\n".join(lines)


def pages() -> Iterator[tuple[str, str | bytes]]:
    """Paths in the site, and what is there."""
    everything = sources()
    for source, target in everything.items():
        file = ROOT / source
        if file.suffix == ".md":
            yield target, relinked(file.read_text(encoding="utf-8"), source, everything)
        elif file.suffix == ".py":
            yield target, relinked(example_page(file), source, everything)
        else:
            yield target, file.read_bytes()
    yield "reference/python.md", python_reference()
    yield "reference/commands.md", command_reference()
    yield "reference/json.md", json_reference()


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in pages():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
