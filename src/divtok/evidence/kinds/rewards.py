"""What a process reward model gives to each line of a response: one more model reads it.

How long a response may be (`prm.max_length`) is applied to what is stored as well, so that it may
change at any time: a row that is too long now is passed over, and comes back when it no longer is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from divtok.config.loading import digest_of, dtype_of, load_options, packs_of
from divtok.config.run import RunConfig, read_config
from divtok.errors import command
from divtok.evidence.kind import (
    EvidenceKind,
    Find,
    Gathering,
    Lacking,
    ReadOn,
    failed_records,
    of_table,
    register,
)
from divtok.evidence.prm import TOO_LONG, MaxLength, load_prm, over_length
from divtok.progress import say
from divtok.records import Reason, StepRewards, Trajectory, reason_kind
from divtok.store.columns import floats, reason, text, whole
from divtok.store.layout import Layout
from divtok.store.responses import Response, rows_of
from divtok.store.run import CONFIG_FILE, Run
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
        whole("length", nullable=True, unit="tokens"),
        whole("trained_length", nullable=True, unit="tokens"),
    ),
)


class RewardsKind(EvidenceKind[StepRewards]):
    name = "rewards"
    summary = "What a process reward model gives to each line of a response."
    layout = REWARDS

    def refuse(self, config: RunConfig) -> Lacking | None:
        if config.reward_model is None:
            return Lacking("the family has no reward model", "evidence.prm=MODEL")
        return None

    def models(self, config: RunConfig) -> Sequence[str]:
        return [] if config.reward_model is None else [config.reward_model]

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
        if not work.retry_failed:
            _say_allowed_now(work, prm)
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
        max_length = work.config.prm.max_length

        def found(response: Response) -> StepRewards | None:
            row = rows.get((response.key, prm))
            return None if row is None else _within(row, max_length)

        return found

    def read_on(self, run: Run, config: RunConfig) -> ReadOn | None:
        found: dict[str, bool] = {}
        trained: int | None = None
        names = ("key", "model", "length", "trained_length")
        for key, model, length, limit in rows_of(run.table(REWARDS), names):
            if model == config.reward_model and length is not None and limit is not None:
                found[key], trained = length > limit, limit
        if trained is None:
            return None
        return ReadOn(trained, frozenset(key for key, beyond in found.items() if beyond))

    def failures(self, run: Run) -> list[str]:
        """A refusal that no longer holds is worth another try, and says so."""
        table, text = run.table(REWARDS), run.config_text()
        allowed = None if text is None else read_config(text, source=CONFIG_FILE).prm.max_length
        return [
            of_table(table, Reason("allowed_now", f"{row.reason}, which it may be now"))
            if _allowed_now(row, allowed)
            else of_table(table, row.reason)
            for row in failed_records(table)
        ]


def _prm(config: RunConfig) -> str:
    assert config.reward_model is not None  # refused before
    return config.reward_model


def _within(row: StepRewards, max_length: MaxLength) -> StepRewards:
    """The row, or the same without its rewards where it is longer than is allowed now."""
    if row.reason is not None or max_length is None:
        return row
    if row.length is not None:
        refused = over_length(row.model, row.length, row.trained_length, max_length)
    elif max_length == "trained":
        return row  # older versions read nothing that was longer
    else:
        why = "an earlier version read it and kept no length, so prm.max_length cannot be applied"
        refused = Reason("no_length", why)
    if refused is None:
        return row
    return replace(row, rewards=np.empty(0, dtype=np.float32), reason=refused)


def _allowed_now(row: StepRewards, max_length: MaxLength) -> bool:
    """Whether a row was refused for a length that is not refused any more.

    Older versions read no row beyond what the model was trained on, and kept no length.
    """
    if reason_kind(row.reason) != TOO_LONG:
        return False
    if row.length is None:
        return max_length != "trained"
    return over_length(row.model, row.length, row.trained_length, max_length) is None


def _say_allowed_now(work: Gathering, prm: str) -> None:
    max_length = work.config.prm.max_length
    refused = [row for row in failed_records(work.run.table(REWARDS)) if row.model == prm]
    count = sum(_allowed_now(row, max_length) for row in refused)
    if count:
        many = "1 response was" if count == 1 else f"{count} responses were"
        say(
            f"reward with {prm}: {many} refused as too long, which is read now; to have "
            f"{'it' if count == 1 else 'them'} read: "
            f"{command('gather', work.run.path, '--retry-failed')}"
        )


def _rewards(work: Gathering, prm: str) -> Callable[[Sequence[Trajectory]], list[StepRewards]]:
    config, questions = work.config, work.questions()
    model = load_prm(prm, **load_options(config, prm))
    budget = config.trace.budget()
    return lambda batch: model.rewards(
        [(t.key, questions[t.benchmark, t.problem_id], t.text) for t in batch],
        max_length=config.prm.max_length,
        budget=budget,
    )


REWARDS_KIND = register(RewardsKind())
