"""What recipes ask of the runs they share: no more than they look at, in whatever order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from paper_samples import random_responses, tiny_material, tiny_overrides, write_run

from divtok.config.run import RunConfig, resolve
from divtok.paper import uses
from divtok.paper.build import BUILDERS, is_finished, make_exhibits, make_runs
from divtok.paper.parts import joined_parts
from divtok.paper.recipe import TINY, NamedRun, chosen_recipes, named_runs, recipes, runs_of
from divtok.paper.run_tables import Material
from divtok.report.render import to_markdown
from divtok.stages.choices import chosen_estimators, needed_evidence
from divtok.stages.stored import stored_config
from divtok.store.run import Run

QWEN = [f"Qwen/Qwen2.5-{size}B-Instruct" for size in ("1.5", "3", "7", "14", "32")]
SMALL, THREE, SEVEN, FOURTEEN, LARGE = QWEN
FIGURE, TABLE = "figure-count", "table-whitebox"
FEW = ("limit=3", "samples=2", "benchmarks=['arith-medium','arith-hard']",
       "generators=['divtok/tiny-0.9m','divtok/tiny-0.5m']", "evaluate.resamples=20")  # fmt: skip


def asked(recipe: str, *overrides: str, family: str | None = None) -> dict[str, RunConfig]:
    return {r.name: r.config for r in runs_of(chosen_recipes(recipe), family, overrides)}


def pairs(config: RunConfig) -> set[tuple[str, str]]:
    return {pair for g in config.generator_presets() for pair in config.pairs_for(g)}


def test_a_figure_of_counts_asks_for_its_generator_benchmark_and_pairs() -> None:
    found = asked(FIGURE)
    white, black, fit = (found[n] for n in ("whitebox-qwen2.5", "blackbox-deepseek", "fit-qwen2.5"))
    assert (white.generators, white.benchmarks) == ([SEVEN], ["math500"])
    assert pairs(white) == {(SEVEN, q) for q in (SMALL, THREE, FOURTEEN, LARGE)}
    assert black.benchmark_names() == ["aime24", "aime25", "hmmt25", "hmmt26"]
    # Pairs that the fitting set has no theta for are not drawn.
    assert pairs(black) == {(p, SMALL) for p in (SEVEN, THREE, FOURTEEN, LARGE)}
    assert pairs(fit) == pairs(named_runs("fit-qwen2.5")[0].config)
    for config in found.values():
        assert needed_evidence(config) == []
    chosen = {spec.name for spec in chosen_estimators(black)}
    assert {"dtc_lin", "dtc_prod"} <= chosen
    assert "prm" not in chosen


def test_the_fitting_set_is_read_by_the_pairs_it_is_for() -> None:
    found = asked("figure-count-ratio")
    assert pairs(found["fit-qwen2.5"]) == {(SEVEN, q) for q in (SMALL, THREE, FOURTEEN, LARGE)}
    assert pairs(found["fit-qwen2.5"]) == pairs(found["whitebox-qwen2.5"])


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_is_made_from_what_it_asks_for(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same exhibit, whether its runs hold what it asks for or all that there is."""
    for run in runs_of(chosen_recipes(name), TINY, tiny_overrides()):
        [whole] = [n for n in named_runs_of(run.name) if n.name == run.name]
        kept = {
            (g.model, b)
            for g in run.config.generator_presets()
            for b in run.config.benchmark_names()
        }
        read = {
            (g.model, pair)
            for g in run.config.generator_presets()
            for pair in run.config.pairs_for(g)
        }
        scored = {spec.name for spec in chosen_estimators(run.config)} | {"count", "length"}
        rows = [
            replace(
                row,
                traces=tuple(t for t in row.traces if (row.generator, (t.p, t.q)) in read),
                values={n: v for n, v in row.values.items() if n in scored},
            )
            for row in random_responses(whole.config)
            if (row.generator, row.benchmark) in kept
        ]
        write_run(tmp_path / run.name, run.config, rows)
    [less] = make_exhibits(chosen_recipes(name), Material(tmp_path, TINY, tiny_overrides()))
    [more] = make_exhibits(chosen_recipes(name), tiny_material(tmp_path_factory))
    assert less.tables == more.tables
    assert [figure.values() for figure in less.figures] == [f.values() for f in more.figures]
    assert repr(less.findings) == repr(more.findings)  # a NaN is not equal to itself
    assert less.caption == more.caption


def named_runs_of(name: str) -> list[NamedRun]:
    stated = name.partition("-verbalized")[0]
    return named_runs(stated, tiny_overrides())


def test_every_kind_that_reads_further_pairs_is_one() -> None:
    assert {*uses._FROM_TRACES, *uses._FURTHER, *uses._OWN_ESTIMATORS} <= set(BUILDERS)


def test_what_overrides_say_is_asked_for() -> None:
    some = "trace.also=[{auxiliary: Qwen/Qwen2.5-3B-Instruct}]"
    white = asked(TABLE, some, "score.estimators=[prm]")["whitebox-qwen2.5"]
    assert (SEVEN, THREE) in pairs(white)
    assert [
        spec.name
        for spec in chosen_estimators(asked(FIGURE, "score.estimators=[prm]")["whitebox-qwen2.5"])
    ] == ["prm"]


def test_parts_join_in_one_order_whichever_comes_first() -> None:
    [whole] = named_runs("whitebox-qwen2.5")
    one, other = (asked(n)["whitebox-qwen2.5"] for n in ("figure-calibration", FIGURE))
    first, second = (joined_parts(a, b, whole.config) for a, b in ((one, other), (other, one)))
    assert first == second
    assert first.generators == [SEVEN, FOURTEEN]
    assert first.score.estimators == ["whitebox", "pilot"]
    assert first.trace.also == other.trace.also
    assert resolve(joined_parts(whole.config, one, whole.config)) == resolve(whole.config)


def test_recipes_in_either_order_end_in_the_same_tables(tmp_path: Path) -> None:
    """With the embedded models: each makes what is missing for it, and nothing else."""
    made = {}
    for order in ((FIGURE, TABLE), (TABLE, FIGURE)):
        folder = tmp_path / order[0]
        held: list[tuple[int, int]] = []
        for name in order:
            [*stores] = make_runs(runs_of(chosen_recipes(name), TINY, FEW), folder)
            white = next(s for s in stores if s.path.name == "whitebox-tiny")
            held.append((len(white.trajectories.keys()), len(white.traces.keys())))
        # 2 benchmarks x 3 problems x 2 samples of a generator; the figure: one, by three pairs.
        figure, both = (12, 3 * 12), (24, 24 + 2 * 12)
        assert held == ([figure, both] if order[0] == FIGURE else [(24, 24), both])
        for name in order:
            for asked_run in runs_of(chosen_recipes(name), TINY, FEW):
                assert is_finished(Run.open(folder / asked_run.name), asked_run)
        config = stored_config(Run.open(folder / "whitebox-tiny"))
        material = Material(folder, TINY, FEW)
        exhibits = make_exhibits([recipes()[TABLE], recipes()[FIGURE]], material)
        made[order] = config, exhibits
    (one_config, one), (other_config, other) = made.values()
    assert one_config == other_config
    for exhibit, again in zip(one, other, strict=True):
        assert list(map(to_markdown, exhibit.tables)) == list(map(to_markdown, again.tables))
        assert [f.values() for f in exhibit.figures] == [f.values() for f in again.figures]
        assert [(f.claim, f.number) for f in exhibit.findings] == [
            (f.claim, f.number) for f in again.findings
        ]
