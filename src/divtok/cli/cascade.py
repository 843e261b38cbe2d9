"""The verb cascade: a small generator first, and a larger one where its confidence is low."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divtok.cli import completion
from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json, put_filled
from divtok.progress import say
from divtok.screen import show, visible, width

if TYPE_CHECKING:
    from divtok.decide.cascade import Cascade

OPTIMISTIC = (
    "A threshold, or an estimator, chosen on the responses it is judged by looks better than it "
    "is: try it on other problems."
)


def cascade(
    run_small: RunArgument,
    run_large: Annotated[
        str,
        typer.Argument(
            help="The run of the larger generator; it may be the same one.",
            autocompletion=completion.runs,
        ),
    ],
    small: Annotated[
        str | None, typer.Option(help="The smaller generator, where its run has several.")
    ] = None,
    large: Annotated[
        str | None, typer.Option(help="The larger generator, where its run has several.")
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            help="Whose confidence decides; all by default, may be repeated.", show_default=False
        ),
    ] = None,
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="SMALL LARGE",
            help="Price of a million tokens that each generator writes; by default a token costs "
            "the parameters it goes through.",
        ),
    ] = None,
    read_price: Annotated[
        float | None,
        typer.Option(help="Price of reading a million tokens for a confidence; with --prices."),
    ] = None,
    within: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="How much less accurate than the larger alone will do, as in 0.01."
        ),
    ] = 0.0,
    policy: Annotated[
        Path | None, typer.Option(help="Mark where this policy stands (a file of divtok decide).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the figure; by default report/cascade of the smaller's run."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What it gives to answer with a small model and ask a larger one where confidence is low.

    For each estimator: accuracy and cost at every threshold, beside each generator alone, deferring
    at random and an oracle. From stored tables, no model is loaded. Of one run given twice, the
    smallest and the largest generator are taken.
    """
    from divtok.report.cascade import advice, cascade_table, marked_line
    from divtok.report.cascade_figure import CascadeDisplay
    from divtok.report.figures import save_figure
    from divtok.report.terminal import rich_table
    from divtok.report.text import slug
    from divtok.stages.cascade import Prices, Stored
    from divtok.stages.cascade import cascade as stage

    smaller, larger = Stored(*open_with_config(run_small)), Stored(*open_with_config(run_large))
    found = stage(
        smaller,
        larger,
        small=small,
        large=large,
        estimators=estimator or (),
        prices=Prices.given(prices, read_price),
        within=within,
        policy=policy,
    )
    if as_json:
        print_json(_as_json(found))
    else:
        show(rich_table(cascade_table(found), width=width()))
        for line in (advice(found), marked_line(found), OPTIMISTIC):
            if line is not None:
                put_filled(visible(line))
    folder = out or smaller.run.report / "cascade"
    stem = folder / slug(f"{found.smaller} to {found.larger}")
    image, *_ = save_figure(CascadeDisplay.of(found, estimator or ()), stem)
    say(f"figure: {image}")


def _as_json(found: Cascade) -> dict[str, Any]:
    from dataclasses import asdict

    from divtok.report.cascade import advice
    from divtok.report.cascade_figure import CascadeDisplay

    values = CascadeDisplay.of(found, tuple(found.curves)).values()
    for curve in values["curves"]:
        of = found.curves[curve["estimator"]]
        for name in ("share_of_oracle", "gain_at_half", "cost_at_larger"):
            curve[name] = asdict(getattr(of, name))
    return {**values, "ungraded": found.ungraded, "advice": advice(found)}
