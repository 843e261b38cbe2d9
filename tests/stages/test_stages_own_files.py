"""Columns added to a user's own files: every byte that was there stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from divtok.errors import DataError
from divtok.stages.own_files import own_file
from divtok.stages.rows import Column

COLUMNS = [Column("n", "whole"), Column("why", "foreign")]
ROWS: list[dict[str, Any] | None] = [{"n": 1, "why": None}, None, {"n": 3, "why": "=x"}]


def written(path: Path) -> bytes:
    pieces: list[bytes] = []
    own_file(path).write(COLUMNS, lambda number: ROWS[number], pieces.append)
    return b"".join(pieces)


def made(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def test_json_lines_keep_numbers_blanks_order_and_what_is_no_json(tmp_path: Path) -> None:
    text = '\ufeff{"b": 1.0e5, "a": "é"}  \r\n\n{ }\nno json\n'
    path = made(tmp_path, "x.jsonl", text)
    rows = list(own_file(path).rows())
    assert [row.where for row in rows] == ["line 1", "line 3", "line 4"]
    assert [row.values for row in rows] == [{"b": 1e5, "a": "é"}, {}, None]
    assert written(path).decode() == (
        '\ufeff{"b": 1.0e5, "a": "é", "n": 1, "why": null}  \r\n\n'
        '{"n": null, "why": null }\nno json\n'
    )


def test_the_last_line_may_have_no_end(tmp_path: Path) -> None:
    path = made(tmp_path, "x.jsonl", '{"a": {"b": "}"}}')
    assert written(path) == b'{"a": {"b": "}"}, "n": 1, "why": null}'


def test_a_json_array_keeps_its_layout(tmp_path: Path) -> None:
    text = '[\n  {\n    "a": "]}",\n    "b": [1]\n  },\n  {"c": 1}, {}\n]\n'
    path = made(tmp_path, "x.json", text)
    assert [row.values for row in own_file(path).rows()] == json.loads(text)
    assert written(path).decode() == (
        '[\n  {\n    "a": "]}",\n    "b": [1],\n    "n": 1,\n    "why": null\n  },\n'
        '  {"c": 1, "n": null, "why": null}, {"n": 3, "why": "=x"}\n]\n'
    )


@pytest.mark.parametrize("text", ["[1, 2", "[1 2]", "[] x", "[{]"])
def test_what_is_no_array_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="is no JSON array"):
        own_file(made(tmp_path, "x.json", text))


def test_csv_keeps_delimiter_mark_quotes_and_line_ends(tmp_path: Path) -> None:
    text = '\ufeffa;"b\n1"\r\n"x;1";=y\r\n\r\n2;"three\nlines"\r\n4;5'
    path = made(tmp_path, "x.csv", text)
    rows = list(own_file(path).rows())
    assert [row.values for row in rows] == [
        {"a": "x;1", "b\n1": "=y"},
        {"a": "2", "b\n1": "three\nlines"},
        {"a": "4", "b\n1": "5"},
    ]
    assert written(path).decode() == (
        '\ufeffa;"b\n1";n;why\r\n"x;1";=y;1;\r\n\r\n2;"three\nlines";;\r\n4;5;3;\'=x'
    )


def test_csv_rows_of_another_length(tmp_path: Path) -> None:
    path = made(tmp_path, "x.csv", "a,b\n1\n1,2,3\n4,5\n")
    assert [row.values for row in own_file(path).rows()] == [{"a": "1"}, None, {"a": "4", "b": "5"}]
    # What is added stays below its name; a row that is too long has no such place.
    assert written(path).decode() == "a,b,n,why\n1,,1,\n1,2,3\n4,5,3,'=x\n"


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("x.tsv", "a,b\tc\n1\t2\n", {"a,b", "c"}),
        ("x.csv", "a|b\n1|2\n", {"a", "b"}),
        ("x.csv", '"a;b",c\n1,2\n', {"a;b", "c"}),
        ("x.csv", "alone\n1\n", {"alone"}),
    ],
)
def test_the_delimiter_is_found(tmp_path: Path, name: str, text: str, names: set[str]) -> None:
    (row,) = own_file(made(tmp_path, name, text)).rows()
    assert row.values is not None
    assert set(row.values) == names


@pytest.mark.parametrize("text", ["a,a\n1,2\n", 'a,b\n"1,2\n', ""])
def test_broken_csv_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError):
        list(own_file(made(tmp_path, "x.csv", text)).rows())


def test_csv_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("a,b\né,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        list(own_file(path).rows())


def test_parquet_keeps_types_metadata_and_row_groups(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.list_(pa.string()))], metadata={"who": "me"})
    table = pa.table({"a": [1, 2, None], "b": [["x"], None, []]}, schema=schema)
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=2, compression="gzip")
    assert [row.where for row in own_file(path).rows()] == ["row 1", "row 2", "row 3"]
    out = tmp_path / "out.parquet"
    out.write_bytes(written(path))
    found = pq.read_table(out)
    assert found.select(["a", "b"]).equals(table)
    assert found.schema.metadata[b"who"] == b"me"
    assert found.column("n").to_pylist() == [1, None, 3]
    assert found.column("why").to_pylist() == [None, None, "=x"]
    with pq.ParquetFile(out) as file:
        assert file.num_row_groups == 2
        assert file.metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize("text", ["hello", "", "<xml/>"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="divtok export"):
        own_file(made(tmp_path, "x.log", text))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        own_file(tmp_path / "none.csv")
