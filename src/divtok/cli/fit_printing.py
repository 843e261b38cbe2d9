"""What the verb fit prints: the curve of a theta or a rate, the knots of a map, and the figures."""

from __future__ import annotations

import dataclasses

from divtok.cli.printing import print_json, put_filled
from divtok.evaluate.cross_fit import CrossFitted, Judged
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.fit_any import AnyFit
from divtok.evaluate.fit_map import MapFit
from divtok.evaluate.fit_rate import RateFit
from divtok.score.fitted import Isotonic
from divtok.screen import put, show


def print_fit(where: str, found: AnyFit, *, as_json: bool) -> None:
    """What was fitted, on how much, how well it is determined, and what it is worth."""
    if as_json:
        print_json({**dataclasses.asdict(found), "notes": found.notes})
        return
    of = f"on {where}, {found.n} responses, {found.problems} problems"
    if isinstance(found, ThetaFit):
        _print_theta(found, of)
    elif isinstance(found, RateFit):
        _print_rate(found, of)
    else:
        _print_map(found, of)
    if not isinstance(found, MapFit) and found.interval is not None:
        put(
            f"95 % interval: {found.interval.low:g} to {found.interval.high:g}; chosen %: how many "
            "resamples choose it"
        )
    if found.figures is not None:
        _print_figures(found.figures)
    for note in found.notes:
        put_filled(note)


def _print_theta(found: ThetaFit, of: str) -> None:
    from rich.table import Table

    table = Table(title=f"dtc_lin {of}")
    for heading in ("theta (bits)", "ECE %", "AUROC %", "mean count", "chosen %"):
        table.add_column(heading, justify="right")
    for point in found.curve:
        figures = (
            *(f"{100 * point.ece:.1f}", f"{100 * point.auroc:.1f}", f"{point.mean_count:.2f}"),
            _percent(point.chosen),
        )
        style = "bold" if point.theta == found.theta else None
        table.add_row(f"{point.theta:.2f}", *figures, style=style)
    show(table)
    put(f"theta = {found.theta:g}")


def _print_rate(found: RateFit, of: str) -> None:
    """Every fourth rate, and those about the best: the grid is too fine for a screen."""
    from rich.table import Table

    assert found.fitted is not None
    table = Table(title=f"{found.fitted.estimator} {of}")
    for heading in ("rate", "ECE %", "AUROC %", "chosen %"):
        table.add_column(heading, justify="right")
    best = [point.rate for point in found.curve].index(found.rate)
    for place, point in enumerate(found.curve):
        if place % 4 and abs(place - best) > 2:
            continue
        style = "bold" if place == best else None
        figures = f"{100 * point.ece:.1f}", f"{100 * point.auroc:.1f}", _percent(point.chosen)
        table.add_row(f"{point.rate:g}", *figures, style=style)
    show(table)
    put(f"rate = {found.rate:g}")


def _print_map(found: MapFit, of: str) -> None:
    from rich.table import Table

    if isinstance(found.map, Isotonic):
        table = Table(title=f"{found.estimator} {of}")
        for heading in ("value", "probability"):
            table.add_column(heading, justify="right")
        for value, share in found.map.knots:
            table.add_row(f"{value:.6g}", f"{share:.4f}")
        show(table)
    else:
        put(f"{found.estimator} {of}")
        put(f"log-odds = {found.map.slope:.4g} * log-odds of the value {found.map.intercept:+.4g}")
    put(f"prior = {found.prior:.3f}: how often the responses it was fitted on are right")


def _print_figures(found: CrossFitted) -> None:
    from rich.table import Table

    if found.in_sample is None:
        put_filled(f"Nothing says what it is worth: {found.reason}.")
        return
    table = Table(title=f"As they are, judged by {found.in_sample.n} grades")
    for heading in ("", "ECE %", "Brier %", "AUROC %"):
        table.add_column(heading, justify="left" if not heading else "right")
    held = f"fitted, problems held out ({found.folds} parts)"
    rows = {"before": found.before, held: found.held_out, "fitted, in sample": found.in_sample}
    for name, judged in rows.items():
        if judged is not None:
            table.add_row(name, *_figures(judged))
    show(table)
    if found.reason is not None:
        put_filled(f"Nothing is held out: {found.reason}.")


def _figures(judged: Judged) -> tuple[str, str, str]:
    return (
        f"{100 * judged.natural_ece:.1f}",
        f"{100 * judged.brier:.1f}",
        _percent(judged.auroc, digits=1),
    )


def _percent(share: float | None, *, digits: int = 0) -> str:
    return "" if share is None else f"{100 * share:.{digits}f}"
