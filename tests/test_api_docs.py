"""The reference of the Python names: up to date, complete, and every example runs."""

from __future__ import annotations

import doctest
import functools
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok
from divtok import api
from divtok.score.registry import ESTIMATORS

P, Q = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
_load_once = functools.cache(api.load_models)


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with ModelServer(P) as p, ModelServer(Q) as q:
        yield {"P_URL": p.base_url, "Q_URL": q.base_url}


@pytest.fixture(autouse=True)
def a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write runs and files, register an estimator, and load the same models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "load_models", _load_once)
    ESTIMATORS.names()  # loads them all, into what is put back
    monkeypatch.setattr(ESTIMATORS, "_things", dict(ESTIMATORS._things))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., divtok.Run]:
    """`divtok.run`, which makes the same run once only, and then a copy of it."""
    runs: dict[str, Path] = {}
    run = divtok.run

    def run_or_copy(*given: Any, out: Any, **options: Any) -> divtok.Run:
        settings = repr((given, sorted(options.items())))
        if settings not in runs:
            runs[settings] = tmp_path_factory.mktemp("run") / "run"
            shutil.copytree(run(*given, out=out, **options).path, runs[settings])
            return divtok.Run(out)
        shutil.copytree(runs[settings], out)
        return divtok.Run(out)

    return run_or_copy


def test_the_reference_is_up_to_date() -> None:
    from docs.make_api_reference import TARGET, reference

    assert TARGET.read_text(encoding="utf-8") == reference(), (
        "run: python docs/make_api_reference.py"
    )


def test_the_reference_has_every_name_once() -> None:
    from docs.make_api_reference import SECTIONS

    assert sorted(name for names in SECTIONS.values() for name in names) == divtok.__all__


@pytest.mark.parametrize("name", divtok.__all__)
def test_every_name_has_an_example_that_runs(
    name: str, urls: dict[str, str], made: Callable[..., divtok.Run], monkeypatch: Any
) -> None:
    if name != "run":
        monkeypatch.setattr(divtok, "run", made)
    text = inspect.getdoc(getattr(divtok, name)) or ""
    about, _, example = text.partition("\nExample:\n")
    assert about.split("\n")[0].endswith((".", ":", "`.")), about
    test = doctest.DocTestParser().get_doctest(example, dict(urls), name, None, None)
    assert test.examples, f"{name} has no example"
    assert any(name in one.source for one in test.examples) or inspect.isclass(
        getattr(divtok, name)
    )
    said: list[str] = []
    found = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert found.failed == 0, "".join(said)
