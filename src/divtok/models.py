"""Reading models and tokenizers from a folder or the hub: the one door for every stage.

Weights come from safetensors only, and code that travels with a model is never run unless asked
for by name. Knows nothing of what a model is then used for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import textwrap
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from divtok.errors import MissingExtraError, ModelError, UsageError, did_you_mean
from divtok.families import resolve_model

if TYPE_CHECKING:
    import torch

# What a checkpoint names as its tokenizer class where tokenizer.json says it all.
_PLAIN_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")

_MEGABYTE = 1 << 20

DType = Literal["auto", "float32", "bfloat16", "float16"]


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
    """A model in evaluation mode on one device, with its tokenizer. `name` is the ref as given."""

    name: str
    revision: str | None
    model: Any  # a transformers PreTrainedModel with a language-model head
    tokenizer: Any  # satisfies Tokenizer; any transformers tokenizer call is possible
    device: torch.device
    dtype: torch.dtype

    @property
    def tokenizer_width(self) -> int:
        """One more than the highest token id; the model's output layer may be wider."""
        return max(self.tokenizer.get_vocab().values()) + 1

    @property
    def end_ids(self) -> frozenset[int]:
        """Token ids that end a turn: those generation stops at, and the tokenizer's own."""
        sources = (
            getattr(self.model, "generation_config", None),
            self.model.config,
            self.tokenizer,
        )
        found: list[Any] = []
        for source in sources:
            ids: Any = getattr(source, "eos_token_id", None)
            found.extend(ids if isinstance(ids, list) else [ids])
        return frozenset(int(token) for token in found if token is not None)


def load_tokenizer(
    ref: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> Any:
    """The tokenizer of a model folder or hub id; ModelError in one line where it cannot be read."""
    _need_transformers()
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    place = _place(ref)
    with _reading(ref, place, "The tokenizer of"):
        settings = get_tokenizer_config(place, revision=revision)
        _check_remote_code(ref, place, settings, revision, trust_remote_code)
        # The automatic class puts some families' own splitting rules in place of tokenizer.json,
        # even where the checkpoint says that the file alone is the tokenizer.
        plain = settings.get("tokenizer_class") in _PLAIN_TOKENIZERS
        loader: Any = PreTrainedTokenizerFast if plain else AutoTokenizer
        return loader.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)


