"""The verb view: a run's responses with their tokens, as one page to open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from divtok.cli.options import RunArgument, open_with_config
from divtok.progress import say
from divtok.screen import put


def view(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option(help="File to write instead of view.html in the run's report.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="At most so many responses, the first ones; 1000 by default."
        ),
    ] = None,
    estimator: Annotated[
        str | None, typer.Option(help="Whose confidence is shown first; dtc_lin, if it is there.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER", help="A run of the same responses, to see side by side with this one."
        ),
    ] = None,
) -> None:
    """Write one page that shows why: every response with its tokens, theta on a slider.

    The page is one file that any browser opens from the disk; it asks nothing of a network.
    """
    from divtok.stages.stored import open_run
    from divtok.stages.view import view as stage

    store, config = open_with_config(run)
    found = stage(
        store,
        config,
        out=out,
        tell=say,
        limit=limit,
        estimator=estimator,
        against=None if against is None else open_run(against),
    )
    some = "" if found.responses == found.total else f" of {found.total}; --limit N takes more"
    say(f"view: {found.responses} responses{some}")
    put(found.path)
