"""Writes that fail or die at every step: what was there stays, and the next run goes on."""

from __future__ import annotations

import errno
import io
import os
import random
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from dying import KILLED, die, forked, striking
from store_samples import grade

from divtok.errors import StoreError
from divtok.store import atomic
from divtok.store.run import Run

SOURCE = Path(__file__).resolve().parents[2] / "src"
FAILURES = [errno.ENOSPC, errno.EIO]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class FailingFile(io.FileIO):
    """Takes at most `room` bytes, the last write a short one, and then fails."""

    room = 0
    code = errno.ENOSPC

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")[: self.room]
        if not view:
            raise OSError(self.code, os.strerror(self.code))
        self.room -= len(view)
        return super().write(view) or 0


def _opener(room: int, code: int) -> Callable[[Path], BinaryIO]:
    def open_failing(path: Path) -> BinaryIO:
        raw = FailingFile(path, "xb")
        raw.room, raw.code = room, code
        return io.BufferedWriter(raw, buffer_size=16)

    return open_failing


def test_whole_files_are_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic.write_text_atomically(path, "old \u2603\n")
    assert path.read_bytes() == "old \u2603\n".encode()
    atomic.write_bytes_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert _names(tmp_path) == ["file"]


def test_the_steps_come_in_the_order_that_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = atomic.sync, atomic.rename

    def watched_sync(descriptor: int) -> None:
        steps.append("sync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "sync")  # noqa: PTH112
        sync(descriptor)

    def watched_rename(source: Path, target: Path) -> None:
        steps.append("rename")
        assert source.parent == target.parent
        assert source.read_bytes() == b"data"
        rename(source, target)

    monkeypatch.setattr(atomic, "sync", watched_sync)
    monkeypatch.setattr(atomic, "rename", watched_rename)
    atomic.write_bytes_atomically(tmp_path / "file", b"data")
    assert steps == ["sync", "rename", "sync folder"]


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("room", [0, 1, 50, 99])
def test_a_write_that_runs_out_of_room_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, code: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(atomic, "open_new", _opener(room, code))
    with pytest.raises(StoreError) as caught:
        atomic.write_bytes_atomically(path, bytes(100))
    assert str(path) in caught.value.what
    assert "Everything stored before it is kept" in caught.value.what
    assert "run the same command again" in str(caught.value.next_step)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == code
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["file"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(memoryview(data).cast("B")[:7]) or 0

    monkeypatch.setattr(atomic, "open_new", lambda path: io.BufferedWriter(Slow(path, "xb"), 16))
    data = bytes(range(256))
    atomic.write_bytes_atomically(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data


def test_an_exception_in_the_block_leaves_no_file(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic.atomic_writer(tmp_path / "file") as handle:
            handle.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert _names(tmp_path) == []


def test_folders_in_between_are_made_and_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    atomic.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        atomic.make_folder(tmp_path / "file")
    with pytest.raises(StoreError, match=r"cannot be made: .*file is a file, not a folder"):
        atomic.make_folder(tmp_path / "file" / "below")


def test_only_our_own_temp_files_are_removed(tmp_path: Path) -> None:
    ours = tmp_path / f".tmp-77-{'ab' * 8}"
    others = [tmp_path / name for name in (".tmp-mine", ".tmp-77-xyz", "tmp", f"{ours.name}.x")]
    for path in [ours, *others]:
        path.write_bytes(b"")
    atomic.remove_orphans(tmp_path)
    assert _names(tmp_path) == sorted(path.name for path in others)
    atomic.remove_orphans(tmp_path / "missing")


@pytest.mark.parametrize("step", ["open_new", "sync", "rename"])
@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("every", [3, 4, 5])  # one shard takes three syncs
def test_every_nth_step_fails_and_resuming_stores_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, every: int
) -> None:
    calls, real = 0, getattr(atomic, step)

    def flaky(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % every == 0:
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    run = Run.create_or_open(tmp_path / "run")
    wanted = [f"row {number}" for number in range(8)]
    monkeypatch.setattr(atomic, step, flaky)
    stored: set[str] = set()
    failures: list[StoreError] = []
    for _ in range(60):
        try:
            with run.lock():
                for name in wanted:
                    if (name,) not in run.grades.keys():  # noqa: SIM118
                        run.grades.append([grade(name)])
        except StoreError as error:
            failures.append(error)
        now = {row.key for row in run.grades.read()}
        assert stored <= now  # a failure never takes back what was stored
        stored = now
        assert not list(run.grades.folder.glob(".tmp-*"))
        if len(stored) == len(wanted):
            break
    assert failures
    assert all("run the same command again" in str(error.next_step) for error in failures)
    assert [row.key for row in run.grades.read()] == wanted


def _child(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


APPENDING_CHILD = """
import sys
from pathlib import Path
from divtok.records import Grade, Verdict
from divtok.store.run import Run
run = Run.create_or_open(Path(sys.argv[1]))
with run.lock():
    number = len(run.grades.keys())
    while True:
        run.grades.append([Grade(f"{number:05d}", "42", Verdict.CORRECT)])
        print(number, flush=True)
        number += 1
"""


def test_kill_while_appending_keeps_a_prefix_with_every_acknowledged_row(tmp_path: Path) -> None:
    """Four random kills of one run, so that all but the first hit a resumed one."""
    chance = random.Random(7)
    path = tmp_path / "run"
    rows = 0
    for _ in range(4):
        child = _child(APPENDING_CHILD, path)
        assert child.stdout is not None
        acknowledged = rows
        for _ in range(chance.randint(1, 25)):
            acknowledged = int(child.stdout.readline()) + 1
        child.kill()
        rest = child.stdout.read()  # not by communicate: lines that are buffered would be lost
        child.communicate()
        # The last line can be cut short by the kill.
        acknowledged += len(re.findall(r"\d+\n", rest))
        keys = [row.key for row in Run.open(path).grades.read()]
        assert keys == [f"{number:05d}" for number in range(len(keys))]
        assert rows < acknowledged <= len(keys) <= acknowledged + 1
        rows = len(keys)
    run = Run.open(path)
    with run.lock():
        run.grades.append([grade("resumed")])
    assert len(run.grades.keys()) == rows + 1
    assert not list(run.grades.folder.glob(".tmp-*"))


def _write(run: Run, action: str) -> None:
    new, more = grade("new"), grade("more")
    with run.lock():
        getattr(run.grades, action)([[new], [more]] if action == "replace_with" else [new])


@pytest.mark.parametrize("old", [[], ["a", "b"]])
@pytest.mark.parametrize("action", ["append", "replace", "replace_with"])
def test_kill_at_every_step_of_a_write_leaves_the_old_rows_or_the_new(
    tmp_path: Path, action: str, old: list[str]
) -> None:
    """Before and after each step, the lists of shards included."""
    new = {"append": [*old, "new"], "replace": ["new"], "replace_with": ["new", "more"]}[action]
    seen: list[bool] = []
    for number in range(1, 100):
        codes: set[int] = set()
        for half in (False, True):
            run = Run.create_or_open(tmp_path / f"{number} {half}")
            with run.lock():
                for name in old:
                    run.grades.append([grade(name)])

            def child(path: Path = run.path, half: bool = half, number: int = number) -> None:
                with striking(number, die, half=half):
                    _write(Run.open(path), action)

            codes.add(forked(child))
            found = [row.key for row in run.grades.read()]
            assert found in (old, new)
            assert run.grades.keys() == {(name,) for name in found}
            seen.append(found == new)
            with run.lock():  # the dead writer's lock is free, and its leftovers go
                assert [row.key for row in run.grades.read()] == found
                run.grades.append([grade("next")])
            assert [row.key for row in run.grades.read()] == [*found, "next"]
            left = [name for name in _names(run.grades.folder) if name != "shards.txt"]
            assert all(name.endswith(".parquet") for name in left)
            assert len(left) == len(found) + 1
        if codes == {0}:
            break
        assert codes == {KILLED}
    assert seen == sorted(seen)  # from one moment on
    assert len(seen) > 10


LIMITED_CHILD = """
import resource, sys
from pathlib import Path
from divtok.errors import StoreError
from divtok.records import Grade, Verdict
from divtok.store.run import Run
run = Run.open(Path(sys.argv[1]))
with run.lock():
    run.grades.append([Grade("small", "42", Verdict.CORRECT)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        run.grades.append([Grade("large", "42", Verdict.CORRECT)])
    except StoreError as error:
        print(error.what)
"""


def test_a_real_limit_of_the_system_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    child = _child(LIMITED_CHILD, run.path)
    output, errors = child.communicate()
    assert child.returncode == 0, errors
    assert re.search(r"g0001-part-000001-\w{8}-\w{8}\.parquet: File too large", output)
    assert len(list(run.grades.folder.glob("*.parquet"))) == 1
    assert run.grades.keys() == {("small",)}
