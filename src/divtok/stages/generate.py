"""problems -> trajectories: load the problems, plan every response, and get the missing ones.

They come from the engine that the config names, which the stage knows nothing more about.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from divtok.config.engines import engine_setup, engine_setups
from divtok.config.loading import worth_compiling
from divtok.config.made_with import generator as made_with_generator
from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.errors import StoreError
from divtok.evidence.kind import stored_trajectories
from divtok.evidence.readings import READINGS
from divtok.families.family import Generator
from divtok.fill import LOCAL, Executor, Task, chunks, fill
from divtok.generate.engine import Generated
from divtok.generate.jobs import Job
from divtok.problems.benchmark import find_benchmark, load_benchmark, problems_digest
from divtok.problems.sources import HubSource
from divtok.records import Problem
from divtok.stages.choices import asked_divergences, check_addresses
from divtok.stages.continued import ANOTHER_RUN, SECTION, check_joins, generation_identity
from divtok.stages.recorded import check_recorded
from divtok.stages.trace import check_pairs
from divtok.store.calls import Calls
from divtok.store.layout import Key
from divtok.store.notes import keep_note
from divtok.store.responses import stored_responses
from divtok.store.run import Run
from divtok.store.sections import as_stored
from divtok.store.space import TRACE_BYTES_PER_TOKEN, TRAJECTORY_BYTES_PER_TOKEN, require_space

# Compiling takes an H200 some six seconds, and saves a fifth of the time after it.
COMPILE_FROM_TOKENS = 500_000


def prepare(run: Run, config: RunConfig) -> list[Problem]:
    """Load the benchmarks, check that the run fits this config, and keep the problems."""
    check_joins(run, config)
    loaded = {name: _load(config, name) for name in config.benchmark_names()}
    problems = [problem for of in loaded.values() for problem in of]
    _check_problems(run, problems)
    digests = {name: problems_digest(of) for name, of in loaded.items()}
    stored = run.manifest() or {}
    sections = {"problems": {"benchmarks": digests}, SECTION: generation_identity(config)}
    known = {name: as_stored(section, stored.get(name)) for name, section in sections.items()}
    known = json.loads(json.dumps(known, allow_nan=False))
    config_text = to_yaml(resolve(config))
    if known.items() <= stored.items() and run.problems.read() == problems:
        if run.config_text() is None:
            run.write_config(config_text)
        return problems
    # From here on the run is what it is to become, whenever it is stopped.
    run.write_config(config_text)
    run.problems.replace(problems)
    run.write_manifest({**stored, **known})
    for name in config.benchmark_names():
        source = find_benchmark(name, file=config.benchmark_file(name)).source
        if isinstance(source, HubSource):
            run.note_maker(run.problems.layout.name, {"benchmark": name, **source.origin()})
    return problems


def _load(config: RunConfig, name: str) -> list[Problem]:
    return load_benchmark(
        name,
        file=config.benchmark_file(name),
        limit=config.limit,
        subset_seed=config.subset_seed,
    )


def _check_problems(run: Run, problems: Sequence[Problem]) -> None:
    """Refuse problems without those that the run has responses to."""
    if not run.trajectories.keys():
        return
    given = {(p.benchmark, p.id): p for p in problems}
    lost = [p for p in run.problems.read() if given.get((p.benchmark, p.id)) != p]
    if lost:
        names = ", ".join(dict.fromkeys(p.benchmark for p in lost))
        raise StoreError(
            f"{run.path} cannot go on with other problems: {len(lost)} of those it has of {names} "
            f"are not there or were changed, the first is {lost[0].id}.",
            next_step=f"Put the benchmark back as it was. {ANOTHER_RUN}",
        )


def plan_jobs(config: RunConfig, generator: Generator, problems: Sequence[Problem]) -> list[Job]:
    """All trajectories of one generator, in a fixed order."""
    sampling = config.sampling_for(generator)
    return [
        Job(problem, sample, generator.model, config.protocol_for(problem.benchmark), sampling)
        for problem in problems
        for sample in range(config.samples_for(generator, problem.benchmark))
    ]


def generate(
    run: Run,
    config: RunConfig,
    *,
    retry_failed: bool = False,
    executor: Executor = LOCAL,
    part: RunConfig | None = None,
) -> None:
    """problems -> trajectories; with `part` only of its generators on its benchmarks"""
    check_addresses(config)
    if config.engine.open is None:
        stored_trajectories(run)  # an error where there are none
        return
    for setup in engine_setups(config):
        config.engine.check(setup)
    if config.generate.gives_traces:
        check_recorded(config)
    problems = prepare(run, config)
    if config.generate.gives_traces:
        check_pairs(run, config)
    present = run.trajectories.keys()
    if retry_failed:
        present -= {(r.key,) for r in stored_responses(run).values() if r.failed}
    part = part or config
    asked = set(part.benchmark_names())
    problems = [problem for problem in problems if problem.benchmark in asked]
    for generator in part.generator_presets():
        jobs = plan_jobs(config, generator, problems)
        _generate(run, config, generator, jobs, present, executor)


def _generate(
    run: Run,
    config: RunConfig,
    generator: Generator,
    jobs: Sequence[Job],
    present: set[Key],
    executor: Executor,
) -> None:
    """The missing trajectories of one generator."""
    engine, traced = config.engine, config.generate.gives_traces
    assert engine.open is not None
    calls = Calls(run, "response")
    setup = engine_setup(config, generator, answered=calls.answered)
    if engine.weights_here:
        missing = sum((job.key,) not in present for job in jobs)
        tokens = missing * _expected_tokens(run, generator, setup.sampling.max_length)
        worth_it = worth_compiling(config.generate, tokens, least=COMPILE_FROM_TOKENS)
        setup = replace(setup, compile=worth_it)
    if traced:
        setup = replace(
            setup,
            trace_columns=tuple(d.column for d in asked_divergences(config)),
            trace_budget=config.trace.budget(),
        )

    def begin(missing: Sequence[Sequence[Job]]) -> None:
        tokens = _expected_tokens(run, generator, setup.sampling.max_length)
        rows = sum(len(batch) for batch in missing)
        bytes_per_token = TRAJECTORY_BYTES_PER_TOKEN + (TRACE_BYTES_PER_TOKEN if traced else 0)
        require_space(run.path, round(rows * tokens * bytes_per_token))
        made_with = made_with_generator(setup, weights_here=engine.weights_here)
        run.note_maker(run.trajectories.layout.name, made_with)
        if traced:
            both = " ".join(config.pair_for(generator))
            run.note_maker(run.traces.layout.name, {**made_with, "models": both})

    def keep(made: Sequence[Generated]) -> None:
        rows = [row for row in made if (row.trajectory.key,) not in present]
        # What comes with a trajectory first, so that a trajectory means all of it.
        calls.keep(row.call for row in rows)
        run.table(READINGS).append([row.sampled for row in rows if row.sampled is not None])
        run.traces.append([row.trace for row in rows if row.trace is not None])
        run.trajectories.append([row.trajectory for row in rows])

    task = Task(
        title=f"generate {generator.model}",
        batches=chunks(jobs, 1 if engine.by_row else config.generate.batch_size),
        is_missing=lambda job: (job.key,) not in present,
        open=partial(engine.open, setup),
        keep=keep,
        note=partial(keep_note, run),
        begin=begin,
        whole=False,  # a response follows from its key, not from what it is written beside
    )
    fill(task, executor)
    calls.say_what_they_took()


def _expected_tokens(run: Run, generator: Generator, limit: int) -> float:
    """Of one response: as those that are there, or a quarter of the limit, which few reach."""
    responses = stored_responses(run).values()
    lengths = [r.length for r in responses if r.generator == generator.model and not r.failed]
    return sum(lengths) / len(lengths) if lengths else limit / 4
