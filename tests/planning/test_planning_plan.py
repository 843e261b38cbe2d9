"""Planning: exact counts, what is there already, estimates from known sizes, nothing loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planning_samples import write_model

import divtok
from divtok.config.run import RunConfig, load_config, to_yaml
from divtok.errors import ConfigError
from divtok.evidence.kinds.chain import CHAINS
from divtok.evidence.kinds.rewards import REWARDS
from divtok.evidence.kinds.statement import REPLIES
from divtok.evidence.readings import READINGS
from divtok.models.sizes import API_MODELS, HUB_MODELS, ModelSize
from divtok.paper.recipe import ALL, TINY, NamedRun, chosen_recipes, recipes, runs_of
from divtok.planning.benchmark_sizes import assumed_tokens
from divtok.planning.plan import CellPlan, Plan, as_json, make_plan
from divtok.planning.plan_text import plan_text, totals_line
from divtok.planning.speed import writing_hours
from divtok.planning.workload import Work, models_used
from divtok.records import (
    PER_TOKEN_FIELDS,
    Chain,
    Grade,
    Problem,
    Reading,
    Reply,
    Sampling,
    StepRewards,
    Trace,
    Trajectory,
    Verdict,
)
from divtok.store.run import Run, check_or_write_manifest

TINY_GENERATOR, TINY_AUXILIARY = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
QWEN_7B, QWEN_SMALL = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"


def configs(runs: Sequence[NamedRun]) -> dict[str, RunConfig]:
    return {run.name: run.config for run in runs}


def plan_of(
    name: str, family: str | None = None, *overrides: str, folder: Path = Path("no")
) -> Plan:
    return make_plan(configs(runs_of(chosen_recipes(name), family, overrides)), folder)


def counts(plan: Plan, run: str) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(generator, benchmark) -> problems, samples of each, responses"""
    [found] = [r for r in plan.runs if r.name == run]
    return {(c.generator, c.benchmark): (c.problems, c.samples, c.responses) for c in found.cells}


def test_the_white_box_table_has_the_papers_sample_counts() -> None:
    plan = plan_of("table-whitebox")
    generators = {
        "whitebox-qwen2.5": [f"Qwen/Qwen2.5-{n}B-Instruct" for n in (7, 14, 32)],
        "whitebox-qwen3": [f"Qwen/Qwen3-{n}B" for n in (8, 14, 32)],
        "whitebox-gemma3": [f"google/gemma-3-{n}b-it" for n in (12, 27)],
    }
    assert [run.name for run in plan.runs] == list(generators)
    for run, models in generators.items():
        for model in models:
            of_model = {b: c for (g, b), c in counts(plan, run).items() if g == model}
            assert of_model == {
                "math500": (500, 8, 4_000),
                "amc23": (40, 64, 2_560),
                "aime24": (30, 64, 1_920),
                "aime25": (30, 64, 1_920),
            }
    totals = plan.totals
    assert (totals.runs, totals.generators, totals.benchmarks) == (3, 8, 4)
    assert totals.responses == 8 * (4_000 + 2_560 + 1_920 + 1_920)
    assert totals.cpu_hours == 0 < totals.gpu_hours == totals.gpu_hours_left


@pytest.mark.parametrize(
    ("size", "generator", "samples"),
    [
        ("deepseek", "deepseek-ai/DeepSeek-V3.2", 32),
        ("qwen3-4b", "Qwen/Qwen3-4B-Instruct-2507", 64),
        ("qwen3-30b", "Qwen/Qwen3-30B-A3B-Instruct-2507", 64),
    ],
)
def test_the_black_box_tables_have_the_papers_sample_counts(
    size: str, generator: str, samples: int
) -> None:
    plan = plan_of(f"table-blackbox-{size}")
    assert len(plan.runs) == 4
    for run in plan.runs:
        assert counts(plan, run.name) == {
            (generator, "aime24"): (30, samples, 30 * samples),
            (generator, "aime25"): (30, samples, 30 * samples),
            (generator, "hmmt25"): (30, samples, 30 * samples),
            (generator, "hmmt26"): (33, samples, 33 * samples),
        }
    assert plan.totals.responses == 4 * 123 * samples


