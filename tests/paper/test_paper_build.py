"""When a run counts as finished, what is left alone, and what is refused before it costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from paper_samples import (
    SAMPLES,
    named,
    random_run,
    tiny_folder,
    tiny_material,
    tiny_overrides,
    write_run,
)

from divtok.config.run import resolve, to_yaml
from divtok.errors import EXIT_USAGE, UsageError
from divtok.paper.build import BUILDERS, is_finished, make_exhibits, make_runs, makeable
from divtok.paper.claims.counts import GROWS
from divtok.paper.recipe import TINY, ExhibitKind, NamedRun, chosen_recipes, recipes, runs_of
from divtok.paper.run_tables import Material
from divtok.stages import run as whole
from divtok.store.run import Run

NAME = "blackbox-tiny-0.5m"


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def run() -> NamedRun:
    return named(NAME, *tiny_overrides(), "benchmarks=['arith-medium']")


@pytest.fixture
def store(tmp_path: Path, run: NamedRun) -> Run:
    return random_run(tmp_path / run.name, run.config, problems=2)


def test_every_kind_of_exhibit_has_a_builder() -> None:
    assert set(BUILDERS) == set(get_args(ExhibitKind))


def test_a_run_with_everything_is_finished(store: Run, run: NamedRun) -> None:
    assert len(store.trajectories.read()) == 2 * SAMPLES
    assert is_finished(store, run)


def test_an_empty_folder_is_not_finished(tmp_path: Path, run: NamedRun) -> None:
    assert not is_finished(Run.create_or_open(tmp_path / "new"), run)


def without_a_trajectory(store: Run) -> None:
    store.trajectories.replace(store.trajectories.read()[1:])


def without_a_scored_trace(store: Run) -> None:
    gone = next(t for t in store.traces.read() if t.p == "divtok/tiny-0.9m")
    store.traces.replace([t for t in store.traces.read() if (t.key, t.p) != (gone.key, gone.p)])


def without_a_trace_of_another_pair(store: Run) -> None:
    gone = next(t for t in store.traces.read() if t.p == "divtok/tiny-1.6m")
    kept = [t for t in store.traces.read() if (t.key, t.p, t.q) != (gone.key, gone.p, gone.q)]
    store.traces.replace(kept)


def without_a_confidence(store: Run) -> None:
    store.confidences.replace(store.confidences.read()[1:])


def without_an_estimator(store: Run) -> None:
    store.confidences.replace([c for c in store.confidences.read() if c.estimator != "prm"])


@pytest.mark.parametrize(
    "spoil",
    [
        without_a_trajectory,
        without_a_scored_trace,
        without_a_trace_of_another_pair,
        without_a_confidence,
        without_an_estimator,
    ],
)
def test_a_missing_row_makes_it_unfinished(
    store: Run, run: NamedRun, spoil: Callable[[Run], None]
) -> None:
    with store.lock():
        spoil(store)
    assert not is_finished(store, run)


@pytest.mark.parametrize(
    "change",
    [
        *("score.theta=0.2", "samples=5", "limit=1", "seed=1", "score.estimators=[dtc_lin,nsl]"),
        *("benchmarks=['arith-medium','arith-hard']", "protocol=verbalized", "grade.grader=exact"),
        *("generators=['divtok/tiny-0.9m']", "trace.reader=divtok/tiny-1.6m", "trace.also=[]"),
    ],
)
def test_another_config_makes_it_unfinished(store: Run, change: str) -> None:
    other = named(NAME, *tiny_overrides(), "benchmarks=['arith-medium']", change)
    assert is_finished(store, other) == (change == "trace.also=[]")


@pytest.mark.parametrize(
    "less",
    [
        *("score.estimators=[dtc_lin]", "score.estimators=[prm,dtc_prod]"),
        *("benchmarks=['arith-medium']", "trace.also=[{reader: divtok/tiny-1.6m}]"),
    ],
)
def test_a_run_that_holds_more_than_is_asked_for_is_finished(tmp_path: Path, less: str) -> None:
    whole = named(NAME, *tiny_overrides(), "benchmarks=['arith-medium','arith-hard']")
    store = random_run(tmp_path / NAME, whole.config, problems=1)
    part = named(NAME, *tiny_overrides(), "benchmarks=['arith-medium','arith-hard']", less)
    assert is_finished(store, part)


def test_a_part_that_lacks_a_row_is_unfinished_whatever_else_there_is(tmp_path: Path) -> None:
    whole = named(NAME, *tiny_overrides(), "benchmarks=['arith-medium','arith-hard']")
    store = random_run(tmp_path / NAME, whole.config, problems=1)
    parts = [
        named(NAME, *tiny_overrides(), f"benchmarks=['{b}']")
        for b in ("arith-medium", "arith-hard")
    ]
    with store.lock():
        gone = next(t for t in store.traces.read() if t.key.startswith("arith-hard"))
        store.traces.replace(
            [
                t
                for t in store.traces.read()
                if t is not gone and (t.key, t.p, t.q) != (gone.key, gone.p, gone.q)
            ]
        )
    assert [is_finished(store, part) for part in parts] == [True, False]


def test_problems_of_every_benchmark_must_be_there(tmp_path: Path) -> None:
    """Without any, no response to them is lacking either."""
    one = named(NAME, *tiny_overrides(), "benchmarks=['arith-medium']")
    both = named(NAME, *tiny_overrides(), "benchmarks=['arith-medium','arith-hard']")
    store = random_run(tmp_path / NAME, one.config, problems=1)
    with store.lock():
        store.write_config(to_yaml(resolve(both.config)))
    assert not is_finished(store, both)


def test_a_run_from_before_a_setting_was_there_is_finished(store: Run, run: NamedRun) -> None:
    text = store.config_text()
    assert text is not None
    assert "subset_seed: null\n" in text
    with store.lock():
        store.write_config(text.replace("subset_seed: null\n", ""))
    assert is_finished(store, run)


def test_a_run_of_another_generator_as_well_is_unfinished(tmp_path: Path) -> None:
    both = named("whitebox-tiny", *tiny_overrides(), "benchmarks=['arith-medium']")
    one = named(
        "whitebox-tiny", *tiny_overrides(), "benchmarks=['arith-medium']",
        "generators=['divtok/tiny-0.5m']",
    )  # fmt: skip
    store = random_run(tmp_path / "run", one.config, problems=1)
    assert is_finished(store, one)
    assert not is_finished(store, both)


def test_a_finished_run_is_left_alone(
    tmp_path: Path, store: Run, run: NamedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "run_stages", lambda *_, **__: pytest.fail("made again"))
    before = contents(tmp_path)
    [made] = make_runs([run], tmp_path)
    assert made.path == store.path
    assert contents(tmp_path) == before


def test_only_what_is_unfinished_is_made(
    tmp_path: Path, store: Run, run: NamedRun, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    other = NamedRun("other", run.config)
    asked: list[tuple[str, bool]] = []

    def stages(
        store: Run, config: object, *, retry_failed: bool, sampled: bool, part: object
    ) -> None:
        assert not sampled
        assert part == config  # nothing of another recipe is there
        asked.append((store.path.name, retry_failed))

    monkeypatch.setattr(whole, "run_stages", stages)
    make_runs([run, other], tmp_path)
    assert asked == [("other", False)]
    assert "run 2 of 2: other" in capsys.readouterr().err
    # Failed rows can be in any of them.
    make_runs([run, other], tmp_path, retry_failed=True)
    assert asked[1:] == [(run.name, True), ("other", True)]


def test_trajectories_of_an_api_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = named("blackbox-deepseek", f"samples={SAMPLES}", "benchmarks=['aime25']")
    store = random_run(tmp_path / run.name, run.config, problems=1)
    with store.lock():
        store.confidences.replace([])
    asked: list[bool] = []
    monkeypatch.setattr(whole, "run_stages", lambda *_, sampled, **__: asked.append(sampled))
    make_runs([run], tmp_path)
    assert asked == [True]


def test_of_all_recipes_those_that_need_an_api_are_left_out(tmp_path: Path) -> None:
    recipes_kept, left_out = makeable(chosen_recipes("all"), None, [], tmp_path)
    kept = {recipe.name for recipe in recipes_kept}
    assert "table-whitebox" in kept
    assert "table-blackbox-qwen3-4b" in kept
    lost = {"table-blackbox-deepseek", "table-verbalized-deepseek", "figure-count"}
    assert not kept & lost
    assert len(kept) + len(left_out) == len(recipes())
    for name in lost:
        assert any(line.startswith(f"{name} is left out. ") for line in left_out)


def test_a_generator_behind_an_api_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    runs = runs_of(chosen_recipes("table-blackbox-deepseek"), None)
    first = named("whitebox-qwen2.5")
    with pytest.raises(UsageError, match=r"deepseek-ai/DeepSeek-V3\.2") as refused:
        make_runs([first, *runs], tmp_path)
    assert refused.value.exit_code == EXIT_USAGE
    assert "blackbox-deepseek" in str(refused.value)
    assert "--plan" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_its_finished_trajectories_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = named("blackbox-deepseek", f"samples={SAMPLES}", "benchmarks=['aime25']")
    random_run(tmp_path / run.name, run.config, problems=1)
    monkeypatch.setattr(whole, "run_stages", lambda *_, **__: pytest.fail("made again"))
    [store] = make_runs([run], tmp_path)
    assert store.path == tmp_path / run.name


def test_a_part_of_its_trajectories_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = named("blackbox-deepseek", f"samples={SAMPLES}", "benchmarks=['aime25']")
    store = random_run(tmp_path / run.name, run.config, problems=1)
    with store.lock():
        store.trajectories.replace(store.trajectories.read()[:1])
    asked: list[object] = []
    monkeypatch.setattr(whole, "run_stages", lambda *_, **__: asked.append(1))
    with pytest.raises(UsageError):
        make_runs([run], tmp_path)
    assert not asked


def test_all_exhibits_in_the_order_of_the_recipes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    chosen = chosen_recipes("all")
    made = make_exhibits(chosen, tiny_material(tmp_path_factory))
    assert [exhibit.recipe.name for exhibit in made] == list(recipes())
    for exhibit in made:
        is_table = exhibit.recipe.name.startswith("table-")
        assert bool(exhibit.tables) == is_table
        assert bool(exhibit.figures) != is_table
        assert is_table or exhibit.caption


def test_recipes_without_a_run_of_the_family_are_left_out(tmp_path: Path) -> None:
    for run in runs_of(chosen_recipes("all"), "qwen3"):
        random_run(tmp_path / run.name, named(run.name, "benchmarks=['amc23']").config)
    made = make_exhibits(chosen_recipes("all"), Material(tmp_path, "qwen3"))
    assert [exhibit.recipe.name for exhibit in made] == [
        "table-whitebox", "figure-saturation", "figure-offset",
    ]  # fmt: skip


@pytest.mark.parametrize("name", recipes())
def test_runs_of_right_responses_only_have_exhibits_without_figures(
    name: str, one_class: Path
) -> None:
    [made] = make_exhibits(chosen_recipes(name), Material(one_class, TINY))
    assert made.tables or made.figures
    for finding in made.findings:
        assert finding.number
        # Whether the count grows with length has nothing to do with what is right.
        assert finding.holds is not True or finding.claim == GROWS.text


@pytest.fixture(scope="module")
def one_class(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of the tiny side with its right responses alone."""
    folder = tmp_path_factory.mktemp("one-class")
    for source in sorted(tiny_folder(tmp_path_factory).iterdir()):
        full = Run.open(source)
        copy = Run.create_or_open(folder / source.name)
        right = {g.key for g in full.grades.read() if g.verdict == "correct"}
        with copy.lock():
            text = full.config_text()
            assert text is not None
            copy.write_config(text)
            copy.trajectories.append([t for t in full.trajectories.read() if t.key in right])
            for there, kept in (
                (full.grades, copy.grades),
                (full.traces, copy.traces),
                (full.confidences, copy.confidences),
            ):
                kept.append([row for row in there.read() if row.key in right])
    return folder


@pytest.mark.parametrize("name", recipes())
def test_runs_without_any_usable_response_have_exhibits_without_figures(
    name: str, unusable: Path
) -> None:
    [made] = make_exhibits(chosen_recipes(name), Material(unusable, TINY))
    assert made.tables or made.figures
    assert all(finding.holds is None for finding in made.findings)


@pytest.fixture(scope="module")
def unusable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of the tiny side with all its responses cut off."""
    from paper_samples import Response, random_responses

    folder = tmp_path_factory.mktemp("unusable")
    for recipe_run in runs_of(chosen_recipes("all"), TINY, tiny_overrides()):
        rows = [
            Response(
                r.benchmark, r.generator, r.problem, r.sample, r.verdict, True, r.traces, r.values
            )
            for r in random_responses(recipe_run.config, problems=1)
        ]
        write_run(folder / recipe_run.name, recipe_run.config, rows)
    return folder
