"""How far two distributions can be apart of which only some probabilities are known.

Pure numpy in float64; knows no server and no threshold. With

    f(x, y) = x/2 log2(2x / (x+y)) + y/2 log2(2y / (x+y)),    JSD = sum f(p_i, q_i) in bits,

a token may be known to both models, to p alone (then q_i lies in [0, c_q], c_q the least of the
probabilities that q lists, or its whole tail), to q alone, or to neither.

Upper bound: f(x, y) <= (x+y)/2, with equality where one of them is 0, so every token that is not
known to both is at worst not shared at all: 1 + sum over shared tokens of f(p, q) - (p+q)/2.

Lower bound: f is convex and homogeneous, so f(x, y) >= alpha x + beta y for all x, y >= 0 if and
only if 4^alpha + 4^beta <= 2. For each such alpha and beta, since both distributions sum to 1,

    JSD >= alpha + beta + sum over known tokens of min (f(x, y) - alpha x - beta y),

where the minimum runs over what is not known of x and y. This is the dual of the convex problem of
the smallest JSD, and its best alpha and beta give that smallest JSD itself. It falls apart into one
problem for each model; (alpha, beta) lies on the curve 4^alpha = 2 / (1+t), 4^beta = 2t / (1+t)
unless a model's tail is too small to fill up the other one's listed tokens, which needs two t's.
A search that ends early gives a bound that is less tight, never one that is wrong.

Log-probs are rounded. Each is taken as known within an error, and both bounds give way by what
these errors can do: the lower one along its tangent, the upper one at the smaller ends.

Where one vocabulary is wider, that distribution is cut to the other's width and made to sum to 1
again, as everywhere in divtok. The part of its tail that is cut off is unknown, so that its listed
probabilities may have to grow by some factor. The upper bound needs no change for that (what grows
is taken from the tail, which counts in full); the lower one follows its tangent once more. The same
covers a width that is not known: ids that may be cut off or not count as part of the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.divergences.arithmetic import ROUNDING_BITS, FloatArray64
from divtok.errors import DataError
from divtok.trace.topk.known import (
    FLOAT32,
    Flags,
    Ids,
    Known,
    Masses,
    Rounding,
    cut_masses,
    loose_masses,
    masses_of,
)

_NOISE = 1e-12  # of sums in float64
_STEPS = 24
_RANGE = 48.0  # of log2 t, both ways: beyond it a probability is below anything that float32 tells
_CHUNK = 1 << 17  # numbers worked on at a time, so that they stay in the cache


def jsd_bounds(
    p: Known,
    q: Known,
    *,
    p_rounding: Rounding = FLOAT32,
    q_rounding: Rounding = FLOAT32,
    p_width: int | None = None,
    q_width: int | None = None,
    sure_width: int | None = None,
) -> tuple[FloatArray64, FloatArray64]:
    """The smallest and the largest JSD in bits, both [N], that agree with what is known.

    With both widths of vocabularies given, the wider distribution is cut to the narrower one's.
    Where one is not known, `sure_width` says how many tokens both models have at least, and the
    bounds hold whatever the width is from there on; without it the widths are taken to be alike.
    Positions that are `unsound` are the caller's to leave out.
    """
    low, high = np.empty(len(p)), np.empty(len(p))
    step = max(1, _CHUNK // max(1, p.ids.shape[1] + q.ids.shape[1]))
    for start in range(0, len(p), step):
        rows = slice(start, start + step)
        low[rows], high[rows] = _bounds(
            _masses(p.part(rows), p_rounding, p_width, q_width, sure_width),
            _masses(q.part(rows), q_rounding, q_width, p_width, sure_width),
        )
    if not bool(((low <= high + ROUNDING_BITS) & (high <= 1 + ROUNDING_BITS)).all()):
        raise DataError(
            "Bounds of a Jensen-Shannon divergence came out as NaN or contradict each other.",
            next_step="Check the log-probs of both servers.",
        )
    low, high = np.minimum(low, high) - _NOISE, np.maximum(low, high) + _NOISE
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def outward(
    low: FloatArray64, high: FloatArray64
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Both bounds in float32, rounded so that what lies between them still does."""
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    return (
        np.where(low32 > low, np.nextafter(low32, np.float32(-1)), low32),
        np.where(high32 < high, np.nextafter(high32, np.float32(2)), high32),
    )


