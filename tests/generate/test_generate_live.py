"""Writing and reading at the same time: the tokens of `decode`, the numbers of a pass over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trace_samples import SavedPair, bigram_reader, save_pair

from divtok.errors import ModelError
from divtok.generate.decoding import Ask, decode
from divtok.generate.live import Step, WrittenTogether
from divtok.records import PER_TOKEN_FIELDS, Sampling
from divtok.trace.growing import GrowingTrace
from divtok.trace.pair import Pair, load_pair

OPEN = Sampling(temperature=1.0, top_p=1.0)
GREEDY = Sampling(temperature=0.0)
LIMITS = [1, 9, 30, 4, 30]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: Any) -> SavedPair:
    return save_pair(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="module")
def pair(saved: SavedPair) -> Pair:
    return load_pair(str(saved.p_dir), str(saved.q_dir), dtype="float32", p_device="cpu")


@pytest.fixture(scope="module")
def asks(saved: SavedPair) -> list[Ask]:
    prompts = [tuple(saved.ids(count)) for count in (5, 11, 2, 7)]
    prompts.append(prompts[2])
    rows = zip(prompts, LIMITS, strict=True)
    return [Ask(f"key {n}", prompt, limit) for n, (prompt, limit) in enumerate(rows)]


def written(
    pair: Pair, asks: list[Ask], sampling: Sampling, *, stopped: dict[int, int] | None = None
) -> list[list[Step]]:
    """All steps of each row; `stopped` says after how many tokens a row is."""
    live, rows = WrittenTogether(pair, asks, sampling), [list[Step]() for _ in asks]
    while steps := live.step():
        for step in steps:
            rows[step.row].append(step)
            if len(rows[step.row]) == (stopped or {}).get(step.row):
                live.stop(step.row)
    assert not live.step()
    return rows


@pytest.mark.parametrize("sampling", [OPEN, GREEDY], ids=["sampled", "greedy"])
def test_numbers_are_those_of_reading_the_whole(
    pair: Pair, asks: list[Ask], sampling: Sampling
) -> None:
    assert pair.p.head.width != pair.q.head.width
    assert pair.p.loaded is not None
    rows = written(pair, asks, sampling)
    expected = decode(pair.p.loaded, asks, sampling)
    for ask, steps, response in zip(asks, rows, expected, strict=True):
        ids = tuple(step.token for step in steps)
        assert ids == response.token_ids
        assert [step.ending for step in steps[:-1]] == [None] * (len(steps) - 1)
        assert steps[-1].ending == response.finish_reason
        growing = GrowingTrace(pair, ask.prompt)
        for step in steps:
            growing.add(step.token, step.numbers)
        found = growing.whole(growing.row())
        read = pair.trace_ids(prompt_ids=ask.prompt, token_ids=ids, text=response.text)
        for name in PER_TOKEN_FIELDS:
            np.testing.assert_allclose(getattr(found, name), getattr(read, name), atol=1e-5)
        for name in ("answer_start", "answer_stop", "turn_end", "status", "p", "q"):
            assert getattr(found, name) == getattr(read, name)
        assert found.dropped_mass_p == pytest.approx(read.dropped_mass_p, abs=1e-6)


def test_a_row_that_leaves_changes_no_other(pair: Pair, asks: list[Ask]) -> None:
    alone = [written(pair, [ask], OPEN)[0] for ask in asks]
    together = written(pair, asks, OPEN, stopped={2: 3})
    for row, (steps, own) in enumerate(zip(together, alone, strict=True)):
        kept = own[:3] if row == 2 else own
        assert [step.token for step in steps] == [step.token for step in kept]
        found, expected = ([step.numbers["jsd_bits"] for step in part] for part in (steps, kept))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_nothing_is_on_between_two_steps(pair: Pair, asks: list[Ask]) -> None:
    import torch

    threads = torch.get_num_threads()
    live = WrittenTogether(pair, asks, OPEN)
    live.step()
    assert not torch.is_inference_mode_enabled()
    assert torch.get_num_threads() == threads


def test_a_pair_that_cannot_write_is_refused(pair: Pair, asks: list[Ask]) -> None:
    with pytest.raises(ModelError, match="nothing was loaded that could write"):
        WrittenTogether(Pair(pair.p, replace(pair.q, loaded=None)), asks, OPEN)
    reader = bigram_reader("letters", np.zeros((3, 3)), "abc")
    with pytest.raises(ModelError, match="only reads"):
        WrittenTogether(Pair(reader, reader), asks, OPEN)
