"""Rows that leave their batch: the same tokens as from `generate`, and no step for ended rows."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
from generate_samples import small_model
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import ModelError
from divtok.generate import decoding, steps
from divtok.generate.decoding import Ask, Written, decode
from divtok.generate.steps import can_step
from divtok.records import Sampling

STEPPED = ["Qwen2", "Llama", "Phi3", "Gemma3Text"]
OPEN = Sampling(temperature=1.0, top_p=1.0)
GREEDY = Sampling(temperature=0.0)
SAMPLINGS = [
    OPEN,
    GREEDY,
    Sampling(temperature=0.8, top_p=0.95, top_k=20, presence_penalty=1.5),
]


def asks_of(limits: list[int], *, seed: int = 0, longest: int = 30) -> list[Ask]:
    """Prompts of unequal lengths; every fifth one is that of the row before it."""
    rng = np.random.default_rng(seed)
    asks: list[Ask] = []
    for number, limit in enumerate(limits):
        prompt = tuple(map(int, rng.integers(3, 300, int(rng.integers(1, longest)))))
        prompt = asks[-1].prompt if number % 5 == 4 else prompt
        asks.append(Ask(f"key {seed} {number}", prompt, limit))
    return asks


def refuse_generate(monkeypatch: pytest.MonkeyPatch, loaded: Any) -> None:
    """So that a test sees the steps, not what stands in for them."""

    def refuse(**_: Any) -> None:
        raise AssertionError("generate was called")

    monkeypatch.setattr(loaded.model, "generate", refuse)


def plain(loaded: Any, asks: list[Ask], sampling: Sampling) -> list[Written]:
    """All rows to the end of the longest one, by `generate`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "can_step", lambda loaded: False)
        return decode(loaded, asks, sampling)


def check_same(loaded: Any, asks: list[Ask], sampling: Sampling) -> list[Written]:
    expected = plain(loaded, asks, sampling)
    with pytest.MonkeyPatch.context() as patch:
        refuse_generate(patch, loaded)
        assert decode(loaded, asks, sampling) == expected
    return expected


