"""What leaves on standard output as data: exact in a pipe, harmless on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from divtok.screen import coloured, put, put_data

DATA = "a,\x1b[31mé\u202e\r\n".encode()


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_data_in_a_pipe_is_what_it_is_whatever_the_encoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    put("first")
    put_data(DATA)
    put_data(b"\xff")
    assert out.getvalue() == b"first\n" + DATA + b"\xff"


def test_data_on_a_terminal_does_not_act(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(out, encoding="utf-8", newline=""))
    put_data(DATA)
    assert out.getvalue().decode() == "a,␛[31mé⟨U+202E⟩␍\n"


def test_a_pipe_shows_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not coloured()
    monkeypatch.setattr(sys, "stdout", Terminal(io.BytesIO(), encoding="utf-8"))
    assert coloured()
    monkeypatch.setenv("TERM", "dumb")
    assert not coloured()
