"""Listeners: what is learned from p's pass beside the trace, one record a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from divergence_samples import HELLINGER
from trace_samples import SavedPair, bigram_reader, trajectory

from divtok.divergences.divergence import Divergence
from divtok.packed.packs import Pack
from divtok.records import PER_TOKEN_FIELDS, Reason, Trace
from divtok.trace.batches import Row
from divtok.trace.budget import Budget
from divtok.trace.listener import Passage, unread_reason
from divtok.trace.pair import Asked, Pair, load_pair
from divtok.trace.trunks import AttentionSink, padded_trunk

TABLE = np.arange(16, dtype=np.float64).reshape(4, 4) % 5


@dataclass(frozen=True)
class Heard:
    """What a row's pass looked like to the listener."""

    key: str
    model: str
    status: str
    norms: tuple[float, ...] = ()
    reason: Reason | None = None


@dataclass
class Norms:
    """Records the norm of the hidden state that predicts each response token."""

    whole: bool = False
    sinks: list[Any] = field(default_factory=list)
    passes: list[Passage] = field(default_factory=list)

    def sink(self, pack: Pack) -> AttentionSink | None:
        return None

    def hear(self, passage: Passage, sink: AttentionSink | None) -> Sequence[Heard]:
        self.passes.append(passage)
        self.sinks.append(sink)
        cuts = np.cumsum([len(row.token_ids) for row in passage.rows])[:-1].tolist()
        norms = torch.tensor_split(passage.states.norm(dim=-1), cuts)
        return [
            Heard(row.key, passage.reader.name, trace.status, tuple(part.tolist()))
            for row, trace, part in zip(passage.rows, passage.traces, norms, strict=True)
        ]

    def unread(self, trace: Trace, model: str) -> Heard:
        return Heard(trace.key, model, trace.status, reason=unread_reason(trace))


@dataclass
class Layers(Norms):
    """Also counts what every layer attends by."""

    def sink(self, pack: Pack) -> AttentionSink | None:
        return Counter(len(pack.ids))


@dataclass
class Counter:
    tokens: int
    layers: int = 0

    def add(self, query: Any, key: Any, *, scaling: float | None, window: int | None) -> None:
        assert query.shape[1] == key.shape[1] == self.tokens
        self.layers += 1


def letters() -> Pair:
    """p and q over 'abcd' with known logits, which are the hidden states too."""
    other = TABLE[::-1].copy()
    return Pair(bigram_reader("P", TABLE, "abcd", 8), bigram_reader("Q", other, "abcd", 8))


ROWS = [
    trajectory("ok", [0], [1, 2, 3]),
    trajectory("empty", [0], []),
    trajectory("one", [0, 1], [2]),
    trajectory("long", [0, 1, 2], [1] * 6),
    trajectory("fits", [3, 1, 2], [1] * 5),
]


def expected_norms(prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
    read = [*prompt, *tokens][len(prompt) - 1 : -1]
    return [float(np.linalg.norm(TABLE[token])) for token in read]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("tokens", "passes"), [(1, 3), (8, 2), (1000, 1)])
def test_every_row_has_its_record_in_order(whole: bool, tokens: int, passes: int) -> None:
    """Also where rows are read in packs of another order, and where some are not read."""
    listener = Norms(whole=whole)
    reads = letters().read_batch(
        ROWS, asked=Asked(listeners=[listener]), budget=Budget(tokens=tokens)
    )
    assert [read.trace.key for read in reads] == [row.key for row in ROWS]
    assert all(len(read.heard) == 1 for read in reads)
    heard = [read.heard[0] for read in reads]
    assert [found.key for found in heard] == [row.key for row in ROWS]
    assert [found.status for found in heard] == ["ok", "empty", "ok", "too_long", "ok"]
    assert {found.model for found in heard} == {"P"}
    for row, found in zip(ROWS, heard, strict=True):
        if found.status == "ok":
            expected = expected_norms(row.prompt_ids, row.token_ids)
            assert found.norms == pytest.approx(expected, rel=1e-6)
            assert found.reason is None
    assert len(listener.passes) == passes


def test_a_row_that_was_not_read_has_the_reason_of_its_trace() -> None:
    reads = letters().read_batch(ROWS, asked=Asked(listeners=[Norms()]))
    for read in (reads[1], reads[3]):
        (found,) = read.heard
        assert found.norms == ()
        assert isinstance(found.reason, Reason)
        assert found.reason.kind == read.trace.status
        assert found.reason == f"{read.trace.status}: {read.trace.reason}"
    assert reads[1].heard[0].reason == "empty: the response has no tokens"


def test_where_no_row_can_be_read_there_is_no_pass() -> None:
    listener = Norms()
    reads = letters().read_batch([ROWS[1], ROWS[3]], asked=Asked(listeners=[listener]))
    assert [read.heard[0].key for read in reads] == ["empty", "long"]
    assert listener.passes == []
    assert letters().read_batch([], asked=Asked(listeners=[listener])) == []


def test_listeners_are_heard_apart_and_in_order() -> None:
    named = [replace(Norms(), whole=whole) for whole in (False, True, False)]
    reads = letters().read_batch(ROWS, asked=Asked(listeners=named))
    for read in reads:
        assert len(read.heard) == 3
        assert read.heard[0] == read.heard[1] == read.heard[2]
    # One pass each, and it is the same one.
    assert len({id(listener.passes[0]) for listener in named}) == 1
    assert [len(listener.passes) for listener in named] == [1, 1, 1]


