"""Summed total variation from counts of accepted drafts, against distributions that are known."""

from __future__ import annotations

from itertools import product
from math import log2, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from divtok.decide.accepted import acceptance, acceptance_of, least_divergence
from divtok.errors import DataError


def test_counts_by_hand() -> None:
    # Whole, so a bonus token; rejected at the second; rejected at the first; nothing drafted.
    found = acceptance(drafted=[2, 3, 2, 0], accepted=[2, 1, 0, 0])
    assert (found.tested, found.untested, found.rejected) == (5, 2, 2)
    assert (found.variation, found.mean, found.whole) == (2.0, 0.4, pytest.approx(2.8))
    assert found.error == pytest.approx(sqrt(5 * 0.4 * 0.6))


def test_a_text_may_end_within_the_last_step() -> None:
    found = acceptance(drafted=[4], accepted=[4], tokens=4)
    assert (found.tested, found.untested, found.variation) == (4, 0, 0.0)
    interval = found.interval()
    assert interval is not None
    assert interval.low == 0
    assert interval.high > 1  # four accepted drafts do not show that the models agree


def test_nothing_drafted_says_nothing() -> None:
    found = acceptance(drafted=[0, 0], accepted=[0, 0])
    assert (found.mean, found.whole, found.interval(), found.divergence()) == (None,) * 4
    assert found.untested == 2


@pytest.mark.parametrize(
    ("drafted", "accepted", "tokens"), [([2], [3], None), ([2, 2], [1], None), ([2], [1], 1)]
)
def test_counts_that_cannot_be_are_refused(drafted, accepted, tokens) -> None:
    with pytest.raises(DataError):
        acceptance(drafted, accepted, tokens=tokens)


def test_unbiased_by_enumeration() -> None:
    """Every path of a text of 4 tokens with 2 drafts a step, over an alphabet of two."""

    def models(text: tuple[int, ...]) -> tuple[float, float]:
        """The chance of a 1 under target and draft: it depends on the text so far."""
        return 0.2 + 0.15 * sum(text), 0.7 - 0.1 * len(text)

    mean_rejected = mean_variation = chance_of_all = 0.0

    def write(text, chance, variation, drafted, accepted) -> None:
        nonlocal mean_rejected, mean_variation, chance_of_all
        if len(text) >= 4:
            found = acceptance(drafted, accepted)
            mean_rejected += chance * found.variation
            mean_variation += chance * variation
            chance_of_all += chance
            return
        for draft in product((0, 1), repeat=2):
            step(text, chance, variation, drafted, accepted, draft, 0)

    def step(text, chance, variation, drafted, accepted, draft, place) -> None:
        p1, q1 = models(text)
        if place == 2:  # the bonus token, from the target alone
            for token, p in ((1, p1), (0, 1 - p1)):
                write((*text, token), chance * p, variation, [*drafted, 2], [*accepted, 2])
            return
        token = draft[place]
        p, q = (p1, q1) if token else (1 - p1, 1 - q1)
        tv = abs(p1 - q1)
        keep = min(1.0, p / q)
        step((*text, token), chance * q * keep, variation + tv, drafted, accepted, draft, place + 1)
        if keep < 1:  # of two tokens the other one is all that is left of the target
            # Drafts behind the rejection are drawn and thrown away: count this path once for them.
            rest = chance * q * (1 - keep) / 2 ** (1 - place)
            write((*text, 1 - token), rest, variation + tv, [*drafted, 2], [*accepted, place])

    write((), 1.0, 0.0, [], [])
    assert chance_of_all == pytest.approx(1)
    assert mean_rejected == pytest.approx(mean_variation, rel=1e-12)
    assert mean_variation > 0.5


def test_unbiased_and_within_its_error_by_simulation() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), 40), rng.dirichlet(np.ones(5), 40)
    variation = np.abs(p - q).sum(axis=1) / 2
    off: list[float] = []
    errors: list[float] = []
    for _ in range(400):
        place, drafted, accepted, tested = 0, list[int](), list[int](), list[int]()
        while place < 40:
            drafts = min(3, 40 - place)
            kept = 0
            while kept < drafts:
                at = place + kept
                tested.append(at)
                token = rng.choice(5, p=q[at])
                if rng.random() >= min(1.0, p[at, token] / q[at, token]):
                    break
                kept += 1
            drafted.append(drafts)
            accepted.append(kept)
            place += kept + 1
        found = acceptance(drafted, accepted, tokens=40)
        assert found.tested == len(tested)
        off.append(found.variation - variation[tested].sum())
        errors.append(found.error)
    assert abs(np.mean(off)) < 3 * np.std(off) / 20
    assert np.std(off) <= 1.05 * np.mean(errors)


def test_the_bounds_hold_for_any_two_distributions() -> None:
    rng = np.random.default_rng(1)
    for p, q in zip(
        rng.dirichlet(np.ones(4), 500), rng.dirichlet(np.full(4, 0.2), 500), strict=True
    ):
        m = (p + q) / 2
        jsd = sum(float((x[x > 0] * np.log2(x[x > 0] / m[x > 0])).sum()) / 2 for x in (p, q))
        variation = float(np.abs(p - q).sum() / 2)
        assert least_divergence(variation) - 1e-9 <= jsd <= variation + 1e-9


