"""Two models that read the same trajectory: trajectories in, traces out.

Knows how responses are packed, read and sorted out; not where trajectories come from or where
traces go, and no threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.errors import DataError, ModelError, ResourceError, UsageError
from divtok.models import DType, Tokenizer
from divtok.progress import say
from divtok.records import PER_TOKEN_FIELDS, Trace, TraceStatus, Trajectory
from divtok.trace.budget import Budget, is_out_of_memory
from divtok.trace.heads import default_workspace, pair_metrics
from divtok.trace.models import Reader, load_reader
from divtok.trace.packs import Ids, Indices, Pack, build_pack, plan_packs
from divtok.trace.spans import answer_tokens, turn_end

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class _Row:
    """One response to trace. `prompt_key` tells equal prompts."""

    key: str
    prompt_ids: Indices
    token_ids: Indices
    text: str | None

    @property
    def prompt_key(self) -> bytes:
        return self.prompt_ids.tobytes()

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
        budget: Budget | None = None,
    ) -> Trace:
        """Trace one response given as token ids. `text` is what the ids decode to by default."""
        row = _Row(key, _plain(prompt_ids, "prompt_ids"), _plain(token_ids, "token_ids"), text)
        return self._trace_rows([row], budget or Budget())[0]

    def trace_batch(
        self, trajectories: Sequence[Trajectory], *, budget: Budget | None = None
    ) -> list[Trace]:
        """Trace trajectories, as many at once as the budget allows; one trace each, in order.

        A response without tokens, one too long for either model and one with broken logits get a
        trace with that status. Where memory runs out, the budget shrinks and the work goes on; give
        the same budget to the next call, so that it starts from what fits.
        """
        rows = [
            _Row(
                t.key, _plain(t.prompt_ids, "prompt_ids"), _plain(t.token_ids, "token_ids"), t.text
            )
            for t in trajectories
        ]
        return self._trace_rows(rows, budget or Budget())

    def _trace_rows(self, rows: Sequence[_Row], budget: Budget) -> list[Trace]:
        for row in rows:
            self._check_ids(row)
        traces = [self._unreadable(row) for row in rows]
        packs = self._plan(rows, [i for i, trace in enumerate(traces) if trace is None], budget)
        while packs:
            done = self._read_within_memory([rows[index] for index in packs[0]], budget)
            if done is None:
                packs = self._plan(rows, [index for pack in packs for index in pack], budget)
                continue
            for index, trace in zip(packs.pop(0), done, strict=True):
                traces[index] = trace
        return [trace for trace in traces if trace is not None]

    def _plan(
        self, rows: Sequence[_Row], indices: Sequence[int], budget: Budget
    ) -> list[list[int]]:
        """The given rows' indices in packs that the budget allows.

        Rows on different sides of a model's length switch are never read together.
        """
        switches = [r.length_switch for r in (self.p, self.q) if r.length_switch is not None]
        sides: dict[tuple[bool, ...], list[int]] = {}
        for index in indices:
            side = tuple(rows[index].length - 1 > switch for switch in switches)
            sides.setdefault(side, []).append(index)
        return [pack for side in sides.values() for pack in _plan_side(rows, side, budget)]

    def _read_within_memory(self, rows: Sequence[_Row], budget: Budget) -> list[Trace] | None:
        """Traces of one pack, or None where memory ran out and the budget was made smaller."""
        import torch

        workspace = budget.workspace_bytes or default_workspace(self.p.device)
        try:
            return self._read(rows, workspace)
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
        say(f"trace: out of memory with {tokens:,} tokens at once; {done}")
        return None

    def _check_ids(self, row: _Row) -> None:
        if len(row.token_ids) and not len(row.prompt_ids):
            raise UsageError(
                f"Trajectory '{row.key}' has no prompt tokens, so nothing predicts its first.",
                next_step="Give at least one prompt token, such as the begin-of-text token.",
            )
        for name, ids in (("prompt", row.prompt_ids), ("response", row.token_ids)):
            outside = (ids < 0) | (ids >= self.vocab_size)
            if outside.any():
                position = int(outside.argmax())
                raise UsageError(
                    f"Token id {ids[position]} at {name} position {position} of trajectory "
                    f"'{row.key}' lies outside the shared vocabulary of {self.vocab_size}.",
                    next_step="Trace with models of the generator's family.",
                )

    def _unreadable(self, row: _Row) -> Trace | None:
        if not len(row.token_ids):
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

    def _read(self, rows: Sequence[_Row], workspace_bytes: int) -> list[Trace]:
        import torch

        pack = build_pack([row.prompt_ids for row in rows], [row.token_ids for row in rows])
        with torch.inference_mode():
            metrics = pair_metrics(
                _response_states(self.p, pack),
                self.p.head,
                _response_states(self.q, pack),
                self.q.head,
                np.concatenate([row.token_ids for row in rows]),
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
        tokens = row.token_ids.tolist()
        text = row.text
        if text is None:
            text = self.p.tokenizer.decode(
                tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        try:
            answer = answer_tokens(self.p.tokenizer, tokens, text)
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
            turn_end=turn_end(tokens, self.p.end_ids | self.q.end_ids),
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
    device_map: str | None = None,
    trust_remote_code: bool = False,
    compile_trunks: bool = False,
) -> Pair:
    """Load p and q for tracing; ModelError where they cannot be read or do not fit together.

    They may lie on different devices, or with `device_map` each be spread over all of them.
    """
    p, q = (
        load_reader(
            ref,
            revision=revision,
            dtype=dtype,
            device=device,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            compile_trunk=compile_trunks,
        )
        for ref, revision, device in (
            (p_ref, p_revision, p_device),
            (q_ref, q_revision, q_device),
        )
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


def _plan_side(rows: Sequence[_Row], indices: Sequence[int], budget: Budget) -> list[list[int]]:
    packs = plan_packs(
        [rows[index].prompt_key for index in indices],
        [len(rows[index].prompt_ids) for index in indices],
        [len(rows[index].token_ids) for index in indices],
        max_tokens=budget.tokens,
        max_rows=max(1, len(indices)),
    )
    return [[indices[place] for place in pack] for pack in packs]


def _response_states(reader: Reader, pack: Pack) -> Tensor:
    """Hidden states that predict the response tokens, one lane after another: [sum T, D]."""
    import torch

    hidden = reader.trunk(pack)
    return hidden[torch.from_numpy(pack.predicts).to(hidden.device)]


def _plain(ids: Ids, name: str) -> Indices:
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
