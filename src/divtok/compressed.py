"""Files that may be packed with gzip or zstd, read as what they hold, up to a size.

A small file can unpack to far more than memory, so a packed one is refused where it does so.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

from divtok.errors import DataError

CODECS = {".gz": "gzip", ".zst": "zstd"}
# What a file may unpack to; logs shrink to a tenth or a thirtieth of their size.
LARGEST_RATIO = 200
ALWAYS_ALLOWED = 64 * 2**20


def plain_name(path: Path) -> str:
    """The file's name without the ending of a packed file."""
    return path.stem if path.suffix in CODECS else path.name


def open_plain(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked where its name says that it is packed."""
    codec = CODECS.get(path.suffix)
    return path.open("rb") if codec is None else io.BufferedReader(_Unpacked(path, codec), 2**16)


class _Unpacked(io.RawIOBase):
    """A packed file as a stream of what is in it, which ends in an error where that is too much."""

    def __init__(self, path: Path, codec: str) -> None:
        import pyarrow as pa  # slow to load, and most files are not packed

        self._path = path
        self._left = ALWAYS_ALLOWED + LARGEST_RATIO * path.stat().st_size
        self._errors = (pa.ArrowException, OSError, ValueError)
        self._file = path.open("rb")
        self._stream: Any = pa.CompressedInputStream(pa.PythonFile(self._file), codec)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except self._errors as error:
            raise DataError(
                f"The file {self._path} cannot be unpacked ({error}).",
                next_step="Copy it again, or unpack it yourself.",
            ) from error
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"The file {self._path} unpacks to over {LARGEST_RATIO} times its size.",
                next_step="Check where the file comes from, or unpack it yourself.",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
