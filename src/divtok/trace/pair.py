"""Two models that read the same trajectory: trajectories in, traces out.

Knows how rows are padded, run and sorted out; not where trajectories come from or where traces
go, and no threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.errors import DataError, ModelError, UsageError
from divtok.models import DType, Tokenizer
from divtok.records import PER_TOKEN_FIELDS, Trace, TraceStatus, Trajectory
from divtok.trace.heads import pair_metrics
from divtok.trace.models import Reader, load_reader
from divtok.trace.spans import answer_tokens, turn_end

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Ids = Sequence[int] | np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Row:
    """One response to trace, as plain ints."""

    key: str
    prompt_ids: list[int]
    token_ids: list[int]
    text: str | None

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The models p and q of a divergence. Their token->id maps must agree; see `load_pair`."""

    p: Reader
    q: Reader
    theta: float | None = None  # the family's, kept for the caller; tracing knows no threshold

    def __post_init__(self) -> None:
        check_same_tokens(self.p, self.q)

    @property
    def vocab_size(self) -> int:
        """The shared vocabulary width: both distributions are cut to it."""
        return min(self.p.head.width, self.q.head.width)

    @property
    def context_length(self) -> int | None:
        """What both models can read, prompt and response together; None without a limit."""
        lengths = [r.context_length for r in (self.p, self.q) if r.context_length is not None]
        return min(lengths, default=None)

    def trace_ids(
        self,
        *,
        prompt_ids: Ids,
        token_ids: Ids,
        key: str = "",
        text: str | None = None,
        workspace_bytes: int | None = None,
    ) -> Trace:
        """Trace one response given as token ids. `text` is what the ids decode to by default."""
        row = _Row(key, _plain(prompt_ids, "prompt_ids"), _plain(token_ids, "token_ids"), text)
        return self._trace_rows([row], workspace_bytes)[0]

    def trace_batch(
        self, trajectories: Sequence[Trajectory], *, workspace_bytes: int | None = None
    ) -> list[Trace]:
        """Trace trajectories in one padded batch through each model; one trace each, in order.

        A response without tokens, one too long for either model and one with broken logits get a
        trace with that status. `plan_batches` says which trajectories to take together.
        """
        rows = [
            _Row(
                t.key, _plain(t.prompt_ids, "prompt_ids"), _plain(t.token_ids, "token_ids"), t.text
            )
            for t in trajectories
        ]
        return self._trace_rows(rows, workspace_bytes)

    def _trace_rows(self, rows: Sequence[_Row], workspace_bytes: int | None) -> list[Trace]:
        for row in rows:
            self._check_ids(row)
        traces = [self._unreadable(row) for row in rows]
        readable = [row for row, trace in zip(rows, traces, strict=True) if trace is None]
        done = iter(self._read(readable, workspace_bytes))
        return [next(done) if trace is None else trace for trace in traces]

    def _check_ids(self, row: _Row) -> None:
        if row.token_ids and not row.prompt_ids:
            raise UsageError(
                f"Trajectory '{row.key}' has no prompt tokens, so nothing predicts its first.",
                next_step="Give at least one prompt token, such as the begin-of-text token.",
            )
        for name, ids in (("prompt", row.prompt_ids), ("response", row.token_ids)):
            for position, token in enumerate(ids):
                if not 0 <= token < self.vocab_size:
                    raise UsageError(
                        f"Token id {token} at {name} position {position} of trajectory "
                        f"'{row.key}' lies outside the shared vocabulary of {self.vocab_size}.",
                        next_step="Trace with models of the generator's family.",
                    )

    def _unreadable(self, row: _Row) -> Trace | None:
        if not row.token_ids:
            return self._failed(row, "empty", "the response has no tokens")
        for reader in (self.p, self.q):
            limit = reader.context_length
            if limit is not None and row.length > limit:
                return self._failed(
                    row,
                    "too_long",
                    f"prompt {len(row.prompt_ids)} + response {len(row.token_ids)} = {row.length} "
                    f"tokens, {reader.name} reads {limit}",
                )
        return None

    def _read(self, rows: Sequence[_Row], workspace_bytes: int | None) -> list[Trace]:
        import torch

        if not rows:
            return []
        with torch.inference_mode():
            metrics = pair_metrics(
                _response_states(self.p, rows),
                self.p.head,
                _response_states(self.q, rows),
                self.q.head,
                [token for row in rows for token in row.token_ids],
                vocab_size=self.vocab_size,
                workspace_bytes=workspace_bytes,
            )
        columns = {f.name: getattr(metrics, f.name).cpu().numpy() for f in fields(metrics)}
        traces: list[Trace] = []
        start = 0
        for row in rows:
            stop = start + len(row.token_ids)
            traces.append(self._trace(row, {n: c[start:stop] for n, c in columns.items()}))
            start = stop
        return traces

    def _trace(self, row: _Row, columns: dict[str, np.ndarray[Any, Any]]) -> Trace:
        """One row's trace from its slice [T] of every metric."""
        for reader, finite in ((self.p, columns["finite_p"]), (self.q, columns["finite_q"])):
            if not finite.all():
                return self._failed(
                    row,
                    "nonfinite",
                    f"the logits of {reader.name} are no distribution (NaN, +inf or all masked) "
                    f"at response token {int(np.argmin(finite))} of {len(finite)}",
                )
        text = row.text
        if text is None:
            text = self.p.tokenizer.decode(
                row.token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        try:
            answer = answer_tokens(self.p.tokenizer, row.token_ids, text)
        except DataError as error:
            what = f"Trajectory '{row.key}': {error.what}"
            raise DataError(what, next_step=error.next_step) from error
        per_token: dict[str, Any] = {name: columns[name].copy() for name in PER_TOKEN_FIELDS}
        return Trace(
            key=row.key,
            p=self.p.name,
            q=self.q.name,
            **per_token,
            answer_start=None if answer is None else answer[0],
            answer_stop=None if answer is None else answer[1],
            turn_end=turn_end(row.token_ids, self.p.end_ids | self.q.end_ids),
            dropped_mass_p=float(columns["dropped_p"].max()),
            dropped_mass_q=float(columns["dropped_q"].max()),
        )

    def _failed(self, row: _Row, status: TraceStatus, reason: str) -> Trace:
        nothing: dict[str, Any] = {name: np.empty(0, dtype=np.float32) for name in PER_TOKEN_FIELDS}
        return Trace(
            key=row.key,
            p=self.p.name,
            q=self.q.name,
            **nothing,
            answer_start=None,
            answer_stop=None,
            turn_end=0,
            dropped_mass_p=0.0,  # the largest over no positions
            dropped_mass_q=0.0,
            status=status,
            reason=reason,
        )


def load_pair(
    p_ref: str,
    q_ref: str,
    *,
    p_revision: str | None = None,
    q_revision: str | None = None,
    dtype: DType = "auto",
    p_device: str | torch.device | None = None,
    q_device: str | torch.device | None = None,
    trust_remote_code: bool = False,
) -> Pair:
    """Load p and q for tracing; ModelError where they cannot be read or do not fit together."""
    p = load_reader(
        p_ref,
        revision=p_revision,
        dtype=dtype,
        device=p_device,
        trust_remote_code=trust_remote_code,
    )
    q = load_reader(
        q_ref,
        revision=q_revision,
        dtype=dtype,
        device=q_device,
        trust_remote_code=trust_remote_code,
    )
    return Pair(p, q)


def check_same_tokens(p: Reader, q: Reader) -> None:
    """Refuse two models that give one id to different tokens.

    Only ids that both tokenizers know are compared: one may have more tokens behind the other's.
    """
    by_id_p, by_id_q = _tokens_by_id(p.tokenizer), _tokens_by_id(q.tokenizer)
    shared = min(max(by_id_p, default=-1), max(by_id_q, default=-1)) + 1
    different = [i for i in range(shared) if by_id_p.get(i) != by_id_q.get(i)]
    if not different:
        return
    examples = "; ".join(
        f"id {i} is {by_id_p.get(i)!r} and {by_id_q.get(i)!r}" for i in different[:3]
    )
    raise ModelError(
        f"'{p.name}' and '{q.name}' do not share their vocabulary: {len(different)} of {shared} "
        f"ids stand for different tokens ({examples}).",
        next_step="Use two models of one family.",
    )


def _tokens_by_id(tokenizer: Tokenizer) -> dict[int, str]:
    return {index: token for token, index in tokenizer.get_vocab().items()}


def _response_states(reader: Reader, rows: Sequence[_Row]) -> Tensor:
    """Hidden states that predict the response tokens of all rows, one after another: [sum T, D]."""
    import torch

    # The last token predicts nothing that is asked for, so it is not read.
    inputs = [torch.tensor((row.prompt_ids + row.token_ids)[:-1]) for row in rows]
    ids = torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True, padding_value=0)
    lengths = torch.tensor([len(row) for row in inputs])
    columns = torch.arange(ids.shape[1])
    prompts = torch.tensor([len(row.prompt_ids) for row in rows])
    read = columns < lengths[:, None]
    predicts = read & (columns >= prompts[:, None] - 1)
    hidden = reader.trunk(ids.to(reader.device), read.long().to(reader.device))
    return hidden[predicts.to(hidden.device)]


def _plain(ids: Ids, name: str) -> list[int]:
    """Token ids as ints; refuses anything that is not a flat row of integers."""
    array = np.asarray(ids)
    if array.size == 0:
        return []
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"{name} must be a flat sequence of integers, not {array.dtype} of shape "
            f"{list(array.shape)}."
        )
    return [int(token) for token in array]
