"""Python warnings where a pair's divergences would say nothing."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest
from any_pair_samples import save_llama

import divtok as package
from divtok.models.packaged import resolve_model

SMALL, LARGE = "divtok/tiny-0.3m", "divtok/tiny-0.5m"
QUESTION = "What is 1 + 1?"
RESPONSE = r"We add 1 and 1, which gives 2. The answer is \boxed{2}."


@pytest.fixture
def untrained(tmp_path: Path) -> tuple[str, str]:
    models = (save_llama(tmp_path / n, width=w, seed=w) for n, w in (("p", 32), ("q", 16)))
    p, q = map(str, models)
    return p, q


def test_the_models_files_tell_when_they_are_loaded(tmp_path: Path) -> None:
    copy = str(shutil.copytree(resolve_model(LARGE), tmp_path / "copy"))
    with pytest.warns(UserWarning, match=f"'{LARGE}' and '{copy}' have the same weights") as seen:
        package.load_pair(LARGE, copy)
    assert [Path(warning.filename).name for warning in seen] == [Path(__file__).name]
    with pytest.warns(UserWarning, match="'divtok/tiny-0.3m' .* is smaller than"):
        package.load_pair(SMALL, LARGE)


def test_an_ordinary_pair_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pair in (package.load_pair("tiny"), package.load_pair(LARGE, SMALL)):
            package.confidence(QUESTION, RESPONSE, pair=pair)
            package.confidences([(QUESTION, RESPONSE)] * 3, pair=pair, progress=False)


def test_what_was_read_tells_of_models_that_know_nothing(untrained: tuple[str, str]) -> None:
    pair = package.load_pair(*untrained)
    said = "are close to uniform: on nearly every token all 800 tokens"
    with pytest.warns(UserWarning, match=said) as one:
        package.confidence(QUESTION, RESPONSE, pair=pair, theta=0.5)
    rows = [(QUESTION, RESPONSE)] * 3
    with pytest.warns(UserWarning, match=said) as many:
        package.confidences(rows, pair=pair, theta=0.5, batch=1, progress=False)
    for seen in (one, many):
        assert [Path(warning.filename).name for warning in seen] == [Path(__file__).name]
