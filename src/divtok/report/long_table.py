"""One row for each evaluation with every figure, sd, interval and count."""

from __future__ import annotations

import json
from collections.abc import Sequence

from divtok.evaluate.protocol import Protocol
from divtok.evaluate.scored_group import EXCLUSION_REASONS
from divtok.evaluate.selective import COVERAGES
from divtok.records import Evaluation
from divtok.report.tables import Cell, Kind, ReportColumn, ReportRow, ReportTable


def long_table(
    evaluations: Sequence[Evaluation], *, protocol: Protocol | None = None
) -> ReportTable:
    """One row for each evaluation with every figure, sd, interval and count."""
    protocol = protocol or Protocol()
    columns = tuple(ReportColumn(key, key, _long_kind(key)) for key in _LONG_KEYS)
    rows = tuple(_long_row(e) for e in evaluations)
    caption = (
        f"ece, auroc and their sd: {protocol.describe()}; sd over draws. natural_*, brier, aurc,"
        f" coverage_at_*, mean_confidence and share_right: every scored response; low and high"
        f" bound a 95 % interval, problems resampled"
        f" ({protocol.resamples} times, seed {protocol.seed}). Chance makes a measured ECE too"
        f" large: debiased, low and high are about the true one, and floor is what a perfectly"
        f" calibrated estimator would show."
    )
    return ReportTable("All figures", columns, rows, caption)


def _long_kind(key: str) -> Kind:
    if key in ("benchmark", "generator", "estimator", "params", "reason"):
        return "text"
    counts = ("n", "n_scored", "n_balanced", "clipped", "beyond", "trained_length")
    return "integer" if key in counts or key.startswith("excluded") else "percent"


_LONG_KEYS = (
    "benchmark", "generator", "estimator", "params", "n", "accuracy", "n_scored", "n_balanced",
    "ece", "ece_sd", "auroc", "auroc_sd",
    "natural_ece", "natural_ece_debiased", "natural_ece_low", "natural_ece_high",
    "natural_ece_floor",
    "natural_auroc", "natural_auroc_low", "natural_auroc_high",
    "brier", "brier_low", "brier_high", "mean_confidence", "share_right",
    "aurc", "aurc_low", "aurc_high",
    *(f"{name}{end}" for name in COVERAGES for end in ("", "_low", "_high")),
    "excluded", *(f"excluded_{r}" for r in EXCLUSION_REASONS), "clipped",
    "beyond", "trained_length", "reason",
)  # fmt: skip


def _long_row(e: Evaluation) -> ReportRow:
    cells: dict[str, Cell] = {f"excluded_{r}": e.excluded_by.get(r) for r in EXCLUSION_REASONS}
    cells["params"] = json.dumps(dict(e.params), sort_keys=True) if e.params else None
    for metric in ("natural_ece", "natural_auroc", "brier", "aurc", *COVERAGES):
        interval = getattr(e, f"{metric}_interval")
        for end in ("low", "high"):
            cells[f"{metric}_{end}"] = None if interval is None else getattr(interval, end)
    return ReportRow(tuple(cells[k] if k in cells else getattr(e, k) for k in _LONG_KEYS))