def test_the_fitting_runs_take_a_hundred_problems() -> None:
    assert counts(plan_of("figure-count"), "fit-qwen2.5") == {
        (QWEN_7B, "math-train"): (100, 8, 800)
    }
    tiny = counts(plan_of("figure-count", TINY), "fit-tiny")
    assert tiny == {(TINY_GENERATOR, "arith-fit"): (100, 8, 800)}


def test_limits_files_and_samples_change_the_counts(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    rows = [{"id": str(n), "problem": f"{n}?", "answer": str(n)} for n in range(7)]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    gemma = "whitebox-gemma3"
    few = counts(plan_of("table-whitebox", "gemma3", "limit=35", "samples=2"), gemma)
    assert {b: c for (_, b), c in few.items()} == {
        "math500": (35, 2, 70),
        "amc23": (35, 2, 70),
        "aime24": (30, 2, 60),
        "aime25": (30, 2, 60),
    }
    local = counts(plan_of("table-whitebox", "gemma3", f"benchmark_files.math500={file}"), gemma)
    assert local["google/gemma-3-12b-it", "math500"] == (7, 8, 56)
    both = plan_of("table-whitebox", "gemma3", f"benchmark_files.math500={file}", "limit=5")
    assert counts(both, gemma)["google/gemma-3-12b-it", "math500"] == (5, 8, 40)


def test_a_benchmark_of_unknown_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:

    from divtok.problems.benchmark import BENCHMARKS

    amc = BENCHMARKS.get("amc23")
    unknown = replace(amc, source=replace(amc.source, count=None))  # type: ignore[type-var]
    monkeypatch.setitem(BENCHMARKS._things, "amc23", unknown)
    with pytest.raises(ConfigError, match=r"'amc23'.*benchmark_files\.amc23=PATH"):
        plan_of("table-whitebox", "gemma3")


def test_shared_runs_and_models_count_once() -> None:
    both = [*chosen_recipes("table-whitebox"), *chosen_recipes("figure-count")]
    plan = make_plan(configs(runs_of(both, None)), Path("no"))
    names = [run.name for run in plan.runs]
    assert sorted(names) == sorted(
        [
            "whitebox-qwen2.5",
            "whitebox-qwen3",
            "whitebox-gemma3",
            "blackbox-deepseek",
            "fit-qwen2.5",
        ]
    )
    refs = [model.ref for model in plan.models]
    assert len(refs) == len(set(refs))
    by_ref = {model.ref: model for model in plan.models}
    assert by_ref[QWEN_7B].roles == ("generator", "reader")
    assert by_ref[QWEN_SMALL].roles == ("auxiliary",)
    assert by_ref["Qwen/Qwen2.5-7B"].roles == ("base",)
    assert by_ref["Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B"].roles == ("prm",)
    assert by_ref["deepseek-ai/DeepSeek-V3.2"].roles == ("api",)
    assert "Qwen/Qwen3-32B-Base" not in by_ref  # which does not exist
    alone = plan_of("table-whitebox").totals.download_bytes
    [further] = by_ref.keys() - {m.ref for m in plan_of("table-whitebox").models} - API_MODELS
    assert further == "Qwen/Qwen2.5-3B-Instruct"  # an auxiliary of the figure alone
    assert plan.totals.download_bytes == alone + by_ref[further].download_bytes


def test_a_model_behind_an_api_costs_nothing_here() -> None:
    plan = plan_of("table-blackbox-deepseek")
    [deepseek] = [model for model in plan.models if "api" in model.roles]
    assert (deepseek.download_bytes, deepseek.here) == (0, False)
    for run in plan.runs:
        assert all(cell.hours("generate") == 0 for cell in run.cells)
        assert any("through an API" in note for note in run.notes)
    assert plan.totals.gpu_hours > 0
    address = "generate.api.base_url=http://localhost:1"
    for run in plan_of("table-blackbox-deepseek", None, address).runs:
        assert not any("through an API" in note for note in run.notes)


def test_every_hub_model_of_the_recipes_is_known() -> None:
    runs = runs_of(chosen_recipes(ALL), None)
    used = {ref for run in runs for ref, _ in models_used(run.config)}
    assert used <= HUB_MODELS.keys() | API_MODELS


def test_a_model_in_the_hubs_cache_is_not_downloaded_again(hub_cache: Path) -> None:
    def download(plan: Plan) -> int:
        return plan.totals.download_bytes

    before = download(plan_of("table-whitebox"))
    entry = hub_cache / "models--Qwen--Qwen2.5-7B-Instruct"
    folder = entry / "snapshots" / ("0" * 40)
    write_model(folder, {"w": [1]})
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text("0" * 40)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    assert download(plan_of("table-whitebox")) == before  # one of its two files is missing
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"")
    plan = plan_of("table-whitebox")
    assert before - download(plan) == 2 * 7_615_616_512
    [model] = [m for m in plan.models if m.ref == QWEN_7B]
    assert model.here


