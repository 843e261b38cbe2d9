"""Which responses are learned from, and which are only measured on: apart by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divtok.errors import DataError
from divtok.records import Trajectory
from divtok.trace.batches import Row

HELD_OUT_SHARE = 0.1  # of the problems, and of the tokens


@dataclass(frozen=True, slots=True, eq=False)
class Responses:
    """Rows to learn from and rows held out, with the numbers of problems they answer."""

    learned: list[Row]
    held_out: list[Row]
    problems: int
    held_out_problems: int
    max_length: int
    cut: int  # how many of `learned` were longer


def split_responses(
    rows: Sequence[Trajectory], *, max_tokens: int, max_length: int, seed: int
) -> Responses:
    """A tenth of the problems is held out; of both sides rows in a seeded order are taken.

    As many as hold `max_tokens` response tokens to learn from, and a tenth of that beside; at least
    one row each. Rows are cut to `max_length` tokens with their prompt.
    """
    usable = [row for row in rows if len(row.prompt_ids) < max_length]
    problems = sorted({(row.benchmark, row.problem_id) for row in usable})
    if len(problems) < 2:
        raise DataError(
            f"The responses to learn from answer {len(problems)} problems with prompts below "
            f"{max_length:,} tokens; two are the least, since some are held out.",
            next_step="Generate responses to more problems; some hundreds are usual.",
        )
    shuffle = np.random.default_rng(seed)
    size = max(1, round(HELD_OUT_SHARE * len(problems)))
    apart = {problems[int(i)] for i in shuffle.permutation(len(problems))[:size]}
    order = [usable[int(i)] for i in shuffle.permutation(len(usable))]
    sides = [
        [row for row in order if _problem(row) in apart] for apart in (apart, {*problems} - apart)
    ]
    held_out = _some(sides[0], max(1, round(HELD_OUT_SHARE * max_tokens)), max_length)
    learned = _some(sides[1], max_tokens, max_length)
    return Responses(
        [_row(row, max_length) for row in learned],
        [_row(row, max_length) for row in held_out],
        problems=len({_problem(row) for row in learned}),
        held_out_problems=len({_problem(row) for row in held_out}),
        max_length=max_length,
        cut=sum(_length(row) > max_length for row in learned),
    )


def _problem(row: Trajectory) -> tuple[str, str]:
    return row.benchmark, row.problem_id


def _length(row: Trajectory) -> int:
    return len(row.prompt_ids) + len(row.token_ids)


def _some(rows: Sequence[Trajectory], max_tokens: int, max_length: int) -> list[Trajectory]:
    chosen: list[Trajectory] = []
    tokens = 0
    for row in rows:
        tokens += min(len(row.token_ids), max_length - len(row.prompt_ids))
        if chosen and tokens > max_tokens:
            break
        chosen.append(row)
    return chosen


def _row(row: Trajectory, max_length: int) -> Row:
    prompt = np.asarray(row.prompt_ids, dtype=np.int64)
    tokens = np.asarray(row.token_ids, dtype=np.int64)[: max_length - len(prompt)]
    return Row(row.key, prompt, tokens)
