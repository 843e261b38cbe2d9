"""Members of a zip file, also those compressed with zstd, which Python's own reader lacks.

The zip's directory is Python's to read; a zstd member is unpacked with Arrow's codec, its sizes and
checksum compared with the directory. Knows nothing of what the members mean.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import pyarrow as pa

from divtok.compressed import ALWAYS_ALLOWED, LARGEST_RATIO
from divtok.errors import DataError
from divtok.importers.imported import fault

ZSTANDARD = 93
LARGEST_MEMBER = 128 * 2**20

_ENCRYPTED = 0x1
_LOCAL_HEADER = b"PK\x03\x04"
_LOCAL_HEADER_BYTES = 30
# What the readers of a zip raise on bytes that are not what they should be.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    pa.ArrowException,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
)


class ZipMembers:
    """An open zip file: the names of its members, and the bytes of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise DataError(
                f"The file {path} cannot be read ({error.strerror}).", next_step="Check the path."
            ) from error
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            self._file.close()
            raise DataError(
                f"{path} is not a zip file, or it is cut off ({error}).",
                next_step="Copy it again, or check --format.",
            ) from error

    def __enter__(self) -> ZipMembers:
        try:
            self._check_sizes()
        except DataError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def _check_sizes(self) -> None:
        """Refuse a file whose members could not all be in it, or would unpack to far too much."""
        members, size = self._zip.infolist(), self.path.stat().st_size
        unpacked = sum(i.file_size for i in members if i.file_size <= LARGEST_MEMBER)
        if sum(i.compress_size for i in members if i.compress_size <= LARGEST_MEMBER) > size:
            why = "its members overlap"
        elif unpacked > ALWAYS_ALLOWED + LARGEST_RATIO * size:
            why = f"its {size} bytes would unpack to {unpacked}, over {LARGEST_RATIO} times as many"
        else:
            return
        raise DataError(
            f"{self.path} is no honest zip file: {why}.",
            next_step="Check where the file comes from.",
        )

    def names(self) -> list[str]:
        """Each name once, in the order of the directory; of equal ones the last entry counts."""
        return list(dict.fromkeys(self._zip.namelist()))

    def where(self, name: str) -> str:
        return f"{self.path}, member {name!r}"

    def read(self, name: str) -> bytes:
        info = self._zip.getinfo(name)
        where = self.where(name)
        if max(info.file_size, info.compress_size) > LARGEST_MEMBER:
            too_many = f"{info.file_size} bytes are more than the {LARGEST_MEMBER} allowed"
            raise fault(where, too_many, "Check where the file comes from.")
        if info.flag_bits & _ENCRYPTED:
            raise fault(where, "it is encrypted", "Decrypt the file first.")
        try:
            if info.compress_type == ZSTANDARD:
                return self._zstandard(info)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"compression method {info.compress_type} is not known")
            return self._zip.read(info)
        except _DAMAGE as error:
            again = "Copy the file again, or set such members aside with --skip-bad."
            raise fault(where, f"it cannot be unpacked ({error})", again) from error

    def _zstandard(self, info: zipfile.ZipInfo) -> bytes:
        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL_HEADER_BYTES)
        if len(header) < _LOCAL_HEADER_BYTES or header[:4] != _LOCAL_HEADER:
            raise zipfile.BadZipFile("its header is not where the directory says")
        name_bytes = int.from_bytes(header[26:28], "little")
        extra_bytes = int.from_bytes(header[28:30], "little")
        self._file.seek(name_bytes + extra_bytes, 1)
        packed = self._file.read(info.compress_size)
        if len(packed) != info.compress_size:
            raise zipfile.BadZipFile("the file ends before the member does")
        # Arrow reserves the size the directory gives, and refuses a stream that holds more.
        data = pa.Codec("zstd").decompress(packed, info.file_size, asbytes=True)
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile("its content does not match the directory's checksum")
        return data
