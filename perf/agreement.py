"""How far divtok's estimators lie from other packages' on the same tokens: records, file, table.

Knows no torch and none of the packages; `perf/estimators.py` fills it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from divtok.errors import DataError
from divtok.report.text import markdown
from perf import page

NAME = "estimators"
LIMIT = 1e-5  # what counts as the same number
ESTIMATORS = ("nsl", "mean_prob", "entropy")
PAGE = page.ROOT / "docs" / "reference" / "agreement.md"


@dataclass(frozen=True, slots=True)
class Model:
    """One model that read the responses, and how many there were."""

    name: str
    about: str
    responses: int
    ended: int  # of them ended by the end token, which is their last
    tokens: int
    dropped_mass: float  # largest probability cut off with the vocabulary's padding


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number of a peer, brought to a divtok estimator's scale, on all responses of a model.

    `own` is True where the peer has this estimator, False where only its per-token numbers could be
    taken and were averaged here. Where `remark` says that tokens are left out, both sides do so.
    `largest_difference` is with the peer's arithmetic in float64 behind the model's float32 logits,
    `largest_difference_float32` with its softmax as it comes.
    """

    peer: str
    version: str
    model: str
    responses: int
    estimator: str
    number: str
    conversion: str
    remark: str
    own: bool
    largest_difference: float
    largest_difference_float32: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """All comparisons of one run. `left_out` has the reason of each model that was not there."""

    command: str
    date: str
    machine: dict[str, str]
    models: tuple[Model, ...]
    comparisons: tuple[Comparison, ...]
    left_out: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def holds(self) -> bool:
        return all(c.largest_difference <= LIMIT for c in self.comparisons)


def write_agreement(agreement: Agreement, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(asdict(agreement), indent=1) + "\n", encoding="utf-8")
    return path


def read_agreement(folder: Path) -> Agreement | None:
    """What a run has stored there; None before the first, DataError for another file."""
    path = folder / f"{NAME}.json"
    if not path.exists():
        return None
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        models = tuple(Model(**model) for model in stored.pop("models"))
        comparisons = tuple(Comparison(**row) for row in stored.pop("comparisons"))
        return Agreement(models=models, comparisons=comparisons, **stored)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a stored comparison ({error}).",
            next_step=f"Make it again: python -m perf run --section {NAME}",
        ) from error


def fill(text: str, agreement: Agreement | None) -> str:
    """The page with the comparison's block made anew."""
    if agreement is None:
        block = f"Not measured yet: `python -m perf run --section {NAME}`, then `render`."
    else:
        block = agreement_block(agreement)
    return page.replace_block(text, NAME, block)


def agreement_block(agreement: Agreement) -> str:
    """How it was made, who read what, the differences in short, and each of them."""
    parts = [page.made(agreement.command, agreement.date, agreement.machine)]
    parts.append(_models_table(agreement.models))
    parts.extend(f"{name} is left out: {why}." for name, why in agreement.left_out.items())
    parts += ["Largest absolute difference of a response's estimate:", summary_table(agreement)]
    parts += ["Each number of theirs:", numbers_table(agreement)]
    return "\n\n".join(parts)


def _models_table(models: Sequence[Model]) -> str:
    header = ["model", "responses", "with end token", "tokens", "mass cut off"]
    rows = [
        [
            f"{model.name}, {model.about}",
            f"{model.responses}",
            f"{model.ended}",
            f"{model.tokens:,}",
            f"{model.dropped_mass:.1e}",
        ]
        for model in models
    ]
    return page.table(header, rows)


def summary_table(agreement: Agreement) -> str:
    """A row for each peer and model; in brackets what is not the peer's own estimator."""
    peers = list(dict.fromkeys((c.peer, c.version) for c in agreement.comparisons))
    header = ["peer", "model", "responses", *ESTIMATORS]
    header += [f"{name}, their float32" for name in ESTIMATORS]
    rows: list[list[str]] = []
    for peer, version in peers:
        for model in agreement.models:
            found = [c for c in agreement.comparisons if (c.peer, c.model) == (peer, model.name)]
            cells = [
                _worst([c for c in found if c.estimator == name], precise=precise)
                for precise in (True, False)
                for name in ESTIMATORS
            ]
            rows.append([f"{peer} {version}", model.name, f"{model.responses}", *cells])
    return page.table([markdown(cell) for cell in header], rows)


def _worst(found: Sequence[Comparison], *, precise: bool) -> str:
    if not found:
        return "none"
    has_own = any(c.own for c in found)
    largest = max(_difference(c, precise=precise) for c in found if c.own == has_own)
    return f"{largest:.1e}" if has_own else f"({largest:.1e})"


def _difference(comparison: Comparison, *, precise: bool) -> float:
    if precise:
        return comparison.largest_difference
    return comparison.largest_difference_float32


def numbers_table(agreement: Agreement) -> str:
    """A row for each number of a peer, with the largest difference on any model."""
    found: dict[tuple[str, ...], list[Comparison]] = {}
    for c in agreement.comparisons:
        key = (c.peer, c.number, c.estimator, c.conversion, c.remark)
        found.setdefault(key, []).append(c)
    rows = [
        [
            *map(markdown, key),
            *(f"{max(_difference(c, precise=p) for c in rows):.1e}" for p in (True, False)),
        ]
        for key, rows in found.items()
    ]
    header = ["peer", "its number x", "divtok's", "made comparable by", "remarks"]
    return page.table([*header, "difference", "with their float32"], rows)