class Watched:
    """What a model is called with: how many tokens at a time, and at which positions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loaded: Any) -> None:
        self.positions: list[list[int]] = []
        assert can_step(loaded)  # before anybody counts
        decoder = loaded.model.get_decoder()
        forward = decoder.forward

        def watch(**inputs: Any) -> Any:
            assert inputs["input_ids"].shape == inputs["position_ids"].shape
            assert "attention_mask" not in inputs
            self.positions.append(inputs["position_ids"][0].tolist())
            return forward(**inputs)

        monkeypatch.setattr(decoder, "forward", watch)


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["open", "greedy", "penalty"])
def test_rows_of_unequal_prompts_and_limits(name: str, sampling: Sampling, tokenizer: Any) -> None:
    loaded = small_model(name, tokenizer)
    limits = [int(x) for x in np.random.default_rng(2).integers(1, 90, 30)]
    written = check_same(loaded, asks_of(limits), sampling)
    assert {w.finish_reason for w in written} == {"stop", "length"}, "both ends must be tried"
    for limit, row in zip(limits, written, strict=True):
        assert len(row.token_ids) == limit or row.token_ids[-1] in loaded.end_ids


@pytest.mark.parametrize("name", STEPPED)
def test_all_but_one_end_at_once(name: str, tokenizer: Any) -> None:
    loaded = small_model(name, tokenizer, ends_often=False)
    for survivor in (0, 4, 8):
        limits = [1] * 9
        limits[survivor] = 100
        written = check_same(loaded, asks_of(limits, seed=3), GREEDY)
        assert [len(w.token_ids) for w in written if w is not written[survivor]] == [1] * 8
        assert len(written[survivor].token_ids) > 1


@pytest.mark.parametrize("name", STEPPED)
def test_rows_that_end_with_their_first_token(name: str, tokenizer: Any) -> None:

    def at_once(row: Written) -> bool:
        return len(row.token_ids) == 1 and row.finish_reason == "stop"

    loaded = small_model(name, tokenizer)
    candidates = [
        Ask(f"candidate {number}", (5, 6, 7, 8)[: 1 + number % 4], 60) for number in range(200)
    ]
    ended = [at_once(w) for w in plain(loaded, candidates, OPEN)]
    first = [ask for ask, end in zip(candidates, ended, strict=True) if end][:4]
    others = [ask for ask, end in zip(candidates, ended, strict=True) if not end][:3]
    assert len(first) == 4
    written = check_same(loaded, [*first[:2], *others, *first[2:]], OPEN)
    assert [at_once(w) for w in written] == [True] * 2 + [False] * 3 + [True] * 2
    assert {w.finish_reason for w in check_same(loaded, first, OPEN)} == {"stop"}


@pytest.mark.parametrize("name", STEPPED)
def test_a_batch_of_one(name: str, tokenizer: Any) -> None:
    loaded = small_model(name, tokenizer)
    for seed in range(3):
        check_same(loaded, asks_of([80], seed=seed), OPEN)


def test_long_responses_outgrow_the_room_of_the_cache(tokenizer: Any) -> None:
    loaded = small_model("Qwen2", tokenizer, ends_often=False)
    limits = [200, 3, 130, 70, 150, 200]
    written = check_same(loaded, asks_of(limits, seed=9), OPEN)
    assert max(len(w.token_ids) for w in written) > 130


def test_no_row_is_read_again_after_its_end(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    loaded = small_model("Qwen2", tokenizer)
    asks = asks_of([40, 1, 25, 60, 12, 33, 60])
    watched = Watched(monkeypatch, loaded)
    written = decode(loaded, asks, OPEN)
    # Samples that share a prompt share its reading, and nothing is padded.
    prompts = dict.fromkeys(ask.prompt for ask in asks)
    assert len(prompts) < len(asks)
    assert watched.positions[0] == [place for p in prompts for place in range(len(p))]
    # A row's last token is not read.
    for step, read in enumerate(watched.positions[1:]):
        going = zip(asks, written, strict=True)
        left = [len(a.prompt) + step for a, w in going if len(w.token_ids) > step + 1]
        assert sorted(read) == sorted(left)
    assert len(watched.positions) == max(len(w.token_ids) for w in written)


@pytest.mark.parametrize("name", STEPPED)
def test_rows_that_have_ended_may_be_carried_along(
    name: str, monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    """As on a GPU, where closing up is put off until half of the rows are gone."""

    def half_are_gone(writer: Any, live: int) -> bool:
        return 2 * live <= writer._rows.count

    loaded = small_model(name, tokenizer)
    limits = [int(x) for x in np.random.default_rng(7).integers(1, 160, 20)]
    expected = plain(loaded, asks_of(limits, seed=5), OPEN)
    monkeypatch.setattr(steps.Writer, "should_close_up", half_are_gone)
    watched = Watched(monkeypatch, loaded)
    assert decode(loaded, asks_of(limits, seed=5), OPEN) == expected
    sizes = [len(read) for read in watched.positions[1:]]
    assert sizes == sorted(sizes, reverse=True)
    assert 1 < len(set(sizes)) < 6, "closed up a few times, not at every end"


class Replayed:
    """Stands for a CUDA graph: records nothing, but insists that everything stays in its place."""

    def __init__(self, step: Any) -> None:
        self.step, self.places, self.recorded = step, None, 0
        self.logits: Any = None

    def __call__(self, tokens: Any) -> Any:
        rows = self.step.__self__._rows
        held = [rows.positions, rows._growth, *(x for layer in rows._stores for x in layer)]
        places = [(x.data_ptr(), x.shape) for x in held]
        if self.places is None:
            self.places, self.recorded = places, self.recorded + 1
            self.logits = None
        assert places == self.places, "something moved, and nobody said so"
        logits = self.step(tokens)
        if self.logits is None:
            self.logits = logits.clone()
        return self.logits.copy_(logits)

    def forget(self) -> None:
        self.places = None


def test_what_a_recorded_step_reads_stays_in_its_place(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    loaded = small_model("Qwen2", tokenizer)
    asks = asks_of([300, 4, 150, 90, 210, 300], seed=4)
    expected = plain(loaded, asks, OPEN)
    assert can_step(loaded)
    made: list[Replayed] = []

    def replayed(writer: Any, loaded: Any) -> None:
        usual(writer, loaded)
        made.append(Replayed(writer._next))
        writer._recorded = made[-1]

    usual = steps.Writer.__init__
    monkeypatch.setattr(steps.Writer, "__init__", replayed)
    monkeypatch.setattr(steps, "Recorded", Replayed)
    assert decode(loaded, asks, OPEN) == expected
    assert made[0].recorded > 1


def test_each_row_may_use_its_own_context_to_the_end(tokenizer: Any) -> None:
    """A learned position beyond the context does not exist; carried along, a row would need it."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from divtok.models.load import LoadedModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=40, n_embd=16, n_layer=2, n_head=2, eos_token_id=2
    )
    model = GPT2LMHeadModel(config).double().eval()
    loaded = LoadedModel("gpt2", None, model, tokenizer, torch.device("cpu"), torch.float64)
    asks = [Ask("a", tuple(range(3, 38)), 5), Ask("b", (3, 4), 38), Ask("c", (9,) * 20, 20)]
    together = decode(loaded, asks, OPEN)
    assert together == [decode(loaded, [ask], OPEN)[0] for ask in asks]
    assert {w.finish_reason for w in together} == {"length"}


