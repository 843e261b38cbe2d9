"""An import from standard input and from pipes, and what it says of bad rows."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from console import Command

from divtok.stages.bad_rows import BAD_ROWS_FILE
from divtok.store.run import Run

ROWS = [{"question": f"{n} + 1?", "response": str(n + 1), "model": "m"} for n in range(4)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def comes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have bytes come from standard input."""

    def come(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    return come


def texts(run: str) -> list[str]:
    return [t.text for t in Run.open(Path("runs") / run).trajectories.read()]


@pytest.mark.parametrize(
    "data", [LINES, gzip.compress(LINES, mtime=0), json.dumps(ROWS).encode()], ids=len
)
def test_standard_input_is_a_file(data: bytes, comes: Any, divtok: Command) -> None:
    comes(data)
    said = divtok("import", "-", "--name", "mine")
    assert said.code == 0, said.err
    assert texts("mine") == ["1", "2", "3", "4"]
    assert {t.benchmark for t in Run.open(Path("runs/mine")).trajectories.read()} == {"stdin"}
    assert "divtok-" not in said.out + said.err


def test_the_same_text_again_is_the_same_file_and_another_is_added(
    comes: Any, divtok: Command
) -> None:
    answers: list[str] = []
    for data in (LINES, LINES, LINES.replace(b"+ 1?", b"+ 1 =")):
        comes(data)
        said = divtok("import", "-", "--name", "mine")
        assert said.code == 0
        answers.append(said.out.splitlines()[0])
    first = answers[0].split(":")[0]
    assert answers[0] == f"{first}: 4 rows, 4 trajectories"
    assert answers[1] == f"{first}: is there already, nothing changed"
    assert answers[2].endswith(": 4 rows, 4 trajectories")
    assert not answers[2].startswith(first)
    assert len(texts("mine")) == 8


def test_errors_and_notes_name_no_folder_that_is_gone(comes: Any, divtok: Command) -> None:
    comes(LINES + b"[]\n")
    said = divtok("import", "-", "--name", "mine")
    assert said.code == 1
    assert said.error_line.startswith("divtok: stdin.")
    assert ", line 5: not a JSON object." in said.error_line
    comes(LINES + b"{\n")
    said = divtok("import", "-", "--name", "mine", "--json")
    assert said.code == 3
    [file] = json.loads(said.out)["files"]
    assert (file["rows"], file["set_aside"]) == (5, 1)
    assert not any("/" in note for note in file["notes"] if "ls protocols" not in note)


@pytest.mark.parametrize("data", [b"", None])
def test_nothing_is_no_log(data: bytes | None, comes: Any, divtok: Command) -> None:
    comes(b"" if data is None else data)
    if data is None:
        sys.stdin = None
    said = divtok("import", "-", "--name", "mine")
    assert said.code == 1
    assert "tandard input" in said.error_line
    assert not Path("runs").exists()


def test_a_named_pipe_is_read_once(divtok: Command) -> None:
    os.mkfifo("log")
    writer = threading.Thread(target=lambda: Path("log").write_bytes(LINES))
    writer.start()
    said = divtok("import", "log", "--name", "mine")
    writer.join()
    assert said.code == 0, said.err
    assert texts("mine") == ["1", "2", "3", "4"]
    assert said.out.startswith("log.")


def test_problems_may_come_through_a_pipe(comes: Any, divtok: Command) -> None:
    Path("log.jsonl").write_bytes(
        b"".join(
            json.dumps({"id": str(n), "response": "1", "model": "m"}).encode() + b"\n"
            for n in range(2)
        )
    )
    comes(
        b"".join(
            json.dumps({"id": str(n), "problem": f"{n}?", "answer": "1"}).encode() + b"\n"
            for n in range(2)
        )
    )
    said = divtok("import", "log.jsonl", "--problems", "-", "--name", "mine")
    assert said.code == 0, said.err
    assert [p.question for p in Run.open(Path("runs/mine")).problems.read()] == ["0?", "1?"]


def test_twelve_bad_lines_are_one_message(divtok: Command) -> None:
    lines = LINES.splitlines() * 3
    mixed = [part for n, line in enumerate(lines) for part in (line, b"WARN %d" % n)]
    Path("log.jsonl").write_bytes(b"\n".join([*mixed, LINES]))
    said = divtok("import", "log.jsonl", "--name", "mine")
    assert said.code == 3
    assert said.err.splitlines()[-2:] == [
        "import: 12 of 28 rows of log.jsonl were set aside: line 2, 4, 6 and 9 more: not valid "
        "JSON (Expecting value, column 1)",
        f"import: the reasons are in {Path('runs/mine') / BAD_ROWS_FILE}",
    ]
    again = divtok("import", "log.jsonl", "--name", "mine")
    assert (again.code, again.err.splitlines()[-2:]) == (3, said.err.splitlines()[-2:])
    assert divtok("import", "log.jsonl", "--name", "mine", "--skip-bad").code == 0
    refused = divtok("import", "log.jsonl", "--name", "other", "--strict")
    assert refused.code == 1
    assert refused.error_line.startswith("divtok: log.jsonl, line 2: not valid JSON")
    assert not Path("runs/other").exists()


def test_files_that_are_read_alike_are_said_in_one_line(divtok: Command) -> None:
    for n, row in enumerate(ROWS):
        Path(f"log{n}.jsonl").write_text(json.dumps(row) + "\n")
    said = divtok("import", "log*.jsonl", "--name", "mine")
    assert said.code == 0
    assert [line for line in said.err.splitlines() if "question from" in line] == [
        "import: log0.jsonl, log1.jsonl, log2.jsonl and 1 more: question from 'question', response "
        "from 'response', generator from 'model'"
    ]


def test_a_row_that_is_there_twice_is_said(divtok: Command) -> None:
    Path("log.jsonl").write_bytes(LINES + LINES.splitlines()[1])
    said = divtok("import", "log.jsonl", "--name", "mine")
    assert said.code == 0
    assert (
        "import: log.jsonl: line 5 repeats line 2, word for word, which counts as a further "
        "sample: take out what was logged twice"
    ) in said.err.splitlines()
    assert len(texts("mine")) == 5