def test_downloads_are_two_bytes_a_parameter() -> None:
    by_ref = {model.ref: model for model in plan_of("table-whitebox").models}
    assert by_ref["Qwen/Qwen2.5-32B"].download_bytes == 2 * 32_763_876_352
    assert by_ref["Qwen/Qwen2.5-32B"].parameters == 32_763_876_352
    total = sum(m.download_bytes for m in by_ref.values() if m.download_bytes is not None)
    assert plan_of("table-whitebox").totals.download_bytes == total


def only(cell: CellPlan, kind: str) -> Work:
    [work] = [w for w in cell.work if w.kind == kind]
    return work


def test_tracing_takes_the_measured_rate() -> None:
    """30,000 tokens a second for 7B and 1.5B, and in proportion to the active weights else."""
    cell = plan_of("figure-count").runs[0].cells[0]
    assert (cell.generator, cell.benchmark, cell.tokens) == (QWEN_7B, "math500", 2_800_000)
    first, second, *_ = [w for w in cell.work if w.kind == "trace"]
    assert first.models == (QWEN_7B, QWEN_SMALL)
    assert first.hours == pytest.approx(2_800_000 / 30_000 / 3600)
    small, large = HUB_MODELS[QWEN_SMALL].active, HUB_MODELS["Qwen/Qwen2.5-3B-Instruct"].active
    own = HUB_MODELS[QWEN_7B].active
    assert second.hours == pytest.approx(first.hours * (own + large) / (own + small))
    assert first.disk_bytes == 28 * 2_800_000


def test_evidence_is_planned_where_it_is_needed() -> None:
    white, tiny = plan_of("table-whitebox"), plan_of("table-verbalized-deepseek", TINY)
    kinds = {work.kind for run in white.runs for cell in run.cells for work in cell.work}
    assert kinds == {"generate", "grade", "trace", "chain", "replies", "base", "rewards"}
    assert {w.kind for run in tiny.runs for cell in run.cells for w in cell.work} == {
        "generate",
        "grade",
        "trace",
    }
    [run] = [run for run in white.runs if run.name == "whitebox-qwen3"]
    with_base = {c.generator for c in run.cells if any(w.kind == "base" for w in c.work)}
    assert with_base == {"Qwen/Qwen3-8B", "Qwen/Qwen3-14B"}  # the largest has no base model
    base = only(run.cells[0], "base")
    assert base.models == ("Qwen/Qwen3-8B-Base",)
    assert base.disk_bytes == 4 * run.cells[0].tokens


def test_a_step_of_generation_waits_for_kernels_or_for_weights() -> None:
    quick = ModelSize(20_000_000, 20_000_000, layers=10, kv_width=0)
    # One batch whose longest row has 4 times the mean: 400 steps of 10 layers, 1 ms each.
    one = writing_hours(quick, rows=128, tokens=100, limit=8192, batch_size=128)
    assert one == pytest.approx(400 * 10 * 1e-3 / 3600)
    assert writing_hours(quick, rows=256, tokens=100, limit=8192, batch_size=128) == 2 * one
    short = writing_hours(quick, rows=128, tokens=100, limit=200, batch_size=128)
    assert short == pytest.approx(one / 2)
    heavy = replace(quick, parameters=30_000_000_000)
    weights = writing_hours(heavy, rows=128, tokens=100, limit=8192, batch_size=128)
    assert weights == pytest.approx(400 * 60e9 / (0.6 * 4.8e12) / 3600)


