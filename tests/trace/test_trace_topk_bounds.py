"""Bounds from likely tokens: they hold in 100,000 cases, and no tighter ones would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from divtok.divergences.arithmetic import FloatArray64, jsd_bits
from divtok.errors import DataError, UsageError
from divtok.trace.topk.alignment import rounding_of, rounding_of_places
from divtok.trace.topk.answers import Place, known_of
from divtok.trace.topk.bounds import jsd_bounds, outward
from divtok.trace.topk.known import FLOAT32, Known, Rounding, stated_rounding, unsound

NONE = Rounding(relative=0.0, absolute=0.0)
BFLOAT16 = Rounding(relative=2.0**-8, absolute=1e-6)


def logs(p: FloatArray64) -> FloatArray64:
    with np.errstate(divide="ignore"):
        return np.log(p)


def term(x: Any, y: Any) -> Any:
    """f of the definition, written down once more."""
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(x > 0, x / 2 * np.log2(2 * x / (x + y)), 0.0)
        return first + np.where(y > 0, y / 2 * np.log2(2 * y / (x + y)), 0.0)


def likely(p: FloatArray64, k: int, own: Any = None, rounded: Any = np.float32) -> Known:
    """What a server tells of p [N, V]: the K most likely tokens, and each row's `own` [N]."""
    ids = np.argsort(-p, axis=1, kind="stable")[:, :k]
    cap = np.take_along_axis(p, ids[:, -1:], axis=1)[:, 0]
    if own is not None:
        beside = np.where((ids == own[:, None]).any(axis=1), -1, own)
        ids = np.concatenate([ids, beside[:, None]], axis=1)
    logprobs = np.take_along_axis(logs(p), np.maximum(ids, 0), axis=1)
    logprobs = logprobs if rounded is None else logprobs.astype(rounded).astype(np.float64)
    return Known(ids.astype(np.int64), np.where(ids < 0, -np.inf, logprobs), cap)


def pairs(cases: int, widths: tuple[int, ...], seed: int) -> Iterator[tuple[Any, Any, int]]:
    """Pairs of distributions [N, V] of many kinds: peaked and flat, near and far, with zeros."""
    rng = np.random.default_rng(seed)
    kinds = [
        (v, c, near)
        for v in widths
        for c in (0.01, 0.05, 0.3, 1.0, 10.0)
        for near in (0.0, 0.5, 0.999)
    ]
    each = -(-cases // (len(kinds) * 2))
    for v, c, near in kinds:
        p = rng.dirichlet(np.full(v, c), each)
        q = near * p + (1 - near) * rng.dirichlet(np.full(v, c), each)
        yield p, q / q.sum(axis=1, keepdims=True), v
        hidden = rng.random(p.shape) < 0.3
        hidden[:, 0] = False
        p = np.where(hidden, 0.0, p) + 1e-12 * (~hidden)
        yield p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True), v


def test_bounds_hold_in_100000_cases() -> None:
    rng = np.random.default_rng(7)
    cases = violations = 0
    width: list[float] = []
    for p, q, v in pairs(100_000, (2, 9, 40), seed=1):
        truth = jsd_bits(logs(p), logs(q))
        k_p, k_q = (int(rng.integers(1, v + 1)) for _ in range(2))
        own = rng.integers(0, v, len(p)) if rng.random() < 0.5 else None
        low, high = jsd_bounds(likely(p, k_p, own), likely(q, k_q, own))
        violations += int(((truth < low) | (truth > high)).sum())
        width.append(float((high - low).mean()))
        cases += len(p)
    assert cases >= 100_000
    assert violations == 0
    assert 0 < np.mean(width) < 0.5  # bounds of 0 and 1 would hold too


