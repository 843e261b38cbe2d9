"""The scores of steps, by hand: six tokens in three steps, the last of them the answer's."""

from __future__ import annotations

import numpy as np
import pytest
from score_samples import make_trace

from divtok.records import FirstWrong, Reason
from divtok.score.suspicion import MARKINGS, step_scores, suspect_steps_of

TEXT = "aa bb\ncc dd\nee 7"
STEPS = [(0, 5), (6, 11), (12, 16)]
BOUNDS = np.array([0, 2, 4, 6])
E1, E2, E8 = np.exp(-1.0), np.exp(-2.0), np.exp(-8.0)  # 1, 2 and 8 nats
# Surprise of p in nats: 1 0, 2 2, 0 8; the last token is the answer.
TRACE = make_trace([0.25, 0.5, 0.75, 0.125, 0.0, 1.0], prob=[E1, 1, E2, E2, 1, E8], answer=(5, 6))


def scores(trace, **options):
    found = step_scores(trace, BOUNDS, theta=0.25, **options)
    return {name: values.tolist() for name, values in found.items()}


def test_each_way_scores_every_step() -> None:
    found = scores(TRACE)
    none = -np.inf
    assert found == {
        "first_divergent": [0, -1, none],  # 0.25 is not above theta, the answer does not count
        "most_divergent": [1, 1, none],
        "divergence": [0.75, 0.875, 0.0],
        "weighted": pytest.approx([0.25, 2 * 0.75 + 2 * 0.125, 0.0]),
        "guarded": pytest.approx([0.25, 1.75, 0.0]),  # q is certain of all: no excess
        "excess": [0.0, 0.0, 0.0],
        "least_likely": pytest.approx([1.0, 2.0, 8.0]),
        "least_likely_step": pytest.approx([0.5, 2.0, 4.0]),
    }
    assert list(found) == list(MARKINGS)


def test_what_neither_model_would_have_written_adds_its_excess() -> None:
    trace = make_trace(
        [0.25, 0.5, 0.75, 0.125, 0.0, 1.0],
        prob=[E1, 1, E2, E2, 1, E8],
        answer=(5, 6),
        logprob_q=np.array([0, 0, -9, 0, 0, -7], np.float32),
    )
    found = scores(trace, guard=1.5)
    assert found["excess"] == pytest.approx([0, 2, 7])
    assert found["guarded"] == pytest.approx([0.25, 1.75 + 0.5, 5.5])
    assert scores(trace)["guarded"] == pytest.approx([0.25, 1.75, 2.0]), "the usual guard is 5"


def test_what_a_server_does_not_tell_is_left_out() -> None:
    trace = make_trace([0.25, 0.5, 0.75, 0.125, 0.0, 1.0], prob=[E1, 1, E2, E2, 1, E8], exact=False)
    found = scores(trace)
    assert found.keys() == MARKINGS.keys() - {"excess"}
    assert found["guarded"] == found["weighted"]


def test_the_end_of_the_turn_is_no_part_of_a_step() -> None:
    trace = make_trace([0, 0, 0, 0, 0, 1.0], prob=[1, 1, 1, 1, 1, E8], turn_end=5)
    found = scores(trace)
    assert found["least_likely"] == [0, 0, 0]
    assert found["divergence"] == [0, 0, 0]
    assert found["first_divergent"] == [-np.inf] * 3


def test_a_step_without_tokens_of_its_own_comes_last() -> None:
    found = step_scores(TRACE, np.array([0, 0, 4, 6]), theta=0.25)
    assert found["least_likely"].tolist() == pytest.approx([-np.inf, 2.0, 8.0])
    assert found["weighted"].tolist() == pytest.approx([0.0, 2.0, 0.0])


def test_steps_come_in_order_of_suspicion() -> None:
    found = suspect_steps_of(TRACE, TEXT, STEPS, BOUNDS, theta=0.25)
    assert [(s.rank, s.step, s.text, s.divergent) for s in found] == [
        (1, 2, "cc dd", 1),
        (2, 1, "aa bb", 1),
        (3, 3, "ee 7", 0),
    ]
    assert [s.score for s in found] == pytest.approx([1.75, 0.25, 0.0])
    first = found[0]
    assert (first.start, first.stop, first.first_token, first.end_token) == (6, 11, 2, 4)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, [None, None, None]),
        (FirstWrong(None, Reason("x", "y")), [None, None, None]),
        (FirstWrong(None), [False, False, False]),
        (FirstWrong(0), [False, True, False]),
    ],
)
def test_what_is_known_of_steps_is_said(known: FirstWrong | None, said: list[bool | None]) -> None:
    found = suspect_steps_of(TRACE, TEXT, STEPS, BOUNDS, theta=0.25, first_wrong=known)
    assert [step.known_wrong for step in found] == said


def test_a_response_without_steps_has_none_in_order() -> None:
    assert suspect_steps_of(TRACE, " ", [], np.array([0]), theta=0.25) == []