def _masses(
    known: Known, rounding: Rounding, width: int | None, other: int | None, sure: int | None
) -> Masses:
    if width is not None and other is not None:
        cut = width > other
        return cut_masses(known, rounding, width, other) if cut else masses_of(known, rounding)
    if sure is None or (width is not None and width <= sure):
        return masses_of(known, rounding)
    return loose_masses(known, rounding, width, sure)


@dataclass(frozen=True, slots=True, eq=False)
class _Matched:
    """Which tokens both models list: `of_q` [N, M] what q gives to p's tokens, 0 where unknown."""

    shared: Flags
    of_q: FloatArray64
    least_of_q: FloatArray64
    slack_of_q: FloatArray64
    taken: Flags  # those of q's tokens that p lists too

    @classmethod
    def of(cls, p: Masses, q: Masses) -> _Matched:
        partner = _partners(p.ids, q.ids)
        shared = partner >= 0

        def of_q(values: FloatArray64) -> FloatArray64:
            return np.where(shared, np.take_along_axis(values, partner, axis=1), 0.0)

        taken = np.zeros(q.ids.shape, dtype=bool)
        rows = np.broadcast_to(np.arange(len(p.ids))[:, None], partner.shape)
        taken[rows[shared], partner[shared]] = True
        return cls(shared, of_q(q.mass), of_q(q.least), of_q(q.slack), taken)


def _bounds(p: Masses, q: Masses) -> tuple[FloatArray64, FloatArray64]:
    """[N], [N] for positions that are worked on together."""
    both = _Matched.of(p, q)
    t_p, t_q = _best_tangents(
        np.where(both.shared, 0.0, p.mass), np.where(both.taken, 0.0, q.mass), p, q
    )
    low, kink_p, kink_q = _lower(p, q, both, t_p, t_q)
    if p.stretch.any() or q.stretch.any():
        # Where growth costs something, the best tangent is one at which it just does not.
        steep_p = np.where(p.stretch > 0, np.maximum(t_p, kink_p), t_p)
        steep_q = np.where(q.stretch > 0, np.minimum(t_q, kink_q), t_q)
        low = np.maximum(low, _lower(p, q, both, steep_p, steep_q)[0])
        joint = np.where(p.stretch > 0, steep_p, steep_q)
        low = np.maximum(low, _lower(p, q, both, joint, joint)[0])
    half = np.full(len(low), 0.5)
    least = _Terms.of(np.where(both.shared, p.least, 0.0), both.least_of_q)
    return low, 1.0 + least.sum(half, half)


