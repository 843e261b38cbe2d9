"""Small runs: made by hand without any model, or from the embedded family."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divtok.config.run import RunConfig, load_config, to_yaml
from divtok.evidence.kinds.chain import CHAINS
from divtok.evidence.kinds.relevance import RELEVANCE
from divtok.evidence.kinds.rewards import REWARDS
from divtok.evidence.kinds.statement import REPLIES
from divtok.evidence.readings import READINGS
from divtok.generate.engines import transformers as local
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
from divtok.stages import generate as generation
from divtok.stages import trace as tracing
from divtok.stages.grade import grade
from divtok.stages.score import score
from divtok.store.run import Run, check_or_write_manifest
from divtok.store.table import Table

EVIDENCE_TABLES = (REPLIES, CHAINS, READINGS, REWARDS, RELEVANCE)

GENERATOR, AUXILIARY = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
SMALL = (
    f"generators=['{GENERATOR}']",
    "benchmarks=['arith-easy','arith-medium']",
    "limit=2",
    "samples=2",
    "evaluate.resamples=20",
)


RIGHT_OR_WRONG = (r"3 + 4 = 7, so the answer is \boxed{7}.", r"So we get \boxed{915}.")
ONE_RESPONSE = ("limit=1", "samples=1", "benchmarks=['arith-easy']")


def small_config(*overrides: str) -> RunConfig:
    return load_config(None, [*SMALL, *overrides])


@dataclasses.dataclass(frozen=True)
class Row:
    """One response of a handmade run; None leaves that record out.

    `count` and `length` are what a scored run has counted in its trace.
    """

    problem: str = "a"
    sample: int = 0
    benchmark: str = "bench"
    generator: str = GENERATOR
    tokens: int = 4
    truncated: bool = False
    verdict: Verdict | None = Verdict.CORRECT
    values: dict[str, float | None] = dataclasses.field(default_factory=dict)
    count: int | None = None
    length: int | None = None  # left out: its tokens

    @property
    def key(self) -> str:
        return f"{self.benchmark}/{self.generator}/{self.problem}/{self.sample}"


def handmade_run(folder: Path, rows: Sequence[Row], *, config: RunConfig | None = None) -> Run:
    """A run folder with the tables of these rows, in their order."""
    run = Run.create_or_open(folder)
    with run.lock():
        check_or_write_manifest(run, {"made": "by hand"})
        run.write_config(to_yaml(config or small_config()))
        problems = {(row.benchmark, row.problem) for row in rows}
        run.problems.append([Problem(p, b, f"Question {p}?", "1") for b, p in sorted(problems)])
        run.trajectories.append([_trajectory(row) for row in rows])
        run.grades.append(
            [Grade(r.key, "1", r.verdict, None) for r in rows if r.verdict is not None]
        )
        run.traces.append([trace_of(row) for row in rows])
        theta = (config or small_config()).theta
        run.counts.append([_counts(row, row.count, theta) for row in rows if row.count is not None])
        run.confidences.append(
            [
                Confidence(r.key, name, {}, value, None if value is not None else "no numbers")
                for r in rows
                for name, value in r.values.items()
            ]
        )
    return run


def _trajectory(row: Row) -> Trajectory:
    return Trajectory(
        key=row.key,
        problem_id=row.problem,
        benchmark=row.benchmark,
        sample=row.sample,
        generator=row.generator,
        prompt_ids=(1,),
        token_ids=tuple(range(row.tokens)),
        text=r"\boxed{1}",
        finish_reason="length" if row.truncated else "stop",
        protocol="cot",
        sampling=Sampling(),
    )


def _counts(row: Row, count: int, theta: float) -> Counts:
    length = row.tokens if row.length is None else row.length
    pair = (row.generator, AUXILIARY)
    return Counts(row.key, *pair, theta, count, None, None, length, length, 0.02, 0, 0)


def trace_of(row: Row, **changes: Any) -> Trace:
    arrays: dict[str, Any] = {
        name: np.linspace(0, 0.9, row.tokens, dtype=np.float32) for name in PER_TOKEN_FIELDS
    }
    arrays |= {name: -arrays[name] for name in ("logprob_p", "logprob_q")}
    fields: dict[str, Any] = {
        "key": row.key,
        "p": row.generator,
        "q": AUXILIARY,
        "answer_start": None,
        "answer_stop": None,
        "turn_end": row.tokens,
        "dropped_mass_p": 0.0,
        "dropped_mass_q": 0.0,
    }
    return Trace(**(fields | arrays | changes))


def write_responses(folder: Path, config: RunConfig, texts: Sequence[str]) -> Run:
    """A run as `generate` would leave it, with these texts (in turn) as its responses."""
    from divtok.models.load import load_tokenizer
    from divtok.protocols.encode import prompt_ids, response_ids

    run = Run.create_or_open(folder)
    with run.lock():
        problems = generation.prepare(run, config)
        for generator in config.generator_presets():
            tokenizer = load_tokenizer(generator.model)
            jobs = generation.plan_jobs(config, generator, problems)
            run.trajectories.append(
                [
                    Trajectory(
                        key=job.key,
                        problem_id=job.problem.id,
                        benchmark=job.problem.benchmark,
                        sample=job.sample,
                        generator=job.generator,
                        prompt_ids=prompt_ids(
                            tokenizer, job.problem.question, protocol=job.protocol
                        ),
                        token_ids=response_ids(tokenizer, texts[index % len(texts)]),
                        text=texts[index % len(texts)],
                        finish_reason="stop",
                        protocol=job.protocol,
                        sampling=job.sampling,
                    )
                    for index, job in enumerate(jobs)
                ]
            )
    return run


def rows_of(table: Table[Any]) -> list[tuple[Any, ...]]:
    """Every row, its arrays as bytes, so that equal means equal to the last bit."""
    return [
        tuple(_plain(getattr(row, field.name)) for field in dataclasses.fields(row))
        for row in table.read()
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((name, _plain(inner)) for name, inner in sorted(value.items()))
    return value.tobytes() if isinstance(value, np.ndarray) else value


def contents(run: Run) -> dict[str, list[tuple[Any, ...]]]:
    for layout in EVIDENCE_TABLES:
        run.table(layout)
    return {table.layout.name: rows_of(table) for table in run.tables}


def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(local, "load_model", refuse)
    monkeypatch.setattr(tracing, "load_pair", refuse)


def finish(run: Run, config: RunConfig, **options: bool) -> None:
    """All stages behind `generate`."""
    with run.lock():
        grade(run, config, **options)
        tracing.trace(run, config, **options)
        score(run, config)
