"""The stages that need no model, on systems that this machine is not.

What Windows and macOS lack is taken away from divtok's own modules (see other_system/), and text
goes into a pipe with an old code page. It is no proof for the libraries below, nor for file locks
and processes of the other system itself.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import FinishedRun, Outcome, command, environment

import divtok
from divtok.records import Verdict
from divtok.store.run import Run

PRELUDE = Path(__file__).parent / "other_system"
SOURCES = Path(divtok.__file__).parent
POSIX_MODULES = json.loads((PRELUDE / "missing.json").read_text("utf-8"))["win32"]["modules"]


def elsewhere(*arguments: str | Path, cwd: Path, system: str = "win32") -> Outcome:
    """The command on another system, with the code page that pipes had on old PCs."""
    here = environment()
    there = {
        **here,
        "PYTHONPATH": os.pathsep.join([str(PRELUDE), here["PYTHONPATH"]]),
        "PYTHONIOENCODING": "cp437",
        "PYTHONWARNDEFAULTENCODING": "1",
        "DIVTOK_TEST_SYSTEM": system,
    }
    done = subprocess.run(
        [str(part) for part in arguments], env=there, cwd=cwd, capture_output=True, timeout=300
    )
    return Outcome(done.returncode, done.stdout.decode("cp437"), done.stderr.decode("cp437"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import fcntl", "ModuleNotFoundError: win32 has no module fcntl"),
        ("from os import fork", "ImportError: cannot import name 'fork'"),
        ("import os; os.O_DIRECTORY", "AttributeError: win32 has no os.O_DIRECTORY"),
        ("import signal; signal.SIGKILL", "AttributeError: win32 has no signal.SIGKILL"),
        ("import sys; sys.exit(sys.platform)", "win32"),
        ("import signal, os, sys; signal.SIGINT; os.replace; sys.exit('there')", "there"),
    ],
)
def test_what_is_taken_away_is_gone(tmp_path: Path, code: str, said: str) -> None:
    program = f"exec({code!r}, {{'__package__': 'divtok.somewhere'}})"
    found = elsewhere(sys.executable, "-c", program, cwd=tmp_path)
    assert found.err.splitlines()[-1].startswith(said)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("ls", "families"),
        ("ls", "estimators"),
        ("grade", "run"),
        ("score", "run"),
        ("evaluate", "run"),
        ("sweep", "run"),
        ("fit", "--run", "run"),
        ("report", "run"),
    ],
    ids=" ".join,
)
def test_stages_without_models_need_nothing_of_posix(
    finished: FinishedRun, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    run = Run.open(shutil.copytree(finished.folder, tmp_path / "run"))
    grades = run.grades.read()
    with run.lock():  # theta can only be fitted where some are wrong
        run.grades.replace([replace(grade, verdict=Verdict.INCORRECT) for grade in grades[::2]])
        run.grades.append(grades[1::2])
    if arguments[0] == "grade":
        shutil.rmtree(run.grades.folder)
    found = elsewhere(*command(*arguments), cwd=tmp_path)
    assert found.code == 0, found.err
    assert "Traceback" not in found.err
    assert arguments[0] != "grade" or run.grades.read() == grades


def test_a_sign_that_the_pipe_lacks_does_not_end_a_command(
    finished: FinishedRun, tmp_path: Path
) -> None:
    assert "—" in finished.said.out
    run = shutil.copytree(finished.folder, tmp_path / "run")
    found = elsewhere(*command("evaluate", run), cwd=tmp_path)
    assert found.code == 0, found.err
    # The code page has lines for boxes, and no dash.
    assert found.out == finished.said.out.replace("—", "-")


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_log_is_imported_and_graded(tmp_path: Path, system: str) -> None:
    # Only a worker process can tell that the first is right.
    answers = {"x+x": "2x", "4": "3", r"\text{größer}": "größer"}
    rows = [
        {"question": f"{number}?", "response": rf"So \boxed{{{answer}}}.", "answer": gold}
        for number, (answer, gold) in enumerate(answers.items())
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows)
    (tmp_path / "log.jsonl").write_bytes(lines.encode("utf-8"))
    arguments = ("import", "log.jsonl", "--format", "jsonl", "--out", "imported")
    found = elsewhere(*command(*arguments, "--generator", "g"), cwd=tmp_path, system=system)
    assert found.code == 0, found.err
    found = elsewhere(*command("grade", "imported"), cwd=tmp_path, system=system)
    assert found.code == 0, found.err
    grades = Run.open(tmp_path / "imported").grades.read()
    assert [grade.verdict for grade in grades] == ["correct", "incorrect", "correct"], grades


def posix_imports(source: str) -> list[str]:
    """Modules of POSIX systems that a module imports when it is imported itself."""
    return [name for name in _imported(ast.parse(source)) if name in POSIX_MODULES]


def _imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.split(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield "" if child.level else str(child.module).split(".")[0]
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imported(child)


def test_imports_are_found_wherever_they_stand() -> None:
    assert posix_imports("import os, fcntl") == ["fcntl"]
    assert posix_imports("from resource import setrlimit") == ["resource"]
    assert posix_imports("try:\n import pwd\nexcept ImportError:\n pwd = None") == ["pwd"]
    assert posix_imports("class A:\n import tty") == ["tty"]
    assert posix_imports("from . import tty\ndef f():\n import resource") == []


def test_no_module_imports_one_of_posix() -> None:
    found = {path: posix_imports(path.read_text("utf-8")) for path in SOURCES.rglob("*.py")}
    assert len(found) > 100
    assert {str(path): names for path, names in found.items() if names} == {}


@pytest.mark.slow
@pytest.mark.parametrize("system", ["Windows", "Darwin"])
def test_types_hold_on_other_systems(system: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonplatform", system, str(SOURCES)],
        cwd=SOURCES.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
