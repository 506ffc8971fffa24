"""Bars for `on_progress`: on a terminal, in a notebook."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

from fsspeckit.core.progress import OnProgress, ProgressEvent
from fsspeckit.core.report_text import count, size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress

# An operation that takes no longer shows no bar.
_DELAY_SECONDS = 0.3
_LABELS = {
    "lock": "Waiting for the lock",
    "footers": "Reading footers",
    "source": "Reading the source",
    "match": "Matching keys",
    "compare": "Comparing rows",
    "write": "Writing files",
    "sync": "Syncing files",
    "commit": "Committing",
}


def progress_bar(file: IO[str] | None = None) -> OnProgress:
    """A bar for the `on_progress` of one operation: below the cell of a notebook, or on a terminal.

    Elsewhere, as in a pipe or a log, it shows nothing. `file` is the terminal, by default standard error. The bar is
    gone when the operation ends; in a notebook one line stays.

    >>> import fsspeckit, pyarrow as pa
    >>> rows = pa.table({"id": [1, 2]})
    >>> result = fsspeckit.merge(
    ...     rows, "memory://bar/lake", key_columns=["id"], on_progress=fsspeckit.progress_bar()
    ... )
    >>> result.inserted
    2
    """
    if file is None and _in_notebook():
        return NotebookBar()
    stream = sys.stderr if file is None else file
    return TerminalBar(stream) if stream is not None and stream.isatty() else _nothing


def _nothing(event: ProgressEvent) -> None:
    """There is nobody who could see a bar."""


def _in_notebook() -> bool:
    """Does a kernel run this code? Then IPython is imported."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and hasattr(get_ipython(), "kernel")


class TerminalBar:
    """One line on a terminal: phase, bar, files, bytes, rate and time left. It is removed at the end."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._phase = stream, ""
        self._progress: Progress | None = None

    def __call__(self, event: ProgressEvent) -> None:
        if event.phase in ("done", "failed"):
            self.close()
            return
        if self._progress is None:
            self._progress = _rich_progress(self._stream)
            self._progress.add_task("", total=None)
            self._progress.start()
        task, (done, total) = self._progress.tasks[0].id, _amounts(event)
        if event.phase != self._phase:
            self._progress.reset(task)
            self._phase = event.phase
        if total is None:  # `update` would ignore it
            self._progress.tasks[0].total = None
        self._progress.update(
            task, description=_label(event), total=total, completed=done, facts=", ".join(_facts(event))
        )

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self._progress is not None:
            with contextlib.suppress(OSError):
                self._progress.stop()
            self._progress = None


def _rich_progress(stream: IO[str]) -> Progress:
    from rich import progress as rich
    from rich.console import Console
    from rich.table import Column

    class Bar(rich.Progress):
        """Nothing is shown at first, so that short operations do not flicker."""

        began = time.monotonic()

        def get_renderables(self) -> Iterable[RenderableType]:
            if time.monotonic() - self.began >= _DELAY_SECONDS:
                yield self.make_tasks_table(self.tasks)

    class TimeLeft(rich.ProgressColumn):
        """`0:12 left`, or the time since the phase began."""

        def render(self, task: rich.Task) -> Any:
            from rich.text import Text

            left = task.time_remaining if task.total else None
            return Text(f"{_clock(left)} left" if left is not None else _clock(task.elapsed or 0))

    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    label, facts = (
        rich.TextColumn(text, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        for text in ("{task.description}", "{task.fields[facts]}")
    )
    bar = [rich.BarColumn(20)] if console.width >= 60 else []
    return Bar(label, *bar, facts, TimeLeft(), console=console, transient=True)


def _amounts(event: ProgressEvent) -> tuple[int, int | None]:
    """What the bar shows: bytes if their total is known, else files; `None` if no total is known."""
    if event.bytes_total:
        return event.bytes, event.bytes_total
    return event.files, event.files_total or None


def _label(event: ProgressEvent) -> str:
    label = _LABELS[event.phase]
    return f"{label} of {event.waiting_for}" if event.waiting_for else label


def _facts(event: ProgressEvent) -> list[str]:
    """`3 of 12 files`, `1.2 MB of 34.5 MB`, `12 MB/s`"""
    facts = []
    if event.files_total:
        facts.append(f"{count(event.files)} of {count(event.files_total, 'file')}")
    if event.bytes_total:
        facts.append(f"{size(event.bytes)} of {size(event.bytes_total)}")
        if event.phase_seconds >= 1 and event.bytes:
            facts.append(f"{size(int(event.bytes / event.phase_seconds))}/s")
    if event.rows:
        facts.append(count(event.rows, "row"))
    return facts


def _clock(seconds: float) -> str:
    """
    >>> _clock(75), _clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class NotebookBar:
    """A bar below the cell. In the end one line says how long the operation took."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, event: ProgressEvent) -> None:
        from IPython.display import display

        text, markup = _notebook_forms(event)
        shown = {"text/plain": text, "text/html": markup}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def _notebook_forms(event: ProgressEvent) -> tuple[str, str]:
    """The event as text and as HTML."""
    if event.phase in ("done", "failed"):
        text = f"{event.phase.capitalize()} after {event.seconds:.1f} s"
        return text, f"<div>{text}</div>"
    done, total = _amounts(event)
    text = ", ".join([_label(event), *_facts(event), _clock(event.phase_seconds)])
    value = f' value="{done}" max="{total}"' if total else ""
    return text, f'<div><progress{value} style="vertical-align: middle"></progress> {html.escape(text)}</div>'
