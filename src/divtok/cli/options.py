"""Arguments and options that several verbs share, and how they become a config and a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from divtok.cli.printing import leave_if_failed
from divtok.config.run import RunConfig, load_config
from divtok.errors import UsageError, did_you_mean
from divtok.problems.benchmark import BENCHMARKS
from divtok.report.text import slug
from divtok.stages.stored import stored_config
from divtok.store.run import Run, is_run, run_path


class Verdicts(StrEnum):
    OURS = "ours"
    THEIRS = "theirs"
    BOTH = "both"


RunArgument = Annotated[str, typer.Argument(help="A run: its name under runs/, or its folder.")]
ConfigArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE]...",
        help="A YAML config file and dotted overrides, as in: run.yaml limit=50 score.theta=0.4",
        show_default=False,
    ),
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Config overrides, as in: score.estimators=whitebox"
    ),
]
NameOption = Annotated[str | None, typer.Option(help="Name of the run, under runs/.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder of the run, anywhere.")]
FamilyOption = Annotated[str | None, typer.Option(help="Preset of models and theta.")]
ReadersOption = Annotated[str | None, typer.Option(help="Read with this family's pair and theta.")]
GeneratorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--generator",
        help="Model that writes: a hub id, folder or GGUF file. Repeat it for several.",
        show_default=False,
    ),
]
AuxiliaryOption = Annotated[
    str | None,
    typer.Option(help="Model that reads with the generator, which then needs no family."),
]
ThetaOption = Annotated[
    float | None, typer.Option(help="Threshold in bits, as fitted for the pair: divtok fit.")
]
BenchmarkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--benchmark",
        help="Problems: a name of 'divtok ls benchmarks', or a JSONL file. Repeat it for several.",
        show_default=False,
    ),
]
SamplesOption = Annotated[int | None, typer.Option(help="Responses per problem.")]
LimitOption = Annotated[int | None, typer.Option(help="Problems per benchmark.")]
SeedOption = Annotated[int | None, typer.Option(help="Seed of the sampling.")]
DTypeOption = Annotated[
    str | None, typer.Option(help="Number type of the models: auto, float32, ...")
]
DTypesOption = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
DeviceMapOption = Annotated[
    str | None, typer.Option(help="Spread each model over all GPUs: auto, ...")
]
PairOption = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="P Q", help="The two models that read, the larger one first."),
]
BaseUrlOption = Annotated[
    str | None, typer.Option(help="Generate through the OpenAI-compatible server there.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
VerdictOption = Annotated[
    Verdicts | None,
    typer.Option(
        "--verdict", help="Grades: ours, theirs (of the tool a log comes from), or both compared."
    ),
]
ScorerOption = Annotated[
    str | None, typer.Option(help="Whose verdicts of theirs, by the tool's name for it.")
]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", help="Redo the rows that failed before.")
]


def on_new_run(verb: Callable[[Run, RunConfig, bool], None]) -> Callable[..., None]:
    """A verb with the options of a run that need not be there yet; it gets the run and its config.

    The verb's last argument says whether to redo the rows that failed.
    """

    def command(
        arguments: ConfigArguments = None,
        name: NameOption = None,
        out: OutOption = None,
        generator: GeneratorOption = None,
        auxiliary: AuxiliaryOption = None,
        theta: ThetaOption = None,
        benchmark: BenchmarkOption = None,
        family: FamilyOption = None,
        limit: LimitOption = None,
        samples: SamplesOption = None,
        seed: SeedOption = None,
        dtype: DTypeOption = None,
        device_map: DeviceMapOption = None,
        base_url: BaseUrlOption = None,
        retry_failed: RetryOption = False,
    ) -> None:
        named: dict[str, object] = {"family": family, "limit": limit, "seed": seed}
        named |= {"samples": samples, "score.theta": theta, "trace.auxiliary": _text(auxiliary)}
        named |= {"generators": _text(generator), **_benchmarks(benchmark)}
        for section in ("generate", "trace"):
            named |= {f"{section}.dtype": dtype, f"{section}.device_map": device_map}
        if base_url is not None:
            named |= {"generate.engine": "api", "generate.api.base_url": base_url}
        config = config_from(arguments, **named)
        store = Run.create_or_open(run_folder(name, out, default=_run_name(config)))
        verb(store, config, retry_failed)
        leave_if_failed(store)

    command.__doc__ = verb.__doc__
    return command


def _text(value: object) -> str | None:
    """As YAML text, so that a name is never taken for a number; None where nothing was given."""
    return json.dumps(value, ensure_ascii=False) if value else None


def _benchmarks(given: Sequence[str] | None) -> Mapping[str, object]:
    """Overrides for benchmarks by name or file; a file is a benchmark of its own name."""
    files = {Path(name).stem: name for name in given or () if Path(name).is_file()}
    names = [Path(name).stem if name in files.values() else name for name in given or ()]
    for name in names:
        if name not in files and name not in BENCHMARKS:
            raise UsageError(
                f"There is no benchmark '{name}', and no file of that name.",
                next_step=did_you_mean(name, BENCHMARKS.names()),
            )
    return {"benchmarks": _text(names)} | {f"benchmark_files.{n}": f for n, f in files.items()}


def _run_name(config: RunConfig) -> str:
    """The family's name, or the generator's without its owner and folder."""
    if config.family is not None:
        return config.family
    return slug(Path(config.generator_presets()[0].model).name.removesuffix(".gguf"))


def config_from(arguments: Sequence[str] | None, **named: object) -> RunConfig:
    """A file (if the first argument is one) with overrides, the named options on top."""
    given = list(arguments or [])
    path = None
    if given and "=" not in given[0]:
        path = Path(given.pop(0))
    return load_config(path, given + overridden(**named))


def grading(verdict: Verdicts | None, scorer: str | None) -> list[str]:
    """Overrides for whose verdicts are the grades."""
    name = None if scorer is None else json.dumps(scorer, ensure_ascii=False)
    verdicts = None if verdict is None else verdict.value
    return overridden(**{"grade.verdicts": verdicts, "grade.scorer": name})


def overridden(**named: object) -> list[str]:
    """Overrides for the options that were given, by their dotted keys."""
    return [f"{key}={value}" for key, value in named.items() if value is not None]


def run_folder(name: str | None, out: Path | None, *, default: str) -> Path:
    if name is not None and out is not None:
        raise UsageError("Both --name and --out were given.", next_step="Give one of them.")
    return out if out is not None else run_path(default if name is None else name)


def open_run(run: str) -> Run:
    """A run by folder or by name."""
    folder = Path(run)
    return Run.open(folder if is_run(folder) or {"/", os.sep} & set(run) else run_path(run))


def open_with_config(run: str, overrides: Sequence[str] | None = None) -> tuple[Run, RunConfig]:
    """A run by folder or by name, and its config with these overrides."""
    store = open_run(run)
    return store, stored_config(store, overrides or [])