def test_without_listeners_nothing_is_heard() -> None:
    assert [list(read.heard) for read in letters().read_batch(ROWS)] == [[]] * 5
    row = Row("ok", np.array([0]), np.array([1, 2, 3]), "")
    assert list(letters().read_row(row).heard) == []
    (found,) = letters().read_row(row, asked=Asked(listeners=[Norms()])).heard
    assert found.key == "ok"


def test_a_row_with_broken_logits_was_read_and_its_trace_says_so() -> None:
    broken = TABLE.copy()
    broken[2, 1] = np.nan
    q = bigram_reader("Q", broken, "abcd")
    pair = Pair(bigram_reader("P", TABLE, "abcd"), q)
    rows = [trajectory("bad", [0], [2, 1]), trajectory("good", [0], [1, 3])]
    bad, good = pair.read_batch(rows, asked=Asked(listeners=[Norms()]))
    assert (bad.trace.status, bad.heard[0].status) == ("nonfinite", "nonfinite")
    assert bad.heard[0].norms == pytest.approx(expected_norms([0], [2, 1]), rel=1e-6)
    assert (good.trace.status, good.heard[0].status) == ("ok", "ok")


def test_a_listener_that_forgets_a_row_is_an_error() -> None:
    class Forgets(Norms):
        def hear(self, passage: Passage, sink: AttentionSink | None) -> Sequence[Heard]:
            return super().hear(passage, sink)[1:]

    with pytest.raises(ValueError, match="zip"):
        letters().read_batch(ROWS, asked=Asked(listeners=[Forgets()]))


def test_what_a_passage_holds() -> None:
    listener = Norms(whole=True)
    others: list[Divergence] = [HELLINGER]
    letters().read_batch(ROWS, asked=Asked(divergences=others, listeners=[listener]))
    (passage,) = listener.passes
    assert sorted(row.key for row in passage.rows) == ["fits", "ok", "one"]
    lengths = [len(row.token_ids) for row in passage.rows]
    assert [len(trace) for trace in passage.traces] == lengths
    assert all(list(t.others) == ["total_variation", "hellinger"] for t in passage.traces)
    assert len(passage.targets) == len(passage.states) == sum(lengths)
    assert np.array_equal(passage.targets, np.concatenate([r.token_ids for r in passage.rows]))
    # In a whole pack every row has a lane with its prompt and all of its response.
    assert len(passage.lanes) == 3
    for row, lane in zip(passage.rows, passage.lanes, strict=True):
        read = np.concatenate([row.prompt_ids, row.token_ids])
        assert np.array_equal(passage.pack.ids[lane], read)
        assert torch.equal(
            passage.hidden[torch.from_numpy(lane)], torch.tensor(TABLE).float()[read]
        )


def test_the_last_token_is_only_read_where_a_listener_asks_for_it() -> None:
    read: dict[bool, int] = {}
    for whole in (False, True):
        listener = Norms(whole=whole)
        letters().read_batch([ROWS[0]], asked=Asked(listeners=[listener]))
        read[whole] = len(listener.passes[0].pack.ids)
    assert read == {False: 3, True: 4}


@pytest.fixture(scope="module")
def real(saved_pair: SavedPair) -> tuple[Pair, SavedPair]:
    folders = str(saved_pair.p_dir), str(saved_pair.q_dir)
    return load_pair(*folders, p_device="cpu", q_device="cpu"), saved_pair


def test_real_models_are_heard_without_changing_their_traces(real: Any) -> None:
    pair, saved = real
    rows = [trajectory(str(i), saved.ids(3 + i), saved.ids(9 + i)) for i in range(4)]
    alone = pair.trace_batch(rows)
    listeners = [Norms(), Layers()]
    reads = pair.read_batch(rows, asked=Asked(listeners=listeners))
    for read, trace in zip(reads, alone, strict=True):
        for name in PER_TOKEN_FIELDS:
            assert np.array_equal(getattr(read.trace, name), getattr(trace, name))
        assert read.heard[0] == read.heard[1]
        assert len(read.heard[0].norms) == len(trace)
        assert min(read.heard[0].norms) > 0
    assert listeners[0].sinks == [None]
    (counter,) = listeners[1].sinks
    assert counter.layers == 2  # those of p alone: q has two more


def test_a_padded_trunk_shows_no_attention_but_is_heard(real: Any) -> None:
    pair, saved = real
    decoder = saved.p.get_decoder()
    padded = replace(pair.p, trunk=padded_trunk(decoder, pair.p.device), packed=False)
    rows = [trajectory(str(i), saved.ids(3 + i), saved.ids(9 + i)) for i in range(4)]
    listener = Layers()
    reads = Pair(padded, pair.q).read_batch(rows, asked=Asked(listeners=[listener]))
    assert listener.sinks == [None]
    packed = pair.read_batch(rows, asked=Asked(listeners=[Layers()]))
    for one, other in zip(reads, packed, strict=True):
        assert one.heard[0].key == other.heard[0].key
        assert one.heard[0].norms == pytest.approx(other.heard[0].norms, rel=1e-4)
