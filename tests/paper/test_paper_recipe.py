"""The recipes: each names runs that exist, and its twin differs in models and sizes only."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from divtok.config.run import RunConfig
from divtok.errors import ConfigError, UsageError
from divtok.paper.recipe import (
    ALL,
    TINY,
    ExhibitKind,
    Recipe,
    Side,
    check_words,
    chosen_recipes,
    named_runs,
    recipes,
    runs_of,
)
from divtok.stages.choices import chosen_estimators, needed_evidence

SIDES = [(name, family) for name in recipes() for family in (None, TINY)]
STATED = ("verbalized", "verbalized_top2", "verbalized_distribution")


def runs(name: str, family: str | None = None) -> dict[str, RunConfig]:
    return {run.name: run.config for run in runs_of(chosen_recipes(name), family)}


def test_every_kind_of_exhibit_has_a_recipe() -> None:
    assert {recipe.exhibit for recipe in recipes().values()} == set(get_args(ExhibitKind))


def test_tables_come_first_and_each_recipe_knows_its_name() -> None:
    names = list(recipes())
    tables = [name for name in names if name.startswith("table-")]
    assert names[: len(tables)] == tables
    assert tables[0] == "table-whitebox"
    assert all(recipe.name == name for name, recipe in recipes().items())
    assert chosen_recipes(ALL) == list(recipes().values())


@pytest.mark.parametrize(("name", "family"), SIDES)
def test_every_side_has_runs_that_hold_what_it_looks_at(name: str, family: str | None) -> None:
    side = recipes()[name].side(family)
    found = runs_of(chosen_recipes(name), family)
    configs = [run.config for run in found]
    assert (family == TINY) == all(config.family == TINY for config in configs)
    generators = {g.model for config in configs for g in config.generator_presets()}
    benchmarks = {benchmark for config in configs for benchmark in config.benchmark_names()}
    assert set(side.generators or []) <= generators
    assert set(side.benchmarks or []) <= benchmarks
    for config in configs:
        for generator in config.generator_presets():
            assert all(config.samples_for(generator, b) > 0 for b in config.benchmark_names())
        assert chosen_estimators(config)


@pytest.mark.parametrize("name", recipes())
def test_the_twin_has_as_many_runs_of_each_protocol(name: str) -> None:
    def protocols(family: str | None) -> set[str]:
        return {config.protocol for config in runs(name, family).values()}

    assert protocols(TINY) == protocols(None)
    recipe = recipes()[name]
    assert (recipe.tiny.fit is None) == (recipe.paper.fit is None)


def test_the_white_box_table_has_the_papers_generators_and_pairs() -> None:
    found = runs("table-whitebox")
    assert list(found) == ["whitebox-qwen2.5", "whitebox-qwen3", "whitebox-gemma3"]
    assert [config.theta for config in found.values()] == [0.50, 0.60, 0.85]
    qwen = found["whitebox-qwen2.5"]
    small = qwen.generator_presets()[0]
    assert qwen.pair_for(small) == ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct")
    assert qwen.pairs_for(small) == [qwen.pair_for(small)]  # tables show no other
    assert set(needed_evidence(qwen)) == {"chain", "base", "rewards", "statement"}


@pytest.mark.parametrize("size", ["deepseek", "qwen3-4b", "qwen3-30b"])
def test_a_black_box_table_has_a_run_for_each_protocol(size: str) -> None:
    found = runs(f"table-blackbox-{size}")
    stated = [f"blackbox-{size}-stated-{protocol}" for protocol in STATED]
    assert list(found) == [f"blackbox-{size}", *stated]
    assert [config.protocol for config in found.values()] == ["cot", *STATED]
    for config in found.values():
        [generator] = config.generator_presets()
        assert config.theta == 0.70
        assert config.pair_for(generator) == (
            "Qwen/Qwen2.5-7B-Instruct",
            "Qwen/Qwen2.5-1.5B-Instruct",
        )
    assert list(runs(f"table-verbalized-{size}")) == stated


def test_all_auxiliaries_of_the_dual_map_are_read_once() -> None:
    config = runs("figure-theta-map-dual")["blackbox-deepseek"]
    [generator] = config.generator_presets()
    pairs = config.pairs_for(generator)
    sizes = ["1.5B", "3B", "7B", "14B", "32B"]
    wanted = {
        (f"Qwen/Qwen2.5-{large}-Instruct", f"Qwen/Qwen2.5-{small}-Instruct")
        for place, large in enumerate(sizes)
        for small in sizes[:place]
    }
    assert set(pairs) == wanted
    assert len(pairs) == len(wanted) == 10


def test_shared_runs_come_once() -> None:
    names = [run.name for run in runs_of(chosen_recipes(ALL), None)]
    assert len(names) == len(set(names))
    assert names.count("fit-qwen2.5") == names.count("whitebox-qwen2.5") == 1
    assert {run.config.family for run in runs_of(chosen_recipes(ALL), TINY)} == {TINY}


def test_another_family_keeps_the_papers_runs_of_it() -> None:
    assert list(runs("table-whitebox", "gemma3")) == ["whitebox-gemma3"]
    with pytest.raises(UsageError, match="belongs to the family 'gemma3'"):
        runs("table-blackbox-deepseek", "gemma3")


def test_overrides_reach_every_run_and_leave_the_recipes_alone() -> None:
    changed = runs_of(chosen_recipes("table-blackbox-deepseek"), TINY, ["limit=2", "seed=7"])
    assert {(run.config.limit, run.config.seed) for run in changed} == {(2, 7)}
    again = runs_of(chosen_recipes("table-blackbox-deepseek"), TINY)
    assert {(run.config.limit, run.config.seed) for run in again} == {(25, 0)}
    with pytest.raises(ConfigError, match="unknown key 'limt'"):
        runs_of(chosen_recipes("table-whitebox"), TINY, ["limt=2"])


def test_fitting_uses_problems_that_no_table_has() -> None:
    fitted = {name for run in named_runs("fit-qwen2.5") for name in run.config.benchmark_names()}
    everything = [run for name in recipes() for run in runs_of(chosen_recipes(name), None)]
    tables = {b for r in everything if r.name != "fit-qwen2.5" for b in r.config.benchmark_names()}
    assert fitted == {"math-train"}
    assert not fitted & tables


def test_an_unknown_recipe_is_refused_with_the_close_ones() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'table-whitebox'"):
        chosen_recipes("table-whitbox")


def test_an_unknown_key_or_kind_is_refused() -> None:
    fields = {"title": "T", "about": "A", "exhibit": "count", "paper": Side(runs=["a"])}
    with pytest.raises(ValidationError, match="extra"):
        Recipe.model_validate({**fields, "tiny": {"runs": ["a"], "benchmark": ["b"]}})
    with pytest.raises(ValidationError, match="exhibit"):
        Recipe.model_validate({**fields, "tiny": {"runs": ["a"]}, "exhibit": "bars"})


def test_a_protocol_asks_in_the_words_of_a_file_in_a_run_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text("kind: verbalized\nuser: '{question} As JSON.'\n")
    given = [f"protocols.verbalized={file}", "limit=3"]
    found = {run.name: run.config for run in named_runs("blackbox-qwen3-4b-stated", given)}
    base = "blackbox-qwen3-4b-stated"
    assert list(found) == [
        f"{base}-verbalized-theirs",
        f"{base}-verbalized_top2",
        f"{base}-verbalized_distribution",
    ]
    assert found[f"{base}-verbalized-theirs"].wordings["theirs"].user == "{question} As JSON."
    assert {config.limit for config in found.values()} == {3}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("protocols.verbalized_top2=FILE", "words for the protocol 'verbalized', not for"),
        ("protocols.verbalized=theirs.txt", "names no file of words"),
        ("protocol=FILE", "protocols.KIND=FILE.yaml"),
    ],
)
def test_words_that_fit_no_protocol_are_refused(tmp_path: Path, override: str, said: str) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text("kind: verbalized\nuser: '{question} As JSON.'\n")
    with pytest.raises(UsageError) as refused:
        named_runs("blackbox-qwen3-4b-stated", [override.replace("FILE", str(file))])
    assert said in str(refused.value)


def test_words_for_a_protocol_that_no_run_asks_by_are_refused() -> None:
    chosen = chosen_recipes("table-whitebox")
    with pytest.raises(UsageError, match="No run of this asks by a protocol 'verbalized'"):
        check_words(chosen, TINY, ["protocols.verbalized=x.yaml"])
    check_words(chosen_recipes("all", TINY), TINY, ["protocols.verbalized=x.yaml"])
