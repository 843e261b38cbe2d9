"""Plain sampling that keeps its states: the same tokens, and the trace that a pass would give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from generate_samples import jobs, small_model
from test_generate_memory import ERRORS, hold_at_most
from test_generate_speculative import AUXILIARY, GREEDY, OPEN, SAMPLINGS, TINY, cut, tiny_jobs

from divtok.divergences.divergence import DIVERGENCES, further
from divtok.errors import ConfigError, ModelError
from divtok.generate import kept_states, steps
from divtok.generate.captured import CapturingPair, make_capturing
from divtok.generate.engine import ENGINES, EngineSetup
from divtok.generate.engines.transformers import TransformersSection
from divtok.generate.jobs import Job, generate_batch
from divtok.models.load import load_model
from divtok.progress import noted_by
from divtok.records import PER_TOKEN_FIELDS, Sampling, Trace, Trajectory

# Rows of many lengths: some end early by themselves, none is longer than 119 tokens.
RAGGED = Sampling(temperature=1.0, top_p=1.0, max_length=160)


def random_pair(name: str, tokenizer: Any) -> CapturingPair:
    """A random generator in float64, and its first two layers with a narrower head."""
    generator = small_model(name, tokenizer)
    return make_capturing(generator, cut(generator, 2, width=len(tokenizer) + 3))


def check_all(pair: CapturingPair, todo: list[Job], *, within: float = 1e-5) -> list[Trajectory]:
    """The tokens are those of plain sampling, and the traces those of a pass with both models."""
    made = pair.generate_batch(todo)
    trajectories = [trajectory for trajectory, _ in made]
    assert trajectories == generate_batch(pair.generator, todo)
    for (trajectory, trace), read in zip(made, pair.pair.trace_batch(trajectories), strict=True):
        assert trace is not None
        assert trace.status == "ok"
        assert len(trace) == len(trajectory.token_ids)
        same(trace, read, within=within)
    return trajectories


def same(trace: Trace, read: Trace, *, within: float) -> None:
    for name in PER_TOKEN_FIELDS:
        bound = within if name == "jsd_bits" else 10 * within
        ours, theirs = getattr(trace, name), getattr(read, name)
        np.testing.assert_allclose(ours, theirs, atol=bound, rtol=0, err_msg=name)
    for name in ("key", "p", "q", "answer_start", "answer_stop", "turn_end", "status", "exact"):
        assert getattr(trace, name) == getattr(read, name)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_the_tokens_of_plain_sampling_and_the_traces_of_a_pass(
    sampling: Sampling, tokenizer: Any
) -> None:
    """In float64, with rows that end at different steps and are moved into each other's places."""
    pair = random_pair("Qwen2", tokenizer)
    rows = check_all(pair, jobs(replace(sampling, max_length=160), 12), within=1e-6)
    if sampling == OPEN:
        assert len({len(row.token_ids) for row in rows}) > 6


@pytest.mark.parametrize("name", ["Llama", "Gemma3Text", "Phi3"])
def test_models_of_other_kinds(name: str, tokenizer: Any) -> None:
    check_all(random_pair(name, tokenizer), jobs(RAGGED, 5), within=1e-6)


