"""docs/estimators-compared.md from the figures: tables between its markers, and the picture.

The prose of the page is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.benches import Case
from bench.compare import About, Figures
from bench.scores import FITTED
from divtok.records import Interval
from perf.page import replace_block

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "estimators-compared.md"

Value = Callable[[Figures], float | None]
# What is compared, and whether more is better.
METRICS: Mapping[str, tuple[Value, bool]] = {
    "auroc": (lambda f: f.auroc, True),
    "equal-length": (lambda f: f.equal_length, True),
    "balanced-ece": (lambda f: f.ece, False),
    "natural-ece": (lambda f: f.natural_ece, False),
    "shifted-ece": (lambda f: f.shifted_ece, False),
    "brier": (lambda f: f.brier, False),
    "aurc": (lambda f: f.aurc, False),
    "changed": (lambda f: f.found, True),
}
# What a rate does not change: each estimator has one row there.
_ORDER = ("auroc", "equal-length", "aurc", "changed")
_INTERVALS: Mapping[str, Callable[[Figures], Interval | None]] = {
    "auroc": lambda f: f.auroc_interval,
    "balanced-ece": lambda f: f.ece_interval,
}


def fill(
    page: str, cases: Sequence[Case], abouts: Sequence[About], figures: Sequence[Figures]
) -> str:
    """The page with every block made anew."""
    page = replace_block(page, "cases", _cases_table(cases, abouts))
    own = [f for f in figures if not f.tried]
    for name in METRICS:
        page = replace_block(page, name, _metric_table(name, cases, own))
    unseen = [case.name for case in cases if not case.designed]
    page = replace_block(page, "ranks", _ranks_table(unseen, own))
    page = replace_block(page, "fitted", _fitted_table(cases, own))
    page = replace_block(page, "shifts", _shifts_table(own))
    tried = [f for f in figures if f.tried or f.way.startswith(("dtc_weighted", "dtc_guarded"))]
    for name in ("auroc", "equal-length", "balanced-ece"):
        page = replace_block(page, f"tried-{name}", _metric_table(name, cases, tried))
    return page


def _cases_table(cases: Sequence[Case], abouts: Sequence[About]) -> str:
    heads = ("case", "read by", "problems", "responses", "cut off", "scored", "tokens", "right, %")
    heads += ("by agreement, %", "floor of ECE")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for case, about in zip(cases, abouts, strict=True):
        readers = dict.fromkeys(f"{p}, {q}" for p, q in case.pairs.values())
        rows.append(
            f"| {case.name}{' (design)' if case.designed else ''} | {'; '.join(readers)} | "
            f"{about.problems} | {about.responses:,} | {about.cut_off:,} | {about.scored:,} | "
            f"{about.tokens:.0f} | "
            f"{100 * about.accuracy:.1f} | {100 * about.estimated:.1f} | {100 * about.floor:.1f} |"
        )
    return "\n".join(rows)


def _fitted_table(cases: Sequence[Case], figures: Sequence[Figures]) -> str:
    """Theta and the two rates that each case's fitting set chose."""
    rows = [
        "| case | theta, bits | rate of `dtc_weighted` | of `dtc_guarded` |",
        "|---|---|---|---|",
    ]
    for case in cases:
        of = {f.way: f.params for f in figures if f.case == case.name}
        theta = of["dtc_lin"]["theta"]
        rates = [of[f"{name}, {FITTED}"]["rate"] for name in ("dtc_weighted", "dtc_guarded")]
        rows.append(f"| {case.name} | {theta:g} | {rates[0]:.2g} | {rates[1]:.2g} |")
    return "\n".join(rows)