@pytest.mark.parametrize(("rounded", "allowed"), [("bf16", BFLOAT16), (3, Rounding(0.0, 6e-4))])
def test_bounds_hold_for_coarse_log_probs(rounded: Any, allowed: Rounding) -> None:
    import torch

    def coarse(known: Known) -> Known:
        if rounded == "bf16":
            values = torch.from_numpy(known.logprobs).bfloat16().double().numpy()
        else:
            values = np.round(known.logprobs, rounded)
        # The server finds the least of its list in its own coarse numbers.
        least = np.where(known.ids >= 0, values, np.inf).min(axis=1)
        return Known(known.ids, values, np.exp(least))

    broken = 0
    for p, q, v in pairs(6_000, (5, 40), seed=2):
        truth = jsd_bits(logs(p), logs(q))
        one, other = coarse(likely(p, min(v, 12), rounded=None)), coarse(likely(q, 4, rounded=None))
        sound = ~(unsound(one, allowed) | unsound(other, allowed))
        assert sound.all()
        low, high = jsd_bounds(one, other, p_rounding=allowed, q_rounding=allowed)
        assert (low <= truth).all()
        assert (truth <= high).all()
        plain = ~(unsound(one, NONE) | unsound(other, NONE))
        fine_low, fine_high = jsd_bounds(
            one.part(plain), other.part(plain), p_rounding=NONE, q_rounding=NONE
        )
        broken += int(((truth[plain] < fine_low) | (truth[plain] > fine_high)).sum())
    assert broken > 0  # without the allowance they would not hold


def test_bounds_meet_where_all_is_known() -> None:
    for p, q, v in pairs(3_000, (1, 2, 9, 40), seed=3):
        truth = jsd_bits(logs(p), logs(q))
        all_of_p, all_of_q = likely(p, v, rounded=None), likely(q, v, rounded=None)
        low, high = jsd_bounds(all_of_p, all_of_q, p_rounding=NONE, q_rounding=NONE)
        np.testing.assert_allclose(low, truth, atol=1e-9)
        np.testing.assert_allclose(high, truth, atol=1e-9)
        low, high = jsd_bounds(all_of_p, all_of_q)
        assert (high - low).max() < 5e-5
        assert all_of_p.covers(v).all()
        assert not all_of_p.covers(v + 1).any()


def test_more_known_tokens_never_widen_the_bounds() -> None:
    for p, q, _ in pairs(1_500, (40,), seed=4):
        before = np.zeros(len(p)), np.ones(len(p))
        for k in (1, 2, 5, 10, 20, 39, 40):
            low, high = jsd_bounds(
                likely(p, k, rounded=None),
                likely(q, k, rounded=None),
                p_rounding=NONE,
                q_rounding=NONE,
            )
            assert (low >= before[0] - 1e-8).all()
            assert (high <= before[1] + 1e-8).all()
            before = low, high


def test_lower_bound_is_the_smallest_divergence_found_by_brute_force() -> None:
    """One token known to both, one to each alone, and many more that nobody lists."""
    rng = np.random.default_rng(5)
    grid = np.linspace(0.0, 1.0, 301)
    gaps: list[float] = []
    too_small_tails = 0
    for _ in range(150):
        p0, p1, a = rng.dirichlet([1, 1, rng.choice([0.05, 0.5, 2.0])])
        q0, q2, b = rng.dirichlet([1, 1, rng.choice([0.05, 0.5, 2.0])])
        cap_p, cap_q = min(p0, p1, a), min(q0, q2, b)
        known_p = Known(np.array([[0, 1]]), np.log([[p0, p1]]), np.array([min(p0, p1)]))
        known_q = Known(np.array([[0, 2]]), np.log([[q0, q2]]), np.array([min(q0, q2)]))
        low, _ = jsd_bounds(known_p, known_q, p_rounding=NONE, q_rounding=NONE)
        q1, p2 = (cap_q * grid)[:, None], (cap_p * grid)[None, :]
        found = term(p0, q0) + term(p1, q1) + term(p2, q2) + term(a - p2, b - q1)
        gaps.append(float(found.min() - low[0]))
        too_small_tails += bool(np.isclose(a, cap_p) and np.isclose(b, cap_q))
    assert min(gaps) > -1e-9
    assert max(gaps) < 1e-3  # what the grid leaves open
    assert too_small_tails > 10  # there alpha and beta are off their curve


