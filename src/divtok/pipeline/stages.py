"""From problems to confidences: each stage reads one table of a run and writes the next.

Every stage resumes: it asks the store which rows are there and makes only the missing ones. Batches
are planned over all rows, not over the missing ones, so an interrupted run ends with exactly the
rows of an uninterrupted one. Confidences are cheap and are made anew each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from divtok.config import GenerateSection, RunConfig, TraceSection, resolve, to_yaml
from divtok.errors import ConfigError, DataError, NothingScoredError, did_you_mean
from divtok.families import Generator
from divtok.generate.engine import Job, generate_batch
from divtok.grade import grade_trajectories
from divtok.models import (
    load_model,
    load_tokenizer,
    model_digest,
    pick_place,
    resolve_dtype,
)
from divtok.problems.benchmarks import load_benchmark, problems_digest
from divtok.problems.encode import prompt_ids, response_ids
from divtok.progress import say, track
from divtok.records import Problem, Trace, Trajectory, Verdict
from divtok.score import ESTIMATORS, Estimator, bind_parameters, score_trace
from divtok.store.run import Run, check_or_write_manifest
from divtok.store.table import Table
from divtok.trace.packs import plan_packs
from divtok.trace.pair import load_pair

T = TypeVar("T")

GRADES_PER_SHARD = 256
COMPILE_FROM_TOKENS = 2_000_000
# Tables and figures compare with these, so they are scored whatever else is asked for.
ALWAYS_SCORED = ("count", "length")


def prepare(run: Run, config: RunConfig) -> list[Problem]:
    """Load the benchmarks, check that the run fits this config, and keep the problems."""
    problems: list[Problem] = []
    digests: dict[str, str] = {}
    for name in config.benchmark_names():
        file = config.benchmark_files.get(name)
        loaded = load_benchmark(
            name,
            file=None if file is None else Path(file),
            limit=config.limit,
            subset_seed=config.subset_seed,
        )
        digests[name] = problems_digest(loaded)
        problems += loaded
    identity = _generation_identity(config)
    _check_section(run, run.trajectories, "problems", {"benchmarks": digests})
    _check_section(run, run.trajectories, "generate", identity)
    if not run.trajectories.keys() or not run.problems.keys():
        run.problems.replace(problems)
    run.write_config(to_yaml(resolve(config)))
    return problems


def plan_jobs(config: RunConfig, generator: Generator, problems: Sequence[Problem]) -> list[Job]:
    """All trajectories of one generator, in a fixed order."""
    sampling = config.sampling_for(generator)
    return [
        Job(problem, sample, generator.model, config.protocol, sampling)
        for problem in problems
        for sample in range(config.samples_for(generator, problem.benchmark))
    ]


def generate(run: Run, config: RunConfig) -> None:
    """problems -> trajectories"""
    problems = prepare(run, config)
    present = run.trajectories.keys()
    for generator in config.generator_presets():
        jobs = plan_jobs(config, generator, problems)
        batches = list(_chunks(jobs, config.generate.batch_size))
        missing = [b for b in batches if any((job.key,) not in present for job in b)]
        done = len(jobs) - sum(len(b) for b in missing)
        with track(f"generate {generator.model}", total=len(jobs), done=done) as advance:
            if not missing:
                continue
            loaded = load_model(
                generator.model,
                revision=config.revisions.get(generator.model),
                dtype=config.generate.dtype,
                device=config.generate.device,
                device_map=config.generate.device_map,
            )
            for batch in missing:
                made = generate_batch(loaded, batch)
                run.trajectories.append([t for t in made if (t.key,) not in present])
                advance(len(batch))


def grade(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> grades"""
    problems = {(p.benchmark, p.id): p for p in run.problems.read()}
    trajectories = _trajectories(run)
    present = run.grades.keys()
    if retry_failed:
        present -= {(g.key,) for g in run.grades.read() if g.verdict == Verdict.UNDETERMINED}
    missing = [t for t in trajectories if (t.key,) not in present]
    done = len(trajectories) - len(missing)
    with track("grade", total=len(trajectories), done=done) as advance:
        pairs = ((t, problems[t.benchmark, t.problem_id].answer) for t in missing)
        grades = grade_trajectories(
            pairs, workers=config.grade.workers, time_limit=config.grade.time_limit
        )
        for shard in _chunks(grades, GRADES_PER_SHARD):
            run.grades.append(shard)
            advance(len(shard))


