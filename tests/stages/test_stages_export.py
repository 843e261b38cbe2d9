"""Rows as files: exact bytes, foreign text that does nothing, names that say the format."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import os
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from stages_samples import Row, handmade_run, small_config

from divtok.compressed import open_plain
from divtok.errors import DataError, UsageError
from divtok.records import Problem
from divtok.stages.export import csv_cell, csv_row, export, format_of
from divtok.stages.formats import Format
from divtok.stages.rows import Column
from divtok.store.run import Run

FORMULAS = ["=1+1", "+1", "-5", "@x", "\tx", "＝1"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    rows = [Row(values={"dtc_lin": 0.68}, count=3), Row(sample=1, values={"dtc_lin": None})]
    return handmade_run(tmp_path / "run", rows)


def put_out(run: Run, format_name: Format | None = None, **options: bool) -> bytes:
    pieces: list[bytes] = []
    export(
        run,
        small_config(),
        out=None,
        put=pieces.append,
        tell=print,
        format_name=format_name,
        **options,
    )
    return b"".join(pieces)


def test_csv_is_exactly_this(run: Run) -> None:
    names = (
        "key,benchmark,problem_id,sample,generator,question,response,finish_reason,gold,answer,"
        "verdict,verdict_reason,dtc_lin,count,tokens,theta,reason"
    )
    who = "bench/divtok/tiny-0.5m/a/{0},bench,a,{0},divtok/tiny-0.5m,Question a?,"
    who += "\\boxed{{1}},stop,1,1"
    assert put_out(run, tokens=False).decode().split("\n") == [
        names,
        who.format(0) + ",correct,,0.68,3,4,0.05,",
        who.format(1) + ",correct,,,,,,no numbers",
        "",
    ]


def test_json_lines_are_ascii_objects_in_order(run: Run) -> None:
    lines = put_out(run, Format.JSONL).split(b"\n")
    assert lines.pop() == b""
    first, second = map(json.loads, lines)
    assert (first["dtc_lin"], second["dtc_lin"], second["reason"]) == (0.68, None, "no numbers")
    assert [token["jsd_bits"] for token in first["suspect_tokens"]] == [0.3, 0.6, 0.9]
    assert all(line.isascii() for line in lines)


def test_parquet_has_types_and_nulls(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "new" / "rows.parquet"
    assert export(run, small_config(), out=out, put=print, tell=print) == 2
    table = pq.read_table(out)
    assert table.column("dtc_lin").to_pylist() == [0.68, None]
    assert table.column("count").to_pylist() == [3, None]
    assert str(table.schema.field("count").type) == "int64"
    assert table.column("suspect_tokens").to_pylist()[0][0]["position"] == 1


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.jsonl.zst", "rows.ndjson"])
def test_the_name_says_format_and_packing(run: Run, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    export(run, small_config(), out=out, put=print, tell=print)
    kind = Format.CSV if "csv" in name else Format.JSONL
    with open_plain(out) as file:
        assert file.read() == put_out(run, kind)
    assert out.read_bytes()[:2] == {"gz": b"\x1f\x8b", "zst": b"(\xb5"}.get(
        name[-3:].strip("."), b'{"'
    )


def test_a_packed_file_is_the_same_each_time(run: Run, tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        export(run, small_config(), out=tmp_path / name, put=print, tell=print)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == put_out(run)


@pytest.mark.parametrize(
    ("out", "given"),
    [
        ("x.csv", Format.JSONL),
        ("x.parquet", Format.CSV),
        (None, Format.PARQUET),
        ("x.parquet.gz", None),
    ],
)
def test_what_cannot_be_meant_is_refused(out: str | None, given: Format | None) -> None:
    with pytest.raises(UsageError):
        format_of(None if out is None else Path(out), given)


def test_a_name_without_an_ending_takes_any_format() -> None:
    assert format_of(Path("rows"), Format.JSONL) is Format.JSONL
    assert format_of(Path("rows.txt"), None) is Format.CSV


@pytest.mark.parametrize("text", FORMULAS)
def test_foreign_text_is_no_formula_in_csv(text: str) -> None:
    assert csv_cell(Column("answer", "foreign"), text) == "'" + text
    assert csv_cell(Column("value", "number"), -0.5) == -0.5


@pytest.mark.parametrize("text", ['a"b', "a,b", "a\nb", "a\rb", "a\r\nb", "é\u2028x", " a "])
def test_cells_come_back_as_they_were(text: str) -> None:
    line = csv_row([text, "end"])
    assert line.endswith("end\n")
    assert list(csv.reader(io.StringIO(line, newline=""), strict=True)) == [[text, "end"]]


def test_hostile_texts_come_back_from_every_format(tmp_path: Path) -> None:
    hostile = "\x1b[31m\"; DROP,\r\n\u202e=cmd|'/c'!A0"
    given = handmade_run(tmp_path / "run", [Row()])
    (row,) = given.trajectories.read()
    with given.lock():
        given.trajectories.append([dataclasses.replace(row, text=hostile)])
        given.problems.replace([Problem("a", "bench", "=HYPERLINK(1)", hostile)])
    found = next(csv.DictReader(io.StringIO(put_out(given).decode(), newline=""), strict=True))
    assert (found["response"], found["gold"]) == (hostile, hostile)
    assert found["question"] == "'=HYPERLINK(1)"
    found = json.loads(put_out(given, Format.JSONL))
    assert (found["response"], found["question"]) == (hostile, "=HYPERLINK(1)")


def test_a_run_without_responses_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no responses"):
        put_out(handmade_run(tmp_path, []))


def test_a_folder_is_no_file_and_a_pipe_stays_one(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        export(run, small_config(), out=tmp_path, put=print, tell=print)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    export(run, small_config(), out=pipe, put=print, tell=print)
    reader.join(10)
    assert found == [put_out(run)]
    assert pipe.is_fifo()
