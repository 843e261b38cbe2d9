"""A cascade of two generators as a table, a figure and a sentence that says what to do.

Takes values that are already computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from divtok.decide.cascade import Cascade, Curve, Measured
from divtok.decide.deferral import Point
from divtok.report.cascade_figure import CascadeDisplay
from divtok.report.part import Drawn, Part
from divtok.report.tables import (
    Bounded,
    Cell,
    ReportColumn,
    ReportRow,
    ReportTable,
    in_order,
    label,
    supervised,
)

_COSTS = {
    "parameters": "Costs are in parameters that tokens go through.",
    "price": "Costs are prices as given.",
    "tokens": "Costs are in tokens, as if both cost the same: a model's size is not known. "
    "Reading is not counted.",
}


def cascade_part(found: Cascade) -> Part:
    """What the report of a run with two generators says of sending answers on."""
    name = f"{found.smaller} to {found.larger}"
    caption = f"accuracy against cost of a cascade, {name}"
    return Part(
        about="`tables/cascade.*`: what it would give to answer with the smallest generator and "
        "to ask the largest one again where a confidence is low.",
        tables={"cascade": cascade_table(found)},
        figures=(Drawn("cascade", name, caption, CascadeDisplay.of(found)),),
        short=(advice(found),),
    )


def cascade_table(found: Cascade, labels: Mapping[str, str] | None = None) -> ReportTable:
    """One row an estimator: how well it chooses, and what accuracy like the larger's costs."""
    columns = (
        ReportColumn("estimator", "Estimator"),
        ReportColumn("share_of_oracle", "Share of oracle", "percent", "higher", bounded=True),
        ReportColumn("gain_at_half", "Gain at half", "percent", "higher", bounded=True),
        ReportColumn("cost_at_larger", "Cost for larger's accuracy", "percent", "lower", True),
        ReportColumn("deferred", "deferred there", "percent"),
        ReportColumn("threshold", "below"),
        ReportColumn("read", "reading alone", "percent"),
    )
    rows = [
        ReportRow(
            (label(name, labels), *_cells(found, found.curves[name])),
            ranked=name not in supervised(),
        )
        for name in in_order(found.curves, labels)
    ]
    return ReportTable(
        f"{found.smaller} first, then {found.larger}",
        columns,
        tuple(rows),
        " ".join([*_references(found), *_how_read(found), *_left_out(found)]),
        ranked_in="column",
    )


def _cells(found: Cascade, curve: Curve) -> tuple[Cell, ...]:
    reached = curve.cost_at_larger.value is not None
    threshold = float(curve.threshold[curve.at_larger])
    return (
        _bounded(curve.share_of_oracle),
        _bounded(curve.gain_at_half),
        _bounded(curve.cost_at_larger),
        float(curve.deferred[curve.at_larger]) if reached else None,
        _threshold(threshold) if reached else None,
        float(found.share_of_cost(curve.read)),
    )


def _bounded(figure: Measured) -> Bounded | None:
    return None if figure.value is None else Bounded(figure.value, figure.interval.interval)


def _references(found: Cascade) -> list[str]:
    both, best = found.choices, found.oracle
    ends = Point(float(best.accuracy[-1]), float(best.cost[-1]))
    return [
        f"Each alone: {found.smaller} {_right(both.smaller)} for {_cost(found, both.smaller)} % of "
        f"the larger's cost, {found.larger} {_right(both.larger)}{_money(found)}.",
        f"The oracle, which defers what pays most and reads nothing: {_right(ends)} for "
        f"{_cost(found, ends)} %.",
        _COSTS[both.unit],
    ]


def _how_read(found: Cascade) -> list[str]:
    lines = [
        "Share of oracle: the area above random deferral, 100 for the best that can be, 0 for "
        "chance. Gain at half: points of accuracy above random deferral where half of the "
        "larger's cost is spent on it. Both leave reading out.",
        "Cost for larger's accuracy: of the smaller's tokens, reading and deferred responses, in % "
        "of the larger alone; above 100 nothing is saved." + _within(found),
    ]
    if any(curve.cost_at_larger.value is None for curve in found.curves.values()):
        lines.append("Without one, the larger's accuracy takes deferring everything.")
    return lines


