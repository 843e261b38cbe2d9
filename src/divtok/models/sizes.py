"""What is known of a model before it is here: parameters, layers, and the size of its download.

Hub models of the families are listed, with the counts of their published checkpoints; a model on
this machine is measured by its own files. Loads no weights, needs no model library (unlike
`planning.model_shapes`, which knows more) and asks no network.
"""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from math import prod
from pathlib import Path

from divtok.errors import ModelError
from divtok.models.packaged import resolve_model
from divtok.models.weights import cached_folder, read_header

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_HALF = DTYPE_BYTES["bfloat16"]


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Sizes of one model. `active` are the weights that one token goes through.

    These are all but the embedding and unchosen experts. The output layer is among them, which
    `ModelShape` counts apart: there its operations are shown on their own. `kv_width` is heads
    times head width of the keys that are kept. Of the layers, `windowed` keep at most `window`
    tokens. `trained_length` is the context it was trained with, where it matters to a plan.
    """

    parameters: int
    active: int
    layers: int
    kv_width: int
    windowed: int = 0
    window: int = 0
    stored: int | None = None  # numbers in the checkpoint, where it holds some of them twice
    trained_length: int | None = None

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


def _listed() -> dict[str, ModelSize]:
    """The published checkpoints of sizes.csv.

    That of Qwen3-1.7B also holds the output layer, which is the embedding once more. The reward
    model is Qwen2.5-Math-7B with a value head of one output; only its trunk runs.
    """
    table = (resources.files("divtok.models") / "sizes.csv").read_text("utf-8")
    return {
        row.pop("model"): ModelSize(**{name: int(count) for name, count in row.items() if count})
        for row in csv.DictReader(table.splitlines())
    }


HUB_MODELS: Mapping[str, ModelSize] = _listed()
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
        cached = cached_folder(ref, revision)
        if cached is None:
            return FoundModel(HUB_MODELS.get(ref), here=False)
        place = cached
    return FoundModel(HUB_MODELS.get(ref) or _read_size(place), here=True)


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
        for name, tensor in read_header(file).items()
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
        trained_length=settings.get("max_position_embeddings"),
    )
