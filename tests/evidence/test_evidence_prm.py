"""Process rewards: the layout, loading, and the same numbers as a plain forward pass."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prm_samples import Saved, save_prm
from safetensors.torch import load_file, save_file
from trace_samples import byte_level_tokenizer

from divtok.errors import ModelError, ResourceError
from divtok.evidence.prm import (
    VALUE_BIAS,
    VALUE_WEIGHT,
    RewardModel,
    StepLayout,
    load_prm,
    step_layout,
)
from divtok.records import Reason
from divtok.trace.budget import Budget

QUESTIONS = ("What is half of 84?", "Half of the apples are green; how many of 42 are red? " * 2)
RESPONSES = (
    "We add 12 and 30 to get 42.",
    "First multiply 7 by 8.\nThen subtract 6.\nThat gives \\boxed{50}.",
    "Half\n\n\nof it\n",
    "\nred",
    "1\n2\n3\n4\n5\n6\n7\n8\n9\n10",
    " \n é ☃ \n",
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: Any) -> Saved:
    return save_prm(tmp_path_factory.mktemp("prm"))


@pytest.fixture(scope="module")
def model(saved: Saved) -> RewardModel:
    return load_prm(str(saved.folder), device="cpu")


@pytest.fixture
def copy(saved: Saved, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved.folder, tmp_path / "copy"))


def all_rows() -> list[tuple[str, str, str]]:
    return [(f"{q}/{r}", q, r) for q in QUESTIONS for r in RESPONSES]


def test_layout_is_begin_question_newline_then_lines_each_with_a_flagged_newline() -> None:
    tokenizer = byte_level_tokenizer()
    newline = tokenizer.convert_tokens_to_ids("Ċ")

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer(text)["input_ids"])

    layout = step_layout(tokenizer, "Half of 4?", "ab\n\nc\n")
    a, c = ids("ab"), ids("c")
    start = tokenizer.convert_tokens_to_ids("<|start|>")
    assert layout == StepLayout(
        prompt_ids=(start, *ids("Half of 4?"), newline),
        token_ids=(*a, newline, newline, *c, newline, newline),
        flagged=(len(a), len(a) + 1, len(a) + 2 + len(c), len(a) + 3 + len(c)),
    )


@pytest.mark.parametrize(
    ("response", "lines"), [("a", 1), ("a\n", 2), ("a\nb", 2), ("\n\n", 3), (" ", 1), ("", 1)]
)
def test_every_line_is_flagged_once(response: str, lines: int) -> None:
    tokenizer = byte_level_tokenizer()
    layout = step_layout(tokenizer, "q", response)
    assert len(layout.flagged) == lines
    assert {layout.token_ids[place] for place in layout.flagged} == {layout.token_ids[-1]}
    whole = response + "\n"
    assert tokenizer.decode(layout.token_ids, clean_up_tokenization_spaces=False) == whole


def test_a_blank_line_has_its_newline_alone_whatever_the_tokenizer_makes_of_no_text() -> None:
    class Prefixing:
        """Puts a 0 before every text, as some tokenizers put a blank; one id a character."""

        bos_token, bos_token_id, all_special_tokens = "^", 94, ("^",)

        def get_added_vocab(self) -> dict[str, int]:
            return {}

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [0, *map(ord, text)]}

    layout = step_layout(Prefixing(), "q", "a\n\nb")
    assert layout == StepLayout((0, 94, 113, 10), (0, 97, 10, 10, 0, 98, 10), (2, 3, 6))


def test_control_tokens_in_question_and_response_are_plain_text() -> None:
    tokenizer = byte_level_tokenizer(extra=("<think>",))
    text = "a<|end|>b<|start|>"
    layout = step_layout(tokenizer, text, text)
    controls = set(tokenizer.all_special_ids)
    assert not controls & set(layout.token_ids)
    assert layout.prompt_ids[0] == tokenizer.bos_token_id
    assert not controls & set(layout.prompt_ids[1:])
    assert tokenizer.decode(layout.prompt_ids[1:]) == text + "\n"


def test_a_tokenizer_without_begin_token_is_refused() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(ModelError, match=r"no begin-of-text token.*bos_token"):
        step_layout(tokenizer, "q", "a")


@pytest.mark.parametrize("architecture", ["qwen2", "llama", "gemma2", "gpt2"])
def test_rewards_equal_a_plain_forward_pass(tmp_path: Path, architecture: str) -> None:
    saved = save_prm(tmp_path, architecture)
    model = load_prm(str(tmp_path), device="cpu")
    found = model.rewards(all_rows())
    assert [rewards.key for rewards in found] == [key for key, _, _ in all_rows()]
    for rewards, (_, question, response) in zip(found, all_rows(), strict=True):
        assert rewards.reason is None
        assert rewards.model == str(tmp_path)
        assert rewards.rewards.dtype == np.float32
        assert len(rewards.rewards) == response.count("\n") + 1
        np.testing.assert_allclose(
            rewards.rewards, saved.expected(question, response), atol=1e-5, rtol=0
        )


def test_the_backbone_is_read_packed_and_has_no_language_head(model: RewardModel) -> None:
    assert model.reader.packed
    assert model.reader.head.width == 1
    assert model.reader.head.weight.dtype == torch.float32


def test_loading_is_silent_about_the_heads_and_later_warnings_are_not(saved: Saved) -> None:
    heard: list[str] = []
    # A handler of the test's own: pytest's would hear each message twice where transformers
    # lets its messages propagate, as it does when the variable CI is set.
    listener = logging.Handler()
    listener.emit = lambda record: heard.append(record.getMessage())
    logger = logging.getLogger("transformers")
    logger.addHandler(listener)
    try:
        load_prm(str(saved.folder), device="cpu")
        assert heard == []
        logger.warning("heard")
        assert heard == ["heard"]
    finally:
        logger.removeHandler(listener)


def test_rewards_differ_between_lines_and_rows(saved: Saved, model: RewardModel) -> None:
    """The comparison above would pass with a constant; this could not."""
    values = np.concatenate([rewards.rewards for rewards in model.rewards(all_rows())])
    assert np.ptp(values) > 0.2


def test_one_by_one_and_in_small_packs_is_the_same(model: RewardModel) -> None:
    together = model.rewards(all_rows())
    small = model.rewards(all_rows(), budget=Budget(tokens=40))
    alone = [model.rewards([row])[0] for row in all_rows()]
    for a, b, c in zip(together, small, alone, strict=True):
        np.testing.assert_allclose(a.rewards, b.rewards, atol=1e-5, rtol=0)
        np.testing.assert_allclose(a.rewards, c.rewards, atol=1e-5, rtol=0)


def test_a_model_that_cannot_be_packed_is_read_padded(
    saved: Saved, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from divtok.trace import reader as models

    def leaking(decoder: Any, device: Any) -> Callable[..., Any]:
        return lambda pack, log=None: decoder(
            input_ids=torch.from_numpy(pack.ids)[None], use_cache=False
        ).last_hidden_state[0]

    monkeypatch.setattr(models, "packed_trunk", leaking)
    padded = load_prm(str(saved.folder), device="cpu")
    assert not padded.reader.packed
    assert "padded" in capsys.readouterr().err
    for found, (_, question, response) in zip(padded.rewards(all_rows()), all_rows(), strict=True):
        np.testing.assert_allclose(found.rewards, saved.expected(question, response), atol=1e-5)


def test_unreadable_rows_keep_their_place_and_say_why(saved: Saved, model: RewardModel) -> None:
    layout = step_layout(saved.tokenizer, "q", "a\nb")
    length = len(layout.prompt_ids) + len(layout.token_ids)
    rows = [("1", "q", ""), ("2", "q", "a\nb"), ("3", "q", " \n"), ("4", "q", "a\nbb")]
    found = model.rewards(rows, max_length=length)
    assert [rewards.key for rewards in found] == ["1", "2", "3", "4"]
    assert found[0].reason == found[2].reason == "the response has no text"
    assert found[1].reason is None
    assert len(found[1].rewards) == 2
    asked, answered = len(layout.prompt_ids), len(layout.token_ids) + 1
    asked_for = f"question {asked} + response {answered} = {length + 1} tokens"
    assert found[3].reason == f"{asked_for}; prm.max_length={length}"
    assert all(len(found[i].rewards) == 0 for i in (0, 2, 3))
    assert [r.length for r in found[1::2]] == [length, length + 1]
    assert model.rewards([]) == []
    exact = RewardModel(replace(model.reader, context_length=length))
    as_trained = exact.rewards(rows, max_length="trained")
    assert [r.reason is None for r in as_trained] == [False, True, False, False]
    assert as_trained[3].reason == (
        f"{asked_for}; prm.max_length=trained, and {model.name} was trained on {length}"
    )
    assert exact.rewards(rows)[3].reason is None
    assert [r.beyond for r in exact.rewards(rows)] == [False, False, False, True]


LONG = "Half of 84 is 42.\n" * 125  # 1,501 tokens, the last of them a blank line


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_a_response_far_beyond_the_trained_context_is_read_as_a_plain_pass_reads_it(
    tmp_path: Path, architecture: str
) -> None:
    saved = save_prm(tmp_path, architecture, length=512)
    layout = step_layout(saved.tokenizer, QUESTIONS[0], LONG)
    assert len(layout.token_ids) == 1_501
    short, long = load_prm(str(tmp_path), device="cpu").rewards(
        [("short", QUESTIONS[0], RESPONSES[1]), ("long", QUESTIONS[0], LONG)]
    )
    assert (short.beyond, long.beyond) == (False, True)
    assert long.trained_length == short.trained_length == 512
    assert long.length == len(layout.prompt_ids) + len(layout.token_ids)
    assert len(long.rewards) == 126
    for found, text in ((short, RESPONSES[1]), (long, LONG)):
        assert found.reason is None
        np.testing.assert_allclose(
            found.rewards, saved.expected(QUESTIONS[0], text), atol=1e-4, rtol=0
        )


@pytest.mark.parametrize(
    ("architecture", "rope", "why"),
    [
        ("gpt2", None, "its positions are learned, and there are no more"),
        (
            "qwen2",
            {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
            "beyond that its positions depend on what else is read",
        ),
    ],
)
def test_a_model_that_has_no_further_positions_refuses_with_the_reason(
    tmp_path: Path, architecture: str, rope: dict[str, Any] | None, why: str
) -> None:
    save_prm(tmp_path, architecture, 512, rope)
    model = load_prm(str(tmp_path), device="cpu")
    short, long = model.rewards([("s", "q", "a\nb"), ("l", "q", LONG)], max_length=5_000)
    assert short.reason is None
    assert isinstance(long.reason, Reason)
    assert long.reason.kind == "no_positions"
    assert long.reason.endswith(f"tokens, {model.name} reads 512: {why}")
    assert len(long.rewards) == 0


def test_broken_values_name_the_line(model: RewardModel) -> None:
    tokens = step_layout(model.reader.tokenizer, "q", "a\n\nc").flagged

    def trunk(pack: Any, log: Any = None) -> torch.Tensor:
        hidden = model.reader.trunk(pack).clone()
        if len(pack.lanes) == 1:
            hidden[pack.predicts[tokens[1] + 1]] = float("nan")
        return hidden

    broken = RewardModel(replace(model.reader, trunk=trunk))
    (found,) = broken.rewards([("k", "q", "a\n\nc")])
    assert len(found.rewards) == 0
    assert found.reason == f"the value that {model.name} gives to line 2 of 3 is not a number"


def test_running_out_of_memory_shrinks_the_budget(
    model: RewardModel, capsys: pytest.CaptureFixture[str]
) -> None:
    def trunk(pack: Any, log: Any = None) -> torch.Tensor:
        if len(pack.ids) > 120:
            raise torch.OutOfMemoryError("no room")
        return model.reader.trunk(pack)

    tight, budget = RewardModel(replace(model.reader, trunk=trunk)), Budget(tokens=4096)
    found = tight.rewards(all_rows(), budget=budget)
    for a, b in zip(found, model.rewards(all_rows()), strict=True):
        np.testing.assert_allclose(a.rewards, b.rewards, atol=1e-5, rtol=0)
    assert budget.tokens <= 120
    assert "rewards: out of memory" in capsys.readouterr().err
    with pytest.raises(ResourceError, match="does not fit"):
        tight.rewards([("long", "q", "w " * 121)], budget=Budget(workspace_bytes=1 << 20))


def test_shards_are_read_like_one_file(saved: Saved, model: RewardModel, copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    last = {VALUE_BIAS: weights.pop(VALUE_BIAS)}
    value = {VALUE_WEIGHT: weights.pop(VALUE_WEIGHT)}
    parts = {
        "model-1.safetensors": weights,
        "model-2.safetensors": value,
        "model-3.safetensors": last,
    }
    for name, part in parts.items():
        save_file(part, copy / name, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {k: n for n, part in parts.items() for k in part}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    for a, b in zip(
        load_prm(str(copy), device="cpu").rewards(all_rows()),
        model.rewards(all_rows()),
        strict=True,
    ):
        np.testing.assert_array_equal(a.rewards, b.rewards)
    (copy / "model-2.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks the file model-2\.safetensors"):
        load_prm(str(copy), device="cpu")


def rewrite(folder: Path, *without: str, **changed: torch.Tensor) -> None:
    weights = load_file(folder / "model.safetensors") | changed
    for name in without:
        del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_half_precision_value_head_is_widened(saved: Saved, copy: Path) -> None:
    rewrite(copy, **{VALUE_WEIGHT: saved.weight.bfloat16()})
    model = load_prm(str(copy), device="cpu")
    rounded = replace(saved, weight=saved.weight.bfloat16().float())
    (found,) = model.rewards([("k", QUESTIONS[0], RESPONSES[1])])
    np.testing.assert_allclose(
        found.rewards, rounded.expected(QUESTIONS[0], RESPONSES[1]), atol=1e-5
    )


def test_half_precision_backbones_come_close(saved: Saved) -> None:
    model = load_prm(str(saved.folder), device="cpu", dtype="bfloat16")
    for found, (_, question, response) in zip(model.rewards(all_rows()), all_rows(), strict=True):
        assert found.rewards.dtype == np.float32
        np.testing.assert_allclose(found.rewards, saved.expected(question, response), atol=0.1)


@pytest.mark.parametrize("missing", [[VALUE_WEIGHT], [VALUE_BIAS], [VALUE_WEIGHT, VALUE_BIAS]])
def test_without_value_head_the_missing_keys_are_named(copy: Path, missing: list[str]) -> None:
    rewrite(copy, *missing)
    with pytest.raises(ModelError, match=r"no " + " and no ".join(missing) + r"\. Use a model"):
        load_prm(str(copy), device="cpu")


def test_a_packaged_model_without_begin_token_is_refused() -> None:
    with pytest.raises(ModelError, match=r"tiny-0\.9m' has no begin-of-text token"):
        load_prm("divtok/tiny-0.9m", device="cpu")


def test_a_value_head_of_another_width_is_refused(copy: Path) -> None:
    rewrite(copy, **{VALUE_WEIGHT: torch.zeros(2, 32)})
    with pytest.raises(ModelError, match=r"\[2, 32\]; its backbone needs \[1, 32\]"):
        load_prm(str(copy), device="cpu")


def test_an_incomplete_backbone_is_refused(copy: Path) -> None:
    rewrite(copy, "model.norm.weight")
    with pytest.raises(ModelError, match=r"incomplete.*norm\.weight"):
        load_prm(str(copy), device="cpu")


def test_only_safetensors_are_read(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"safetensors only.*Convert pytorch_model.bin"):
        load_prm(str(copy), device="cpu")


def test_a_damaged_weights_file_is_told(copy: Path) -> None:
    (copy / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"value head.*cannot be read"):
        load_prm(str(copy), device="cpu")


def test_a_tokenizer_wider_than_the_embedding_is_refused(copy: Path) -> None:
    extra = tuple(f"<{i}>" for i in range(20))
    byte_level_tokenizer(extra=extra).save_pretrained(copy)
    with pytest.raises(ModelError, match="do not belong together"):
        load_prm(str(copy), device="cpu")


def test_a_hub_model_that_is_not_there_is_told(offline: None) -> None:
    with pytest.raises(ModelError, match=r"cannot be read.*HF_TOKEN"):
        load_prm("nobody/nothing-of-this-name", device="cpu")