def _shifts_table(figures: Sequence[Figures]) -> str:
    """Natural ECE before and after the shift, over the cases, and where it did most harm."""
    rows = [
        "| | as it is | shifted | worst change | where |",
        "|---|---|---|---|---|",
    ]
    scaled = [
        (f.way, f.case, f.natural_ece, f.shifted_ece)
        for f in figures
        if f.natural_ece is not None and f.shifted_ece is not None
    ]
    for way in dict.fromkeys(way for way, *_ in scaled):
        of = [(case, was, now) for name, case, was, now in scaled if name == way]
        before = float(np.mean([was for _, was, _ in of]))
        after = float(np.mean([now for _, _, now in of]))
        change, where = max((now - was, case) for case, was, now in of)
        cells = (f"{100 * before:.1f}", f"{100 * after:.1f}", f"{100 * change:+.1f}", where)
        rows.append(f"| {_label(way)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _metric_table(name: str, cases: Sequence[Case], figures: Sequence[Figures]) -> str:
    """A row a way, a column a case; the best of each case is bold."""
    value, more = METRICS[name]
    figures = _once(name, figures)
    table = {(f.way, f.case): f for f in figures}
    names = [
        c.name for c in cases if any(value(f) is not None for f in figures if f.case == c.name)
    ]
    ways = [w for w in dict.fromkeys(f.way for f in figures) if _any(table, w, names, value)]
    if not names:
        return "Nothing measured."
    best = {case: _best([value(table[w, case]) for w in ways], more) for case in names}
    rows = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for way in ways:
        cells = [_cell(name, table[way, case], best[case]) for case in names]
        rows.append(f"| {_label(way)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _once(metric: str, figures: Sequence[Figures]) -> list[Figures]:
    return [f for f in figures if metric not in _ORDER or f.tried or ", " not in f.way]


def _any(
    table: Mapping[tuple[str, str], Figures], way: str, cases: Sequence[str], value: Value
) -> bool:
    return any(value(table[way, case]) is not None for case in cases)


def _best(values: Sequence[float | None], more: bool) -> float:
    there = [v for v in values if v is not None]
    return (max if more else min)(there)


def _cell(metric: str, figures: Figures, best: float) -> str:
    value = METRICS[metric][0](figures)
    if value is None:
        return ""
    text = f"{100 * value:.1f}"
    text = f"**{text}**" if f"{100 * best:.1f}" == text else text
    interval = _INTERVALS[metric](figures) if metric in _INTERVALS else None
    if interval is None:
        return text
    return f"{text} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def _label(way: str) -> str:
    name, comma, rest = way.partition(", ")
    return f"`{name}`{comma}{rest}" if "_" in name or " " not in name else way


def _ranks_table(cases: Sequence[str], figures: Sequence[Figures]) -> str:
    """Mean rank over the cases, 1 the best, by each metric; those without a scale have no ECE."""
    metrics = (
        "auroc",
        "equal-length",
        "balanced-ece",
        "natural-ece",
        "shifted-ece",
        "brier",
        "aurc",
    )
    ranks = {metric: _mean_ranks(cases, figures, metric) for metric in metrics}
    order = {f.way: ranks["auroc"][f.way.partition(", ")[0]] for f in figures}
    ways = sorted(order, key=lambda way: order[way])
    rows = ["| mean rank by | " + " | ".join(metrics) + " |", "|---|" + "---|" * len(metrics)]
    for way in ways:
        cells = [f"{ranks[m][way]:.1f}" if way in ranks[m] else "" for m in metrics]
        rows.append(f"| {_label(way)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _mean_ranks(cases: Sequence[str], figures: Sequence[Figures], metric: str) -> dict[str, float]:
    value, more = METRICS[metric]
    figures = _once(metric, figures)
    ranks: dict[str, list[float]] = {}
    for case in cases:
        there = [(f.way, v) for f in figures if f.case == case and (v := value(f)) is not None]
        numbers = np.array([v for _, v in there]) * (-1 if more else 1)
        for way, number in zip((way for way, _ in there), numbers, strict=True):
            rank = 1 + int((numbers < number).sum()) + (int((numbers == number).sum()) - 1) / 2
            ranks.setdefault(way, []).append(rank)
    return {way: float(np.mean(found)) for way, found in ranks.items()}
