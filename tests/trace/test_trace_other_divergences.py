"""A divergence that no kernel fills in: through the head stage and a pair into the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from divergence_samples import HELLINGER
from test_trace_head_stage import LiveBytes
from trace_samples import SavedPair, bigram_reader, trajectory

from divtok.divergences.divergence import DIVERGENCES, Divergence
from divtok.errors import DataError
from divtok.records import PER_TOKEN_FIELDS, Trace
from divtok.trace import head_stage
from divtok.trace.batches import Row
from divtok.trace.budget import Budget
from divtok.trace.head_stage import pair_metrics
from divtok.trace.kernels import cpu, plain
from divtok.trace.kernels.common import Head, HeadMetrics
from divtok.trace.pair import Asked, Pair, load_pair

INF, NAN = float("inf"), float("nan")
ASKED = Asked(divergences=[HELLINGER])
APART = 1 - 0.5**0.5  # of one that is sure and one that splits evenly between two tokens


@pytest.fixture(params=["cpu", "plain"] if cpu.available() else ["plain"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs on each path of the head stage that a CPU has."""
    found = cpu.metrics if request.param == "cpu" else plain.metrics
    monkeypatch.setattr(head_stage, "_pick_path", lambda device: found)
    return request.param


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_inputs(positions: int, vocab: int, dtype: torch.dtype = torch.float32) -> Any:
    """Hidden states and heads of unequal depth and width, and the tokens taken."""
    return (
        draw(positions, 24, seed=1).to(dtype),
        draw(vocab, 24, seed=2).to(dtype),
        draw(positions, 16, seed=3).to(dtype),
        draw(vocab - 21, 16, seed=4).to(dtype),
        torch.arange(positions) * 5 % (vocab - 21),
    )


def of_logits(p: list[list[float]], q: list[list[float]], *others: Divergence) -> HeadMetrics:
    """Metrics of given logits, one row a position. They come from biases, which may be -inf."""
    parts: list[HeadMetrics] = []
    one = torch.ones(1, 1)
    for row_p, row_q in zip(p, q, strict=True):
        heads = [Head(torch.zeros(len(row), 1), bias=torch.tensor(row)) for row in (row_p, row_q)]
        parts.append(pair_metrics(one, heads[0], one, heads[1], [0], others=others))
    names = parts[0].columns()
    columns = {name: torch.cat([part.columns()[name] for part in parts]) for name in names}
    beside = {name: columns.pop(name) for name in parts[0].others}
    assert list(beside) == ["total_variation", *(d.column for d in others)]
    return HeadMetrics(**columns, others=beside)


def naive(p_logits: Any, q_logits: Any) -> np.ndarray:
    p, q = (torch.as_tensor(x).double().softmax(-1).numpy() for x in (p_logits, q_logits))
    return 1 - np.sqrt(p * q).sum(-1)


def test_agrees_with_whole_float64_logits() -> None:
    hidden_p, weight_p, hidden_q, weight_q, tokens = some_inputs(37, 211)
    logits = hidden_p.double() @ weight_p.double().T, hidden_q.double() @ weight_q.double().T
    for width in (190, 100, 1):
        metrics = pair_metrics(
            hidden_p, weight_p, hidden_q, weight_q, tokens % width, vocab_size=width,
            others=[HELLINGER],
        )  # fmt: skip
        found = metrics.others["hellinger"]
        assert found.dtype == torch.float32
        expected = naive(*(x[:, :width] for x in logits))
        np.testing.assert_allclose(found.numpy(), expected, atol=2e-6, rtol=0)


def test_exact_values() -> None:
    same, half, other = [0.0, 1.0, -INF, 2.0], [0.0, 0.0, -INF, -INF], [-INF, -INF, 3.0, 3.0]
    wholly = [-INF, 0.0, -INF, -INF]
    found = of_logits([same, half, half, same], [same, half, other, wholly], HELLINGER)
    equal, masked, disjoint, partly = found.others["hellinger"].tolist()
    assert (equal, masked) == (0.0, 0.0)
    assert disjoint == pytest.approx(1.0, abs=1e-7)
    # All that both share is on a single token.
    shared = float(torch.tensor(same).softmax(-1)[1])
    assert partly == pytest.approx(1 - shared**0.5, abs=1e-7)


