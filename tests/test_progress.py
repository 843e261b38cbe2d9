"""Progress on standard error: plain lines, a bar on a terminal, and nothing on standard output."""

from __future__ import annotations

import io
import sys

import pytest

from divtok import progress
from divtok.progress import grouped, say, track


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_with_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with track("trace", total=100, done=20) as advance:
        clock.now += 4
        advance(10)
        clock.now += 4
        advance(10)
        clock.now += 1
        advance(10)
        clock.now += 7
        advance(50)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.splitlines() == [
        "trace: 20 of 100 are there already",
        "trace: 40/100 (2.5/s, ETA 24 s)",
        "trace: 100/100 (5.0/s)",
    ]


def test_finished_work_takes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with track("grade", total=8, done=8) as advance:
        advance(0)
    assert capsys.readouterr().err == "grade: 8 of 8 are there already\n"


def test_no_work_at_all_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with track("grade", total=0):
        pass
    assert capsys.readouterr().err == ""


def test_an_error_goes_through() -> None:
    with pytest.raises(KeyError), track("grade", total=2):
        raise KeyError


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with track("generate tiny", total=4, done=1) as advance:
        advance(3)
    written = terminal.getvalue()
    assert written.startswith("generate tiny: 1 of 4 are there already\n")
    assert "4/4" in written
    assert "/s" in written


def test_saying_leaves_standard_output_alone(capsys: pytest.CaptureFixture[str]) -> None:
    say("one line")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "one line\n")


def test_equal_messages_are_one_with_their_places() -> None:
    said = [f"line {n}: no JSON (column {n % 2})" for n in range(3, 15)]
    assert grouped([*said, "line 20: empty", "no place"], numbers_alike=True) == [
        "line 3, 4, 5 and 9 more: no JSON (column 1)",
        "line 20: empty",
        "no place",
    ]
    assert grouped(said[:4]) == [
        "line 3, 5: no JSON (column 1)",
        "line 4, 6: no JSON (column 0)",
    ]
    assert grouped(["my logs/a.jsonl: x", "my logs/b.jsonl: x", "y", "y"]) == [
        "my logs/a.jsonl, my logs/b.jsonl: x",
        "y",
    ]
    assert grouped([]) == []
