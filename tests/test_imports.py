"""Importing divtok is free, and the model libraries are loaded only when they are used."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import divtok

MODEL_LIBRARIES = ("torch", "transformers", "safetensors", "datasets")
SLOW_LIBRARIES = ("matplotlib", "sympy", "math_verify", "sklearn")
# What runs in the grading workers, which are processes of their own.
# The GPU's kernels are written in Triton's language, and only imported where they run.
GPU_MODULES = ("divtok.trace.kernels.cuda",)
WORKER_MODULES = tuple(
    f"divtok.grade.maths.{name}" for name in ("symbolic", "precision", "worker_main")
)
IMPORT_ALL = f"""
import importlib, pkgutil
for module in pkgutil.walk_packages(divtok.__path__, "divtok."):
    if module.name not in {WORKER_MODULES + GPU_MODULES!r}:
        importlib.import_module(module.name)
"""


def loaded_after(code: str, *candidates: str) -> list[str]:
    """Which of the candidates a fresh process has loaded after running the code."""
    package = str(Path(divtok.__file__).parents[1])
    report = f"import sys; print(*[m for m in {candidates!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"import divtok\n{code}\n{report}"],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_importing_divtok_loads_nothing_of_weight() -> None:
    heavy = ("numpy", "polars", "pyarrow", "pandas", "pydantic", "rich", "typer")
    assert loaded_after("", *heavy, *MODEL_LIBRARIES, *SLOW_LIBRARIES) == []


def test_no_module_loads_a_model_library_when_imported() -> None:
    assert loaded_after(IMPORT_ALL, *MODEL_LIBRARIES, *SLOW_LIBRARIES) == []
    assert loaded_after(IMPORT_ALL, "divtok.stages.grade", "divtok.cli.app") == [
        "divtok.stages.grade",
        "divtok.cli.app",
    ]


def test_grading_a_plain_number_loads_no_algebra() -> None:
    code = "assert divtok.grade_answer(gold='7', answer='7') == 'correct'"
    assert loaded_after(code, *MODEL_LIBRARIES, *SLOW_LIBRARIES) == []


@pytest.mark.parametrize("name", divtok.__all__)
def test_every_public_name_is_there(name: str) -> None:
    thing = getattr(divtok, name)
    home = importlib.import_module(divtok._HOME[name])
    assert thing is getattr(home, name)
    assert thing.__doc__


def test_the_public_names_are_listed_once_and_sorted() -> None:
    assert sorted(divtok._HOME) == sorted(set(divtok.__all__)) == dir(divtok)
    assert len(divtok.__all__) == len(set(divtok.__all__))


def test_a_function_keeps_its_name_when_the_folder_of_that_name_is_imported() -> None:
    for name, module in (("evaluate", "divtok.evaluate.metrics"), ("grade", "divtok.grade.maths")):
        code = f"import {module} as m; assert divtok.{name}.__call__; assert m is {module}"
        assert loaded_after(code, module) == [module]
        assert importlib.import_module(module) is not None
        assert getattr(divtok, name).__module__.startswith("divtok.api.")


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert divtok.__version__ == version("divtok")


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'confidense'"):
        _ = divtok.confidense
