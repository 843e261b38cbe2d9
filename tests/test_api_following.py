"""`follow`: text from a server or from anywhere, whose end is what `confidence` knows of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scripted_server import delta

import divtok
from divtok.api.asking import Watch
from divtok.api.following import Following
from divtok.decide.policy import QUANTILES, HowScored, Policy
from divtok.errors import NothingScoredError, UsageError
from divtok.generate.along import ReadAlong
from divtok.protocols.settling import Settling
from divtok.records import PER_TOKEN_FIELDS
from divtok.score.registry import ESTIMATORS
from divtok.trace.pair import Pair
from divtok.trace.spans import token_texts

P, Q = "divtok/tiny-1.6m", "divtok/tiny-0.3m"
QUESTION = "Ada has 7365 eggs. Ada buys 3078 eggs and gives 3 times 77 away. How many are left?"
# Some of it is no usual text of these models, so that many tokens diverge.
TEXT = (
    "3 times 77 is 231.\n\n7365 + 3078 = 10443, as  everybody knows 🙂.\n10443 - 231 = 10212.\n"
    "The answer is \\boxed{10212}. I am sure: <|im_end|> is no end here."
)
NAMES = ["dtc_lin", "dtc_weighted", "dtc_guarded", "dtc_prod", "nsl", "entropy"]
NEVER = [name for name in NAMES if ESTIMATORS.get(name).never_rises]
END = (delta(finish_reason="stop"),)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair(P, Q, device="cpu")


def cut(text: str, seed: int, most: int = 12) -> list[str]:
    rng, pieces, at = random.Random(seed), list[str](), 0
    while at < len(text):
        size = rng.randint(1, most)
        pieces.append(text[at : at + size])
        at += size
    return pieces


def watch(pair: Pair, **given: Any) -> Watch:
    usual = dict.fromkeys(["generator", "estimators", "theta", "fitted", "prior", "policy"])
    return Watch.of(QUESTION, pair, **{**usual, "tokens": "reasoning", "parameters": {}, **given})


@pytest.mark.parametrize("block", [1, 3, 8, 1000])
def test_the_end_is_what_confidence_gives(pair: Pair, block: int) -> None:
    for seed in range(3):
        *_, last = divtok.follow(
            QUESTION, pair=pair, text=cut(TEXT, seed), estimator=NAMES, block=block
        )
        assert last.result is not None
        for name in NAMES:
            whole = divtok.confidence(QUESTION, TEXT, pair=pair, estimator=name)
            assert last.confidence[name] == pytest.approx(whole.value, abs=1e-5)
        whole = divtok.confidence(QUESTION, TEXT, pair=pair)
        assert whole.count > 5
        assert (last.result.count, last.result.theta) == (whole.count, whole.theta)
        assert last.result.params == whole.params
        assert last.result.trace.retokenized
        for name in PER_TOKEN_FIELDS:
            found, read = getattr(last.result.trace, name), getattr(whole.trace, name)
            np.testing.assert_allclose(found, read, rtol=1e-4, atol=1e-5)
        turns = [
            (t.answer_start, t.answer_stop, t.turn_end) for t in (last.result.trace, whole.trace)
        ]
        assert turns[0] == turns[1]
        assert [t.text for t in last.result.tokens] == [t.text for t in whole.tokens]


def test_every_token_has_one_event(pair: Pair) -> None:
    found = list(divtok.follow(QUESTION, pair=pair, text=cut(TEXT, 0)))
    ids = pair.p.tokenizer(TEXT, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert [event.token_id for event in found] == ids
    assert [event.text for event in found] == token_texts(pair.p.tokenizer, ids)
    assert "".join(event.text for event in found) == TEXT
    assert [event.position for event in found] == list(range(len(ids)))
    assert [event.done for event in found] == [False] * (len(ids) - 1) + [True]
    assert not any(event.taken_back for event in found)
    assert "".join(event.text for event in found if event.held) == "10212"
    assert found[-1].ending == "unknown"


def test_what_runs_never_falls_below_the_end(pair: Pair) -> None:
    for seed in range(4):
        *running, last = divtok.follow(
            QUESTION, pair=pair, text=cut(TEXT, seed), estimator=NEVER, block=2
        )
        assert max(event.count for event in running) <= last.count
        for name in NEVER:
            values = [event.confidence[name] for event in (*running, last)]
            known = np.array([value for value in values if value is not None])
            assert (np.diff(known) <= 1e-6).all()


def test_events_come_while_the_text_does(pair: Pair) -> None:
    pieces = cut(TEXT, 1)
    seen: list[int] = []

    def text() -> Iterator[str]:
        for number, piece in enumerate(pieces):
            seen.append(number)
            yield piece

    behind = []
    told = ""
    for event in divtok.follow(QUESTION, pair=pair, text=text(), block=2):
        told += event.text
        behind.append(len("".join(pieces[: seen[-1] + 1])) - len(told))
        assert TEXT.startswith(told)
    assert max(behind) < 60


def test_tokens_that_change_after_all_are_taken_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(settling: Settling, piece: str) -> int:
        """As a tokenizer would that looks further ahead than any should."""
        settling.text += piece
        settling.ids = list(settling.whole())
        return len(settling.ids)

    whole = divtok.confidence(QUESTION, TEXT, pair=pair)
    monkeypatch.setattr(Settling, "add", hasty)
    # "The" is one token.
    pieces = [TEXT[: TEXT.index("he answer")], TEXT[TEXT.index("he answer") :]]
    found = list(divtok.follow(QUESTION, pair=pair, text=pieces, block=1))
    (changed,) = [event for event in found if event.taken_back]
    others = [place for place, event in enumerate(found) if event.position >= changed.position]
    assert found[others[0]].text == "T"
    assert len(others) == changed.taken_back + len(whole.tokens) - changed.position
    last = found[-1]
    assert last.result is not None
    assert last.result.value == pytest.approx(whole.value, abs=1e-6)
    np.testing.assert_allclose(last.result.trace.jsd_bits, whole.trace.jsd_bits, atol=1e-5)


def test_a_caller_can_push(pair: Pair) -> None:
    following = Following(watch(pair))
    told = [event for piece in cut(TEXT, 2) for event in following.feed(piece)]
    assert following.written == TEXT
    result = following.finish("stop")
    assert following.over
    assert result.value == pytest.approx(divtok.confidence(QUESTION, TEXT, pair=pair).value)
    assert [t.text for t in result.tokens][: len(told)] == [event.text for event in told]
    with pytest.raises(UsageError, match="is over"):
        following.feed("more")


def test_several_are_followed_at_the_same_time(pair: Pair) -> None:
    texts = [TEXT, TEXT.replace("10212", "9"), "Purple " * 9]
    followings = [Following(watch(pair), block=3) for _ in texts]
    for pieces in zip(*(cut(text.ljust(200), 5) for text in texts), strict=True):
        for following, piece in zip(followings, pieces, strict=True):
            following.feed(piece)
    for following, text in zip(followings, texts, strict=True):
        whole = divtok.confidence(QUESTION, text.ljust(200), pair=pair)
        assert following.finish().value == pytest.approx(whole.value, abs=1e-6)


def policy(threshold: float, theta: float) -> Policy:
    params: dict[str, Any] = {"theta": theta, "n": 10, "a": 0.95, "b": 0.05}
    return Policy(
        threshold=threshold,
        risk=0.1,
        delta=0.1,
        scored=HowScored("dtc_lin", params, "reasoning", (P, Q)),
        generator=P,
        responses=100,
        problems=100,
        base_risk=0.5,
        coverage=0.5,
        accepted_risk=0.05,
        quantiles=tuple(np.linspace(0, 1, QUANTILES)),
    )


def test_what_cannot_be_accepted_any_more_is_stopped(pair: Pair) -> None:
    whole = divtok.confidence(QUESTION, TEXT, pair=pair)
    limit = 0.95 - 0.09 * 2.5  # the third divergent token is one too many
    closed: list[int] = []

    def text() -> Iterator[str]:
        try:
            yield from cut(TEXT, 0)
        finally:
            closed.append(1)

    for given in ({"above": limit}, {"policy": policy(limit, whole.theta)}):
        found = list(divtok.follow(QUESTION, pair=pair, text=text(), stop=True, block=4, **given))
        last = found[-1]
        assert (last.ending, last.done, last.result, last.count) == ("stopped", True, None, 3)
        assert len(found) < len(whole.tokens)
    assert closed == [1, 1]
    *_, told = divtok.follow(QUESTION, pair=pair, text=cut(TEXT, 0), policy=policy(limit, 0.4))
    assert told.result is not None
    assert told.result.decision is not None
    assert told.result.decision.action == "abstain"


def test_a_whole_text_is_never_stopped(pair: Pair) -> None:
    *_, last = divtok.follow(QUESTION, pair=pair, text=[TEXT], above=0.9, stop=True, block=1000)
    assert last.ending == "unknown"
    assert last.result is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "where the text comes from"),
        ({"server": "http://127.0.0.1:1/v1"}, "where the text comes from"),
        ({"text": ["a"], "temperature": 1.0}, "nothing to ask: temperature"),
        ({"text": ["a"], "stop": True}, "stopped"),
        ({"text": ["a"], "block": 0}, "block must be"),
        ({"text": ["a"], "estimator": "uqac_attn"}, "not known while"),
        ({"server": "http://a/v1", "model": "m", "extra_body": {"n": 2}}, "may not set 'n'"),
        ({"server": "a", "model": "m"}, "base_url must begin"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    pair: Pair, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        divtok.follow(QUESTION, pair=pair, **given)


@pytest.mark.parametrize("text", [[], [" ", "\n"]])
def test_a_text_without_words_is_not_scored(pair: Pair, text: list[str]) -> None:
    with pytest.raises(NothingScoredError, match="no text in it"):
        list(divtok.follow(QUESTION, pair=pair, text=text))


def test_a_text_that_is_too_long_is_told_as_soon_as_it_is(pair: Pair) -> None:
    assert pair.context_length is not None
    taken = 0

    def text() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "1 2 3 4 5 "

    with pytest.raises(NothingScoredError, match="reads"):
        list(divtok.follow(QUESTION, pair=pair, text=text()))
    assert taken < pair.context_length


def test_what_is_no_text_is_refused(pair: Pair) -> None:
    wrong: Any = ["fine ", 3]
    with pytest.raises(UsageError, match="not a text but int"):
        list(divtok.follow(QUESTION, pair=pair, text=wrong))


def test_logits_that_are_no_distribution_end_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ReadAlong.read

    def broken(reading: ReadAlong, ids: Any) -> Any:
        return [{**numbers, "finite_q": 0.0} for numbers in read(reading, ids)]

    monkeypatch.setattr(ReadAlong, "read", broken)
    following = Following(watch(pair), block=1)
    with pytest.raises(NothingScoredError, match=r"tiny-0.3m are no distribution"):
        following.feed(TEXT)
    assert following.over
