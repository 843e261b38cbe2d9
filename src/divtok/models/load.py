"""Reading models and tokenizers from a folder, a GGUF file or the hub: one door for every stage.

Weights come from safetensors or GGUF only, and code that travels with a model is never run unless
asked for by name. Knows nothing of what a model is then used for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, get_args

from divtok.errors import ModelError, UsageError, did_you_mean
from divtok.models.digests import (
    cache_folder,
    folder_digest,
    sampled_folder_digest,
    sampled_gguf_digest,
)
from divtok.models.errors import check_complete, need_module, need_transformers, quiet, reading
from divtok.models.files import check_settings, commit_of, weight_map
from divtok.models.gguf.cache import converted, find_gguf, gguf_digest
from divtok.models.packaged import resolve_model
from divtok.models.waiting import wait_asleep
from divtok.store.sections import Digest

if TYPE_CHECKING:
    import torch

# What a checkpoint names as its tokenizer class where tokenizer.json says it all.
_PLAIN_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")

DType = Literal["auto", "float32", "bfloat16", "float16"]

# Ways to spread a model over several GPUs; in place of one of them a device may be named.
SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")


class PairOptions(TypedDict, total=False):
    """What two models may be loaded with alike; `load_model` says what it means."""

    dtype: DType
    device_map: str | None
    trust_remote_code: bool


class LoadOptions(PairOptions, total=False):
    """What every loader of a model takes, all of it at will."""

    revision: str | None
    device: str | torch.device | None


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that divtok relies on."""

    eos_token_id: Any

    def get_vocab(self) -> dict[str, int]: ...

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = ...,
        *,
        clean_up_tokenization_spaces: bool | None = ...,
    ) -> Any: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model in evaluation mode with its tokenizer. `name` is the ref as given.

    `device` is where its inputs go: the model's own, or that of its embedding where it is spread
    over several.
    """

    name: str
    revision: str | None
    model: Any  # a transformers PreTrainedModel; with a language-model head unless a backbone
    tokenizer: Any  # satisfies Tokenizer; any transformers tokenizer call is possible
    device: torch.device
    dtype: torch.dtype

    @property
    def tokenizer_width(self) -> int:
        """One more than the highest token id; the model's output layer may be wider."""
        return max(self.tokenizer.get_vocab().values()) + 1

    @property
    def context_length(self) -> int | None:
        """Tokens the model can read; None where its architecture sets no limit."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def end_ids(self) -> frozenset[int]:
        """Token ids that end a turn: those generation stops at, and the tokenizer's own."""
        preset = getattr(self.model, "generation_config", None)
        return end_ids_of(preset, self.model.config, self.tokenizer)


def end_ids_of(*sources: Any) -> frozenset[int]:
    """The end tokens that configs, generation presets and tokenizers name."""
    found: list[Any] = []
    for source in sources:
        ids: Any = getattr(source, "eos_token_id", None)
        found.extend(ids if isinstance(ids, list) else [ids])
    return frozenset(int(token) for token in found if token is not None)


