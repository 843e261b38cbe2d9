"""Bytes, counts, rates and times as people read them. Knows numbers, not what they are for."""

from __future__ import annotations

from collections.abc import Iterable


def number(value: float) -> str:
    """About three figures, and no more than two decimals."""
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def amount(count: int) -> str:
    """A large count to about three figures, as in 1.61M."""
    return _scaled(count, ((1e9, "B"), (1e6, "M"), (1e3, "k")), "")


def size(count: int) -> str:
    """Bytes to about three figures, in the unit that suits them, as in 32.5 MB."""
    return _scaled(count, ((1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB")), " B")


def gigabytes(count: int) -> str:
    """Bytes to one decimal, in GB from a tenth of one: parts of a sum are read side by side."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"


def operations(flops: int) -> str:
    for unit, one in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if flops >= one:
            return f"{flops / one:.1f} {unit}"
    return f"{flops:,}"


def rate(per_second: float) -> str:
    """Two significant digits: the rest is noise."""
    rounded = float(f"{per_second:.2g}")
    return f"{rounded:,g}" if per_second < 10 else f"{round(rounded):,}"


def duration(hours: float) -> str:
    if hours < 1 / 60:
        return f"{hours * 3600:.0f} seconds"
    return f"{hours * 60:.0f} minutes" if hours < 1 else f"{hours:,.1f} hours"


def many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _scaled(value: float, units: Iterable[tuple[float, str]], rest: str) -> str:
    for unit, name in units:
        if value >= 0.9995 * unit:
            return number(value / unit) + name
    return f"{value:.0f}{rest}"
