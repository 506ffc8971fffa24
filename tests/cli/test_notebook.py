"""A notebook shows a bar below the cell: a real kernel executes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

CELLS = [
    """
import fsspeckit, pyarrow as pa, time
from fsspeckit.core.rewrite import files
rewrite = files.rewrite_file
def slow(*arguments):
    time.sleep(0.15)
    return rewrite(*arguments)
files.rewrite_file = slow
for n in range(4):
    rows = pa.table({"id": range(10 * n, 10 * n + 10), "x": [0] * 10})
    fsspeckit.write_dataset(rows, "lake")
""",
    """
result = fsspeckit.merge(
    pa.table({"id": range(40), "x": [1] * 40}), "lake", key_columns=["id"], on_progress=fsspeckit.progress_bar()
)
""",
    "print(result.updated, result.changed)",
    "fsspeckit.merge(pa.table({'id': [1, 1], 'x': [1, 2]}), 'lake', key_columns=['id'], "
    "on_progress=fsspeckit.progress_bar())",
]


def test_a_bar_below_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook: Any = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    notebook.cells[3].metadata["tags"] = ["raises-exception"]
    updates: list[Any] = []

    class Client(nbclient.NotebookClient):  # type: ignore[misc]
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if cell_index == 1 and msg["msg_type"] in ("display_data", "update_display_data"):
                updates.append((msg["msg_type"], msg["content"]["data"]))
            return super().process_message(msg, cell, cell_index)

    Client(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}, kernel_name="python3").execute()
    assert [kind for kind, _ in updates][:2] == ["display_data", "update_display_data"], "one display, then updated"
    assert [kind for kind, _ in updates].count("display_data") == 1
    written = [data for _, data in updates if "Writing files" in data["text/plain"]]
    assert len({data["text/plain"].split(",")[1] for data in written}) >= 3, written
    assert all("<progress value=" in data["text/html"] for data in written)

    (shown,) = notebook.cells[1].outputs
    assert shown["data"]["text/plain"].startswith("Done after ")
    assert "<progress" not in shown["data"]["text/html"]
    assert notebook.cells[2].outputs[0]["text"] == "40 40\n"
    failed, error = notebook.cells[3].outputs
    assert failed["data"]["text/plain"].startswith("Failed after ") and error["ename"] == "DuplicateKeyError"
