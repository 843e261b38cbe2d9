"""What is printed: text of others does nothing on a terminal, and every error is one line."""

from __future__ import annotations

import ast
import io
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Command, divtok

import divtok as package
from divtok import screen
from divtok.errors import DataError, ServerError
from divtok.progress import track
from divtok.report import write
from divtok.report.trajectory import trajectory_text

__all__ = ["divtok"]

SOURCE = Path(package.__file__).parent
PAIR = ("divtok/tiny-0.5m", "divtok/tiny-0.3m")
# A title, a clipboard, a link, a cleared screen, a C1 sequence, an overwritten line, a turned one.
ACTS = (
    "\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://hostile.invalid\x1b\\x\x1b]8;;\x1b\\"
    "\x1b[2J\x9b31m\rdivtok: all is well\x08\x7f\u202egnp.exe\u2069"
)
NAMES = (f"[/x]{ACTS}", f"[red]{ACTS}[link=http://hostile.invalid]y[/link]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def harmless(written: str) -> bool:
    """Only what rich writes by itself: colours, and its moves while a bar is drawn."""
    plain = written
    for own in ("\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A", "\r\x1b"):
        plain = plain.replace(own, "\x1b" if own == "\r\x1b" else "")
    plain = plain.replace("\r", "", written.count("\r\x1b[2K"))
    acts = ("\x1b]", "\x1b[2J", "\x1b\\", "\x07", "\x08", "\x7f", "\x9b", "\u202e", "\u2069", "\r")
    return not any(act in plain for act in acts)


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not as a fixture: pytest sets the streams anew for every test."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return shown


def test_names_of_a_file_do_nothing_on_a_terminal(
    tmp_path: Path, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(write, "save_figure", lambda *_, **__: [])  # slow, and nothing is printed
    file, run = tmp_path / "rows.jsonl", tmp_path / "run"
    rows = [
        {"id": f"{name}{i}", "question": f"{name} {i}?", "response": rf"{ACTS} \boxed{{{i}}}",
         "answer": "1", "model": name, "benchmark": name}
        for name in NAMES for i in range(2)
    ]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert divtok("import", file, "--format", "jsonl", "--out", run).code == 0
    assert divtok("score", run, "--pair", *PAIR, "evaluate.resamples=20").code == 0
    assert divtok("evaluate", run).code == 0
    assert divtok("sweep", run).code == 0
    assert "[/x]" in terminal.getvalue()
    assert "[red]" in terminal.getvalue()
    assert harmless(terminal.getvalue())


def test_a_bar_and_coloured_tokens_do_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with track(NAMES[0], total=2) as advance:
        advance(2)
    screen.show(trajectory_text([*NAMES, "a\nb"], [0.9, 0.1, 0.3], 0.5))
    screen.show(NAMES[1])
    assert "[/x]" in terminal.getvalue()
    assert "\u241b]0;title\u2407" in terminal.getvalue()
    assert harmless(terminal.getvalue())


@pytest.mark.parametrize("kind", [DataError, ServerError, RuntimeError, OSError])
def test_an_error_of_others_does_nothing_on_a_terminal(
    kind: type[Exception], divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr("divtok.api.listing.ls", raising(kind(NAMES[0])))
    assert divtok("ls", "engines").code == 1
    assert divtok("--debug", "ls", "engines").code == 1
    assert divtok("ls", NAMES[0]).code == 2
    assert divtok("run", f"{NAMES[0]}=1").code == 2
    assert terminal.getvalue().count("gnp.exe") >= 4
    assert harmless(terminal.getvalue())


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_an_unknown_exception_is_one_line(divtok: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divtok.api.listing.ls", raising(KeyError("first\nsecond " + "x" * 9999)))
    said = divtok("ls", "engines")
    assert said.code == 1
    assert said.error_line.startswith("divtok: KeyError: 'first\\nsecond xxx")
    assert "This is a defect of divtok." in said.error_line
    assert len(said.error_line) < 1000
    for arguments, value in ((("--debug",), ""), ((), "1")):
        monkeypatch.setenv("DIVTOK_DEBUG", value)
        told = divtok(*arguments, "ls", "engines")
        assert told.code == 1
        assert told.err.startswith("Traceback (most recent call last)")
        assert told.err.splitlines()[-1] == said.error_line


def test_a_message_of_others_adds_no_line(divtok: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ServerError("It says: no\ndivtok: all is well\x85or\u2028not.", next_step="Wait.")
    monkeypatch.setattr("divtok.api.listing.ls", raising(error))
    said = divtok("ls", "engines")
    assert said.error_line == "divtok: It says: no divtok: all is well or not. Wait."


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "a"), MemoryError()])
def test_what_the_machine_refuses_is_no_defect(
    error: Exception, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divtok.api.listing.ls", raising(error))
    said = divtok("ls", "engines")
    assert said.code == 1
    assert "defect" not in said.error_line


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError(13, "Permission denied", "a"), "a: Permission denied. Change its perm"),
        (NotADirectoryError(20, "Not a directory", "a/b"), "a/b: Not a directory. Check the path"),
        (OSError(28, "No space left on device", "a"), "a: No space left on device. Free some"),
        (BrokenPipeError(32, "Broken pipe"), "went away while it was being written to"),
    ],
)
def test_what_the_machine_refuses_says_what_to_do(
    error: Exception, advice: str, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divtok.api.listing.ls", raising(error))
    said = divtok("ls", "engines")
    assert said.code == 1
    assert advice in said.error_line


@pytest.mark.parametrize("verb", [["ls", "estimators"], ["--help"], ["ls", "-h"]])
def test_an_output_that_cannot_be_written_is_one_line(verb: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "divtok", *verb], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == (
        "divtok: Standard output cannot be written (No space left on device). What was made is "
        "kept: send the output elsewhere, and give the same command again.\n"
    )


def test_messages_that_cannot_be_written_stop_nothing() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "divtok", "verify", "nowhere"]
        done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    command = [sys.executable, "-m", "divtok", "ls", "estimators"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


def test_what_libraries_log_and_warn_of_is_cleaned(
    divtok: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def log(*_: object) -> list[dict[str, str]]:
        logger = logging.Logger("a_library")
        logger.addHandler(logging.StreamHandler())
        logger.warning("model %s", ACTS)
        sys.stderr.write(warnings.formatwarning(ACTS, UserWarning, "file.py", 1, ""))
        return [{"name": "a", "summary": ACTS}]

    monkeypatch.setattr("divtok.api.listing.ls", log)
    said = divtok("ls", "engines")
    assert said.code == 0
    assert said.err.count("gnp.exe") == 2
    assert harmless(said.out + said.err)


def test_nothing_else_prints() -> None:
    """A verb cannot forget to clean what it prints: there is no other way to print."""
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = str(path.relative_to(SOURCE))
        # Worker processes write replies to their parent, in JSON.
        if place == "screen.py" or path.stem.endswith(("worker", "worker_main")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
            imported = [n.name for n in node.names] if isinstance(node, ast.ImportFrom) else []
            forbidden = {"print", "sys.stdout", "sys.stderr", "typer.echo", "typer.secho"}
            if name in forbidden or (
                isinstance(node, ast.ImportFrom)
                and node.module in ("rich", "rich.console", "rich.prompt")
                and {"Console", "print", "print_json", "Prompt", "get_console"} & set(imported)
            ):
                found.append(f"{place}:{node.lineno} {name or imported}")
    assert found == []
