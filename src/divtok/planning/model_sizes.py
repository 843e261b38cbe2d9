"""What is known of a model before it is here: parameters, layers, and the size of its download.

Hub models of the families are listed, with the counts of their published checkpoints; a model on
this machine is measured by its own files. Loads no weights, needs no model library (unlike
`model_shapes`, which knows more) and asks no network.
"""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from divtok.errors import ModelError
from divtok.models.packaged import resolve_model

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_HALF = DTYPE_BYTES["bfloat16"]
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Sizes of one model. `active` are the weights that one token goes through.

    These are all but the embedding and unchosen experts. The output layer is among them, which
    `ModelShape` counts apart: there its operations are shown on their own. `kv_width` is heads
    times head width of the keys that are kept. Of the layers, `windowed` keep at most `window`
    tokens.
    """

    parameters: int
    active: int
    layers: int
    kv_width: int
    windowed: int = 0
    window: int = 0
    stored: int | None = None  # numbers in the checkpoint, where it holds some of them twice

    @property
    def weight_bytes(self) -> int:
        """In bfloat16, as it runs on a GPU."""
        return _HALF * self.parameters

    @property
    def download_bytes(self) -> int:
        return _HALF * (self.stored or self.parameters)

    def cache_bytes(self, tokens: float) -> float:
        """Keys and values of one row of so many tokens, in bfloat16."""
        held = (self.layers - self.windowed) * tokens + self.windowed * min(tokens, self.window)
        return 2 * _HALF * self.kv_width * held


_QWEN25_7B = ModelSize(7_615_616_512, 7_070_619_136, 28, 512)
_QWEN25_14B = ModelSize(14_770_033_664, 13_991_465_984, 48, 1024)
_QWEN25_32B = ModelSize(32_763_876_352, 31_985_308_672, 64, 1024)
_QWEN3_8B = ModelSize(8_190_735_360, 7_568_405_504, 36, 1024)
_QWEN3_14B = ModelSize(14_768_307_200, 13_990_394_880, 40, 1024)
_GEMMA3_12B = ModelSize(12_187_325_040, 11_766_034_176, 48, 2048, windowed=40, window=1024)
_GEMMA3_27B = ModelSize(27_432_406_640, 27_009_346_304, 62, 2048, windowed=52, window=1024)

HUB_MODELS: Mapping[str, ModelSize] = {
    "Qwen/Qwen2.5-0.5B-Instruct": ModelSize(494_032_768, 494_032_768, 24, 128),
    "Qwen/Qwen2.5-1.5B-Instruct": ModelSize(1_543_714_304, 1_543_714_304, 28, 256),
    "Qwen/Qwen2.5-3B-Instruct": ModelSize(3_085_938_688, 3_085_938_688, 36, 256),
    "Qwen/Qwen2.5-7B-Instruct": _QWEN25_7B,
    "Qwen/Qwen2.5-7B": _QWEN25_7B,
    "Qwen/Qwen2.5-14B-Instruct": _QWEN25_14B,
    "Qwen/Qwen2.5-14B": _QWEN25_14B,
    "Qwen/Qwen2.5-32B-Instruct": _QWEN25_32B,
    "Qwen/Qwen2.5-32B": _QWEN25_32B,
    # The checkpoint also holds the output layer, which is the embedding once more.
    "Qwen/Qwen3-1.7B": ModelSize(1_720_574_976, 1_720_574_976, 28, 1024, stored=2_031_739_904),
    "Qwen/Qwen3-4B-Instruct-2507": ModelSize(4_022_468_096, 4_022_468_096, 36, 1024),
    "Qwen/Qwen3-8B": _QWEN3_8B,
    "Qwen/Qwen3-8B-Base": _QWEN3_8B,
    "Qwen/Qwen3-14B": _QWEN3_14B,
    "Qwen/Qwen3-14B-Base": _QWEN3_14B,
    "Qwen/Qwen3-32B": ModelSize(32_762_123_264, 31_984_210_944, 64, 1024),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": ModelSize(30_532_122_624, 3_041_867_776, 48, 512),
    "google/gemma-3-4b-it": ModelSize(
        4_300_079_472, 3_880_263_168, 34, 1024, windowed=29, window=1024
    ),
    "google/gemma-3-12b-it": _GEMMA3_12B,
    "google/gemma-3-12b-pt": _GEMMA3_12B,
    "google/gemma-3-27b-it": _GEMMA3_27B,
    "google/gemma-3-27b-pt": _GEMMA3_27B,
    # Qwen2.5-Math-7B with a value head of one output; only its trunk runs.
    "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B": ModelSize(7_615_620_097, 6_525_621_760, 28, 512),
}
# Behind an API: nothing of it is downloaded or run here.
API_MODELS = frozenset({"deepseek-ai/DeepSeek-V3.2"})


@dataclass(frozen=True, slots=True)
class FoundModel:
    """What is known of a model, and whether its weights are on this machine."""

    size: ModelSize | None
    here: bool


def find_model(ref: str, revision: str | None = None) -> FoundModel:
    """A model by its ref: its own files where they are here, else what is listed of it."""
    if ref in API_MODELS:
        return FoundModel(None, here=False)
    place = Path(resolve_model(ref))
    if not place.exists():
        cached = _cached_folder(ref, revision)
        if cached is None:
            return FoundModel(HUB_MODELS.get(ref), here=False)
        place = cached
    return FoundModel(HUB_MODELS.get(ref) or _read_size(place), here=True)


def _cached_folder(ref: str, revision: str | None) -> Path | None:
    """The folder of a model in the hub's cache; None where any part of it is missing."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    def cached(name: str) -> Path | None:
        try:
            path = try_to_load_from_cache(ref, name, revision=revision)
        except HFValidationError:  # a ref that cannot be a hub id, such as a missing path
            return None
        return Path(path) if isinstance(path, str) else None

    config, index = cached("config.json"), cached(_INDEX)
    if index is not None:
        files: Iterable[str] = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    else:
        files = [_SINGLE]
    if config is None or any(cached(name) is None for name in files):
        return None
    return config.parent


