"""Small JSON files with a checksum: what is written is what is read, or an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from divtok.errors import DataError
from divtok.store.checked_json import MAX_BYTES, CheckedJson

FILE = CheckedJson("thing", 3, marked_by="name", next_step="Make a thing.")
CONTENT = {"name": "a", "numbers": (1, 2.5), "more": {"x": None, "é": True}}


def test_the_content_comes_back_with_its_identity(tmp_path: Path):
    path = tmp_path / "folder" / "thing.json"
    identity = FILE.write(CONTENT, path)
    told, again = FILE.read(path)
    assert told == {"format": 3, "name": "a", "numbers": [1, 2.5], "more": {"x": None, "é": True}}
    assert identity == again == FILE.identity(CONTENT)
    assert json.loads(path.read_text(encoding="utf-8"))["checksum"] == identity
    assert FILE.identity({**CONTENT, "name": "b"}) != identity


def test_the_order_of_fields_is_no_content(tmp_path: Path):
    path = tmp_path / "thing.json"
    identity = FILE.write(CONTENT, path)
    tree = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(dict(reversed(tree.items()))))
    assert FILE.read(path)[1] == identity


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[1]", "it is no file of a thing"),
        ('{"format": 3}', "it is no file of a thing"),
        ('{"name": "a"}', "it is no file of a thing"),
        ('{"format": 3, "name": "a"}', "does not match its checksum"),
        ('{"format": 3, "name": "a", "checksum": 5}', "does not match its checksum"),
        ('{"format": 3, "name": NaN, "checksum": "x"}', "NaN is no number of JSON"),
        ('{"format": 3, "name": [-Infinity]}', "-Infinity is no number of JSON"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_anything_else_is_an_error_that_says_so(tmp_path: Path, text: str, said: str):
    path = tmp_path / "thing.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"The thing .*thing\.json cannot be read") as refused:
        FILE.read(path)
    assert said in refused.value.what
    assert refused.value.next_step == "Make a thing."


def test_files_that_cannot_be_text_are_refused(tmp_path: Path):
    path = tmp_path / "thing.json"
    with pytest.raises(DataError, match="No such file"):
        FILE.read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="codec can't decode"):
        FILE.read(path)
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(DataError, match="over 16,000,000 bytes"):
        FILE.read(path)
    with pytest.raises(DataError, match="Is a directory"):
        FILE.read(tmp_path)


def test_another_format_is_named(tmp_path: Path):
    path = tmp_path / "thing.json"
    CheckedJson("thing", 2, "name", "").write({**CONTENT, "divtok": "0.9"}, path)
    with pytest.raises(DataError, match="is of format 2; this version of divtok reads 3") as said:
        FILE.read(path)
    assert "0.9" in str(said.value.next_step)


def test_numbers_that_are_not_finite_are_not_written(tmp_path: Path):
    with pytest.raises(DataError, match=r"not finite: .*numbers"):
        FILE.write({"name": "a", "numbers": [1.0, float("nan")]}, tmp_path / "thing.json")
    assert list(tmp_path.iterdir()) == []
