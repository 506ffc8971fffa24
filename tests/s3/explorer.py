"""Every interleaving of writers over the real session code, on a store that can delay, lose and reorder.

Each writer runs in a thread and stops before each of its requests. A schedule is a list of choices: whose request is
carried out next, and whether the writer dies before or after it, or its answer is lost, or the request comes late. The
code is deterministic given the answers it gets, so that two schedules with the same store, the same answers so far and
the same requests in flight have the same future: only the first one is followed (as in Verisoft with state hashing).
Stores that answer wrongly are faults too: the head is not found although it is there, or an object has no bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsspeckit.core.commit import head, store
from fsspeckit.core.commit.lease import Runtime
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import CommitUnfinishedError, FsspeckitError
from fsspeckit.core.model import Staged
from fsspeckit.core.storage import Location, StoreLocation, StoreStorage
from fsspeckit.core.storage.objects import UnansweredError
from s3.memory import MemoryObjects

ROOT = "lake"
REMOVED = "removed.parquet"
READS = ("get", "get head", "stat", "list_all", "list_names", "read", "read_tail", "list_uploads")
# What may be sent, and carried out long after its sender gave up waiting.
LATE = ("put_if", "complete", "delete", "abort")
# Wrong answers, and to what.
_ANSWERS = {"not found": "get head", "no bytes": "complete"}
Choice = tuple[int, str]


class Killed(BaseException):
    """The process is gone: nothing in it is cleared up."""


class Port:
    """The store as one writer reaches it. Every request waits for its turn."""

    place = "s3://memory"
    endpoint = ""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number
        self._bucket = MemoryObjects(f"w{number}", world.bucket)

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._bucket, name)

        def ask(*arguments: Any) -> Any:
            label = "get head" if name == "get" and arguments[0].endswith("/head") else name
            return self._world.ask(self._number, label, lambda: request(*arguments))

        return ask


@dataclass
class Writer:
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    asked: tuple[str, Callable[[], Any]] | None = None
    order: str = ""
    answers: Any = field(default_factory=hashlib.sha256)
    end: str = ""
    is_dead: bool = False
    slept: float = 0.0
    is_disturbed: bool = False


class World:
    """A store, its writers and the requests in flight, at one point of one schedule."""

    def __init__(
        self, program: Callable[[StoreLocation, Runtime, str], None], writers: int, faults: Sequence[str]
    ) -> None:
        self.bucket = MemoryObjects()
        self.bucket.objects["lake/base.parquet"] = json.dumps(["base"]).encode()
        self.removes = program in (remove_or_merge, remove_or_discard)
        if self.removes:
            self.bucket.objects[f"lake/{REMOVED}"] = json.dumps(["removed"]).encode()
        self.faults, self.late = faults, list[tuple[str, Callable[[], Any]]]()
        self.used = 0
        self.unseen = set[str]()
        self._control = threading.Semaphore(0)
        self.writers = [Writer() for _ in range(writers)]
        for number, writer in enumerate(self.writers):
            threading.Thread(target=self._live, args=(program, number, writer), daemon=True).start()
            self._control.acquire()

    def _live(self, program: Callable[[StoreLocation, Runtime, str], None], number: int, writer: Writer) -> None:
        tokens = itertools.count()

        def sleep(seconds: float) -> None:
            writer.slept += 1000  # a waiting writer may find an expired lease: its holder may be paused

        runtime = Runtime(lambda: writer.slept, sleep, lambda: f"w{number}t{next(tokens)}", 1, False, lambda: 0.0)
        port: Any = Port(self, number)
        head.CHECKED_BUCKETS.add(port)
        try:
            program(Location(StoreStorage(port), ROOT, "s3://memory/lake"), runtime, f"row{number}")
            writer.end = "acknowledged"
        except Killed:
            writer.end = "killed"
        except CommitUnfinishedError as error:
            writer.end = f"unknown: {error}"
        except FsspeckitError as error:
            writer.end = f"refused: {error}"
        except BaseException as error:
            writer.end = f"BROKEN: {error!r}"
        writer.asked = None
        self._control.release()

    def ask(self, number: int, name: str, request: Callable[[], Any]) -> Any:
        """Called by a writer's thread."""
        writer = self.writers[number]
        if writer.is_dead:
            raise Killed
        writer.asked = name, request
        self._control.release()
        writer.turn.acquire()
        answer = self._carry_out(writer, name, request)
        writer.answers.update(repr((name, writer.order, answer)).encode())
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _carry_out(self, writer: Writer, name: str, request: Callable[[], Any]) -> Any:
        if writer.order == "die before":
            writer.is_dead = True
            return Killed()
        if writer.order == "not found":
            return None
        if writer.order in ("lost, not done", "late"):
            if writer.order == "late":
                self.late.append((name, request))
            return UnansweredError("no answer")
        before = set(self.bucket.objects)
        try:
            answer = request()
        except OSError as error:
            answer = error
        if writer.order == "no bytes":
            self.bucket.objects.update(dict.fromkeys(self.bucket.objects.keys() - before, b""))
        for other in self.writers:
            other.is_disturbed |= other is not writer
        if name == "put":  # an intent
            writer.is_disturbed = False
        if name == "create_upload" and writer.is_disturbed:
            self.unseen.add(str(answer))
        if writer.order == "die after":
            writer.is_dead = True
            return Killed()
        return UnansweredError("no answer") if writer.order == "lost, done" else answer

    def choices(self) -> list[Choice]:
        options: list[Choice] = []
        for number, writer in enumerate(self.writers):
            if writer.asked is None:
                continue
            options.append((number, "go"))
            if self.used < 1:
                options += [(number, fault) for fault in self.faults if _may(fault, writer.asked[0])]
        return options + [(-1 - n, "arrive") for n in range(len(self.late))]

    def take(self, choice: Choice) -> None:
        number, order = choice
        if order == "arrive":
            self.late.pop(-1 - number)[1]()
            return
        self.used += order != "go"
        writer = self.writers[number]
        writer.order = order
        writer.turn.release()
        self._control.acquire()

    @property
    def fingerprint(self) -> bytes:
        held = repr((sorted(self.bucket.objects.items()), sorted(self.bucket.pending.items())))
        lives = [(w.answers.hexdigest(), w.asked is None) for w in self.writers]
        return hashlib.sha256(repr((held, lives, [n for n, _ in self.late], self.used)).encode()).digest()

    def abandon(self) -> None:
        """Let the threads of a schedule that is not followed further end."""
        for writer in self.writers:
            while writer.asked is not None:
                writer.order = "die before"
                writer.turn.release()
                self._control.acquire()


