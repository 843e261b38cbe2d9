"""Files are read as what they hold, whatever they are called."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from divtok.compressed import is_packed, open_plain
from divtok.errors import DataError

TEXT = "Größe: 7 \N{EURO SIGN} \N{GRINNING FACE}\n" * 5000


def read(path: Path) -> bytes:
    with open_plain(path) as file:
        return file.read()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a"])
def test_packing_is_told_by_content(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    data = TEXT.encode()
    for packed, given in (
        (False, data),
        (True, gzip.compress(data)),
        (True, pa.Codec("zstd").compress(data, asbytes=True)),
    ):
        path.write_bytes(given)
        assert is_packed(path) is packed
        assert read(path) == data


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_utf_16_comes_as_utf_8(encoding: str, packed: bool, tmp_path: Path) -> None:
    mark = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}[encoding]
    data = mark + TEXT.encode(encoding)
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert read(path) == TEXT.encode()
    with open_plain(path) as file:
        assert file.readline() == TEXT.encode().split(b"\n")[0] + b"\n"


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfea", codecs.BOM_UTF16_LE + "a\ud800b".encode("utf-16-le", "surrogatepass")],
)
def test_what_only_begins_as_utf_16_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(DataError, match="begins as UTF-16 and is none"):
        read(path)


@pytest.mark.parametrize("data", [b"", b"\x1f", b"\xff", b"{}"])
def test_short_files_are_what_they_are(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(data)
    assert (read(path), is_packed(path)) == (data, False)
