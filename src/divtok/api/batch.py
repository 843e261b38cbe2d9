"""Many responses in one call: rows in, one confidence each out, read together as in a run."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from divtok.api import NO_TEXT
from divtok.api.result import Result
from divtok.api.rows import RowsLike, cells
from divtok.api.scoring import FitLike, PolicyLike, Scored, Scoring, not_text
from divtok.api.tables import Shown
from divtok.decide.likeness import unlike
from divtok.decide.policy import Decision, certain
from divtok.errors import DataError, DivtokError, ModelError, ResourceError, UsageError
from divtok.progress import track
from divtok.protocols.encode import prompt_ids
from divtok.records import CountedTokens, Reason, Scalar, Trace
from divtok.trace.batches import Row
from divtok.trace.listener import Read
from divtok.trace.pair import Pair
from divtok.trace.topk.server_pair import ServerPair

if TYPE_CHECKING:
    import polars as pl

FIELDS = ("question", "response")
# Rows that are tokenised and read together: some packs of usual responses.
ROWS_AT_ONCE = 256

# Weights on one device gain nothing from two readers, which would need twice the memory.
_reading = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Confidences(Shown):
    """One confidence for each row, in the order of the rows. Made by `confidences`.

    `values`, `reasons` and `found[i]` are of one estimator, `estimator`: the first that was named.
    Where there are several, `found[NAME]` is the same for another.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> rows = [("What is 1 + 1?", "It is 2."), ("What is 2 + 2?", "")]
        >>> found = divtok.confidences(rows, pair=pair, estimator=["dtc_lin", "nsl"])
        >>> found.reasons
        [None, 'there is no text in it']
        >>> found["nsl"].values[1] is None, found[1] is None
        (True, True)
        >>> found.to_polars().columns
        ['dtc_lin', 'nsl', 'count', 'tokens', 'reason']
    """

    scoring: Scoring
    rows: Sequence[Scored]
    place: int = 0  # of the estimator

    @property
    def estimators(self) -> list[str]:
        return [spec.name for spec, _ in self.scoring.chosen]

    @property
    def estimator(self) -> str:
        return self.estimators[self.place]

    @property
    def params(self) -> Mapping[str, Scalar]:
        return self.scoring.params(self.place)

    @property
    def theta(self) -> float:
        return self.scoring.theta

    @property
    def values(self) -> list[float | None]:
        """A confidence for each row; None where `reasons` says why there is none."""
        return [row.confidences[self.place].value for row in self.rows]

    @property
    def reasons(self) -> list[str | None]:
        return [row.confidences[self.place].reason for row in self.rows]

    @property
    def bounds(self) -> list[tuple[float, float] | None]:
        """Where servers gave bounds only: what each value certainly lies between."""
        found = [row.confidences[self.place] for row in self.rows]
        return [None if c.low is None or c.high is None else (c.low, c.high) for c in found]

    @property
    def certain(self) -> list[float | None]:
        """What each value is at least: itself, or the lower end of its bounds."""
        return [certain(row.confidences[self.place]) for row in self.rows]

    @property
    def counts(self) -> list[int | None]:
        """The divergent tokens of each response; None where it was not read."""
        return [None if row.counts is None else row.counts.count for row in self.rows]

    @property
    def traces(self) -> list[Trace | None]:
        """The numbers of each token; None where a response was not read, or traces not kept."""
        return [row.trace for row in self.rows]

    @property
    def decisions(self) -> list[Decision | None]:
        """What the policy says of each row; None where none was given."""
        return [self.scoring.decision(row) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Result | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result | None]: ...
    @overload
    def __getitem__(self, index: str) -> Confidences: ...
    def __getitem__(
        self, index: int | slice | str
    ) -> Result | list[Result | None] | Confidences | None:
        if isinstance(index, str):
            if index not in self.estimators:
                known = ", ".join(self.estimators)
                raise UsageError(f"'{index}' was not scored.", next_step=f"There are: {known}.")
            return replace(self, place=self.estimators.index(index))
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        row = self.rows[index]
        if row.counts is not None and row.trace is None:
            raise UsageError(
                "The tokens of this response were not kept.",
                next_step="Call confidences with keep_traces=True, or confidence for this row.",
            )
        return self.scoring.result(row, self.place)

    def __iter__(self) -> Iterator[Result | None]:
        return (self[index] for index in range(len(self)))

    def to_polars(self) -> pl.DataFrame:
        """A row for each row: a column for each estimator, then count, tokens and reason.

        Where servers gave bounds only, NAME_low and NAME_high, count_low and count_high follow, and
        with a policy its `action`.
        """
        import polars as pl

        counts = [row.counts for row in self.rows]
        columns: dict[str, Any] = {
            name: pl.Series([r.confidences[i].value for r in self.rows], dtype=pl.Float64)
            for i, name in enumerate(self.estimators)
        }
        whole = {"count": "count", "tokens": "length"}
        if isinstance(self.scoring.pair, ServerPair):
            for i, name in enumerate(self.estimators):
                for end in ("low", "high"):
                    values = [getattr(r.confidences[i], end) for r in self.rows]
                    columns[f"{name}_{end}"] = pl.Series(values, dtype=pl.Float64)
            whole |= {"count_low": "low", "count_high": "high"}
        for column, field in whole.items():
            values = [None if c is None else getattr(c, field) for c in counts]
            columns[column] = pl.Series(values, dtype=pl.Int64)
        if self.scoring.policy is not None:
            actions = [None if one is None else one.action for one in self.decisions]
            columns["action"] = pl.Series(actions, dtype=pl.String)
        reasons = ["; ".join(_distinct_reasons(row)) or None for row in self.rows]
        return pl.DataFrame({**columns, "reason": pl.Series(reasons, dtype=pl.String)})

    def _summary(self) -> str:
        p, q = self.scoring.pair.p.name, self.scoring.pair.q.name
        text = (
            f"{len(self):,} confidences by {', '.join(self.estimators)} at theta {self.theta:g}, "
            f"read by {p} and {q}"
        )
        lacking = Counter(r.kind if isinstance(r, Reason) else r for r in self.reasons if r)
        if lacking:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in lacking.most_common())
            text += f"; {lacking.total():,} without a value ({kinds})"
        return text


def confidences(
    rows: RowsLike,
    *,
    pair: Pair | ServerPair,
    theta: float | None = None,
    generator: str | None = None,
    estimator: str | Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    batch: int = ROWS_AT_ONCE,
    keep_traces: bool = True,
    progress: bool = True,
    tokens: CountedTokens = "reasoning",
    fitted: FitLike | None = None,
    prior: float | None = None,
    policy: PolicyLike | None = None,
    **parameters: Scalar,
) -> Confidences:
    """How far to trust each of many responses as an answer to its question.

    `rows` are pairs (question, response), dicts with these two names, or a DataFrame of polars or
    pandas with such columns; `columns={"response": "output"}` says where else they are. The result
    has one entry for each row, in order. A row that cannot be scored has None and a reason: one row
    never ends the call.

    `theta`, `generator`, `tokens`, `fitted`, `prior`, `policy` and `parameters` are those of
    `confidence`; with a policy there is a Python warning where these confidences look unlike those
    that it was made on.
    Several estimators read a response once, and each takes the parameters it has. Rows are read
    `batch` at a time, as many tokens at once as memory allows. Numbers of rows that were read
    together differ from those of a row alone by rounding, some 1e-5 bits. The traces that
    `found[i]` shows take some 30 bytes a token: `keep_traces=False` does without.

    Example:
        >>> import divtok, polars as pl
        >>> pair = divtok.load_pair("tiny")
        >>> table = pl.DataFrame({"prompt": ["What is 1 + 1?"], "response": ["It is 2."]})
        >>> columns = {"question": "prompt"}
        >>> found = divtok.confidences(table, pair=pair, columns=columns, progress=False)
        >>> len(found), found.counts == [found[0].count]
        (1, True)
    """
    ask = partial(Scoring.of, pair, theta=theta, generator=generator, parameters=parameters)
    asked = ask(estimators=estimator, tokens=tokens, fitted=fitted, prior=prior, policy=policy)
    return _confidences(asked, rows, columns, batch, keep_traces, progress)


async def aconfidences(
    rows: RowsLike,
    *,
    pair: Pair | ServerPair,
    theta: float | None = None,
    generator: str | None = None,
    estimator: str | Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    batch: int = ROWS_AT_ONCE,
    keep_traces: bool = True,
    progress: bool = False,
    tokens: CountedTokens = "reasoning",
    fitted: FitLike | None = None,
    prior: float | None = None,
    policy: PolicyLike | None = None,
    **parameters: Scalar,
) -> Confidences:
    """`confidences` in a thread, so that an event loop goes on meanwhile.

    Calls with models of this process take turns, batch by batch. Where the task is cancelled the
    thread ends after the batch it is at.

    Example:
        >>> import asyncio, divtok
        >>> pair = divtok.load_pair("tiny")
        >>> rows = [("What is 1 + 1?", "It is 2.")]
        >>> found = asyncio.run(divtok.aconfidences(rows, pair=pair))
        >>> found.values == divtok.confidences(rows, pair=pair, progress=False).values
        True
    """
    ask = partial(Scoring.of, pair, theta=theta, generator=generator, parameters=parameters)
    asked = ask(estimators=estimator, tokens=tokens, fitted=fitted, prior=prior, policy=policy)
    stop = threading.Event()
    work = partial(_confidences, asked, rows, columns, batch, keep_traces, progress, stop)
    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        stop.set()
        raise


def _confidences(
    asked: Scoring,
    rows: RowsLike,
    columns: Mapping[str, str] | None,
    batch: int,
    keep_traces: bool,
    progress: bool,
    stop: threading.Event | None = None,
) -> Confidences:
    if batch < 1:
        raise UsageError(f"batch must be at least 1, not {batch}.")
    given = cells(rows, FIELDS, columns)
    if given:
        prompt_ids(asked.pair.p.tokenizer, "")  # a template that never works is an error at once
    found: list[Scored] = []
    with track("confidences", total=len(given)) if progress else nullcontext() as advance:
        for start in range(0, len(given), batch):
            if stop is not None and stop.is_set():
                break
            scored = scored_rows(asked, start, given[start : start + batch])
            found += scored if keep_traces else [replace(row, trace=None) for row in scored]
            if advance is not None:
                advance(len(scored))
    asked.warn(stacklevel=4)
    made = Confidences(asked, found)
    if asked.policy is not None:
        values = made[asked.policy.scored.estimator].certain
        why = unlike(asked.policy, [value for value in values if value is not None])
        if why is not None:
            warnings.warn(f"{why[0].upper()}{why[1:]}.", stacklevel=3)
    return made


def scored_rows(
    asked: Scoring, start: int, given: Sequence[tuple[Any, ...] | Reason]
) -> list[Scored]:
    """One for each question and response, whatever they are; `start` numbers the first.

    Read together where the pair is one of models, while nobody else reads.
    """
    found: dict[int, Scored] = {}
    rows: list[tuple[int, Row]] = []
    for place, values in enumerate(given):
        if isinstance(values, Reason):
            found[place] = asked.unscored(None, values)
            continue
        question, response = values
        row = _row(asked, str(start + place), question, response)
        if isinstance(row, Reason):
            found[place] = asked.unscored(response, row)
        else:
            rows.append((place, row))
    with _reading if isinstance(asked.pair, Pair) else nullcontext():
        found |= zip(
            (place for place, _ in rows), _scored(asked, [row for _, row in rows]), strict=True
        )
    return [found[place] for place in range(len(given))]


def _row(asked: Scoring, key: str, question: object, response: object) -> Row | Reason:
    for name, text in zip(FIELDS, (question, response), strict=True):
        why = not_text(name, text)
        if why is not None:
            return why
    assert isinstance(question, str)
    assert isinstance(response, str)
    if not response.strip():
        return NO_TEXT
    try:
        return asked.row(key, question, response)
    except ModelError as error:  # the template refuses this question
        return Reason("prompt", error.what)


def _scored(asked: Scoring, rows: Sequence[Row]) -> list[Scored]:
    """Read together; where a row makes that fail, the others are read without it."""
    if not rows:
        return []
    try:
        reads = asked.read(rows)
    except (DataError, ResourceError, UsageError) as error:
        if len(rows) == 1:
            return [asked.unscored(rows[0].text, Reason("failed", error.what))]
        half = len(rows) // 2
        return _scored(asked, rows[:half]) + _scored(asked, rows[half:])
    return [_one(asked, row, read) for row, read in zip(rows, reads, strict=True)]


def _one(asked: Scoring, row: Row, read: Read) -> Scored:
    try:
        return asked.scored(row, read)
    except DivtokError as error:  # an estimator that gives no confidence
        return asked.unscored(row.text, Reason("failed", error.what))


def _distinct_reasons(row: Scored) -> list[str]:
    return list(dict.fromkeys(c.reason for c in row.confidences if c.reason is not None))
