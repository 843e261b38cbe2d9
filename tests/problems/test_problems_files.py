"""Benchmarks as YAML files: what they may say, what is refused, and those of other packages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from plug_in_samples import announce, write_package

from divtok.errors import EXIT_USAGE, ConfigError, DataError
from divtok.problems.benchmark import BENCHMARKS, Benchmark
from divtok.problems.fields import Fields
from divtok.problems.sources import EmbeddedSource, FileSource, HubSource
from divtok.records import Problem
from divtok.registry import Registry

GSM8K = """
summary: Grade-school word problems.
hub:
  dataset: openai/gsm8k
  config: main
  split: test
  revision: "12"
  fields: {question: question, answer: answer, gold: after, marker: "####"}
protocol: last_number
grader: exact
"""

Read = Callable[..., Registry[Benchmark]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """The registry with another package's files in it."""

    def announced(files: dict[str, str]) -> Registry[Benchmark]:
        write_package(tmp_path, "their_benchmarks", files)
        return announce(monkeypatch, BENCHMARKS, tmp_path, theirs="their_benchmarks")

    yield announced
    sys.modules.pop("their_benchmarks", None)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[dict[str, Any]]], list[Any]]:
    """A `datasets` package in the place of the real one; gives what it is asked for."""

    def install(rows: list[dict[str, Any]]) -> list[Any]:
        asked: list[Any] = []

        def load_dataset(*given: Any, **options: Any) -> list[dict[str, Any]]:
            asked.append((given, options))
            return rows

        module, exceptions = ModuleType("datasets"), ModuleType("datasets.exceptions")
        module.__spec__ = exceptions.__spec__ = sys.__spec__
        module.load_dataset = load_dataset  # type: ignore[attr-defined]
        exceptions.DatasetsError = OSError  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", module)
        monkeypatch.setitem(sys.modules, "datasets.exceptions", exceptions)
        return asked

    return install


def test_a_hub_dataset_with_a_config_and_gold_behind_a_marker(read: Read, hub: Any) -> None:
    benchmark = read({"school.yaml": GSM8K}).get("school")
    assert benchmark == Benchmark(
        "school",
        "Grade-school word problems.",
        HubSource(
            "openai/gsm8k", "test", "main", "12", Fields("question", gold="after", marker="####")
        ),
        protocol="last_number",
        grader="exact",
    )
    asked = hub(
        [
            {"question": "Eggs?", "answer": "16 - 3 = <<16-3=13>>13 eggs.\n#### 13"},
            {"question": "Coins?", "answer": "First #### of two.\n#### 1,080 "},
        ]
    )
    assert benchmark.source.load("school") == [
        Problem("school-0000", "school", "Eggs?", "13"),
        Problem("school-0001", "school", "Coins?", "1,080"),
    ]
    assert asked == [(("openai/gsm8k", "main"), {"split": "test", "revision": "12"})]
    assert benchmark.source.describe() == "hub: openai/gsm8k (main), revision 12"
    assert benchmark.source.count is None


@pytest.mark.parametrize("answer", ["13", "#### ", "13 ####\n "])
def test_a_row_without_its_marker_is_named(read: Read, hub: Any, answer: str) -> None:
    hub([{"question": "One?", "answer": "#### 1"}, {"question": "Two?", "answer": answer}])
    with pytest.raises(DataError, match=r"openai/gsm8k, row 1: 'answer' has no gold answer.*####"):
        read({"school.yaml": GSM8K}).get("school").source.load("school")


def test_a_file_beside_the_yaml_with_fields_of_its_own(read: Read, tmp_path: Path) -> None:
    rows = [
        {"number": 7, "text": "One?", "solution": r"So \boxed{0} or \boxed{1}."},
        {"number": "b", "text": "Two?", "solution": None},
    ]
    registry = read(
        {
            "house.yaml": "summary: Ours.\nfile:\n  path: house.jsonl\n"
            "  fields: {id: number, question: text, answer: solution, gold: boxed}",
            "house.jsonl": "\n".join(map(json.dumps, rows)),
            "plain.yml": "name: a/plain one\nsummary: Plain.\nfile: {path: plain.jsonl}",
            "plain.jsonl": json.dumps({"id": "x", "question": "Q?", "answer": 3}),
        }
    )
    house = registry.get("house").source
    assert house.load("house") == [
        Problem("7", "house", "One?", "1"),
        Problem("b", "house", "Two?", None),
    ]
    assert house.count == 2
    assert registry.get("a/plain one").source.load("p") == [Problem("x", "p", "Q?", "3")]
    assert isinstance(house, FileSource)
    assert house.path.is_relative_to(tmp_path)


