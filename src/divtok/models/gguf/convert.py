"""A GGUF model as transformers reads it, with what transformers leaves out of it put back.

Weights become the smallest format that holds every one of them exactly: float32 for quantised
files (their values are products of a half-precision scale with a small integer, which no half
format holds), bfloat16 or float16 for files that are all that. What a file says that cannot be
carried over is refused, not dropped: a wrong tokenizer or position code would only show as numbers
that are a little off.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.errors import ModelError
from divtok.models.errors import check_complete, quiet, reading
from divtok.models.gguf.header import Header, Tensor

if TYPE_CHECKING:
    import torch

_USE_SAFETENSORS = "Use the model's own folder with safetensors weights."

# Texts of control tokens that end a turn. A file names one end token; models have several.
_TURN_ENDS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
        "<eos>",
        "</s>",
        "<|return|>",
    }
)
# How byte-level vocabularies split text into words, by the file's name for it. Those of the first
# group split as GPT-2 does; of the second likewise, but with every digit on its own.
_PLAIN_SPLITS = ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4")
_DIGIT_SPLITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
# Those that take a whole word of the vocabulary before any merge, and begin with BOS if unsaid.
_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken")

# The position code of Llama 3.1 and later, which a file holds only as a table of divisors.
_LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_GEMMA3_27B_LAYERS = 62


def convert(header: Header) -> Callable[[Path], None]:
    """Read the model; the function returned writes it into a folder as transformers does."""
    import torch
    from transformers import GenerationConfig

    failed = reading(
        f"The GGUF model '{header.path}'",
        next_step=f"Check the file and its architecture. {_USE_SAFETENSORS}",
    )
    # transformers draws its bar for this with another library, straight on stderr.
    with failed, quiet(), contextlib.redirect_stderr(io.StringIO()), torch.inference_mode():
        # transformers would put files that happen to lie beside this one in place of its parts.
        with tempfile.TemporaryDirectory() as empty:
            tokenizer = _read_tokenizer(header, empty)
            model = _read_model(header, empty)
        model.generation_config = GenerationConfig(
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=end_ids(header, tokenizer) or None,
            pad_token_id=tokenizer.pad_token_id,
        )
        model.to(narrowest_dtype(model))

    def save(folder: Path) -> None:
        with quiet():
            tokenizer.save_pretrained(folder)
            model.save_pretrained(folder)

    return save


def _read_model(header: Header, place: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    name = str(header.path.resolve())
    config = AutoConfig.from_pretrained(place, gguf_file=name)
    restore_settings(header, config)
    loader: Any = AutoModelForCausalLM
    model, report = loader.from_pretrained(
        place,
        gguf_file=name,
        config=config,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        output_loading_info=True,
    )
    check_complete(str(header.path), report)
    _check_shapes(header, model)
    # The weights are plain numbers by now, and a quantised model would not let itself be saved.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model


def _check_shapes(header: Header, model: Any) -> None:
    """Refuse weights of another shape than the file's settings ask for; transformers takes them."""
    import torch

    with torch.device("meta"):
        expected = type(model)(model.config).state_dict()
    wrong = [name for name, w in model.state_dict().items() if w.shape != expected[name].shape]
    check_complete(str(header.path), {"missing_keys": [], "mismatched_keys": wrong})


def narrowest_dtype(model: Any) -> torch.dtype:
    """The smallest format that holds every weight exactly."""
    import torch

    for dtype in (torch.bfloat16, torch.float16):
        if all(torch.equal(w, w.to(dtype).to(w.dtype)) for w in model.state_dict().values()):
            return dtype
    return torch.float32


def _read_tokenizer(header: Header, place: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    name = str(header.path.resolve())
    read: Any = PreTrainedTokenizerFast.from_pretrained(place, gguf_file=name)
    backend = read.backend_tokenizer
    fix_splits(header, backend)
    add_bos, add_eos = added_ends(header.metadata)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=read.bos_token,
        eos_token=read.eos_token,
        unk_token=read.unk_token,
        pad_token=read.pad_token,
        add_bos_token=add_bos,
        add_eos_token=add_eos,
        chat_template=read.chat_template,
        clean_up_tokenization_spaces=False,
    )