def test_lengths_never_exceed_the_limit() -> None:
    assert assumed_tokens("aime24", protocol="cot", max_length=8192) == 1_800
    assert assumed_tokens("aime24", protocol="cot", max_length=16384) == 7_000
    assert assumed_tokens("aime24", protocol="cot", max_length=512) == 512
    plain = assumed_tokens("arith-easy", protocol="cot", max_length=768)
    assert assumed_tokens("arith-easy", protocol="verbalized", max_length=768) > plain


def test_what_does_not_fit_on_the_gpu_is_said() -> None:
    config = load_config(
        None,
        ["family=qwen2.5", "generators=[Qwen/Qwen2.5-32B-Instruct]", "generate.batch_size=4096"],
    )
    [planned] = make_plan({"large": config}, Path("no")).runs
    assert any("generate.batch_size=" in note for note in planned.notes)
    [planned] = plan_of("table-whitebox", "qwen2.5", "trace.auxiliary=Qwen/Qwen3-32B").runs
    [note] = [note for note in planned.notes if "trace.device_map" in note]
    assert note.startswith("Qwen/Qwen2.5-32B-Instruct and Qwen/Qwen3-32B have 131 GB")


def test_an_unknown_model_leaves_its_hours_open() -> None:
    [run] = plan_of("table-whitebox", "gemma3", "trace.auxiliary=someone/model").runs
    assert all(cell.hours("trace") is None for cell in run.cells)
    assert all(cell.hours("generate") for cell in run.cells)
    assert "The size of someone/model is not known: its hours are left out." in run.notes


def trajectory(number: int, *, benchmark: str = "arith-easy", tokens: int = 10) -> Trajectory:
    return Trajectory(
        key=f"{benchmark}-{number}",
        problem_id=str(number),
        benchmark=benchmark,
        sample=0,
        generator=TINY_GENERATOR,
        prompt_ids=(1,),
        token_ids=tuple(range(tokens)),
        text="1",
        finish_reason="stop",
        protocol="cot",
        sampling=Sampling(),
    )


def trace(row: Trajectory, q: str) -> Trace:
    arrays: dict[str, Any] = {
        name: np.zeros(len(row.token_ids), dtype=np.float32) for name in PER_TOKEN_FIELDS
    }
    return Trace(
        key=row.key, p=TINY_GENERATOR, q=q, answer_start=None, answer_stop=None,
        turn_end=len(row.token_ids), dropped_mass_p=0.0, dropped_mass_q=0.0, **arrays,
    )  # fmt: skip


@pytest.fixture
def partly_made(tmp_path: Path) -> Path:
    """A folder with some rows of the run 'whitebox-tiny': 12 of 200 easy, 3 of 200 hard ones."""
    easy = [trajectory(n) for n in range(12)]
    hard = [trajectory(n, benchmark="arith-hard", tokens=100 * (n + 1)) for n in range(3)]
    none = np.zeros(0, dtype=np.float32)
    run = Run.create_or_open(tmp_path / "runs" / "whitebox-tiny")
    with run.lock():
        check_or_write_manifest(run, {"made": "by hand"})
        run.write_config(to_yaml(runs_of(chosen_recipes("table-whitebox"), TINY)[0].config))
        run.problems.append([Problem("1", "arith-easy", "1?", "1")])
        run.trajectories.append([*easy, *hard])
        run.grades.append([Grade(t.key, "1", Verdict.CORRECT) for t in easy[:9]])
        run.traces.append([trace(t, TINY_AUXILIARY) for t in easy[:7]])
        run.traces.append([trace(t, "divtok/tiny-0.9m") for t in [*easy[:2], hard[0]]])
        run.table(CHAINS).append([Chain(t.key, TINY_GENERATOR, (), ()) for t in easy[:5]])
        run.table(REPLIES).append([Reply(t.key, TINY_GENERATOR, (), "", "stop") for t in easy[:4]])
        base = f"{TINY_GENERATOR}-base"
        run.table(READINGS).append([Reading(t.key, base, "base_chat", none) for t in easy[:3]])
        run.table(READINGS).append([Reading(t.key, base, "base_plain", none) for t in easy[:11]])
        run.table(REWARDS).append([StepRewards(t.key, "divtok/tiny-prm", none) for t in hard])
    return tmp_path / "runs"