def load_model(
    ref: str,
    *,
    revision: str | None = None,
    dtype: DType = "auto",
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """A causal language model and its tokenizer, ready to run on `device` (default: a GPU if any).

    `dtype="auto"` is float32 on the CPU, and on a GPU bfloat16 where the checkpoint is half
    precision. A checkpoint that lacks weights of its architecture is refused, since transformers
    would fill them with random numbers.
    """
    _need_transformers()
    from transformers import AutoConfig, PreTrainedConfig

    if dtype not in get_args(DType):
        raise UsageError(
            f"Unknown dtype '{dtype}'.", next_step=did_you_mean(dtype, get_args(DType))
        )
    where = pick_device(device)
    place = _place(ref)
    with _reading(ref, place, "The model"):
        settings, _ = PreTrainedConfig.get_config_dict(place, revision=revision)
        _check_remote_code(ref, place, settings, revision, trust_remote_code)
        config = AutoConfig.from_pretrained(
            place, revision=revision, trust_remote_code=trust_remote_code
        )
    tokenizer = load_tokenizer(ref, revision=revision, trust_remote_code=trust_remote_code)
    number = _pick_dtype(dtype, where, config)
    with _reading(ref, place, "The model"), _quiet():
        model, report = _auto_class(config).from_pretrained(
            place,
            config=config,
            revision=revision,
            dtype=number,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
        _check_complete(ref, report)
        model = model.to(where).eval().requires_grad_(False)
    return LoadedModel(ref, revision, model, tokenizer, where, number)


def model_digest(ref: str, *, revision: str | None = None) -> str:
    """A short fingerprint of a model for telling on resume that it changed; loads no weights.

    A folder is known by its small files, and by the size, the first and the last megabyte of its
    weight files; a hub model by its name and revision.
    """
    place = Path(_place(ref))
    if not place.is_dir():
        return f"{ref}@{revision or 'main'}"
    digest = hashlib.sha256()
    for path in sorted(place.iterdir()):
        if path.suffix in (".json", ".jinja"):
            digest.update(path.name.encode() + path.read_bytes())
        elif path.suffix == ".safetensors":
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}".encode())
            with path.open("rb") as weights:
                digest.update(weights.read(_MEGABYTE))
                weights.seek(max(0, size - _MEGABYTE))
                digest.update(weights.read(_MEGABYTE))
    return digest.hexdigest()[:16]


def pick_device(device: str | torch.device | None) -> torch.device:
    """The named device, or else a GPU where there is one."""
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError as error:
        raise UsageError(
            f"Unknown device '{device}'.", next_step="Use cpu, cuda or cuda:N."
        ) from error
    if picked.type == "cuda" and (picked.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"Device '{device}' is not there: {torch.cuda.device_count()} CUDA devices found.",
            next_step="Use the device cpu, or check the driver.",
        )
    return picked


def _pick_dtype(dtype: DType, device: torch.device, config: Any) -> torch.dtype:
    import torch

    if dtype != "auto":
        return getattr(torch, dtype)
    stored = getattr(config.get_text_config(), "dtype", None) or getattr(config, "dtype", None)
    half = stored in (torch.bfloat16, torch.float16, "bfloat16", "float16")
    return torch.bfloat16 if half and device.type == "cuda" else torch.float32


def _auto_class(config: Any) -> Any:
    """The loader for this kind of model: text models, then text models that can also see."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    remote = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    known = remote or type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    return AutoModelForCausalLM if known else AutoModelForImageTextToText


def _check_complete(ref: str, report: Mapping[str, Any]) -> None:
    missing = sorted(report["missing_keys"])
    wrong = sorted(str(key) for key in report["mismatched_keys"])
    if missing or wrong:
        named = ", ".join((missing + wrong)[:3])
        raise ModelError(
            f"The model '{ref}' is incomplete: {len(missing) + len(wrong)} of its weights are "
            f"missing or of another shape ({named}).",
            next_step="Fetch it again, or check that config.json belongs to these weights.",
        )


def _check_remote_code(
    ref: str,
    place: str,
    settings: Mapping[str, Any],
    revision: str | None,
    trust_remote_code: bool,
) -> None:
    if not settings.get("auto_map"):
        return
    if not trust_remote_code:
        raise ModelError(
            f"The model '{ref}' brings its own code (auto_map), which divtok does not run.",
            next_step="Read that code, then allow it by name: trust_remote_code=True.",
        )
    if not Path(place).is_dir() and not re.fullmatch(r"[0-9a-f]{40}", revision or ""):
        raise ModelError(
            f"The model '{ref}' brings its own code, and no commit is pinned.",
            next_step="Give revision= the full commit hash of the code you have read.",
        )


def _place(ref: str) -> str:
    """Where to read a ref from: a packaged model's folder, a local folder, or a hub id."""
    ref = resolve_model(ref)
    path = Path(ref).expanduser()
    if ref and path.is_dir():
        return str(path)
    # A hub id is `name` or `owner/name`; anything else can only have been meant as a folder.
    if path.is_absolute() or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", ref):
        raise ModelError(
            f"There is no model folder '{ref}'.",
            next_step="Check the path; it must hold config.json and safetensors weights.",
        )
    return ref


@contextmanager
def _quiet() -> Generator[None]:
    """Without transformers' own progress bar: the stages report theirs."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _reading(ref: str, place: str, what: str) -> Generator[None]:
    """Turns the many ways in which reading can fail into one line with the next step."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        yield
    except (
        StrictDataclassError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ImportError,
        RuntimeError,
        SafetensorError,
    ) as error:
        cause = textwrap.shorten(str(error), 200, placeholder=" ...") or type(error).__name__
        raise ModelError(
            f"{what} '{ref}' cannot be read ({cause}).",
            next_step="Check that the folder holds a complete model with safetensors weights."
            if Path(place).is_dir()
            else "Check the name, the network and HF_TOKEN, or give the path of a local folder.",
        ) from error


def _need_transformers() -> None:
    for module in ("torch", "transformers"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(module, "models", purpose="Running a model")