def counting_generate(monkeypatch: pytest.MonkeyPatch, loaded: Any) -> list[int]:
    calls: list[int] = []
    generate = loaded.model.generate

    def counted(**inputs: Any) -> Any:
        calls.append(len(inputs["input_ids"]))
        return generate(**inputs)

    monkeypatch.setattr(loaded.model, "generate", counted)
    return calls


def test_what_cannot_be_stepped_through_is_generated(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    """Convolutions keep states of their own from token to token."""
    loaded = small_model("Lfm2", tokenizer)
    assert not can_step(loaded)
    calls = counting_generate(monkeypatch, loaded)
    asks = asks_of([20, 1, 35, 9, 50])
    together = decode(loaded, asks, OPEN)
    assert calls == [5]
    assert {w.finish_reason for w in together} == {"stop", "length"}


def test_positions_that_rows_share_are_left_to_generate(tokenizer: Any) -> None:
    """Where the longest row decides on the positions of all, a row would depend on the others."""
    for kind in ("dynamic", "longrope"):
        loaded = small_model("Llama", tokenizer)
        assert can_step(loaded)
        other = small_model("Llama", tokenizer)
        other.model.config.rope_parameters["rope_type"] = kind
        assert not can_step(other)


def test_a_model_whose_layers_leak_is_not_stepped_through(tokenizer: Any) -> None:
    import torch

    loaded = small_model("Qwen2", tokenizer)
    layer = loaded.model.model.layers[0]
    inner = layer.forward

    def forward(hidden: Any, *args: Any, **kwargs: Any) -> Any:
        before = torch.nn.functional.pad(hidden, (0, 0, 1, 0))[:, :-1]
        return inner(hidden + before, *args, **kwargs)

    layer.forward = forward
    assert not can_step(loaded)


def test_gemma_with_eyes_is_stepped_through(tokenizer: Any) -> None:
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    from divtok.models.load import LoadedModel

    torch.manual_seed(0)
    text = small_model("Gemma3Text", tokenizer).model.config.to_dict()
    sight = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    sight |= {"num_attention_heads": 1, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(
        text_config=text, vision_config=sight, mm_tokens_per_image=4, image_token_index=310
    )
    model = Gemma3ForConditionalGeneration(config).double().eval()
    loaded = LoadedModel("gemma", None, model, tokenizer, torch.device("cpu"), torch.float64)
    check_same(loaded, asks_of([20, 1, 35, 9, 50]), OPEN)


def test_a_fault_midway_leaves_the_model_as_it_was(tokenizer: Any) -> None:
    loaded = small_model("Qwen2", tokenizer, ends_often=False)
    usual = loaded.model.config._attn_implementation
    ask = Ask("k", (5, 6, 7), 60)
    (before,) = decode(loaded, [ask], GREEDY)
    poison = before.token_ids[3]
    embedding = loaded.model.get_input_embeddings().weight
    kept = embedding[poison].clone()
    embedding[poison] = float("nan")
    with pytest.raises(ModelError, match="not numbers"):
        decode(loaded, [ask], GREEDY)
    embedding[poison] = kept
    assert loaded.model.config._attn_implementation == usual
    assert decode(loaded, [ask], GREEDY) == [before]


@given(st.data())
def test_gaps_are_closed_by_the_last_rows(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    live = sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=count)))
    places = steps.closed_up(live)
    assert sorted(places) == live
    # A row stays where it is unless its place is gone.
    assert all(places[place] == place for place in live if place < len(live))