def test_what_is_stored_is_counted(partly_made: Path) -> None:
    both = [*chosen_recipes("table-whitebox"), *chosen_recipes("figure-theta-map")]
    [run] = make_plan(configs(runs_of(both, TINY)), partly_made).runs
    assert run.exists
    assert run.folder == partly_made / "whitebox-tiny"
    cells = {c.benchmark: c for c in run.cells if c.generator == TINY_GENERATOR}
    easy, hard = cells["arith-easy"], cells["arith-hard"]

    def done(cell: CellPlan) -> dict[tuple[str, ...], tuple[int, int]]:
        return {(w.kind, *w.models[1:]): (w.done, w.missing) for w in cell.work}

    assert done(easy) == {
        ("generate",): (12, 188),
        ("grade",): (9, 191),
        ("trace", TINY_AUXILIARY): (7, 193),
        ("trace", "divtok/tiny-0.9m"): (2, 198),
        ("trace", "divtok/tiny-1.6m"): (0, 200),
        ("chain",): (5, 195),
        ("replies",): (4, 196),
        ("base",): (3, 197),
        ("rewards",): (0, 200),
    }
    assert done(hard)["generate",] == (3, 197)
    assert done(hard)["rewards",] == (3, 197)
    assert done(hard)["trace", "divtok/tiny-0.9m"] == (1, 199)
    assert all(w.done == 0 for c in run.cells if c.generator != TINY_GENERATOR for w in c.work)


def test_the_mean_length_of_stored_responses_replaces_the_assumed_one(partly_made: Path) -> None:
    [run] = plan_of("table-whitebox", TINY, folder=partly_made).runs
    found = {c.benchmark: (c.mean_tokens, c.measured) for c in run.cells[:4]}
    assert found["arith-easy"] == (10, True)
    assert found["arith-hard"] == (200, True)
    assert found["arith-medium"] == (119, False)
    assert run.cells[0].tokens == 200 * 10


def test_only_what_is_missing_is_still_to_come(partly_made: Path) -> None:
    plan = plan_of("table-whitebox", TINY, folder=partly_made)
    written = only(plan.runs[0].cells[0], "generate")
    assert written.hours is not None
    assert written.hours_left == pytest.approx(written.hours * 188 / 200)
    totals = plan.totals
    assert 0 < totals.cpu_hours_left < totals.cpu_hours
    assert "still to come" in totals_line(plan)


def test_more_rows_than_asked_for_are_pointed_out(partly_made: Path) -> None:
    [run] = plan_of("table-whitebox", TINY, "limit=1", folder=partly_made).runs
    assert run.cells[0].responses == 4
    assert only(run.cells[0], "generate").missing == 0
    assert any("12 trajectories" in note and "another configuration" in note for note in run.notes)


def test_json_has_everything(partly_made: Path) -> None:
    plan = plan_of("table-whitebox", TINY, folder=partly_made)
    data = json.loads(json.dumps(as_json(plan), allow_nan=False))
    assert data["totals"]["responses"] == plan.totals.responses == 3 * 4 * 200
    assert [m["ref"] for m in data["models"]] == [m.ref for m in plan.models]
    cell = data["runs"][0]["cells"][0]
    assert (cell["problems"], cell["samples"], cell["responses"]) == (50, 4, 200)
    assert cell["work"][0]["done"] == 12
    assert cell["work"][0]["missing"] == 188
    hours = sum(cell[f"{name}_hours"] for name in ("generation", "tracing", "evidence"))
    assert hours == pytest.approx(sum(work["hours"] for work in cell["work"]))
    assert data["assumptions"] == list(plan.assumptions)


