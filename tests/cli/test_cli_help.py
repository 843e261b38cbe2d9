"""The help of every verb is whole at any width, under both its names; shells complete verbs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from console import Command

from divtok.cli.app import app
from divtok.store.run import Run

VERBS: list[str] = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def words(text: str) -> list[str]:
    """The text without its layout: choices may go on in the next line."""
    return re.sub(r"\|\s+", "|", text).split()


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_whole_and_fits(
    verb: str, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[int, list[str]] = {}
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        said = divtok(*verb.split(), "-h")
        assert (said.code, said.err) == (0, "")
        assert max(map(len, said.out.splitlines())) <= columns
        assert divtok(*verb.split(), "--help").out == said.out
        told[columns] = words(said.out)
    assert told[60] == told[80]


def test_every_verb_is_listed_with_its_first_sentence_whole(divtok: Command) -> None:
    commands: dict[str, typer.core.TyperCommand] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    listed = " ".join(divtok("-h").out.split("Commands:")[1].split())
    for name, command in commands.items():
        first = " ".join((command.help or "").split("\n\n")[0].split())
        sentence = first if ". " not in first else first[: first.index(". ") + 1]
        assert f"{name} {sentence}" in listed


def test_help_is_called_divtok_however_it_was_started(divtok: Command) -> None:
    assert divtok("-h").out.startswith("Usage: divtok [OPTIONS] COMMAND [ARGS]...\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("divtok ev", ["evaluate"]),
        ("divtok run --fam", ["--family"]),
        ("divtok run --family ti", ["tiny"]),
        ("divtok run --benchmark arith-e", ["arith-easy"]),
        ("divtok evaluate ", ["first", "fourth", "second"]),
        ("divtok evaluate f", ["first", "fourth"]),
        ("divtok import x --format js", ["jsonl"]),
        ("divtok import x --protocol ha", ["hashes"]),
        ("divtok evaluate nothing-is-called-so", [""]),
    ],
)
def test_a_shell_completes(
    line: str,
    expected: list[str],
    divtok: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second", "fourth"):
        Run.create_or_open(tmp_path / "runs" / name)
    monkeypatch.setenv("_DIVTOK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    said = divtok()
    assert (said.code, said.err) == (0, "")
    assert said.out.split("\n")[:-1] == expected


def test_a_shell_completes_nothing_where_there_are_no_runs(
    divtok: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_DIVTOK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "divtok evaluate ")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert divtok().out == "\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_is_of_the_program_divtok(
    shell: str, divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, f"/bin/{shell}"))
    said = divtok("--show-completion")
    assert said.code == 0
    assert "_DIVTOK_COMPLETE" in said.out