def generation_preset(place: str, revision: str | None) -> Any:
    """How a checkpoint wants to be sampled; None for the many that do not say."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(place, revision=revision or "main")
    except OSError:
        return None


def load_tokenizer(
    ref: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> Any:
    """The tokenizer of a model folder, GGUF file or hub id; ModelError where it cannot be read."""
    need_transformers()
    return _read_tokenizer(model_place(ref), ref, revision, trust_remote_code)


def tokenizer_at_hand(ref: str, *, revision: str | None = None) -> Any:
    """`load_tokenizer` for what is on this machine: no hub is asked, which may take minutes."""
    need_transformers()
    from huggingface_hub import try_to_load_from_cache

    place = model_place(ref)
    if not Path(place).is_dir():
        file = try_to_load_from_cache(place, "tokenizer_config.json", revision=revision)
        if not isinstance(file, str):
            raise ModelError(
                f"The tokenizer of '{ref}' is not on this machine.",
                next_step=f"Fetch it: hf download {ref} --include 'tokenizer*' config.json",
            )
        place = str(Path(file).parent)
    return _read_tokenizer(place, ref, None, False)


def load_model(
    ref: str,
    *,
    revision: str | None = None,
    dtype: DType = "auto",
    device: str | torch.device | None = None,
    device_map: str | None = None,
    trust_remote_code: bool = False,
    backbone: bool = False,
) -> LoadedModel:
    """A causal language model and its tokenizer, ready to run on `device` (default: a GPU if any).

    `device_map` spreads it over all GPUs instead: "auto", "balanced", "balanced_low_0" or
    "sequential" as in transformers; a device named there is the same as `device`. What the GPUs
    cannot hold is refused, not kept elsewhere.
    `dtype="auto"` is float32 on the CPU, and on a GPU bfloat16 where the checkpoint is half
    precision and not one of the packaged ones. A checkpoint that lacks weights of its architecture
    is refused, since transformers would fill them with random numbers.
    With `backbone` only the part that gives hidden states is loaded, and no head.
    """
    need_transformers()
    import torch
    from transformers import AutoModel

    _check_dtype(dtype)
    where, spread = pick_place(device, device_map)
    place = model_place(ref)
    # What is checked is what is then read, whatever the hub's branch comes to stand for. Code of a
    # model must be pinned by whoever trusts it, which is checked by what they gave.
    commit = revision
    if not Path(place).is_dir() and not trust_remote_code:
        commit = commit_of(place, revision) or revision
    config = read_config(place, ref, commit, trust_remote_code)
    tokenizer = _read_tokenizer(place, ref, commit, trust_remote_code)
    with _reading(ref, place, "The model"):
        weight_map(ref, place, commit)
    number = getattr(torch, _pick_dtype(dtype, ref, where, lambda: config))
    with _reading(ref, place, "The model"), quiet():
        loader: Any = AutoModel if backbone else auto_class(config)
        model, report = loader.from_pretrained(
            place,
            config=config,
            revision=commit,
            dtype=number,
            device_map=spread,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
        check_complete(ref, report)
        if spread is None:
            model = model.to(where)
        else:
            where = _check_spread(ref, model)
        model = model.eval().requires_grad_(False)
    return LoadedModel(ref, revision, model, tokenizer, where, number)


def resolve_dtype(
    ref: str,
    dtype: DType = "auto",
    *,
    device: str | torch.device | None = None,
    device_map: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> str:
    """The number format that `load_model` would use with these arguments; loads no weights."""
    _check_dtype(dtype)
    if dtype != "auto":
        return dtype
    need_transformers()
    where, _ = pick_place(device, device_map)

    def config() -> Any:
        return read_config(model_place(ref), ref, revision, trust_remote_code)

    return _pick_dtype(dtype, ref, where, config)


def model_digest(ref: str, *, revision: str | None = None) -> Digest:
    """A fingerprint of a model for telling on resume that it changed; loads no weights.

    A folder is known by all of its weights, settings, tokenizer files and templates, a GGUF file by
    all of it, and a hub model by its name and commit.
    """
    place = Path(_locate(ref))
    if (gguf := find_gguf(place)) is not None:
        return Digest(gguf_digest(gguf), earlier=lambda: sampled_gguf_digest(gguf))
    if place.is_dir():
        return Digest(folder_digest(place), earlier=lambda: sampled_folder_digest(place))
    named = f"{ref}@{revision or 'main'}"
    commit = commit_of(str(place), revision)
    return Digest(f"{ref}@{commit}" if commit else named, earlier=lambda: named)


def pick_device(device: str | torch.device | None) -> torch.device:
    """The named device, or else a GPU where there is one."""
    wait_asleep()
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError as error:
        hint = "Use cpu, cuda or cuda:N."
        raise UsageError(f"Unknown device '{device}'.", next_step=hint) from error
    if picked.type == "cuda" and (picked.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"Device '{device}' is not there: {torch.cuda.device_count()} CUDA devices found.",
            next_step="Use the device cpu, or check the driver.",
        )
    return picked


def pick_place(
    device: str | torch.device | None, device_map: str | None
) -> tuple[torch.device, str | None]:
    """The device that decides the number format, and the way to spread, if any."""
    if device_map is None:
        return pick_device(device), None
    if device is not None:
        raise UsageError(
            f"Both device '{device}' and device_map '{device_map}' are given.",
            next_step="Give one of them.",
        )
    if device_map in SPREADS:
        need_module("accelerate", "models", purpose="Spreading a model over devices")
        return pick_device(None), device_map
    try:
        return pick_device(device_map), None
    except UsageError as error:
        raise UsageError(
            error.what, next_step=f"Give a device_map of {', '.join(SPREADS)}, or a device."
        ) from error


def _check_spread(ref: str, model: Any) -> torch.device:
    """Where the inputs of a spread model go; refuses one that the GPUs cannot hold.

    Weights kept elsewhere are moved in for each layer's turn, so the head could not be read apart.
    """
    # Only a model on more than one device, or on the disk, has such a map.
    places: dict[str, Any] = getattr(model, "hf_device_map", {})
    outside = {str(place) for place in places.values()} & {"cpu", "disk"}
    if outside:
        raise ModelError(
            f"The model '{ref}' does not fit: a part of it would be kept on "
            f"{' and '.join(sorted(outside))}, which is not supported.",
            next_step="Use more or larger GPUs, a smaller dtype (bfloat16), or the device cpu.",
        )
    return model.get_input_embeddings().weight.device


def _check_dtype(dtype: str) -> None:
    if dtype not in get_args(DType):
        hint = did_you_mean(dtype, get_args(DType))
        raise UsageError(f"Unknown dtype '{dtype}'.", next_step=hint)


def _pick_dtype(dtype: DType, ref: str, device: torch.device, config: Callable[[], Any]) -> str:
    """The one rule for "auto"; asks for the config only where it matters."""
    if dtype != "auto":
        return dtype
    # Packaged models are half precision to be small on disk; they run as they do on a CPU.
    if device.type != "cuda" or resolve_model(ref) != ref:
        return "float32"
    read = config()
    stored = getattr(read.get_text_config(), "dtype", None) or getattr(read, "dtype", None)
    half = str(stored).removeprefix("torch.") in ("bfloat16", "float16")
    return "bfloat16" if half else "float32"


def read_config(place: str, ref: str, revision: str | None, trust_remote_code: bool = False) -> Any:
    from transformers import AutoConfig, PreTrainedConfig

    with _reading(ref, place, "The model"):
        settings, _ = PreTrainedConfig.get_config_dict(place, revision=revision)
        check_settings(ref, place, settings, revision, trust_remote_code)
        return AutoConfig.from_pretrained(
            place, revision=revision, trust_remote_code=trust_remote_code
        )


def _read_tokenizer(place: str, ref: str, revision: str | None, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    with _reading(ref, place, "The tokenizer of"):
        settings = get_tokenizer_config(place, revision=revision)
        check_settings(ref, place, settings, revision, trust_remote_code)
        # The automatic class puts some families' own splitting rules in place of tokenizer.json,
        # even where the checkpoint says that the file alone is the tokenizer.
        plain = settings.get("tokenizer_class") in _PLAIN_TOKENIZERS
        loader: Any = PreTrainedTokenizerFast if plain else AutoTokenizer
        return loader.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)


def auto_class(config: Any) -> Any:
    """The loader for this kind of model: text models, then text models that can also see."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    remote = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    known = remote or type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    return AutoModelForCausalLM if known else AutoModelForImageTextToText


