"""Loading models: every family that is used, on the device and in the number format asked for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divtok.errors import MissingExtraError, ModelError, UsageError
from divtok.models import load as models
from divtok.models.load import SPREADS, load_model, resolve_dtype

torch = pytest.importorskip("torch")

VOCABULARY = 64
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
GEMMA3 = TEXT | {"head_dim": 16, "sliding_window": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2": TEXT,
    "qwen3": TEXT | {"head_dim": 16},
    "llama": TEXT,
    "mistral": TEXT,
    "phi3": TEXT,
    "smollm3": TEXT,
    "gemma3_text": GEMMA3,
    "gemma3": {"text_config": GEMMA3, "vision_config": VISION, "mm_tokens_per_image": 4},
}


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers import models as token_models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{index}": index for index in range(VOCABULARY)}
    backend = Tokenizer(token_models.WordLevel(words, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="w3").save_pretrained(folder)


def save_model(folder: Path, family: str = "qwen2", dtype: str = "float32") -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **FAMILIES[family])
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype)).eval()
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(input_ids=torch.arange(20)[None]).logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> str:
    place = tmp_path_factory.mktemp("model")
    save_model(place)
    return str(place)


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were one: enough to ask what would be done with it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loads_as_it_was_saved(tmp_path: Path, family: str) -> None:
    saved = save_model(tmp_path, family)
    loaded = load_model(str(tmp_path), device="cpu")
    torch.testing.assert_close(logits(loaded.model), logits(saved), rtol=0, atol=0)
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.end_ids >= {3}
    assert loaded.tokenizer_width == VOCABULARY


@pytest.mark.parametrize("device_map", [*SPREADS, "cpu"])
def test_a_model_can_be_spread_over_what_there_is(folder: str, device_map: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("says what happens without a GPU")
    whole = load_model(folder, device="cpu")
    spread = load_model(folder, device_map=device_map)
    assert spread.device == torch.device("cpu")
    assert spread.dtype == torch.float32
    assert torch.equal(logits(spread.model), logits(whole.model))


def test_a_model_that_would_go_to_the_disk_is_refused(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.integrations import accelerate

    monkeypatch.setattr(accelerate, "get_max_memory", lambda _=None: {"cpu": 20_000})
    with pytest.raises(ModelError, match=r"does not fit: a part of it would be kept on .*disk"):
        load_model(folder, device_map="sequential")


def test_a_spread_model_is_not_moved_and_takes_its_inputs_at_the_embedding(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = models.auto_class

    def dispatched(config: Any) -> Any:
        def from_pretrained(*args: Any, device_map: str, **kwargs: Any) -> Any:
            assert device_map == "balanced"
            model, report = real(config).from_pretrained(*args, **kwargs)
            model.hf_device_map = {"model.embed_tokens": 0, "model.layers": 1}
            model.get_input_embeddings().to("meta")  # any device that is not the others'
            model.to = None  # accelerate lets nobody move such a model
            return model, report

        return SimpleNamespace(from_pretrained=from_pretrained)

    monkeypatch.setattr(models, "auto_class", dispatched)
    loaded = load_model(folder, device_map="balanced")
    assert loaded.device == torch.device("meta")
    assert not loaded.model.training


def test_device_and_device_map_exclude_each_other(folder: str) -> None:
    for use in (load_model, resolve_dtype):
        with pytest.raises(UsageError, match="Both device 'cpu' and device_map 'auto'"):
            use(folder, device="cpu", device_map="auto")


@pytest.mark.parametrize(
    ("device_map", "named"),
    [
        ("autos", "Unknown device 'autos'.*auto, balanced, balanced_low_0, sequential"),
        ("disk", "Unknown device 'disk'"),
        ("cuda:99", "'cuda:99' is not there"),
    ],
)
def test_an_unknown_device_map_is_a_usage_error(folder: str, device_map: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        load_model(folder, device_map=device_map)


def test_spreading_without_accelerate_names_the_extra(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "accelerate" else find_spec(name)
    )
    with pytest.raises(MissingExtraError, match=r"'accelerate'.*divtok\[models\]"):
        load_model(folder, device_map="auto")
    assert load_model(folder, device_map="cpu").device == torch.device("cpu")


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
def test_auto_stands_for_what_is_loaded_on_the_cpu(tmp_path: Path, stored: str) -> None:
    save_model(tmp_path, dtype=stored)
    for dtype in ("auto", "float32", "bfloat16", "float16"):
        name = resolve_dtype(str(tmp_path), dtype, device="cpu")
        assert load_model(str(tmp_path), dtype=dtype, device="cpu").dtype == getattr(torch, name)
        assert name == ("float32" if dtype == "auto" else dtype)


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
@pytest.mark.parametrize(
    ("stored", "run"), [("float32", "float32"), ("float16", "bfloat16"), ("bfloat16", "bfloat16")]
)
def test_auto_on_a_gpu_follows_the_checkpoint(
    tmp_path: Path, family: str, stored: str, run: str
) -> None:
    save_model(tmp_path, family, dtype=stored)
    (tmp_path / "model.safetensors").unlink()  # no weights are asked for
    for place in ({}, {"device": "cuda"}, {"device": "cuda:0"}, {"device_map": "auto"}):
        assert resolve_dtype(str(tmp_path), **place) == run
    assert resolve_dtype(str(tmp_path), device="cpu") == "float32"
    assert resolve_dtype(str(tmp_path), "float16", device="cuda") == "float16"


def test_an_unknown_dtype_is_a_usage_error(folder: str) -> None:
    for use in (load_model, resolve_dtype):
        with pytest.raises(UsageError, match="bfloat16"):
            use(folder, dtype="bfloat")  # type: ignore[arg-type]


@pytest.mark.usefixtures("a_gpu")
def test_packaged_models_run_in_float32_on_a_gpu_too() -> None:
    """They are stored in half precision to be small; a GPU gives the tables that a CPU gives."""
    assert resolve_dtype("divtok/tiny-0.5m", device="cuda") == "float32"
    assert resolve_dtype("divtok/tiny-0.5m", "bfloat16", device="cuda") == "bfloat16"