def test_a_known_value() -> None:
    found = of_logits([[0.0, 0.0, -INF]], [[0.0, -INF, -INF]], HELLINGER)
    assert found.others["hellinger"].tolist() == pytest.approx([APART], abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("positions", "vocab"), [(1, 64), (37, 211), (300, 4000), (70, 40_000)])
def test_asking_for_more_changes_no_other_column(
    dtype: torch.dtype, positions: int, vocab: int
) -> None:
    inputs = some_inputs(positions, vocab, dtype)
    alone = pair_metrics(*inputs)
    asked = pair_metrics(*inputs, others=[HELLINGER, replace(HELLINGER, column="v")])
    assert list(alone.others) == ["total_variation"]
    assert list(alone.columns()) == list(asked.columns())[:-2]
    for name, column in alone.columns().items():
        assert torch.equal(column, asked.columns()[name]), name
    assert list(asked.others) == ["total_variation", "hellinger", "v"]
    assert torch.equal(asked.others["hellinger"], asked.others["v"])


@pytest.mark.parametrize("workspace", [1, 12_000, 50_000, 1 << 30])
def test_chunk_sizes_give_the_same_numbers(workspace: int) -> None:
    inputs = some_inputs(37, 211)
    metrics = pair_metrics(*inputs, others=[HELLINGER])
    chunked = pair_metrics(*inputs, others=[HELLINGER], workspace_bytes=workspace)
    for name, column in chunked.columns().items():
        torch.testing.assert_close(column, metrics.columns()[name], atol=1e-6, rtol=1e-5)


def test_memory_stays_within_the_workspace() -> None:
    """Of divergences that hold a few arrays of a chunk at once, as most do."""
    inputs, workspace = some_inputs(600, 3000), 1 << 20
    others = [HELLINGER, replace(DIVERGENCES.get("kl_pq"), name="again", column="again")]
    with LiveBytes(*inputs) as live:
        pair_metrics(*inputs, others=others, workspace_bytes=workspace)
    results = 600 * 4 * 3 * (12 + len(others))
    assert live.peak > workspace // 8  # the counter sees the work at all
    assert live.peak <= workspace + results


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("broken", ["p", "q"])
def test_broken_positions_have_no_number(value: float, broken: str) -> None:
    rows = torch.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    hidden, head = torch.eye(4), Head(rows.T.contiguous())
    other = Head(rows.flip(1).T.contiguous())
    clean = pair_metrics(hidden, head, hidden, other, [0, 1, 2, 0], others=[HELLINGER])
    spoilt = hidden.clone()
    spoilt[2] = value
    p, q = (spoilt, hidden) if broken == "p" else (hidden, spoilt)
    found = pair_metrics(p, head, q, other, [0, 1, 2, 0], others=[HELLINGER]).others["hellinger"]
    assert found.isnan().tolist() == [False, False, True, False]
    assert torch.equal(found[[0, 1, 3]], clean.others["hellinger"][[0, 1, 3]])


@pytest.mark.parametrize("tail", [NAN, INF])
def test_a_broken_logit_behind_the_shared_width_spoils_its_position(tail: float) -> None:
    """The shared part alone would give a number, but the model is broken there."""
    found = of_logits([[0.0, 0.0, tail]], [[0.0, 1.0]], HELLINGER)
    assert not found.finite_p
    assert bool(found.others["hellinger"].isnan())


def constant(value: float, **changes: Any) -> Divergence:
    def of(log_p: Any, log_q: Any) -> Any:
        return torch.full((len(log_p),), value)

    return replace(HELLINGER, of=of, **changes)


