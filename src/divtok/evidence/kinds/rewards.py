"""What a process reward model gives to each line of a response: one more model reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from divtok.config.loading import digest_of, dtype_of, load_options, packs_of
from divtok.config.run import RunConfig
from divtok.evidence.kind import EvidenceKind, Find, Gathering, Lacking, register
from divtok.evidence.prm import load_prm
from divtok.records import StepRewards, Trajectory
from divtok.store.columns import floats, reason, text
from divtok.store.layout import Layout
from divtok.store.responses import Response
from divtok.store.sections import check_section

REWARDS = Layout(
    "rewards",
    StepRewards,
    ("key", "model"),
    (
        text("key"),
        text("model"),
        floats("rewards", unit="fraction"),
        *reason(),
    ),
)


class RewardsKind(EvidenceKind[StepRewards]):
    name = "rewards"
    summary = "What a process reward model gives to each line of a response."
    layout = REWARDS

    def refuse(self, config: RunConfig) -> Lacking | None:
        if config.prm is None:
            return Lacking("the family has no reward model", "evidence.prm=MODEL")
        return None

    def models(self, config: RunConfig) -> Sequence[str]:
        return [] if config.prm is None else [config.prm]

    def check(self, work: Gathering) -> None:
        config, prm = work.config, _prm(work.config)
        identity = {
            "prm": prm,
            "dtype": dtype_of(config, prm),
            "model": digest_of(config, prm),
        }
        check_section(work.run, work.run.table(REWARDS).keys(), "rewards", identity)

    def gather(self, work: Gathering) -> None:
        config, prm = work.config, _prm(work.config)
        rows = [t for _, members in work.by_generator() for t in members]
        work.fill(
            f"reward with {prm}",
            work.run.table(REWARDS),
            packs_of(rows, config.trace),
            lambda t: (t.key, prm),
            lambda: _rewards(work, prm),
            [prm],
        )

    def find(self, work: Gathering) -> Find[StepRewards]:
        prm, rows = _prm(work.config), work.run.table(REWARDS).lookup()

        def found(response: Response) -> StepRewards | None:
            return rows.get((response.key, prm))

        return found


def _prm(config: RunConfig) -> str:
    assert config.prm is not None  # refused before
    return config.prm


def _rewards(work: Gathering, prm: str) -> Callable[[Sequence[Trajectory]], list[StepRewards]]:
    config, questions = work.config, work.questions()
    model = load_prm(prm, **load_options(config, prm))
    budget = config.trace.budget()
    return lambda batch: model.rewards(
        [(t.key, questions[t.benchmark, t.problem_id], t.text) for t in batch], budget=budget
    )


REWARDS_KIND = register(RewardsKind())
