"""Runs made by hand, without any model, under the names that the recipes look for."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.evaluate.metrics import auroc, ece
from divtok.evaluate.protocol import Protocol, balanced_draws
from divtok.families.family import Generator
from divtok.paper.recipe import TINY, NamedRun, Recipe, named_runs, recipes
from divtok.paper.run_tables import Material
from divtok.records import (
    PER_TOKEN_FIELDS,
    Confidence,
    Counts,
    Grade,
    Problem,
    Sampling,
    Trace,
    Trajectory,
    Verdict,
)
from divtok.score.estimators.dtc import divergent_count, dtc_lin, dtc_prod
from divtok.score.estimators.likelihood import mean_prob
from divtok.score.facts import FACTS
from divtok.stages.choices import chosen_estimators
from divtok.store.run import Run, check_or_write_manifest

QWEN, SMALL_QWEN = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"
TINY_RUNS = (
    "whitebox-tiny",
    "fit-tiny",
    *(
        f"blackbox-tiny-{size}{kind}"
        for size in ("0.5m", "0.9m", "1.6m")
        for kind in ("", "-stated")
    ),
)
PROBLEMS, SAMPLES = 6, 4


@dataclass(frozen=True)
class Response:
    """One response of a handmade run; no verdict leaves its grade out."""

    benchmark: str
    generator: str
    problem: str
    sample: int = 0
    verdict: Verdict | None = Verdict.CORRECT
    truncated: bool = False
    traces: tuple[Trace, ...] = ()
    values: Mapping[str, float | None] = field(default_factory=dict[str, float | None])

    @property
    def key(self) -> str:
        return response_key(self.benchmark, self.generator, self.problem, self.sample)


def response_key(benchmark: str, generator: str, problem: str, sample: int) -> str:
    return f"{benchmark}/{generator}/{problem}/{sample}"


def write_run(folder: Path, config: RunConfig, responses: Sequence[Response]) -> Run:
    """A run folder as the stages leave it, with these responses."""
    run = Run.create_or_open(folder)
    with run.lock():
        check_or_write_manifest(run, {"made": "by hand"})
        run.write_config(to_yaml(resolve(config)))
        problems = dict.fromkeys((r.benchmark, r.problem) for r in responses)
        run.problems.append([Problem(p, b, f"Question {p}?", "1") for b, p in problems])
        run.trajectories.append(
            [_trajectory(r, config.protocol_for(r.benchmark)) for r in responses]
        )
        run.grades.append([Grade(r.key, "1", r.verdict) for r in responses if r.verdict])
        run.traces.append([trace for r in responses for trace in r.traces])
        run.confidences.append(
            [
                Confidence(r.key, name, {}, value, None if value is not None else "no numbers")
                for r in responses
                for name, value in r.values.items()
                if name not in FACTS
            ]
        )
        run.counts.append([_counts(r, config) for r in responses if r.values])
    return run


def _counts(response: Response, config: RunConfig) -> Counts:
    """Of the first trace; without one as the values say."""
    theta, (p, q) = config.theta, config.scored_pairs()[response.generator]
    count, length = (int(-(response.values.get(name) or 0)) for name in ("count", "length"))
    reasoning = length
    for trace in response.traces[:1]:
        p, q, length = trace.p, trace.q, len(trace)
        count, reasoning = divergent_count(trace, theta=theta), int(trace.reasoning().sum())
    return Counts(response.key, p, q, theta, count, None, None, length, reasoning, 0.0, 0, 0)


def _trajectory(response: Response, protocol: str) -> Trajectory:
    tokens = len(response.traces[0]) if response.traces else 4
    return Trajectory(
        key=response.key,
        problem_id=response.problem,
        benchmark=response.benchmark,
        sample=response.sample,
        generator=response.generator,
        prompt_ids=(1,),
        token_ids=tuple(range(tokens)),
        text=r"\boxed{1}",
        finish_reason="length" if response.truncated else "stop",
        protocol=protocol,
        sampling=Sampling(),
    )


def trace_of(key: str, p: str, q: str, jsd: Sequence[float], **changes: Any) -> Trace:
    """A trace with these JSDs, every one of a reasoning token unless told otherwise."""
    fields: dict[str, Any] = {
        **{name: np.zeros(len(jsd), dtype=np.float32) for name in PER_TOKEN_FIELDS},
        "jsd_bits": np.array(jsd, dtype=np.float32),
        "answer_start": None,
        "answer_stop": None,
        "turn_end": len(jsd),
        "dropped_mass_p": 0.0,
        "dropped_mass_q": 0.0,
        **changes,
    }
    return Trace(key=key, p=p, q=q, **fields)


def named(name: str, *overrides: str) -> NamedRun:
    [found] = named_runs(name, overrides)
    return found


def random_run(folder: Path, config: RunConfig, *, problems: int = PROBLEMS) -> Run:
    """Every generator on every benchmark; the same rows for the same config, whatever the folder.

    Wrong responses are longer and have more divergence; a tenth each is unanswered and cut off.
    """
    return write_run(folder, config, list(random_responses(config, problems=problems)))


def random_responses(config: RunConfig, *, problems: int = PROBLEMS) -> Iterator[Response]:
    for generator in config.generator_presets():
        for benchmark in config.benchmark_names():
            seed = zlib.crc32(
                f"{config.protocol_for(benchmark)} {generator.model} {benchmark}".encode()
            )
            rng = np.random.default_rng(seed)
            for problem in range(problems):
                for sample in range(SAMPLES):
                    name = f"{benchmark}-{problem:04d}"
                    yield _random_response(rng, config, generator, benchmark, name, sample)


def _random_response(
    rng: np.random.Generator,
    config: RunConfig,
    generator: Generator,
    benchmark: str,
    problem: str,
    sample: int,
) -> Response:
    key = response_key(benchmark, generator.model, problem, sample)
    wrong = bool(rng.random() < 0.5)
    verdict = Verdict.INCORRECT if wrong else Verdict.CORRECT
    tokens = int(rng.integers(12, 24)) + 6 * wrong
    traces = tuple(
        _random_trace(rng, key, pair, tokens, wrong) for pair in config.pairs_for(generator)
    )
    return Response(
        benchmark,
        generator.model,
        problem,
        sample,
        Verdict.UNANSWERED if rng.random() < 0.1 else verdict,
        bool(rng.random() < 0.1),
        traces,
        _values(rng, config, traces[0], wrong),
    )


def _random_trace(
    rng: np.random.Generator, key: str, pair: tuple[str, str], tokens: int, wrong: bool
) -> Trace:
    start = int(rng.integers(2, tokens - 4))
    return trace_of(
        key,
        *pair,
        # Hundredths, so that many divergences are a theta of the grid.
        np.floor(100 * rng.beta(0.5, 2.5 - wrong, tokens)) / 100,
        logprob_p=-rng.exponential(0.1, tokens).astype(np.float32),
        kl_pq=rng.exponential(1 + wrong, tokens).astype(np.float32),
        kl_qp=rng.exponential(2 + wrong, tokens).astype(np.float32),
        answer_start=start,
        answer_stop=start + 2,
        turn_end=tokens - 1,
    )


def _values(
    rng: np.random.Generator, config: RunConfig, trace: Trace, wrong: bool
) -> dict[str, float | None]:
    """What the estimators of the config give: those of the trace by their own definition."""
    count = divergent_count(trace, theta=config.theta)
    stated = float(rng.integers(5 - 2 * wrong, 11)) / 10
    known = {
        "dtc_lin": dtc_lin(trace, theta=config.theta),
        "dtc_prod": dtc_prod(trace, theta=config.theta),
        "mean_prob": mean_prob(trace),
        "verbalized": stated,
        "verbalized_dtc": stated ** (count + 4),
    }
    names = [spec.name for spec in chosen_estimators(config)]
    return {name: known.get(name, float(rng.beta(3 - wrong, 1))) for name in names}


def tiny_folder(factory: pytest.TempPathFactory) -> Path:
    """Every run of the tiny side, written once for a test process. Not to be written to."""
    folder = factory.getbasetemp() / "paper-runs-by-hand"
    if not folder.exists():
        for name in TINY_RUNS:
            for run in named_runs(name, tiny_overrides()):
                random_run(folder / run.name, run.config)
    return folder


def tiny_overrides() -> list[str]:
    return [f"samples={SAMPLES}", "evaluate.resamples=20"]


def tiny_material(factory: pytest.TempPathFactory) -> Material:
    return Material(tiny_folder(factory), TINY)


def recipe_with(name: str, **changes: Any) -> Recipe:
    """A recipe of the package, with changes to its tiny side."""
    recipe = recipes()[name]
    return recipe.model_copy(update={"tiny": recipe.tiny.model_copy(update=changes)})


def balanced_figures(
    confidence: Sequence[float], correct: Sequence[bool], protocol: Protocol | None = None
) -> tuple[float, float]:
    """Balanced ECE and AUROC, one draw after the other."""
    protocol = protocol or Protocol()
    values, right = np.array(confidence, dtype=np.float64), np.array(correct, dtype=bool)
    draws = balanced_draws(right, draws=protocol.draws, cap=protocol.cap)
    gaps = [ece(values[rows], right[rows], protocol.bins) for rows in draws]
    ranks = np.array([auroc(values[rows], right[rows]) for rows in draws], dtype=np.float64)
    return float(np.mean(gaps)), float(ranks.mean())


@dataclass(frozen=True)
class Usable:
    """The usable responses of one group under one pair, read record by record."""

    traces: list[Trace]
    correct: list[bool]


def usable(run: Run, benchmark: str, generator: str, pair: tuple[str, str]) -> Usable:
    """Answered and complete, by problem and sample."""
    traces, verdicts, trajectories = _records(run.path)
    rows = [
        t
        for t in trajectories
        if (t.benchmark, t.generator) == (benchmark, generator)
        and not t.truncated
        and verdicts[t.key] in (Verdict.CORRECT, Verdict.INCORRECT)
    ]
    rows.sort(key=lambda t: (t.problem_id, t.sample))
    return Usable(
        [traces[t.key, *pair] for t in rows], [verdicts[t.key] == Verdict.CORRECT for t in rows]
    )


@cache
def _records(
    path: Path,
) -> tuple[dict[tuple[str, str, str], Trace], dict[str, Verdict], list[Trajectory]]:
    """What a run holds, read once: many tests look at the same one."""
    run = Run.open(path)
    traces = {(t.key, t.p, t.q): t for t in run.traces.read()}
    return traces, {g.key: g.verdict for g in run.grades.read()}, run.trajectories.read()
