"""The verb demo: the whole method on the embedded family, with words for what is to be seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli.options import LimitOption, config_from
from divtok.cli.printing import leave_if_failed, print_results
from divtok.config.run import RunConfig
from divtok.progress import say
from divtok.records import Evaluation
from divtok.screen import put, show
from divtok.stages.examples import Example, examples
from divtok.store.run import Run

if TYPE_CHECKING:
    from rich.text import Text

# The smallest generator errs often enough on every benchmark for balanced draws of some size.
DEMO = ("family=tiny", "generators=['divtok/tiny-0.5m']", "generate.batch_size=256")
DEMO_PROBLEMS = 100
BASELINES = ("nsl", "mean_prob", "entropy")
OURS = ("dtc_lin", "dtc_prod")


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
    _explain(found.evaluations, config, store)
    leave_if_failed(store)


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
    from divtok.report.terminal import TrajectoryHeader, trajectory_text
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
    )


def _explain(evaluations: list[Evaluation], config: RunConfig, store: Run) -> None:
    put(
        f"""
What to look at
{_compare(evaluations)}
- theta = {config.theta:g} bits was chosen on a separate fitting set (divtok fit tiny), never on
  these problems. Both tables use the paper's balanced draws.
- Pictures: {store.report / "figures"}. Start with {store.report / "README.md"}.
- Your own models: divtok run --generator P --auxiliary Q, or see the tutorial in docs/."""
    )


def _compare(evaluations: list[Evaluation]) -> str:
    if all(evaluation.auroc is None for evaluation in evaluations):
        return (
            "- Both tables are empty: each benchmark has right answers only, or wrong ones only.\n"
            "  Take more problems, with --limit."
        )
    eces = {name: _mean(evaluations, name, "ece") for name in (*BASELINES, *OURS)}
    ranks = {name: _mean(evaluations, name, "auroc") for name in (*BASELINES, *OURS)}
    baseline = min(BASELINES, key=lambda name: eces[name])
    ours = min(OURS, key=lambda name: eces[name])
    ranking = max(BASELINES, key=lambda name: ranks[name])
    return f"""\
- The first table is the calibration error (ECE): how far a stated confidence is from the share of
  right answers. The best baseline here, {baseline}, is off by {100 * eces[baseline]:.1f} points on
  average; {ours}, which counts divergent tokens, by {100 * eces[ours]:.1f}.
- The second table is the ranking (AUROC, 50 is chance): the best baseline, {ranking}, reaches
  {100 * ranks[ranking]:.1f}; dtc_prod reaches {100 * ranks["dtc_prod"]:.1f}."""


def _mean(evaluations: list[Evaluation], estimator: str, metric: str) -> float:
    """The mean over the benchmarks that have both right and wrong answers, as in the tables."""
    values = [getattr(e, metric) for e in evaluations if e.estimator == estimator]
    present = [value for value in values if value is not None]
    return sum(present) / len(present)
