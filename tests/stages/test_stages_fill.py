"""The one loop of all stages: what is missing is made, in any order, and what is kept stays."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from divtok.errors import DivtokError
from divtok.fill import LOCAL, Task, batch_by_batch, fill, keep_batch, keep_new, missing_batches
from divtok.records import Grade, Verdict
from divtok.store.run import Run

BATCHES = [[0, 1, 2], [3, 4, 5], [6, 7]]
Rows = Sequence[tuple[int, int]]


@dataclass
class Squares:
    """Squares of numbers, kept in a dict, with a note of what was opened and made."""

    stored: dict[int, int] = field(default_factory=dict[int, int])
    opened: int = 0
    closed: int = 0
    made: list[list[int]] = field(default_factory=list[list[int]])

    @contextmanager
    def open(self) -> Generator[Callable[[Sequence[Sequence[int]]], Iterator[Rows]]]:
        self.opened += 1
        try:
            yield lambda batches: map(self._make, batches)
        finally:
            self.closed += 1

    def _make(self, batch: Sequence[int]) -> Rows:
        self.made.append(list(batch))
        return [(number, number**2) for number in batch]

    def task(self, batches: Sequence[Sequence[int]] = BATCHES) -> Task[int, tuple[int, int]]:
        before = set(self.stored)

        def keep(rows: Rows) -> None:
            new = {number: square for number, square in rows if number not in before}
            assert not new.keys() & self.stored.keys()
            self.stored |= new

        return Task("square", batches, lambda number: number not in before, self.open, keep)


ALL = {number: number**2 for batch in BATCHES for number in batch}


def test_all_is_made_once_and_a_second_time_nothing_is_opened(
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = Squares()
    fill(work.task())
    assert work.stored == ALL
    assert (work.opened, work.closed, work.made) == (1, 1, BATCHES)
    assert "square: 8/8" in capsys.readouterr().err
    fill(work.task())
    assert (work.opened, len(work.made)) == (1, 3)
    assert "square: 8 of 8 are there already" in capsys.readouterr().err


def test_nothing_to_do() -> None:
    work = Squares()
    fill(work.task([]))
    assert work.opened == 0


def test_batches_are_made_whole_and_kept_rows_stay_as_they_are() -> None:
    work = Squares({3: -1, 4: -1, 0: -1, 1: -1, 2: -1})
    fill(work.task())
    assert work.made == [[3, 4, 5], [6, 7]]
    assert work.stored == {**ALL, **dict.fromkeys(range(5), -1)}


def test_only_what_is_missing_is_made_where_results_do_not_depend_on_their_batch() -> None:
    work = Squares({3: -1, 4: -1, 0: -1, 1: -1, 2: -1})
    begun: list[list[list[int]]] = []

    def begin(batches: Sequence[Sequence[int]]) -> None:
        begun.append([list(batch) for batch in batches])

    fill(replace(work.task(), whole=False, begin=begin))
    assert work.made == [[5], [6, 7]]
    assert begun == [[[5], [6, 7]]]
    assert work.stored == {**ALL, **dict.fromkeys(range(5), -1)}


def test_a_batch_with_a_new_row_is_kept_whole_and_counts_for_those_of_before(
    tmp_path: Path,
) -> None:
    def grade(key: str, extracted: str) -> Grade:
        return Grade(key, extracted, Verdict.CORRECT, None)

    run = Run.create_or_open(tmp_path)
    with run.lock():
        run.grades.append([grade("a", "1"), grade("b", "1"), grade("c", "1")])
        keep = keep_batch(run.grades, run.grades.keys())
        keep([grade("a", "2"), grade("b", "2")])  # all there: they stay as they are
        keep([grade("c", "2"), grade("d", "2")])
    assert {g.key: g.extracted for g in run.grades.read()} == {
        **{"a": "1", "b": "1"},
        **{"c": "2", "d": "2"},
    }


class Reversed:
    """Another order, and each batch in a worker of its own, as over several processes."""

    def run(self, open_worker: Any, batches: Sequence[Sequence[Any]]) -> Generator[Any]:
        for batch in reversed(batches):
            with open_worker() as work:
                yield from work([batch])


def test_an_executor_in_another_order_gives_the_same() -> None:
    work = Squares({4: 16})
    fill(work.task(), Reversed())
    assert work.made == BATCHES[::-1]
    assert (work.opened, work.closed) == (3, 3)
    assert work.stored == ALL


class Failing:
    """Gives up after so many results."""

    def __init__(self, after: int) -> None:
        self.after = after

    def run(self, open_worker: Any, batches: Sequence[Sequence[Any]]) -> Generator[Any]:
        for number, rows in enumerate(LOCAL.run(open_worker, batches)):
            if number == self.after:
                raise ConnectionError("a worker is gone")
            yield rows


@pytest.mark.parametrize("after", [0, 1, 2])
def test_what_was_kept_stays_and_the_rest_is_made_later(after: int) -> None:
    work = Squares()
    with pytest.raises(ConnectionError):
        fill(work.task(), Failing(after))
    assert list(work.stored) == [number for batch in BATCHES[:after] for number in batch]
    work.made.clear()
    fill(work.task())
    assert work.made == BATCHES[after:]
    assert work.stored == ALL


def test_a_keep_that_fails_ends_the_work_at_once() -> None:
    work = Squares()

    def keep(_rows: Rows) -> None:
        raise OSError("the disk is full")

    task = work.task()
    with pytest.raises(OSError, match="disk is full"):
        fill(Task(task.title, task.batches, task.is_missing, task.open, keep))
    assert (work.made, work.closed) == (BATCHES[:1], 1)


def test_results_may_come_in_any_grouping() -> None:
    work = Squares()

    @contextmanager
    def streaming() -> Generator[Callable[[Sequence[Sequence[int]]], Iterator[Rows]]]:
        def stream(batches: Sequence[Sequence[int]]) -> Iterator[Rows]:
            numbers = [number for batch in batches for number in batch][::-1]
            yield [(number, number**2) for number in numbers[:5]]
            yield [(number, number**2) for number in numbers[5:]]

        yield stream

    task = work.task([[number] for number in range(8)])
    fill(Task(task.title, task.batches, task.is_missing, streaming, task.keep))
    assert list(work.stored) == list(range(8))[::-1]


def test_results_that_were_never_given_are_told() -> None:
    class Lazy:
        def run(self, open_worker: Any, batches: Sequence[Sequence[Any]]) -> Generator[Any]:
            yield from LOCAL.run(open_worker, batches[1:])

    work = Squares()
    with pytest.raises(DivtokError, match="square: the work ended, but 3 of its 8 results"):
        fill(work.task(), Lazy())
    assert len(work.stored) == 5


def test_what_is_missing() -> None:
    assert missing_batches(BATCHES, lambda number: number in (0, 7)) == [BATCHES[0], BATCHES[2]]
    assert missing_batches(BATCHES, lambda _: False) == []


def test_rows_of_one_table(tmp_path: Path) -> None:
    """What a stage with one table needs: something to load, and its rows kept where new."""
    run = Run.create_or_open(tmp_path / "run")
    loaded: list[str] = []

    def load() -> Callable[[Sequence[str]], Sequence[Grade]]:
        loaded.append("model")
        return lambda batch: [Grade(key, None, Verdict.CORRECT) for key in batch]

    with run.lock():
        run.grades.append([Grade("b", None, Verdict.INCORRECT)])
        present = run.grades.keys()
        task = Task(
            "grade",
            [["a", "b"], ["c"]],
            lambda key: (key,) not in present,
            lambda: batch_by_batch(load),
            keep_new(run.grades, present),
        )
        fill(task)
    assert {grade.key: grade.verdict for grade in run.grades.read()} == {
        "a": Verdict.CORRECT,
        "b": Verdict.INCORRECT,
        "c": Verdict.CORRECT,
    }
    assert loaded == ["model"]
