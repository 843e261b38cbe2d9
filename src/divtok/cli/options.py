"""Arguments and options that several verbs share, and how they become a config and a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli import completion
from divtok.cli.printing import leave_if_failed
from divtok.config.run import RunConfig, load_config
from divtok.config.shortcuts import run_name, spelled_out
from divtok.config.tree import override_texts
from divtok.stages.stored import open_run, run_folder, stored_config
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.stages.evaluate import Results


class Verdicts(StrEnum):
    OURS = "ours"
    THEIRS = "theirs"
    BOTH = "both"


RunArgument = Annotated[
    str,
    typer.Argument(
        help="A run: its name under runs/, or its folder.", autocompletion=completion.runs
    ),
]
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
NameOption = Annotated[
    str | None,
    typer.Option(help="Name of the run, under runs/.", autocompletion=completion.runs),
]
OutOption = Annotated[Path | None, typer.Option(help="Folder of the run, anywhere.")]
FamilyOption = Annotated[
    str | None,
    typer.Option(help="Preset of models and theta.", autocompletion=completion.families),
]
ReadersOption = Annotated[
    str | None,
    typer.Option(
        help="Read with this family's pair and theta.", autocompletion=completion.families
    ),
]
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
        help="Problems: a name of 'divtok ls benchmarks', or a JSONL or YAML file. Repeat it for "
        "several.",
        show_default=False,
        autocompletion=completion.benchmarks,
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


def on_new_run(verb: Callable[[Run, RunConfig, bool], Results | None]) -> Callable[..., None]:
    """A verb with the options of a run that need not be there yet; it gets the run and its config.

    The verb's last argument says whether to redo the rows that failed. It gives what it evaluated.
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
        named: dict[str, object] = {"family": family, "generator": generator or None}
        named |= {"auxiliary": auxiliary, "theta": theta, "benchmark": benchmark or None}
        named |= {"limit": limit, "samples": samples, "seed": seed, "dtype": dtype}
        named |= {"device_map": device_map, "base_url": base_url}
        config = config_from(arguments, **spelled_out(named))
        with Run.begun(run_folder(name, out, default=run_name(config))) as store:
            found = verb(store, config, retry_failed)
        leave_if_failed(store, found)

    command.__doc__ = verb.__doc__
    return command


def config_from(arguments: Sequence[str] | None, **named: object) -> RunConfig:
    """A file (if the first argument is one) with overrides, the named options on top."""
    given = list(arguments or [])
    path = None
    if given and "=" not in given[0]:
        path = Path(given.pop(0))
    return load_config(path, given + overridden(**named))


def grading(verdict: Verdicts | None, scorer: str | None) -> list[str]:
    """Overrides for whose verdicts are the grades."""
    named = {"verdict": None if verdict is None else verdict.value, "scorer": scorer}
    return overridden(**spelled_out(named))


def overridden(**named: object) -> list[str]:
    """Overrides for the options that were given, by their dotted keys."""
    return list(override_texts({key: v for key, v in named.items() if v is not None}))


def open_with_config(run: str, overrides: Sequence[str] | None = None) -> tuple[Run, RunConfig]:
    """A run by folder or by name, and its config with these overrides."""
    store = open_run(run)
    return store, stored_config(store, overrides or [])
