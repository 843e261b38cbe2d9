"""Traces of rows from the numbers that were read for them, whoever read them.

Knows where the answer and the end of a turn stand, and what a row without numbers looks like.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from divtok.errors import DataError
from divtok.models.load import Tokenizer
from divtok.records import PER_TOKEN_FIELDS, Reason, Trace, TraceStatus
from divtok.trace.batches import Row
from divtok.trace.spans import answer_tokens, turn_end


def trace_of(
    row: Row,
    p: str,
    q: str,
    columns: Mapping[str, Any],
    *,
    tokenizer: Tokenizer,
    end_ids: Collection[int],
    **fields: Any,
) -> Trace:
    """A row's trace. `columns` holds the per-token arrays [T], `fields` its other fields."""
    tokens = row.token_ids.tolist()
    text = row.text
    if text is None:
        text = tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    try:
        answer = answer_tokens(tokenizer, tokens, text, row.find_answer)
    except DataError as error:
        what = f"Trajectory '{row.key}': {error.what}"
        raise DataError(what, next_step=error.next_step) from error
    per_token: dict[str, Any] = {name: columns[name] for name in PER_TOKEN_FIELDS}
    return Trace(
        key=row.key,
        p=p,
        q=q,
        **per_token,
        answer_start=None if answer is None else answer[0],
        answer_stop=None if answer is None else answer[1],
        turn_end=turn_end(tokens, end_ids),
        **fields,
    )


def trace_without_numbers(row: Row, p: str, q: str, status: TraceStatus, reason: str) -> Trace:
    nothing: dict[str, Any] = {name: np.empty(0, dtype=np.float32) for name in PER_TOKEN_FIELDS}
    return Trace(
        key=row.key,
        p=p,
        q=q,
        **nothing,
        answer_start=None,
        answer_stop=None,
        turn_end=0,
        dropped_mass_p=0.0,  # the largest over no positions
        dropped_mass_q=0.0,
        status=status,
        reason=reason if isinstance(reason, Reason) else Reason(status, reason),
    )
