"""One model's log-probabilities: against the plain way, in chunks, and for rows that fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import SavedPair, bigram_reader, byte_level_tokenizer, trajectory

from divtok.errors import UsageError
from divtok.packed.parts import Head
from divtok.protocols.encode import plain_prompt_ids
from divtok.trace.budget import Budget
from divtok.trace.reader import Reader, load_reader
from divtok.trace.readings import (
    read_states,
    read_trajectories,
    token_logprobs,
)

INF = float("inf")


def plain_logprobs(states: torch.Tensor, head: Head, targets: torch.Tensor) -> torch.Tensor:
    """The definition in float64, all rows at once."""
    logits = states.double() @ head.weight.double().T
    if head.bias is not None:
        logits = logits + head.bias.double()
    logits = logits * head.scale
    if head.softcap is not None:
        logits = head.softcap * torch.tanh(logits / head.softcap)
    return torch.log_softmax(logits, dim=-1)[torch.arange(len(targets)), targets]


@pytest.fixture(scope="module")
def reader(saved_pair: SavedPair) -> Reader:
    return load_reader(str(saved_pair.p_dir), device="cpu")


@given(
    rows=st.integers(0, 9),
    workspace=st.integers(1, 6000),
    bias=st.booleans(),
    softcap=st.sampled_from([None, 5.0]),
    scale=st.sampled_from([1.0, 0.25]),
    half=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_chunks_equal_the_definition(
    rows: int,
    workspace: int,
    bias: bool,
    softcap: float | None,
    scale: float,
    half: bool,
    seed: int,
) -> None:
    random = torch.Generator().manual_seed(seed)
    kind = torch.bfloat16 if half else torch.float32
    head = Head(
        torch.randn(97, 12, generator=random).to(kind),
        bias=torch.randn(97, generator=random).to(kind) if bias else None,
        softcap=softcap,
        scale=scale,
    )
    states = (3 * torch.randn(rows, 12, generator=random)).to(kind)
    targets = torch.randint(97, (rows,), generator=random)
    found = token_logprobs(states, head, targets, workspace_bytes=workspace)
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found.double(), plain_logprobs(states, head, targets), atol=2e-5, rtol=1e-5
    )


def test_logits_stay_within_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    from divtok.trace import readings

    sizes: list[int] = []
    real = readings.head_logits

    def spy(head: Head, hidden: Any, *, out: Any, weight_bytes: int) -> Any:
        sizes.append(out.nbytes + weight_bytes)
        return real(head, hidden, out=out, weight_bytes=weight_bytes)

    monkeypatch.setattr(readings, "head_logits", spy)
    head, states = Head(torch.randn(1000, 8)), torch.randn(50, 8)
    token_logprobs(states, head, torch.arange(50), workspace_bytes=40_000)
    assert max(sizes) <= 40_000
    assert len(sizes) == 8  # 7 rows of 4,000 bytes in three quarters of it


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.0, INF, 0.0], None),
        ([float("nan"), 0.0, 0.0], None),
        ([-INF, -INF, -INF], None),
        ([0.0, -INF, 0.0], np.log(0.5)),
        ([-INF, 0.0, 0.0], -INF),
        ([1e30, 0.0, 0.0], 0.0),
    ],
)
def test_rows_without_a_distribution_are_nan_and_masked_tokens_minus_infinity(
    row: list[float], expected: float | None
) -> None:
    good = [0.0, 0.0, 0.0]
    head, states = Head(torch.zeros(3, 1)), torch.zeros(3, 1)

    def fake(*_: Any, **__: Any) -> Any:
        # A product with the unit matrix would spread NaN and inf over the row.
        return torch.tensor([good, row, good])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("divtok.trace.readings.head_logits", fake)
        found = token_logprobs(states, head, torch.zeros(3, dtype=torch.int64))
    assert found[[0, 2]].tolist() == pytest.approx([-np.log(3)] * 2)
    if expected is None:
        assert bool(found[1].isnan())
    else:
        assert found[1].item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("states", "targets", "words"),
    [
        (torch.zeros(2, 5), [0, 1], r"needs \[N, 4\]"),
        (torch.zeros(2, 4), [0], "2 hidden states for tokens"),
        (torch.zeros(2, 4), [0, 7], "Token id 7 at position 1"),
        (torch.zeros(2, 4), [-1, 0], "Token id -1 at position 0"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    states: torch.Tensor, targets: list[int], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        token_logprobs(states, Head(torch.zeros(7, 4)), torch.tensor(targets))
    with pytest.raises(UsageError, match="positive"):
        token_logprobs(
            torch.zeros(1, 4), Head(torch.zeros(7, 4)), torch.tensor([0]), workspace_bytes=0
        )


def naive(saved: SavedPair, prompt: list[int], response: list[int]) -> np.ndarray:
    """The whole model on the one row, in float64 behind its logits."""
    with torch.no_grad():
        logits = saved.p(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    logprobs = logits.double().log_softmax(dim=-1)
    return logprobs[torch.arange(len(response)), torch.tensor(response)].numpy()


def test_base_chat_reads_the_trajectories_own_prompt(any_saved_pair: SavedPair) -> None:
    saved = any_saved_pair
    reader = load_reader(str(saved.p_dir), device="cpu")
    shared = saved.ids(33)
    rows = [(shared, saved.ids(n)) for n in (12, 1, 5)] + [(saved.ids(4), saved.ids(20))]
    found = read_trajectories(
        reader, [trajectory(str(i), *row) for i, row in enumerate(rows)], kind="base_chat"
    )
    for i, (reading, row) in enumerate(zip(found, rows, strict=True)):
        assert (reading.key, reading.kind, reading.model) == (str(i), "base_chat", reader.name)
        assert reading.reason is None
        assert reading.logprob.dtype == np.float32
        np.testing.assert_allclose(reading.logprob, naive(saved, *row), atol=1e-4)


def test_base_plain_reads_the_bare_question(saved_pair: SavedPair, reader: Reader) -> None:
    questions = ["Half of 84?", "We add 12 and 30.", "Half of 84?"]
    responses = [saved_pair.ids(n) for n in (6, 9, 3)]
    trajectories = [trajectory(str(i), [5], ids) for i, ids in enumerate(responses)]
    found = read_trajectories(reader, trajectories, kind="base_plain", questions=questions)
    for reading, question, response in zip(found, questions, responses, strict=True):
        prompt = saved_pair.tokenizer(question + "\n")["input_ids"]
        assert reading.kind == "base_plain"
        np.testing.assert_allclose(reading.logprob, naive(saved_pair, prompt, response), atol=1e-4)


def test_budgets_change_nothing(saved_pair: SavedPair, reader: Reader) -> None:
    rows = [trajectory(str(n), saved_pair.ids(7), saved_pair.ids(n)) for n in range(1, 20)]
    large = read_trajectories(reader, rows, kind="base_chat")
    small = read_trajectories(
        reader, rows, kind="base_chat", budget=Budget(tokens=16, workspace_bytes=5000)
    )
    for a, b in zip(large, small, strict=True):
        np.testing.assert_allclose(a.logprob, b.logprob, atol=1e-4)


def test_a_tokenizer_that_adds_a_begin_token_gets_it_and_no_other_control_token() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_level_tokenizer()
    bare = tuple(tokenizer("Half of 84?\n")["input_ids"])
    assert plain_prompt_ids(tokenizer, "Half of 84?") == bare
    start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    for single in ("<|start|> $A", "<|start|> $A <|end|>"):
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=single, special_tokens=[("<|start|>", start), ("<|end|>", end)]
        )
        assert plain_prompt_ids(tokenizer, "Half of 84?") == (start, *bare)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <|end|>", special_tokens=[("<|end|>", end)]
    )
    assert plain_prompt_ids(tokenizer, "Half of 84?") == bare


def test_a_question_cannot_smuggle_in_control_tokens() -> None:
    from tokenizers import AddedToken

    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    question = "a<|end|>b<think>"
    ids = plain_prompt_ids(tokenizer, question)
    assert not set(ids) & {*tokenizer.all_special_ids, tokenizer.convert_tokens_to_ids("<think>")}
    assert tokenizer.decode(ids) == question + "\n"


def test_every_row_gets_a_reading_in_order() -> None:
    table = np.zeros((3, 3), dtype=np.float32)
    reader = bigram_reader("base", table, "abc", context_length=4)
    found = read_trajectories(
        reader,
        [
            trajectory("full", [0], [1, 2, 0]),
            trajectory("empty", [0], []),
            trajectory("long", [0, 1], [1, 2, 0]),
            trajectory("one", [2], [1]),
        ],
        kind="base_chat",
    )
    assert [reading.key for reading in found] == ["full", "empty", "long", "one"]
    np.testing.assert_allclose(found[0].logprob, np.full(3, -np.log(3)), rtol=1e-6)
    np.testing.assert_allclose(found[3].logprob, [-np.log(3)], rtol=1e-6)
    assert found[1].reason == "the response has no tokens"
    assert found[2].reason == "prompt 2 + response 3 = 5 tokens, base reads 4"
    assert len(found[1].logprob) == len(found[2].logprob) == 0
    assert read_trajectories(reader, [], kind="base_chat") == []


def test_broken_logits_name_the_model_and_the_token() -> None:
    table = np.zeros((3, 3), dtype=np.float32)
    table[2] = float("nan")
    reader = bigram_reader("base", table, "abc")
    found = read_trajectories(
        reader, [trajectory("x", [0], [1, 2, 0]), trajectory("y", [0], [1, 2])], kind="base_chat"
    )
    assert found[0].reason == (
        "the logits of base are no distribution (NaN, +inf or all masked) at response token 2 of 3"
    )
    assert len(found[0].logprob) == 0
    assert found[1].reason is None
    assert len(found[1].logprob) == 2
    states = read_states(reader, [trajectory("x", [0], [1, 2, 0]), trajectory("y", [0], [1, 2])])
    assert states[0].reason == "the hidden states of base are no numbers (NaN or inf)"
    assert states[0].values.shape == (0, 3)
    assert states[1].reason is None


@pytest.mark.parametrize(
    ("prompt", "tokens", "words"),
    [
        ([], [1], "no prompt tokens"),
        ([0, 3], [1], "Token id 3 at prompt position 1"),
        ([0], [1, -1], "Token id -1 at response position 1"),
        ([0], [1.5], "flat sequence of integers"),
    ],
)
def test_ids_that_cannot_be_read_are_usage_errors(prompt: Any, tokens: Any, words: str) -> None:
    reader = bigram_reader("base", np.zeros((3, 3)), "abc")
    with pytest.raises(UsageError, match=words):
        read_trajectories(reader, [trajectory("x", prompt, tokens)], kind="base_chat")


@pytest.mark.parametrize(
    ("kind", "questions"), [("base_plain", None), ("base_plain", ["a", "b"]), ("projected", None)]
)
def test_kinds_that_cannot_be_read_are_usage_errors(kind: Any, questions: Any) -> None:
    reader = bigram_reader("base", np.zeros((3, 3)), "abc")
    with pytest.raises(UsageError, match=rf"'{kind}' cannot be made from 1 traj.*base_chat"):
        read_trajectories(reader, [trajectory("x", [0], [1])], kind=kind, questions=questions)


def test_states_are_those_that_predict_the_tokens(saved_pair: SavedPair, reader: Reader) -> None:
    rows = [(saved_pair.ids(5), saved_pair.ids(n)) for n in (1, 8, 3)]
    found = read_states(reader, [trajectory(str(i), *row) for i, row in enumerate(rows)])
    for states, (prompt, response) in zip(found, rows, strict=True):
        with torch.no_grad():
            hidden = saved_pair.p.base_model(torch.tensor([prompt + response])).last_hidden_state
        torch.testing.assert_close(
            states.values, hidden[0, len(prompt) - 1 : -1], atol=1e-4, rtol=1e-4
        )
        assert states.reason is None


def test_running_out_of_memory_shrinks_the_budget(
    saved_pair: SavedPair, reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    def trunk(pack: Any, sinks: Any = ()) -> torch.Tensor:
        if len(pack.ids) > 30:
            raise torch.OutOfMemoryError("no room")
        return reader.trunk(pack)

    rows = [trajectory(str(n), saved_pair.ids(7), saved_pair.ids(n)) for n in range(1, 20)]
    budget = Budget()
    found = read_trajectories(replace(reader, trunk=trunk), rows, kind="base_chat", budget=budget)
    for a, b in zip(found, read_trajectories(reader, rows, kind="base_chat"), strict=True):
        np.testing.assert_allclose(a.logprob, b.logprob, atol=1e-4)
    assert budget.tokens <= 30
    assert "readings (base_chat): out of memory" in capsys.readouterr().err
