"""The verb distil: what it says, and what it refuses before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from console import Command, divtok
from distil_samples import run_of, save_deep

__all__ = ["divtok"]


def test_it_says_how_near_the_copy_came_and_what_to_do_next(
    divtok: Command, tmp_path: Path
) -> None:
    model, out = tmp_path / "model", tmp_path / "small"
    save_deep(model)
    run = run_of(tmp_path / "text", str(model))
    options = ("--text", run.path, "--out", out, "--steps", "2", "--device", "cpu")
    said = divtok("distil", model, "--layers", "2,", *options)
    assert said.code == 0, said.err
    first, second, third = said.out.splitlines()
    assert f"{out}: layers 2 of {model}, " in first
    assert "held-out KL " in second
    assert "2 steps in " in second
    assert f"divtok run --generator {model} --auxiliary {out} --benchmark PROBLEMS" in third
    assert "distil: " in said.err
    again = divtok("distil", model, "--layers", "2", *options)
    assert again.code == 2
    assert "--replace" in again.error_line
    assert divtok("distil", model, "--layers", "3", *options, "--replace").code == 0
    checked = divtok("pair", model, out)
    assert checked.code == 0, checked.err


def test_a_run_that_is_not_there_is_named(divtok: Command) -> None:
    said = divtok("distil", "divtok/tiny-1.6m", "--layers", "2", "--text", "no-such-run")
    assert "no-such-run" in said.error_line
