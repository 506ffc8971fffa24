"""The web page of a report, in a browser and as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import browser as browsers
import fsspeckit
from browser import Browser
from fsspeckit.cli.demo import build_lake, changes
from fsspeckit.core.reports import FilePlan, KeyMap, MergePlan
from fsspeckit.report.content import Record
from fsspeckit.report.elements import visible
from fsspeckit.report.files import MAX_FILES
from fsspeckit.report.html import page
from fsspeckit.report.key_map import MAX_BARS, scale_of
from fsspeckit.report.summary import LABELS, count, size
from support import write_lake

Call = Callable[..., Result]

ODD = ["<b>&amp;.parquet", "q\"uo'te.parquet", "new\nline.parquet", "bidi\u202egnp.parquet", "a b.parquet", "x" * 150]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    reason = browsers.missing()
    if reason:
        pytest.skip(reason)
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def pages(here: Path, call: Call) -> dict[str, dict[str, Any]]:
    """Pages of a lake of twelve months, with the JSON that was printed beside them."""
    build_lake(here / "orders")
    pq.write_table(changes(), here / "changes.parquet")
    commands = {
        "inspect": ["inspect", "orders", "-k", "order_id"],
        "plan": ["plan", "changes.parquet", "orders", "-k", "order_id"],
        "result": ["merge", "changes.parquet", "orders", "-k", "order_id"],
    }
    done = {name: call(*command, "--json", "--html", f"{name}.html") for name, command in commands.items()}
    return {name: json.loads(run.stdout) for name, run in done.items()}


def many_files(files: int) -> MergePlan:
    """A plan of files in folders of fifty, whose ranges overlap."""
    planned, ranges = [], {}
    for i in range(files):
        path = f"lake/day={i // 50:03d}/part-{i:05d}.parquet"
        action = "rewrite" if i % 97 == 5 else "scan" if i % 41 == 3 else "prune"
        matched = 10 if action == "rewrite" else 0
        planned.append(FilePlan(path, action, f"why {action}", 100, 1000 + i, 8, 2, matched, matched))  # type: ignore[arg-type]
        ranges[path] = (i * 100, i * 100 + 500)
    key_map = KeyMap("id", "int64", ("id",), ranges, tuple((i * 100, i * 100 + 9) for i in range(5, files, 97)))
    return MergePlan("upsert", ("id",), ("day",), 1, files * 100, 0, 10, 0, tuple(planned), key_map=key_map)


LISTED = """[...document.querySelectorAll('tr[data-place]')].map(row => [
    row.querySelector('.path').textContent, row.dataset.action, +row.dataset.rows, +row.dataset.bytes])"""
TOTALS = """[...document.querySelectorAll('table.groups tbody tr')].map(
    row => [...row.cells].map(cell => cell.innerText))"""
TILES = "[...document.querySelectorAll('.tile')].map(tile => [tile.dataset.name, tile.firstChild.innerText])"
SEARCH = """(box => {
    box.value = arguments[0];
    box.dispatchEvent(new Event('input'));
})(document.querySelector('input[type=search]'))"""
SORT = """[...document.querySelectorAll('.files thead button')]
    .find(button => button.innerText.startsWith(arguments[0])).click()"""
ROWS = """[...document.querySelectorAll('table.files tbody tr[data-place]')]
    .filter(row => row.getClientRects().length)
    .map(row => [...row.cells].map(cell => cell.innerText.split('\\n')[0].trim()))"""
# The texts that reach beyond the window or out of a box that hides the rest, and the width of the page.
CUT_OFF = """[document.documentElement.scrollWidth - innerWidth, [...document.querySelectorAll('main *')].filter(e => {
    const box = e.getBoundingClientRect();
    const hides = getComputedStyle(e).overflowX !== 'visible' && e.tagName !== 'svg'
        && e.tagName !== 'INPUT';
    return box.right > innerWidth + 1 || box.left < -1 || (hides && e.scrollWidth > e.clientWidth + 1);
}).map(e => e.outerHTML.slice(0, 120))]"""
# Numbers of tiles that do not fit on one line.
BROKEN_NUMBERS = """[...document.querySelectorAll('.tile strong')].filter(
    e => e.getClientRects()[0].height > 1.5 * parseFloat(getComputedStyle(e).lineHeight)).map(e => e.innerText)"""
# Texts with less contrast than 4.5 to 1.
PALE = """[...document.querySelectorAll('main *')].filter(e => e.getClientRects().length
    && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.closest('svg')).filter(e => {
    const parse = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
        .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
    let behind = e;
    while (behind.parentElement && /(, 0\\)|transparent)/.test(getComputedStyle(behind).backgroundColor))
        behind = behind.parentElement;
    const both = [getComputedStyle(e).color, getComputedStyle(behind).backgroundColor].map(parse).map(light);
    return (Math.max(...both) + .05) / (Math.min(...both) + .05) < 4.5;
}).map(e => e.outerHTML.slice(0, 120))"""


def test_the_numbers_are_those_of_the_json(browser: Browser, pages: dict[str, dict[str, Any]], here: Path) -> None:
    operation = {"plan": ("action", "rows", "bytes"), "result": ("operation", "row_count", "size_bytes")}
    for name, (action, rows, bytes_) in operation.items():
        said = pages[name]
        browser.open(here / f"{name}.html", 1280)
        tiles = browser.run(TILES)
        assert {"updated", "inserted", "target_count_before", "target_count_after"} <= dict(tiles).keys()
        assert {tile: count(said[tile]) for tile, _ in tiles} == dict(tiles)
        totals = browser.run(TOTALS)
        for label, number, row_sum, byte_sum, *_ in totals:
            own = [f for f in said["files"] if LABELS[f[action]] == label.strip()]
            expected = [len(own), sum(f[rows] for f in own), size(sum(f[bytes_] for f in own))]
            assert [number, row_sum, byte_sum] == [count(expected[0]), count(expected[1]), expected[2]]
        assert sum(int(total[1].replace(",", "")) for total in totals) == len(said["files"])
        listed = browser.run(LISTED)
        assert sorted(listed) == sorted(
            [f["path"].removeprefix("orders/"), f[action], f[rows], f[bytes_]] for f in said["files"]
        )
        assert browser.run("performance.getEntriesByType('resource').length") == 0
        assert browser.messages() == []
    record = browser.run("document.querySelector('.record').innerText")
    for part in ("fsspeckit merge changes.parquet orders -k order_id", "pyarrow", "order_id", fsspeckit.__version__):
        assert part in record
    assert pages["result"]["started"][:19].replace("T", " ") in record
    seconds = browser.run("[...document.querySelectorAll('.legend b')].map(b => parseFloat(b.innerText))")
    assert seconds == [float(f"{s:.2f}") for s in pages["result"]["phases"].values()]


def test_filter_and_sort(browser: Browser, pages: dict[str, dict[str, Any]], here: Path) -> None:
    browser.open(here / "plan.html", 1280)
    files = pages["plan"]["files"]
    assert len(browser.run(ROWS)) == 37

    def search(text: str) -> list[str]:
        browser.run(SEARCH, text)
        return [row[0] for row in browser.run(ROWS)]

    def visible_blocks() -> int:
        return int(browser.run("document.querySelectorAll('.map .block[data-folder]:not(.filtered)').length"))

    assert search("2026-12 LATE") == ["late.parquet"]
    assert visible_blocks() == 1
    assert browser.run("document.querySelector('.controls output').innerText") == "1 of 37 listed"
    assert len(search("no key matched")) == sum(f["reason"] == "no key matched" for f in files)
    assert len(search("")) == 37 and visible_blocks() == 13
    browser.run("document.querySelector('input[value=prune]').click()")
    shown = browser.run(ROWS)
    assert len(shown) == sum(f["action"] != "prune" for f in files) == 4
    drawn = "[...document.querySelectorAll('.map rect[class^=a-]')].filter(r => r.getClientRects().length).length"
    assert browser.run(drawn) == 4
    browser.run("document.querySelector('input[value=prune]').click()")

    def sort(head: str) -> list[list[str]]:
        browser.run(SORT, head)
        rows: list[list[str]] = browser.run(ROWS)
        return rows

    before = browser.run(ROWS)
    by_size = sorted((f["bytes"] for f in files), reverse=True)
    assert [row[4] for row in sort("size")] == [size(n) for n in by_size]
    assert [row[4] for row in sort("size")] == [size(n) for n in reversed(by_size)]
    assert sort("size") == before
    assert [row[2] for row in sort("changed")][:3] == ["40 updated", "20 updated", ""]
    paths = [row[0] for row in sort("file")]
    assert paths == sorted(f["path"].removeprefix("orders/") for f in files)
    lowest = [int(row[5].split(" ")[0]) for row in sort("range")]
    assert lowest == sorted(lowest)
    assert browser.run("document.querySelector('th[aria-sort]').innerText").startswith("range")


def test_nothing_is_cut_off_and_texts_are_dark_enough(
    browser: Browser, pages: dict[str, dict[str, Any]], here: Path, call: Call
) -> None:
    names = {name: pa.table({"k": [f"{number}<script>" * 9, "z"]}) for number, name in enumerate(ODD)}
    write_lake(here / "odd", names)
    pq.write_table(names[ODD[0]].slice(0, 1), here / "source.parquet")
    call("plan", "source.parquet", "odd", "-k", "k", "--html", "odd.html")
    call("write", "new.parquet", "orders2", "--html", "write.html")
    call("compact", "lake", "--html", "compact.html", "--dry-run")
    (here / "many.html").write_text(page(replace(many_files(5000), source_count=1_234_567_890), "lake"))
    for name in ("plan", "result", "inspect", "odd", "write", "compact", "many"):
        browser.open(here / f"{name}.html", 420)
        assert browser.run(CUT_OFF) == [0, []], (name, 420)
        assert browser.run(BROKEN_NUMBERS) == [], (name, 420)
        for scheme in ("dark", "light") if name != "many" else ():
            browser.open(here / f"{name}.html", 1280, scheme=scheme)
            assert browser.run(CUT_OFF) == [0, []], (name, 1280)
            assert browser.run(PALE) == [], (name, scheme)
        browser.open(here / f"{name}.html", 690)  # A4 without its margins
        browser.media("print", "light")
        assert browser.run(CUT_OFF) == [0, []], (name, "print")
        assert browser.run("document.querySelector('.controls')?.getClientRects().length || 0") == 0


def test_without_javascript_it_is_a_plain_list(browser: Browser, pages: dict[str, dict[str, Any]], here: Path) -> None:
    browser.open(here / "plan.html", 1280, script=False)
    text = browser.run("document.querySelector('main').innerText")
    assert all(Path(f["path"]).name in text for f in pages["plan"]["files"])
    assert "Filter" not in text
    assert browser.run("document.querySelector('.controls').getClientRects().length") == 0


def test_only_the_script_of_the_page_may_run() -> None:
    text = page(many_files(10), "lake")
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[0]
    for kind in ("style", "script"):
        (content,) = re.findall(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy


def test_names_and_values_are_text(here: Path, call: Call) -> None:
    """Markup, quotes, controls, and characters that turn the direction of the text."""
    write_lake(here / "odd", {name: pa.table({"k": [f"<i>{n}", f"<i>{n}\u202e"]}) for n, name in enumerate(ODD)})
    pq.write_table(pa.table({"k": ["<i>0", "<script>alert(1)</script>"]}), here / "source.parquet")
    for command in ("plan", "merge"):
        call(command, "source.parquet", "odd", "-k", "k", "--html", "odd.html")
        text = Path("odd.html").read_text()
        assert text.count("<script>") == 1 and "<b>&amp;.parquet" not in text and "<i>" not in text
        assert "&lt;b&gt;&amp;amp;.parquet" in text
        assert "new\\x0aline.parquet" in text and "bidi\\u202egnp.parquet" in text
        assert "\u202e" not in text
    assert visible("caf\udce9 \x1b[31m") == "caf\\udce9 \\x1b[31m"


def test_5000_files_are_a_small_page_that_says_what_it_leaves_out() -> None:
    began = time.process_time()
    text = page(many_files(5000), "lake")
    assert time.process_time() - began < 20
    assert len(text) < 1_000_000
    assert f"The first {MAX_FILES} of 5,000 files, changes first. Left out:" in text
    listed = re.findall(r'data-place="\d+" data-folder="[^"]*" data-action="(\w+)"', text)
    assert len(listed) == MAX_FILES and listed.count("rewrite") == 52
    bars = re.findall(r'<rect [^>]*class="a-(\w+)"><title>', text)
    assert len(bars) <= MAX_BARS + 20
    assert "53 other folders" in text


def test_many_source_keys_do_not_hide_the_files() -> None:
    few, dense = many_files(500), many_files(500)
    key_map = dense.key_map
    assert key_map is not None
    dense = replace(dense, key_map=replace(key_map, source=tuple((i * 50, i * 50) for i in range(1000))))
    assert 'class="through"' in page(few, "lake")
    text = page(dense, "lake")
    assert 'class="through"' not in text and 'id="marks"' in text


@pytest.mark.parametrize(
    ("values", "by_rank", "middle"),
    [
        ([0, 10, 1000], False, 0.01),
        ([b"a", b"b", b"c"], True, 0.5),
        ([*range(50), 10**18], True, 1 / 50),
        ([float("-inf"), 0.0, 5.0, 10.0], False, 0.0),
        ([7, 7], True, None),
    ],
)
def test_the_scale(values: list[Any], by_rank: bool, middle: float | None) -> None:
    scale = scale_of(values)
    assert scale is not None and scale.by_rank is by_rank
    assert all(0 <= scale.place(value) <= 1 for value in values)
    assert middle is None or scale.place(sorted(values)[1]) == pytest.approx(middle)
    assert scale_of([]) is None and scale_of([1, b"a"]) is None


def test_files_without_statistics_and_without_values_are_named(here: Path, call: Call) -> None:
    write_lake(
        here / "some", {"a.parquet": pa.table({"k": [1, 9]}), "n.parquet": pa.table({"k": pa.nulls(2, pa.int64())})}
    )
    pq.write_table(pa.table({"k": [4]}), here / "some/u.parquet", write_statistics=False)
    call("inspect", "some", "-k", "k", "--html", "some.html")
    text = Path("some.html").read_text()
    assert "1 file without statistics: any key may be in there; 1 file without keys" in text
    assert "no statistics" in text and "no values" in text and "1 … 9" in text


def test_secrets_are_not_on_the_page(here: Path, call: Call) -> None:
    secret = ["--storage-option", "secret_access_key=s3cr3t", "--storage-option=token=s3cr3t"]
    assert call("inspect", "lake", "-k", "id", *secret, "--html", "page.html").exit_code == 0
    text = Path("page.html").read_text()
    assert "s3cr3t" not in text and "secret_access_key=…" in text and "--storage-option=token=…" in text
    plan = many_files(1)
    began = datetime(2026, 11, 18, 20, 15, tzinfo=UTC)
    text = page(
        plan, "sftp://me:s3cr3t@host/lake", Record("fsspeckit plan x sftp://me:s3cr3t@host/lake", "duckdb", began, 200)
    )
    assert "s3cr3t" not in text and "sftp://…@host/lake" in text
    assert "2026-11-18 20:15:00 UTC" in text and "3 min 20 s" in text and "duckdb " in text


def test_pages_of_writes_and_compactions(here: Path, call: Call) -> None:
    run = call("write", "new.parquet", "lake", "--mode", "overwrite", "--dry-run", "--json", "--html", "page.html")
    text, said = Path("page.html").read_text(), json.loads(run.stdout)
    assert "overwrite 3 rows into lake" in text and "Plan – nothing has been changed" in text
    assert text.count('data-action="removed"') == len(said["removed_files"]) == 6
    call("compact", "lake", "--html", "page.html", "--dry-run")
    assert "What is written anew" in Path("page.html").read_text()
    said = json.loads(call("compact", "lake", "--html", "page.html", "--json").stdout)
    text = Path("page.html").read_text()
    assert text.count('data-action="inserted"') == len(said["new_files"]) == 3
    assert f'data-name="files_after"><strong>{said["files_after"]}</strong>' in text
    run = call("write", "new.parquet", "lake", "--json", "--html", "page.html")
    assert text != Path("page.html").read_text() and json.loads(run.stdout)["rows"] == 3


def test_the_picture_in_the_documentation_is_small() -> None:
    picture = Path(__file__).parents[2] / "docs/images/page.png"
    assert picture.read_bytes()[1:4] == b"PNG" and picture.stat().st_size < 150_000, "make picture"
