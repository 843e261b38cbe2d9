"""The page that shows why: the responses of a run with their tokens, as one file to open.

No model is loaded; a tokenizer gives the texts of tokens, where it is on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from divtok.config.run import RunConfig
from divtok.errors import DataError, UsageError
from divtok.page.data import (
    PageConfidence,
    PageEstimator,
    PageReading,
    PageRow,
    PageRun,
    PageTokens,
    packed_tokens,
)
from divtok.page.write import page_html
from divtok.records import Trace, Trajectory, Verdict
from divtok.score.estimators.dtc import divergent_count, linear_confidence
from divtok.score.estimators.guarded import NAME as GUARDED
from divtok.score.registry import ESTIMATORS
from divtok.stages.facts import Cells, Facts, column_of
from divtok.stages.show import usual_estimator
from divtok.stages.stored import scored_traces, stored_config
from divtok.stages.suspects import Texts, all_texts
from divtok.store.atomic import make_folder, write_text_atomically
from divtok.store.responses import rows_of, stored_responses
from divtok.store.run import Run

# A page of this many responses of 1,000 tokens is about 30 MB.
AT_MOST = 1000
LINEAR = "dtc_lin"
_SAME = 1e-9  # as near as one value comes to itself, computed twice


@dataclass(frozen=True, slots=True)
class Viewed:
    """What was written: a page with so many of the run's responses."""

    path: Path
    responses: int
    total: int


def view(
    run: Run,
    config: RunConfig,
    *,
    out: Path | None,
    tell: Callable[[str], None],
    limit: int | None = None,
    estimator: str | None = None,
    against: Run | None = None,
) -> Viewed:
    """Write the page, by default view.html in the run's report folder, and say where it is.

    It has the first `limit` responses, 1,000 unless that is given; with `against` also what another
    run says of them.
    """
    path = run.report / "view.html" if out is None else out
    _check(path, limit)
    own = _Readings(run, config, tell)
    if not len(own.facts):
        raise DataError(
            f"The run {run.path} has no responses.",
            next_step="Make some with 'divtok generate', or bring some with 'divtok import'.",
        )
    wanted = frozenset(islice(own.facts.places, AT_MOST if limit is None else limit))
    other = None if against is None else _Readings(against, stored_config(against), tell)
    rows = own.rows(wanted)
    if other is not None:
        rows = _with_other(rows, other, wanted)
    html = page_html(
        rows,
        run=own.about(estimator),
        against=None if other is None else other.about(None),
    )
    make_folder(path.parent)
    write_text_atomically(path, html)
    return Viewed(path, len(rows), len(own.facts))


