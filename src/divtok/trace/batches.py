"""Rows in, one result each out, as many at once as memory allows.

Knows how responses are grouped into packs and what to do when memory runs out; what is read from a
pack is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from divtok.errors import ResourceError, UsageError
from divtok.memory import is_out_of_memory
from divtok.packed.packs import Ids, Indices, plan_packs
from divtok.progress import notice
from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.extract import find_answer
from divtok.records import TraceStatus, Trajectory
from divtok.trace.budget import Budget
from divtok.trace.head_stage import default_workspace

if TYPE_CHECKING:
    import torch

    from divtok.trace.reader import Reader
    from divtok.trace.topk.server_model import ServerModel

T = TypeVar("T")


class Unknown(Enum):
    """Not looked for yet, other than None: not there."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One response to read behind its prompt. `text` is what its ids decode to where not given.

    `answer` is the final answer in the text, where that is known already.
    """

    key: str
    prompt_ids: Indices
    token_ids: Indices
    text: str | None = None
    protocol: str = "cot"
    answer: AnswerSpan | Unknown | None = UNKNOWN

    def find_answer(self, text: str) -> AnswerSpan | None:
        """The final answer of this response; `text` may differ from its own by white space only."""
        if text == self.text and not isinstance(self.answer, Unknown):
            return self.answer
        return find_answer(text, self.protocol)

    @property
    def prompt_key(self) -> bytes:
        """Tells equal prompts."""
        return self.prompt_ids.tobytes()

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


R = TypeVar("R", bound=Row)


def row_of(
    trajectory: Trajectory,
    prompt: Ids | None = None,
    *,
    answers: Mapping[str, AnswerSpan | None] | None = None,
) -> Row:
    """A trajectory to read, behind its own prompt or another one.

    `answers` has the final answers by trajectory key, as far as they were found before.
    """
    t = trajectory
    return Row(
        t.key,
        plain_ids(t.prompt_ids if prompt is None else prompt, "prompt_ids"),
        plain_ids(t.token_ids, "token_ids"),
        t.text,
        t.protocol,
        UNKNOWN if answers is None else answers.get(t.key, UNKNOWN),
    )


def read_rows(
    rows: Sequence[R],
    read: Callable[[Sequence[R], int], Sequence[T]],
    *,
    device: torch.device,
    refused: Sequence[T | None] = (),
    budget: Budget | None = None,
    switches: Sequence[int | None] = (),
    doing: str = "trace",
) -> list[T]:
    """`read(rows of one pack, workspace bytes)` for all rows; results in the rows' order.

    `refused` has the result of each row that is not to be read, and None for the others. Where
    memory runs out the budget shrinks, which is noted, and what is left is planned anew. Rows on
    different sides of a length switch are never read together.
    """
    budget = budget or Budget()
    results = {i: result for i, result in enumerate(refused) if result is not None}
    packs = _plan(rows, [i for i in range(len(rows)) if i not in results], budget, switches)
    while packs:
        done = _within_memory([rows[i] for i in packs[0]], read, budget, device, doing)
        if done is None:
            packs = _plan(rows, [i for pack in packs for i in pack], budget, switches)
            continue
        results |= zip(packs.pop(0), done, strict=True)
    return [results[i] for i in range(len(rows))]


def check_ids(row: Row, width: int) -> None:
    """Refuse ids that the vocabulary has not, and a response that nothing predicts."""
    if len(row.token_ids) and not len(row.prompt_ids):
        raise UsageError(
            f"Trajectory '{row.key}' has no prompt tokens, so nothing predicts its first.",
            next_step="Give at least one prompt token, such as the begin-of-text token.",
        )
    for name, ids in (("prompt", row.prompt_ids), ("response", row.token_ids)):
        outside = (ids < 0) | (ids >= width)
        if outside.any():
            position = int(outside.argmax())
            raise UsageError(
                f"Token id {ids[position]} at {name} position {position} of trajectory "
                f"'{row.key}' lies outside the vocabulary of {width} that is read.",
                next_step="Read with models of the generator's family.",
            )


def unreadable(row: Row, *models: Reader | ServerModel) -> tuple[TraceStatus, str] | None:
    """The status and the reason of a row that these models cannot read; None where they can."""
    if not len(row.token_ids):
        return "empty", "the response has no tokens"
    lengths = f"prompt {len(row.prompt_ids)} + response {len(row.token_ids)} = {row.length} tokens"
    for model in models:
        if model.context_length is not None and row.length > model.context_length:
            return "too_long", f"{lengths}, {model.name} reads {model.context_length}"
    return None


def plain_ids(ids: Ids, name: str) -> Indices:
    """Token ids as an array; refuses anything that is not a flat row of integers."""
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"{name} must be a flat sequence of integers, not {array.dtype} of shape "
            f"{list(array.shape)}."
        )
    return array.astype(np.int64)


def _plan(
    rows: Sequence[Row], indices: Sequence[int], budget: Budget, switches: Sequence[int | None]
) -> list[list[int]]:
    """The given rows' indices in packs that the budget allows."""
    sides: dict[tuple[bool, ...], list[int]] = {}
    for index in indices:
        side = tuple(rows[index].length - 1 > switch for switch in switches if switch is not None)
        sides.setdefault(side, []).append(index)
    packs: list[list[int]] = []
    for side in sides.values():
        planned = plan_packs(
            [rows[index].prompt_key for index in side],
            [len(rows[index].prompt_ids) for index in side],
            [len(rows[index].token_ids) for index in side],
            max_tokens=budget.tokens,
            max_rows=len(side),
        )
        packs += [[side[place] for place in pack] for pack in planned]
    return packs


def _within_memory(
    rows: Sequence[R],
    read: Callable[[Sequence[R], int], Sequence[T]],
    budget: Budget,
    device: torch.device,
    doing: str,
) -> Sequence[T] | None:
    """Results of one pack, or None where memory ran out and the budget was made smaller."""
    import torch

    workspace = budget.workspace_bytes or default_workspace(device)
    try:
        return read(rows, workspace)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        cause = str(error).split(". ")[0]
    # Only here, with the failed attempt's tensors gone, is there room again.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    tokens = min(sum(row.length for row in rows), max(budget.tokens, rows[0].length))
    done = budget.shrink(tokens=tokens, responses=len(rows), workspace_bytes=workspace)
    if done is None:
        raise ResourceError(
            f"One response of {tokens:,} tokens (trajectory '{rows[0].key}') does not fit into "
            f"memory ({cause}).",
            next_step="Use a smaller dtype, --device-map auto, or a device with more memory.",
        )
    notice(f"{doing}: out of memory with {tokens:,} tokens at once; {done}")
    return None
