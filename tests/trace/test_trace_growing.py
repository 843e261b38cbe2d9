"""A trace that grows: what counts of a beginning also counts in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import bigram_reader, byte_level_tokenizer

from divtok.records import Trace
from divtok.trace.growing import GrowingTrace
from divtok.trace.kernels.common import HeadMetrics
from divtok.trace.pair import Pair
from divtok.trace.spans import answer_tokens, token_texts

BOXES = ["\\boxed{", "\\boxed "]
PIECES = [*BOXES, "4", "2", "}", "{", "é", "🙂", " ", "x", "$", "\\", "-", ".", "<e>"]
NUMBERS = dict.fromkeys(
    [name for name in HeadMetrics.__dataclass_fields__ if name != "others"], 0.0
) | {"finite_p": 1.0, "finite_q": 1.0}


@pytest.fixture(scope="module")
def pair() -> Any:
    from dataclasses import replace

    tokenizer = byte_level_tokenizer()
    table = np.zeros((len(tokenizer), len(tokenizer)))
    ends = frozenset({tokenizer.eos_token_id})
    p, q = (
        replace(bigram_reader(name, table, "a"), tokenizer=tokenizer, end_ids=ends)
        for name in ("p", "q")
    )
    return Pair(p, q)


def counted(trace: Trace | None) -> set[int]:
    return set() if trace is None else set(np.flatnonzero(trace.reasoning()).tolist())


def grown(pair: Pair, ids: list[int]) -> tuple[GrowingTrace, list[set[int]]]:
    """The trace, and the tokens that counted after each of them."""
    trace, steps = GrowingTrace(pair, [1]), list[set[int]]()
    for place, token in enumerate(ids):
        trace.add(token, NUMBERS, last=place == len(ids) - 1)
        steps.append(counted(trace.begun()))
    return trace, steps


def ids_of(tokenizer: Any, text: str) -> list[int]:
    end = tokenizer.convert_tokens_to_ids(tokenizer.eos_token)
    parts = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in text.split("<e>")]
    return [i for n, part in enumerate(parts) for i in ([end] if n else []) + part]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join))
def test_what_counts_goes_on_counting(pair: Pair, text: str) -> None:
    ids = ids_of(pair.p.tokenizer, text)
    trace, steps = grown(pair, ids)
    row = trace.row()
    whole = trace.whole(row)
    for earlier, later in zip(steps, [*steps[1:], counted(whole)], strict=True):
        assert earlier <= later
    assert trace.texts == token_texts(pair.p.tokenizer, ids)
    found = answer_tokens(pair.p.tokenizer, ids, str(row.text))
    start, stop = found or (None, None)
    assert (whole.answer_start, whole.answer_stop) == (start, stop)


def test_a_box_is_held_back_until_another_one_is_the_last(pair: Pair) -> None:
    tokenizer = pair.p.tokenizer
    first, second = (ids_of(tokenizer, text) for text in ("a\\boxed{4}b", "\\boxed{2}<e>"))
    _, steps = grown(pair, first + second)
    texts = token_texts(tokenizer, first + second)
    answers = [place for place, text in enumerate(texts) if text.strip("{}") in ("4", "2")]
    assert len(answers) == 2
    four, two = answers
    assert all(four not in step for step in steps[: two + 1])
    assert four in steps[-1]
    assert two not in steps[-1]
    assert len(first + second) - 1 not in steps[-1]  # the end of the turn


def test_columns_grow_with_the_response(pair: Pair) -> None:
    trace = GrowingTrace(pair, [1])
    for place in range(700):
        trace.add(3, NUMBERS | {"jsd_bits": place / 1000})
    whole = trace.whole(trace.row())
    np.testing.assert_array_equal(whole.jsd_bits, np.arange(700, dtype=np.float32) / 1000)
    beginning = trace.begun()
    assert beginning is not None
    assert len(beginning) == 700
    assert trace.begun() is beginning  # nothing new


def test_logits_that_are_no_distribution_are_seen(pair: Pair) -> None:
    trace = GrowingTrace(pair, [1])
    trace.add(3, NUMBERS)
    assert not trace.broken()
    trace.add(3, NUMBERS | {"finite_q": 0.0})
    assert trace.broken()
    assert "response token 1 of 2" in str(trace.whole(trace.row()).reason)
