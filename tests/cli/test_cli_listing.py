"""The verb ls: everything there is to choose from, for people and for programs."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import pytest
from console import Command

REQUIRED = {
    "estimators": {"dtc_lin", "dtc_prod", "nsl", "mean_prob", "entropy"},
    "families": {"tiny", "qwen2.5", "qwen3", "gemma3", "blackbox"},
    "benchmarks": {
        *("math500", "amc23", "aime24", "aime25", "hmmt25", "hmmt26", "math-train"),
        *("arith-easy", "arith-medium", "arith-hard", "arith-contest", "arith-fit"),
    },
}


def listed(divtok: Command, kind: str) -> list[dict[str, Any]]:
    said = divtok("ls", kind, "--json")
    assert (said.code, said.err) == (0, "")
    return json.loads(said.out)


@pytest.mark.parametrize("kind", REQUIRED)
def test_every_required_name_is_listed_once(kind: str, divtok: Command) -> None:
    names = [row["name"] for row in listed(divtok, kind)]
    assert len(set(names)) == len(names)
    assert set(names) >= REQUIRED[kind]


@pytest.mark.parametrize("kind", REQUIRED)
def test_the_plain_list_has_a_line_a_name(kind: str, divtok: Command) -> None:
    rows = listed(divtok, kind)
    said = divtok("ls", kind)
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines] == [row["name"] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        assert row["summary"]
        assert line.endswith(row["summary"])


def test_estimators_tell_what_they_need(divtok: Command) -> None:
    rows = {row["name"]: row for row in listed(divtok, "estimators")}
    assert rows["dtc_lin"]["needs"] == ["jsd_bits"]
    assert rows["dtc_lin"]["parameters"] == {"theta": None, "n": 10, "a": 0.95, "b": 0.05}
    ranking = {name for name, row in rows.items() if row["ranking_only"]}
    assert ranking == {"deepconf_group", "deepconf_tail", "self_certainty_reverse"}
    assert not rows.keys() & {"count", "ratio", "length"}, "they are facts"


def test_families_tell_their_models_and_theta(divtok: Command) -> None:
    rows = {row["name"]: row for row in listed(divtok, "families")}
    thetas = {name: row["theta"] for name, row in rows.items() if name != "tiny"}
    assert thetas == {"qwen2.5": 0.5, "qwen3": 0.6, "gemma3": 0.85, "blackbox": 0.7}
    assert rows["tiny"]["auxiliary"] == "divtok/tiny-0.3m"
    assert all(generator["model"] for row in rows.values() for generator in row["generators"])


def test_the_version_is_the_installed_one(divtok: Command) -> None:
    try:
        version = importlib.metadata.version("divtok")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("divtok is not installed")
    said = divtok("--version")
    assert (said.code, said.out) == (0, f"divtok {version}\n")


def test_protocols_are_listed_with_their_words(divtok: Command) -> None:
    rows = {row["name"]: row for row in listed(divtok, "protocols")}
    top2 = rows["verbalized_top2"]
    assert (top2["kind"], top2["from"]) == ("verbalized_top2", "divtok")
    assert len(top2["wording"]) == 8
    assert top2["words"]["user"].startswith("Question: {question}\n")
    assert top2["words"]["system"] is None
    assert "How sure are you" in rows["cot"]["words"]["follow_up"]
    lines = divtok("ls", "protocols").out.splitlines()
    [line] = [line for line in lines if line.startswith("verbalized_top2 ")]
    assert line.endswith(f"[wording {top2['wording']}, divtok]")