@pytest.mark.parametrize(
    ("value", "said"), [(1.001, "1.001"), (-0.001, "-0.001"), (NAN, "nan"), (INF, "inf")]
)
def test_a_value_out_of_range_is_refused_by_name(value: float, said: str) -> None:
    message = rf"divergence 'hellinger' came out as {said} fraction, outside \[0, 1\]"
    with pytest.raises(DataError, match=message):
        of_logits([[0.0, 1.0]], [[0.0, 1.0]], constant(value))


def test_a_value_out_of_range_at_a_broken_position_is_not_looked_at() -> None:
    found = of_logits([[NAN, 1.0]], [[0.0, 1.0]], constant(7.0))
    assert bool(found.others["hellinger"].isnan())


@pytest.mark.parametrize(("value", "expected"), [(1 + 9e-7, 1.0), (-9e-7, 0.0), (0.25, 0.25)])
def test_rounding_is_cut_off(value: float, expected: float) -> None:
    found = of_logits([[0.0, 1.0]], [[0.0, 1.0]], constant(value))
    assert found.others["hellinger"].tolist() == [expected]


def test_the_range_is_that_of_the_stored_unit() -> None:
    """The highest value is given in the unit of theta, of which one is `theta_scale` stored."""
    scaled = constant(1.5, highest=2.0, theta_scale=0.75, unit="nats")
    assert of_logits([[0.0, 1.0]], [[0.0, 1.0]], scaled).others["hellinger"].tolist() == [1.5]
    beyond = replace(constant(1.6), highest=2.0, theta_scale=0.75, unit="nats")
    with pytest.raises(DataError, match=r"'hellinger' came out as 1\.6 nats, outside \[0, 1\.5\]"):
        of_logits([[0.0, 1.0]], [[0.0, 1.0]], beyond)


def test_a_divergence_without_a_highest_value_may_be_infinite() -> None:
    forward = replace(DIVERGENCES.get("kl_pq"), name="again", column="again")
    found = of_logits([[0.0, 0.0], [0.0, 0.0]], [[0.0, -INF], [0.0, 1.0]], forward)
    assert found.others["again"][0] == found.kl_pq[0] == INF
    assert float(found.others["again"][1]) == pytest.approx(float(found.kl_pq[1]), abs=1e-6)


def test_no_positions_give_empty_columns() -> None:
    none, weight = torch.zeros(0, 4), torch.zeros(3, 4)
    metrics = pair_metrics(none, weight, none, weight, [], others=[HELLINGER])
    assert metrics.others["hellinger"].shape == (0,)


SURE, EVEN = [[-30.0, 30.0], [0.0, 0.0]], [[0.0, 0.0], [3.0, 3.0]]


def letters(p: Any = SURE, q: Any = EVEN) -> Pair:
    """After 'a' p is sure of 'b' and q splits evenly; after 'b' they agree."""
    return Pair(bigram_reader("P", p, "ab", 9), bigram_reader("Q", q, "ab", 9))


ROWS = [
    trajectory("two", [0], [1, 0]),
    trajectory("empty", [0], []),
    trajectory("long", [0, 1], [1] * 8),
    trajectory("three", [1], [0, 0, 1]),
]


def test_a_pair_puts_it_into_the_trace_of_each_row() -> None:
    reads = letters().read_batch(ROWS, asked=ASKED)
    two, empty, long, three = [read.trace for read in reads]
    assert list(two.others) == list(three.others) == ["total_variation", "hellinger"]
    assert two.others["hellinger"].tolist() == pytest.approx([APART, 0.0], abs=1e-6)
    assert three.others["hellinger"].tolist() == pytest.approx([0.0, APART, APART], abs=1e-6)
    assert two.others["total_variation"].tolist() == [0.5, 0.0]
    assert three.others["total_variation"].tolist() == [0.0, 0.5, 0.5]
    assert two.others["hellinger"].dtype == np.float32
    assert two.per_token("hellinger") is two.others["hellinger"]
    assert (empty.status, long.status) == ("empty", "too_long")
    assert empty.others == long.others == {}
    assert [read.heard for read in reads] == [[], [], [], []]


