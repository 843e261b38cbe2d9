"""What is known of a model's distributions: some log-probs, how exact they are, and the rest.

Pure numpy in float64; knows no server and no second model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.divergences.arithmetic import FloatArray64
from divtok.errors import UsageError

Flags = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]

# The most by which the log-probs of one position may miss a distribution beyond their rounding.
NORMALISATION = 1e-3

# For each token that is summed up. Sums in float32 over 152,000 were seen to be off by 1e-4.
_SUM_ERROR = 1e-9

# Of log-probs that have any mass: exp of a smaller one is 0. Beyond it no error is to be reckoned.
LARGEST_SIZE = 600.0

_LEAST_KEPT = 1e-6  # of a distribution that is cut: of one with less nothing is known


@dataclass(frozen=True, slots=True)
class Rounding:
    """The most by which a log-prob may be wrong: `absolute` + `relative` * its size, in nats."""

    relative: float
    absolute: float

    def summed_over(self, tokens: int) -> Rounding:
        """With what the sum over a vocabulary adds, which is taken off all log-probs alike."""
        return Rounding(self.relative, self.absolute + _SUM_ERROR * tokens)

    def coarser(self, other: Rounding) -> Rounding:
        """What holds for numbers of both kinds."""
        return Rounding(max(self.relative, other.relative), max(self.absolute, other.absolute))


# A log-softmax in float32 of logits of usual size.
FLOAT32 = Rounding(relative=2.0**-22, absolute=4e-6)

_BITS_OF = {"float32": None, "float16": 11, "bfloat16": 8}  # significant ones, where they are few


def stated_rounding(precision: str | float) -> Rounding | None:
    """What the user says of a server's log-probs; None where it is to be found out ("auto").

    A dtype that they are rounded to, or the most nats by which writing them makes them wrong.
    """
    if precision == "auto":
        return None
    if isinstance(precision, str) and precision in _BITS_OF:
        bits = _BITS_OF[precision]
        return Rounding(FLOAT32.relative + (2.0**-bits if bits else 0.0), FLOAT32.absolute)
    if isinstance(precision, str) or not 0 < precision <= 1:
        raise UsageError(
            f"The precision of a server's log-probs is {precision!r}.",
            next_step=f"Give auto, {', '.join(_BITS_OF)}, or nats: a number above 0, up to 1.",
        )
    return Rounding(FLOAT32.relative, FLOAT32.absolute + precision)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of one model at N positions.

    `ids` [N, M] are different tokens at each position, -1 where there are fewer than M; `logprobs`
    [N, M] are theirs in nats. `cap` [N] is the most that a token not listed can have: the least of
    the listed probabilities, or 1 where the list does not say.
    """

    ids: Ids
    logprobs: FloatArray64
    cap: FloatArray64

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, rows: slice | Flags) -> Known:
        return Known(self.ids[rows], self.logprobs[rows], self.cap[rows])

    def covers(self, width: int) -> Flags:
        """[N] whether all ids below `width`, and no others, are listed."""
        listed = self.ids >= 0
        return (listed.sum(axis=1) == width) & (self.ids < width).all(axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Masses:
    """Known probabilities: `mass` [N, M], 0 where there is none, which holds to within a factor of
    exp(`error`) and may then have to grow, all alike, by up to `stretch` [N] of itself; `tail` [N]
    is the most that all others can have together, `cap` [N] the most that one of them can.
    """

    ids: Ids
    mass: FloatArray64
    error: FloatArray64
    tail: FloatArray64
    cap: FloatArray64
    stretch: FloatArray64

    @property
    def least(self) -> FloatArray64:
        """[N, M] the least that each mass may be."""
        return self.mass * np.exp(-self.error)

    @property
    def slack(self) -> FloatArray64:
        """[N, M] by how much each mass may be off, growth apart."""
        return self.mass * np.expm1(self.error) * (1 + self.stretch)[:, None]


def unsound(known: Known, rounding: Rounding = FLOAT32) -> Flags:
    """[N] whether what is listed cannot come from a distribution: NaN, +inf or too much mass."""
    bad: Flags = np.any((known.ids >= 0) & ~(known.logprobs < np.inf), axis=1)
    with np.errstate(over="ignore"):
        masses = masses_of(known.part(~bad), rounding)
    bad[~bad] = masses.least.sum(axis=1) > 1
    return bad


def masses_of(known: Known, rounding: Rounding) -> Masses:
    """Probabilities and their errors."""
    logprobs = np.where(known.ids >= 0, known.logprobs, -np.inf)
    mass = np.exp(logprobs)
    size = np.minimum(np.abs(np.where(np.isfinite(logprobs), logprobs, 0.0)), LARGEST_SIZE)
    error = rounding.absolute + rounding.relative * size
    # More mass than there is proves an error of that size; twice as much is then allowed for.
    excess = np.log(np.maximum(mass.sum(axis=1), 1.0))
    proven = _least(mass, error).sum(axis=1) > 1
    error += np.where(proven, np.minimum(2 * excess, NORMALISATION), 0.0)[:, None]
    return _with_rest(known.ids, mass, error, known.cap * np.exp(error.max(axis=1, initial=0.0)))


def cut_masses(known: Known, rounding: Rounding, width: int, shared: int) -> Masses:
    """The same of the distribution over the ids below `shared` alone, of `width` that there are.

    The probabilities that are kept grow to 1 again: by the listed mass that is cut off, and by
    anything up to what the tail may have there too.
    """
    whole = masses_of(known, rounding)
    outside = whole.ids >= shared
    gone = np.where(outside, whole.mass, 0.0)
    most = (gone * np.exp(whole.error)).sum(axis=1)
    least = _least(gone, whole.error).sum(axis=1)
    kept = np.maximum(1 - gone.sum(axis=1), _LEAST_KEPT)
    lost = most >= 1 - _LEAST_KEPT
    unsure = np.log(np.where(lost, 1.0, 1 - least) / np.where(lost, 1.0, 1 - most))
    listed = ~(outside | lost[:, None])
    mass = np.where(listed, whole.mass, 0.0) / kept[:, None]
    error = whole.error + unsure[:, None]
    cap = np.where(lost, 1.0, whole.cap / kept * np.exp(unsure))
    rest = _with_rest(np.where(listed, whole.ids, -1), mass, error, cap)
    unlisted = (width - shared) - outside.sum(axis=1)
    return _without(rest, np.minimum(rest.tail, unlisted * rest.cap))


def loose_masses(known: Known, rounding: Rounding, width: int | None, sure: int) -> Masses:
    """The same where the width to cut to is not known, only that it is `sure` or more.

    Ids from `sure` on may be kept or cut off, so whatever is listed of them counts as unlisted.
    Without a `width` there may be any number of them.
    """
    whole = masses_of(known, rounding)
    unsure = whole.ids >= sure
    most = np.where(unsure, whole.mass * np.exp(whole.error), 0.0)
    mass = np.where(unsure, 0.0, whole.mass)
    cap = np.maximum(whole.cap, most.max(axis=1, initial=0.0))
    rest = _with_rest(np.where(unsure, -1, whole.ids), mass, whole.error, cap)
    hidden = rest.tail if width is None else np.minimum(rest.tail, (width - sure) * rest.cap)
    return _without(rest, hidden)


def _without(masses: Masses, hidden: FloatArray64) -> Masses:
    """Where up to `hidden` [N] of the tail is cut off, and what is left grows to 1 again."""
    lost = 1 - hidden < _LEAST_KEPT
    stretch = hidden / np.where(lost, 1.0, 1 - hidden)
    cap = np.minimum(masses.tail, masses.cap * (1 + stretch))
    return Masses(
        ids=np.where(lost[:, None], -1, masses.ids),
        mass=np.where(lost[:, None], 0.0, masses.mass),
        error=masses.error,
        tail=np.where(lost, 1.0, masses.tail),
        cap=np.where(lost, 1.0, cap),
        stretch=np.where(lost, 0.0, stretch),
    )


def _with_rest(ids: Ids, mass: FloatArray64, error: FloatArray64, cap: FloatArray64) -> Masses:
    tail = np.maximum(1.0 - _least(mass, error).sum(axis=1), 0.0)
    return Masses(ids, mass, error, tail, np.minimum(cap, tail), np.zeros(len(ids)))


def _least(mass: FloatArray64, error: FloatArray64) -> FloatArray64:
    return mass * np.exp(-error)
