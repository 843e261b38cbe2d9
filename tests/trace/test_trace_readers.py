"""Loading a model for tracing: the parts add up, and what cannot be trusted is refused."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trace_samples import SavedPair, byte_level_tokenizer, tiny_model

from divtok.errors import ModelError, UsageError
from divtok.models.load import LoadedModel, load_model, load_tokenizer
from divtok.packed.packs import build_pack
from divtok.trace.kernels.common import head_logits
from divtok.trace.reader import load_reader, make_reader


def edit_json(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(content))


@pytest.fixture
def model_dir(saved_pair: SavedPair, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_pair.p_dir, tmp_path / "model"))


def as_loaded(model: Any, tokenizer: Any) -> LoadedModel:
    return LoadedModel("m", None, model, tokenizer, torch.device("cpu"), torch.float32)


def test_trunk_and_head_give_the_models_logits(any_saved_pair: SavedPair) -> None:
    reader = load_reader(str(any_saved_pair.p_dir), device="cpu")
    ids = any_saved_pair.ids(31)
    pack = build_pack([ids[:4]], [[*ids[4:], 0]])
    with torch.no_grad():
        logits = head_logits(reader.head, reader.trunk(pack))
        expected = any_saved_pair.p(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert reader.name == str(any_saved_pair.p_dir)
    assert reader.dtype == torch.float32
    assert reader.context_length == 64


def test_head_settings_are_read_from_the_config(tokenizer: Any) -> None:
    gemma2 = make_reader(as_loaded(tiny_model("gemma2", 320), tokenizer))
    cohere = make_reader(as_loaded(tiny_model("cohere", 320), tokenizer))
    granite = make_reader(as_loaded(tiny_model("granite", 320), tokenizer))
    assert (gemma2.head.softcap, gemma2.head.scale) == (3.0, 1.0)
    assert (cohere.head.softcap, cohere.head.scale) == (None, 0.25)
    assert granite.head.scale == pytest.approx(1 / 3)


def test_model_whose_logits_are_changed_behind_the_head_is_refused(tokenizer: Any) -> None:
    model = tiny_model("qwen2", 320)
    inner = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = inner(*args, **kwargs)
        output.logits = output.logits * 1.01
        return output

    model.forward = forward
    with pytest.raises(ModelError, match="does not give its own logits"):
        make_reader(as_loaded(model, tokenizer))


def test_model_that_reads_ahead_is_refused(tokenizer: Any) -> None:
    model = tiny_model("qwen2", 320)
    layers = model.model.layers
    inner = layers[0].forward

    def forward(hidden: Any, *args: Any, **kwargs: Any) -> Any:
        return inner(hidden + hidden.mean(dim=1, keepdim=True), *args, **kwargs)

    layers[0].forward = forward
    with pytest.raises(ModelError, match="reads ahead"):
        make_reader(as_loaded(model, tokenizer))


def test_model_with_nan_weights_still_loads(tokenizer: Any) -> None:
    # Its rows will say nonfinite, with the position; refusing it here would hide which.
    model = tiny_model("qwen2", 320)
    with torch.no_grad():
        model.lm_head.weight[7] = float("nan")
    assert make_reader(as_loaded(model, tokenizer)).head.width == 320


def test_half_precision_passes_its_check(saved_pair: SavedPair, tokenizer: Any) -> None:
    for dtype in ("bfloat16", "float16"):
        reader = load_reader(str(saved_pair.p_dir), device="cpu", dtype=dtype)
        assert reader.dtype == getattr(torch, dtype)
        assert reader.head.weight.dtype == reader.dtype
    softcapped = tiny_model("gemma2", 320).bfloat16()
    make_reader(replace(as_loaded(softcapped, tokenizer), dtype=torch.bfloat16))


def test_auto_dtype_is_float32_on_the_cpu_even_for_a_half_precision_checkpoint(
    saved_pair: SavedPair, tmp_path: Path
) -> None:
    copy.deepcopy(saved_pair.p).to(torch.bfloat16).save_pretrained(tmp_path)
    saved_pair.tokenizer.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert load_model(str(tmp_path), device="cpu").dtype == torch.float32


def test_end_ids_come_from_generation_config_model_and_tokenizer(model_dir: Path) -> None:
    edit_json(model_dir / "generation_config.json", eos_token_id=[1, 5])
    edit_json(model_dir / "config.json", eos_token_id=4)
    assert load_reader(str(model_dir), device="cpu").end_ids == {1, 4, 5}


def test_pickle_weights_are_refused(model_dir: Path, saved_pair: SavedPair) -> None:
    (model_dir / "model.safetensors").unlink()
    torch.save(saved_pair.p.state_dict(), model_dir / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        load_reader(str(model_dir), device="cpu")


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_that_travels_with_a_model_is_refused(model_dir: Path, file: str) -> None:
    (model_dir / "own.py").write_text("raise SystemExit('this code was run')")
    auto_map = {"AutoModelForCausalLM": "own.Model", "AutoTokenizer": ["own.Tok", "own.Tok"]}
    edit_json(model_dir / file, auto_map=auto_map)
    with pytest.raises(ModelError, match="own code"):
        load_reader(str(model_dir), device="cpu")


def test_missing_weights_are_refused_not_filled_in(model_dir: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(model_dir / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, model_dir / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"incomplete: 1 of its weights.*layers\.1\.mlp\.up_proj"):
        load_reader(str(model_dir), device="cpu")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: (d / "config.json").unlink(),
        lambda d: (d / "config.json").write_text("{"),
        lambda d: edit_json(d / "config.json", model_type="no-such-architecture"),
        lambda d: edit_json(d / "config.json", hidden_size="wide"),
        lambda d: edit_json(d / "config.json", vocab_size=17),
        lambda d: (d / "model.safetensors").write_bytes(b"\x00" * 20),
        lambda d: (d / "model.safetensors").unlink(),
        lambda d: (d / "tokenizer.json").write_text("{"),
    ],
)
def test_a_broken_folder_is_one_clear_line(model_dir: Path, damage: Any) -> None:
    damage(model_dir)
    with pytest.raises(ModelError) as caught:
        load_reader(str(model_dir), device="cpu")
    assert "\n" not in str(caught.value)
    assert str(model_dir) in caught.value.what
    assert caught.value.next_step


@pytest.mark.parametrize("ref", ["/no/such/folder", "./nowhere", "a/b/c", "", "../x"])
def test_a_missing_folder_is_named(ref: str) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        load_reader(ref, device="cpu")


@pytest.mark.usefixtures("offline")
def test_a_hub_id_that_cannot_be_fetched_is_one_clear_line() -> None:
    for load in (load_tokenizer, load_model):
        with pytest.raises(ModelError, match="'nobody/nothing' cannot be read") as caught:
            load("nobody/nothing")
        assert "\n" not in str(caught.value)
        assert "HF_TOKEN" in str(caught.value)


def test_remote_code_from_the_hub_needs_a_pinned_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.auto import tokenization_auto

    def settings(*_: Any, **__: Any) -> dict[str, Any]:
        return {"auto_map": {"AutoTokenizer": ["own.Tok", None]}}

    monkeypatch.setattr(tokenization_auto, "get_tokenizer_config", settings)
    for revision in (None, "main"):
        with pytest.raises(ModelError, match="no commit is pinned"):
            load_tokenizer("owner/name", revision=revision, trust_remote_code=True)


def test_wrong_dtype_and_device_are_usage_errors(saved_pair: SavedPair) -> None:
    with pytest.raises(UsageError, match="bfloat16"):
        load_reader(str(saved_pair.p_dir), dtype="bfloat", device="cpu")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Unknown device"):
        load_reader(str(saved_pair.p_dir), device="toaster")
    with pytest.raises(UsageError, match="is not there"):
        load_reader(str(saved_pair.p_dir), device="cuda:99")


def test_an_unknown_packaged_model_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="no packaged model 'divtok/no-such-size'"):
        load_reader("divtok/no-such-size", device="cpu")


def test_load_tokenizer_round_trips(saved_pair: SavedPair) -> None:
    loaded = load_tokenizer(str(saved_pair.p_dir))
    assert loaded.get_vocab() == byte_level_tokenizer().get_vocab()


def test_the_allowance_for_rounding_is_that_of_the_models_own_dtype(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some models hand out float32 logits whatever they compute in."""
    from divtok.packed import probe

    asked: list[Any] = []
    usual = probe.allowed_gap

    def allowed(dtype: Any, layers: int) -> float:
        asked.append(dtype)
        return usual(dtype, layers)

    monkeypatch.setattr(probe, "allowed_gap", allowed)
    model = tiny_model("qwen2", 320).bfloat16()
    inner = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = inner(*args, **kwargs)
        output.logits = output.logits.float()
        return output

    model.forward = forward
    assert make_reader(replace(as_loaded(model, tokenizer), dtype=torch.bfloat16)).packed
    assert asked == [torch.bfloat16]
