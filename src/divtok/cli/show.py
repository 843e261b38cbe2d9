"""The verb show: one response with its tokens marked, or the responses that matter most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json
from divtok.errors import UsageError
from divtok.progress import say
from divtok.screen import coloured, put, visible, width
from divtok.screen import show as draw

if TYPE_CHECKING:
    from divtok.config.run import RunConfig
    from divtok.stages.facts import Facts
    from divtok.stages.show import Shown
    from divtok.stages.suspect_steps import StepsInOrder
    from divtok.store.run import Run

_SHORTEST_LINE = 60
_KEY = 12  # characters of a key in a list: half of it


def show(
    run: RunArgument,
    key: Annotated[
        str | None,
        typer.Argument(
            help="A response: its key, or the first 4 characters or more of it, or a problem's id.",
            show_default=False,
        ),
    ] = None,
    least_trusted: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="List the N responses with the lowest confidence."),
    ] = None,
    confidently_wrong: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="List the N wrong responses that are trusted most."),
    ] = None,
    estimator: Annotated[
        str | None, typer.Option(help="Whose confidence orders a list; dtc_lin, if it is there.")
    ] = None,
    steps: Annotated[
        bool,
        typer.Option("--steps", help="List the steps of the response, the most suspect first."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look at one response, divergent and unexpected tokens marked, or list those to look at.

    Divergent tokens are coloured, bold and underlined; unexpected ones, which neither model would
    have written, inverted. In a pipe they are in [brackets] and in {!braces}.
    """
    from divtok.stages.rows import RunRows
    from divtok.stages.show import Which, keys_of, ranked, rows_at, shown, usual_estimator

    asked = {Which.LEAST_TRUSTED: least_trusted, Which.CONFIDENTLY_WRONG: confidently_wrong}
    lists = [(which, number) for which, number in asked.items() if number is not None]
    if len(lists) + (key is not None) != 1:
        raise UsageError(
            "A KEY, --least-trusted or --confidently-wrong: one of them is shown at a time.",
            next_step=f"Begin with: divtok show {run} --least-trusted 20",
        )
    if steps and key is None:
        raise UsageError(
            "--steps is for one response.", next_step=f"Name it: divtok show {run} KEY --steps"
        )
    store, config = open_with_config(run)
    rows = RunRows(store, config, tell=say, tokens=False)
    if key is None:
        which, number = lists[0]
        name, places = ranked(store, rows.facts, which, number, estimator)
    else:
        name = usual_estimator(store, rows.facts, estimator) if rows.facts.estimators else None
        keys = keys_of(store, rows.facts, key)
        if steps:
            _show_steps(store, config, rows.facts, keys, as_json=as_json)
            return
        places = [rows.facts.places[each] for each in keys]
        if len(keys) == 1 and not as_json:
            _print(shown(store, config, rows.facts, keys[0], tell=say))
            return
    found = rows_at(rows, places)
    if as_json:
        print_json(found)
    else:
        _print_list(found, name)


def _show_steps(
    run: Run, config: RunConfig, facts: Facts, keys: Sequence[str], *, as_json: bool
) -> None:
    from dataclasses import asdict

    from divtok.stages.show import shown
    from divtok.stages.suspect_steps import only_key, steps_in

    found = shown(run, config, facts, only_key(keys), tell=say)
    steps = steps_in(run, found)
    if not as_json:
        _print_header(found)
        _print_steps(found, steps)
        return
    wrong = steps.first_wrong
    print_json(
        {
            "key": found.trajectory.key,
            "theta": found.theta,
            "first_wrong_step": None if wrong.step is None else wrong.step + 1,
            "reason": wrong.reason,
            "steps": [asdict(step) for step in steps.steps],
        }
    )


