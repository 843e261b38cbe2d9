"""The verb export: the rows of a run, or of a file that was imported, with what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from divtok.cli.options import RunArgument, open_with_config
from divtok.errors import UsageError
from divtok.progress import say
from divtok.screen import put_data
from divtok.stages.formats import Format


def export(
    run: RunArgument,
    format_name: Annotated[
        Format | None,
        typer.Option("--format", help="By default what the ending of --out says, or CSV."),
    ] = None,
    onto: Annotated[
        Path | None,
        typer.Option(help="Add columns to this file, which was imported, in its own format."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write instead of standard output.")
    ] = None,
    no_tokens: Annotated[
        bool, typer.Option("--no-tokens", help="Leave out the divergent tokens: quicker.")
    ] = False,
) -> None:
    """Give every response of a run back: question, response, verdict, confidences, count.

    With --onto the rows of a file come back as they are, in their order, with columns divtok_...
    behind their own. Where a spreadsheet might run a text as a formula, CSV has a quote in front.
    """
    from divtok.stages.export import export as stage
    from divtok.stages.onto import export_onto

    if onto is not None and format_name is not None:
        raise UsageError(
            "--onto keeps the format of the file.", next_step="Give --onto or --format."
        )
    store, config = open_with_config(run)
    if onto is not None:
        count = export_onto(
            store, config, onto, out=out, put=put_data, tell=say, tokens=not no_tokens
        )
    else:
        count = stage(
            store,
            config,
            out=out,
            put=put_data,
            tell=say,
            format_name=format_name,
            tokens=not no_tokens,
        )
    if out is not None:
        say(f"export: {count} responses in {out}")
