"""The two doors to one confidence, Python and the command line, take the same default theta."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from console import Command
from problems_samples import chat_tokenizer
from trace_samples import bigram_reader

import divtok as package
from divtok import api
from divtok.trace.pair import Pair

P, Q = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"
QUESTION, RESPONSE = "What is 1 + 1?", r"The answer is \boxed{2}."


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of any name, with made-up logits."""
    tokenizer = chat_tokenizer()
    width = len(tokenizer)
    tables = np.random.default_rng(0).normal(size=(2, width, width))

    def load(p: str, q: str, **_: Any) -> Pair:
        readers = [
            replace(bigram_reader(name, table, ""), tokenizer=tokenizer)
            for name, table in zip((p, q), tables, strict=True)
        ]
        return Pair(*readers)

    monkeypatch.setattr(api, "load_models", load)


def from_python(*names: str, **options: Any) -> tuple[float, float]:
    pair = package.load_pair(*names)
    result = package.confidence(QUESTION, RESPONSE, pair=pair, **options)
    return result.theta, result.value


def from_the_shell(divtok: Command, *options: str) -> tuple[float, float]:
    given = ("--question", QUESTION, "--response", RESPONSE, "--json")
    said = divtok("confidence", *options, *given)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    return found["theta"], found["confidence"]


def test_a_pair_of_models(divtok: Command) -> None:
    """qwen2.5 and blackbox share the pair; what is scored apart is mostly not p's own text."""
    found = from_python(P, Q)
    assert found == from_the_shell(divtok, "--pair", P, Q)
    assert found[0] == 0.70


@pytest.mark.parametrize(("generator", "theta"), [(P, 0.50), (Q, 0.70), ("gpt-4o-mini", 0.70)])
def test_a_pair_of_models_and_who_wrote(divtok: Command, generator: str, theta: float) -> None:
    found = from_python(P, Q, generator=generator)
    assert found == from_the_shell(divtok, "--pair", P, Q, "--generator", generator)
    assert found[0] == theta


@pytest.mark.parametrize(
    ("family", "theta"), [("qwen2.5", 0.50), ("blackbox", 0.70), ("qwen3", 0.60)]
)
@pytest.mark.parametrize("generator", [None, P, "gpt-4o-mini"])
def test_a_family(divtok: Command, family: str, theta: float, generator: str | None) -> None:
    wrote = () if generator is None else ("--generator", generator)
    found = from_python(family, generator=generator)
    assert found == from_the_shell(divtok, "--family", family, *wrote)
    assert found[0] == theta


def test_a_pair_without_a_theta_is_refused_before_anything_is_loaded(
    divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "load_models", None)
    said = divtok("confidence", "--pair", "a", "b", "--question", "x", "--response", "y")
    assert said.code == 2
    assert "No family pairs 'a' with 'b'" in said.error_line
