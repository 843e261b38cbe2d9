"""What a run's tables say of each response beside its text: verdict, confidences, count, reasons.

Held as one number or word for each response, so that a run of a million responses fits into memory;
texts, tokens and traces are left where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.config.run import RunConfig
from divtok.records import CountedTokens, Counts
from divtok.score.registry import ESTIMATORS, in_order
from divtok.stages.stored import response_of
from divtok.store.responses import rows_of
from divtok.store.run import Run

NOT_GRADED = "not graded yet"
NOT_READ = "not read yet"
NOT_SCORED = "not scored yet"
# Columns of every row; an estimator of such a name has a column of another.
OTHERS = (
    *("key", "benchmark", "problem_id", "sample", "generator", "question", "response"),
    *("finish_reason", "gold", "answer", "verdict", "verdict_reason", "count", "tokens", "theta"),
    *("counted", "suspect_tokens", "reason"),
)
_MISSING = -1

Numbers = npt.NDArray[np.float64]
Cells = dict[str, Any]


class Facts:
    """Every response of a run by its position in the table of trajectories.

    `estimators` are those of the run's confidences, in the order of tables; `bounded` those of them
    that have bounds, and `stated` those that are stated for a share of right answers. `theta` and
    `counted` are what the counts were made with, and over.
    """

    def __init__(self, run: Run, config: RunConfig) -> None:
        self._run = run
        keys = rows_of(run.trajectories, ("key",))
        self.places: dict[str, int] = {key: place for place, (key,) in enumerate(keys)}
        self._read_grades()
        self._read = np.zeros(len(self), dtype=bool)
        for (key,) in rows_of(run.traces, ("key",)):
            self._read[self._place(key)] = True
        self._read_counts(config)
        self._read_confidences()

    def __len__(self) -> int:
        return len(self.places)

    def value(self, estimator: str) -> Numbers:
        """Its confidence in every response, NaN where there is none."""
        return self._values[estimator]

    def verdict(self, place: int) -> str | None:
        return self._verdicts[place]

    def count(self, place: int) -> int | None:
        return _whole(self._counts["count"][place])

    @property
    def uncounted(self) -> bool:
        """Whether there are traces and no counts, as before the first scoring."""
        return bool(self._read.any() and (self._counts["count"] == _MISSING).all())

    def add_count(self, place: int, counts: Counts) -> None:
        """What a trace counts, where the run was not scored since there are counts."""
        self._set_count(place, counts.count, counts.low, counts.high, counts.length)

    def cells(self, place: int) -> Cells:
        """What is known of one response, by the names of columns; a value that is missing is None.

        `reason` says why there is no confidence or count.
        """
        found: Cells = {
            "answer": self._answers[place],
            "verdict": self._verdicts[place],
            "verdict_reason": self._verdict_reasons[place],
        }
        for name in self.estimators:
            column = column_of(name)
            found[column] = _number(self._values[name][place])
            if name in self.bounded:
                found[f"{column}_low"] = _number(self._lows[name][place])
                found[f"{column}_high"] = _number(self._highs[name][place])
            if name in self.stated:
                found[f"{column}_prior"] = _number(self._priors[name][place])
        counted = {name: _whole(values[place]) for name, values in self._counts.items()}
        found |= {"count": counted["count"]}
        if self.bounded_counts:
            found |= {"count_low": counted["low"], "count_high": counted["high"]}
        found |= {"tokens": counted["length"]}
        found["theta"] = None if found["count"] is None else self.theta
        found["counted"] = None if found["count"] is None else self.counted
        return found | {"reason": self._reason(place)}

    def _reason(self, place: int) -> str | None:
        if place in self._reasons:
            return "; ".join(self._reasons[place])
        scored = any(not np.isnan(self._values[name][place]) for name in self.estimators)
        if scored:
            return None
        return NOT_SCORED if self._read[place] else NOT_READ

    def _read_grades(self) -> None:
        size = len(self)
        self._answers: list[str | None] = [None] * size
        self._verdicts: list[str | None] = [None] * size
        self._verdict_reasons: list[str | None] = [NOT_GRADED] * size
        names = ("key", "extracted", "verdict", "reason")
        for key, answer, verdict, reason in rows_of(self._run.grades, names):
            place = self._place(key)
            self._answers[place], self._verdicts[place] = answer, verdict
            self._verdict_reasons[place] = reason

    def _read_counts(self, config: RunConfig) -> None:
        names = ("count", "low", "high", "length")
        self._counts = {name: np.full(len(self), _MISSING, np.int64) for name in names}
        self.theta, self.bounded_counts = config.theta, False
        self.counted: CountedTokens = config.score.tokens
        columns = ("key", "theta", "counted", *names)
        for key, theta, over, *counted in rows_of(self._run.counts, columns):
            self.theta, self.counted = theta, over or "reasoning"
            self._set_count(self._place(key), *counted)

    def _set_count(
        self, place: int, count: int, low: int | None, high: int | None, length: int
    ) -> None:
        for values, value in zip(self._counts.values(), (count, low, high, length), strict=True):
            values[place] = _MISSING if value is None else value
        self.bounded_counts |= low is not None

    def _read_confidences(self) -> None:
        self._values: dict[str, Numbers] = {}
        self._lows: dict[str, Numbers] = {}
        self._highs: dict[str, Numbers] = {}
        self._priors: dict[str, Numbers] = {}
        self._reasons: dict[int, dict[str, None]] = {}  # in order, each once
        names = ("key", "estimator", "value", "low", "high", "reason", "prior")
        for key, name, value, low, high, reason, prior in rows_of(self._run.confidences, names):
            place = self._place(key)
            if name not in self._values:
                self._values[name] = self._nothing()
            if value is not None:
                self._values[name][place] = value
            elif reason is not None:
                self._reasons.setdefault(place, {})[reason] = None
            if low is not None and high is not None:
                for bounds, bound in ((self._lows, low), (self._highs, high)):
                    bounds.setdefault(name, self._nothing())[place] = bound
            if prior is not None:
                self._priors.setdefault(name, self._nothing())[place] = prior
        self.estimators = tuple(_ordered(self._values))
        self.stated = frozenset(self._priors)
        self.bounded = frozenset(self._lows)

    def _nothing(self) -> Numbers:
        return np.full(len(self), np.nan)

    def _place(self, key: str) -> int:
        return response_of(self._run, key, self.places)


def column_of(estimator: str) -> str:
    return f"confidence_{estimator}" if estimator in OTHERS else estimator


def _ordered(names: Sequence[str] | dict[str, Numbers]) -> Iterator[str]:
    """As tables have them; those of packages that are not installed come last."""
    known = [spec.name for spec in in_order(ESTIMATORS)]
    yield from (name for name in known if name in names)
    yield from sorted(name for name in names if name not in known)


def _number(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def _whole(value: np.int64) -> int | None:
    return None if value == _MISSING else int(value)