def _may(fault: str, name: str) -> bool:
    if fault in _ANSWERS:
        return name == _ANSWERS[fault]
    if fault == "die after" or fault.startswith("lost"):
        return name not in READS
    return fault == "die before" or name in LATE


def visible(bucket: MemoryObjects) -> list[str]:
    files = [data for key, data in bucket.objects.items() if key.startswith("lake/")]
    return [row for data in files if data for row in json.loads(data)]


def merge(location: StoreLocation, runtime: Runtime, row: str, added: Sequence[str] | None = None) -> None:
    """One merge: a file is written anew with a row more, under another name."""
    with store.writing(location, 1e9, runtime) as session:
        infos = list_files(location)
        storage = location.storage
        answer = storage.objects.get(location.at(infos[0].path))
        assert answer is not None
        rows = json.loads(answer[0])
        name, staging = f"{row}-{runtime.token()}.parquet", session.stage([""])
        with storage.open_output(f"{staging}/f", name) as file:
            file.write(json.dumps([*rows, *([row] if added is None else added)]).encode())
        session.commit([Staged("f", name, 1, 1, infos[0].path)], [infos[0]], infos)


def merge_or_discard(location: StoreLocation, runtime: Runtime, row: str) -> None:
    """The first writer merges, and then once more without a row; the second discards what it finds recorded."""
    if row != "row0":
        store.recover(location, 1e9, "discard", runtime)
        raise FsspeckitError("no row of this one")
    merge(location, runtime, row)
    with contextlib.suppress(FsspeckitError):
        merge(location, runtime, row, [])


def remove(location: StoreLocation, runtime: Runtime) -> None:
    """A commit that only removes a file."""
    with store.writing(location, 1e9, runtime) as session:
        infos = list_files(location)
        session.commit([], [info for info in infos if info.path == REMOVED], infos)


def remove_or_merge(location: StoreLocation, runtime: Runtime, row: str) -> None:
    if row == "row0":
        remove(location, runtime)
    else:
        merge(location, runtime, row)


def remove_or_discard(location: StoreLocation, runtime: Runtime, row: str) -> None:
    """The first writer removes a file, and then merges without a row; the second discards what it finds recorded."""
    if row != "row0":
        store.recover(location, 1e9, "discard", runtime)
        raise FsspeckitError("no row of this one")
    remove(location, runtime)
    with contextlib.suppress(FsspeckitError):
        merge(location, runtime, row, [])


@dataclass
class Findings:
    states: int = 0
    schedules: int = 0
    violations: list[str] = field(default_factory=list)
    ends: set[str] = field(default_factory=set)


