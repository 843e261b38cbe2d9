"""Files that may be packed with gzip or zstd, or in UTF-16, read as what they hold, up to a size.

What a file is, its beginning says, not its name: browsers unpack files and keep their names. A
small file can unpack to far more than memory, so a packed one is refused where it does so. Text in
UTF-16, which PowerShell writes, comes as UTF-8.
"""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import IO, Any

from divtok.errors import DataError

CODECS = {".gz": "gzip", ".zst": "zstd"}
_BEGINNINGS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
# Behind these two zeros it would be UTF-32, which nothing writes into logs.
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What a file may unpack to; logs shrink to a tenth or a thirtieth of their size.
LARGEST_RATIO = 200
ALWAYS_ALLOWED = 64 * 2**20


def plain_name(path: Path) -> str:
    """The file's name without the ending of a packed file."""
    return path.stem if path.suffix in CODECS else path.name


def is_packed(path: Path) -> bool:
    return _codec_of(path) is not None


def open_plain(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked where it is packed, text of two bytes a letter as UTF-8."""
    codec = _codec_of(path)
    opened = path.open("rb") if codec is None else _buffered(_Unpacked(path, codec))
    try:
        recoded = opened.peek(2)[:2] in _UTF16
    except BaseException:
        opened.close()
        raise
    return _buffered(_Recoded(path, opened)) if recoded else opened


def _codec_of(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(max(map(len, _BEGINNINGS)))
    return next((codec for mark, codec in _BEGINNINGS.items() if start.startswith(mark)), None)


def _buffered(raw: io.RawIOBase) -> io.BufferedReader:
    return io.BufferedReader(raw, 2**16)


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


class _Recoded(io.RawIOBase):
    """Text in UTF-16 as a stream of UTF-8."""

    def __init__(self, path: Path, opened: io.BufferedReader) -> None:
        self._path = path
        self._opened = opened
        self._decoder = codecs.getincrementaldecoder("utf-16")()
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ended = False
        while not self._waiting and not ended:
            data = self._opened.read(2**15)
            ended = not data
            try:
                text = self._decoder.decode(data, final=ended)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"The file {self._path} begins as UTF-16 and is none ({error.reason}).",
                    next_step="Save it as UTF-8.",
                ) from error
            self._waiting = text.encode()
        count = min(len(buffer), len(self._waiting))
        buffer[:count], self._waiting = self._waiting[:count], self._waiting[count:]
        return count

    def close(self) -> None:
        self._opened.close()
        super().close()
