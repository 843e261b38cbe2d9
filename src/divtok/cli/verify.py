"""The verb verify: is everything in a run as it was written?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from divtok.cli.options import JsonOption, RunArgument, open_run
from divtok.cli.printing import print_json
from divtok.errors import EXIT_ERROR
from divtok.screen import put, visible


def verify(
    run: RunArgument,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="First take the folder as it is: the shards that are there, run.yaml and the "
            "manifest as they were changed.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every file of a run against its checksums, and say what to do about each finding.

    Exit code 1 where something is wrong. Changes nothing without --accept.
    """
    from divtok.stages import verify as stage

    store = open_run(run)
    if accept:
        stage.accept(store)
    found = stage.verify(store)
    rows = sum(found.tables.values())
    if as_json:
        findings: list[dict[str, Any]] = [
            {
                "path": str(finding.path),
                "what": finding.what,
                "next_step": finding.next_step,
                "harmless": finding.harmless,
            }
            for finding in found.findings
        ]
        print_json(
            {
                "run": str(store.path),
                "sound": found.sound,
                "shards": found.shards,
                "rows": found.tables,
                "findings": findings,
            }
        )
    else:
        for finding in found.findings:
            kind = "note" if finding.harmless else "wrong"
            put(visible(f"{kind}: {finding.what} {finding.next_step}"))
        wrong = sum(not finding.harmless for finding in found.findings)
        wrong_ones = "1 finding" if wrong == 1 else f"{wrong:,} findings"
        verdict = "nothing is wrong" if found.sound else wrong_ones
        put(visible(f"{store.path}: {found.shards:,} shards, {rows:,} rows read; {verdict}"))
    if not found.sound:
        raise typer.Exit(EXIT_ERROR)
