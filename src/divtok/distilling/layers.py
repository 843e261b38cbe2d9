"""Which layers of a model are kept, and the model for a while with these alone.

The stack of layers and the settings that have an entry for each of them are found by their length,
not from a list of architectures.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from divtok.errors import ModelError, UsageError
from divtok.models.load import LoadedModel
from divtok.packed.parts import find_decoder

# Lists of a config that are no list of layers, though they may happen to be as long.
_NOT_OF_LAYERS = ("_token_id", "_token_ids", "_token_index")
_NOT_OF_LAYERS_EITHER = ("architectures", "bad_words_ids")


def choose_layers(asked: int | Sequence[int], count: int, *, name: str = "the model") -> list[int]:
    """The layers to keep of `count`: those named, or so many, evenly spaced with first and last."""
    if isinstance(asked, int):
        if not 1 <= asked < count:
            raise UsageError(
                f"{asked} of the {count} layers of '{name}' cannot be kept as a smaller model.",
                next_step=f"Give a number from 1 to {count - 1}.",
            )
        return [round(place * (count - 1) / max(1, asked - 1)) for place in range(asked)]
    layers = list(asked)
    named = ", ".join(map(str, layers))
    if not layers or layers != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= count:
        raise UsageError(
            f"The layers '{named}' cannot be kept of '{name}', which has those from 0 to "
            f"{count - 1}.",
            next_step="Name each once, in rising order.",
        )
    if len(layers) == count:
        raise UsageError(
            f"The layers '{named}' are all that '{name}' has, so nothing would become smaller.",
            next_step="Leave some out.",
        )
    return layers


def layer_count(loaded: LoadedModel) -> int:
    """How many layers a model's trunk has."""
    return len(_stack(loaded)[2])


@contextmanager
def only_layers(loaded: LoadedModel, layers: Sequence[int]) -> Generator[None]:
    """Within, the model has these layers alone, and its config says so; after, all of them."""
    import torch

    decoder, name, stack = _stack(loaded)
    settings = _settings(loaded, decoder)
    before = [
        {key: getattr(config, key) for key in cut_settings(config, layers)} for config in settings
    ]
    after = [cut_settings(config, layers) for config in settings]
    try:
        setattr(decoder, name, torch.nn.ModuleList([stack[layer] for layer in layers]))
        _put(settings, after)
        yield
    finally:
        setattr(decoder, name, stack)
        _put(settings, before)


def cut_settings(config: Any, layers: Sequence[int]) -> dict[str, Any]:
    """What a config has to say where only these layers are left: their number, and each list."""
    count = config.num_hidden_layers
    changed: dict[str, Any] = {"num_hidden_layers": len(layers)}
    for key, value in config.to_dict().items():
        if _of_layers(key) and isinstance(value, list | tuple) and len(value) == count:
            kept = getattr(config, key)
            changed[key] = type(kept)(kept[layer] for layer in layers)
    return changed


def _of_layers(key: str) -> bool:
    return not key.endswith(_NOT_OF_LAYERS) and key not in _NOT_OF_LAYERS_EITHER


def _stack(loaded: LoadedModel) -> tuple[Any, str, Any]:
    """The trunk, and the name and the layers of its stack."""
    import torch

    decoder = find_decoder(loaded)
    count = loaded.model.config.get_text_config().num_hidden_layers
    found = [
        (name, child)
        for name, child in decoder.named_children()
        if isinstance(child, torch.nn.ModuleList) and len(child) == count
    ]
    if len(found) != 1:
        raise ModelError(
            f"The layers of '{loaded.name}' cannot be told: its trunk has {len(found)} lists of "
            f"{count} modules.",
            next_step="Use a model that is one stack of layers, such as Qwen, Llama or Gemma.",
        )
    return decoder, *found[0]


def _settings(loaded: LoadedModel, decoder: Any) -> list[Any]:
    """The configs that speak of the layers; mostly one object."""
    text = loaded.model.config.get_text_config()
    return [text] if decoder.config is text else [text, decoder.config]


def _put(settings: Sequence[Any], changes: Sequence[Mapping[str, Any]]) -> None:
    for config, changed in zip(settings, changes, strict=True):
        for key, value in changed.items():
            setattr(config, key, value)
