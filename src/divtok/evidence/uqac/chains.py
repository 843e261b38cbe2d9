"""One response's chain, from a pass that kept its attention: rows, stop tokens, similarity joined.

Where the rules of the chain are is `backtrack`, and where the rows come from is
`attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from divtok.evidence.uqac.attention import AttentionLog
from divtok.evidence.uqac.backtrack import backtrack, most_similar, stop_tokens
from divtok.packed.packs import Indices, Pack
from divtok.records import Chain, FloatArray, Reason, Trace
from divtok.trace.batches import Row
from divtok.trace.listener import Passage, unread_reason
from divtok.trace.trunks import AttentionSink

if TYPE_CHECKING:
    from torch import Tensor


class ChainListener:
    """Keeps what p attends to during a pass, and makes a chain for every response."""

    whole = True  # the answer's hidden states are compared, be it the last token

    def sink(self, pack: Pack) -> AttentionLog:
        return AttentionLog(pack)

    def hear(self, passage: Passage, sink: AttentionSink | None) -> list[Chain]:
        assert sink is None or isinstance(sink, AttentionLog)  # it is its own
        return [
            _chain(passage, row, trace, lane, sink)
            for row, trace, lane in zip(passage.rows, passage.traces, passage.lanes, strict=True)
        ]

    def unread(self, trace: Trace, model: str) -> Chain:
        return _none(trace.key, model, unread_reason(trace))


def _chain(
    passage: Passage, row: Row, trace: Trace, lane: Indices, log: AttentionLog | None
) -> Chain:
    """The chain of one response, or why there is none."""
    model = passage.reader.name
    if trace.status != "ok":
        return _none(row.key, model, unread_reason(trace))
    if trace.answer_start is None or trace.answer_stop is None:
        why = Reason("no_answer", "the response has no final answer to start from")
        return _none(row.key, model, why)
    if log is None:
        why = Reason("no_attention", f"the attention of {model} cannot be seen")
        return _none(row.key, model, why)
    answer = range(trace.answer_start, trace.answer_stop)
    stops = stop_tokens(passage.reader.tokenizer, row.token_ids.tolist())
    tokens, similar = find_chain(log, lane, passage.hidden, answer=answer, stops=stops)
    return Chain(row.key, model, tokens, similar)


def _none(key: str, model: str, reason: Reason) -> Chain:
    return Chain(key, model, (), (), reason)


def find_chain(
    log: AttentionLog,
    lane: Indices,
    hidden: Tensor,
    *,
    answer: range,
    stops: npt.NDArray[np.bool_],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions in the response that make the chain, and those of them most like the answer.

    `answer` are the answer's positions in the response, `stops` [T] its stop tokens.
    """
    prompt = len(lane) - len(stops)
    skipped = np.concatenate([np.ones(prompt, dtype=bool), stops])
    inside = range(prompt + answer.start, prompt + answer.stop)
    chain = backtrack(lambda positions: log.rows(lane, positions), inside, skipped)
    similarity = _similarity(hidden, lane[list(chain)], lane[list(inside)])
    similar = most_similar(chain, inside, similarity)
    return tuple(t - prompt for t in chain), tuple(t - prompt for t in similar)


def _similarity(hidden: Tensor, chain: Indices, answer: Indices) -> FloatArray:
    """[C] mean cosine between each token of the chain and the tokens of the answer."""
    import torch
    from torch.nn.functional import normalize

    ours, theirs = (
        normalize(hidden[torch.from_numpy(rows).to(hidden.device)].float(), dim=-1)
        for rows in (chain, answer)
    )
    return (ours @ theirs.T).mean(dim=1).cpu().numpy()