def _print_steps(found: Shown, steps: StepsInOrder) -> None:
    """What marks mean, a line for each step, its tokens marked; then what is known of them."""
    from rich.table import Table
    from rich.text import Text

    from divtok.report.trajectory import summary_text, tokens_text
    from divtok.score.estimators.guarded import excess_surprise

    trace, tokens = steps.trace, steps.tokens
    reasoning, excess = trace.reasoning(), excess_surprise(trace)
    brackets = not coloured()
    draw(
        summary_text(
            tokens,
            trace.jsd_bits,
            found.theta,
            reasoning=reasoning,
            excess=excess,
            guard=found.guard,
            brackets=brackets,
        )
    )
    grid = Table.grid(padding=(0, 2, 0, 0))
    names = ("rank", "step", "score", "divergent")
    for _ in names:
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(*(Text(name, style="dim") for name in (*names, "tokens")))
    for row in steps.steps:
        own = slice(row.first_token, row.end_token)
        text = tokens_text(
            tokens[own],
            trace.jsd_bits[own],
            found.theta,
            reasoning=reasoning[own],
            excess=None if excess is None else excess[own],
            guard=found.guard,
            brackets=brackets,
        )
        text.rstrip()
        if row.known_wrong:
            text.append("  <- the first wrong step", style="bold")
        cells = (str(row.rank), str(row.step), f"{row.score:.3f}", str(row.divergent))
        grid.add_row(*map(Text, cells), text)
    draw(grid)
    put()
    put(steps.known)


def _print_list(rows: Sequence[dict[str, Any]], estimator: str | None) -> None:
    """One line each, cut to the screen: beginning of the key, confidence, verdict, count."""
    from divtok.stages.facts import column_of

    if not rows:
        put("There is no such response.")
        return
    cells = [("key", estimator or "confidence", "verdict", "count", "question")]
    for row in rows:
        value = None if estimator is None else row[column_of(estimator)]
        question = " ".join((row["question"] or "").split())
        count = "-" if row["count"] is None else str(row["count"])
        said = "-" if value is None else f"{value:.3f}"
        cells.append((row["key"][:_KEY], said, row["verdict"] or "-", count, visible(question)))
    widths = [max(len(line[i]) for line in cells) for i in range(4)]
    for line in cells:
        first, *rest = (f"{cell:<{w}}" for cell, w in zip(line[:4], widths, strict=True))
        start = "  ".join([first, *rest, ""])
        put(start + _cut(line[4], max(width(), _SHORTEST_LINE) - len(start)))


def _print_header(found: Shown) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _header(found):
        grid.add_row(Text(name, style="dim"), Text(visible(value, keep="\n")))
    draw(grid)
    put()


def _print(found: Shown) -> None:
    from divtok.report.trajectory import trajectory_text
    from divtok.score.estimators.guarded import excess_surprise

    _print_header(found)
    trace = found.trace
    if trace is None or found.tokens is None:
        put(found.trajectory.text)
        for line in found.places:
            put(line)
        return
    draw(
        trajectory_text(
            found.tokens,
            trace.jsd_bits,
            found.theta,
            reasoning=trace.reasoning(),
            excess=excess_surprise(trace),
            guard=found.guard,
            brackets=not coloured(),
        )
    )


def _header(found: Shown) -> list[tuple[str, str]]:
    """Name and value of what is known beside the tokens."""
    from divtok.score.facts import COUNTED_WORDS
    from divtok.stages.facts import column_of

    row, cells, problem = found.trajectory, found.cells, found.problem

    def known(value: str | None, why: str | None = None) -> str:
        return ("-" if value is None else value) + ("" if why is None else f" ({why})")

    def number(column: str, digits: str, over: str | None = None) -> str:
        value, low, high = (cells.get(column + end) for end in ("", "_low", "_high"))
        about = [] if low is None else [f"between {low:{digits}} and {high:{digits}}"]
        about += [] if over is None else [f"{over} map"]
        prior = cells.get(f"{column}_prior")
        about += [] if prior is None else [f"stated for {100 * prior:.1f} % right answers"]
        shown = None if value is None else f"{value:{digits}}"
        return known(shown, "; ".join(about) or None)

    lines = [
        ("key", row.key),
        ("response", f"sample {row.sample} by {row.generator}, ended by {row.finish_reason}"),
        ("problem", f"{row.problem_id} of {row.benchmark}"),
        ("question", known(problem and problem.question)),
        ("answer", known(cells["answer"])),
        ("gold", known(problem and problem.answer)),
        ("verdict", known(cells["verdict"], cells["verdict_reason"])),
    ]
    lines += [
        (name, number(column_of(name), ".3f", found.maps.get(name))) for name in found.estimators
    ]
    if cells["count"] is not None:
        which = cells["counted"]
        over = "" if which == "reasoning" else f", over {COUNTED_WORDS[which]}"
        lines.append(("count", f"{number('count', 'd')} at theta {found.theta:g}{over}"))
    if cells["reason"] is not None:
        lines.append(("lacking", cells["reason"]))
    return lines


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: max(longest - 3, 0)] + "..."
