"""The console script, called in the process of the test."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from divtok.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one line that a command ends on; anything else than one line is a fault."""
        assert self.err.endswith("\n")
        lines = [line for line in self.err.splitlines() if line.startswith("divtok: ")]
        assert len(lines) == 1, self.err
        assert self.err.splitlines()[-1] == lines[0], self.err
        assert "Traceback" not in self.err
        assert self.out == ""
        return lines[0]


Command = Callable[..., Outcome]


@pytest.fixture
def divtok(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """The console script, called in this process."""

    def run(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["divtok", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        written = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Outcome(stop.value.code, written.out, written.err)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