def _lower(
    p: Masses, q: Masses, both: _Matched, t_p: FloatArray64, t_q: FloatArray64
) -> tuple[FloatArray64, FloatArray64, FloatArray64]:
    """[N] the lower bound at the tangents of t_p >= t_q, and the t's from which growth is free."""
    alpha, beta = 0.5 * np.log2(2 / (1 + t_p)), 0.5 * np.log2(2 * t_q / (1 + t_q))
    guess_q = np.minimum(q.cap[:, None], t_q[:, None] * p.mass)
    guess_p = np.minimum(p.cap[:, None], q.mass / t_p[:, None])
    first = _Terms.of(p.mass, np.where(both.shared, both.of_q, guess_q))
    only_q = np.where(both.taken, 0.0, q.mass)
    second = _Terms.of(np.where(both.taken, 0.0, guess_p), only_q)
    low = alpha + beta + first.sum(alpha, beta) + second.sum(alpha, beta)
    low -= first.give(p.slack, both.slack_of_q, alpha, beta)
    low -= second.give(0.0, np.where(both.taken, 0.0, q.slack), alpha, beta)
    total_p, total_q = p.mass.sum(axis=1), q.mass.sum(axis=1)
    pull_p = first.x_part()
    pull_q = np.where(both.shared, first.y * first.v, 0.0).sum(axis=1) + second.y_part()
    low -= p.stretch * np.maximum(0.0, alpha * total_p - pull_p)
    low -= q.stretch * np.maximum(0.0, beta * total_q - pull_q)
    kink_p = 2 * np.exp2(-2 * _ratio(pull_p, total_p)) - 1
    kink_q = 2 * np.exp2(-2 * _ratio(pull_q, total_q)) - 1
    floor = 2.0**-_RANGE
    return low, np.maximum(kink_p, floor), 1 / np.maximum(kink_q, floor)


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """Pairs of probabilities x, y [N, M] with the derivatives u, v of f, so that f = x u + y v."""

    x: FloatArray64
    y: FloatArray64
    u: FloatArray64
    v: FloatArray64

    @classmethod
    def of(cls, x: FloatArray64, y: FloatArray64) -> _Terms:
        """A derivative is 0 where its factor is."""
        total = np.where(x + y > 0, x + y, 1.0)
        with np.errstate(divide="ignore"):
            u, v = (np.where(z > 0, 0.5 * np.log2(2 * z / total), 0.0) for z in (x, y))
        return cls(x, y, u, v)

    def x_part(self) -> FloatArray64:
        return (self.x * self.u).sum(axis=1)

    def y_part(self) -> FloatArray64:
        return (self.y * self.v).sum(axis=1)

    def sum(self, alpha: FloatArray64, beta: FloatArray64) -> FloatArray64:
        """[N] sums of f(x, y) - alpha x - beta y."""
        taken = alpha * self.x.sum(axis=1) + beta * self.y.sum(axis=1)
        return self.x_part() + self.y_part() - taken

    def give(
        self,
        x_slack: FloatArray64 | float,
        y_slack: FloatArray64 | float,
        alpha: FloatArray64,
        beta: FloatArray64,
    ) -> FloatArray64:
        """[N] the most by which those sums fall where x and y are off by their slack.

        The summed function is convex, so its tangent at x and y lies below it.
        """
        off_x = x_slack * np.abs(self.u - alpha[:, None])
        off_y = y_slack * np.abs(self.v - beta[:, None])
        return (off_x + off_y).sum(axis=1)


def _ratio(part: FloatArray64, total: FloatArray64) -> FloatArray64:
    return part / np.where(total > 0, total, 1.0)


def _best_tangents(
    only_p: FloatArray64, only_q: FloatArray64, p: Masses, q: Masses
) -> tuple[FloatArray64, FloatArray64]:
    """[N] the t of alpha and the t of beta; the first is never the smaller one.

    At a given t the best guess for q at a token that p alone lists is min(c_q, t p), and in the
    same way for p. What is left of both tails meets at tokens that nobody lists. The best t is
    the ratio of what is left; where nothing is left on both sides each model has its own.
    """

    def left_of_p(t: FloatArray64) -> FloatArray64:
        return p.tail - np.minimum(p.cap[:, None], only_q / t[:, None]).sum(axis=1)

    def left_of_q(t: FloatArray64) -> FloatArray64:
        return q.tail - np.minimum(q.cap[:, None], only_p * t[:, None]).sum(axis=1)

    ends = np.full(len(only_p), -_RANGE), np.full(len(only_p), _RANGE)
    least = _bisect(lambda t: left_of_p(t) < 0, *ends)  # from here on p's tail is enough
    most = _bisect(lambda t: left_of_q(t) >= 0, *ends)  # up to here q's tail is enough
    between = _bisect(
        lambda t: left_of_q(t) > t * left_of_p(t), np.minimum(least, most), np.maximum(least, most)
    )
    apart = least >= most
    return np.exp2(np.where(apart, least, between)), np.exp2(np.where(apart, most, between))


def _bisect(
    go_up: Callable[[FloatArray64], Flags], low: FloatArray64, high: FloatArray64
) -> FloatArray64:
    """[N] log2 t where `go_up` turns from true to false."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        up = go_up(np.exp2(middle))
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2


def _partners(ids: Ids, others: Ids) -> Ids:
    """[N, M] the column of each id among the `others` of its row, -1 where it is not there."""
    rows, width = others.shape
    if width == 0:
        return np.full(ids.shape, -1)
    span = int(max(ids.max(initial=0), others.max(initial=0))) + 2
    base = np.arange(rows)[:, None] * span + 1  # ids of -1 stand at the start of each row's span
    order = np.argsort(others, axis=1)
    keys = (np.take_along_axis(others, order, axis=1) + base).ravel()
    at = np.minimum(np.searchsorted(keys, ids + base), len(keys) - 1)
    found = (keys[at] == ids + base) & (ids >= 0)
    return np.where(found, order.ravel()[at], -1)