class FakeGraph:
    """A CUDA graph without a GPU: its replay does again what was recorded, in the same places."""

    broken = False
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def replay(self) -> None:
        self.again()


@contextmanager
def fake_recording(graph: FakeGraph, **_: Any) -> Any:
    yield
    if FakeGraph.broken:
        raise RuntimeError("operation not permitted when stream is capturing")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writers record their steps as on a GPU."""
    import torch

    monkeypatch.setattr(FakeGraph, "broken", False)
    monkeypatch.setattr(FakeGraph, "made", 0)
    for name, fake in (
        ("CUDAGraph", FakeGraph),
        ("graph", fake_recording),
        ("device", lambda device: nullcontext()),
        ("stream", lambda stream: nullcontext()),
        ("Stream", lambda device: None),
        ("current_stream", lambda device: None),
        ("get_sync_debug_mode", lambda: 0),
        ("set_sync_debug_mode", lambda mode: None),
    ):
        monkeypatch.setattr(torch.cuda, name, fake)
    record = steps.Recorded._record

    def with_replay(self: Any, tokens: Any) -> Any:
        graph = record(self, tokens)
        if graph is not None:
            graph.again = lambda: self._result.copy_(self._step(self._tokens))
        return graph

    def recording(writer: Any, loaded: Any) -> None:
        usual(writer, loaded)
        if loaded.model not in steps.unrecordable:
            writer._recorded = steps.Recorded(writer._next, loaded.model, loaded.device)

    usual = steps.Writer.__init__
    monkeypatch.setattr(steps.Recorded, "_record", with_replay)
    monkeypatch.setattr(steps.Writer, "__init__", recording)
    monkeypatch.setattr(
        steps.Writer, "should_close_up", lambda writer, live: 2 * live <= writer._rows.count
    )


LONG = [300, 4, 150, 90, 210, 300]


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", ["Qwen2", "Gemma3Text"])
def test_recorded_steps_write_the_same(name: str, tokenizer: Any) -> None:
    loaded = small_model(name, tokenizer)
    asks = asks_of(LONG, seed=4)
    assert can_step(loaded)
    FakeGraph.made = 0
    assert decode(loaded, asks, OPEN) == plain(loaded, asks, OPEN)
    assert 1 < FakeGraph.made < 12, "anew after growing and closing up, and not at every step"


@pytest.mark.usefixtures("recorded")
def test_a_step_that_cannot_be_recorded_is_done_as_usual(tokenizer: Any) -> None:
    loaded = small_model("Qwen2", tokenizer)
    asks = asks_of(LONG, seed=4)
    expected = plain(loaded, asks, OPEN)
    FakeGraph.broken = True
    assert can_step(loaded)
    assert decode(loaded, asks, OPEN) == expected
    assert decode(loaded, asks, OPEN) == expected
    assert FakeGraph.made == 1, "tried once for this model"


@pytest.mark.usefixtures("recorded")
def test_a_step_that_waits_for_the_device_is_never_recorded(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    import torch

    modes: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    loaded = small_model("Qwen2", tokenizer)
    decoder = loaded.model.get_decoder()
    inner = decoder.forward

    def waits(**inputs: Any) -> Any:
        if modes and modes[-1] == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        return inner(**inputs)

    decoder.forward = waits
    asks = asks_of(LONG, seed=4)
    assert decode(loaded, asks, OPEN) == plain(loaded, asks, OPEN)
    assert FakeGraph.made == 0
    assert modes[-1] == 0


@pytest.mark.usefixtures("recorded")
def test_an_ended_row_may_break_without_harm(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    """Carried along after its end, a row may overflow; the others must not feel it."""
    loaded = small_model("Qwen2", tokenizer)
    asks = asks_of([2, 40, 40, 40, 40], seed=6)
    expected = decode(loaded, asks, OPEN)
    assert len(expected[0].token_ids) == 2
    usual = steps.Writer.read

    def broken(writer: Any, tokens: Any) -> Any:
        assert (tokens >= 0).all()
        logits = usual(writer, tokens).clone()
        if len(logits) == len(asks):
            ended = writer._rows._growth == 0
            logits[ended] = float("nan")
        return logits

    monkeypatch.setattr(steps.Writer, "read", broken)
    assert decode(loaded, asks, OPEN) == expected


def test_who_is_not_stepped_through_is_told(
    tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = small_model("Lfm2", tokenizer)
    assert not can_step(loaded)
    assert not can_step(loaded)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Lfm2: written by transformers.generate, since it cannot be read token")


def test_learned_positions_are_enough_for_every_row_in_generate_too(tokenizer: Any) -> None:
    """Carried along by `generate`, an ended row would need positions that were never learned."""
    import torch
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    from divtok.models.load import LoadedModel

    torch.manual_seed(0)
    config = GPTNeoConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=40,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        eos_token_id=2,
    )
    model = GPTNeoForCausalLM(config).double().eval()
    loaded = LoadedModel("neo", None, model, tokenizer, torch.device("cpu"), torch.float64)
    assert not can_step(loaded)
    asks = [Ask("a", tuple(range(3, 38)), 5), Ask("b", (3, 4), 38)]
    together = decode(loaded, asks, GREEDY)
    assert together == [decode(loaded, [ask], GREEDY)[0] for ask in asks]
    assert all(len(w.token_ids) == ask.limit for w, ask in zip(together, asks, strict=True))


@pytest.mark.parametrize("name", ["Qwen2", pytest.param("Gemma3Text", marks=pytest.mark.slow)])
def test_compiled_layers_write_the_same(name: str, tokenizer: Any) -> None:
    loaded, asks = small_model(name, tokenizer), asks_of([20, 4, 11], seed=8)
    expected = decode(loaded, asks, OPEN)
    steps.compile_steps(loaded)
    assert any(module._compiled_call_impl is not None for module in loaded.model.modules())
    assert decode(loaded, asks, OPEN) == expected


def test_layers_that_would_give_other_logits_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, asks = small_model("Qwen2", tokenizer), asks_of([20, 4, 11], seed=8)
    expected = decode(loaded, asks, OPEN)
    first = loaded.model.model.layers[0].mlp.down_proj.weight

    def spoil(decoder: Any, *, undo: bool = False) -> None:
        first.data.mul_(0.5 if undo else 2.0)

    monkeypatch.setattr(steps, "compile_layers", spoil)
    steps.compile_steps(loaded)
    assert "its layers are not compiled" in capsys.readouterr().err
    assert decode(loaded, asks, OPEN) == expected
