"""Two models behind servers that read the same trajectory: trajectories in, traces out.

Their divergences are known within bounds, unless both servers list the whole vocabulary. Knows no
threshold, and nothing of where trajectories come from and traces go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from divtok.divergences.arithmetic import FloatArray64
from divtok.endpoints.client import Posted, ServerClient
from divtok.endpoints.many import for_each
from divtok.endpoints.settings import ServerSettings
from divtok.errors import DataError, UsageError
from divtok.packed.packs import Ids
from divtok.records import FloatArray, Trace, Trajectory, shortened
from divtok.trace.assemble import trace_of, trace_without_numbers
from divtok.trace.batches import Row, check_ids, plain_ids, row_of, unreadable
from divtok.trace.pair import check_vocabularies
from divtok.trace.topk.answers import known_of
from divtok.trace.topk.bounds import jsd_bounds, outward
from divtok.trace.topk.exact import exact_columns, is_whole
from divtok.trace.topk.known import FLOAT32, Known, unsound
from divtok.trace.topk.server_model import FormChoice, ServerModel, load_server_model

# What a server tells of a response: known log-probs, and those of the tokens themselves [T].
Told = tuple[Known, FloatArray64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServerPair:
    """The models p and q of a divergence, each behind a server. Their token->id maps must agree.

    Example:
        >>> import divtok
        >>> pair = divtok.load_server_pair(
        ...     "divtok/tiny-0.5m", "divtok/tiny-0.3m", p_server=P_URL, q_server=Q_URL
        ... )
        >>> divtok.confidences([("What is 1 + 1?", "It is 2.")], pair=pair).bounds[0] is None
        False
    """

    p: ServerModel
    q: ServerModel

    def __post_init__(self) -> None:
        check_vocabularies(self.p.name, self.p.tokenizer, self.q.name, self.q.tokenizer)

    def __repr__(self) -> str:
        return f"<ServerPair\n  p: {shortened(self.p.name)}\n  q: {shortened(self.q.name)}>"

    @property
    def vocab_size(self) -> int:
        """The width that ids of trajectories must keep within."""
        return min(self.p.sure_width, self.q.sure_width)

    @property
    def context_length(self) -> int | None:
        """What both servers can read, prompt and response together; None without a limit."""
        lengths = [m.context_length for m in (self.p, self.q) if m.context_length is not None]
        return min(lengths, default=None)

    def trace_batch(self, trajectories: Sequence[Trajectory]) -> list[Trace]:
        """One trace for each trajectory, in order.

        A response without tokens, one too long for either server, one with broken log-probs and
        one that a server did not answer for get a trace with that status.
        """
        return self.trace_rows([row_of(trajectory) for trajectory in trajectories])

    def trace_ids(
        self, *, prompt_ids: Ids, token_ids: Ids, key: str = "", text: str | None = None
    ) -> Trace:
        """Trace one response given as token ids. `text` is what the ids decode to by default."""
        prompt, tokens = plain_ids(prompt_ids, "prompt_ids"), plain_ids(token_ids, "token_ids")
        return self.trace_rows([Row(key, prompt, tokens, text)])[0]

    def trace_rows(self, rows: Sequence[Row]) -> list[Trace]:
        """`trace_batch` for rows, which need not be trajectories."""
        for row in rows:
            check_ids(row, self.vocab_size)
        found = {index: self._unreadable(row) for index, row in enumerate(rows)}
        traces = {index: trace for index, trace in found.items() if trace is not None}
        if len(traces) < len(rows):
            traces |= self._asked({i: row for i, row in enumerate(rows) if i not in traces})
        return [traces[index] for index in range(len(rows))]

    def _asked(self, rows: Mapping[int, Row]) -> dict[int, Trace]:
        """Both servers about each row at the same time, and its trace as soon as both have told."""
        traces: dict[int, Trace] = {}
        p, q = self.p.settings, self.q.settings
        one_server = p == q
        second = _SharedClient(q)
        # Each row is two calls: one server would be given twice as many as it has connections, and
        # a call's time runs while it waits for one.
        turns = asyncio.Semaphore(p.concurrency)

        async def both(client: ServerClient, index: int) -> tuple[int, Trace]:
            row = rows[index]
            async with nullcontext(client) if one_server else second as other:
                told = await asyncio.gather(
                    _told_by(self.p, client, row, turns),
                    _told_by(self.q, other, row, turns if one_server else nullcontext()),
                )
            return index, self._trace(row, *told)

        at_a_time = min(p.concurrency, q.concurrency)
        for_each(rows, both, replace(p, concurrency=at_a_time), keep=traces.update, proved=True)
        return traces

    def _unreadable(self, row: Row) -> Trace | None:
        why = unreadable(row, self.p, self.q)
        return None if why is None else trace_without_numbers(row, self.p.name, self.q.name, *why)

    def _trace(self, row: Row, from_p: Posted[Told], from_q: Posted[Told]) -> Trace:
        names = self.p.name, self.q.name
        told: list[Told] = []
        for model, posted in ((self.p, from_p), (self.q, from_q)):
            if posted.value is None:
                reason = f"the server of {model.name}: {posted.reason}"
                return trace_without_numbers(row, *names, "failed", reason)
            bad = unsound(posted.value[0], model.rounding)
            if bad.any():
                reason = (
                    f"the log-probs of {model.name} are no distribution (NaN, +inf or more than 1 "
                    f"in all) at response token {int(bad.argmax())} of {len(bad)}"
                )
                return trace_without_numbers(row, *names, "nonfinite", reason)
            told.append(posted.value)
        end_ids = self.p.end_ids | self.q.end_ids
        try:
            numbers = self._numbers(row, *told)
        except DataError as error:  # log-probs that no check has met so far: this row's alone
            return trace_without_numbers(row, *names, "failed", error.what)
        return trace_of(row, *names, tokenizer=self.p.tokenizer, end_ids=end_ids, **numbers)

    def _numbers(self, row: Row, from_p: Told, from_q: Told) -> dict[str, Any]:
        """The fields of a trace that hold numbers."""
        (p, own_p), (q, own_q) = from_p, from_q
        p_width, q_width = self.p.width, self.q.width
        fine = self.p.rounding == self.q.rounding == FLOAT32
        if (
            (fine and p_width is not None and q_width is not None)
            and is_whole(p, p_width)
            and is_whole(q, q_width)
        ):
            return exact_columns(p, p_width, q, q_width, row.token_ids)
        found = jsd_bounds(
            p,
            q,
            p_rounding=self.p.error,
            q_rounding=self.q.error,
            p_width=p_width,
            q_width=q_width,
            sure_width=self.vocab_size,
        )
        low, high = outward(*found)
        unknown = ("entropy_p", "entropy_q", "kl_pq", "kl_qp")
        columns = {
            "logprob_p": _at_most_0(own_p),
            "logprob_q": _at_most_0(own_q),
            "jsd_bits": ((low.astype(np.float64) + high) / 2).astype(np.float32),
            **{name: np.full(len(low), np.nan, dtype=np.float32) for name in unknown},
        }
        return {
            "columns": columns,
            "exact": False,
            "jsd_low_bits": low,
            "jsd_high_bits": high,
            "dropped_mass_p": _dropped(self.p, self.q),
            "dropped_mass_q": _dropped(self.q, self.p),
        }


class _SharedClient:
    """One client for all who use it at the same time: opened by the first, closed by the last."""

    _client: ServerClient

    def __init__(self, settings: ServerSettings) -> None:
        self._settings, self._users = settings, 0

    async def __aenter__(self) -> ServerClient:
        if self._users == 0:
            self._client = ServerClient(self._settings, proved=True)
        self._users += 1
        return self._client

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0:
            await self._client.__aexit__()


def load_server_pair(
    p: str,
    q: str,
    *,
    p_server: ServerSettings | str,
    q_server: ServerSettings | str,
    p_tokenizer: Any = None,
    q_tokenizer: Any = None,
    p_revision: str | None = None,
    q_revision: str | None = None,
    p_served_name: str | None = None,
    q_served_name: str | None = None,
    top_k: int = 20,
    form: FormChoice = "auto",
    precision: str | float = "auto",
) -> ServerPair:
    """Find p and q on their servers and check both; see `load_server_model` for what is asked.

    A server is its base URL, or that with settings. A tokenizer is given as such or as a ref;
    without one the model's own name is the ref. A served name is what its server calls the model,
    where that is something else.

    Example:
        >>> import divtok
        >>> pair = divtok.load_server_pair(
        ...     "divtok/tiny-0.5m", "divtok/tiny-0.3m", p_server=P_URL, q_server=Q_URL
        ... )
        >>> low, high = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair).bounds
        >>> 0 < low <= high < 1
        True
    """
    models = [
        load_server_model(
            name,
            ServerSettings(server) if isinstance(server, str) else server,
            tokenizer=tokenizer,
            revision=revision,
            served_name=served_name,
            top_k=top_k,
            form=form,
            precision=precision,
        )
        for name, server, tokenizer, revision, served_name in (
            (p, p_server, p_tokenizer, p_revision, p_served_name),
            (q, q_server, q_tokenizer, q_revision, q_served_name),
        )
    ]
    places = {(model.settings.base_url, model.asker.model) for model in models}
    if p != q and len(places) == 1:
        raise UsageError(
            f"'{p}' and '{q}' are one and the same model of {models[0].settings.base_url}, which "
            "never differs from itself.",
            next_step="Name another server or another model for one of them.",
        )
    return ServerPair(*models)


def _at_most_0(logprobs: FloatArray64) -> FloatArray:
    """Checked before: they are above 0 only by as much as a server rounds."""
    with np.errstate(over="ignore"):  # -1e300 is -inf in float32
        return np.minimum(logprobs, 0.0).astype(np.float32)


def _dropped(model: ServerModel, other: ServerModel) -> float:
    """The mass cut off with tokens that the other model has not: unknown if there may be any."""
    none_are = model.width is not None and model.width <= other.sure_width
    return 0.0 if none_are else np.nan


async def _told_by(
    model: ServerModel, client: ServerClient, row: Row, turn: AbstractAsyncContextManager[None]
) -> Posted[Told]:
    ids = [*row.prompt_ids.tolist(), *row.token_ids.tolist()]
    read = partial(known_of, rounding=model.rounding)
    async with turn:
        return await model.asker.places(client, ids, len(row.prompt_ids), read)
