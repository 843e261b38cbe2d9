"""What a kind of evidence is: its record and table, what it refuses, and how it is gathered.

A kind is a class; one instance of it is registered. It either rides on p's pass while trajectories
are traced (`ride`), or is gathered afterwards (`gather`), and is looked up again when estimators
that name it are scored (`find`). It is gathered only where an estimator of the config names it.

    class Surprise(EvidenceKind[Surprise]):
        name = "surprise"
        summary = "..."
        layout = Layout("surprises", SurpriseRecord, ("key",), (text("key"), ...))

        def gather(self, work: Gathering) -> None: ...

    SURPRISE = register(Surprise())
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from divtok.config.made_with import readers
from divtok.config.run import RunConfig
from divtok.errors import DataError, command
from divtok.families.family import Generator
from divtok.fill import LOCAL, Executor, Task, batch_by_batch, fill, keep_batch
from divtok.records import Reason, Trajectory, reason_kind
from divtok.registry import Registry
from divtok.store.layout import Key, Layout
from divtok.store.notes import keep_note
from divtok.store.responses import Response, rows_of
from divtok.store.run import Run
from divtok.store.space import READING_BYTES_PER_TOKEN, ROW_BYTES, require_space
from divtok.store.table import Table
from divtok.trace.listener import Listener

R = TypeVar("R")

# The record of one response; None where it was not gathered. A record without a value has a reason.
Find = Callable[[Response], R | None]


@dataclass(frozen=True, slots=True)
class Lacking:
    """Why a kind cannot be gathered under a config, and the setting that would help."""

    why: str
    setting: str


@dataclass(frozen=True, slots=True)
class ReadOn:
    """What a kind's model was trained to read, in tokens, and the responses that are longer.

    It read on past that where they have a record with a value.
    """

    trained_length: int
    beyond: frozenset[str]  # keys of responses


@dataclass(frozen=True, slots=True)
class Gathering:
    """A run, the config it is gathered for, and who does the work.

    With `benchmarks` only responses to these are read.
    """

    run: Run
    config: RunConfig
    retry_failed: bool = False
    executor: Executor = LOCAL
    benchmarks: Collection[str] | None = None

    def trajectories(self) -> list[Trajectory]:
        """Those that are to be read, in the order of problems and samples."""
        found = stored_trajectories(self.run)
        asked = self.benchmarks
        return [t for t in found if asked is None or t.benchmark in asked]

    def by_generator(self) -> list[tuple[Generator, list[Trajectory]]]:
        """Every generator with its responses; of a failed one there is nothing to read."""
        trajectories = [t for t in self.trajectories() if not t.failed]
        return [
            (generator, [t for t in trajectories if t.generator == generator.model])
            for generator in self.config.generator_presets()
        ]

    def questions(self) -> dict[tuple[str, str], str]:
        """(benchmark, problem id) -> question"""
        return {(p.benchmark, p.id): p.question for p in self.run.problems.read()}

    def fill(
        self,
        title: str,
        table: Table[R],
        batches: Sequence[Sequence[Trajectory]],
        key_of: Callable[[Trajectory], Key],
        load: Callable[[], Callable[[Sequence[Trajectory]], Sequence[R]]],
        models: Sequence[str] = (),
    ) -> None:
        """Make the missing rows of a table, one for each trajectory, with what `load` gives.

        `models` are those that read for it; the run remembers what they ran with.
        """
        present = self.present(table)

        def begin(missing: Sequence[Sequence[Trajectory]]) -> None:
            rows = [t for batch in missing for t in batch]
            tokens = sum(len(t.token_ids) for t in rows)
            size = len(rows) * ROW_BYTES + tokens * READING_BYTES_PER_TOKEN
            require_space(self.run.path, size)
            if models:
                self.run.note_maker(table.layout.name, readers(self.config, models))

        task = Task(
            title,
            batches,
            is_missing=lambda trajectory: key_of(trajectory) not in present,
            open=lambda: batch_by_batch(load),
            keep=keep_batch(table, present),
            note=partial(keep_note, self.run),
            begin=begin,
        )
        fill(task, self.executor)

    def present(self, table: Table[Any]) -> set[Key]:
        """The rows of a table that need not be made again."""
        present = table.keys()
        if self.retry_failed:
            present -= {table.layout.key_of(row) for row in table.read() if row.reason is not None}
        return present


@dataclass(frozen=True, slots=True, eq=False)
class Riding:
    """A kind on p's pass: the table of its records, their keys there, and who makes them.

    `open` is called only where p has to read, for it may load something.
    """

    table: Table[Any]
    key_of: Callable[[str], Key]  # of a trajectory's key
    open: Callable[[], Listener]


class EvidenceKind(Generic[R]):
    """See the module. Only `find` must be there, and `ride` or `gather` unless it costs nothing.

    `layout` is the table of its records; None where there is none of its own.
    """

    name: str
    summary: str
    layout: Layout[R] | None = None

    def refuse(self, config: RunConfig) -> Lacking | None:
        """What keeps it from being gathered, known before anything is loaded."""
        return None

    def models(self, config: RunConfig) -> Sequence[str]:
        """The models that are loaded for it, beside the pairs."""
        return ()

    def check(self, work: Gathering) -> None:
        """Refuse to mix stored rows with rows made otherwise. Called before any work."""

    def ride(self, work: Gathering, generator: Generator) -> Riding | None:
        """How it rides on the pass of the scored pair over a generator's responses."""
        return None

    def alone(self) -> Listener | None:
        """A listener that needs nothing but the pass, for a single response without a run."""
        return None

    def gather(self, work: Gathering) -> None:
        """Make the missing records."""

    def find(self, work: Gathering) -> Find[Any]:
        """How a response's record is looked up."""
        raise NotImplementedError

    def read_on(self, run: Run, config: RunConfig) -> ReadOn | None:
        """The responses that are longer than its model was trained to read, if that is known."""
        return None

    def failures(self, run: Run) -> list[str]:
        """Why records hold no value, for those that might be tried again."""
        table = self.table(run)
        if table is None:
            return []
        return [of_table(table, row.reason) for row in failed_records(table)]

    def table(self, run: Run) -> Table[R] | None:
        return None if self.layout is None else run.table(self.layout)


EVIDENCE: Registry[EvidenceKind[Any]] = Registry(
    "kind of evidence", group="divtok.evidence", home="divtok.evidence.kinds"
)


def register(kind: EvidenceKind[Any]) -> EvidenceKind[Any]:
    EVIDENCE.add(kind.name, kind)
    return kind


def stored_trajectories(run: Run) -> list[Trajectory]:
    """In the order of problems and samples, however the run has grown."""
    places = {key: place for place, key in enumerate(rows_of(run.problems, ("benchmark", "id")))}
    trajectories = sorted(
        run.trajectories.read(),
        key=lambda t: (places.get((t.benchmark, t.problem_id), len(places)), t.sample),
    )
    if not trajectories:
        raise no_trajectories(run)
    return trajectories


def no_trajectories(run: Run) -> DataError:
    return DataError(
        f"The run {run.path} has no trajectories yet.",
        next_step=f"Generate some first: {command('run', '--out', run.path)}; or bring some: "
        f"{command('import', 'FILE', '--out', run.path)}",
    )


def of_table(table: Table[Any], reason: str) -> str:
    """A reason with the table that it stands in; it keeps its kind."""
    kind, text = reason_kind(reason), f"{table.layout.name}: {reason}"
    return text if kind is None else Reason(kind, text)


def failed_records(table: Table[Any]) -> list[Any]:
    return [row for rows in table.batches() for row in rows if row.reason is not None]