def added_ends(metadata: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether text begins with BOS and ends with EOS: as the file says, or by its vocabulary."""
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    starts = sentencepiece or metadata.get("tokenizer.ggml.pre") in _WHOLE_WORDS
    return (
        bool(metadata.get("tokenizer.ggml.add_bos_token", starts)),
        bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
    )


def end_ids(header: Header, tokenizer: Any) -> list[int]:
    """The ids at which generation stops: those the file names, and control tokens known to."""
    named = [header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    known = [
        index
        for index, token in sorted(tokenizer.added_tokens_decoder.items())
        if token.special and token.content in _TURN_ENDS
    ]
    return list(dict.fromkeys(index for index in [*named, *known] if index is not None))


def fix_splits(header: Header, backend: Any) -> None:
    """Have the tokenizer split text as the file says; transformers does not know all its names."""
    from tokenizers import pre_tokenizers

    kind = header.metadata.get("tokenizer.ggml.model")
    split = json.loads(backend.to_str())["pre_tokenizer"] or {}
    if kind == "llama":
        prefixed = split.get("prepend_scheme", "never") != "never"
        if prefixed and header.metadata.get("tokenizer.ggml.add_space_prefix") is False:
            raise _cannot_carry_over(header, "a tokenizer that adds no space before text")
    elif kind == "gpt2":
        name = header.metadata.get("tokenizer.ggml.pre")
        if name in _DIGIT_SPLITS:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            )
        elif split.get("type") == "ByteLevel" and name not in _PLAIN_SPLITS:
            raise _cannot_carry_over(header, f"text that is split in the way '{name}'")
        backend.model.ignore_merges = name in _WHOLE_WORDS


def restore_settings(header: Header, config: Any) -> None:
    """Put into a config what the file says of attention and positions and transformers drops."""
    window = header.setting("attention.sliding_window")
    if window is not None and getattr(config, "sliding_window", window) is None:
        config.sliding_window = window
    layers = header.setting("block_count")
    if header.architecture == "gemma3" and layers == _GEMMA3_27B_LAYERS:
        # The one Gemma 3 whose queries are not scaled by the width of a head.
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads
    _restore_positions(header, config)


def _restore_positions(header: Header, config: Any) -> None:
    positions: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    full: dict[str, Any] = positions.get("full_attention", positions)
    if full.get("rope_type", "default") != "default":
        return
    kind = header.setting("rope.scaling.type") or "none"
    tables = [tensor for tensor in header.tensors if tensor.name.startswith("rope_")]
    if kind == "linear":
        full |= {"rope_type": "linear", "factor": float(header.setting("rope.scaling.factor"))}
    elif kind != "none":
        raise _cannot_carry_over(header, f"positions scaled in the way '{kind}'")
    elif tables:
        full |= _llama3_positions(header, tables, float(full["rope_theta"]))


def _llama3_positions(header: Header, tables: list[Tensor], theta: float) -> dict[str, Any]:
    """The settings behind a file's table of divisors, if they are those of Llama 3."""
    if [table.name for table in tables] == ["rope_freqs.weight"]:
        offset = header.data_start + tables[0].offset
        table = np.fromfile(header.path, np.float32, tables[0].size, offset=offset)
        settings = _LLAMA3 | {"factor": float(table.max())}
        if np.allclose(table, llama3_divisors(settings, theta, len(table)), rtol=1e-4):
            return settings
    raise _cannot_carry_over(header, "its own table of positions")


def llama3_divisors(settings: Mapping[str, Any], theta: float, count: int) -> np.ndarray:
    """By what Llama 3 divides each of `count` rotation frequencies, fastest first."""
    length = settings["original_max_position_embeddings"]
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    waves = 2 * math.pi * theta ** (np.arange(count) / count)
    blend = np.clip((length / waves - low) / (high - low), 0.0, 1.0)
    return 1 / ((1 - blend) / settings["factor"] + blend)


def _cannot_carry_over(header: Header, what: str) -> ModelError:
    return ModelError(
        f"The GGUF model '{header.path}' has {what}, which cannot be carried over.",
        next_step=_USE_SAFETENSORS,
    )
