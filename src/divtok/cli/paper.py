"""The verb paper: a table or figure of the paper, or all of them, from a recipe."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli.options import JsonOption, OverridesArgument, RetryOption
from divtok.cli.printing import print_json
from divtok.errors import EXIT_PARTIAL
from divtok.progress import say
from divtok.screen import put, show, visible, width

if TYPE_CHECKING:
    from collections.abc import Iterable

    from divtok.paper.exhibit import Exhibit, Finding


def paper(
    name: Annotated[
        str, typer.Argument(help="A recipe (divtok ls recipes), or 'all' for every one.")
    ],
    overrides: OverridesArgument = None,
    family: Annotated[
        str | None,
        typer.Option(
            help="tiny: the twin on the embedded family. Another: only the paper's runs of it."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the runs and of what is made from them.")
    ] = Path("runs/paper"),
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would cost and what is there; make nothing.")
    ] = False,
    as_json: JsonOption = False,
    retry_failed: RetryOption = False,
) -> None:
    """Make a table or figure of the paper: its runs where they are missing, then the exhibit.

    Recipes share runs, and finished runs are read, not made again. Overrides change every run of
    the recipe, as in: limit=5 trace.dtype=bfloat16. With protocols.verbalized=FILE.yaml a
    protocol asks in the words of a file, such as the paper's.
    """
    from divtok.paper.recipe import ALL, check_words, chosen_recipes, runs_of

    chosen = chosen_recipes(name, family)
    check_words(chosen, family, overrides or [])
    runs = runs_of(chosen, family, overrides or [])
    if plan:
        from divtok.planning.plan import as_json as plan_json
        from divtok.planning.plan import make_plan
        from divtok.planning.plan_text import plan_text

        configs = {run.name: run.config for run in runs}
        found = make_plan(configs, out, recipes=[recipe.name for recipe in chosen])
        if as_json:
            print_json(plan_json(found))
        else:
            put(plan_text(found))
        return
    from divtok.paper.build import make_exhibits, make_runs, makeable
    from divtok.paper.page import write_page
    from divtok.paper.run_tables import Material
    from divtok.stages.failures import failed_rows

    left_out: list[str] = []
    if name == ALL:
        chosen, left_out = makeable(chosen, family, overrides or [], out)
        runs = runs_of(chosen, family, overrides or [])
    for line in left_out:
        say(line)
    stores = make_runs(runs, out, retry_failed=retry_failed)
    material = Material(out, family, overrides or ())
    exhibits = make_exhibits(chosen, material)
    page = write_page(
        out / f"report-{family or 'paper'}",
        "index" if name == ALL else name,
        exhibits,
        material.opened(),
        title="Probability is Not Enough: the paper's tables and figures"
        if name == ALL
        else chosen[0].heading(family),
        family=family,
        overrides=overrides or (),
        left_out=left_out,
        everything=name == ALL,
    )
    if as_json:
        print_json(as_data(exhibits, everything=name == ALL))
    else:
        _print(exhibits, everything=name == ALL)
    say(f"page: {page.path}")
    failed = [reason for store in stores for reason in failed_rows(store).reasons]
    if failed:
        say(f"{len(failed)} rows could not be made; the first: {visible(failed[0])}")
        raise typer.Exit(EXIT_PARTIAL)


def _print(exhibits: list[Exhibit], *, everything: bool) -> None:
    from divtok.paper.claims.listed import counted, judge
    from divtok.report.terminal import rich_tables

    tables = [table for exhibit in exhibits for table in exhibit.tables]
    if tables:
        show(rich_tables(tables, width=width()))
    judged = judge(exhibits, everything=everything)
    if not judged:
        return
    put("The paper's claims on these runs:")
    for one in judged:
        number = "-" if one.number is None else f"{one.number}."
        recipes = ", ".join(recipe for recipe, _ in one.found) or "none"
        measured = visible(one.measured)
        put(f"{number} {one.verdict}: {visible(one.said.text)} {measured} [{recipes}]")
    put(f"{counted(judged)}. What each rests on is on the page.")


def as_data(exhibits: list[Exhibit], *, everything: bool) -> list[dict[str, object]]:
    """One entry a recipe; with `everything` those that were not made, too, with their claims."""
    from divtok.paper.claims.listed import LISTED, unmade_findings
    from divtok.paper.recipe import recipes

    places = {said.text: (number, said) for number, said in enumerate(LISTED, start=1)}

    def findings(found: Iterable[Finding]) -> list[dict[str, object]]:
        return [
            {
                **dataclasses.asdict(finding),
                "verdict": finding.verdict,
                "claim_number": place[0] if place else None,
                "section": place[1].section if place else None,
            }
            for finding in found
            for place in [places.get(finding.claim)]
        ]

    made: dict[str, dict[str, object]] = {
        exhibit.recipe.name: {
            "recipe": exhibit.recipe.name,
            "tables": [dataclasses.asdict(table) for table in exhibit.tables],
            "figures": [display.values() for display in exhibit.figures],
            "findings": findings(exhibit.findings),
        }
        for exhibit in exhibits
    }
    unmade = [name for name in recipes() if everything and name not in made]
    return [
        *made.values(),
        *(
            {
                "recipe": name,
                "tables": [],
                "figures": [],
                "findings": findings(unmade_findings(name)),
            }
            for name in unmade
        ),
    ]
