"""The weights of a model as they lie on this machine: counts, content, and numbers that are none.

Reads headers of safetensors files, and of their content no more than a question takes. Loads no
model, needs no model library and asks no network: of a model that is not here nothing is known.
"""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.errors import ModelError
from divtok.models.digests import file_digests
from divtok.models.files import INDEX, WHOLE
from divtok.models.gguf.cache import copy_folder, find_gguf
from divtok.models.packaged import resolve_model

# Of each tensor, so much is compared first: weights of different models differ there.
_FIRST_BYTES = 4096
_CHUNK = 1 << 24
# dtype -> how its numbers are seen as bits, and the bits of an exponent that stands for no number
_EXPONENTS: Mapping[str, tuple[npt.DTypeLike, int]] = {
    "F64": ("<u8", 0x7FF0_0000_0000_0000),
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a safetensors file; its bytes are those from `start` to `stop`."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def weights_folder(ref: str, revision: str | None = None) -> Path | None:
    """The folder with a model's safetensors files; None where it is not on this machine."""
    place = Path(resolve_model(ref)).expanduser()
    if not place.exists():
        return cached_folder(ref, revision)
    gguf = find_gguf(place)
    if gguf is not None:
        copy = copy_folder(gguf)
        return copy if copy.is_dir() else None
    return place if place.is_dir() else None


def cached_folder(ref: str, revision: str | None) -> Path | None:
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

    config, index = cached("config.json"), cached(INDEX)
    files = {WHOLE}
    if index is not None:
        files = set(json.loads(index.read_bytes())["weight_map"].values())
    return config.parent if config and all(map(cached, files)) else None


def read_header(file: Path) -> dict[str, Any]:
    """The names and shapes in a safetensors file: a length in 8 bytes, and so much JSON."""
    with file.open("rb") as weights:
        (length,) = struct.unpack("<Q", weights.read(8))
        if length > file.stat().st_size:
            raise ValueError(f"{file.name} is cut short")
        header: dict[str, Any] = json.loads(weights.read(length))
    header.pop("__metadata__", None)
    return header


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a model's folder by its name; none where its files cannot be read."""
    found: dict[str, StoredTensor] = {}
    try:
        for file in sorted(folder.glob("*.safetensors")):
            with file.open("rb") as weights:
                (length,) = struct.unpack("<Q", weights.read(8))
            for name, tensor in read_header(file).items():
                start, stop = (8 + length + offset for offset in tensor["data_offsets"])
                shape = tuple(tensor["shape"])
                found[name] = StoredTensor(file, tensor["dtype"], shape, start, stop)
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return {}  # whoever loads it says what is wrong
    return found


def parameter_count(ref: str, revision: str | None = None) -> int | None:
    """How many numbers a model's files hold; None where they are not here or are quantised."""
    folder = _folder(ref, revision)
    if folder is None or "quantization_config" in _settings(folder):
        return None  # several weights are packed into one number
    return sum(prod(tensor.shape) for tensor in stored_tensors(folder).values()) or None


def vocabulary_width(ref: str, revision: str | None = None) -> int | None:
    """How many tokens a model's distribution is over, by its config; None where it is not here."""
    folder = _folder(ref, revision)
    if folder is None:
        return None
    settings = _settings(folder)
    text: Any = settings.get("text_config")
    width = (text if isinstance(text, dict) else settings).get("vocab_size")
    return width if isinstance(width, int) and width > 1 else None


def same_weights(
    p: str, q: str, *, p_revision: str | None = None, q_revision: str | None = None
) -> bool:
    """Whether two models on this machine have the very same weights, whatever else they have.

    Different models are told by the first bytes of their tensors; only of equal ones all is read.
    """
    folders = _folder(p, p_revision), _folder(q, q_revision)
    if folders[0] is None or folders[1] is None:
        return False
    ours, theirs = (stored_tensors(folder) for folder in folders if folder is not None)
    if not ours or {n: (t.dtype, t.shape) for n, t in ours.items()} != {
        n: (t.dtype, t.shape) for n, t in theirs.items()
    }:
        return False
    pairs = [(ours[name], theirs[name]) for name in ours]
    if any(_bytes(a, _FIRST_BYTES) != _bytes(b, _FIRST_BYTES) for a, b in pairs):
        return False
    files = [sorted({tensor.file for tensor in of.values()}) for of in (ours, theirs)]
    digests = [sorted(file_digests(of)) for of in files]  # kept from earlier reading, mostly
    return digests[0] == digests[1] or all(_equal(a, b) for a, b in pairs)


def broken_tensor(ref: str, revision: str | None = None) -> str | None:
    """The first tensor that holds NaN or an infinity, as NAME in FILE; None where none is known."""
    folder = _folder(ref, revision)
    for name, tensor in ({} if folder is None else stored_tensors(folder)).items():
        if tensor.dtype in _EXPONENTS:
            kind, exponent = _EXPONENTS[tensor.dtype]
            for chunk in _chunks(tensor):
                bits = np.frombuffer(chunk, kind)
                if bool(((bits & exponent) == exponent).any()):
                    return f"{name} in {tensor.file}"
    return None


def _folder(ref: str, revision: str | None) -> Path | None:
    try:
        return weights_folder(ref, revision)
    except (ModelError, OSError, ValueError, LookupError):
        return None  # whoever loads it says what is wrong


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings: Any = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _equal(a: StoredTensor, b: StoredTensor) -> bool:
    return all(one == other for one, other in zip(_chunks(a), _chunks(b), strict=True))


def _bytes(tensor: StoredTensor, most: int) -> bytes:
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        return file.read(min(most, tensor.stop - tensor.start))


def _chunks(tensor: StoredTensor) -> Iterator[bytes]:
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        left = tensor.stop - tensor.start
        while left and (data := file.read(min(_CHUNK, left))):
            left -= len(data)
            yield data
