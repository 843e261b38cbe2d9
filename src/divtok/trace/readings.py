"""What one more model makes of a response: its log-probabilities of the tokens, or its states.

Reads a paired base model (BaseCal) behind the chat prompt or behind the bare question. Knows
neither which model belongs to which, nor what a confidence is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from divtok.errors import UsageError
from divtok.packed.packs import build_pack
from divtok.protocols.encode import plain_prompt_ids
from divtok.records import FloatArray, Reading, ReadingKind, Reason, Trajectory
from divtok.trace.batches import Row, check_ids, read_rows, row_of, unreadable
from divtok.trace.budget import Budget
from divtok.trace.head_stage import default_workspace
from divtok.trace.kernels.common import FLOAT_BYTES, Head, head_logits
from divtok.trace.reader import Reader

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Hidden states [T, D] after the final norm, each of which predicts a response token.

    On the CPU, in the model's own number format. Where `reason` is set there are none.
    """

    key: str
    values: Tensor
    reason: str | None = None


def token_logprobs(
    states: Tensor,
    head: Head,
    targets: Tensor,
    *,
    workspace_bytes: int | None = None,
) -> Tensor:
    """Hidden states [N, D] and the tokens taken [N] -> natural log-probabilities [N] in float32.

    Under the full softmax of the head, on its device. NaN says that a row's logits are no
    distribution (NaN, +inf, or all masked); -inf that the token taken is masked. Logits exist for a
    chunk of rows at a time, within `workspace_bytes` but for at least one row.
    """
    import torch

    device = head.weight.device
    targets = targets.to(device, torch.int64)
    _check_shapes(states, head, targets)
    if workspace_bytes is None:
        workspace_bytes = default_workspace(device)
    if workspace_bytes <= 0:
        raise UsageError(f"workspace_bytes must be positive, not {workspace_bytes}.")
    weight_bytes = workspace_bytes // 4  # for the float32 copy of half-precision weights
    rows = max(1, (workspace_bytes - weight_bytes) // (FLOAT_BYTES * head.width))
    rows = max(1, min(rows, len(states)))
    logprobs = torch.empty(len(states), dtype=torch.float32, device=device)
    with torch.inference_mode():
        buffer = torch.empty(rows, head.width, dtype=torch.float32, device=device)
        for start in range(0, len(states), rows):
            chunk = slice(start, start + rows)
            logits = head_logits(head, states[chunk], out=buffer, weight_bytes=weight_bytes)
            # In place, so that one buffer is enough. Whatever is not a distribution turns NaN.
            logits -= logits.amax(dim=-1, keepdim=True)
            taken = logits.gather(1, targets[chunk, None])[:, 0]
            logprobs[chunk] = taken - logits.exp_().sum(dim=-1).log()
    return logprobs


def read_trajectories(
    reader: Reader,
    trajectories: Sequence[Trajectory],
    *,
    kind: ReadingKind,
    questions: Sequence[str] | None = None,
    budget: Budget | None = None,
) -> list[Reading]:
    """One model's log-probabilities of each response, in order.

    "base_chat" reads behind the trajectory's own prompt, "base_plain" behind the bare question;
    `questions` then has one for each trajectory. A response without tokens, one too long and one
    with broken logits get none, and the reason.
    """
    import torch

    if kind == "base_chat":
        rows = [row_of(t) for t in trajectories]
    elif kind == "base_plain" and questions is not None and len(questions) == len(trajectories):
        known = {question: plain_prompt_ids(reader.tokenizer, question) for question in questions}
        rows = [row_of(t, known[q]) for t, q in zip(trajectories, questions, strict=True)]
    else:
        raise UsageError(
            f"A reading of the kind '{kind}' cannot be made from {len(trajectories)} trajectories "
            f"and {len(questions or ())} questions.",
            next_step="Use base_chat, or base_plain with a question for each trajectory.",
        )

    def read(states: Tensor, rows: Sequence[Row], workspace_bytes: int) -> list[Reading]:
        tokens = torch.from_numpy(np.concatenate([row.token_ids for row in rows]))
        found = token_logprobs(states, reader.head, tokens, workspace_bytes=workspace_bytes)
        cuts = np.cumsum([len(row.token_ids) for row in rows])[:-1]
        parts = np.split(found.cpu().numpy(), cuts)
        return [
            make_reading(row.key, reader.name, kind, part)
            for row, part in zip(rows, parts, strict=True)
        ]

    def failed(key: str, reason: str) -> Reading:
        return failed_reading(key, reader.name, kind, reason)

    return _read(reader, rows, read, failed, budget=budget, doing=f"readings ({kind})")


def make_reading(key: str, model: str, kind: ReadingKind, logprob: FloatArray) -> Reading:
    """Log-probabilities [T] as a reading; where one is NaN, none and why."""
    broken = np.isnan(logprob)
    if not broken.any():
        return Reading(key, model, kind, logprob.copy())
    return failed_reading(
        key,
        model,
        kind,
        f"the logits of {model} are no distribution (NaN, +inf or all masked) at response "
        f"token {int(np.argmax(broken))} of {len(logprob)}",
    )


def failed_reading(key: str, model: str, kind: ReadingKind, reason: str) -> Reading:
    return Reading(key, model, kind, np.empty(0, dtype=np.float32), reason)


def read_states(
    reader: Reader, trajectories: Sequence[Trajectory], *, budget: Budget | None = None
) -> list[States]:
    """The hidden states that predict each response's tokens, in order."""
    import torch

    def read(states: Tensor, rows: Sequence[Row], workspace_bytes: int) -> list[States]:
        parts = states.cpu().split([len(row.token_ids) for row in rows])
        return [
            States(row.key, part.clone())
            if bool(part.isfinite().all())
            else failed(row.key, broken)
            for row, part in zip(rows, parts, strict=True)
        ]

    def failed(key: str, reason: str) -> States:
        nothing = torch.empty(0, reader.head.weight.shape[1], dtype=reader.dtype)
        return States(key, nothing, reason)

    broken = f"the hidden states of {reader.name} are no numbers (NaN or inf)"
    rows = [row_of(t) for t in trajectories]
    return _read(reader, rows, read, failed, budget=budget, doing="states")


def _read(
    reader: Reader,
    rows: Sequence[Row],
    read: Callable[[Tensor, Sequence[Row], int], Sequence[T]],
    failed: Callable[[str, str], T],
    *,
    budget: Budget | None,
    doing: str,
) -> list[T]:
    """`read(hidden states [sum T, D], their rows, workspace bytes)` for all rows, pack by pack."""
    import torch

    def read_pack(rows: Sequence[Row], workspace_bytes: int) -> Sequence[T]:
        pack = build_pack([row.prompt_ids for row in rows], [row.token_ids for row in rows])
        with torch.inference_mode():
            return read(reader.states(pack), rows, workspace_bytes)

    def refused(row: Row) -> T | None:
        check_ids(row, reader.head.width)
        why = unreadable(row, reader)
        return None if why is None else failed(row.key, Reason(*why))

    return read_rows(
        rows,
        read_pack,
        refused=[refused(row) for row in rows],
        budget=budget,
        device=reader.device,
        switches=[reader.length_switch],
        doing=doing,
    )


def _check_shapes(states: Tensor, head: Head, targets: Tensor) -> None:
    if states.ndim != 2 or states.shape[1] != head.weight.shape[1]:
        raise UsageError(
            f"Hidden states have shape {list(states.shape)}; the head of shape "
            f"{list(head.weight.shape)} needs [N, {head.weight.shape[1]}]."
        )
    if targets.shape != states.shape[:1]:
        raise UsageError(f"{len(states)} hidden states for tokens of shape {list(targets.shape)}.")
    outside = (targets < 0) | (targets >= head.width)
    if bool(outside.any()):
        position = int(outside.nonzero()[0, 0])
        raise UsageError(
            f"Token id {int(targets[position])} at position {position} lies outside the "
            f"vocabulary of {head.width}."
        )
