"""A divtok run over one bench family, and the facts that say which regime it is in.

The run is made with the package itself: a white-box pair with each of the three auxiliaries and a
dual pair of the two that were trained apart, on two benchmarks and a fitting set. The facts are for
whoever tunes the settings; they choose nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import divtok
from divtok.errors import DivtokError
from divtok.evaluate.fit import fit_theta
from divtok.records import Trace
from divtok.store.run import Run as Store
from training.bench_models import chosen_levels, model_folder
from training.bench_settings import ROLES, Amounts, Bench, Role
from training.tasks import TASKS
from training.tasks.task import task_problems

# (reader, auxiliary); the first is scored.
PAIRS: tuple[tuple[Role, Role], ...] = (
    ("generator", "small"),
    ("generator", "half"),
    ("generator", "middle"),
    ("middle", "small"),
)
THETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)


def benchmark_names(task: str) -> tuple[str, str, str]:
    """The easier and the harder benchmark, and the fitting set."""
    return f"{task}-easy", f"{task}-hard", f"{task}-fit"


def write_benchmarks(work: Path, task: str, settings: Bench, much: Amounts) -> dict[str, str]:
    """The problems as JSONL beside a YAML file that says how they are asked; name -> YAML file."""
    found = TASKS[task]
    easy, hard = chosen_levels(work, task)["chosen"]
    folder = work / task / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for name, split, levels, count in zip(
        benchmark_names(task),
        ("test", "test", "fit"),
        ([easy], [hard], [easy, hard]),
        (much.problems, much.problems, much.fit_problems),
        strict=True,
    ):
        problems = task_problems(
            found, name, seed=settings.seed, split=split, levels=levels, count=count
        )
        rows = [{"id": p.id, "problem": p.question, "answer": p.answer} for p in problems]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        said = {
            "summary": f"{found.summary} Levels {levels}, split {split}.",
            "file": {"path": f"{name}.jsonl"},
            "grader": found.grader,
        }
        (folder / f"{name}.yaml").write_text(json.dumps(said, indent=2) + "\n")
        files[name] = str(folder / f"{name}.yaml")
    return files


def make_run(task: str, out: Path, settings: Bench, much: Amounts) -> divtok.Run:
    """Called with the work folder as the current one, so that a run holds no machine's paths."""
    work = Path()
    files = write_benchmarks(work, task, settings, much)
    folders = {role: str(model_folder(work, task, role)) for role in ROLES}
    (_, auxiliary), *others = PAIRS
    return divtok.run(
        family=None,
        generators=[folders["generator"]],
        benchmarks=list(files),
        benchmark_files=files,
        samples=much.samples,
        seed=settings.seed,
        sampling={
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_length": much.longest,
        },
        generate={"batch_size": 512, "dtype": "float32"},
        trace={
            "auxiliary": folders[auxiliary],
            "also": [{"reader": folders[p], "auxiliary": folders[q]} for p, q in others],
            "dtype": "float32",
        },
        out=out,
    )


def facts_of(run: divtok.Run, task: str, settings: Bench) -> dict[str, Any]:
    """Losses, accuracies, divergences and thetas, as one JSON object."""
    work = Path()
    rows = _responses(run)
    traces: dict[tuple[str, str], list[Trace]] = {}
    for trace in run.traces:
        traces.setdefault((trace.p, trace.q), []).append(trace)
    folders = {role: str(model_folder(work, task, role)) for role in ROLES}
    white_box = traces[folders["generator"], folders["small"]]
    return {
        "task": task,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "models": {
            role: json.loads((Path(folder) / "training.json").read_text())
            for role, folder in folders.items()
        },
        "levels": chosen_levels(work, task),
        "benchmarks": {
            name: _benchmark_facts([r for r in rows.values() if r["benchmark"] == name], white_box)
            for name in benchmark_names(task)
        },
        "pairs": {
            f"{p}/{q}": _pair_facts(traces[folders[p], folders[q]], rows, task) for p, q in PAIRS
        },
        "failures": list(run.failures)[:5],
    }


