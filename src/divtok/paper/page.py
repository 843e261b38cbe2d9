"""Write exhibits: each table and figure as files, and one HTML page with all of them.

The page includes its figures, so that it can be sent on its own. Text from runs and recipes is
escaped by the template engine; should any slip through, the page's content security policy lets it
run nothing and fetch nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from divtok.paper.claims.listed import Judged, counted, judge
from divtok.paper.exhibit import Exhibit
from divtok.paper.run_tables import FinishedRun, short
from divtok.report.figures import Display, save_figure
from divtok.report.render import ABOUT_DASH, RENDERERS, about_marks, shown
from divtok.report.tables import ReportTable, rank_marks
from divtok.screen import visible
from divtok.store.atomic import make_folder, remove_orphans, write_text_atomically

_ON_SCREEN = 96 * 1.35  # pixels an inch of print; screens are read from further away
_RUN_HEAD = ("Run", "Generators", "Pair scored", "Protocol", "Responses", "Theta (bits)")


@dataclass(frozen=True, slots=True)
class Page:
    """What was written: the page, and where the files of its tables and figures are."""

    path: Path
    folder: Path


def write_page(
    folder: Path,
    name: str,
    exhibits: Sequence[Exhibit],
    runs: Sequence[FinishedRun],
    *,
    title: str,
    family: str | None,
    overrides: Sequence[str] = (),
    left_out: Sequence[str] = (),
    everything: bool = False,
) -> Page:
    """`folder`/`name`.html, with tables/ and figures/ beside it; the page is written last.

    `left_out` are sentences on what should be there and is not. With `everything` every claim of
    the paper has its row, whether an exhibit checks it or not.
    """
    for part in ("tables", "figures"):
        remove_orphans(folder / part)  # what a killed command left
    options = ([] if family is None else ["--family", family]) + list(overrides)
    shown_exhibits = [_exhibit(folder, exhibit, family, options) for exhibit in exhibits]
    judged = judge(exhibits, everything=everything)
    style = resources.files("divtok.paper").joinpath("page.css").read_text("utf-8")
    text = _template().render(
        policy=_policy(style),
        style=style,
        title=visible(title),
        intro=_intro(family, len(exhibits)),
        exhibits=shown_exhibits,
        claims=[_claim(one) for one in judged],
        claims_counted=counted(judged),
        left_out=[visible(line) for line in left_out],
        runs={"head": _RUN_HEAD, "rows": [_run_row(run) for run in runs]},
    )
    path = folder / f"{name}.html"
    write_text_atomically(path, text)
    return Page(path, folder)


def _policy(style: str) -> str:
    """Nothing but the page's own style and the images inside it."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("divtok.paper", "."), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2")


def _intro(family: str | None, exhibits: int) -> list[str]:
    what = "A table or figure" if exhibits == 1 else f"{exhibits} tables and figures"
    lines = [
        f"{what} of the paper Probability is Not Enough (arXiv:2609.38070), made by divtok "
        f"{version('divtok')} from stored traces. ECE and AUROC follow the paper's protocol "
        "(class-balanced draws); they describe balanced responses, not the generator's own mix of "
        "right and wrong ones."
    ]
    if family == "tiny":
        lines.append(
            "The models are the embedded family: a few hundred thousand to 1.6 million parameters, "
            "trained on arithmetic stories. The page shows that every step works and what comes "
            "out of it. It is not evidence about large models."
        )
    return lines


def _exhibit(
    folder: Path, exhibit: Exhibit, family: str | None, options: Sequence[str]
) -> dict[str, Any]:
    recipe = exhibit.recipe
    return {
        "name": recipe.name,
        "title": recipe.heading(family),
        "about": recipe.about,
        "caption": visible(exhibit.caption),
        "command": visible(shlex.join(["divtok", "paper", recipe.name, *options])),
        "findings": [
            replace(
                finding,
                claim=visible(finding.claim),
                number=visible(finding.number),
                rule=visible(finding.rule),
            )
            for finding in exhibit.findings
        ],
        "tables": [
            _table(folder, table, _stem(recipe.name, i, len(exhibit.tables)))
            for i, table in enumerate(exhibit.tables)
        ],
        "figures": [
            _figure(folder, display, _stem(recipe.name, i, len(exhibit.figures)), recipe.title)
            for i, display in enumerate(exhibit.figures)
        ],
    }


def _claim(one: Judged) -> dict[str, Any]:
    """One row: what each recipe measured, one below the other where there are several."""
    return {
        "number": "" if one.number is None else str(one.number),
        "section": visible(one.section),
        "text": visible(one.said.text),
        "verdict": one.verdict,
        "found": [
            {
                "recipe": recipe,
                "verdict": finding.verdict,
                "number": visible(finding.number),
                "rule": visible(finding.rule),
            }
            for recipe, finding in one.found
        ],
        "why": visible(one.why),
    }


def _stem(name: str, number: int, of: int) -> str:
    return name if of == 1 else f"{name}-{number + 1}"


def _table(folder: Path, table: ReportTable, stem: str) -> dict[str, Any]:
    make_folder(folder / "tables")
    files: list[str] = []
    for suffix, render in RENDERERS.items():
        files.append(f"tables/{stem}.{suffix}")
        write_text_atomically(folder / files[-1], render(table))
    kinds = ["text" if column.kind == "text" else "number" for column in table.columns]
    columns = list(zip([visible(column.label) for column in table.columns], kinds, strict=True))
    rows: list[dict[str, Any]] = []
    section: str | None = None
    for row in table.rows:
        new = row.section if row.section != section else None
        section = row.section
        texts = [
            visible(shown(row, column, value, dash="—"))
            for value, column in zip(row.cells, table.columns, strict=True)
        ]
        rows.append(
            {
                "section": None if new is None else visible(new),
                "is_mean": row.is_mean,
                "theirs": not row.ranked,
                "cells": list(zip(texts, kinds, rank_marks(table, row), strict=True)),
            }
        )
    marks = f"{about_marks(table, 'in bold', 'underlined')} {ABOUT_DASH}"
    caption = visible(f"{table.title}. {table.whole_caption} {marks}")
    return {"caption": caption, "columns": columns, "rows": rows, "files": files}


def _figure(folder: Path, display: Display, stem: str, alt: str) -> dict[str, Any]:
    written = save_figure(display, folder / "figures" / stem)
    svg = next(path for path in written if path.suffix == ".svg")
    drawn = svg.read_bytes()
    return {
        "data": f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode()}",
        "alt": alt,
        "width": round(_width(drawn) * _ON_SCREEN),
        "files": [str(path.relative_to(folder)) for path in written],
    }


def _width(svg: bytes) -> float:
    """Inches, as the file itself says in points."""
    found = re.search(rb'<svg [^>]*?width="([0-9.]+)pt"', svg)
    assert found is not None  # matplotlib always writes it
    return float(found[1]) / 72


def _run_row(run: FinishedRun) -> tuple[str, ...]:
    config = run.config
    generators = config.generator_presets()
    pairs = [
        f"{'generator' if p == g.model else short(p)} / {short(q)}"
        for g in generators
        for p, q in [config.pair_for(g)]
    ]
    names = (
        run.name,
        ", ".join(short(generator.model) for generator in generators),
        ", ".join(dict.fromkeys(pairs)),
        config.protocols_said(),
    )
    return (
        *map(visible, names),
        f"{sum(len(group.problem_id) for group in run.groups):,}",
        f"{config.theta:g}",
    )
