"""Two models that read the same trajectory: trajectories in, traces out.

Knows how responses are packed, read and sorted out; not where trajectories come from or where
traces go, and no threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import numpy as np

from divtok.divergences.divergence import Divergence
from divtok.errors import ModelError, command
from divtok.models.load import PairOptions, Tokenizer
from divtok.packed.packs import Ids, build_pack
from divtok.protocols.boxed import AnswerSpan
from divtok.records import BOUND_FIELDS, Trace, Trajectory
from divtok.trace.assemble import trace_of, trace_without_numbers
from divtok.trace.batches import Row, check_ids, plain_ids, read_rows, row_of, unreadable
from divtok.trace.budget import Budget
from divtok.trace.head_stage import pair_metrics
from divtok.trace.listener import Listener, Passage, Read
from divtok.trace.reader import Reader, load_reader, predicting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Column = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is asked of a pass beside the trace of old: other divergences, and listeners."""

    divergences: Sequence[Divergence] = ()
    listeners: Sequence[Listener] = ()

    def unread(self, trace: Trace, model: str) -> Read:
        """For a trajectory that was not read: the same reason everywhere."""
        return Read(trace, [listener.unread(trace, model) for listener in self.listeners])


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Pair:
    """The models p and q of a divergence. Their token->id maps must agree; see `load_pair`.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> trace = pair.trace_ids(prompt_ids=[1, 5, 9], token_ids=[12, 13])
        >>> trace.p, len(trace.jsd_bits)
        ('divtok/tiny-0.5m', 2)
    """

    p: Reader
    q: Reader
    family: str | None = None  # whose name it was loaded by, kept for the caller

    def __post_init__(self) -> None:
        check_vocabularies(self.p.name, self.p.tokenizer, self.q.name, self.q.tokenizer)

    def __repr__(self) -> str:
        family = "" if self.family is None else f" of the family '{self.family}'"
        return f"<Pair{family}\n  p: {self.p!r}\n  q: {self.q!r}>"

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
        prompt, tokens = plain_ids(prompt_ids, "prompt_ids"), plain_ids(token_ids, "token_ids")
        row = Row(key, prompt, tokens, text)
        return self.read_row(row, budget=budget).trace

    def read_row(
        self, row: Row, *, budget: Budget | None = None, asked: Asked | None = None
    ) -> Read:
        """One response, with what else is asked of the same passes."""
        return self.read_rows([row], budget=budget, asked=asked)[0]

    def trace_batch(
        self, trajectories: Sequence[Trajectory], *, budget: Budget | None = None
    ) -> list[Trace]:
        """Trace trajectories, as many at once as the budget allows; one trace each, in order.

        A response without tokens, one too long for either model and one with broken logits get a
        trace with that status. Where memory runs out, the budget shrinks and the work goes on; give
        the same budget to the next call, so that it starts from what fits.
        """
        return [read.trace for read in self.read_batch(trajectories, budget=budget)]

    def read_batch(
        self,
        trajectories: Sequence[Trajectory],
        *,
        budget: Budget | None = None,
        asked: Asked | None = None,
        answers: Mapping[str, AnswerSpan | None] | None = None,
    ) -> list[Read]:
        """Like `trace_batch`, with what else is asked of the same passes.

        `answers` has the final answers by trajectory key, as far as they were found before.
        """
        rows = [row_of(trajectory, answers=answers) for trajectory in trajectories]
        return self.read_rows(rows, budget=budget, asked=asked)

    def read_rows(
        self,
        rows: Sequence[Row],
        *,
        budget: Budget | None = None,
        asked: Asked | None = None,
    ) -> list[Read]:
        """`read_batch` for rows, which need not be trajectories."""
        asked = asked or Asked()

        def unread(row: Row) -> Read | None:
            trace = refused(self, row)
            return None if trace is None else asked.unread(trace, self.p.name)

        return read_rows(
            rows,
            lambda pack_rows, workspace: self._read(pack_rows, workspace, asked),
            refused=[unread(row) for row in rows],
            budget=budget,
            device=self.p.device,
            switches=[self.p.length_switch, self.q.length_switch],
        )

    def _read(self, rows: Sequence[Row], workspace_bytes: int, asked: Asked) -> list[Read]:
        import torch

        pack = build_pack(
            [row.prompt_ids for row in rows],
            [row.token_ids for row in rows],
            whole=any(listener.whole for listener in asked.listeners),
        )
        # Only packed trunks show their attention.
        sinks = [listener.sink(pack) if self.p.packed else None for listener in asked.listeners]
        with torch.inference_mode():
            hidden = self.p.trunk(pack, [sink for sink in sinks if sink is not None])
            states = predicting(hidden, pack)
            traces = traces_from_states(
                self, rows, states, self.q.states(pack), workspace_bytes, asked.divergences
            )
            targets = np.concatenate([row.token_ids for row in rows])
            passage = Passage(self.p, rows, traces, pack, hidden, states, targets, workspace_bytes)
            heard = [
                listener.hear(passage, sink)
                for listener, sink in zip(asked.listeners, sinks, strict=True)
            ]
        return [Read(trace, records) for trace, *records in zip(traces, *heard, strict=True)]


def refused(pair: Pair, row: Row) -> Trace | None:
    """The trace of a row that one of the models cannot read; None where both can."""
    check_ids(row, pair.vocab_size)
    why = unreadable(row, pair.p, pair.q)
    return None if why is None else trace_without_numbers(row, pair.p.name, pair.q.name, *why)


