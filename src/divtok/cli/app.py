"""The verbs, gathered. Importing this builds the command line and loads no model library."""

from __future__ import annotations

import typer

from divtok.cli import check, confidence, demo, paper, sweep
from divtok.cli import gather as evidence
from divtok.cli import import_ as imports
from divtok.cli import ls as listing
from divtok.cli import run as runs
from divtok.cli import score as scoring

app = typer.Typer(
    name="divtok",
    help="How far to trust a language model's reasoning: confidence from divergent tokens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("demo")(demo.demo)
app.command("run")(runs.run)
app.command("generate")(runs.generate)
app.command("grade")(runs.grade)
app.command("trace")(runs.trace)
app.command("gather")(evidence.gather)
app.command("score")(scoring.score)
app.command("evaluate")(runs.evaluate)
app.command("sweep")(sweep.sweep)
app.command("report")(runs.report)
app.command("fit")(runs.fit)
app.command("fit-projection")(evidence.fit_projection)
app.command("import", cls=imports.ImportCommand)(imports.import_)
app.command("confidence")(confidence.confidence)
app.command("paper")(paper.paper)
app.command("ls")(listing.ls)
app.command("check")(check.check)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"divtok {installed('divtok')}")
        raise typer.Exit
