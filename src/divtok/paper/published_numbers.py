"""The paper's own numbers: its tables, and the figures its text states, from published/*.csv.

Everything is in divtok's names and in fractions (76.1 becomes 0.761). Knows nothing of runs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal, TypeVar

from divtok.errors import DataError, did_you_mean

PaperTable = Literal["whitebox", "blackbox", "verbalized_with_dtc"]
Metric = Literal["accuracy", "ece", "auroc"]
CsvRow = dict[str, str]
T = TypeVar("T")

MODELS: dict[str, str] = {
    "Qwen2.5-7B": "Qwen/Qwen2.5-7B-Instruct",
    "Qwen2.5-14B": "Qwen/Qwen2.5-14B-Instruct",
    "Qwen2.5-32B": "Qwen/Qwen2.5-32B-Instruct",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen3-14B": "Qwen/Qwen3-14B",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Gemma3-12B": "google/gemma-3-12b-it",
    "Gemma3-27B": "google/gemma-3-27b-it",
    "DeepSeek-V3.2": "deepseek-ai/DeepSeek-V3.2",
    "Qwen3-4B-Instruct-2507": "Qwen/Qwen3-4B-Instruct-2507",
    "Qwen3-30B-A3B-Instruct-2507": "Qwen/Qwen3-30B-A3B-Instruct-2507",
}
BENCHMARKS: dict[str, str] = {
    "MATH-500": "math500",
    "AMC23": "amc23",
    "AIME24": "aime24",
    "AIME25": "aime25",
    "HMMT25": "hmmt25",
    "HMMT26": "hmmt26",
}
PROTOCOLS: dict[str, str] = {
    "Default CoT": "cot",
    "Verb. Conf.": "verbalized",
    "Verb. TopK": "verbalized_top2",
    "Verb. PD": "verbalized_distribution",
}
WHITEBOX_ESTIMATORS = (
    "nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized",
    "dtc_prod", "dtc_lin", "prm",
)  # fmt: skip
NO_ESTIMATOR = "none"  # of a row with the accuracy of a protocol and no confidence
_LONG_ESTIMATORS = {
    NO_ESTIMATOR: NO_ESTIMATOR,
    "prm": "prm",
    "dtc_lin": "dtc_lin",
    "dtc_prod": "dtc_prod",
    "verbalized": "verbalized",
    "verbalized_with_dtc": "verbalized_dtc",
}
_AVERAGE = ("Average", "all")
_WIDE_COLUMNS = ("benchmark", "generator", "accuracy", *WHITEBOX_ESTIMATORS)
_LONG_COLUMNS: dict[PaperTable, tuple[str, ...]] = {
    "blackbox": (
        "generator", "benchmark", "protocol", "estimator", "accuracy", "ece", "auroc",
    ),
    "verbalized_with_dtc": (
        "generator", "benchmark", "protocol", "estimator", "ece", "auroc",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """One cell of a table of the paper; None where the paper has no figure.

    A row that scores the trajectories of another one again has no accuracy of its own; the plain
    chain of thought states no confidence, so its accuracy is in a row of `NO_ESTIMATOR`.
    """

    benchmark: str
    generator: str
    protocol: str
    estimator: str
    accuracy: float | None
    ece: float | None
    auroc: float | None


@dataclass(frozen=True, slots=True)
class PublishedMean:
    """A mean over benchmarks that the paper states, or the lowest and highest of several.

    Means are taken over all benchmarks of the table for each of `generators` and `protocols`
    (`pooled`: over all generators at once); `low` and `high` differ where there are several.
    """

    key: str
    table: PaperTable
    metric: Metric
    generators: tuple[str, ...]
    protocols: tuple[str, ...]
    estimator: str | None  # None for the accuracy, which belongs to no estimator
    low: float
    high: float
    where: str
    pooled: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A number, or a range of numbers, that the paper's text states about a figure or table."""

    key: str
    what: str
    low: float
    high: float
    where: str


@cache
def published(table: PaperTable) -> tuple[Published, ...]:
    """Every cell of a table, in the paper's order; the white-box one has both its metrics."""
    return read_published(table, _folder())


@cache
def published_means() -> tuple[PublishedMean, ...]:
    """The means that the paper states: in the last row of its white-box tables, and in its text."""
    return (*read_whitebox_means(_folder()), *_means_of_the_text())


def read_published(table: PaperTable, folder: Traversable) -> tuple[Published, ...]:
    """A table from the CSV files in `folder`; a name or column that is not known is an error."""
    cells = _read_whitebox(folder) if table == "whitebox" else _read_long(table, folder)
    seen: set[tuple[str, ...]] = set()
    for cell in cells:
        key = (cell.benchmark, cell.generator, cell.protocol, cell.estimator)
        if key in seen:
            raise DataError(f"{table}.csv has {' '.join(key)} twice.")
        seen.add(key)
    return tuple(cells)


def read_whitebox_means(folder: Traversable) -> tuple[PublishedMean, ...]:
    """The row of averages of both white-box tables; the accuracy is in both, and once here."""
    generators = tuple(dict.fromkeys(cell.generator for cell in _read_whitebox(folder)))
    wanted: list[tuple[Metric, str, str | None]] = [("accuracy", "ece", None)]
    metrics: tuple[Metric, ...] = ("ece", "auroc")
    wanted.extend((metric, metric, name) for metric in metrics for name in WHITEBOX_ESTIMATORS)
    found: list[PublishedMean] = []
    for metric, table, estimator in wanted:
        file = f"whitebox_{table}.csv"
        averages = [row for row in _rows(folder, file, _WIDE_COLUMNS) if _is_average(row)]
        values = [_fraction(row, estimator or "accuracy", file) for row in averages]
        if len(values) != 1 or values[0] is None:
            raise DataError(f"{file} must have exactly one average of {estimator or 'accuracy'}.")
        found.append(
            PublishedMean(
                key=f"whitebox-{metric}" + (f"-{estimator}" if estimator else ""),
                table="whitebox",
                metric=metric,
                generators=generators,
                protocols=("cot",),
                estimator=estimator,
                low=values[0],
                high=values[0],
                where=f"white-box {table.upper()} table, last row",
                pooled=True,
            )
        )
    return tuple(found)


