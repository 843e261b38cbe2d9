"""The header of a GGUF file: what it says about itself, and where its weights lie.

Reads no weights and needs no other package, so that a wrong file is told at once. Lists (the
vocabulary, the merges) are passed over: transformers reads those.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from divtok.errors import ModelError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)  # the first one counted in 32 bits and is long gone
_STRING, _ARRAY = 8, 9
# By the type number of a value; strings and lists have no fixed width.
_FORMATS: dict[int, str] = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_DEFAULT_ALIGNMENT = 32
_SIZES = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
)
_LARGEST_SIZE = 1 << 31
_FETCH_AGAIN = "Fetch it again: the download may have stopped early."


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file. `kind` is its number format; `offset` counts from the data."""

    name: str
    shape: tuple[int, ...]  # the fastest-moving dimension first
    kind: int
    offset: int

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    data_start: int

    @property
    def architecture(self) -> str:
        return self.metadata["general.architecture"]

    def setting(self, key: str) -> Any:
        """A setting of the architecture, as in setting("rope.freq_base"); None where unsaid."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_header(path: Path) -> Header:
    """Read and check a header; ModelError in one line where the file is not a whole GGUF."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ModelError(
                    f"'{path}' is not a GGUF file.",
                    next_step="Fetch it again: it may be an error page or a Git LFS pointer.",
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                header = _parse(path, _Cursor(content))
    except OSError as error:
        raise ModelError(
            f"The GGUF file '{path}' cannot be read ({error.strerror or error}).",
            next_step="Check the path and its permissions.",
        ) from error
    except struct.error as error:
        raise ModelError(
            f"The GGUF file '{path}' ends within its header.", next_step=_FETCH_AGAIN
        ) from error
    except (ValueError, OverflowError, KeyError) as error:
        raise ModelError(
            f"The header of the GGUF file '{path}' is damaged.", next_step=_FETCH_AGAIN
        ) from error
    _check_usable(header)
    return header


def check_whole(header: Header) -> None:
    """Refuse a file that ends before its last weight. Needs the package gguf for the formats."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    end = 0
    for tensor in header.tensors:
        try:
            block, width = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
        except ValueError as error:
            raise ModelError(
                f"The GGUF file '{header.path}' holds weights in a format (number {tensor.kind}) "
                "that the installed package 'gguf' does not know.",
                next_step="Run: pip install --upgrade gguf",
            ) from error
        end = max(end, tensor.offset + tensor.size // block * width)
    size = header.path.stat().st_size
    if size < header.data_start + end:
        raise ModelError(
            f"The GGUF file '{header.path}' is cut short: {size} bytes of "
            f"{header.data_start + end}.",
            next_step=_FETCH_AGAIN,
        )


def _check_usable(header: Header) -> None:
    if header.metadata.get("general.type", "model") != "model" or not header.tensors:
        raise ModelError(
            f"The GGUF file '{header.path}' holds no model "
            f"({header.metadata.get('general.type', 'no tensors')}).",
            next_step="Give the file with the language model's weights.",
        )
    if (parts := header.metadata["split.count"]) > 1:
        raise ModelError(
            f"The GGUF file '{header.path}' is one part of {parts}.",
            next_step="Join the parts first, with llama-gguf-split --merge.",
        )
    _check_sizes(header)


def _check_sizes(header: Header) -> None:
    """Refuse sizes that are none, and those that the weights contradict.

    transformers builds what the settings say, with no layer at all if need be.
    """
    for name in _SIZES:
        value = header.setting(name)
        if value is not None and (not isinstance(value, int) or not 0 < value < _LARGEST_SIZE):
            raise _contradiction(header, f"its {name} is {value}")
    blocks = header.setting("block_count")
    found = {tensor.name.split(".")[1] for tensor in header.tensors if tensor.name[:4] == "blk."}
    if blocks is None or found != {str(number) for number in range(blocks)}:
        raise _contradiction(header, f"it says {blocks} layers and holds {len(found)}")
    width = header.setting("embedding_length")
    for tensor in header.tensors:
        if tensor.name == "token_embd.weight" and tensor.shape[:1] != (width,):
            raise _contradiction(
                header, f"its embedding_length is {width}, its embedding is {list(tensor.shape)}"
            )


def _contradiction(header: Header, what: str) -> ModelError:
    return ModelError(
        f"The GGUF file '{header.path}' makes no sense: {what}.",
        next_step="Fetch it again, or convert the model again with a current llama.cpp.",
    )


class _Cursor:
    """A place in the file that moves on with every value read."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self.position = len(_MAGIC)

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self._content, self.position)
        self.position += struct.calcsize("<" + form)
        return value

    def string(self) -> str:
        length = self.number("Q")
        text = self._content[self.position : self.position + length]
        if len(text) < length:
            raise struct.error
        self.position += length
        return text.decode()

    def value(self, kind: int) -> Any:
        """One metadata value; of a list only its length."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(_FORMATS[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner == _STRING:
            for _ in range(count):
                length = self.number("Q")
                self.position += length
        else:
            self.position += count * struct.calcsize("<" + _FORMATS[inner])
        return count


def _parse(path: Path, cursor: _Cursor) -> Header:
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise ModelError(
            f"The GGUF file '{path}' is of version {version}, which is not supported.",
            next_step="Convert the model again with a current llama.cpp.",
        )
    tensor_count, value_count = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(value_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.number("I"))
    tensors = tuple(_parse_tensor(cursor) for _ in range(tensor_count))
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    parts = metadata.setdefault("split.count", 1)
    if not isinstance(metadata["general.architecture"], str):
        raise ValueError("general.architecture")
    if not isinstance(alignment, int) or alignment < 1 or not isinstance(parts, int):
        raise ValueError("general.alignment or split.count")
    return Header(path, metadata, tensors, -(-cursor.position // alignment) * alignment)


def _parse_tensor(cursor: _Cursor) -> Tensor:
    name = cursor.string()
    shape = tuple(cursor.number("Q") for _ in range(cursor.number("I")))
    return Tensor(name, shape, kind=cursor.number("I"), offset=cursor.number("Q"))