def _read_size(place: Path) -> ModelSize | None:
    """The sizes of a model folder; None for anything else, such as a GGUF file."""
    try:
        return _sizes(place)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelError(
            f"The size of the model in {place} cannot be read ({type(error).__name__}: {error}).",
            next_step="Check that its config.json and safetensors files are complete.",
        ) from error


def _sizes(place: Path) -> ModelSize | None:
    shapes = {
        name: tensor["shape"]
        for file in sorted(place.glob("*.safetensors"))
        for name, tensor in _header(file).items()
        if name != "__metadata__"
    }
    config = place / "config.json"
    if not shapes or not config.is_file():
        return None
    settings = json.loads(config.read_text("utf-8"))
    settings = settings.get("text_config", settings)
    parameters = sum(prod(shape) for shape in shapes.values())
    # Looking up an embedding costs nothing, unless it is the output layer as well.
    tied = not any(name.endswith("lm_head.weight") for name in shapes)
    looked_up = sum(prod(s) for name, s in shapes.items() if name.endswith("embed_tokens.weight"))
    heads = settings["num_attention_heads"]
    width = settings.get("head_dim") or settings["hidden_size"] // heads
    return ModelSize(
        parameters=parameters,
        active=parameters if tied else parameters - looked_up,
        layers=settings["num_hidden_layers"],
        kv_width=settings.get("num_key_value_heads", heads) * width,
    )


def _header(file: Path) -> dict[str, Any]:
    """The names and shapes in a safetensors file: a length in 8 bytes, and so much JSON."""
    with file.open("rb") as weights:
        (length,) = struct.unpack("<Q", weights.read(8))
        if length > file.stat().st_size:
            raise ValueError(f"{file.name} is cut short")
        return json.loads(weights.read(length))