def test_a_file_of_which_only_some_rows_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "house.jsonl"
    kinds = [("a/1", "x"), ("b/1", "x"), ("a/2", "y"), ("a/3", "xz")]
    rows = [
        {"id": n, "problem": f"{n}?", "answer": "1", "part": part, "kind": kind}
        for n, (part, kind) in enumerate(kinds)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    source = FileSource(path, Fields(only={"part": "a/", "kind": "x"}))
    assert [problem.id for problem in source.load("house")] == ["0", "3"]
    assert source.count == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": None}, "'number' is missing"),
        ({"text": ""}, "'text' is missing"),
        ({"solution": "1"}, r"'solution' has no gold answer: no '\\boxed"),
        ({"number": 1}, "the id '1' is already that of .*, line 1"),
    ],
)
def test_a_broken_row_names_the_field_it_lacks(tmp_path: Path, change: Any, message: str) -> None:
    good = {"number": 1, "text": "One?", "solution": r"\boxed{1}"}
    path = tmp_path / "house.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, "number": 2, **change}))
    with pytest.raises(DataError, match=f"line 2: {message}"):
        FileSource(path, Fields("text", "solution", "number", "boxed")).load("house")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hub: {dataset: a/b, split: test}", "'summary' is missing"),
        ("summary: x", "give one source: embedded, hub or file"),
        (
            "summary: x\nfile: {path: a}\nhub: {dataset: a/b, split: t}",
            "give one source: embedded, hub or file",
        ),
        ("summary: x\nhub: {dataset: a/b}", "'hub.split' is missing"),
        (
            "summary: x\nhub: {dataset: a/b, split: t, revison: r}",
            "unknown key 'hub.revison'. Did you mean 'revision'?",
        ),
        ("summary: x\nhubs: {}", "unknown key 'hubs'. Did you mean 'hub'?"),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {anwser: z}}",
            "unknown key 'hub.fields.anwser'. Did you mean 'answer'?",
        ),
        (
            "summary: 3\nhub: {dataset: a/b, split: t}",
            "summary = 3: input should be a valid string",
        ),
        ("summary: x\nhub: {dataset: a/b, split: t, count: yes}", "hub.count = True: "),
        ("summary: x\nhub: {dataset: a/b, split: t, count: '5'}", "hub.count = '5': "),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {gold: last}}",
            "hub.fields.gold = 'last': input should be 'whole', ",
        ),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {only: {}}}",
            "hub.fields: 'only' names fields, each with the text that it begins with",
        ),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {only: {level: 5}}}",
            "hub.fields.only.level = 5: input should be a valid string",
        ),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {gold: after}}",
            "hub.fields: 'gold: after' and 'marker' go together",
        ),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {marker: '#'}}",
            "hub.fields: 'gold: after' and 'marker' go together",
        ),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {gold: letter}}",
            "hub.fields: 'options' go together with 'gold: letter', 'index' or 'text'",
        ),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {options: a}}",
            "hub.fields: 'options' go together with 'gold: letter', 'index' or 'text'",
        ),
        (
            "summary: x\nhub: {dataset: a/b, split: t, fields: {gold: boxed, wrong: [a]}}",
            "hub.fields: 'wrong' names one field or more, and goes with no 'gold'",
        ),
        (
            "summary: x\nembedded: {difficulties: [eazy], split: test, count: 1, seed: 1}",
            "embedded.difficulties.0 = 'eazy': ",
        ),
        ("summary: x\nsummary: y", "The key 'summary' is given twice in"),
        ("- x", "is not a mapping of keys to values"),
        ("summary: &a x\nprotocol: *a", "YAML aliases are not allowed in"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(read: Read, text: str, message: str) -> None:
    registry = read({"wrong.yaml": text})
    assert isinstance(registry.get("arith-easy").source, EmbeddedSource)
    for _ in range(2):  # it is not forgotten at the second look
        with pytest.raises(ConfigError) as caught:
            registry.get("wrong")
        assert message in str(caught.value)
        assert "wrong.yaml" in str(caught.value)
        assert caught.value.exit_code == EXIT_USAGE


def test_a_benchmark_made_in_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from divtok.problems.benchmark import Benchmark
from divtok.records import Problem

class Sums:
    count = 1
    def load(self, benchmark):
        return [Problem("1", benchmark, "1 + 1?", "2")]
    def describe(self):
        return "made up"

SUMS = Benchmark("sums", "Sums.", Sums())
"""
    write_package(tmp_path, "theirs_in_code", {"made.py": code})
    registry = announce(monkeypatch, BENCHMARKS, tmp_path, sums="theirs_in_code.made:SUMS")
    assert registry.get("sums").source.load("sums") == [Problem("1", "sums", "1 + 1?", "2")]