def test_lower_bound_is_the_smallest_divergence_found_by_an_optimiser() -> None:
    from scipy.optimize import LinearConstraint, minimize

    rng = np.random.default_rng(6)
    shared, alone, rest = 2, 3, 12
    n = alone + rest
    gaps: list[float] = []
    while len(gaps) < 10:
        p, q = rng.dirichlet([2.0] * 6), rng.dirichlet([2.0] * 6)
        p_known, q_known = np.sort(p[1:])[::-1], np.sort(q[1:])[::-1]
        a, b = p[0], q[0]
        cap_p, cap_q = min(p_known[-1], a), min(q_known[-1], b)
        if a > cap_p * rest or b > cap_q * rest:
            continue  # tails need room for more tokens than the optimiser has
        ids = np.arange(5)
        low, _ = jsd_bounds(
            Known(ids[None], np.log(p_known)[None], np.array([p_known[-1]])),
            Known(np.r_[ids[:shared], ids[shared:] + 3][None], np.log(q_known)[None], q_known[-1:]),
            p_rounding=NONE,
            q_rounding=NONE,
        )

        def value(z: Any, p: Any = p_known, q: Any = q_known) -> float:
            z = np.maximum(z, 1e-15)
            x, y = z[:n], z[n:]
            total = term(p[:shared], q[:shared]).sum() + term(p[shared:], y[:alone]).sum()
            total += term(x[:alone], q[shared:]).sum() + term(x[alone:], y[alone:]).sum()
            return float(total)

        start = np.r_[np.full(n, a / n), np.full(n, b / n)]
        limit: Any = [a, b]
        sums = LinearConstraint(np.kron(np.eye(2), np.ones(n)), limit, limit)
        limits = [(0.0, cap_p)] * n + [(0.0, cap_q)] * n
        best = minimize(value, start, bounds=limits, constraints=sums, method="SLSQP")
        gaps.append(best.fun - low[0])
    assert min(gaps) > -1e-6
    assert max(gaps) < 1e-3


def test_upper_bound_is_reached() -> None:
    """Nothing shared but the first token, and both tails at tokens that the other never takes."""
    p = np.array([[0.5, 0.3, 0.0, 0.1, 0.1, 0.0, 0.0]])
    q = np.array([[0.4, 0.0, 0.4, 0.0, 0.0, 0.1, 0.1]])
    _, high = jsd_bounds(
        likely(p, 2, rounded=None), likely(q, 2, rounded=None), p_rounding=NONE, q_rounding=NONE
    )
    np.testing.assert_allclose(high, jsd_bits(logs(p), logs(q)), atol=1e-12)


def test_a_list_that_does_not_say_how_likely_others_are_gives_wider_bounds() -> None:
    p, q, _ = next(iter(pairs(2_000, (9,), seed=8)))
    told, other = likely(p, 3), likely(q, 3)
    low, high = jsd_bounds(told, other)
    loose_low, loose_high = jsd_bounds(
        Known(told.ids, told.logprobs, np.ones(len(p))), Known(other.ids, other.logprobs, other.cap)
    )
    np.testing.assert_array_equal(high, loose_high)
    assert (loose_low <= low + 1e-9).all()
    assert (loose_low < low - 1e-6).any()


