"""Two runs in, out what a small generator before a larger one would give: `divtok cascade`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from divtok.api.run import Run
from divtok.api.tables import Shown
from divtok.decide import cascade as decided
from divtok.decide.cascade import Curve, Oracle
from divtok.decide.deferral import Point

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False, eq=False)
class Cascade(Shown):
    """What `cascade` found: a smaller and a larger generator, and a curve for each estimator.

    A curve has arrays over thresholds: `threshold`, `deferred` (the share that goes to the larger
    generator), `accuracy` and `cost`; and the figures `cost_at_larger`, `gain_at_half` and
    `share_of_oracle`, each with its interval. A data frame has a row for each estimator.

    Example:
        >>> import divtok
        >>> two = ["divtok/tiny-0.5m", "divtok/tiny-1.6m"]
        >>> kept = {"benchmarks": ["arith-easy"], "limit": 3, "samples": 2, "out": "example"}
        >>> made = divtok.run(family="tiny", generators=two, **kept)
        >>> found = divtok.cascade(made, made)
        >>> found.curves["dtc_lin"].deferred[-1].item()
        1.0
        >>> found.to_polars()["estimator"][0]
        'nsl'
    """

    values: decided.Cascade

    @property
    def generators(self) -> tuple[str, str]:
        """The smaller and the larger."""
        return self.values.smaller, self.values.larger

    @property
    def smaller(self) -> Point:
        """Accuracy and cost of the smaller generator alone."""
        return self.values.choices.smaller

    @property
    def larger(self) -> Point:
        """Accuracy and cost of the larger generator alone."""
        return self.values.choices.larger

    @property
    def curves(self) -> Mapping[str, Curve]:
        """By estimator."""
        return self.values.curves

    @property
    def oracle(self) -> Oracle:
        """What could be had by deferring the responses that gain most per cost."""
        return self.values.oracle

    @property
    def advice(self) -> str:
        """What to do, in a sentence or two."""
        from divtok.report.cascade import advice

        return advice(self.values)

    def plot(self, ax: Axes, estimators: Sequence[str] = ()) -> None:
        """Draw accuracy against cost on `ax`, with the curves of these estimators."""
        from divtok.report.cascade_figure import CascadeDisplay

        CascadeDisplay.of(self.values, estimators).plot(ax)

    def figure(self, estimators: Sequence[str] = ()) -> Figure:
        """The same as a figure of its own, with a legend."""
        from divtok.report.cascade_figure import CascadeDisplay

        return CascadeDisplay.of(self.values, estimators).figure()

    def to_polars(self) -> pl.DataFrame:
        """One row for each estimator; costs are shares of what the larger generator costs."""
        import polars as pl

        rows = [self._row(name, curve) for name, curve in self.curves.items()]
        return pl.DataFrame(rows, infer_schema_length=None)

    def _row(self, name: str, curve: Curve) -> dict[str, str | float | None]:
        reached, at = curve.cost_at_larger.value is not None, curve.at_larger
        return {
            "estimator": name,
            "share_of_oracle": curve.share_of_oracle.value,
            "gain_at_half": curve.gain_at_half.value,
            "cost_at_larger": curve.cost_at_larger.value,
            "deferred": float(curve.deferred[at]) if reached else None,
            "threshold": float(curve.threshold[at]) if reached else None,
            "read": float(self.values.share_of_cost(curve.read)),
        }

    def _summary(self) -> str:
        return self.advice


def cascade(
    small_run: Run | str | Path,
    large_run: Run | str | Path,
    *,
    small: str | None = None,
    large: str | None = None,
    estimators: Sequence[str] = (),
    prices: tuple[float, float] | None = None,
    read_price: float | None = None,
    within: float = 0.0,
    policy: str | Path | None = None,
) -> Cascade:
    """What it gives to answer with a small model and ask a larger one where confidence is low.

    The words are those of `divtok cascade`: runs by name or folder, `small` and `large` name
    generators where a run has several, `prices` are of a million tokens that each writes, `within`
    says how much less accurate than the larger generator will do. Of one run given twice, the
    smallest and the largest generator are taken. No model is loaded.

    Example:
        >>> import divtok
        >>> two = ["divtok/tiny-0.5m", "divtok/tiny-0.9m"]
        >>> kept = {"benchmarks": ["arith-easy"], "limit": 3, "samples": 2, "out": "example"}
        >>> made = divtok.run(family="tiny", generators=two, **kept)
        >>> found = divtok.cascade("./example", "./example", estimators=["dtc_lin"], prices=(1, 9))
        >>> found.generators
        ('divtok/tiny-0.5m', 'divtok/tiny-0.9m')
        >>> found.smaller.cost < found.larger.cost
        True
    """
    from divtok.stages import cascade as stage
    from divtok.stages.stored import open_run, stored_config
    from divtok.store.run import Run as Folder

    def stored(run: Run | str | Path) -> stage.Stored:
        opened = Folder.open(run.path) if isinstance(run, Run) else open_run(str(run))
        return stage.Stored(opened, stored_config(opened))

    return Cascade(
        stage.cascade(
            stored(small_run),
            stored(large_run),
            small=small,
            large=large,
            estimators=estimators,
            prices=stage.Prices.given(prices, read_price),
            within=within,
            policy=None if policy is None else Path(policy),
        )
    )
