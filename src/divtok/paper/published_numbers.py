"""The paper's own numbers: its tables, and the figures its text states, from published/*.csv.

Everything is in divtok's names and in fractions (76.1 becomes 0.761). Knows nothing of runs.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

PaperTable = Literal["whitebox", "blackbox", "verbalized_with_dtc"]

MODELS = {
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
PROTOCOLS = {
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
_AVERAGE = "Average"  # in place of a benchmark, in the last row of a white-box table


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
    if table == "whitebox":
        both = zip(_rows("whitebox_ece"), _rows("whitebox_auroc"), strict=True)
        return tuple(
            _cell(ece | {"estimator": name, "ece": ece[name], "auroc": auroc[name]})
            for ece, auroc in both
            if ece["benchmark"] != _AVERAGE
            for name in WHITEBOX_ESTIMATORS
        )
    return tuple(map(_cell, _rows(table)))


def whitebox_average(metric: Literal["ece", "auroc"]) -> dict[str, float | None]:
    """The last row of a white-box table: the mean accuracy, and the metric of each estimator."""
    [row] = [row for row in _rows(f"whitebox_{metric}") if row["benchmark"] == _AVERAGE]
    return {name: _fraction(row[name]) for name in ("accuracy", *WHITEBOX_ESTIMATORS)}


def _cell(row: Mapping[str, str]) -> Published:
    return Published(
        benchmark=row["benchmark"].lower().replace("-", ""),
        generator=MODELS[row["generator"]],
        protocol=PROTOCOLS[row.get("protocol", "Default CoT")],
        estimator=row["estimator"].replace("_with_dtc", "_dtc"),
        accuracy=_fraction(row.get("accuracy", "")),
        ece=_fraction(row["ece"]),
        auroc=_fraction(row["auroc"]),
    )


def _fraction(percent: str) -> float | None:
    """A percentage with one decimal; None for an empty field."""
    return round(float(percent) / 100, 6) if percent else None  # 76.1 / 100 is not quite 0.761


def _rows(name: str) -> list[dict[str, str]]:
    file = resources.files("divtok") / "paper" / "published" / f"{name}.csv"
    return list(csv.DictReader(file.read_text("utf-8").splitlines(), strict=True))


FACTS: Mapping[str, Fact] = {
    row["key"]: Fact(row["key"], row["what"], float(row["low"]), float(row["high"]), row["where"])
    for row in _rows("facts")
}
