"""Running out of memory: halve the batch, then the workspace, say so, and lose no row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from trace_samples import bigram_reader, trajectory

from divtok.errors import ResourceError, UsageError
from divtok.memory import is_out_of_memory
from divtok.trace import pair as pair_module
from divtok.trace.budget import Budget
from divtok.trace.pair import Pair

TABLE = np.arange(16).reshape(4, 4) % 5


def short_of_memory(reader: Any, most_tokens: int) -> Any:
    """The reader on a machine that can hold so many tokens at once."""

    def trunk(pack: Any, sinks: Any = ()) -> Any:
        if len(pack.ids) > most_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return reader.trunk(pack, sinks)

    return replace(reader, trunk=trunk)


@pytest.fixture
def pair() -> Pair:
    return Pair(bigram_reader("P", TABLE, "abcd"), bigram_reader("Q", TABLE[::-1].copy(), "abcd"))


ROWS = [trajectory(str(i), [i % 4], [1, 2, 3, 0, 1][: 1 + i % 5]) for i in range(9)]


def test_the_batch_is_halved_until_it_fits(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    expected = pair.trace_batch(ROWS)
    tight = Pair(pair.p, short_of_memory(pair.q, 6))
    budget = Budget(tokens=64)
    found = tight.trace_batch(ROWS, budget=budget)
    assert [t.key for t in found] == [str(i) for i in range(9)]
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one.jsd_bits, other.jsd_bits)
    assert budget.tokens <= 8
    said = capsys.readouterr().err
    assert "out of memory with" in said
    assert f"reading at most {budget.tokens} tokens at once from here on" in said
    # The next batch starts from what fits, and says nothing more.
    tight.trace_batch(ROWS, budget=budget)
    assert capsys.readouterr().err == ""


def test_one_response_halves_the_workspace(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = pair_module.pair_metrics

    def metrics(*args: Any, workspace_bytes: int, **kwargs: Any) -> Any:
        if workspace_bytes > 5_000_000:
            raise RuntimeError("[enforce] DefaultCPUAllocator: can't allocate memory")
        return inner(*args, workspace_bytes=workspace_bytes, **kwargs)

    monkeypatch.setattr(pair_module, "pair_metrics", metrics)
    budget = Budget(workspace_bytes=16_000_000)
    (trace,) = pair.trace_batch([ROWS[4]], budget=budget)
    assert len(trace) == 5
    assert budget.workspace_bytes == 4_000_000
    assert capsys.readouterr().err.count("holding at most") == 2


def test_a_response_that_cannot_fit_is_named(pair: Pair) -> None:
    tight = Pair(short_of_memory(pair.p, 2), pair.q)
    with pytest.raises(ResourceError, match=r"One response of 6 tokens \(trajectory '4'\)"):
        tight.trace_batch([ROWS[4]])


def test_other_errors_are_not_taken_for_memory(pair: Pair) -> None:
    def trunk(pack: Any, sinks: Any = ()) -> Any:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        Pair(replace(pair.p, trunk=trunk), pair.q).trace_batch(ROWS)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"workspace_bytes": 0}])
def test_a_budget_is_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="positive"):
        Budget(**wrong)
