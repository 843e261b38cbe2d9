"""A format of another package: one function, and every command knows it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from console import Command

from divtok.errors import UsageError
from divtok.importers import IMPORTERS, ImportOptions, check_options
from divtok.importers.importer import Importer
from divtok.registry import Registry
from divtok.store.run import Run

TSV = """
from divtok.importers import Imported, ImportOptions
from divtok.importers.importer import Rows, Tell, importer

@importer("tab-separated", columns=())
def read_tsv(path, options: ImportOptions, tell: Tell) -> Rows:
    \"\"\"Question and response, with a tab between them.\"\"\"
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        question, response = line.split("\\t")
        yield Imported(f"{path}, line {number}", response, question=question)
"""


@pytest.fixture
def formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Importer]:
    """The formats as they are where a package with one more is installed."""
    found: Registry[Importer] = Registry("format", group="divtok.importers")
    for importer in IMPORTERS:
        found.add(importer.name, importer)
    for module in ("importers.importer", "importers.read", "importers.found", "cli.import_"):
        monkeypatch.setattr(import_module(f"divtok.{module}"), "IMPORTERS", found)
    (tmp_path / "their_formats.py").write_text(TSV)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_formats", raising=False)
    point = SimpleNamespace(
        name="tab-separated",
        value="their_formats",
        attr="",
        dist=SimpleNamespace(name="theirs", version="1.0"),
        load=lambda: import_module("their_formats"),
    )
    monkeypatch.setattr("divtok.registry.entry_points", lambda *, group: [point])
    return found


def test_the_formats_there_are() -> None:
    assert {"inspect", "jsonl", "lm-eval", "openai-batch"} <= set(IMPORTERS.names())
    assert [importer.name for importer in IMPORTERS] == IMPORTERS.names()
    assert all(importer.summary.endswith(".") for importer in IMPORTERS)


def test_one_function_is_a_format(
    formats: Registry[Importer], divtok: Command, tmp_path: Path
) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("1 + 1?\tIt is 2.\n2 + 2?\tIt is 4.\n")
    given = ("--format", "tab-separated", "--generator", "m", "--out", tmp_path / "run")
    said = divtok("import", file, *given)
    assert said.code == 0, said.err
    run = Run.open(tmp_path / "run")
    assert [t.text for t in run.trajectories.read()] == ["It is 2.", "It is 4."]
    assert [p.question for p in run.problems.read()] == ["1 + 1?", "2 + 2?"]
    assert formats.origin("tab-separated") == "theirs 1.0"
    assert formats.get("tab-separated").summary.startswith("Question and response")


def test_its_options_are_checked_like_those_of_others(formats: Registry[Importer]) -> None:
    with pytest.raises(UsageError, match=r"'tab-separated' takes no --column for 'id'.*: nothing"):
        check_options(ImportOptions("tab-separated", columns={"id": "x"}))
    with pytest.raises(UsageError, match=r"takes no --requests.*it is for the format openai-batch"):
        check_options(ImportOptions("tab-separated", requests=Path("x")))


def test_the_help_lists_it(formats: Registry[Importer], divtok: Command) -> None:
    said = divtok("import", "--help")
    told = " ".join(said.out.split())
    assert "what they look like. Names: csv, inspect, jsonl, " in told
    assert " parquet, phoenix, processbench, tab-separated. [default: auto]" in told
