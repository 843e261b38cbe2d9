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
from divtok.packed.packs import Indices
from divtok.records import Chain, FloatArray, Trace
from divtok.trace.batches import Row
from divtok.trace.reader import Reader

if TYPE_CHECKING:
    from torch import Tensor


def chain_of(
    reader: Reader,
    row: Row,
    trace: Trace,
    lane: Indices,
    log: AttentionLog | None,
    hidden: Tensor,
) -> Chain:
    """The chain of one response, or why there is none.

    `lane` are the rows [P + T] of `hidden` [N, D] that hold prompt and response.
    """
    reason = None
    if trace.status != "ok":
        reason = f"{trace.status}: {trace.reason}"
    elif trace.answer_start is None or trace.answer_stop is None:
        reason = "the response has no final answer to start from"
    elif log is None:
        reason = f"the attention of {reader.name} cannot be seen"
    else:
        answer = range(trace.answer_start, trace.answer_stop)
        stops = stop_tokens(reader.tokenizer, row.token_ids.tolist())
        tokens, similar = find_chain(log, lane, hidden, answer=answer, stops=stops)
        return Chain(row.key, reader.name, tokens, similar)
    return Chain(row.key, reader.name, (), (), reason)


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