def test_the_text_shows_generators_benchmarks_and_counts() -> None:
    text = plan_text(plan_of("table-whitebox"))
    lines = text.splitlines()
    assert lines[0].startswith("3 runs, 8 generators, 4 benchmarks: 83,200 responses")
    for model, benchmark, sampled, responses in (
        ("Qwen/Qwen2.5-7B-Instruct", "math500", "500 x 8", "4,000"),
        ("google/gemma-3-27b-it", "amc23", "40 x 64", "2,560"),
        ("Qwen/Qwen3-32B", "aime25", "30 x 64", "1,920"),
    ):
        start = lines.index(model)
        [row] = [line for line in lines[start + 1 : start + 5] if line.split()[0] == benchmark]
        assert f" {sampled} " in row
        assert f" {responses} " in row
    assert "one NVIDIA H200" in text
    assert "factor of two" in text
    assert "Nothing is stored in no yet." in text


def test_the_text_of_the_twin_speaks_of_minutes_and_of_what_is_stored(partly_made: Path) -> None:
    text = plan_text(plan_of("table-whitebox", TINY, folder=partly_made))
    assert "minutes on 2 CPU cores" in text
    assert "H200" not in text
    [row] = [line for line in text.splitlines() if line.endswith("tiny-0.5m and tiny-0.3m")]
    assert row.split()[:2] == ["7", "793"]


@pytest.mark.parametrize("family", [None, TINY])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(family: str | None) -> None:
    plan = plan_of(ALL, family)
    text = plan_text(plan)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    flat = " ".join(text.split())
    for run in plan.runs:
        assert run.name in flat
        assert all(note in flat for note in run.notes)
    assert all(model.ref in flat for model in plan.models)
    assert all(sentence in flat for sentence in plan.assumptions)


def test_planning_all_recipes_is_quick() -> None:
    started = time.process_time()
    for family in (None, TINY):
        plan_text(plan_of(ALL, family))
        for name in recipes():
            as_json(plan_of(name, family))
    # Forty-two plans; the bound is for one of each side.
    assert time.process_time() - started < 3


def in_a_new_process(code: str, *arguments: str) -> Sequence[str]:
    package = str(Path(divtok.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_planning_needs_no_network_and_loads_no_model_library(partly_made: Path) -> None:
    code = """
import socket, sys
from pathlib import Path
def refuse(*_, **__): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
from divtok.planning.plan import as_json, make_plan
from divtok.planning.plan_text import plan_text
from divtok.paper.recipe import chosen_recipes, runs_of
for family in (None, "tiny"):
    runs = {run.name: run.config for run in runs_of(chosen_recipes("all"), family)}
    plan = make_plan(runs, Path(sys.argv[1]))
    as_json(plan), plan_text(plan)
heavy = ("torch", "transformers", "datasets", "matplotlib", "sympy", "math_verify")
print("done", *[name for name in heavy if name in sys.modules])
"""
    assert in_a_new_process(code, str(partly_made)) == ["done"]


def test_a_plan_says_that_the_reward_model_reads_on() -> None:
    def notes(*overrides: str) -> list[str]:
        plan = plan_of("table-blackbox-qwen3-4b", None, *overrides)
        return [note for run in plan.runs for note in run.notes if "Open-PRM" in note]

    reads_on = (
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B was trained on 4,096 tokens and reads on past "
        "them; tables say of how many responses. prm.max_length=trained leaves those out."
    )
    assert set(notes()) == {reads_on}
    refuses = (
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B was trained on 4,096 tokens; responses of more "
        "than {} have no value of prm (prm.max_length={})."
    )
    assert set(notes("prm.max_length=trained")) == {refuses.format("4,096", "trained")}
    assert set(notes("prm.max_length=8000")) == {refuses.format("8,000", "8000")}
    assert notes("sampling.max_length=2000") == []
