"""The verb ls: what there is to choose from, and who brought it; and the runs in runs/."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from divtok.cli.options import JsonOption
from divtok.cli.printing import print_json
from divtok.registry import OWN
from divtok.screen import put
from divtok.stages.kinds import Kind


def ls(
    kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: JsonOption = False
) -> None:
    """List what there is of one kind, plug-ins included, and who brought it; or the runs."""
    from divtok.api.listing import ls as listed

    rows = listed(kind)
    if as_json:
        print_json(rows)
        return
    if not rows:  # of everything else there is some
        put("There are no runs in runs/ yet: make one with 'divtok run' or 'divtok demo'.")
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        put(f"{row['name']:<{width}}  {row['summary']}{_whose(row)}")


def _whose(row: dict[str, Any]) -> str:
    """Who brought it; of a protocol also its words."""
    origin = row.get("from", OWN)
    if "wording" in row:
        said = "in code" if row["wording"] is None else row["wording"]
        return f" [wording {said}, {origin}]"
    return "" if origin == OWN else f" [{origin}]"
