"""Which files are meant and in what format: patterns, folders, packed files, tables."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from importers_samples import BATCH_OUTPUT, HF_LOG, LM_EVAL, SAMPLES, rows_of, write_lines

from divtok import compressed
from divtok.errors import DataError, UsageError
from divtok.importers import BadRow, Imported, ImportOptions, read_rows
from divtok.importers.formats import parquet
from divtok.importers.found import Found, found_files
from divtok.importers.mappings import imported_rows
from divtok.stages.import_files import import_files
from divtok.store.run import Run

ROWS = [
    {"question": "1 + 1?", "response": 'He said "2",\nand no more.', "model": "m", "id": "a"},
    {"question": "2 + 2?", "response": "4", "model": "m", "id": "b"},
]


def packed(path: Path, data: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    else:
        path.write_bytes(pa.Codec("zstd").compress(data, asbytes=True))
    return path


def as_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def said(rows: list[Imported]) -> list[tuple[Any, ...]]:
    return [(r.question, r.response, r.generator, r.problem_id) for r in rows]


EXPECTED = [tuple(row.values()) for row in ROWS]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv.gz", "a.tsv.zst"])
def test_packed_files_are_read_like_plain_ones(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if ".jsonl" in name:
        data = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    else:
        plain = as_csv(tmp_path / "plain", ROWS, "\t" if ".tsv" in name else ",")
        data = plain.read_bytes()
    path.write_bytes(data) if path.suffix == ".jsonl" else packed(path, data)
    found = found_files([path])
    assert (found.files, found.format) == ([path], "jsonl" if ".jsonl" in name else "csv")
    rows = rows_of(path, found.format)
    assert said(rows) == EXPECTED
    assert {row.benchmark for row in rows} == {"a"}


def test_a_packed_log_of_lm_eval_keeps_its_task(tmp_path: Path) -> None:
    path = packed(tmp_path / f"{LM_EVAL.name}.gz", LM_EVAL.read_bytes())
    assert found_files([path]).format == "lm-eval"
    assert {row.benchmark for row in rows_of(path, "lm-eval", generator="m")} == {"arith_easy"}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_small_file_cannot_take_all_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "ALWAYS_ALLOWED", 1000)
    line = json.dumps({**ROWS[0], "response": "a" * 10_000}).encode() + b"\n"
    path = packed(tmp_path / name, line * 200)
    assert len(line) * 200 > 200 * path.stat().st_size + 1000
    with pytest.raises(DataError, match="unpacks to over 200 times its size"):
        rows_of(path, "jsonl")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    lines = [json.dumps({**row, "response": f"{n}" * 30}) for n, row in enumerate(ROWS * 50)]
    path = packed(tmp_path / name, "\n".join(lines).encode())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be unpacked"):
        rows_of(path, "jsonl", columns={"id": ""})


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_tables_in_text(tmp_path: Path, delimiter: str) -> None:
    path = as_csv(tmp_path / ("a.csv" if delimiter == "," else "a.tsv"), ROWS, delimiter)
    assert said(rows_of(path, "csv")) == EXPECTED
    rows = rows_of(path, "csv")
    assert [row.where for row in rows] == [f"{path}, line 3", f"{path}, line 4"]


def test_texts_of_a_table_stay_as_they_are(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "answer": "007", "sample": 3, "extracted": "", "correct": "1"}]
    (row,) = rows_of(as_csv(tmp_path / "a.csv", rows), "csv")
    assert (row.answer, row.sample) == ("007", 3)
    assert [(v.verdict.value, v.extracted) for v in row.verdicts] == [("correct", None)]


def test_a_response_may_be_long(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "a.csv", [{**ROWS[0], "response": "x" * 200_000}])
    assert len(rows_of(path, "csv")[0].response) == 200_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"question,response\nq,r,s\n", "line 2: it has 3 cells for 2 columns"),
        (b"question,question\nq,r\n", "names a column twice: 'question'"),
        (b"question,response\nq,\xff\n", "cannot be read .*utf-8"),
        (b'question,response\nq,"r\n', "cannot be read .*unexpected end of data"),
        (b"question,response\n", "has no rows"),
        (b"", "has no rows"),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(DataError, match=why):
        rows_of(path, "csv", generator="m")


def test_many_columns_are_checked_for_double_names_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join([*(f"column {n}" for n in range(30_000)), "column 7"]) + "\n")
    started = time.process_time()
    with pytest.raises(DataError, match="names a column twice: 'column 7'"):
        rows_of(path, "csv")
    assert time.process_time() - started < 3


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([*ROWS, {**ROWS[1], "id": "c"}]), path)
    found = found_files([path])
    assert found.format == "parquet"
    rows = rows_of(path, "parquet", columns={"id": ""})
    assert [(r.question, r.response, r.generator) for r in rows[:2]] == [e[:3] for e in EXPECTED]
    assert rows[2].where == f"{path}, row 3"


def test_parquet_cannot_take_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    long = "x" * 100_000
    rows = [{**ROWS[0], "id": str(n), "response": long} for n in range(300)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert len(long) * 300 > 200 * path.stat().st_size
    monkeypatch.setattr(parquet, "ALWAYS_ALLOWED", 0)
    with pytest.raises(DataError, match="unpacks to over 200 times"):
        rows_of(path, "parquet")


def test_other_bytes_are_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        rows_of(path, "parquet")


def test_mappings_need_no_file() -> None:
    rows = [{**ROWS[0], "finish_reason": float("nan"), "correct": True}, {**ROWS[1], "response": 4}]
    told: list[str] = []
    good, bad = imported_rows(rows, source="frame", skip_bad=True, tell=told.append)
    assert isinstance(good, Imported)
    assert said([good]) == EXPECTED[:1]
    assert [v.verdict.value for v in good.verdicts] == ["correct"]
    assert isinstance(bad, BadRow)
    assert (bad.where, bad.why) == ("frame, row 2", "frame, row 2: 'response' is not text.")
    assert told[0].startswith("frame: question from 'question', response from 'response'")
    (row,) = imported_rows([{"x": "1 + 1?", "text": "2"}], columns={"question": "x"})
    assert isinstance(row, Imported)
    assert (row.question, row.response, row.where) == ("1 + 1?", "2", "the data, row 1")


def names(found: Found) -> list[str]:
    return [file.name for file in found.files]


def test_patterns_and_folders_are_the_files_in_them(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        write_lines(tmp_path / name, ROWS)
    assert names(found_files([tmp_path / "*.jsonl"])) == ["a.jsonl", "b.jsonl"]
    assert names(found_files([tmp_path / "[b]*", tmp_path / "*.jsonl"])) == ["b.jsonl", "a.jsonl"]
    assert names(found_files([tmp_path])) == ["a.jsonl", "b.jsonl"]
    assert names(found_files([tmp_path / "c.txt"])) == ["c.txt"]
    with pytest.raises(DataError, match=r"No file matches .*\*\.json\."):
        found_files([tmp_path / "*.json"])
    with pytest.raises(DataError, match="There is no file"):
        found_files([tmp_path / "nowhere.jsonl"])


def test_a_name_with_brackets_is_a_name_where_it_is_there(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a[1].jsonl", ROWS)
    assert found_files([path]).files == [path]


def test_the_format_is_told_by_content(tmp_path: Path) -> None:
    for file, expected in (
        (LM_EVAL, "lm-eval"),
        (BATCH_OUTPUT, "openai-batch"),
        (HF_LOG, "inspect"),
        (SAMPLES / "inspect" / "failing.json", "inspect"),
        (SAMPLES / "mlflow" / "traces.json", "mlflow"),
        (SAMPLES / "phoenix" / "spans.json", "phoenix"),
    ):
        found = found_files([file])
        assert (found.format, found.notes) == (expected, [f"taken for {expected}: {file.name}"])
        copy = shutil.copy(file, tmp_path / f"copy{file.suffix}")
        assert found_files([copy]).format == expected


def test_what_is_not_clear_is_asked(tmp_path: Path) -> None:
    other = tmp_path / "a.json"
    other.write_text('{"some": "thing"}')
    with pytest.raises(DataError, match=r"no format that can be told.*--format: csv, inspect"):
        found_files([other])
    assert found_files([other], "inspect").files == [other]
    with pytest.raises(UsageError, match=r"several formats: lm-eval .*, inspect \(hf\.eval\)"):
        found_files([LM_EVAL, HF_LOG])
    both = tmp_path / "both.jsonl"
    write_lines(both, [{"custom_id": 1, "response": {}, "doc": {}, "resps": [], "arguments": {}}])
    with pytest.raises(
        DataError, match=r"several formats\. Name it with --format: lm-eval, openai"
    ):
        found_files([both])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file of a known format"):
        found_files([tmp_path / "empty"])


def test_a_folder_of_lm_eval_is_read_as_far_as_it_holds_responses(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    folder = SAMPLES / "lm-eval-tasks"
    with run.lock():
        found = import_files(run, [folder], ImportOptions())
    assert [file.trajectories for file in found] == [4, 3]
    notes = found[0].notes
    assert notes[0].startswith("not read, for it holds no log: results_")
    assert notes[1].startswith("taken for lm-eval: samples_sums_choice_")
    assert notes[2].startswith("left out: ")
    assert "log-likelihoods of given texts and no generated response" in notes[2]
    choice = next(folder.glob("samples_sums_choice_*"))
    (tmp_path / "choices").mkdir()
    for name in ("a", "b"):
        text = f"\n{' ' * ord(name)}" + choice.read_text()
        (tmp_path / "choices" / f"samples_{name}.jsonl").write_text(text)
    for path in (choice, tmp_path / "choices"):
        with run.lock(), pytest.raises(DataError, match="multiple-choice or log-likelihood task"):
            import_files(run, [path], ImportOptions())
    assert {t.benchmark for t in run.trajectories.read()} == {"sums_hashes", "sums_letters"}


def test_the_same_folder_again_changes_nothing(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    folder = SAMPLES / "lm-eval-tasks"
    for already in (False, True):
        with run.lock():
            found = import_files(run, [folder], ImportOptions())
        assert {file.already for file in found} == {already}
    assert len(run.trajectories.read()) == 7


def test_rows_are_told_from_what_is_read(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "a.csv", ROWS)
    _, notes = read_rows(path, ImportOptions("csv"))
    assert notes == [
        f"{path}: question from 'question', response from 'response', id from 'id', generator from "
        "'model'"
    ]
