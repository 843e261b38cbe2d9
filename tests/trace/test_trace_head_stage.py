"""The head stage: the numbers of the plain float64 way, without ever holding whole logits."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from trace_samples import naive_jsd_bits, naive_total_variation

from divtok.errors import UsageError
from divtok.trace.head_stage import pair_metrics
from divtok.trace.kernels import plain
from divtok.trace.kernels.common import Head, HeadMetrics, Work, head_logits

INF = float("inf")
T, DP, DQ, VP, VQ = 37, 24, 16, 211, 190


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def inputs() -> tuple[torch.Tensor, Head, torch.Tensor, Head, torch.Tensor]:
    head_p = Head(draw(VP, DP, seed=1), bias=draw(VP, seed=2), softcap=8.0)
    head_q = Head(draw(VQ, DQ, seed=3), scale=0.5)
    tokens = torch.arange(T) * 5 % VQ
    return draw(T, DP, seed=4), head_p, draw(T, DQ, seed=5), head_q, tokens


def reference(
    hidden_p: torch.Tensor,
    head_p: Head,
    hidden_q: torch.Tensor,
    head_q: Head,
    tokens: torch.Tensor,
    width: int,
) -> dict[str, np.ndarray]:
    """Everything from whole float64 logits, written from the definitions."""

    def whole(hidden: torch.Tensor, head: Head) -> np.ndarray:
        logits = hidden.double().numpy() @ head.weight.double().numpy().T
        if head.bias is not None:
            logits = logits + head.bias.double().numpy()
        logits = logits * head.scale
        return logits if head.softcap is None else head.softcap * np.tanh(logits / head.softcap)

    def softmax(logits: np.ndarray) -> np.ndarray:
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    full_p, full_q = whole(hidden_p, head_p), whole(hidden_q, head_q)
    p, q = softmax(full_p[:, :width]), softmax(full_q[:, :width])
    taken = np.arange(len(tokens)), tokens.numpy()
    return {
        "logprob_p": np.log(p[taken]),
        "logprob_q": np.log(q[taken]),
        "entropy_p": -(p * np.log(p)).sum(-1),
        "entropy_q": -(q * np.log(q)).sum(-1),
        "jsd_bits": naive_jsd_bits(full_p[:, :width], full_q[:, :width]),
        "total_variation": naive_total_variation(full_p[:, :width], full_q[:, :width]),
        "kl_pq": (p * np.log(p / q)).sum(-1),
        "kl_qp": (q * np.log(q / p)).sum(-1),
        "dropped_p": softmax(full_p)[:, width:].sum(-1),
        "dropped_q": softmax(full_q)[:, width:].sum(-1),
    }


def assert_matches(metrics: HeadMetrics, expected: dict[str, np.ndarray], atol: float) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(metrics.columns()[name].numpy(), value, atol=atol, rtol=1e-5)
    assert bool(metrics.finite_p.all())
    assert bool(metrics.finite_q.all())


@pytest.mark.parametrize("width", [None, 190, 100, 1])
def test_agrees_with_whole_float64_logits(inputs: Any, width: int | None) -> None:
    tokens = inputs[-1] % (width or VQ)
    metrics = pair_metrics(*inputs[:-1], tokens, vocab_size=width)
    assert_matches(metrics, reference(*inputs[:-1], tokens, width or VQ), atol=2e-6)


def test_plain_weights_and_any_kind_of_token_ids() -> None:
    hidden_p, weight_p = draw(3, 4, seed=0), draw(9, 4, seed=1)
    hidden_q, weight_q = draw(3, 5, seed=2), draw(7, 5, seed=3)
    ids = [0, 6, 3]
    expected = reference(hidden_p, Head(weight_p), hidden_q, Head(weight_q), torch.tensor(ids), 7)
    for tokens in (ids, tuple(ids), np.array(ids, dtype=np.int32), torch.tensor(ids)):
        metrics = pair_metrics(hidden_p, weight_p, hidden_q, weight_q, tokens)
        assert_matches(metrics, expected, atol=2e-6)


@pytest.mark.parametrize("workspace", [1, 12_000, 50_000, 1 << 30])
def test_chunk_sizes_give_the_same_numbers(inputs: Any, workspace: int) -> None:
    whole = pair_metrics(*inputs)
    chunked = pair_metrics(*inputs, workspace_bytes=workspace)
    assert len(chunked.columns()) == 12
    for name, column in chunked.columns().items():
        torch.testing.assert_close(column, whole.columns()[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("workspace", [4_000, None])
def test_logits_are_float32_for_every_weight_dtype(
    inputs: Any, dtype: torch.dtype, workspace: int | None
) -> None:
    hidden_p, head_p, hidden_q, head_q, tokens = inputs
    head_p = Head(head_p.weight.to(dtype), head_p.bias.to(dtype), head_p.softcap)
    head_q = Head(head_q.weight.to(dtype), scale=head_q.scale)
    arguments = hidden_p.to(dtype), head_p, hidden_q.to(dtype), head_q, tokens
    metrics = pair_metrics(*arguments, workspace_bytes=workspace)
    # The reference starts from the same rounded weights: rounding of the logits would show.
    assert_matches(metrics, reference(*arguments, VQ), atol=5e-6)
    assert head_logits(head_p, hidden_p.to(dtype)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("rows", "vocab", "depth"), [(1, 1, 1), (9, 70, 7), (161, 1001, 400)])
@pytest.mark.parametrize("weight_bytes", [1, 1 << 24])
def test_products_of_every_dtype_and_layout(
    dtype: torch.dtype, rows: int, vocab: int, depth: int, weight_bytes: int
) -> None:
    hidden, weight = draw(rows, depth, seed=1).to(dtype), draw(vocab, depth, seed=2).to(dtype)
    exact = hidden.double() @ weight.double().T
    for layout in (weight, weight.T.contiguous().T):
        logits = head_logits(Head(layout), hidden, weight_bytes=weight_bytes)
        torch.testing.assert_close(logits.double(), exact, atol=2e-6 * depth**0.5, rtol=1e-5)


def known_logits(rows: list[list[float]]) -> tuple[torch.Tensor, Head]:
    """Hidden states that pick row i of given logits: one-hot vectors and a finite head."""
    logits = torch.tensor(rows)
    return torch.eye(len(rows)), Head(logits.T.contiguous())


def test_masked_logits_are_exact() -> None:
    # A head's bias masks tokens; one-hot hidden states cannot, since 0 * inf is NaN.
    eye, zeros = torch.ones(1, 1), torch.zeros(3, 1)
    half = Head(zeros, bias=torch.tensor([0.0, 0.0, -INF]))
    other = Head(zeros, bias=torch.tensor([0.0, -INF, 0.0]))
    metrics = pair_metrics(eye, half, eye, other, [1])
    assert float(metrics.jsd_bits) == float(metrics.others["total_variation"]) == 0.5
    assert float(metrics.entropy_p) == pytest.approx(np.log(2))
    assert float(metrics.logprob_p) == pytest.approx(-np.log(2))
    assert float(metrics.logprob_q) == -INF
    assert float(metrics.kl_pq) == float(metrics.kl_qp) == INF
    same = pair_metrics(eye, half, eye, half, [0])
    assert float(same.jsd_bits) == float(same.kl_pq) == float(same.kl_qp) == 0
    assert float(same.others["total_variation"]) == 0
    disjoint = Head(zeros, bias=torch.tensor([-INF, -INF, 0.0]))
    apart = pair_metrics(eye, half, eye, disjoint, [0])
    assert float(apart.jsd_bits) == float(apart.others["total_variation"]) == 1.0


def test_broken_positions_are_marked_and_the_others_untouched() -> None:
    rows = [[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    hidden, head = known_logits(rows)
    clean = pair_metrics(hidden, head, hidden, head, [0, 1, 2, 0])
    for value in (float("nan"), INF, -INF):
        broken = hidden.clone()
        broken[2] = value
        metrics = pair_metrics(broken, head, hidden, head, [0, 1, 2, 0])
        assert metrics.finite_p.tolist() == [True, True, False, True]
        assert metrics.finite_q.all()
        for name, column in metrics.columns().items():
            if name.startswith("finite"):
                continue
            expected = clean.columns()[name]
            assert bool(column[2].isnan())
            assert torch.equal(column[[0, 1, 3]], expected[[0, 1, 3]])
        assert not pair_metrics(hidden, head, broken, head, [0, 1, 2, 0]).finite_q[2]


@pytest.mark.parametrize("bias", [[-INF, -INF, 5.0], [0.0, 0.0, float("nan")], [0.0, 0.0, INF]])
def test_a_row_without_a_distribution_is_marked(bias: list[float]) -> None:
    # All shared tokens masked, or a broken logit in the tail that the crop would have hidden.
    one = torch.ones(1, 1)
    wide = Head(torch.zeros(3, 1), bias=torch.tensor(bias))
    metrics = pair_metrics(one, wide, one, torch.zeros(2, 1), [0])
    assert not metrics.finite_p
    assert metrics.finite_q


def test_dropped_mass_is_measured_before_the_crop() -> None:
    one = torch.ones(1, 1)
    tail = Head(torch.zeros(4, 1), bias=torch.tensor([0.0, 0.0, np.log(6.0), -INF]).float())
    metrics = pair_metrics(one, tail, one, torch.zeros(2, 1), [0])
    assert float(metrics.dropped_p) == pytest.approx(6 / 8)
    assert float(metrics.dropped_q) == 0
    assert float(metrics.jsd_bits) == 0
    assert float(metrics.logprob_p) == pytest.approx(-np.log(2))


def test_no_positions_give_empty_metrics() -> None:
    none = torch.zeros(0, 4)
    metrics = pair_metrics(none, torch.zeros(3, 4), none, torch.zeros(3, 4), [])
    assert len(metrics.columns()) == 12
    assert all(column.shape == (0,) for column in metrics.columns().values())


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors made while it is active and not yet freed."""

    def __init__(self, *inputs: torch.Tensor) -> None:
        super().__init__()
        self.now = self.peak = self.largest = 0
        # A view of an input is no new memory.
        self.seen = {tensor.untyped_storage()._cdata for tensor in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.count(tensor)
        return result

    def count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self.seen:
            return
        self.seen.add(storage._cdata)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        self.largest = max(self.largest, size)
        weakref.finalize(storage, self.free, storage._cdata, size)

    def free(self, storage: int, size: int) -> None:
        self.seen.discard(storage)
        self.now -= size


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_stays_within_the_workspace(dtype: torch.dtype) -> None:
    positions, vocab, workspace = 600, 3000, 1 << 20
    hidden, weight = draw(positions, 8, seed=0).to(dtype), draw(vocab, 8, seed=1).to(dtype)
    other, smaller = draw(positions, 8, seed=2).to(dtype), draw(vocab - 40, 8, seed=3).to(dtype)
    tokens = torch.zeros(positions, dtype=torch.int64)
    with LiveBytes(hidden, weight, other, smaller, tokens) as live:
        pair_metrics(hidden, weight, other, smaller, tokens, workspace_bytes=workspace)
    results = positions * (10 * 4 + 2)
    assert live.peak > workspace // 4  # the counter sees the work at all
    assert live.peak <= workspace + results
    assert live.largest < positions * vocab


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": [0, 7]}, "Token id 7 at position 1"),
        ({"token_ids": [-1, 0]}, "Token id -1 at position 0"),
        ({"token_ids": [0]}, "2 hidden states of p"),
        ({"vocab_size": 8}, "vocab_size is 8"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"hidden_p": torch.zeros(2, 3)}, "Hidden states of p"),
        ({"hidden_q": torch.zeros(3, 5)}, "3 hidden states of q"),
        ({"workspace_bytes": 0}, "workspace_bytes"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {
        "hidden_p": torch.zeros(2, 4),
        "weight_p": torch.zeros(9, 4),
        "hidden_q": torch.zeros(2, 5),
        "weight_q": torch.zeros(7, 5),
        "token_ids": [0, 6],
    }
    with pytest.raises(UsageError, match=message):
        pair_metrics(**(arguments | change))


@pytest.mark.parametrize("path", ["default", "plain"])
def test_a_faint_token_that_the_other_model_masks_makes_its_kl_infinite(path: str) -> None:
    one, zeros = torch.ones(1, 1), torch.zeros(3, 1)
    faint = Head(zeros, bias=torch.tensor([0.0, 0.0, -150.0]))
    masked = Head(zeros, bias=torch.tensor([0.0, 0.0, -INF]))
    if path == "plain":
        metrics = plain.metrics(Work(one, faint, one, masked, torch.tensor([0]), 3), 1 << 20)
    else:
        metrics = pair_metrics(one, faint, one, masked, [0])
    assert float(metrics.kl_pq) == INF
    assert float(metrics.kl_qp) == pytest.approx(0.0, abs=1e-6)


def test_wide_disjoint_distributions_are_one_apart() -> None:
    """Sums of tens of thousands of terms, whose logarithm float32 rounds by 1e-6."""
    for half in (33_001, 40_010, 60_003):
        left = torch.zeros(2 * half)
        left[half:] = -INF
        right = left.flip(0)
        one, zeros = torch.ones(1, 1), torch.zeros(2 * half, 1)
        metrics = pair_metrics(one, Head(zeros, bias=left), one, Head(zeros, bias=right), [0])
        for found in (metrics.jsd_bits, metrics.others["total_variation"]):
            assert float(found) == pytest.approx(1.0, abs=1e-6)
            assert float(found) <= 1.0


def test_half_precision_heads_in_a_tiny_workspace_end() -> None:
    hidden, weight = draw(300, 8, seed=1).bfloat16(), draw(500, 8, seed=2).bfloat16()
    tokens = torch.arange(300)
    calls = 0

    class Count(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal calls
            calls += 1
            return func(*args, **(kwargs or {}))

    with Count():
        pair_metrics(hidden, weight, hidden, weight, tokens, workspace_bytes=1)
    # Column by column it would be thousands for each.
    assert calls < 200 * len(tokens)


def test_token_ids_that_are_no_integers_are_refused() -> None:
    hidden, weight = draw(1, 4, seed=0), draw(9, 4, seed=1)
    with pytest.raises(UsageError, match="must be integers"):
        pair_metrics(hidden, weight, hidden, weight, [1.9])  # type: ignore[list-item]
