"""`stream`: an answer token by token, whose end is what `confidence` knows of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import divtok
from divtok.decide.policy import QUANTILES, HowScored, Policy
from divtok.errors import UsageError
from divtok.generate.decoding import Ask, decode
from divtok.generate.live import WrittenTogether
from divtok.protocols.encode import prompt_ids
from divtok.records import PER_TOKEN_FIELDS, Sampling, trajectory_key
from divtok.score.facts import count_trace
from divtok.score.registry import ESTIMATORS, bind_parameters
from divtok.score.scoring import score_trace
from divtok.trace.pair import Pair
from divtok.trace.spans import token_texts

P, Q = "divtok/tiny-1.6m", "divtok/tiny-0.3m"
EASY = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
HARD = "Ada has 7365 eggs. Ada buys 3078 eggs and gives 3 times 77 away. How many are left?"
NAMES = ["dtc_lin", "dtc_weighted", "dtc_guarded", "dtc_prod", "nsl", "entropy"]
NEVER = [name for name in NAMES if ESTIMATORS.get(name).never_rises]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair(P, Q, device="cpu")


def policy(threshold: float, theta: float, *, q: str = Q) -> Policy:
    params: dict[str, Any] = {"theta": theta, "n": 10, "a": 0.95, "b": 0.05}
    return Policy(
        threshold=threshold,
        risk=0.1,
        delta=0.1,
        scored=HowScored("dtc_lin", params, "reasoning", (P, q)),
        generator=P,
        responses=100,
        problems=100,
        base_risk=0.5,
        coverage=0.5,
        accepted_risk=0.05,
        quantiles=tuple(np.linspace(0, 1, QUANTILES)),
    )


@pytest.mark.parametrize("question", [EASY, HARD])
@pytest.mark.parametrize("sample", [0, 1])
def test_the_end_is_what_reading_the_whole_gives(pair: Pair, question: str, sample: int) -> None:
    events = list(
        divtok.stream(question, pair=pair, estimator=NAMES, temperature=1.2, sample=sample)
    )
    ids, last = [event.token_id for event in events], events[-1]
    prompt = prompt_ids(pair.p.tokenizer, question)
    read = pair.trace_ids(prompt_ids=prompt, token_ids=ids)
    assert last.result is not None
    for name in PER_TOKEN_FIELDS:
        found = getattr(last.result.trace, name)
        near = 0.0 if name == "jsd_bits" else 1e-4  # of nats, which have no upper end
        np.testing.assert_allclose(found, getattr(read, name), rtol=near, atol=1e-5)
    theta = last.result.theta
    for name in NAMES:
        spec = ESTIMATORS.get(name)
        value = score_trace(spec, read, bind_parameters(spec, {"theta": theta})).value
        assert last.confidence[name] == pytest.approx(value, abs=1e-5)
    count = count_trace(last.result.trace, theta=theta, band_bits=0.0).count
    assert last.count == last.result.count == count
    assert last.result.value == last.confidence["dtc_lin"]
    texts = token_texts(pair.p.tokenizer, ids)
    assert [event.text for event in events] == texts == [t.text for t in last.result.tokens]
    assert [event.position for event in events] == list(range(len(ids)))
    assert [event.done for event in events] == [False] * (len(ids) - 1) + [True]
    bits = [event.jsd_bits for event in events]
    np.testing.assert_array_equal(bits, last.result.trace.jsd_bits)


def test_what_runs_never_falls_below_the_end(pair: Pair) -> None:
    for sample in range(6):
        *running, last = divtok.stream(
            HARD, pair=pair, estimator=NEVER, temperature=1.5, sample=sample, max_tokens=60
        )
        counts = [event.count for event in running]
        assert counts == sorted(counts)
        assert max(counts, default=0) <= last.count
        for name in NEVER:
            values = [event.confidence[name] for event in (*running, last)]
            known = np.array([value for value in values if value is not None])
            assert (np.diff(known) <= 1e-12).all()


def test_tokens_of_a_box_are_held_back(pair: Pair) -> None:
    events = list(divtok.stream(EASY, pair=pair, temperature=0))
    assert "".join(event.text for event in events if event.held) == "551<|im_end|>"
    assert not any(event.divergent for event in events if event.held)


def test_the_text_is_that_of_the_generator(pair: Pair) -> None:
    sampling = Sampling(temperature=1.0, seed=3)
    events = list(divtok.stream(EASY, pair=pair, temperature=1.0, seed=3, sample=2))
    problem = divtok.Problem("", "", EASY, None)
    key = trajectory_key(problem, generator=P, protocol="cot", sampling=sampling, sample=2)
    assert pair.p.loaded is not None
    ask = Ask(key, prompt_ids(pair.p.tokenizer, EASY), 400)
    expected = decode(pair.p.loaded, [ask], sampling)[0]
    assert tuple(event.token_id for event in events) == expected.token_ids
    assert events[-1].ending == expected.finish_reason


def test_closing_ends_the_work(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    step = WrittenTogether.step

    def counted(live: WrittenTogether) -> Any:
        steps.append(1)
        return step(live)

    monkeypatch.setattr(WrittenTogether, "step", counted)
    events = divtok.stream(EASY, pair=pair)
    assert not steps
    assert [next(events).position for _ in range(2)] == [0, 1]
    assert len(steps) == 2
    events.close()
    assert list(events) == []
    assert len(steps) == 2


def test_the_length_can_be_limited(pair: Pair) -> None:
    *_, last = divtok.stream(EASY, pair=pair, max_tokens=5)
    assert (last.position, last.ending, last.done) == (4, "length", True)
    assert last.result is not None
    assert len(last.result.tokens) == 5


def test_a_policy_decides_at_the_end_or_stops(pair: Pair) -> None:
    *_, free = divtok.stream(HARD, pair=pair, temperature=1.0)
    assert free.result is not None
    assert free.result.count > 0
    limit = free.result.value + 0.045  # between this count's value and that of one less
    rules = policy(limit, free.result.theta)
    *_, told = divtok.stream(HARD, pair=pair, temperature=1.0, policy=rules)
    assert told.result is not None
    assert told.result.decision is not None
    assert told.result.decision.action == "abstain"
    *_, before, last = divtok.stream(HARD, pair=pair, temperature=1.0, policy=rules, stop=True)
    assert (last.done, last.ending, last.result) == (True, "stopped", None)
    assert last.position < told.position
    assert before.confidence["dtc_lin"] is not None
    assert last.confidence["dtc_lin"] is not None
    assert last.confidence["dtc_lin"] < limit <= before.confidence["dtc_lin"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "uqac_attn"}, "needs more than a pair|not known while"),
        ({"estimator": "basecal"}, "needs more than a pair"),
        ({"stop": True}, "Nothing says from which confidence"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"temperature": -1.0}, "cannot be sampled"),
        ({"top_p": 0.0}, "cannot be sampled"),
        ({"sampling": Sampling(max_length=3)}, "no room for a response"),
        ({"policy": policy(0.5, 0.05, q="divtok/tiny-0.5m")}, "made for the pair"),
        ({"policy": policy(0.5, 0.2), "theta": 0.1}, "made for theta"),
        ({"n": "many"}, "n must be"),
    ],
)
def test_refused_before_a_token_is_written(
    pair: Pair, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        divtok.stream(EASY, pair=pair, **options)


def test_only_models_that_are_here_can_write() -> None:
    with pytest.raises(UsageError, match="Only a pair of models"):
        divtok.stream(EASY, pair="tiny")  # pyright: ignore[reportArgumentType]


def test_a_theta_is_used(pair: Pair) -> None:
    *_, last = divtok.stream(EASY, pair=pair, temperature=0, theta=0.0)
    assert last.result is not None
    trace = last.result.trace
    assert last.count == int(np.count_nonzero(trace.jsd_bits[trace.reasoning()] > 0))