@pytest.mark.parametrize("wider", ["p", "q"])
def test_bounds_hold_for_the_wider_distribution_cut_to_the_narrower(wider: str) -> None:
    rng = np.random.default_rng(12)
    widths: list[Any] = []
    for wide, narrow, v in pairs(20_000, (9, 40), seed=9):
        cut = v - int(rng.integers(1, v // 2))
        narrow = narrow[:, :cut]
        # Both must have something where they meet for a divergence to be there at all.
        usable = (narrow.sum(axis=1) > 0) & (wide[:, :cut].sum(axis=1) > 1e-5)
        wide, narrow = wide[usable], narrow[usable]
        narrow = narrow / narrow.sum(axis=1, keepdims=True)
        kept = wide[:, :cut].sum(axis=1, keepdims=True)
        truth = jsd_bits(logs(wide[:, :cut] / kept), logs(narrow))
        k = int(rng.integers(1, cut))
        one, other = likely(wide, k), likely(narrow, k)
        if wider == "p":
            low, high = jsd_bounds(one, other, p_width=v, q_width=cut)
        else:
            low, high = jsd_bounds(other, one, p_width=cut, q_width=v)
        assert (truth >= low).all()
        assert (truth <= high).all()
        widths.append((high - low).mean())
    assert np.mean(widths) < 0.6


@pytest.mark.parametrize("share", [1e-4, 1e-7, 1e-9, 1e-12])
def test_bounds_hold_where_next_to_nothing_is_left_after_the_cut(share: float) -> None:
    """Nearly all mass lies beyond the shared width, listed or not."""
    rng = np.random.default_rng(13)
    for k in (1, 2, 6):
        inside, narrow = rng.dirichlet([0.5] * 8, 500), rng.dirichlet([0.5] * 8, 500)
        outside = rng.dirichlet([1.0] * 12, 500)
        truth = jsd_bits(logs(inside), logs(narrow))
        wide = np.concatenate([share * inside, (1 - share) * outside], axis=1)
        told = likely(wide, k, own=inside.argmax(axis=1))
        low, high = jsd_bounds(told, likely(narrow, k), p_width=20, q_width=8)
        assert (low <= truth).all()
        assert (truth <= high).all()
        low, high = jsd_bounds(likely(narrow, k), told, sure_width=8)
        assert (low <= truth).all()
        assert (truth <= high).all()


def test_bounds_without_widths_hold_for_every_width_there_may_be() -> None:
    rng = np.random.default_rng(14)
    apart: list[Any] = []
    for p, q, v in pairs(20_000, (9, 40), seed=15):
        sure = v // 2
        k = int(rng.integers(1, v))
        own = rng.integers(0, sure, len(p))
        told = likely(p, k, own), likely(q, k, own)
        either = jsd_bounds(*told, sure_width=sure)
        of_q = jsd_bounds(*told, q_width=v, sure_width=sure)
        for width in range(sure, v + 1):
            kept_p, kept_q = p[:, :width], q[:, :width]
            total_p, total_q = (x.sum(axis=1, keepdims=True) for x in (kept_p, kept_q))
            there = (np.minimum(total_p, total_q) > 0)[:, 0]
            cut_p, cut_q = (kept_p / total_p)[there], (kept_q / total_q)[there]
            truth = jsd_bits(logs(cut_p), logs(cut_q))
            for low, high in (either, of_q):
                assert (low[there] <= truth).all()
                assert (truth <= high[there]).all()
        apart.append((either[1] - either[0]).mean())
        # Widths that are known never give wider bounds.
        assert (of_q[0] >= either[0] - 1e-9).all()
        assert (of_q[1] <= either[1] + 1e-9).all()
    assert np.mean(apart) < 0.7


def test_a_sum_over_many_tokens_may_be_off() -> None:
    """All log-probs of a position are then wrong by the same, and their mass need not show it."""
    tokens, off = 152_000, 1e-4
    allowed = FLOAT32.summed_over(tokens)
    assert FLOAT32.summed_over(0) == FLOAT32
    assert FLOAT32.summed_over(800).absolute < 5e-6  # small vocabularies pay nothing for it
    broken = 0
    for p, q, _ in pairs(6_000, (9,), seed=16):
        truth = jsd_bits(logs(p), logs(q))
        for sign in (-1, 1):
            told = [likely(x, 5) for x in (p, q)]
            one, other = (Known(x.ids, x.logprobs + sign * off, x.cap) for x in told)
            assert not unsound(one, allowed).any()
            low, high = jsd_bounds(one, other, p_rounding=allowed, q_rounding=allowed)
            assert (low <= truth).all()
            assert (truth <= high).all()
            low, high = jsd_bounds(one, other)
            broken += int(((truth < low) | (truth > high)).sum())
    assert broken > 0  # without the allowance they would not hold


@pytest.mark.parametrize("coarse", ["lists", "own"])
def test_bounds_hold_for_a_server_that_rounds_one_of_lists_and_tokens(coarse: str) -> None:
    rng = np.random.default_rng(17)
    p = rng.dirichlet([0.3] * 40, 400)
    q = p * np.exp(rng.normal(size=p.shape) * 0.02)
    q = q / q.sum(axis=1, keepdims=True)
    tokens = [int(rng.choice(40, p=row)) for row in p]
    told: list[tuple[Known, Rounding]] = []
    for table in (logs(p), logs(q)):
        places = [
            served_place(row, token, coarse) for row, token in zip(table, tokens, strict=True)
        ]
        rounding = rounding_of_places(places)
        told.append((known_of(places, rounding)[0], rounding))
    (one, p_rounding), (other, q_rounding) = told
    assert not (unsound(one, p_rounding) | unsound(other, q_rounding)).any()
    low, high = jsd_bounds(one, other, p_rounding=p_rounding, q_rounding=q_rounding)
    truth = jsd_bits(logs(p), logs(q))
    assert (low <= truth).all()
    assert (truth <= high).all()


def served_place(row: FloatArray64, token: int, coarse: str) -> Place:
    listed = {int(i): float(row[i]) for i in np.argsort(-row)[:20]}
    own = float(row[token])
    if coarse == "lists":
        return Place({i: round(value, 2) for i, value in listed.items()}, token, own)
    return Place(listed, token, round(own, 2))


def test_all_that_is_cut_off_may_be_known() -> None:
    p = np.array([[0.3, 0.1, 0.6], [0.0, 0.0, 1.0]])
    q = np.array([[0.5, 0.5], [0.5, 0.5]])
    low, high = jsd_bounds(
        likely(p, 3), likely(q, 2), p_width=3, q_width=2, p_rounding=NONE, q_rounding=NONE
    )
    truth = jsd_bits(np.log([[0.75, 0.25]]), np.log([[0.5, 0.5]]))
    assert low[0] == pytest.approx(truth[0], abs=1e-6)
    assert high[0] == pytest.approx(truth[0], abs=1e-6)
    assert (low[1], high[1]) == (0.0, 1.0)  # nothing is left to compare


def place(*logprobs: float) -> Known:
    values = np.array([logprobs])
    return Known(np.arange(len(logprobs))[None], values, np.ones(1))


@pytest.mark.parametrize(
    ("logprobs", "bad"),
    [
        ((np.log(0.5), np.log(0.5)), False),
        ((np.log(0.5), -np.inf), False),
        ((-np.inf, -np.inf), False),
        ((np.log(0.5), -9999.0), False),
        ((1e-7, -20.0), False),  # rounding makes a sure token a little more than sure
        ((np.log(0.5005), np.log(0.4999)), False),  # 1.0004: a float32 sum
        ((np.log(0.51), np.log(0.51)), True),
        ((0.01, -20.0), True),
        ((1e9, -20.0), True),
        ((np.nan, -1.0), True),
        ((np.inf, -1.0), True),
    ],
)
def test_what_is_no_distribution_is_told(logprobs: tuple[float, ...], bad: bool) -> None:
    assert unsound(place(*logprobs)).tolist() == [bad]


def test_an_absent_entry_is_never_looked_at() -> None:
    known = Known(np.array([[3, -1]]), np.array([[np.log(0.5), np.nan]]), np.ones(1))
    assert not unsound(known).any()
    low, high = jsd_bounds(known, known)
    assert low[0] < 1e-5
    assert high[0] == pytest.approx(0.5, abs=1e-4)


def test_too_much_mass_widens_the_bounds_by_what_it_proves() -> None:
    right = place(np.log(0.5), np.log(0.5))
    heavy = place(np.log(0.5002), np.log(0.5002))
    low, high = jsd_bounds(heavy, right)
    assert high[0] - low[0] > 1e-4
    assert low[0] == 0.0
    assert high[0] < 2e-3


def test_positions_do_not_mix_and_nothing_gives_nothing() -> None:
    known = Known(np.array([[1, 2], [2, 1]]), np.log([[0.9, 0.1], [0.9, 0.1]]), np.full(2, 0.1))
    other = Known(np.array([[1, 2], [1, 2]]), np.log([[0.9, 0.1], [0.9, 0.1]]), np.full(2, 0.1))
    low, high = jsd_bounds(known, other)
    assert high[0] < 1e-4
    assert low[1] == pytest.approx(float(2 * term(0.9, 0.1)), abs=1e-4)
    empty = Known(np.empty((0, 2), dtype=np.int64), np.empty((0, 2)), np.empty(0))
    assert [len(bound) for bound in jsd_bounds(empty, empty)] == [0, 0]
    nothing = Known(np.empty((1, 0), dtype=np.int64), np.empty((1, 0)), np.ones(1))
    assert [bound.tolist() for bound in jsd_bounds(nothing, nothing)] == [[0.0], [1.0]]


def test_broken_log_probs_are_an_error_not_a_number() -> None:
    absurd = place(np.nan, np.log(0.5))  # unsound, and given in spite of it
    with pytest.raises(DataError, match="came out as NaN"):
        jsd_bounds(absurd, place(np.log(0.5), np.log(0.5)))


def test_float32_bounds_still_enclose() -> None:
    rng = np.random.default_rng(10)
    low = rng.random(5000)
    high = low + rng.random(5000) * 1e-9
    low32, high32 = outward(low, high)
    assert low32.dtype == high32.dtype == np.float32
    assert (low32.astype(np.float64) <= low).all()
    assert (high32.astype(np.float64) >= high).all()
    assert np.abs(low32 - low).max() < 2e-7


def test_precision_is_told_from_the_numbers() -> None:
    import torch

    values = logs(np.random.default_rng(11).dirichlet([0.3] * 50, 20)).ravel()
    single = values.astype(np.float32).astype(np.float64)
    assert rounding_of(single) == FLOAT32
    assert rounding_of(values) == FLOAT32
    for kind, bits in ((torch.bfloat16, 8), (torch.float16, 11)):
        coarse = torch.from_numpy(values).to(kind).double().numpy()
        found = rounding_of(coarse)
        assert found.relative == pytest.approx(2.0 ** (1 - bits), rel=1e-3)  # it may be cut off
        kept = np.isfinite(coarse)
        allowed = found.absolute + found.relative * np.abs(coarse)
        assert (np.abs(coarse - values) <= allowed)[kept].all()
    for decimals in (2, 4, 6):
        for written in (np.round(values, decimals), np.round(single.astype(np.float32), decimals)):
            found = rounding_of(written.astype(np.float64))
            assert found.absolute == pytest.approx(10.0**-decimals + FLOAT32.absolute)
    for digits in (3, 5, 7):
        found = rounding_of(np.array([float(f"{value:.{digits}g}") for value in values]))
        assert 1 <= found.relative / 10.0 ** (1 - digits) < 2


def test_precision_is_not_told_from_what_has_no_mass() -> None:
    values = logs(np.random.default_rng(12).dirichlet([0.3] * 50, 20)).ravel()
    for strange in (0.0, -0.0, -9999.0, -1e308, -1e-310, np.nan, np.inf, -np.inf):
        assert rounding_of(np.append(values, strange)) == FLOAT32
        assert rounding_of(np.array([strange])) == FLOAT32


def test_a_stated_precision_is_taken_at_its_word() -> None:
    assert stated_rounding("auto") is None
    assert stated_rounding("float32") == FLOAT32
    bfloat16 = stated_rounding("bfloat16")
    assert bfloat16 is not None
    assert bfloat16.relative == pytest.approx(2.0**-8, rel=1e-3)
    assert stated_rounding(0.0005) == Rounding(FLOAT32.relative, FLOAT32.absolute + 0.0005)
    for wrong in ("float8", 0.0, -1.0, 2.0, np.nan, np.inf):
        with pytest.raises(UsageError, match="precision"):
            stated_rounding(wrong)


def test_log_probs_of_any_size_have_bounds() -> None:
    """A mass that is 0 with an error that is infinite would be NaN, and NaN would end a run."""
    known = Known(np.array([[0, 1, 2]]), np.array([[-0.01, -1e300, -np.inf]]), np.ones(1))
    low, high = jsd_bounds(known, known, p_rounding=BFLOAT16, q_rounding=BFLOAT16)
    assert 0 <= low[0] <= high[0] <= 1