def _check(path: Path, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(
            f"A page of {limit} responses shows nothing.", next_step="Give a limit of 1 or more."
        )
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", next_step="Give --out a file.")


class _Readings:
    """What a run says of its responses."""

    def __init__(self, run: Run, config: RunConfig, tell: Callable[[str], None]) -> None:
        self._run, self._config = run, config
        self.facts = Facts(run, config)
        self._texts = Texts(config, tell, without="The page has no texts of tokens")
        self._guard = float(config.bound(GUARDED)["guard"])
        self._line = {name: float(config.bound(LINEAR)[name]) for name in ("n", "a", "b")}

    def about(self, estimator: str | None) -> PageRun:
        names = self.facts.estimators
        first = usual_estimator(self._run, self.facts, estimator) if names or estimator else None
        return PageRun(
            title=self._run.path.name,
            theta=self.facts.theta,
            estimators=[PageEstimator(name, _is_share(name)) for name in names],
            estimator=first,
            bins=self._config.evaluate.bins,
            total=len(self.facts),
        )

    def rows(self, wanted: Collection[str]) -> list[PageRow]:
        asked = {
            (benchmark, name): (question, gold)
            for benchmark, name, question, gold in rows_of(
                self._run.problems, ("benchmark", "id", "question", "answer")
            )
        }
        found: list[PageRow] = []
        for trajectory, reading in self.readings(wanted):
            cells = self.facts.cells(self.facts.places[trajectory.key])
            where = (trajectory.benchmark, trajectory.problem_id)
            question, gold = asked.get(where, (None, None))
            found.append(_row(trajectory, cells, question, gold, reading))
        return found

    def readings(self, wanted: Collection[str]) -> Iterator[tuple[Trajectory, PageReading]]:
        """Of the responses that are wanted, in the order of the run."""
        responses = stored_responses(self._run)
        traces = {
            trace.key: trace
            for response, trace in scored_traces(self._run, self._config, responses)
            if response.key in wanted
        }
        for batch in self._run.trajectories.batches():
            for trajectory in batch:
                if trajectory.key in wanted:
                    yield trajectory, self._reading(trajectory, traces.get(trajectory.key))

    def _reading(self, trajectory: Trajectory, trace: Trace | None) -> PageReading:
        cells = self.facts.cells(self.facts.places[trajectory.key])
        if trace is not None and trace.status != "ok":
            trace = None  # `reason` says why
        count = cells["count"]
        if count is None and trace is not None:  # read, and not scored yet
            count = divergent_count(trace, theta=self.facts.theta)
        return PageReading(
            pair=self._config.scored_pairs().get(trajectory.generator),
            count=count,
            count_low=cells.get("count_low"),
            count_high=cells.get("count_high"),
            confidences={name: _confidence(cells, name) for name in self.facts.estimators},
            line=self._line if self._follows(cells, count) else None,
            tokens=None if trace is None else self._tokens(trajectory, trace),
            reason=cells["reason"],
        )

    def _tokens(self, trajectory: Trajectory, trace: Trace) -> PageTokens:
        texts = all_texts(self._texts, trace, trajectory.text, lambda: trajectory.token_ids)
        return packed_tokens(trace, texts, theta=self.facts.theta, guard=self._guard)

    def _follows(self, cells: Cells, count: int | None) -> bool:
        """Whether the stored confidence is the line in the count: no map and no prior over it."""
        value = cells.get(column_of(LINEAR))
        if value is None or count is None:
            return False
        return abs(value - float(linear_confidence(count, **self._line))) < _SAME


def _with_other(rows: list[PageRow], other: _Readings, wanted: Collection[str]) -> list[PageRow]:
    found = {trajectory.key: reading for trajectory, reading in other.readings(wanted)}
    if not found:
        raise DataError(
            "The two runs have no response in common.",
            next_step="Compare runs of the same responses, read by two pairs.",
        )
    return [replace(row, other=found.get(row.key)) for row in rows]


def _is_share(name: str) -> bool:
    """Unless its estimator says otherwise, which may be of a package that is not installed."""
    return name not in ESTIMATORS or ESTIMATORS.get(name).bounded


def _confidence(cells: Cells, name: str) -> PageConfidence:
    column = column_of(name)
    value, low, high, prior = (cells.get(column + end) for end in ("", "_low", "_high", "_prior"))
    return PageConfidence(value, low, high, prior)


def _row(
    trajectory: Trajectory,
    cells: Cells,
    question: str | None,
    gold: str | None,
    reading: PageReading,
) -> PageRow:
    verdict = cells["verdict"]
    decided = verdict in (Verdict.CORRECT.value, Verdict.INCORRECT.value)
    return PageRow(
        key=trajectory.key,
        benchmark=trajectory.benchmark,
        problem=trajectory.problem_id,
        sample=trajectory.sample,
        generator=trajectory.generator,
        question=question,
        response=trajectory.text,
        gold=gold,
        answer=cells["answer"],
        verdict=verdict,
        verdict_reason=cells["verdict_reason"],
        finish=trajectory.finish_reason,
        graded=decided and trajectory.finish_reason != "length",
        reading=reading,
    )
