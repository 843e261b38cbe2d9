"""Traces where p's states are known: the same as from reading with both models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from trace_samples import SavedPair, trajectory

from divtok.divergences.divergence import DIVERGENCES
from divtok.packed.packs import build_pack
from divtok.records import PER_TOKEN_FIELDS
from divtok.trace.batches import Row, row_of
from divtok.trace.budget import Budget
from divtok.trace.from_states import read_beside
from divtok.trace.pair import Asked, Pair, load_pair


@pytest.fixture(scope="module")
def pair(saved_pair: SavedPair) -> Pair:
    return load_pair(str(saved_pair.p_dir), str(saved_pair.q_dir), p_device="cpu", q_device="cpu")


def states_of(pair: Pair, rows: list[Row]) -> dict[str, torch.Tensor]:
    """Each row's states by itself."""
    with torch.inference_mode():
        return {
            row.key: pair.p.states(build_pack([row.prompt_ids], [row.token_ids]))
            for row in rows
            if len(row.token_ids)
        }


def only_q(pair: Pair) -> Pair:
    def refuse(*_: Any) -> Any:
        raise AssertionError("p has read")

    return Pair(replace(pair.p, trunk=refuse), pair.q)


@pytest.mark.parametrize("tokens", [8192, 40])
def test_only_q_reads_and_the_numbers_are_the_same(
    tokens: int, pair: Pair, saved_pair: SavedPair
) -> None:
    rows = [
        row_of(trajectory(f"k{n}", saved_pair.ids(3 + n % 2), saved_pair.ids(length)))
        for n, length in enumerate((5, 1, 30, 12, 7))
    ]
    known = states_of(pair, rows)
    asked = Asked([DIVERGENCES.get("total_variation")])
    budget = Budget(tokens)
    traces = read_beside(
        only_q(pair), rows, known.__getitem__, budget=budget, others=asked.divergences
    )
    assert max(trace.jsd_bits.max() for trace in traces) > 0.01
    for trace, read in zip(traces, pair.read_rows(rows, asked=asked), strict=True):
        expected = read.trace
        facts = ("key", "p", "q", "status", "answer_start", "answer_stop", "turn_end", "exact")
        assert [getattr(trace, n) for n in facts] == [getattr(expected, n) for n in facts]
        for name in PER_TOKEN_FIELDS:
            np.testing.assert_allclose(
                getattr(trace, name), getattr(expected, name), atol=1e-5, rtol=0
            )
        np.testing.assert_allclose(
            trace.others["total_variation"], expected.others["total_variation"], atol=1e-5
        )


def test_what_q_cannot_read_has_the_status_it_always_has(pair: Pair, saved_pair: SavedPair) -> None:
    short = Pair(pair.p, replace(pair.q, context_length=20))
    rows = [
        row_of(trajectory(f"k{length}", saved_pair.ids(4), saved_pair.ids(length)))
        for length in (16, 17, 0)
    ]
    known = states_of(pair, rows)
    traces = read_beside(only_q(short), rows, known.__getitem__)
    assert [trace.status for trace in traces] == ["ok", "too_long", "empty"]
    read = [each.trace for each in short.read_rows(rows)]
    assert [trace.reason for trace in traces] == [trace.reason for trace in read]


def test_states_that_are_no_numbers_make_no_trace(pair: Pair, saved_pair: SavedPair) -> None:
    row = row_of(trajectory("k", saved_pair.ids(4), saved_pair.ids(6)))
    (states,) = states_of(pair, [row]).values()
    broken = states.clone()
    broken[2] = torch.nan
    (trace,) = read_beside(pair, [row], lambda key: broken)
    assert trace.status == "nonfinite"
    assert f"{pair.p.name} are no distribution" in (trace.reason or "")
    assert "at response token 2 of 6" in (trace.reason or "")


def test_memory_that_runs_out_makes_smaller_packs(pair: Pair, saved_pair: SavedPair) -> None:
    rows = [
        row_of(trajectory(f"k{n}", saved_pair.ids(5), saved_pair.ids(10 + n))) for n in range(4)
    ]
    known, usual = states_of(pair, rows), pair.q.trunk
    tried: list[int] = []

    def tight(pack: Any, sinks: Any = ()) -> Any:
        tried.append(len(pack.lanes))
        if len(pack.lanes) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return usual(pack, sinks)

    small = Pair(pair.p, replace(pair.q, trunk=tight))
    budget = Budget()
    traces = read_beside(small, rows, known.__getitem__, budget=budget)
    assert tried[0] == 4
    assert tried[-4:] == [1, 1, 1, 1]
    assert budget.tokens < 40
    for trace, expected in zip(traces, pair.read_rows(rows), strict=True):
        np.testing.assert_allclose(trace.jsd_bits, expected.trace.jsd_bits, atol=1e-5)
