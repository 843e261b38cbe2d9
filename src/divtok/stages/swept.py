"""What other thetas, n, k, rates and divergences would have given: the best, and the whole grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from divtok.config.run import RunConfig
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import Counted, grids_with
from divtok.evaluate.sweep.rates import AtRate, RateCurve, mean_curve, rates_with, sweep_rates
from divtok.evaluate.sweep.surfaces import (
    Best,
    Surface,
    best_theta,
    mean_surface,
    sweep_lin,
    sweep_prod,
)
from divtok.stages.evaluate import protocol_of
from divtok.stages.missing import check_read
from divtok.stages.sweep import counted, write_sweep
from divtok.store.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """One estimator of one generator under one pair; `counted` is None for a mean."""

    generator: str
    p: str
    q: str
    divergence: str
    surface: Surface | RateCurve
    counted: Counted | None


@dataclass(frozen=True, slots=True)
class AtTheta:
    """Balanced ECE and AUROC at one theta."""

    theta: float
    ece: float
    auroc: float


@dataclass(frozen=True, slots=True)
class SweptRow:
    """The best theta at one n or k, or what one rate gives, which takes no theta.

    `benchmark` is None for the mean over benchmarks. `at_run_theta` is None where that theta says
    nothing about the divergence, and with `best` where `reason` says why there are no figures.
    `lowest` says that the value is there for its ECE, the lowest of all rates.
    """

    benchmark: str | None
    generator: str
    p: str
    q: str
    divergence: str
    estimator: str
    parameter: str
    value: float
    n_balanced: int
    best: Best | AtRate | None
    at_run_theta: AtTheta | None
    reason: str | None
    lowest: bool = False


def sweep(
    run: Run,
    config: RunConfig,
    *,
    divergence: Sequence[str] | None = None,
    n: Sequence[int] | None = None,
    k: Sequence[int] | None = None,
) -> tuple[list[SweptRow], Path]:
    """What is left out is jsd, and the run's own n and k. The path is that of the whole grid."""
    check_read(run, config)
    names = list(dict.fromkeys(divergence or ["jsd"]))
    linear, rate = config.bound("dtc_lin"), float(config.bound("dtc_weighted")["rate"])
    swept = list(
        sweep_all(
            counted(run, grids=grids_with(config.theta, names), tokens=config.score.tokens),
            names,
            n=tuple(dict.fromkeys(n or [int(linear["n"])])),
            k=tuple(dict.fromkeys(k or [int(config.bound("dtc_prod")["k"])])),
            a=float(linear["a"]),
            b=float(linear["b"]),
            rates=rates_with(rate),
            protocol=protocol_of(config),
        )
    )
    groups = [(s.counted, s.divergence, s.surface) for s in swept if s.counted is not None]
    path = write_sweep(run, groups)
    return [row for s in swept for row in swept_rows(s, config.theta, rate)], path


def sweep_all(
    groups: Sequence[Counted],
    names: Sequence[str],
    *,
    n: Sequence[int],
    k: Sequence[int],
    a: float,
    b: float,
    rates: Sequence[float],
    protocol: Protocol,
) -> Iterator[Swept]:
    """By generator, pair and divergence: each benchmark, then their mean where there are more.

    dtc_weighted is made of the JSD, so its rates come with that.
    """
    together: dict[tuple[str, str, str], list[Counted]] = {}
    for group in groups:
        together.setdefault((group.generator, group.p, group.q), []).append(group)
    for owner, members in together.items():
        for name in names:
            found: list[Swept] = []
            for m in members:
                lin = sweep_lin(m, n=n, divergence=name, a=a, b=b, protocol=protocol)
                prod = sweep_prod(m, k=k, divergence=name, protocol=protocol)
                found += [Swept(*owner, name, surface, m) for surface in (lin, prod)]
                if name == "jsd":
                    found.append(Swept(*owner, name, sweep_rates(m, rates, protocol=protocol), m))
            yield from found
            if len(members) > 1:
                yield from (Swept(*owner, name, mean, None) for mean in _means(found))


def _means(swept: Sequence[Swept]) -> Iterator[Surface | RateCurve]:
    """One for each estimator, in their order."""
    surfaces = [s.surface for s in swept]
    for name in ("dtc_lin", "dtc_prod"):
        of_one = [s for s in surfaces if isinstance(s, Surface) and s.estimator == name]
        yield mean_surface(of_one)
    curves = [s for s in surfaces if isinstance(s, RateCurve)]
    if curves:
        yield mean_curve(curves)


def swept_rows(swept: Swept, theta: float, rate: float) -> Iterator[SweptRow]:
    """One for each n or k, and for the best rate beside the one in use; `theta` is in use, too."""
    surface = swept.surface
    if isinstance(surface, RateCurve):
        yield from _rate_rows(swept, surface, rate)
        return
    for value in surface.values:
        yield SweptRow(
            benchmark=None if swept.counted is None else swept.counted.benchmark,
            generator=swept.generator,
            p=swept.p,
            q=swept.q,
            divergence=swept.divergence,
            estimator=surface.estimator,
            parameter=surface.parameter,
            value=value,
            n_balanced=surface.n_balanced,
            best=best_theta(surface, value),
            # The run's own theta says nothing about a KL.
            at_run_theta=_at(surface, value, theta) if swept.divergence == "jsd" else None,
            reason=surface.reason,
        )


def _rate_rows(swept: Swept, curve: RateCurve, rate: float) -> Iterator[SweptRow]:
    best = curve.best
    for value in dict.fromkeys((rate, rate if best is None else best)):
        yield SweptRow(
            benchmark=None if swept.counted is None else swept.counted.benchmark,
            generator=swept.generator,
            p=swept.p,
            q=swept.q,
            divergence=swept.divergence,
            estimator="dtc_weighted",
            parameter="rate",
            value=value,
            n_balanced=curve.n_balanced,
            best=curve.at(value),
            at_run_theta=None,
            reason=curve.reason,
            lowest=value == best,
        )


def _at(surface: Surface, value: int, theta: float) -> AtTheta | None:
    if surface.reason is not None:
        return None
    at = int(np.argmin(np.abs(surface.thetas - theta)))  # the grid has it, but for rounding
    ece, auroc = surface.column(value)
    return AtTheta(theta, float(ece[at]), float(auroc[at]))
