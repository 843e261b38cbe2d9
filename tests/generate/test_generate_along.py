"""Two models that read a text along: the numbers of a pass over the whole, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from divtok.divergences.divergence import further
from divtok.errors import ModelError, ResourceError
from divtok.generate import along
from divtok.generate.along import ReadAlong, check_along
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.records import PER_TOKEN_FIELDS
from divtok.trace.pair import Pair, load_pair

TEXT = "Ada has 12 eggs. Ada buys 30 more eggs, and 12 + 30 = 42. The answer is \\boxed{42}."


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m", p_device="cpu", q_device="cpu")


@pytest.mark.parametrize("block", [1, 5, 400])
def test_the_numbers_are_those_of_the_whole(pair: Pair, block: int) -> None:
    prompt = prompt_ids(pair.p.tokenizer, "How many?")
    ids = response_ids(pair.p.tokenizer, TEXT)
    (other,) = further({"total_variation"})
    reading = ReadAlong(pair, prompt, others=[other], block=block)
    found = [*reading.read(ids[:3]), *reading.read(ids[3:7])]
    wrong = reading.read([5, 6, 7, 8, 9])  # what comes of them is taken back
    assert len(reading) == 12
    reading.take_back(len(wrong))
    found += reading.read(ids[7:])
    assert len(reading) == len(ids) == len(found)
    whole = pair.trace_ids(prompt_ids=prompt, token_ids=ids)
    for name in PER_TOKEN_FIELDS:
        read = [numbers[name] for numbers in found]
        np.testing.assert_allclose(read, getattr(whole, name), rtol=1e-4, atol=1e-5)
    assert all(0 <= numbers[other.column] <= 1 for numbers in found)


def test_a_model_that_cannot_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    check_along(pair.p, pair.q)
    monkeypatch.setattr(along, "why_no_blocks", lambda _: "it is a picture")
    check_along(pair.p, pair.q)  # known already
    along._checked.clear()
    with pytest.raises(ModelError, match=r"tiny-1.6m' cannot read a text as it comes in: it is a"):
        check_along(pair.p, pair.q)
    alone = Pair(replace(pair.p, loaded=None), pair.q)
    with pytest.raises(ModelError, match="was not loaded as a whole"):
        check_along(alone.p, alone.q)


def test_a_lack_of_memory_is_said(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(along, "pair_metrics", full)
    with pytest.raises(ResourceError, match="12 tokens, read as it comes in"):
        ReadAlong(pair, [1, 2, 3, 4]).read([5])
