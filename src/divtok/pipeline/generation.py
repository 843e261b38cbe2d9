"""problems -> trajectories: load the problems, plan every response, and sample the missing ones.

Batches are planned over all rows, not over the missing ones, so an interrupted run ends with
exactly the rows of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from divtok.config import RunConfig, resolve, to_yaml
from divtok.families import Generator
from divtok.generate.engine import Job, generate_batch
from divtok.models import load_model
from divtok.pipeline.common import check_section, chunks, digest_of, dtype_of, load_options
from divtok.problems.benchmarks import load_benchmark, problems_digest
from divtok.progress import track
from divtok.records import Problem
from divtok.store.run import Run


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
    check_section(run, run.trajectories.keys(), "problems", {"benchmarks": digests})
    check_section(run, run.trajectories.keys(), "generate", identity)
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
        batches = list(chunks(jobs, config.generate.batch_size))
        missing = [b for b in batches if any((job.key,) not in present for job in b)]
        done = len(jobs) - sum(len(b) for b in missing)
        with track(f"generate {generator.model}", total=len(jobs), done=done) as advance:
            if not missing:
                continue
            loaded = load_model(
                generator.model, **load_options(config, config.generate, generator.model)
            )
            for batch in missing:
                made = generate_batch(loaded, batch)
                run.trajectories.append([t for t in made if (t.key,) not in present])
                advance(len(batch))


def _generation_identity(config: RunConfig) -> dict[str, object]:
    """What trajectories depend on: a resume with anything of it changed is refused."""
    generators = config.generator_presets()
    return {
        "seed": config.seed,
        "protocol": config.protocol,
        "dtype": {g.model: dtype_of(config, config.generate, g.model) for g in generators},
        "sampling": {g.model: asdict(config.sampling_for(g)) for g in generators},
        "samples": {
            g.model: {name: config.samples_for(g, name) for name in config.benchmark_names()}
            for g in generators
        },
        "models": {g.model: digest_of(config, g.model) for g in generators},
    }
