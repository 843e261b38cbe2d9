"""Rows that leave their batch: the same tokens as from `generate`, and no step for ended rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generate_samples import small_model
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import ModelError
from divtok.generate import decoding, steps
from divtok.generate.decoding import Ask, Written, decode
from divtok.records import Sampling

STEPPED = ["Qwen2", "Llama", "Gemma3Text"]
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
        patch.setattr(decoding, "takes_plain_inputs", lambda model: False)
        return decode(loaded, asks, sampling)


def check_same(loaded: Any, asks: list[Ask], sampling: Sampling) -> list[Written]:
    expected = plain(loaded, asks, sampling)
    with pytest.MonkeyPatch.context() as patch:
        refuse_generate(patch, loaded)
        assert decode(loaded, asks, sampling) == expected
    return expected


class Watched:
    """What a model is called with, in numbers of rows and columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loaded: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.masks: list[Any] = []
        self.positions: list[list[int]] = []
        self.cached: list[int] = []
        forward = loaded.model.forward

        def watch(**inputs: Any) -> Any:
            self.shapes.append(tuple(inputs["input_ids"].shape))
            self.masks.append(inputs["attention_mask"])
            self.positions.append(inputs["position_ids"][:, -1].tolist())
            output = forward(**inputs)
            self.cached.append(output.past_key_values.get_seq_length())
            return output

        # The watched model no longer shows what it takes.
        monkeypatch.setattr(decoding, "takes_plain_inputs", lambda model: True)
        monkeypatch.setattr(loaded.model, "forward", watch)


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
    loaded = small_model(name, tokenizer)
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
    # Samples that share a prompt share its reading, and a row's last token is not read.
    prompts = len({ask.prompt for ask in asks})
    assert watched.shapes[0] == (prompts, max(len(ask.prompt) for ask in asks))
    assert prompts < len(asks)
    lengths = [len(w.token_ids) for w in written]
    assert [rows for rows, _ in watched.shapes[1:]] == [
        sum(length > step for length in lengths) for step in range(1, max(lengths))
    ]
    assert {width for _, width in watched.shapes[1:]} == {1}


def test_padding_goes_with_the_rows_that_needed_it(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    loaded = small_model("Qwen2", tokenizer, ends_often=False)
    asks = [Ask("long", tuple(range(3, 33)), 4), Ask("short", (5, 6, 7), 30)]
    expected = plain(loaded, asks, GREEDY)
    watched = Watched(monkeypatch, loaded)
    written = decode(loaded, asks, GREEDY)
    assert written == expected
    assert [len(w.token_ids) for w in written] == [4, 30]
    # While both are there the short one is padded to 30; after, its own tokens are all there is.
    assert watched.cached == [30, 31, 32, 33, *range(3 + 4, 3 + 30)]
    assert [mask is not None for mask in watched.masks] == [True] * 4 + [False] * 26
    assert watched.positions[:5] == [[29, 2], [30, 3], [31, 4], [32, 5], [6]]


def test_windows_keep_their_padding(monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> None:
    loaded = small_model("Gemma3Text", tokenizer, ends_often=False)
    asks = [Ask("long", tuple(range(3, 33)), 4), Ask("short", (5, 6, 7), 30)]
    expected = plain(loaded, asks, GREEDY)
    watched = Watched(monkeypatch, loaded)
    assert decode(loaded, asks, GREEDY) == expected
    assert watched.cached == list(range(30, 30 + len(watched.cached)))


def test_each_row_may_use_its_own_context_to_the_end(tokenizer: Any) -> None:
    """A learned position beyond the context does not exist; carried along, a row would need it."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from divtok.models import LoadedModel

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


@pytest.mark.parametrize("name", ["Phi3", "Lfm2"])
def test_what_cannot_be_stepped_through_is_generated(
    name: str, monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    loaded = small_model(name, tokenizer)
    calls: list[int] = []
    generate = loaded.model.generate

    def counted(**inputs: Any) -> Any:
        calls.append(len(inputs["input_ids"]))
        return generate(**inputs)

    monkeypatch.setattr(loaded.model, "generate", counted)
    asks = asks_of([20, 1, 35, 9, 50])
    together = decode(loaded, asks, OPEN)
    assert calls == [5]
    assert together == plain(loaded, asks, OPEN)
    assert {w.finish_reason for w in together} == {"stop", "length"}


def test_which_models_take_plain_inputs(tokenizer: Any) -> None:
    from transformers import BloomConfig, BloomForCausalLM, MambaConfig, MambaForCausalLM
    from transformers import Qwen2ForCausalLM as Qwen2

    for name in STEPPED:
        assert steps.takes_plain_inputs(small_model(name, tokenizer).model)
    assert not steps.takes_plain_inputs(small_model("Phi3", tokenizer).model)
    small = {"vocab_size": 20, "hidden_size": 8}
    assert not steps.takes_plain_inputs(BloomForCausalLM(BloomConfig(n_head=2, n_layer=1, **small)))
    mamba = MambaConfig(num_hidden_layers=1, state_size=4, **small)
    assert not steps.takes_plain_inputs(MambaForCausalLM(mamba))

    class Foreign(Qwen2):
        """As if its code had come with the checkpoint."""

    assert not steps.takes_plain_inputs(Foreign(small_model("Qwen2", tokenizer).model.config))


def test_gemma_with_eyes_takes_plain_inputs(tokenizer: Any) -> None:
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    from divtok.models import LoadedModel

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
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    loaded = small_model("Qwen2", tokenizer, ends_often=False)
    usual = ALL_ATTENTION_FUNCTIONS["sdpa"]
    ask = Ask("k", (5, 6, 7), 60)
    (before,) = decode(loaded, [ask], GREEDY)
    poison = before.token_ids[3]
    embedding = loaded.model.get_input_embeddings().weight
    kept = embedding[poison].clone()
    embedding[poison] = float("nan")
    with pytest.raises(ModelError, match="not numbers"):
        decode(loaded, [ask], GREEDY)
    embedding[poison] = kept
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is usual
    assert decode(loaded, [ask], GREEDY) == [before]


@given(st.data())
def test_gaps_are_closed_by_the_last_rows(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    ended = sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=count)))
    places = steps._closed_up(count, ended)
    left = sorted(set(range(count)) - set(ended))
    assert sorted(places) == left
    # A row stays where it is unless its place is gone.
    assert all(places[place] == place for place in left if place < len(left))
