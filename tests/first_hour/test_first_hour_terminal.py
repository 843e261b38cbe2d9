"""Somebody who lives in a terminal: pipes, narrow windows, old encodings, full disks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Outcome
from first_hour_samples import in_a_process, in_a_shell

from divtok.store.run import Run

Works = Callable[..., Outcome]


def test_the_best_figure_is_marked_in_a_pipe(first: Path, works: Works) -> None:
    assert re.search(r"\d\*|\*\d", works("evaluate", "first").out)


def test_divergent_tokens_are_marked_in_a_pipe(first: Path, works: Works) -> None:
    counted = max(Run.open(first).counts.read(), key=lambda row: row.count)
    assert counted.count > 0
    said = works("show", "first", counted.key).out
    assert len(re.findall(r"\[[^\[\]]*\]", said)) >= counted.count


def test_no_sentence_of_a_caption_is_printed_twice(first: Path, works: Works) -> None:
    text = re.sub(r"\s+", " ", works("evaluate", "first").out)
    sentences = Counter(s for s in re.split(r"(?<=[.:;]) ", text) if len(s) > 40)
    assert [s for s, times in sentences.items() if times > 1] == []


@pytest.mark.parametrize("verb", ["evaluate", "sweep"])
def test_tables_fit_into_sixty_columns(
    verb: str, first: Path, works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = works(verb, "first").out.splitlines()
    assert max(map(len, lines)) <= 60
    assert not any("…" in line for line in lines)


def test_short_help(works: Works) -> None:
    assert "Usage" in works("-h").out
    assert "--limit" in works("run", "-h").out


def test_the_shell_can_complete(works: Works) -> None:
    assert "--install-completion" in works("--help").out


def test_a_reader_who_leaves_is_no_error(first: Path) -> None:
    said = in_a_shell("divtok evaluate first | head -1")
    assert said.code == 0
    assert said.out.strip()
    assert said.err == ""


def test_a_full_disk_is_one_line(first: Path) -> None:
    said = in_a_shell("divtok evaluate first > /dev/full")
    assert said.code == 1
    assert "No space left" in said.err
    assert "Traceback" not in said.err
    assert "Exception" not in said.err
    assert "defect" not in said.err


def test_a_terminal_without_unicode(first: Path) -> None:
    said = in_a_process("evaluate", "first", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert said.code == 0
    assert said.out.isascii()
    assert "?" not in said.out


def test_a_folder_that_is_none(works: Works, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = in_a_process("run", "--family", "tiny", "--limit", "1", "--out", tmp_path / "file" / "x")
    assert said.code == 1
    assert "Traceback" not in said.err
    assert "defect" not in said.err