def _means_of_the_text() -> tuple[PublishedMean, ...]:
    where = "black-box setting, main results"
    deepseek = (MODELS["DeepSeek-V3.2"],)
    three = (*deepseek, *(ref for name, ref in MODELS.items() if name.endswith("2507")))
    stated: tuple[str, ...] = ("verbalized", "verbalized_top2", "verbalized_distribution")

    def mean(
        key: str, metric: Metric, estimator: str | None, low: float, high: float,
        generators: tuple[str, ...] = deepseek, protocols: tuple[str, ...] = stated,
    ) -> PublishedMean:  # fmt: skip
        return PublishedMean(
            key, "blackbox", metric, generators, protocols, estimator, low, high, where
        )

    return (
        mean("deepseek-accuracy-cot", "accuracy", None, 0.575, 0.575, protocols=("cot",)),
        mean("deepseek-accuracy-stated", "accuracy", None, 0.449, 0.515),
        mean("deepseek-ece-stated", "ece", "verbalized", 0.321, 0.402),
        mean("deepseek-ece-stated-dtc-lin", "ece", "dtc_lin", 0.137, 0.163),
        mean("blackbox-ece-cot-dtc-lin", "ece", "dtc_lin", 0.115, 0.127, three, ("cot",)),
    )


def _read_whitebox(folder: Traversable) -> list[Published]:
    """The two wide tables as one: they must have the same rows and accuracies."""
    ece, auroc = (_wide(folder, file) for file in ("whitebox_ece.csv", "whitebox_auroc.csv"))
    if list(ece) != list(auroc):
        raise DataError("whitebox_ece.csv and whitebox_auroc.csv are about different responses.")
    return [
        Published(benchmark, generator, "cot", estimator, accuracy, value, auroc[head][estimator])
        for head, values in ece.items()
        for benchmark, generator, accuracy in [head]
        for estimator, value in values.items()
    ]


def _wide(
    folder: Traversable, file: str
) -> dict[tuple[str, str, float | None], dict[str, float | None]]:
    """(benchmark, generator, accuracy) -> the figure of each estimator"""
    found: dict[tuple[str, str, float | None], dict[str, float | None]] = {}
    for row in _rows(folder, file, _WIDE_COLUMNS):
        if _is_average(row):
            continue
        head = (
            _ours(BENCHMARKS, row["benchmark"], file),
            _ours(MODELS, row["generator"], file),
            _fraction(row, "accuracy", file),
        )
        if head in found:
            raise DataError(f"{file} has the row of {head[1]} on {head[0]} twice.")
        found[head] = {name: _fraction(row, name, file) for name in WHITEBOX_ESTIMATORS}
    return found


def _read_long(table: PaperTable, folder: Traversable) -> list[Published]:
    file = f"{table}.csv"
    return [
        Published(
            benchmark=_ours(BENCHMARKS, row["benchmark"], file),
            generator=_ours(MODELS, row["generator"], file),
            protocol=_ours(PROTOCOLS, row["protocol"], file),
            estimator=_ours(_LONG_ESTIMATORS, row["estimator"], file),
            accuracy=_fraction(row, "accuracy", file) if "accuracy" in row else None,
            ece=_fraction(row, "ece", file),
            auroc=_fraction(row, "auroc", file),
        )
        for row in _rows(folder, file, _LONG_COLUMNS[table])
    ]


def _rows(folder: Traversable, file: str, columns: tuple[str, ...]) -> list[CsvRow]:
    reader = csv.DictReader(io.StringIO((folder / file).read_text("utf-8")), strict=True)
    if tuple(reader.fieldnames or ()) != columns:
        raise DataError(f"{file} has the columns {reader.fieldnames}, not {list(columns)}.")
    rows = list(reader)
    for number, row in enumerate(rows, start=2):
        # A line with too many fields has them under None, one with too few has None in them.
        if None in row or None in row.values():
            raise DataError(f"{file}, line {number}, does not have {len(columns)} fields.")
    return rows


def _is_average(row: CsvRow) -> bool:
    return (row["benchmark"], row["generator"]) == _AVERAGE


def _ours(names: Mapping[str, T], theirs: str, file: str) -> T:
    if theirs not in names:
        raise DataError(
            f"{file} has the name '{theirs}', which is not known.",
            next_step=did_you_mean(theirs, names),
        )
    return names[theirs]


def _fraction(row: CsvRow, column: str, file: str) -> float | None:
    """A percentage with one decimal as a fraction; None for an empty field."""
    text = row[column]
    if not text:
        return None
    try:
        percent = float(text)
    except ValueError as error:
        raise DataError(f"{file}: '{text}' in the column {column} is not a number.") from error
    if not 0 <= percent <= 100:
        raise DataError(f"{file}: {text} in the column {column} is not a percentage.")
    return round(percent / 100, 6)  # 76.1 / 100 is not 0.761 to the last bit


def _folder() -> Traversable:
    return resources.files("divtok") / "paper" / "published"


def _facts() -> dict[str, Fact]:
    rows = _rows(_folder(), "facts.csv", ("key", "what", "low", "high", "where"))
    return {
        r["key"]: Fact(r["key"], r["what"], float(r["low"]), float(r["high"]), r["where"])
        for r in rows
    }


FACTS: Mapping[str, Fact] = _facts()