def model_place(ref: str) -> str:
    """Where transformers reads a ref from: its place, or the safetensors copy of a GGUF file."""
    place = _locate(ref)
    gguf = find_gguf(Path(place))
    return place if gguf is None else str(converted(gguf))


def _locate(ref: str) -> str:
    """What a ref names: a packaged model's folder, a local folder, a GGUF file, or a hub id."""
    ref = resolve_model(ref)
    path = Path(ref).expanduser()
    if ref and (path.is_dir() or path.suffix.lower() == ".gguf"):
        return str(path)
    # A hub id is `name` or `owner/name`; anything else can only have been meant as a folder.
    if path.is_absolute() or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", ref):
        raise ModelError(
            f"There is no model folder '{ref}'.",
            next_step="Check the path; it must hold config.json and safetensors weights.",
        )
    return ref


def _reading(ref: str, place: str, what: str) -> AbstractContextManager[None]:
    if Path(place).is_relative_to(cache_folder()):
        next_step = f"Its converted copy may be damaged: remove {place}, then load it again."
    elif Path(place).is_dir():
        next_step = "Check that the folder holds a complete model with safetensors weights."
    else:
        next_step = "Check the name, the network and HF_TOKEN, or give the path of a local folder."
    return reading(f"{what} '{ref}'", next_step=next_step)
