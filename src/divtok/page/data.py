"""What a page is told of each response, as records; and their JSON, small enough for many tokens.

Numbers of tokens are packed in two bytes each. A divergence comes back within `JSD_STEP`, always on
the side of theta that it was on, so that the page marks at the run's own theta what the run counts;
any other number comes back within half of its column's step.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.records import FloatArray, Trace
from divtok.score.estimators.guarded import unexpected_tokens
from divtok.score.scoring import bounds_of

VERSION = 1
JSD_STEP = 1 / 65000  # bits; a divergence may be a hair above 1
NOT_KNOWN = 65535  # the code of a number that is not known
# What is told of a token besides its divergence, as far as its trace holds it.
COLUMNS = ("logprob_p", "logprob_q", "entropy_p", "entropy_q", "kl_pq", "kl_qp")

_Codes = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Packed:
    """Numbers as `low` + code * `step`: codes of 16 bits, little-endian, in base64."""

    low: float
    step: float
    codes: str

    def numbers(self) -> npt.NDArray[np.float64]:
        """[T] what the page reads; NaN where a number is not known."""
        codes = np.frombuffer(base64.b64decode(self.codes), "<u2")
        return np.where(codes == NOT_KNOWN, np.nan, self.low + codes * self.step)


@dataclass(frozen=True, slots=True)
class PageTokens:
    """The tokens of a response under one pair; `text` is None where it cannot be known.

    `low` and `high` enclose divergences that are known within bounds, None where all are exact.
    `unexpected` are positions, None where that is not known. Of the tokens `counted` those count
    that are not the answer's, unless `answer_counts`.
    """

    text: Sequence[str] | None
    jsd: Packed
    low: Packed | None
    high: Packed | None
    columns: Mapping[str, Packed]
    unexpected: Sequence[int] | None
    counted: tuple[int, int]
    answer: tuple[int, int] | None
    answer_counts: bool


@dataclass(frozen=True, slots=True)
class PageConfidence:
    """As in `records.Confidence`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    prior: float | None = None


@dataclass(frozen=True, slots=True)
class PageReading:
    """What one run says of a response. `line` are n, a and b of dtc_lin where its confidence is
    that line in the count, so that the page can follow theta; None where a map is over it.
    """

    pair: tuple[str, str] | None
    count: int | None
    count_low: int | None = None
    count_high: int | None = None
    confidences: Mapping[str, PageConfidence] = field(default_factory=dict[str, PageConfidence])
    line: Mapping[str, float] | None = None
    tokens: PageTokens | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PageRow:
    """A response, and what one or two runs say of it. `response` is its text.

    `graded` says that it counts in figures of right and wrong: decided, and not cut off.
    """

    key: str
    benchmark: str
    problem: str
    sample: int
    generator: str
    question: str | None
    response: str
    gold: str | None
    answer: str | None
    verdict: str | None
    verdict_reason: str | None
    finish: str
    graded: bool
    reading: PageReading
    other: PageReading | None = None


@dataclass(frozen=True, slots=True)
class PageEstimator:
    """`share` says that its values are meant as shares of right answers, so that they have bins."""

    name: str
    share: bool


@dataclass(frozen=True, slots=True)
class PageRun:
    """A run as its page names it. `estimator` is the one to begin with, None without any."""

    title: str
    theta: float
    estimators: Sequence[PageEstimator]
    estimator: str | None
    bins: int
    total: int  # responses, of which the page may have fewer


def packed_tokens(
    trace: Trace, text: Sequence[str] | None, *, theta: float, guard: float
) -> PageTokens:
    """The tokens of a trace that was read, for a page of a run with this theta."""
    bounds = None if trace.exact else bounds_of(trace)
    low, high = (None, None) if bounds is None else (_divergences(b, theta) for b in bounds)
    unexpected = unexpected_tokens(trace, guard=guard)
    answer = None
    if trace.answer_start is not None and trace.answer_stop is not None:
        answer = (trace.answer_start, trace.answer_stop)
    columns = {name: found for name in COLUMNS if _known(found := trace.per_token(name))}
    return PageTokens(
        text=text,
        jsd=_divergences(trace.jsd_bits, theta),
        low=low,
        high=high,
        columns={name: packed(found) for name, found in columns.items()},
        unexpected=None if unexpected is None else np.flatnonzero(unexpected).tolist(),
        counted=(0, trace.turn_end if trace.counted == "reasoning" else len(trace)),
        answer=answer,
        answer_counts=trace.counted == "all",
    )


def packed(values: npt.ArrayLike) -> Packed:
    """Any numbers [T], the step as small as their range allows."""
    numbers = np.asarray(values, dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    step = (high - low) * JSD_STEP or 1.0
    codes = np.full(len(numbers), NOT_KNOWN, np.int64)
    codes[np.isfinite(numbers)] = np.rint((known - low) / step)
    return _packed(low, step, codes)


def _divergences(bits: npt.NDArray[np.floating], theta: float) -> Packed:
    """Divergences [T], none of which crosses theta."""
    exact = np.asarray(bits, dtype=np.float64)
    codes = np.rint(np.nan_to_num(exact) / JSD_STEP).astype(np.int64)
    above = np.asarray(bits) > np.float32(theta)
    # In doubles, as the page compares. One step is enough: rounding moves a number by half of one.
    shown = codes * JSD_STEP > theta
    codes += (above & ~shown).astype(np.int64) - (shown & ~above).astype(np.int64)
    if np.any((codes < 0) | (codes >= NOT_KNOWN)):
        raise DataError("A divergence of a trace lies outside 0 to 1 bits.")
    codes[np.isnan(exact)] = NOT_KNOWN
    return _packed(0.0, JSD_STEP, codes)


def _packed(low: float, step: float, codes: npt.NDArray[np.int64]) -> Packed:
    return Packed(low, step, base64.b64encode(codes.astype("<u2").tobytes()).decode())


def _known(values: FloatArray | None) -> TypeGuard[FloatArray]:
    return values is not None and bool(np.isfinite(values).any())


def page_data(
    rows: Sequence[PageRow], *, run: PageRun | None, against: PageRun | None, mode: str
) -> dict[str, Any]:
    """Everything the page's script reads. A response's text is there only where its tokens have
    none.
    """
    slim = [replace(row, response="") if _has_texts(row) else row for row in rows]
    return {
        "version": VERSION,
        "mode": mode,
        "step": JSD_STEP,
        "run": None if run is None else asdict(run),
        "against": None if against is None else asdict(against),
        "rows": [asdict(row) for row in slim],
    }


def _has_texts(row: PageRow) -> bool:
    return row.reading.tokens is not None and row.reading.tokens.text is not None
