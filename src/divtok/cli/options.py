"""Arguments and options that several verbs share, and how they become a config and a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from divtok.config.run import RunConfig, load_config
from divtok.errors import UsageError
from divtok.store.run import Run, is_run, run_path

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
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the run, under runs/.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Folder of the run, anywhere.")]
FamilyOption = Annotated[str | None, typer.Option("--family", help="Preset of models and theta.")]
LimitOption = Annotated[int | None, typer.Option("--limit", help="Problems per benchmark.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of the sampling.")]
DTypeOption = Annotated[
    str | None, typer.Option("--dtype", help="Number type of the models: auto, float32, ...")
]
DeviceMapOption = Annotated[
    str | None, typer.Option("--device-map", help="Spread each model over all GPUs: auto, ...")
]
PairOption = Annotated[
    tuple[str, str] | None,
    typer.Option("--pair", metavar="P Q", help="The two models that read, the larger one first."),
]
BaseUrlOption = Annotated[
    str | None,
    typer.Option("--base-url", help="Generate through the OpenAI-compatible server there."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", help="Redo the rows that failed before.")
]


def config_from(
    arguments: list[str] | None,
    *,
    family: str | None = None,
    limit: int | None = None,
    seed: int | None = None,
    dtype: str | None = None,
    device_map: str | None = None,
    base_url: str | None = None,
) -> RunConfig:
    """A file (if the first argument is one) with overrides, the named options on top."""
    given = list(arguments or [])
    path = None
    if given and "=" not in given[0]:
        path = Path(given.pop(0))
    named: dict[str, object] = {"family": family, "limit": limit, "seed": seed}
    for section in ("generate", "trace"):
        named |= {f"{section}.dtype": dtype, f"{section}.device_map": device_map}
    if base_url is not None:
        named |= {"generate.engine": "api", "generate.api.base_url": base_url}
    return load_config(path, given + overridden(**named))


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
