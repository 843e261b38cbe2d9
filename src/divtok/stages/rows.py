"""The rows of a run, one for each response, with all that is known of it: shard by shard.

What a row is, and which columns there are; what becomes of them (a file, a frame, a line in the
terminal) is not known here. No model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from divtok.config.run import RunConfig
from divtok.progress import track
from divtok.stages.facts import Cells, Facts, column_of
from divtok.stages.suspects import Suspects
from divtok.store.columns import ArrowTable
from divtok.store.responses import rows_of
from divtok.store.run import Run

if TYPE_CHECKING:
    import polars as pl

# "foreign": text of models, servers and files. "word": ours.
Kind = Literal["foreign", "word", "number", "whole", "tokens", "truth", "words"]

SUSPECTS = "suspect_tokens"
UNEXPECTED = "unexpected_count"
FROM_TRACES: dict[str, Kind] = {UNEXPECTED: "whole", SUSPECTS: "tokens"}
# Rows that are made at once; a shard may hold all of a run.
ROWS_AT_ONCE = 1024
_MANY = 5000  # rows that take long enough for progress to be shown

_RESPONSE = ("key", "benchmark", "problem_id", "sample", "generator", "finish_reason")
_WHO: dict[str, Kind] = {
    "key": "word",
    "benchmark": "foreign",
    "problem_id": "foreign",
    "sample": "whole",
    "generator": "foreign",
    "question": "foreign",
    "response": "foreign",
    "finish_reason": "word",
    "gold": "foreign",
}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind


class RunRows:
    """The rows of a run in the order of its trajectories.

    Without `tokens` the traces are not read, and no row has its divergent tokens, nor how many are
    unexpected. `tell` takes what the user should know.
    """

    def __init__(
        self, run: Run, config: RunConfig, *, tell: Callable[[str], None], tokens: bool = True
    ) -> None:
        self._run = run
        self.facts = Facts(run, config)
        read = tokens or self.facts.uncounted
        suspects = Suspects(run, config, self.facts, tell) if read else None
        self._suspects = suspects if tokens else None

    @property
    def columns(self) -> list[Column]:
        """Who and what; then `found`."""
        return [*(Column(name, kind) for name, kind in _WHO.items()), *self.found]

    @property
    def found(self) -> list[Column]:
        """What divtok found: the answer, whether it is right, confidences and counts."""
        facts = self.facts
        kinds: dict[str, Kind] = {"answer": "foreign", "verdict": "word"}
        kinds["verdict_reason"] = "foreign"
        for estimator in facts.estimators:
            name = column_of(estimator)
            kinds[name] = "number"
            if estimator in facts.bounded:
                kinds |= {f"{name}_low": "number", f"{name}_high": "number"}
            if estimator in facts.stated:
                kinds[f"{name}_prior"] = "number"
        kinds["count"] = "whole"
        if facts.bounded_counts:
            kinds |= {"count_low": "whole", "count_high": "whole"}
        kinds |= {"tokens": "whole", "theta": "number"}
        if facts.counted != "reasoning":
            kinds["counted"] = "word"
        if self._suspects is not None:
            kinds |= FROM_TRACES
        kinds["reason"] = "foreign"
        return [Column(name, kind) for name, kind in kinds.items()]

    def __len__(self) -> int:
        return len(self.facts)

    def batches(self, wanted: Callable[[int], bool] = lambda _: True) -> Iterator[list[Cells]]:
        """The rows, some at a time; of places that are not wanted there is none."""
        problems = {
            (benchmark, name): (question, gold)
            for benchmark, name, question, gold in rows_of(
                self._run.problems, ("benchmark", "id", "question", "answer")
            )
        }
        order = [column.name for column in self.columns]
        for first, part in self._parts():
            places = [first + row for row in range(len(part)) if wanted(first + row)]
            found: list[Cells] = []
            columns = [part.column(name).to_pylist() for name in (*_RESPONSE, "text") if places]
            for place in places:
                *who, text = (column[place - first] for column in columns)
                cells: Cells = dict(zip(_RESPONSE, who, strict=True))
                asked = problems.get((cells["benchmark"], cells["problem_id"]))
                question, gold = asked or (None, None)
                cells |= {"question": question, "response": text, "gold": gold}
                cells |= self._found(place, cells, partial(_ids, part, place - first))
                found.append({name: cells[name] for name in order})
            yield found

    def _parts(self) -> Iterator[tuple[int, ArrowTable]]:
        """Slices of the trajectories, each with the place of its first row."""
        slow = self._suspects is not None  # texts of tokens take nearly all of the time
        names = (*_RESPONSE, "text", *(["token_ids"] if slow else []))
        first, watched = 0, slow and len(self) >= _MANY
        with track("rows", total=len(self)) if watched else nullcontext(_nothing) as advance:
            for shard in self._run.trajectories.columns(names):
                for start in range(0, len(shard), ROWS_AT_ONCE):
                    part = shard.slice(start, ROWS_AT_ONCE)
                    yield first, part
                    first += len(part)
                    advance(len(part))

    def frame(self) -> pl.DataFrame:
        """All rows as a polars frame."""
        import polars as pl

        tables = [arrow_table(self.columns, rows) for rows in self.batches()]
        schema = arrow_schema(self.columns)
        frame = pl.from_arrow(pa.concat_tables([schema.empty_table(), *tables]))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _found(self, place: int, who: Cells, given: Callable[[], Sequence[int]]) -> Cells:
        found = self.facts.cells(place)
        if self._suspects is not None:
            generator, text = who["generator"], who["response"]
            found[UNEXPECTED] = self._suspects.unexpected(place)
            found[SUSPECTS] = self._suspects.of(place, generator, text, given)
        return found


_SUSPECT_TYPE = pa.struct(
    [("position", pa.int64()), ("text", pa.string()), ("jsd_bits", pa.float64())]
)
_TYPES: dict[Kind, Any] = {
    "foreign": pa.string(),
    "word": pa.string(),
    "number": pa.float64(),
    "whole": pa.int64(),
    "tokens": pa.list_(_SUSPECT_TYPE),
    "truth": pa.bool_(),
    "words": pa.list_(pa.string()),
}


def arrow_schema(columns: Sequence[Column]) -> Any:
    return pa.schema([(column.name, _TYPES[column.kind]) for column in columns])


def arrow_table(columns: Sequence[Column], rows: Sequence[Cells]) -> ArrowTable:
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))


def _ids(part: ArrowTable, row: int) -> Sequence[int]:
    return part.column("token_ids")[row].as_py()


def _nothing(_: int) -> None:
    """Progress of what is done at once."""
