"""Runs that are made from Python: of a config, of a family's fitting set, of other tools' files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, TypedDict, Unpack, overload

from divtok.api.run import Run, Settings, Verdicts
from divtok.config.run import RunConfig, load_config
from divtok.config.shortcuts import run_name, spelled_out
from divtok.config.tree import override_texts
from divtok.errors import UsageError
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.fit_any import AnyFit
from divtok.families.family import get_family
from divtok.importers import ImportOptions
from divtok.importers.importer import AUTO
from divtok.score.fitted import Target, What
from divtok.stages.stored import run_folder
from divtok.store import run as store


class RunKeys(TypedDict, total=False):
    """Keywords of `run`: the keys of a config, and the verb's options that stand for several."""

    family: str | None
    generators: Sequence[str]
    benchmarks: Sequence[str]
    benchmark_files: Mapping[str, str | Path]
    benchmark_protocols: Mapping[str, str | Path]
    benchmark_graders: Mapping[str, str]
    protocol: str | Path | None
    wordings: Mapping[str, Settings]
    limit: int | None
    subset_seed: int | None
    samples: int | None
    seed: int
    revisions: Mapping[str, str]
    bases: Mapping[str, str]
    projections: Mapping[str, str | Path]
    servers: Mapping[str, str]
    served_names: Mapping[str, str]
    tokenizers: Mapping[str, str]
    sampling: Settings
    own_sampling: Mapping[str, Settings]
    generate: Settings
    grade: Settings
    trace: Settings
    evidence: Settings
    prm: Settings
    score: Settings
    evaluate: Settings
    generator: str | Sequence[str]
    auxiliary: str
    theta: float
    benchmark: str | Path | Sequence[str | Path]
    dtype: str
    device_map: str
    base_url: str


def run(
    config: str | Path | Settings | None = None,
    *,
    name: str | None = None,
    out: str | Path | None = None,
    retry_failed: bool = False,
    **overrides: Unpack[RunKeys],
) -> Run:
    """Everything from problems to the report, resuming what is there: `divtok run`.

    `config` is the path of a YAML file, or a mapping whose keys may be dotted ("score.theta");
    `overrides` go on top, a section as a mapping: score={"theta": 0.4}. Keys are those of the
    configuration page. The run is in runs/NAME or in the folder `out`; with neither it is called
    like its family. Rows that failed are in `failures` of what comes back.

    Example:
        >>> import divtok
        >>> run = divtok.run(family="tiny", limit=2, benchmarks=["arith-easy"], out="example")
        >>> run.evaluate().to_polars()["estimator"].n_unique() > 3
        True
    """
    from divtok.stages.report import report
    from divtok.stages.run import run_stages

    settled = _settled(config, override_texts(spelled_out(overrides)))
    with _made(name, out, default=run_name(settled)) as made:
        report(made, run_stages(made, settled, retry_failed=retry_failed))
    return Run(made.path)


def _settled(config: str | Path | Settings | None, overrides: Iterable[str]) -> RunConfig:
    path = Path(config) if isinstance(config, str | Path) else None
    given = config if isinstance(config, Mapping) else {}
    return load_config(path, [*override_texts(given), *overrides])


def _made(
    name: str | None, out: str | Path | None, *, default: str
) -> AbstractContextManager[store.Run]:
    folder = run_folder(name, None if out is None else Path(out), default=default)
    return store.Run.begun(folder)


@overload
def fit_family(
    family: str,
    config: str | Path | Settings | None = None,
    *,
    name: str | None = None,
    out: str | Path | None = None,
    limit: int | None = None,
    samples: int | None = None,
    file: str | Path | None = None,
    what: Literal["theta"] = "theta",
    target: Target = "grades",
) -> ThetaFit: ...
@overload
def fit_family(
    family: str,
    config: str | Path | Settings | None = None,
    *,
    name: str | None = None,
    out: str | Path | None = None,
    limit: int | None = None,
    samples: int | None = None,
    file: str | Path | None = None,
    what: What,
    estimator: str | None = None,
    target: Target = "grades",
) -> AnyFit: ...
def fit_family(
    family: str,
    config: str | Path | Settings | None = None,
    *,
    name: str | None = None,
    out: str | Path | None = None,
    limit: int | None = None,
    samples: int | None = None,
    file: str | Path | None = None,
    what: What = "theta",
    estimator: str | None = None,
    target: Target = "grades",
) -> AnyFit:
    """`divtok fit`: choose theta for a family, from its fitting set or the problems of a file.

    Or, by `what`, a rate or a map: see `fit`. With `target="agreement"` no grade is used.

    Makes a run with the family's smallest generator, by default runs/fit-FAMILY of 100 problems
    with as many samples each as the family's file says. Its `interval` says how well theta is
    determined.

    Example:
        >>> import divtok
        >>> found = divtok.fit_family("tiny", limit=8, out="example-fit")
        >>> found.theta in [point.theta for point in found.curve]
        True
    """
    from divtok.stages.fit import family_overrides, fit_family

    local = None if file is None else str(file)
    fixed = family_overrides(get_family(family), limit=limit, samples=samples, file=local)
    with _made(name, out, default=f"fit-{family}") as made:
        settled = _settled(config, fixed)
        return fit_family(made, settled, what=what, estimator=estimator, target=target)


def import_files(
    files: str | Path | Sequence[str | Path],
    format: str = AUTO,
    *,
    name: str | None = None,
    out: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    generator: str | None = None,
    benchmark: str | None = None,
    protocol: str | Path = AUTO,
    problems: str | Path | None = None,
    requests: str | Path | None = None,
    verdict: Verdicts | None = None,
    scorer: str | None = None,
    skip_bad: bool = False,
    family: str | None = None,
) -> Run:
    """`divtok import`: responses that other tools made, as a run to be scored with `Run.score`.

    Example:
        >>> import divtok, json, pathlib
        >>> row = {"question": "What is 1 + 1?", "answer": "2", "response": "It is \\\\boxed{2}."}
        >>> file = pathlib.Path("rows.jsonl")
        >>> _ = file.write_text(json.dumps(row))
        >>> names = {"generator": "someone", "benchmark": "mine"}
        >>> run = divtok.import_files(file, out="imported", **names)
        >>> run.score(family="tiny")["estimator"].n_unique() > 3
        True
    """
    from divtok.stages.import_files import import_files

    if name is None and out is None:
        raise UsageError("The import needs a run.", next_step="Give name=NAME or out=FOLDER.")
    options = ImportOptions(
        format=format,
        columns=columns or {},
        generator=generator,
        benchmark=benchmark,
        protocol=str(protocol),
        problems=None if problems is None else Path(problems),
        requests=None if requests is None else Path(requests),
        skip_bad=skip_bad,
        strict=not skip_bad,  # nobody would see that lines were set aside
    )
    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    grading = list(override_texts(spelled_out({"verdict": verdict, "scorer": scorer})))
    with _made(name, out, default="") as made, made.lock():
        import_files(made, paths, options, family=family, grading=grading)
    return Run(made.path)