def explore(
    program: Callable[[StoreLocation, Runtime, str], None] = merge,
    writers: int = 2,
    faults: Sequence[str] = (),
    limit: int | None = None,
    until_violated: bool = False,
) -> Findings:
    """Follow every schedule with at most one fault in each; with a `limit`, so many states of schedules by chance."""
    findings, known, waiting, chance = Findings(), set[bytes](), [list[Choice]()], random.Random(4711)
    while waiting and (limit is None or findings.states < limit):
        if until_violated and findings.violations:
            break
        if limit is not None:
            drawn = chance.randrange(len(waiting))
            waiting[drawn], waiting[-1] = waiting[-1], waiting[drawn]
        schedule = waiting.pop()
        world = World(program, writers, faults)
        findings.schedules += 1
        for choice in schedule:
            world.take(choice)
        while True:
            problem = _harm(world)
            if problem:
                findings.violations.append(f"{problem} after {schedule}")
            options = world.choices()
            if not options or not any(order == "go" for _, order in options):
                findings.violations += [f"{p} after {schedule}" for p in _at_rest(world)]
                findings.ends.update(w.end.partition(":")[0] for w in world.writers)
            if not options or problem or world.fingerprint in known:
                break
            known.add(world.fingerprint)
            findings.states += 1
            waiting += [[*schedule, option] for option in reversed(options[1:])]
            schedule = [*schedule, options[0]]
            world.take(options[0])
        world.abandon()
    return findings


def _rows(world: World, bucket: MemoryObjects) -> list[str]:
    """The rows that are seen. If the first writer removes a file, its row counts as seen when the file is gone."""
    rows = visible(bucket)
    if not world.removes:
        return rows
    return [row for row in rows if row != "removed"] if "removed" in rows else [*rows, "row0"]


def _harm(world: World) -> str | None:
    """At no time is a row gone that was there or was acknowledged."""
    rows = _rows(world, world.bucket)
    owed = ["base", *(f"row{n}" for n, w in enumerate(world.writers) if w.end == "acknowledged")]
    missing = [row for row in owed if row not in rows]
    return f"{missing} cannot be seen" if missing else None


def _at_rest(world: World) -> list[str]:
    """When all have ended, and someone has recovered: each acknowledged row once, no other of a writer refused."""
    problems = [f"a writer ended so: {w.end}" for w in world.writers if w.end.startswith("BROKEN")]
    bucket = world.bucket.copy()
    for turn in ("before", "after"):
        location = Location(StoreStorage(_probed(bucket)), ROOT, "s3://memory/lake")
        clock = itertools.count(0, 1000)
        runtime = Runtime(clock.__next__, lambda s: None, iter_token(), 1, False, lambda: 0.0)
        try:
            try:
                store.recover(location, 1e9, None, runtime)
            except CommitUnfinishedError:
                if "no bytes" not in world.faults:
                    raise
                store.recover(location, 1e9, "discard", runtime)
        except FsspeckitError as error:
            problems.append(f"cannot be recovered: {error}")
        problems += [f"{problem}, {turn} late requests" for problem in _wrong(world, bucket)]
        for _, request in world.late if turn == "before" else ():
            _redirected(request, world.bucket, bucket)
    return problems


def iter_token() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"r{next(numbers)}"


def _probed(bucket: MemoryObjects) -> Any:
    head.CHECKED_BUCKETS.add(bucket)
    return bucket


def _redirected(request: Callable[[], Any], real: MemoryObjects, twin: MemoryObjects) -> None:
    """Carry a late request out on a copy of the store."""
    before = real.copy()
    _fill(real, twin)
    request()
    _fill(twin, real)
    _fill(real, before)


def _fill(bucket: MemoryObjects, like: MemoryObjects) -> None:
    objects, pending = dict(like.objects), dict(like.pending)
    bucket.objects.clear()
    bucket.objects.update(objects)
    bucket.pending.clear()
    bucket.pending.update(pending)


def _wrong(world: World, bucket: MemoryObjects) -> list[str]:
    rows, problems = _rows(world, bucket), []
    if rows.count("base") != 1:
        problems.append(f"base stands {rows.count('base')} times")
    for number, writer in enumerate(world.writers):
        times = rows.count(f"row{number}")
        allowed = {"acknowledged": (1,), "refused": (0,)}.get(writer.end.partition(":")[0], (0, 1))
        if times not in allowed:
            problems.append(f"row{number} stands {times} times, and its writer ended so: {writer.end}")
    # Who was paused past its lease can begin an upload after others have seen its intent, and cleared it away. It gives
    # that up, unless it dies, is not heard, or does not know whether it committed.
    left = [name for name in bucket.pending if name[1] not in world.unseen]
    if left:
        problems.append(f"uploads are left: {sorted(left)}")
    beside = [key for key in bucket.objects if not key.startswith("lake/") and key != ".fsspeckit-lake/head"]
    return problems + ([f"{beside} are left"] if beside else [])