def trace(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> traces"""
    trajectories = _trajectories(run)
    questions = {(p.benchmark, p.id): p.question for p in run.problems.read()}
    _check_section(run, run.traces, "trace", _trace_identity(config))
    present = run.traces.keys()
    if retry_failed:
        present -= {(t.key, t.p, t.q) for t in run.traces.read() if t.status != "ok"}
    section = config.trace
    for generator in config.generator_presets():
        p, q = config.pair_for(generator)
        rows = [t for t in trajectories if t.generator == generator.model]
        if p != generator.model:
            rows = _as_read_by(p, rows, questions, config)
        plan = plan_packs(
            [t.prompt_ids for t in rows],
            [len(t.prompt_ids) for t in rows],
            [len(t.token_ids) for t in rows],
            max_tokens=section.max_batch_tokens,
            max_rows=section.max_batch_rows,
        )
        batches = [[rows[index] for index in batch] for batch in plan]
        missing = [b for b in batches if any((t.key, p, q) not in present for t in b)]
        done = len(rows) - sum(len(b) for b in missing)
        with track(f"trace {generator.model} with {q}", total=len(rows), done=done) as advance:
            if not missing:
                continue
            pair = load_pair(
                p,
                q,
                p_revision=config.revisions.get(p),
                q_revision=config.revisions.get(q),
                dtype=section.dtype,
                p_device=section.device,
                q_device=section.q_device or section.device,
                device_map=section.device_map,
                compile_trunks=_worth_compiling(section, missing),
            )
            budget = section.budget()
            for batch in missing:
                made = pair.trace_batch(batch, budget=budget)
                marked = [
                    replace(trace, retokenized=trajectory.retokenized)
                    for trace, trajectory in zip(made, batch, strict=True)
                ]
                run.traces.append([t for t in marked if (t.key, t.p, t.q) not in present])
                advance(len(batch))


def score(run: Run, config: RunConfig) -> None:
    """traces -> confidences"""
    chosen = chosen_estimators(config)
    given = config.estimator_parameters()
    bound = [(spec, bind_parameters(spec, given)) for spec in chosen]
    pairs = {config.pair_for(generator) for generator in config.generator_presets()}
    confidences = [
        score_trace(spec, trace, parameters)
        for trace in run.traces.read()
        if (trace.p, trace.q) in pairs
        for spec, parameters in bound
    ]
    if not any(confidence.value is not None for confidence in confidences):
        raise NothingScoredError(
            f"Not one trajectory of {run.path} could be scored.",
            next_step="Look at the column 'reason' of its traces.",
        )
    run.confidences.replace(confidences)
    if config.score.theta is None and (config.trace.reader or config.trace.auxiliary):
        say(f"score: theta {config.theta:g} is the family's, fitted for another pair than this one")
    say(
        f"score: {len(chosen)} estimators, {len(confidences)} confidences at theta {config.theta:g}"
    )


def chosen_estimators(config: RunConfig) -> list[Estimator]:
    """The estimators to score; an unknown name is refused."""
    names = config.score.estimators or ESTIMATORS.names()
    extra = [name for name in ALWAYS_SCORED if name not in names]
    return [ESTIMATORS.get(name) for name in (*names, *extra)]


def check_choices(config: RunConfig) -> None:
    """Refuse what can be known to be wrong before any long work starts."""
    chosen_estimators(config)
    _trace_identity(config)
    names = config.benchmark_names()
    for name in config.benchmark_files:
        if name not in names:
            raise ConfigError(
                f"benchmark_files names '{name}', which is not among the benchmarks.",
                next_step=did_you_mean(name, names),
            )
    generators = [generator.model for generator in config.generator_presets()]
    for key, values in (("benchmarks", names), ("generators", generators)):
        if len(set(values)) < len(values):
            raise ConfigError(f"The same name stands twice in {key}: {', '.join(values)}.")


def failed_rows(run: Run) -> list[Trace]:
    """Traces that hold no numbers, each with its reason."""
    return [trace for trace in run.traces.read() if trace.status != "ok"]


def _worth_compiling(section: TraceSection, batches: Sequence[Sequence[Trajectory]]) -> bool:
    """Compiling costs some ten seconds, which a long job on a GPU earns back."""
    if section.compile != "auto":
        return section.compile == "always"
    tokens = sum(len(t.prompt_ids) + len(t.token_ids) for batch in batches for t in batch)
    place, _ = pick_place(section.device, section.device_map)
    return place.type == "cuda" and tokens >= COMPILE_FROM_TOKENS


def _trajectories(run: Run) -> list[Trajectory]:
    trajectories = run.trajectories.read()
    if not trajectories:
        raise DataError(
            f"The run {run.path} has no trajectories yet.",
            next_step="Generate some first: divtok run",
        )
    return trajectories


def _as_read_by(
    reader: str,
    rows: Sequence[Trajectory],
    questions: Mapping[tuple[str, str], str],
    config: RunConfig,
) -> list[Trajectory]:
    """Trajectories of another generator in the reader's own tokens and prompt template.

    Ids mean the same only under the same tokenizer; otherwise the text is what they share.
    """
    tokenizer = load_tokenizer(reader, revision=config.revisions.get(reader))
    vocabulary = tokenizer.get_vocab()
    same: dict[str, bool] = {}
    read: list[Trajectory] = []
    for row in rows:
        if row.generator not in same:
            own = load_tokenizer(row.generator, revision=config.revisions.get(row.generator))
            same[row.generator] = own.get_vocab() == vocabulary
        if same[row.generator]:
            read.append(row)
            continue
        question = questions[row.benchmark, row.problem_id]
        read.append(
            replace(
                row,
                prompt_ids=prompt_ids(tokenizer, question, protocol=row.protocol),
                token_ids=response_ids(tokenizer, row.text),
                retokenized=True,
            )
        )
    return read


def _check_section(
    run: Run, table: Table[Any], section: str, identity: Mapping[str, object]
) -> None:
    """Refuse to mix the table's rows with others; an attempt that left none binds nobody."""
    stored = run.manifest()
    if stored is not None and section in stored and not table.keys():
        run.write_manifest({name: stored[name] for name in stored if name != section})
    check_or_write_manifest(run, identity, section=section)


def _generation_identity(config: RunConfig) -> dict[str, object]:
    """What trajectories depend on: a resume with anything of it changed is refused."""
    generators = config.generator_presets()
    return {
        "seed": config.seed,
        "protocol": config.protocol,
        "dtype": {g.model: _dtype(config, config.generate, g.model) for g in generators},
        "sampling": {g.model: asdict(config.sampling_for(g)) for g in generators},
        "samples": {
            g.model: {name: config.samples_for(g, name) for name in config.benchmark_names()}
            for g in generators
        },
        "models": {
            g.model: model_digest(g.model, revision=config.revisions.get(g.model))
            for g in generators
        },
    }


def _trace_identity(config: RunConfig) -> dict[str, object]:
    models = sorted({ref for g in config.generator_presets() for ref in config.pair_for(g)})
    return {
        "dtype": _trace_dtypes(config),
        "pairs": {g.model: list(config.pair_for(g)) for g in config.generator_presets()},
        "models": {ref: model_digest(ref, revision=config.revisions.get(ref)) for ref in models},
    }


def _trace_dtypes(config: RunConfig) -> dict[str, str]:
    """What each model of the pairs really runs in, so that rows of a GPU and a CPU do not mix."""
    pairs = [config.pair_for(generator) for generator in config.generator_presets()]
    found = {p: _dtype(config, config.trace, p) for p, _ in pairs}
    elsewhere = config.trace.q_device
    return found | {q: _dtype(config, config.trace, q, device=elsewhere) for _, q in pairs}


def _dtype(
    config: RunConfig,
    section: GenerateSection | TraceSection,
    ref: str,
    *,
    device: str | None = None,
) -> str:
    return resolve_dtype(
        ref,
        section.dtype,
        device=device or section.device,
        device_map=section.device_map,
        revision=config.revisions.get(ref),
    )


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
