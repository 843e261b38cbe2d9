"""problems -> trajectories: load the problems, plan every response, and get the missing ones.

They come from a model that is loaded here, through transformers or vLLM, or from a server.
Batches are planned over all rows, not over the missing ones, so an interrupted run ends with
exactly the rows of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Generator as ContextGenerator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.errors import ConfigError
from divtok.families.family import Generator
from divtok.generate.engines.chat import Response, respond_all
from divtok.generate.engines.vllm import check_sampling, load_vllm
from divtok.generate.jobs import Job, generate_batch
from divtok.models.load import load_model
from divtok.problems.benchmark import load_benchmark, problems_digest
from divtok.progress import track
from divtok.records import Problem, Trajectory
from divtok.stages.calls import added_up, api_options, has_answered, say_what_calls_took
from divtok.stages.choices import check_addresses
from divtok.stages.common import (
    check_section,
    chunks,
    digest_of,
    dtype_of,
    load_options,
    stored_trajectories,
)
from divtok.store.run import Run
from divtok.store.schema import Key


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
    if run.config_text() is None:  # of an older run only what has worked is written down
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


def generate(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """problems -> trajectories"""
    _check_engine(config)
    if config.generate.engine == "imported":
        stored_trajectories(run)  # an error where there are none
        return
    problems = prepare(run, config)
    present = run.trajectories.keys()
    if retry_failed:
        present -= {(t.key,) for t in run.trajectories.read() if t.failed}
    make = _ask_server if config.generate.engine == "api" else _sample
    for generator in config.generator_presets():
        make(run, config, generator, plan_jobs(config, generator, problems), present)


def _check_engine(config: RunConfig) -> None:
    """Refuse what the engine could not be asked with, before anything is loaded."""
    check_addresses(config)
    section = config.generate
    if section.engine == "api":
        api_options(config)
    if section.engine != "vllm":
        return
    for generator in config.generator_presets():
        check_sampling(config.sampling_for(generator))
    if section.device or section.device_map:
        raise ConfigError(
            "vLLM finds its GPUs itself: generate.device and .device_map say nothing to it.",
            next_step="Leave them out; generate.vllm.tensor_parallel spreads a model over GPUs.",
        )


def _sample(
    run: Run, config: RunConfig, generator: Generator, jobs: Sequence[Job], present: set[Key]
) -> None:
    """The missing trajectories, from a model that is loaded only if there are any."""
    batches = list(chunks(jobs, config.generate.batch_size))
    missing = [b for b in batches if any((job.key,) not in present for job in b)]
    done = len(jobs) - sum(len(b) for b in missing)
    with track(f"generate {generator.model}", total=len(jobs), done=done) as advance:
        if not missing:
            return
        with _loaded(config, generator) as sample:
            for batch in missing:
                made = sample(batch)
                run.trajectories.append([t for t in made if (t.key,) not in present])
                advance(len(batch))


@contextmanager
def _loaded(
    config: RunConfig, generator: Generator
) -> ContextGenerator[Callable[[Sequence[Job]], list[Trajectory]]]:
    """What samples a batch; the model's memory is free again afterwards, for those that read."""
    section = config.generate
    if section.engine == "vllm":
        with load_vllm(
            generator.model,
            revision=config.revisions.get(generator.model),
            dtype=section.dtype,
            tensor_parallel=section.vllm.tensor_parallel,
            max_length=config.sampling_for(generator).max_length,
            gpu_memory=section.vllm.gpu_memory,
            seed=config.seed,
        ) as engine:
            yield engine.generate_batch
        return
    loaded = load_model(generator.model, **load_options(config, section, generator.model))
    yield lambda batch: generate_batch(loaded, batch)


def _ask_server(
    run: Run, config: RunConfig, generator: Generator, jobs: Sequence[Job], present: set[Key]
) -> None:
    """The missing trajectories, from a server; one that could not be had is a row all the same."""
    missing = [job for job in jobs if (job.key,) not in present]
    done = len(jobs) - len(missing)
    earlier = {call.key: call for call in run.calls.read() if call.purpose == "response"}
    proved = has_answered(run, config, generator.model)
    with track(f"ask for {generator.model}", total=len(jobs), done=done) as advance:

        def keep(responses: Sequence[Response]) -> None:
            # What comes with a trajectory first, so that a trajectory means all of it.
            run.calls.append(added_up((response.call for response in responses), earlier))
            run.readings.append([r.sampled for r in responses if r.sampled is not None])
            run.trajectories.append([response.trajectory for response in responses])
            advance(len(responses))

        if missing:
            respond_all(missing, api_options(config), keep=keep, proved=proved)
    if missing:
        say_what_calls_took(run, "response", {job.key for job in missing})


def _generation_identity(config: RunConfig) -> dict[str, object]:
    """What trajectories depend on: a resume with anything of it changed is refused."""
    generators = config.generator_presets()
    return _engine_identity(config, generators) | {
        "seed": config.seed,
        "protocol": config.protocol,
        "sampling": {g.model: asdict(config.sampling_for(g)) for g in generators},
        "samples": {
            g.model: {name: config.samples_for(g, name) for name in config.benchmark_names()}
            for g in generators
        },
    }


def _engine_identity(config: RunConfig, generators: Sequence[Generator]) -> dict[str, object]:
    """The weights, or as much as is known of them: a server tells no more than a name."""
    section = config.generate
    if section.engine == "api":
        options = api_options(config)
        return {
            "engine": section.engine,
            "models": {g.model: options.name_of(g.model) for g in generators},
            "extra_body": dict(options.extra_body),
            "logprobs": options.logprobs,
        }
    # Left out where it is the first engine there was, so that runs made before it was named go on.
    named: dict[str, object] = (
        {} if section.engine == "transformers" else {"engine": section.engine}
    )
    return named | {
        "dtype": {g.model: dtype_of(config, section, g.model) for g in generators},
        "models": {g.model: digest_of(config, g.model) for g in generators},
    }
