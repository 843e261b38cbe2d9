"""What a recipe finds in its runs: which rows, at which theta, each table read once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paper_samples import (
    balanced_figures,
    named,
    random_run,
    recipe_with,
    tiny_folder,
    tiny_material,
    tiny_overrides,
    usable,
)

from divtok.errors import NothingScoredError, StoreError, UsageError
from divtok.evaluate.sweep.counts import Counted
from divtok.paper.recipe import TINY, Side, recipes, runs_of
from divtok.paper.run_tables import FinishedRun, Material, on_grid, short
from divtok.score.estimators.dtc import divergent_count, dtc_lin
from divtok.stages import sweep as sweeps

SMALL, MIDDLE, LARGE = (f"divtok/tiny-{size}" for size in ("0.5m", "0.9m", "1.6m"))
AUXILIARY = "divtok/tiny-0.3m"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return tiny_material(tmp_path_factory)


def places(rows: list[tuple[FinishedRun, Counted]]) -> set[tuple[str, str, str, str]]:
    return {(c.benchmark, c.generator, c.p, c.q) for _, c in rows}


def test_the_side_is_the_familys() -> None:
    recipe = recipes()["figure-count"]
    assert Material(Path(), TINY).side(recipe) is recipe.tiny
    assert Material(Path(), None).side(recipe) is recipe.paper
    assert Material(Path(), "qwen2.5").side(recipe) is recipe.paper


def test_rows_of_the_recipes_generators_and_benchmarks(material: Material) -> None:
    recipe = recipe_with("figure-count", generators=[SMALL], benchmarks=["arith-hard"])
    assert places(material.counted(recipe, dual=False)) == {
        ("arith-hard", SMALL, SMALL, q) for q in (AUXILIARY, MIDDLE, LARGE)
    }
    assert places(material.counted(recipe, dual=True)) == {
        ("arith-hard", SMALL, MIDDLE, AUXILIARY),
        ("arith-hard", SMALL, LARGE, AUXILIARY),
        ("arith-hard", SMALL, LARGE, MIDDLE),
    }


def test_nothing_named_means_everything(material: Material) -> None:
    found = places(material.counted(recipes()["figure-saturation"], dual=False))
    assert {benchmark for benchmark, _, _, _ in found} == {
        "arith-easy", "arith-medium", "arith-hard", "arith-contest",
    }  # fmt: skip
    assert {generator for _, generator, _, _ in found} == {SMALL, MIDDLE, LARGE}
    # No model is its own auxiliary.
    assert all(p != q for _, _, p, q in found)
    assert len(found) == 4 * 3 * 3


def test_the_fitting_run_is_not_looked_at(material: Material) -> None:
    recipe = recipes()["figure-count"]
    assert [run.name for run in material.runs(recipe)] == ["whitebox-tiny", "blackbox-tiny-0.5m"]


def test_a_run_of_protocols_is_one_for_each(material: Material) -> None:
    found = material.runs(recipes()["table-verbalized-deepseek"])
    assert [run.config.protocol for run in found] == [
        "verbalized", "verbalized_top2", "verbalized_distribution",
    ]  # fmt: skip


def test_another_family_keeps_its_own_runs_of_the_papers_side(tmp_path: Path) -> None:
    for name in ("whitebox-qwen2.5", "whitebox-qwen3"):
        random_run(tmp_path / name, named(name, "benchmarks=['amc23']").config, problems=1)
    recipe = recipes()["table-whitebox"]
    assert [r.name for r in Material(tmp_path, "qwen3").runs(recipe)] == ["whitebox-qwen3"]
    assert [r.name for r in runs_of([recipe], "qwen3")] == ["whitebox-qwen3"]
    with pytest.raises(NothingScoredError, match="table-whitebox"):
        Material(tmp_path, "blackbox").runs(recipe)
    with pytest.raises(StoreError, match="whitebox-gemma3"):
        Material(tmp_path, None).runs(recipe)


def test_the_scored_pair_has_the_runs_own_theta(material: Material) -> None:
    recipe = recipes()["figure-count"]
    for dual in (False, True):
        for run, rows in material.counted(recipe, dual=dual):
            scored = (rows.p, rows.q) in ((SMALL, AUXILIARY), (MIDDLE, AUXILIARY))
            assert run.is_scored_pair(rows) is scored
            if scored:
                assert material.theta(recipe, run, rows) == run.config.theta == 0.05


def test_another_pair_has_the_theta_with_the_lowest_ece_on_the_fitting_run(
    material: Material,
) -> None:
    recipe = recipe_with("figure-count", step=10)
    grid = [k / 10 for k in range(1, 10)]
    material.fits(recipe)
    [fitted] = [run for run in material.opened() if run.name == "fit-tiny"]
    for dual, pairs in (
        (False, {(SMALL, MIDDLE), (SMALL, LARGE)}),
        (True, {(LARGE, AUXILIARY), (LARGE, MIDDLE)}),
    ):
        seen: set[tuple[str, str]] = set()
        for run, rows in material.counted(recipe, dual=dual):
            if run.is_scored_pair(rows):
                continue
            seen.add((rows.p, rows.q))
            found = usable(fitted.store, "arith-fit", SMALL, (rows.p, rows.q))
            eces = [
                balanced_figures([dtc_lin(t, theta=theta) for t in found.traces], found.correct)[0]
                for theta in grid
            ]
            lowest = [t for t, e in zip(grid, eces, strict=True) if e <= min(eces) + 1e-12]
            assert material.theta(recipe, run, rows) in lowest
        assert seen == pairs


def test_a_pair_that_was_not_fitted_has_no_theta(material: Material) -> None:
    without = recipe_with("figure-count", fit=None)
    assert material.fits(without) == {}
    for run, rows in material.counted(without, dual=False):
        theta = material.theta(without, run, rows)
        assert (theta is not None) == run.is_scored_pair(rows)
    # Fitted with one generator, a pair of two auxiliaries is the same for all of them; one with
    # the generator itself is not the pair of these two models.
    assert set(material.fits(recipes()["figure-count"])) == {
        (None, AUXILIARY), (None, MIDDLE), (None, LARGE),
        (MIDDLE, AUXILIARY), (LARGE, AUXILIARY), (LARGE, MIDDLE),
    }  # fmt: skip


def test_one_class_fits_nothing(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for source in ("whitebox-tiny", "blackbox-tiny-0.5m"):
        (tmp_path / source).symlink_to(tiny_folder(tmp_path_factory) / source)
    run = named("fit-tiny", *tiny_overrides())
    store = random_run(tmp_path / "fit-tiny", run.config)
    with store.lock():
        wrong = {g.key for g in store.grades.read() if g.verdict == "incorrect"}
        store.trajectories.replace([t for t in store.trajectories.read() if t.key not in wrong])
        store.traces.replace([t for t in store.traces.read() if t.key not in wrong])
    material = Material(tmp_path, TINY)
    assert material.fits(recipes()["figure-count"]) == {}


def test_counts_are_those_of_each_trace(material: Material) -> None:
    recipe = recipe_with("figure-count", generators=[SMALL], benchmarks=["arith-easy"])
    for run, rows in material.counted(recipe, dual=False):
        found = usable(run.store, rows.benchmark, rows.generator, (rows.p, rows.q))
        for theta in (0.05, 0.31):
            expected = [divergent_count(trace, theta=theta) for trace in found.traces]
            assert rows.at(theta).tolist() == expected
        assert rows.correct.tolist() == found.correct
        assert rows.reasoning.tolist() == [int(t.reasoning().sum()) for t in found.traces]
        assert 0 < len(rows) < 24
        assert rows.excluded == 24 - len(rows)


def test_each_run_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "divtok.paper.run_tables.counted",
        lambda run, **options: read.append(run.path.name) or sweeps.counted(run, **options),
    )
    material = Material(tiny_folder(tmp_path_factory), TINY)
    for name in ("figure-count", "figure-count-ratio", "figure-saturation", "figure-theta-map"):
        recipe = recipes()[name]
        for run, rows in material.counted(recipe, dual=False):
            material.theta(recipe, run, rows)
    assert sorted(read) == ["blackbox-tiny-0.5m", "fit-tiny", "whitebox-tiny"]
    assert sorted(run.name for run in material.opened()) == sorted(read)


def test_theta_is_fitted_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from divtok.evaluate.sweep.surfaces import sweep_lin

    fitted: list[str] = []

    def watched(rows: Counted, **options: object) -> object:
        fitted.append(rows.q)
        return sweep_lin(rows, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("divtok.paper.run_tables.sweep_lin", watched)
    material = Material(tiny_folder(tmp_path_factory), TINY)
    recipe = recipes()["figure-count"]
    for run, rows in material.counted(recipe, dual=False):
        material.theta(recipe, run, rows)
    assert len(fitted) == 6


def test_a_family_without_the_fitting_run_has_the_thetas_of_its_own(tmp_path: Path) -> None:
    recipe = recipes()["figure-count"]
    [run] = runs_of([recipe], "blackbox")
    random_run(tmp_path / run.name, named(run.name, "benchmarks=['aime25']").config)
    material = Material(tmp_path, "blackbox")
    thetas = {
        (rows.p, rows.q): material.theta(recipe, held, rows)
        for held, rows in material.counted(recipe, dual=True)
    }
    scored = ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct")
    assert {pair for pair, theta in thetas.items() if theta is not None} == {scored}
    assert thetas[scored] == 0.7


def test_the_papers_single_panel_is_of_math500_alone(tmp_path: Path) -> None:
    few = "benchmarks=['math500','aime24']"
    random_run(tmp_path / "whitebox-qwen2.5", named("whitebox-qwen2.5", few).config, problems=1)
    found = Material(tmp_path, "qwen2.5").counted(recipes()["figure-count"], dual=False)
    assert {rows.benchmark for _, rows in found} == {"math500"}


def test_rows_on_a_coarser_grid(material: Material) -> None:
    [(_, rows), *_] = material.counted(recipes()["figure-theta-map"], dual=False)
    coarse = on_grid(rows, (0.05, 0.5))
    assert coarse.thetas["jsd"].tolist() == [0.05, 0.5]
    assert np.array_equal(coarse.at(0.5), rows.at(0.5))
    assert set(coarse.counts) == {"jsd"}
    with pytest.raises(UsageError, match="not on the grid"):
        on_grid(rows, (0.055,))


def test_the_grid_of_a_side_steps_by_hundredths() -> None:
    assert Side(runs=["a"], step=25).theta_grid() == (0.25, 0.5, 0.75)
    assert Side(runs=["a"]).theta_grid()[:2] == (0.05, 0.1)
    assert len(Side(runs=["a"]).theta_grid()) == 19


@pytest.mark.parametrize(
    ("ref", "name"), [("owner/model", "model"), ("model", "model"), ("/a/b/c", "c")]
)
def test_a_short_name_has_no_owner(ref: str, name: str) -> None:
    assert short(ref) == name
