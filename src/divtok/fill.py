"""One loop for every stage that makes rows: find what is missing, make it, keep it.

What is kept stays, so the loop may end anywhere, and the next one makes the rest. Batches are
planned over all items, not over the missing ones, and are made whole: a batch may then be padded or
rounded in one way only, and an interrupted run ends with exactly the rows of an uninterrupted one.
A stage whose items do not depend on each other plans batches of one item.

Knows no model and no config. A stage says what it wants done as a `Task`; an `Executor` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from divtok.errors import DivtokError
from divtok.progress import noted_by, track
from divtok.store.layout import Key
from divtok.store.table import Table

I = TypeVar("I")  # noqa: E741 (an item)
R = TypeVar("R")  # a result: what an item has become

# Results for batches of items, one for each item. A worker may yield those of a batch together, or
# results as they are finished, in any order and grouping.
Work: TypeAlias = Callable[[Sequence[Sequence[I]]], Iterator[Sequence[R]]]
# Loads or connects what the work takes, and lets it go again at the end of the block.
OpenWorker: TypeAlias = Callable[[], AbstractContextManager[Work[I, R]]]


class Executor(Protocol):
    """Where work is done: in this process, or in others."""

    def run(
        self, open_worker: OpenWorker[I, R], batches: Sequence[Sequence[I]]
    ) -> Generator[Sequence[R]]:
        """The results of all batches, as they come. Closing the generator ends the work."""
        ...


class _Local:
    """One worker in this process."""

    def run(
        self, open_worker: OpenWorker[I, R], batches: Sequence[Sequence[I]]
    ) -> Generator[Sequence[R]]:
        with open_worker() as work:
            yield from work(batches)


LOCAL: Executor = _Local()


@dataclass(frozen=True, slots=True)
class Task(Generic[I, R]):
    """Something to do for every item of which the result is not there yet.

    `batches` hold all items, in a plan that does not depend on what is there. Those that lack a
    result are made whole, because results may depend on what they are made beside; unless they are
    not `whole`: then only what is missing is made. `begin` is called
    with those to be made, before anything is loaded, and `open` after it: only if something is
    missing, and `open` possibly in several processes, each of which then works on some of the
    batches. `keep` is called in this process with results as they come. It stores what is new:
    since batches are made whole, results may be there already. `note` keeps what is noticed while
    work is done in this process, such as that memory ran out and batches were made smaller.
    """

    title: str
    batches: Sequence[Sequence[I]]
    is_missing: Callable[[I], bool]
    open: OpenWorker[I, R]
    keep: Callable[[Sequence[R]], None]
    note: Callable[[str], None] | None = None
    begin: Callable[[Sequence[Sequence[I]]], None] = lambda _: None
    whole: bool = True


def fill(task: Task[I, R], executor: Executor = LOCAL) -> None:
    """Make and keep what is missing, with progress on stderr."""
    missing = missing_batches(task.batches, task.is_missing)
    if not task.whole:
        missing = [[item for item in batch if task.is_missing(item)] for batch in missing]
    total, left = _count(task.batches), _count(missing)
    with track(task.title, total=total, done=total - left) as advance:
        if not missing:
            return
        task.begin(missing)
        with noted_by(task.note), closing(executor.run(task.open, missing)) as results:
            for rows in results:
                task.keep(rows)
                advance(len(rows))
                left -= len(rows)
    if left > 0:
        raise DivtokError(
            f"{task.title}: the work ended, but {left} of its {total} results were never given.",
            next_step="Run the same command again; if that does not help, report it to whoever "
            "wrote what does this work.",
        )


def missing_batches(
    batches: Sequence[Sequence[I]], is_missing: Callable[[I], bool]
) -> list[Sequence[I]]:
    """The batches of which any item is missing."""
    return [batch for batch in batches if any(map(is_missing, batch))]


@contextmanager
def batch_by_batch(
    load: Callable[[], Callable[[Sequence[I]], Sequence[R]]],
) -> Generator[Work[I, R]]:
    """A worker from something to load that turns one batch at a time into its results."""
    make = load()
    yield lambda batches: map(make, batches)


def keep_new(table: Table[R], present: set[Key]) -> Callable[[Sequence[R]], None]:
    """A `keep` for results that are rows of one table: those that are not present are appended."""
    key_of = table.layout.key_of
    return lambda rows: table.append([row for row in rows if key_of(row) not in present])


def keep_batch(table: Table[R], present: set[Key]) -> Callable[[Sequence[R]], None]:
    """A `keep` for batches of rows of one table whose last digits depend on their batch.

    Where any row is new all are appended, and count instead of those of before: a batch that has
    grown is then as if it had been so from the start.
    """
    key_of = table.layout.key_of

    def keep(rows: Sequence[R]) -> None:
        if any(key_of(row) not in present for row in rows):
            table.append(rows)

    return keep


def chunks(items: Sequence[I], size: int) -> list[Sequence[I]]:
    """The items in their order, so many to a batch."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def _count(batches: Sequence[Sequence[I]]) -> int:
    return sum(len(batch) for batch in batches)