def traces_from_states(
    pair: Pair,
    rows: Sequence[Row],
    states_p: Tensor,
    states_q: Tensor,
    workspace_bytes: int,
    others: Sequence[Divergence] = (),
) -> list[Trace]:
    """The trace of each row, from the states [sum T, D] that predict the tokens of all rows."""
    metrics = pair_metrics(
        states_p,
        pair.p.head,
        states_q,
        pair.q.head,
        np.concatenate([row.token_ids for row in rows]),
        vocab_size=pair.vocab_size,
        workspace_bytes=workspace_bytes,
        others=others,
    )
    columns = {name: column.cpu().numpy() for name, column in metrics.columns().items()}
    ends = np.cumsum([len(row.token_ids) for row in rows])[:-1]
    parts = zip(*(np.split(column, ends) for column in columns.values()), strict=True)
    return [
        trace_from(pair, row, dict(zip(columns, part, strict=True)), metrics.others)
        for row, part in zip(rows, parts, strict=True)
    ]


class Named(Protocol):
    """What a trace says of a model, wherever that is."""

    @property
    def name(self) -> str: ...
    @property
    def tokenizer(self) -> Any: ...  # satisfies divtok.models.load.Tokenizer
    @property
    def end_ids(self) -> frozenset[int]: ...


class TwoNamed(Protocol):
    """Any pair of models."""

    @property
    def p(self) -> Named: ...
    @property
    def q(self) -> Named: ...


def trace_from(
    pair: TwoNamed, row: Row, columns: Mapping[str, Column], others: Iterable[str] = ()
) -> Trace:
    """One row's trace from its slice [T] of every metric, with these other divergences.

    With bounds among the columns it is not exact.
    """
    bounds: dict[str, Any] = {
        name: columns[name].copy() for name in BOUND_FIELDS if name in columns
    }
    for reader, finite in ((pair.p, columns["finite_p"]), (pair.q, columns["finite_q"])):
        if not finite.all():
            return trace_without_numbers(
                row,
                pair.p.name,
                pair.q.name,
                "nonfinite",
                f"the logits of {reader.name} are no distribution (NaN, +inf or all masked) "
                f"at response token {int(np.argmin(finite))} of {len(finite)}",
            )
    return trace_of(
        row,
        pair.p.name,
        pair.q.name,
        {name: column.copy() for name, column in columns.items()},
        tokenizer=pair.p.tokenizer,
        end_ids=pair.p.end_ids | pair.q.end_ids,
        dropped_mass_p=float(columns["dropped_p"].max()),
        dropped_mass_q=float(columns["dropped_q"].max()),
        exact=not bounds,
        **bounds,
        others={name: columns[name].copy() for name in others},
    )


def load_pair(
    p_ref: str,
    q_ref: str,
    *,
    p_revision: str | None = None,
    q_revision: str | None = None,
    p_device: str | torch.device | None = None,
    q_device: str | torch.device | None = None,
    compile_trunks: bool = False,
    **both: Unpack[PairOptions],
) -> Pair:
    """Load p and q for tracing; ModelError where they cannot be read or do not fit together.

    They may lie on different devices, or with `device_map` each be spread over all of them.
    """
    p = load_reader(
        p_ref, revision=p_revision, device=p_device, compile_trunk=compile_trunks, **both
    )
    q = load_reader(
        q_ref, revision=q_revision, device=q_device, compile_trunk=compile_trunks, **both
    )
    return Pair(p, q)


def check_vocabularies(p: str, p_tokenizer: Tokenizer, q: str, q_tokenizer: Tokenizer) -> None:
    """Refuse two models that give one id to different tokens.

    Only ids that both tokenizers know are compared: one may have more tokens behind the other's.
    """
    different = different_tokens(p_tokenizer, q_tokenizer)
    if different:
        raise ModelError(
            f"'{p}' and '{q}' do not share their vocabulary: {different.count} of "
            f"{different.shared} ids stand for different tokens; the first is id {different.id}, "
            f"{_named(different.in_p)} in p and {_named(different.in_q)} in q.",
            next_step="Use two models with one tokenizer, mostly of one series; some are named by: "
            f"{command('pair', p)}",
        )


class Writes(Protocol):
    """A generator, as far as its tokens go."""

    @property
    def name(self) -> str: ...
    @property
    def tokenizer_width(self) -> int: ...


def check_reads_all(generator: Writes, auxiliary: Reader, *, next_step: str) -> None:
    """Refuse an auxiliary without logits for some of the tokens that the generator may write."""
    if generator.tokenizer_width > auxiliary.head.width:
        raise ModelError(
            f"The model '{generator.name}' has {generator.tokenizer_width} tokens, and "
            f"'{auxiliary.name}' gives {auxiliary.head.width} logits: it could not read all that "
            "is written.",
            next_step=next_step,
        )


@dataclass(frozen=True, slots=True)
class DifferentTokens:
    """Of the ids that two tokenizers share, how many are different tokens, and the first of them.

    A token that is None is not there: its tokenizer leaves out the id.
    """

    count: int
    shared: int
    id: int
    in_p: str | None
    in_q: str | None


def different_tokens(p: Tokenizer, q: Tokenizer) -> DifferentTokens | None:
    """Where two tokenizers differ in the ids that both reach to; None where they agree."""
    by_id_p, by_id_q = _tokens_by_id(p), _tokens_by_id(q)
    shared = min(max(by_id_p, default=-1), max(by_id_q, default=-1)) + 1
    different = [i for i in range(shared) if by_id_p.get(i) != by_id_q.get(i)]
    if not different:
        return None
    first = different[0]
    return DifferentTokens(len(different), shared, first, by_id_p.get(first), by_id_q.get(first))


def _named(token: str | None) -> str:
    return "not there" if token is None else repr(token)


def _tokens_by_id(tokenizer: Tokenizer) -> dict[int, str]:
    return {index: token for token, index in tokenizer.get_vocab().items()}