def _responses(run: divtok.Run) -> dict[str, dict[str, Any]]:
    """key -> benchmark, problem, verdict, whether it was cut off, tokens"""
    stored = Store.open(run.path)
    verdicts = {grade.key: grade.verdict for batch in stored.grades.batches() for grade in batch}
    return {
        t.key: {
            "key": t.key,
            "benchmark": t.benchmark,
            "problem": t.problem_id,
            "verdict": verdicts[t.key],
            "cut": t.truncated,
            "tokens": len(t.token_ids),
        }
        for batch in stored.trajectories.batches()
        for t in batch
    }


def _benchmark_facts(rows: Sequence[dict[str, Any]], traces: Sequence[Trace]) -> dict[str, Any]:
    keys = {row["key"] for row in rows}
    sure = [np.exp(t.logprob_p[t.reasoning()]).mean() for t in traces if t.key in keys and len(t)]
    return {
        "n": len(rows),
        "accuracy": _mean([row["verdict"] == "correct" for row in rows]),
        "unanswered": _mean([row["verdict"] == "unanswered" for row in rows]),
        "cut": _mean([row["cut"] for row in rows]),
        "mean_tokens": _mean([row["tokens"] for row in rows]),
        "mean_probability": _mean(sure),
    }


def _pair_facts(
    traces: Sequence[Trace], rows: dict[str, dict[str, Any]], task: str
) -> dict[str, Any]:
    read = [t for t in traces if t.status == "ok"]
    bits = [t.jsd_bits[t.reasoning()] for t in read]
    found: dict[str, Any] = {
        "n": len(read),
        "mean_jsd_bits": _mean([float(b.mean()) for b in bits if len(b)]),
        "mean_count": {str(theta): _mean([(b > theta).sum() for b in bits]) for theta in THETAS},
    }
    easy, hard, fitting = benchmark_names(task)
    for name in (easy, hard):
        found[name] = _ranking([t for t in read if rows[t.key]["benchmark"] == name], rows)
    found["fit"] = _fitted([t for t in read if rows[t.key]["benchmark"] == fitting], rows)
    return found


def _ranking(traces: Sequence[Trace], rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Natural AUROC of the count at some thetas, and of what a count is compared with."""
    decided = [t for t in traces if rows[t.key]["verdict"] in ("correct", "incorrect")]
    right = [rows[t.key]["verdict"] == "correct" for t in decided]
    if len(set(right)) < 2:
        return {"reason": "all are right, or all are wrong"}
    bits = [t.jsd_bits[t.reasoning()].astype(float) for t in decided]
    lost = [-t.logprob_p[t.reasoning()].astype(float) for t in decided]
    scores = {f"count {theta}": [-float((b > theta).sum()) for b in bits] for theta in THETAS}
    scores["weighted"] = [-float((b * s).sum()) for b, s in zip(bits, lost, strict=True)]
    scores["nsl"] = [-float(s.sum()) for s in lost]
    scores["length"] = [-float(len(b)) for b in bits]
    return {name: divtok.natural_auroc(values, right) for name, values in scores.items()}


def _fitted(traces: Sequence[Trace], rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What divtok's own fit chooses on the fitting set."""

    def outcome(trace: Trace) -> bool | None:
        row = rows[trace.key]
        decided = row["verdict"] in ("correct", "incorrect") and not row["cut"]
        return row["verdict"] == "correct" if decided else None

    try:
        fit = fit_theta(
            ((t, outcome(t)) for t in traces), problem_ids=[rows[t.key]["problem"] for t in traces]
        )
    except DivtokError as error:
        return {"reason": str(error)}
    best = next(point for point in fit.curve if point.theta == fit.theta)
    interval = None if fit.interval is None else [fit.interval.low, fit.interval.high]
    return {
        "theta": fit.theta,
        "interval": interval,
        "at_edge": fit.at_edge,
        "ece": best.ece,
        "auroc": best.auroc,
        "mean_count": best.mean_count,
        "curve": [[point.theta, round(point.ece, 4)] for point in fit.curve],
    }


def _mean(values: Sequence[Any]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def run_bench(task: str, work: Path, out: Path, settings: Bench, much: Amounts) -> None:
    """Run and facts of one family: OUT/TASK, a run folder, and OUT/TASK.json."""
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    run = make_run(task, out / task, settings, much)
    facts = facts_of(run, task, settings)
    (out / f"{task}.json").write_text(json.dumps(facts, indent=2) + "\n")
