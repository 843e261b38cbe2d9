"""Pairs that mean nothing, told by the models' files and by traces."""

from __future__ import annotations

import shutil
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divtok.models.packaged import resolve_model
from divtok.records import PER_TOKEN_FIELDS, Trace
from divtok.trace.pair_warnings import (
    FEWEST_AGREEING,
    FEWEST_UNIFORM,
    LARGEST_AGREEING,
    UNIFORM_ENTROPY,
    UNIFORM_TOKENS,
    Tally,
    tally_of,
    warnings_by_files,
    warnings_by_traces,
)

SMALL, LARGE = "divtok/tiny-0.3m", "divtok/tiny-0.5m"
WIDTH = 1000
LIMIT = UNIFORM_ENTROPY * log(WIDTH)


def trace(**columns: Any) -> Trace:
    tokens = len(next(iter(columns.values())))
    arrays: dict[str, Any] = {n: np.zeros(tokens, np.float32) for n in PER_TOKEN_FIELDS}
    arrays |= {name: np.array(values, np.float32) for name, values in columns.items()}
    fields: dict[str, Any] = {"answer_start": None, "answer_stop": None, "turn_end": tokens}
    return Trace("key", "p", "q", **arrays, **fields, dropped_mass_p=0, dropped_mass_q=0)


def kinds(tally: Tally) -> list[str]:
    return [warning.kind for warning in warnings_by_traces("p", "q", tally)]


def test_the_smaller_model_first() -> None:
    (found,) = warnings_by_files(SMALL, LARGE)
    assert (found.p, found.q, found.kind) == (SMALL, LARGE, "smaller_p")
    assert found.text == (
        "'divtok/tiny-0.3m' with 282,496 parameters is smaller than 'divtok/tiny-0.5m' with "
        "508,384. p should be the larger one, unless it wrote the responses itself: give the "
        "larger one first."
    )
    assert warnings_by_files(LARGE, SMALL) == []
    assert warnings_by_files(SMALL, LARGE, p_writes=True) == []


def test_the_same_weights_whoever_writes(tmp_path: Path) -> None:
    copy = str(shutil.copytree(resolve_model(LARGE), tmp_path / "copy"))
    for p_writes in (False, True):
        (found,) = warnings_by_files(LARGE, copy, p_writes=p_writes)
        assert found.kind == "same_weights"
        assert "have the same weights" in found.text


def test_nothing_is_said_of_models_that_are_not_here() -> None:
    assert warnings_by_files("nobody/has-this", "nobody/has-that") == []


def test_tokens_are_tallied_over_all_traces() -> None:
    above, below = LIMIT + 0.01, LIMIT - 0.01
    traces = [
        trace(entropy_p=[above, below, above], entropy_q=[0, above, 0], jsd_bits=[0, 0.25, 0]),
        trace(entropy_p=[above], entropy_q=[below], jsd_bits=[0.125]),
        trace(entropy_p=[]),
    ]
    tally = tally_of(traces, WIDTH)
    assert (tally.tokens, tally.uniform_p, tally.uniform_q, tally.largest) == (4, 3, 1, 0.25)
    unknown = tally_of(traces, None)
    assert (unknown.tokens, unknown.uniform_p, unknown.uniform_q) == (4, 0, 0)


@pytest.mark.parametrize(
    ("p", "q", "named"),
    [(1.0, 1.0, "'p' and 'q' are"), (1.0, 0.0, "'p' is"), (0.0, 1.0, "'q' is")],
)
def test_models_close_to_uniform_are_named(p: float, q: float, named: str) -> None:
    tokens = FEWEST_UNIFORM
    tally = Tally(WIDTH, tokens, round(p * tokens), round(q * tokens), largest=0.5)
    (found,) = warnings_by_traces("p", "q", tally)
    assert found.kind == "near_uniform"
    assert found.text.startswith(f"{named} close to uniform: on nearly every token all 1,000 ")


def test_nearly_every_token_has_to_be_uniform() -> None:
    tokens, enough = 1000, round(1000 * UNIFORM_TOKENS)
    assert kinds(Tally(WIDTH, tokens, enough, 0, largest=0.5)) == ["near_uniform"]
    assert kinds(Tally(WIDTH, tokens, enough - 1, enough - 1, largest=0.5)) == []
    few = FEWEST_UNIFORM - 1
    assert kinds(Tally(WIDTH, few, few, few, largest=0.5)) == []


def test_a_pair_that_never_diverges_needs_tokens_to_show_it() -> None:
    below = LARGEST_AGREEING * 0.999
    assert kinds(Tally(WIDTH, FEWEST_AGREEING, largest=below)) == ["no_divergence"]
    assert kinds(Tally(WIDTH, FEWEST_AGREEING - 1, largest=below)) == []
    assert kinds(Tally(WIDTH, FEWEST_AGREEING, largest=LARGEST_AGREEING)) == []
    assert kinds(Tally(None)) == []


def test_of_bounds_the_upper_one_counts() -> None:
    import dataclasses

    bits = np.full(FEWEST_AGREEING, 1e-4, np.float32)
    bounded = dataclasses.replace(
        trace(jsd_bits=bits, entropy_p=np.full(FEWEST_AGREEING, np.nan)),
        exact=False,
        jsd_low_bits=bits * 0,
        jsd_high_bits=bits * 100,
    )
    tally = tally_of([bounded], WIDTH)
    assert (tally.largest, tally.uniform_p) == (pytest.approx(0.01), 0)
    assert kinds(tally) == []


def test_two_models_that_were_never_trained_are_uniform_and_the_embedded_are_not(
    tmp_path: Path,
) -> None:
    from any_pair_samples import save_llama

    from divtok.trace.pair import load_pair

    p, q = (
        save_llama(tmp_path / "p", width=32, seed=1),
        save_llama(tmp_path / "q", width=16, seed=2),
    )
    ids = [int(i) for i in np.random.default_rng(0).integers(0, 700, 120)]
    found = {}
    for names in ((str(p), str(q)), (LARGE, SMALL)):
        pair = load_pair(*names)
        read = pair.trace_ids(prompt_ids=ids[:20], token_ids=ids[20:])
        found[names] = kinds(tally_of([read], pair.vocab_size))
    assert list(found.values()) == [["near_uniform"], []]