def test_as_on_a_gpu_where_results_are_overwritten_and_ended_rows_carried_along(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded step leaves its states in one place, which the next replay writes over."""
    pair, places = random_pair("Qwen2", tokenizer), dict[int, torch.Tensor]()
    usual = steps.Writer._next

    def replayed(writer: Any, tokens: torch.Tensor) -> torch.Tensor:
        logits = usual(writer, tokens)
        place = places.setdefault(len(tokens), torch.empty_like(writer.states))
        writer.states = place.copy_(writer.states)
        return logits

    monkeypatch.setattr(steps.Writer, "_next", replayed)
    monkeypatch.setattr(
        steps.Writer, "should_close_up", lambda writer, live: 2 * live <= writer._rows.count
    )
    check_all(pair, jobs(RAGGED, 12), within=1e-6)
    assert 1 < len(places) < 7


def test_states_that_have_moved_to_host_memory_come_back(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "_AT_ONCE", 5_000)  # after some two steps of 12 rows
    check_all(random_pair("Llama", tokenizer), jobs(RAGGED, 12), within=1e-6)


@pytest.fixture(scope="module")
def tiny() -> CapturingPair:
    generator, auxiliary = (load_model(name, device="cpu") for name in (TINY, AUXILIARY))
    return make_capturing(generator, auxiliary)


def test_the_embedded_models_write_and_trace_in_one_go(
    tiny: CapturingPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32; the generator reads nothing a second time."""
    ends: set[str] = set()
    for sampling in (
        replace(GREEDY, max_length=400),
        replace(OPEN, temperature=1.3, max_length=110),
    ):
        todo = tiny_jobs(sampling)
        ends |= {row.finish_reason for row in check_all(tiny, todo)}
    assert ends == {"stop", "length"}
    read: list[str] = []

    def watched(name: str, trunk: Any) -> Any:
        return lambda pack, sinks=(): read.append(name) or trunk(pack, sinks)

    p, q = tiny.pair.p, tiny.pair.q
    both = replace(
        tiny.pair,
        p=replace(p, trunk=watched("p", p.trunk)),
        q=replace(q, trunk=watched("q", q.trunk)),
    )
    replace(tiny, pair=both).generate_batch(tiny_jobs(replace(OPEN, max_length=110)))
    assert read == ["q"]


def test_further_divergences_come_along(tiny: CapturingPair) -> None:
    asked = further([DIVERGENCES.get("total_variation").column])
    pair = replace(tiny, divergences=asked)
    ((trajectory, trace),) = pair.generate_batch(tiny_jobs(replace(OPEN, max_length=150), 1))
    assert trace is not None
    (found,) = trace.others.values()
    assert len(found) == len(trajectory.token_ids)
    # JSD lies between functions of the total variation; the upper one is itself, in bits.
    assert (trace.jsd_bits <= found + 1e-6).all()


def test_a_prompt_without_room_has_no_trace(tiny: CapturingPair) -> None:
    ((trajectory, trace),) = tiny.generate_batch(tiny_jobs(replace(OPEN, max_length=5), 1))
    assert trajectory.failed
    assert trace is None


def test_a_response_too_long_for_the_auxiliary_says_so(tokenizer: Any) -> None:
    """With the status and the reason that the stage trace gives it; the others are traced."""
    generator = small_model("Qwen2", tokenizer)
    short = cut(generator, 2)
    short.model.config.max_position_embeddings = 100
    pair = make_capturing(generator, short)
    made = pair.generate_batch(jobs(RAGGED, 12))
    read = pair.pair.trace_batch([trajectory for trajectory, _ in made])
    assert {trace.status for trace in read} == {"ok", "too_long"}
    for (_, trace), expected in zip(made, read, strict=True):
        assert trace is not None
        assert (trace.status, trace.reason) == (expected.status, expected.reason)
        same(trace, expected, within=1e-6)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_where_memory_runs_out_the_batch_is_halved(
    error: Exception, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, todo, notes = random_pair("Qwen2", tokenizer), jobs(RAGGED, 11), list[str]()
    expected = generate_batch(pair.generator, todo)
    tried = hold_at_most(3, error, monkeypatch)
    with noted_by(notes.append):
        made = pair.generate_batch(todo)
    assert tried == [11, 5, 2, 2, 2, 2, 2, 1]
    assert notes[0].startswith("generate: out of memory with 11 responses at once")
    assert [trajectory for trajectory, _ in made] == expected
    for (_, trace), read in zip(made, pair.pair.trace_batch(expected), strict=True):
        assert trace is not None
        same(trace, read, within=1e-6)


def test_memory_that_runs_out_in_the_middle_leaves_nothing_behind(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states of a portion that was given up are not those of the next one."""
    pair, todo = random_pair("Qwen2", tokenizer), jobs(RAGGED, 8)
    read = steps.Writer.read
    left = [20]

    def tight(writer: Any, tokens: torch.Tensor) -> torch.Tensor:
        left[0] -= 1
        if left[0] == 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return read(writer, tokens)

    monkeypatch.setattr(steps.Writer, "read", tight)
    with noted_by(lambda note: None):
        check_all(pair, todo, within=1e-6)
    assert left[0] < 0


def test_what_cannot_be_captured_is_refused(tokenizer: Any, tiny: CapturingPair) -> None:
    generator = small_model("Qwen2", tokenizer)
    with pytest.raises(ModelError, match="'Lfm2' is not written in steps") as caught:
        make_capturing(small_model("Lfm2", tokenizer), generator)
    assert caught.value.next_step is not None
    assert "generate.transformers.capture" in caught.value.next_step
    with pytest.raises(ModelError, match="do not share their vocabulary"):
        make_capturing(tiny.generator, generator)
    with pytest.raises(ModelError, match="could not read all that is written"):
        make_capturing(generator, cut(generator, 1, width=len(tokenizer) - 2))


def test_an_auxiliary_that_cannot_be_stepped_through_reads_all_the_same(tokenizer: Any) -> None:
    """It only reads packs, or padded rows: speculative sampling would refuse it."""
    auxiliary = small_model("Lfm2", tokenizer)
    check_all(
        make_capturing(small_model("Qwen2", tokenizer), auxiliary), jobs(RAGGED, 4), within=1e-6
    )


def test_the_engine_captures_where_it_is_asked_to() -> None:
    engine = ENGINES.get("transformers")
    asked = TransformersSection(capture=True)
    assert [engine.gives_traces(o) for o in (None, TransformersSection(), asked)] == [
        False,
        False,
        True,
    ]
    setup = EngineSetup(model=TINY, sampling=GREEDY, served_name=TINY, options=asked, device="cpu")
    with pytest.raises(ConfigError, match="No auxiliary is given to read beside"):
        engine.check(setup)
    plain = replace(setup, options=None)
    engine.check(plain)
    assert engine.identity([replace(setup, auxiliary=AUXILIARY)]) == engine.identity([plain])
    assert engine.open is not None
    todo = tiny_jobs(replace(OPEN, max_length=90), 2)
    found: list[Any] = []
    for each in (replace(setup, auxiliary=AUXILIARY), plain):
        with engine.open(each) as write:
            found.append([row for batch in write([todo]) for row in batch])
    captured, others = found
    assert [row.trajectory for row in captured] == [row.trajectory for row in others]
    assert [row.trace is None for row in captured] == [False, False]
    assert [row.trace is None for row in others] == [True, True]
