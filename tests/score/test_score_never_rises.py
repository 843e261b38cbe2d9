"""Estimators that say that further tokens never raise their value: they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_samples import make_trace

from divtok.records import Trace
from divtok.score.registry import ESTIMATORS, bind_parameters
from divtok.score.scoring import score_trace

NEVER = ["dtc_guarded", "dtc_lin", "dtc_weighted"]
COLUMNS = ("logprob_p", "logprob_q", "entropy_p", "entropy_q", "jsd_bits")
SHARES = st.floats(0, 1, width=32)
NATS = st.floats(0, 20, width=32)
TOKENS = st.lists(st.tuples(NATS, NATS, NATS, NATS, SHARES), min_size=1, max_size=12)


def test_which_say_so() -> None:
    assert sorted(spec.name for spec in ESTIMATORS if spec.never_rises) == NEVER


def beginning(trace: Trace, length: int) -> Trace:
    """The first tokens, of which the answer's are still no others' than in the end."""
    inside = trace.answer_start is not None and trace.answer_start < length
    columns: dict[str, Any] = {name: getattr(trace, name)[:length] for name in COLUMNS}
    return replace(
        trace,
        **columns,
        turn_end=min(trace.turn_end, length),
        answer_start=trace.answer_start if inside else None,
        answer_stop=min(trace.answer_stop or 0, length) if inside else None,
    )


@pytest.mark.parametrize("name", NEVER)
@given(tokens=TOKENS, data=st.data())
def test_no_beginning_is_trusted_less_than_the_whole(
    name: str, tokens: list[tuple[float, ...]], data: st.DataObject
) -> None:
    count = len(tokens)
    columns = dict(zip(COLUMNS, np.array(tokens, dtype=np.float32).T, strict=True))
    columns |= {name: -columns[name] for name in ("logprob_p", "logprob_q")}
    answer = data.draw(st.none() | st.tuples(*[st.integers(0, count)] * 2).map(sorted).map(tuple))
    jsd = columns.pop("jsd_bits")
    trace = make_trace(jsd, answer=answer, turn_end=data.draw(st.integers(0, count)), **columns)
    spec = ESTIMATORS.get(name)
    given_ = bind_parameters(spec, {"theta": data.draw(SHARES)})
    whole = score_trace(spec, trace, given_).value
    part = score_trace(spec, beginning(trace, data.draw(st.integers(1, count))), given_).value
    assert whole is not None
    assert part is not None
    assert part >= whole - 1e-12
