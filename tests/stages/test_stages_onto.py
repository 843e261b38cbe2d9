"""Rows of a user's file find their responses again, and only their own."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stages_samples import small_config

from divtok.errors import DataError, UsageError
from divtok.importers import ImportOptions
from divtok.records import Confidence
from divtok.stages.import_files import import_files
from divtok.stages.onto import export_onto
from divtok.store.run import Run

said: list[str] = []


def row(question: str, response: str, **more: Any) -> dict[str, Any]:
    return {"question": question, "response": response, "generator": "g", **more}


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def imported(folder: Path, *files: Path, **options: Any) -> Run:
    """A run of these files whose responses have confidences that tell them apart: 0, 0.01, ..."""
    run = Run.create_or_open(folder)
    with run.lock():
        import_files(run, files, ImportOptions(**options))
        keys = [trajectory.key for trajectory in run.trajectories.read()]
        run.confidences.append(
            [Confidence(key, "nsl", {}, place / 100) for place, key in enumerate(keys)]
        )
    return run


def onto(run: Run, file: Path, out: Path | None = None) -> list[dict[str, Any]]:
    """What comes back, as JSON lines; what was said is in said."""
    pieces: list[bytes] = []
    said.clear()
    export_onto(run, small_config(), file, out=out, put=pieces.append, tell=said.append)
    text = b"".join(pieces) if out is None else out.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def values(found: Sequence[dict[str, Any]]) -> list[float | None]:
    return [row["divtok_nsl"] for row in found]


def test_the_rows_of_a_file_come_back_in_their_order(tmp_path: Path) -> None:
    given = [row("q2", "b", note=1), row("q1", "a", note=2), row("q1", "c", note=None)]
    file = write(tmp_path / "x.jsonl", given)
    run = imported(tmp_path / "run", file)
    found = onto(run, file)
    assert values(found) == [0.0, 0.01, 0.02]
    assert [{k: v for k, v in r.items() if not k.startswith("divtok_")} for r in found] == given
    assert said == []
    keys = [trajectory.key for trajectory in run.trajectories.read()]
    assert [row["divtok_key"] for row in found] == keys


def test_a_row_that_is_there_twice_has_its_confidences_twice(tmp_path: Path) -> None:
    one, other = row("q1", "a"), row("q2", "b")
    file = write(tmp_path / "x.jsonl", [one, other, one])
    run = imported(tmp_path / "run", file)
    found = values(onto(run, file))
    held = [t.text for t in run.trajectories.read()]
    assert [held[round(100 * value)] for value in found if value is not None] == ["a", "b", "a"]
    # As often as it likes, in whatever order: equal rows have equal responses.
    again = values(onto(run, write(tmp_path / "more.jsonl", [one, one, one, one, other])))
    assert [held[round(100 * value)] for value in again if value is not None] == [*"aaaab"]


def test_rows_without_a_response_are_empty_and_said(tmp_path: Path) -> None:
    run = imported(tmp_path / "run", write(tmp_path / "x.jsonl", [row("q1", "a")]))
    file = tmp_path / "other.jsonl"
    new = [row("q1", "b"), row("q1", "a"), row("q9", "a"), {"what": 1}]
    file.write_text("".join(json.dumps(each) + "\n" for each in new) + "no json\n")
    pieces: list[bytes] = []
    said.clear()
    export_onto(run, small_config(), file, out=None, put=pieces.append, tell=said.append)
    *lines, last = b"".join(pieces).splitlines()
    assert values([json.loads(line) for line in lines]) == [None, 0.0, None, None]
    assert last == b"no json"
    assert said == [
        f"export: 4 of 5 rows of {file} have no response in the run that is surely theirs, and "
        "empty columns: line 1, line 3, line 4, line 5"
    ]


def test_a_file_of_another_run_is_an_error(tmp_path: Path) -> None:
    run = imported(tmp_path / "run", write(tmp_path / "x.jsonl", [row("q1", "a")]))
    with pytest.raises(DataError, match="Not one row"):
        onto(run, write(tmp_path / "y.jsonl", [row("q2", "b")]))


def test_equal_responses_of_two_generators_are_told_apart(tmp_path: Path) -> None:
    given = [row("q1", "a"), {**row("q1", "a"), "generator": "h"}]
    file = write(tmp_path / "x.jsonl", given)
    run = imported(tmp_path / "run", file)
    assert values(onto(run, file)) == [0.0, 0.01]
    backwards = write(tmp_path / "y.jsonl", given[::-1])
    assert values(onto(run, backwards)) == [0.01, 0.0]
    nameless = [{"question": "q1", "response": "a"}, row("q1", "a")]
    assert values(onto(run, write(tmp_path / "z.jsonl", nameless))) == [None, 0.0]


def test_columns_that_were_named_for_the_import_are_known(tmp_path: Path) -> None:
    given = [{"q": {"text": "q1"}, "out": "a", "model": "g"}, {"q": {"text": "q2"}, "out": "b"}]
    given[1]["model"] = "g"
    file = write(tmp_path / "x.jsonl", given)
    run = imported(
        tmp_path / "run", file, columns={"question": "q.text", "response": "out"}, generator="me"
    )
    assert values(onto(run, file)) == [0.0, 0.01]


def test_questions_from_a_file_of_problems_are_known_by_id(tmp_path: Path) -> None:
    problems = write(
        tmp_path / "problems.jsonl",
        [{"id": name, "problem": f"What is {name}?", "answer": "1"} for name in "ab"],
    )
    file = write(
        tmp_path / "x.jsonl",
        [
            {"id": "b", "response": "It is 1.", "generator": "g"},
            {"id": "a", "response": "It is 1."},
        ],
    )
    run = imported(tmp_path / "run", file, problems=problems, generator="g")
    assert values(onto(run, file)) == [0.0, 0.01]


def test_conversations_are_known_by_what_is_said_in_them(tmp_path: Path) -> None:
    run = imported(tmp_path / "run", write(tmp_path / "x.jsonl", [row("q1", "a"), row("q2", "b")]))
    chats = [
        [{"role": "user", "content": "q2"}, {"role": "assistant", "content": "b"}],
        [{"role": "user", "content": t} for t in ("q1", "a", "q2", "b")],  # either may be meant
        [{"role": "user", "content": [{"type": "text", "text": "q1"}]}, {"content": "a"}],
    ]
    found = onto(run, write(tmp_path / "chats.jsonl", [{"messages": chat} for chat in chats]))
    assert values(found) == [0.01, None, 0.0]


def test_packed_files_are_packed_again_as_the_name_says(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", [row("q1", "a")])
    run = imported(tmp_path / "run", file)
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert values(onto(run, packed)) == [0.0]
    onto_packed = tmp_path / "out.jsonl.gz"
    export_onto(run, small_config(), packed, out=onto_packed, put=print, tell=print)
    assert values([json.loads(gzip.decompress(onto_packed.read_bytes()))]) == [0.0]


def test_a_table_comes_back_as_a_table(tmp_path: Path) -> None:
    run = imported(tmp_path / "run", write(tmp_path / "x.jsonl", [row("q1", "a"), row("q2", "b;")]))
    file = tmp_path / "x.csv"
    file.write_bytes('\ufeffquestion;response\r\nq2;"b;"\r\nq1;a\r\nq3;c\r\n'.encode())
    out = tmp_path / "out.csv"
    export_onto(run, small_config(), file, out=out, put=print, tell=said.append)
    text = out.read_bytes().decode()
    assert text.startswith("\ufeffquestion;response;divtok_key;")
    assert text.count("\r\n") == 4
    found = list(csv.DictReader(text.removeprefix("\ufeff").splitlines(), delimiter=";"))
    assert [each["divtok_nsl"] for each in found] == ["0.01", "0.0", ""]
    assert {*found[2].values()} == {"q3", "c", ""}


def test_what_is_found_is_added_once(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", [row("q1", "a")])
    run = imported(tmp_path / "run", file)
    out = tmp_path / "out.jsonl"
    onto(run, file, out)
    with pytest.raises(DataError, match="already"):
        onto(run, out)


def test_the_file_itself_is_never_written(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", [row("q1", "a")])
    run = imported(tmp_path / "run", file)
    before = file.read_bytes()
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    for out in (file, link):
        with pytest.raises(UsageError, match="stays as it is"):
            onto(run, file, out)
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.csv.gz"])
def test_another_format_is_refused(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "x.jsonl", [row("q1", "a")])
    run = imported(tmp_path / "run", file)
    with pytest.raises(UsageError, match="own format, jsonl"):
        onto(run, file, tmp_path / name)
    assert not (tmp_path / name).exists()
