"""The verb demo: the whole method on the embedded family, with words for what is to be seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli.options import LimitOption, config_from
from divtok.cli.printing import leave_if_failed, print_results, put_filled
from divtok.config.run import RunConfig
from divtok.progress import say
from divtok.records import Evaluation
from divtok.screen import coloured, put, show
from divtok.stages.examples import Example, examples
from divtok.store.run import Run

if TYPE_CHECKING:
    from rich.text import Text

    from divtok.evaluate.scored_group import ScoredGroup
    from divtok.stages.evaluate import Results

# The smallest generator is right about half of the time, for which dtc is scaled; the largest far
# more often, so that what changes with that can be seen.
DEMO = (
    "family=tiny",
    "generators=['divtok/tiny-0.5m','divtok/tiny-1.6m']",
    "generate.batch_size=256",
)
DEMO_PROBLEMS = 100
BASELINES = ("nsl", "mean_prob", "entropy")
PAPER = ("dtc_lin", "dtc_prod")
BEYOND = "dtc_weighted"


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
    limit: LimitOption = DEMO_PROBLEMS,
) -> None:
    """Run the whole method on models that ship with divtok, and say what to look at."""
    from divtok.stages.report import report
    from divtok.stages.run import run_stages

    config = config_from(DEMO, limit=limit)
    store = Run.create_or_open(out)
    run_stages(store, config)
    found = report(store, config)
    say("")
    _show_examples(store, config)
    print_results(found, config)
    _explain(found, config, store)
    leave_if_failed(store, found)


def _show_examples(store: Run, config: RunConfig) -> None:
    from rich.panel import Panel

    pair = examples(store, config)
    if pair is None:
        return
    titles = ("Trusted, and right", "Not trusted, and wrong")
    for title, example in zip(titles, pair, strict=True):
        show(Panel(_coloured(example, config.theta), title=title, title_align="left"))


def _coloured(example: Example, theta: float) -> Text:
    from divtok.models.load import load_tokenizer
    from divtok.report.trajectory import TrajectoryHeader, trajectory_text
    from divtok.score.estimators.guarded import excess_surprise
    from divtok.trace.spans import token_texts

    tokenizer = load_tokenizer(example.trajectory.generator)
    return trajectory_text(
        token_texts(tokenizer, example.trajectory.token_ids),
        example.trace.jsd_bits,
        theta,
        header=TrajectoryHeader(
            question=example.problem.question,
            answer=example.grade.extracted,
            gold=example.problem.answer,
            verdict=example.grade.verdict,
            confidence=example.confidence.value,
            estimator=example.confidence.estimator,
        ),
        reasoning=example.trace.reasoning(),
        excess=excess_surprise(example.trace),
        brackets=not coloured(),
    )


def _explain(found: Results, config: RunConfig, store: Run) -> None:
    put("\nWhat to look at")
    for point in (
        *_compare(found.evaluations),
        _believe(found.groups),
        f"theta = {config.theta:g} bits was chosen on a separate fitting set (divtok fit tiny), "
        "never on these problems.",
        f"Pictures: {store.report / 'figures'}. Start with {store.report / 'README.md'}.",
        f"Rows: divtok show {store.path} --least-trusted 5, or divtok export {store.path}.",
        "Your own models: divtok run --generator P --auxiliary Q, or see the tutorial in docs/.",
    ):
        put_filled(f"- {point}", indent="  ")


def _compare(evaluations: list[Evaluation]) -> list[str]:
    if all(evaluation.auroc is None for evaluation in evaluations):
        return [
            "There are no balanced figures: each benchmark has right answers only, or wrong ones "
            "only. Take more problems, with --limit."
        ]
    eces = {name: _mean(evaluations, name, "ece") for name in (*BASELINES, *PAPER)}
    ranks = {name: _mean(evaluations, name, "auroc") for name in (*BASELINES, *PAPER, BEYOND)}
    baseline = min(BASELINES, key=lambda name: eces[name])
    ours = min(PAPER, key=lambda name: eces[name])
    ranking = max(BASELINES, key=lambda name: ranks[name])
    return [
        f"Ranking (AUROC, 50 is chance): the best baseline, {ranking}, reaches "
        f"{100 * ranks[ranking]:.1f}; dtc_prod, which counts divergent tokens, "
        f"{100 * ranks['dtc_prod']:.1f}; {BEYOND}, the generator's surprise weighted by "
        f"divergence, {100 * ranks[BEYOND]:.1f}.",
        "Calibration on balanced draws, of which half are right, as in the paper (ECE, how far a "
        "stated confidence is from the share of right answers): the best baseline, "
        f"{baseline}, is off by {100 * eces[baseline]:.1f} points; {ours} by "
        f"{100 * eces[ours]:.1f}.",
    ]


def _believe(groups: list[ScoredGroup]) -> str:
    """Whether the number can be taken as it is: that depends on how often a generator is right."""
    from divtok.evaluate.overall import prevalences

    said = [
        f"{found.generator} is right {100 * found.accuracy:.0f} % of the time; dtc_lin says "
        f"{100 * found.says['dtc_lin']:.0f} %, {BEYOND} {100 * found.says[BEYOND]:.0f} %"
        for found in prevalences(groups)
        if found.accuracy is not None and "dtc_lin" in found.says
    ]
    return (
        f"As the responses are: {'. '.join(said)}. The count is scaled for responses of which half "
        "are right."
    )


def _mean(evaluations: list[Evaluation], estimator: str, metric: str) -> float:
    """The mean over the benchmarks that have both right and wrong answers, as in the tables."""
    values = [getattr(e, metric) for e in evaluations if e.estimator == estimator]
    present = [value for value in values if value is not None]
    return sum(present) / len(present)