def _left_out(found: Cascade) -> list[str]:
    both = found.choices
    parts = [
        f"{both.problems:,} problems that both answered; {len(both.rows):,} responses of the "
        "smaller."
    ]
    if both.only_smaller or both.only_larger:
        parts.append(
            f"Left out: {both.only_smaller:,} problems of the smaller alone, "
            f"{both.only_larger:,} of the larger alone."
        )
    if found.ungraded:
        parts.append(f"{found.ungraded:,} responses that failed or have no grade are left out.")
    return parts


def advice(found: Cascade, labels: Mapping[str, str] | None = None) -> str:
    """What to do, in a sentence or two."""
    both, name = found.choices, found.cheapest
    if both.larger.accuracy - found.within <= both.smaller.accuracy:
        return (
            f"Take {found.smaller} alone: {_right(both.smaller)}, and {found.larger} "
            f"{_right(both.larger)}."
        )
    if name is None:
        return (
            f"Take {found.larger} alone ({_right(both.larger)}): with every estimator it takes "
            f"deferring everything to be as accurate{_but(found)}."
        )
    curve = found.curves[name]
    at, cost = curve.at_larger, float(curve.cost_at_larger.value or 0.0)
    ends = curve.cost_at_larger.interval.interval
    between = (
        "" if ends is None else f" (95 % interval {100 * ends.low:.0f} to {_percent(ends.high)})"
    )
    read = float(found.share_of_cost(curve.read))
    reading = f", {_percent(read)} for reading" if read else ""
    if cost >= 1:
        return (
            f"Take {found.larger} alone ({_right(both.larger)}): no estimator is as accurate"
            f"{_but(found)} for less. {_were_reading_free(found, labels)}"
        )
    return (
        f"Send to {found.larger} what {label(name, labels)} puts below "
        f"{_threshold(float(curve.threshold[at]))}, {_percent(float(curve.deferred[at]))} of the "
        f"answers: {100 * curve.accuracy[at]:.1f} % are right then, {_right(both.larger)} by "
        f"{found.larger} alone, for {_percent(cost)} of its cost{between}{reading}."
    )


def _were_reading_free(found: Cascade, labels: Mapping[str, str] | None) -> str:
    """How much of what a cascade costs is reading: a server that writes knows much of it."""
    unread = {
        name: curve.cost_at_larger.value - float(found.share_of_cost(curve.read))
        for name, curve in found.curves.items()
        if curve.cost_at_larger.value is not None
    }
    name = min(unread, key=lambda name: unread[name])
    with_it = found.curves[name].cost_at_larger.value or 0.0
    free = f"; were reading free, {_percent(unread[name])}" if with_it > unread[name] else ""
    return f"{label(name, labels)} takes {_percent(with_it)} of its cost{free}."


def marked_line(found: Cascade) -> str | None:
    """What the policy that was given makes of these two generators."""
    marked = found.marked
    if marked is None:
        return None
    curve = found.curves[marked.estimator]
    return (
        f"The policy ({marked.promise}) sends {_percent(float(curve.deferred[marked.place]))} of "
        f"the answers on: {100 * curve.accuracy[marked.place]:.1f} % are right then, for "
        f"{_percent(float(found.share_of_cost(curve.cost[marked.place])))} of the larger's cost."
    )


def _right(point: Point) -> str:
    return f"{100 * point.accuracy:.1f} % right"


def _cost(found: Cascade, point: Point) -> str:
    return f"{100 * float(found.share_of_cost(point.cost)):.0f}"


def _within(found: Cascade) -> str:
    if not found.within:
        return ""
    return f" As accurate means: at most {100 * found.within:g} points less."


def _but(found: Cascade) -> str:
    return f" but for {100 * found.within:g} points" if found.within else ""


def _money(found: Cascade) -> str:
    """What a thousand answers of the larger cost, where that is money."""
    both = found.choices
    return f" for {1000 * both.larger.cost:.3g} a thousand" if both.unit == "price" else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _threshold(threshold: float) -> str:
    return f"{threshold:.4g}"
