"""The nouns: keys that are stable and tell everything apart, masks, verdicts, frozen records."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.records import (
    PER_TOKEN_FIELDS,
    Confidence,
    Problem,
    Reason,
    Sampling,
    Trace,
    Trajectory,
    Verdict,
    trajectory_key,
)

PROBLEM = Problem("p1", "bench", "Größe?", "1")
SAMPLING = Sampling(temperature=0.6, top_p=0.95, max_length=640, seed=3)
IDENTITY: dict[str, Any] = {
    "generator": "gen",
    "protocol": "cot",
    "sampling": SAMPLING,
    "sample": 2,
}


def trace(size: int, **changes: Any) -> Trace:
    arrays: Any = {name: np.zeros(size, dtype=np.float32) for name in PER_TOKEN_FIELDS}
    spans: dict[str, Any] = {"answer_start": None, "answer_stop": None, "turn_end": size}
    return Trace(
        key="k", p="p", q="q", dropped_mass_p=0.0, dropped_mass_q=0.0, **(arrays | spans | changes)
    )


def test_the_key_is_a_hash_of_the_canonical_identity() -> None:
    """Written out, because a changed key would orphan every run there is."""
    canonical = (
        '["bench","p1","Gr\\u00f6\\u00dfe?","gen","cot",'
        '{"max_length":640,"presence_penalty":0.0,"seed":3,"temperature":0.6,"top_k":null,'
        '"top_p":0.95},2]'
    )
    expected = hashlib.sha256(canonical.encode("ascii")).hexdigest()[:24]
    assert trajectory_key(PROBLEM, **IDENTITY) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"generator": "gen2"},
        {"protocol": "other"},
        {"sample": 3},
        *(
            {"sampling": replace(SAMPLING, **changed)}
            for changed in (
                {"temperature": 0.7},
                {"top_p": 0.9},
                {"top_k": 20},
                {"presence_penalty": 1.0},
                {"max_length": 641},
                {"seed": 4},
            )
        ),
    ],
)
def test_everything_that_makes_a_trajectory_is_in_its_key(change: dict[str, Any]) -> None:
    assert trajectory_key(PROBLEM, **IDENTITY) != trajectory_key(PROBLEM, **(IDENTITY | change))


@pytest.mark.parametrize("change", [{"id": "p2"}, {"benchmark": "b2"}, {"question": "Other?"}])
def test_another_problem_has_another_key(change: dict[str, Any]) -> None:
    other = replace(PROBLEM, **change)
    assert trajectory_key(other, **IDENTITY) != trajectory_key(PROBLEM, **IDENTITY)


def test_the_gold_answer_is_not_in_the_key() -> None:
    """A corrected gold answer needs new grades, not new trajectories."""
    corrected = replace(PROBLEM, answer="2")
    assert trajectory_key(corrected, **IDENTITY) == trajectory_key(PROBLEM, **IDENTITY)


@given(st.tuples(*[st.text(max_size=4)] * 4), st.tuples(*[st.text(max_size=4)] * 4))
def test_texts_that_run_together_have_different_keys(a: Any, b: Any) -> None:
    keys = [
        trajectory_key(Problem(i, bench, q, None), **(IDENTITY | {"generator": generator}))
        for i, bench, q, generator in (a, b)
    ]
    assert (keys[0] == keys[1]) == (a == b)


def test_reasoning_leaves_out_the_answer_and_the_end_of_turn() -> None:
    assert trace(4).reasoning().tolist() == [True] * 4
    spans: Any = {"answer_start": 1, "answer_stop": 3, "turn_end": 4}
    assert trace(6, **spans).reasoning().tolist() == [True, False, False, True, False, False]
    assert trace(2, turn_end=0).reasoning().tolist() == [False, False]
    assert trace(0).reasoning().tolist() == []


def test_what_counts_may_be_more_than_the_reasoning() -> None:
    spans: dict[str, Any] = {"answer_start": 1, "answer_stop": 3, "turn_end": 4}
    without_answer = trace(6, **spans, counted="no_answer")
    assert without_answer.reasoning().tolist() == [True, False, False, True, True, True]
    assert trace(6, **spans, counted="all").reasoning().tolist() == [True] * 6
    assert "6 tokens, 4 of them not the answer" in repr(without_answer)


def test_the_length_of_a_trace_is_its_tokens() -> None:
    assert [len(trace(size)) for size in (0, 1, 7)] == [0, 1, 7]


def test_every_per_token_field_is_an_array_of_the_trace() -> None:
    assert all(getattr(trace(3), name).shape == (3,) for name in PER_TOKEN_FIELDS)


def test_verdicts_compare_as_text() -> None:
    assert [str(verdict) for verdict in Verdict] == [
        "correct",
        "incorrect",
        "unanswered",
        "undetermined",
    ]
    assert Verdict("correct") is Verdict.CORRECT


@pytest.mark.parametrize(("finish", "truncated"), [("stop", False), ("length", True)])
def test_a_trajectory_that_met_the_limit_is_truncated(finish: Any, truncated: bool) -> None:
    trajectory = Trajectory("k", "p1", "bench", 0, "gen", (1,), (2,), "x", finish, "cot", SAMPLING)
    assert trajectory.truncated is truncated
    assert not trajectory.retokenized


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PROBLEM.answer = "2"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_reason_is_its_text() -> None:
    reason = Reason("too_long", "too_long: 9000 tokens, the limit is 8192")
    assert reason == "too_long: 9000 tokens, the limit is 8192"
    assert isinstance(reason, str)
    assert (reason.kind, str(reason), f"{reason}") == ("too_long", *[str(reason)] * 2)
    assert json.dumps(reason) == '"too_long: 9000 tokens, the limit is 8192"'
    assert {reason: 1}[str(reason)] == 1
    # The kind is for code, not part of what it says.
    assert Reason("a", "same") == Reason("b", "same")
    assert Reason("empty", "") == ""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_reason_keeps_its_kind_when_it_is_pickled(protocol: int) -> None:
    reason = Reason("not_gathered", "chain: not gathered")
    confidence = Confidence("k", "uqac_attn", {}, None, reason)
    for made in (
        pickle.loads(pickle.dumps(reason, protocol)),
        pickle.loads(pickle.dumps(confidence, protocol)).reason,
    ):
        assert type(made) is Reason
        assert (made.kind, str(made)) == ("not_gathered", "chain: not gathered")


def test_a_reason_keeps_its_kind_when_it_is_copied() -> None:
    reason = Reason("not_gathered", "chain: not gathered")
    confidence = Confidence("k", "uqac_attn", {}, None, reason)
    for made in (
        copy.copy(reason),
        copy.deepcopy(reason),
        copy.deepcopy(confidence).reason,
        replace(confidence, estimator="uqac_sim").reason,
        asdict(confidence)["reason"],
    ):
        assert isinstance(made, Reason)
        assert (made.kind, str(made)) == ("not_gathered", "chain: not gathered")