def test_one_row_is_read_like_a_batch() -> None:
    row = Row("two", np.array([0]), np.array([1, 0]), "")
    found = letters().read_row(row, asked=ASKED).trace.others
    assert found["hellinger"].tolist() == pytest.approx([APART, 0.0], abs=1e-6)
    assert found["total_variation"].tolist() == [0.5, 0.0]
    assert list(letters().read_row(row).trace.others) == ["total_variation"]


def test_traces_hold_copies_not_views_of_their_pack() -> None:
    two, *_ = [read.trace for read in letters().read_batch(ROWS, asked=ASKED)]
    assert all(column.base is None for column in two.others.values())


def test_a_broken_row_has_no_numbers_and_its_neighbour_has() -> None:
    broken = [[0.0, NAN], [0.0, 0.0]]
    rows = [trajectory("bad", [1], [0, 1]), trajectory("good", [1], [1, 0])]
    bad, good = (r.trace for r in letters(q=broken).read_batch(rows, asked=ASKED))
    assert (bad.status, bad.others) == ("nonfinite", {})
    assert good.others["hellinger"].tolist() == [0.0, 0.0]


def test_a_value_out_of_range_ends_the_reading_by_name() -> None:
    with pytest.raises(DataError, match="divergence 'hellinger'"):
        letters().read_batch(ROWS, asked=Asked(divergences=[constant(2.0)]))


@pytest.fixture(scope="module")
def real(saved_pair: SavedPair) -> tuple[Pair, SavedPair]:
    folders = str(saved_pair.p_dir), str(saved_pair.q_dir)
    return load_pair(*folders, p_device="cpu", q_device="cpu"), saved_pair


def test_real_models_give_the_naive_numbers(real: tuple[Pair, SavedPair]) -> None:
    pair, saved = real
    prompt, response = saved.ids(7), saved.ids(25)
    (read,) = pair.read_batch([trajectory("k", prompt, response)], asked=ASKED)
    expected = naive(*saved.naive_logits(prompt, response))
    assert expected.max() > 0.1  # the pair disagrees somewhere, or nothing is tested
    np.testing.assert_allclose(read.trace.others["hellinger"], expected, atol=1e-5)


def assert_same_numbers(one: Trace, other: Trace) -> None:
    for name in PER_TOKEN_FIELDS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    spans = ("answer_start", "answer_stop", "turn_end", "dropped_mass_p", "dropped_mass_q")
    assert [getattr(one, name) for name in spans] == [getattr(other, name) for name in spans]


def test_a_trace_is_the_same_with_and_without_it(real: tuple[Pair, SavedPair]) -> None:
    pair, saved = real
    rows = [trajectory(str(i), saved.ids(2 + i), saved.ids(4 + 5 * i)) for i in range(6)]
    alone = pair.trace_batch(rows)
    asked = [read.trace for read in pair.read_batch(rows, asked=ASKED)]
    for one, other in zip(alone, asked, strict=True):
        assert_same_numbers(one, other)
        assert list(one.others) == ["total_variation"]
        variations = one.others["total_variation"], other.others["total_variation"]
        assert np.array_equal(*variations)
        assert len(other.others["hellinger"]) == len(other)


def test_packs_and_workspaces_do_not_change_it(real: tuple[Pair, SavedPair]) -> None:
    pair, saved = real
    rows = [trajectory(str(i), saved.ids(3), saved.ids(6 + 3 * i)) for i in range(5)]
    together = pair.read_batch(rows, asked=ASKED)
    for budget in (Budget(tokens=1), Budget(workspace_bytes=1)):
        apart = pair.read_batch(rows, budget=budget, asked=ASKED)
        for one, other in zip(together, apart, strict=True):
            found, expected = one.trace.others["hellinger"], other.trace.others["hellinger"]
            np.testing.assert_allclose(found, expected, atol=1e-5)
