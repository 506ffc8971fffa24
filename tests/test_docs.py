"""The pages of the web site: all are in its navigation, their links lead somewhere, and the reference is complete.

`make docs` builds the site; this needs no MkDocs.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
import types
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

import fsspeckit
from fsspeckit.cli.commands import cli

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def builder() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "scripts/docs_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(builder: types.ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site")
    builder.write(folder)
    return folder


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def broken(site: Path) -> list[str]:
    found = []
    for page in site.rglob("*.md"):
        text = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
        links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text)
        for link in links:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if link.startswith("https://"):
                continue
            if not target.is_file() or (anchor and anchor not in anchors(target)):
                found.append(f"{page.relative_to(site)}: {link}")
    return found


def test_links_of_the_site(site: Path) -> None:
    assert len(list(site.rglob("*.md"))) > 60
    assert broken(site) == []


def test_links_of_the_repository() -> None:
    """The same pages, where the repository is read."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())]
    links = [(page, link) for page, link in links if not link.startswith("https://")]
    assert len(links) > 100
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_navigation(site: Path) -> None:
    """Decisions and examples are found from their indexes."""
    named = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {posixpath.normpath(page.relative_to(site)) for page in site.rglob("*.md")}
    assert [page for page in named if page not in pages] == []
    assert len(set(named)) == len(named)
    assert {page for page in pages - set(named) if not page.startswith(("decisions/0", "examples/"))} == set()


def test_the_reference_has_every_name_command_and_option(site: Path) -> None:
    python = (site / "reference/python.md").read_text()
    documented = set(re.findall(r"^### (\w+)$", python, re.MULTILINE))
    assert set(fsspeckit.__all__) - documented == {"MergeOptions", "MergeStrategy", "PlanOptions"}
    assert "- `key_columns`: the columns that identify a row." in python
    commands = (site / "reference/commands.md").read_text()
    for name, command in cli.commands.items():
        section = commands.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
        assert section and all(option.opts[-1] in section for option in options), name
    assert "| `inserted` | integer |" in (site / "reference/json.md").read_text()


def test_pictures_are_small_and_know_the_dark(site: Path) -> None:
    pictures = list((ROOT / "docs/images").glob("*.svg"))
    assert len(pictures) >= 5
    for picture in pictures:
        ElementTree.fromstring(picture.read_text())
        assert picture.stat().st_size < 20_000
        assert "prefers-color-scheme: dark" in picture.read_text()
        assert "http" not in picture.read_text().replace("http://www.w3.org/2000/svg", "")


def test_readme_is_one_screen_of_pitch_and_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    headings = ["Install", "Two minutes", "Strategies", "When not to use it", "More"]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == headings