def test_the_bounds_are_those_of_two_tokens() -> None:
    # (1, 0) and (0, 1) differ wholly; (3/4, 1/4) and (1/4, 3/4) have a TV of 1/2.
    assert (least_divergence(0.0), least_divergence(1.0)) == (0.0, 1.0)
    h2 = -(0.75 * log2(0.75) + 0.25 * log2(0.25))
    assert least_divergence(0.5) == pytest.approx(1 - h2)
    bounds = acceptance(drafted=[1] * 1000, accepted=[1, 0] * 500).divergence()
    assert bounds is not None
    assert 1000 * (1 - h2) * 0.8 < bounds.low < 1000 * (1 - h2)
    assert 500 < bounds.high < 540


def response(drafted: Any, accepted: Any, tokens: Any) -> dict[str, Any]:
    steps = {"per_step_drafted": drafted, "per_step_accepted": accepted, "num_spec_tokens": 3}
    return {"usage": {"completion_tokens": tokens}, "metrics": {"speculative_decoding": steps}}


@pytest.mark.parametrize(
    ("tokens", "tested", "rejected"),
    [
        (10, 7, 1),  # 1 + 4 + 2 + 3: all of it
        (9, 7, 1),  # without the bonus token
        (8, 6, 1),  # with one of two accepted drafts
        (7, 5, 1),  # the text ends with the second step
        (6, 4, 0),  # before what was drawn for the rejected draft
        (5, 3, 0),
        (2, 1, 0),
        (1, 0, 0),  # the first token comes before all steps
    ],
)
def test_a_response_is_counted_up_to_its_end(tokens: int, tested: int, rejected: int) -> None:
    found = acceptance_of(response([3, 3, 2], [3, 1, 2], tokens))
    assert (found.tested, found.rejected, found.untested) == (tested, rejected, tokens - tested)


def test_a_response_may_be_an_object() -> None:
    spoken = response([3, 3], [3, 1], 7)
    # The `openai` package makes objects of what it knows, and keeps the rest as dicts.
    made = SimpleNamespace(usage=SimpleNamespace(**spoken["usage"]), metrics=spoken["metrics"])
    assert acceptance_of(made) == acceptance_of(spoken) == acceptance([3, 3], [3, 1], tokens=7)


@pytest.mark.parametrize(
    ("said", "what", "step"),
    [
        ({}, "no metrics.speculative_decoding", "--per-request-spec-decode-metrics detailed"),
        ({"metrics": None}, "no metrics.speculative_decoding", "(n=1)"),
        ({"metrics": {"speculative_decoding": None}}, "no metrics", "include_usage"),
        ({"metrics": {"speculative_decoding": {}}}, "no counts of its steps", "detailed"),
        (response([2], [1.5], 3), "no counts of its steps", "detailed"),
        (response([2], [1], None), "no usage.completion_tokens", "include_usage"),
        (response([2], [3], 5), "A step must accept", "of the same response"),
        (response([2, 2], [1], 5), "A step must accept", "of the same response"),
    ],
)
def test_a_response_without_counts_is_refused(said: Any, what: str, step: str) -> None:
    with pytest.raises(DataError, match=what) as caught:
        acceptance_of(said)
    assert step in str(caught.value.next_step)


def test_a_response_is_unbiased_where_its_text_ends_within_a_step() -> None:
    """As vLLM counts: a first token without a draft, and whole steps even behind the end token."""
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.full(5, 0.7), 60), rng.dirichlet(np.full(5, 0.7), 60)
    variation = np.abs(p - q).sum(axis=1) / 2
    left_over = np.maximum(p - q, 0)
    left_over /= left_over.sum(axis=1, keepdims=True)
    off: list[float] = []
    kept_all: list[float] = []
    errors: list[float] = []
    for _ in range(2000):
        text = [int(rng.choice(5, p=p[0]))]
        drafted, accepted, tested = list[int](), list[int](), list[int]()
        while 0 not in text and len(text) < 50:
            kept, at = 0, len(text)
            for place in range(at, at + 4):
                token = int(rng.choice(5, p=q[place]))
                tested.append(place)
                if rng.random() >= min(1.0, p[place, token] / q[place, token]):
                    text.append(int(rng.choice(5, p=left_over[place])))
                    break
                text.append(token)
                kept += 1
            else:
                text.append(int(rng.choice(5, p=p[at + 4])))
            drafted.append(4)
            accepted.append(kept)
        end = text.index(0) + 1 if 0 in text else len(text)
        found = acceptance_of(response(drafted, accepted, end))
        within = [place for place in tested if place < end]
        assert found.tested == len(within)
        off.append(found.variation - variation[within].sum())
        kept_all.append(acceptance(drafted, accepted).variation - variation[within].sum())
        errors.append(found.error)
    deviation = np.std(off) / sqrt(len(off))
    assert abs(np.mean(off)) < 3 * deviation
    assert np.mean(kept_all) > 10 * deviation  # what a text without its end would be off by
    assert np.sqrt(np.mean(np.square(off))) <= 1.05 * np.sqrt(np.mean(np.square(errors)))
