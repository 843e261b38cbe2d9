"""Fixtures for tests of imports."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from imports_samples import Command, Said

from divtok.cli import main


@pytest.fixture
def divtok(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """The console script, called in this process."""

    def run(*arguments: str | Path) -> Said:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["divtok", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        written = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Said(stop.value.code, written.out, written.err)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
