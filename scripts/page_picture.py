"""Draw docs/images/page.png: an excerpt of the page of the demo's plan, with the map.

make picture
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import browser as browsers
import fsspeckit
from fsspeckit.cli.demo import KEYS, build_lake, changes
from fsspeckit.report.html import page

WIDTH, MOST_BYTES = 960, 150_000
# Only the head, the numbers and the map.
EXCERPT = """(() => {
    document.querySelectorAll('.record, .notice, .controls, .soft:is(p), caption').forEach(e => e.remove());
    const map = document.querySelector('.map');
    document.querySelectorAll('main > h2, main > table').forEach(e => {
        if (!e.matches('.groups') && e.nextElementSibling !== map && !e.nextElementSibling?.matches('.bar')) e.remove();
    });
    document.querySelector('main').style.padding = '1.5rem';
})()"""


def main() -> None:
    reason = browsers.missing()
    if reason:
        sys.exit(reason)
    picture = Path(__file__).parents[1] / "docs/images/page.png"
    picture.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        build_lake(Path("lake"))
        pq.write_table(changes(), "changes.parquet")
        Path("plan.html").write_text(page(fsspeckit.plan("changes.parquet", "lake", key_columns=KEYS), "lake"))
        browser = browsers.Browser(Path(name))
        try:
            browser.open(Path("plan.html").resolve(), WIDTH)
            browser.run(EXCERPT)
            browser.picture(picture)
        finally:
            browser.close()
    size = picture.stat().st_size
    print(f"{picture}: {size:,} bytes")
    if size > MOST_BYTES:
        sys.exit(f"The picture should not have more than {MOST_BYTES:,} bytes.")


if __name__ == "__main__":
    main()
