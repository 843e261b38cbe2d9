"""The verbs, gathered. Importing this builds the command line and loads no model library."""

from __future__ import annotations

import typer

from divtok.cli.ask import ask
from divtok.cli.cascade import cascade
from divtok.cli.check import check
from divtok.cli.confidence import confidence
from divtok.cli.decide import decide
from divtok.cli.demo import demo
from divtok.cli.distil import distil
from divtok.cli.evaluate import evaluate
from divtok.cli.export import export
from divtok.cli.fit import fit
from divtok.cli.fit_projection import fit_projection
from divtok.cli.gather import gather
from divtok.cli.generate import generate
from divtok.cli.grade import grade
from divtok.cli.help import Verbs
from divtok.cli.import_ import ImportCommand, import_
from divtok.cli.ls import ls
from divtok.cli.pair import pair
from divtok.cli.paper import paper
from divtok.cli.report import report
from divtok.cli.run import run
from divtok.cli.score import score
from divtok.cli.serve import serve
from divtok.cli.show import show
from divtok.cli.sweep import sweep
from divtok.cli.trace import trace
from divtok.cli.verify import verify
from divtok.cli.view import view
from divtok.cli.vote import vote
from divtok.screen import put

app = Verbs(
    name="divtok",
    help="How far to trust a language model's reasoning: confidence from divergent tokens.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("demo")(demo)
app.command("run")(run)
app.command("generate")(generate)
app.command("grade")(grade)
app.command("trace")(trace)
app.command("gather")(gather)
app.command("score")(score)
app.command("evaluate")(evaluate)
app.command("sweep")(sweep)
app.command("decide")(decide)
app.command("cascade")(cascade)
app.command("vote")(vote)
app.command("report")(report)
app.command("export")(export)
app.command("show")(show)
app.command("view")(view)
app.command("fit")(fit)
app.command("fit-projection")(fit_projection)
app.command("distil")(distil)
app.command("import", cls=ImportCommand)(import_)
app.command("confidence")(confidence)
app.command("ask")(ask)
app.command("serve")(serve)
app.command("paper")(paper)
app.command("ls")(ls)
app.command("pair")(pair)
app.command("check")(check)
app.command("verify")(verify)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    debug: bool = typer.Option(
        False, "--debug", help="Show where an error comes from; so does DIVTOK_DEBUG=1."
    ),
) -> None:
    if debug:
        context.obj.debug = True
    if version:
        from importlib.metadata import version as installed

        put(f"divtok {installed('divtok')}")
        raise typer.Exit
