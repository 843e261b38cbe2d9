"""The CPU path of the head stage: float64 numbers for any logits, within the workspace."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trace_head_stage import LiveBytes

from divtok.trace.head_stage import pair_metrics
from divtok.trace.kernels import cpu, cpu_math, cpu_product, plain
from divtok.trace.kernels.common import COLUMNS, Head, HeadMetrics, Work, finish

INF = float("inf")
NAN = float("nan")
ALONE = cpu.Team(1, None)


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def from_logits(
    logits_p: torch.Tensor,
    logits_q: torch.Tensor,
    tokens: list[int] | None = None,
    width: int | None = None,
    team: cpu.Team = ALONE,
) -> HeadMetrics:
    out = torch.empty(len(COLUMNS), len(logits_p))
    taken = torch.tensor(tokens or [0] * len(logits_p))
    width = width or min(logits_p.shape[1], logits_q.shape[1])
    cpu.row_kernel(team, logits_p, logits_q, taken, width, out)
    return finish(out)


def reference(
    logits_p: torch.Tensor, logits_q: torch.Tensor, tokens: list[int], width: int
) -> dict[str, np.ndarray]:
    """From the definitions in float64; a token that a model masks adds nothing to its sums."""
    logs, dropped = [], []
    for logits in (logits_p.double().numpy(), logits_q.double().numpy()):
        shifted = logits - logits[:, :width].max(axis=1, keepdims=True)
        inside = np.exp(shifted[:, :width]).sum(axis=1, keepdims=True)
        outside = np.exp(shifted[:, width:]).sum(axis=1, keepdims=True)
        logs.append(shifted[:, :width] - np.log(inside))
        dropped.append((outside / (inside + outside))[:, 0])
    log_p, log_q = logs
    p, q = np.exp(log_p), np.exp(log_q)

    def weighted(weight: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.where(weight > 0, weight * np.where(weight > 0, value, 0), 0).sum(axis=1)

    with np.errstate(invalid="ignore", divide="ignore"):
        middle = np.log((p + q) / 2)
        rows = np.arange(len(tokens))
        return {
            "logprob_p": log_p[rows, tokens],
            "logprob_q": log_q[rows, tokens],
            "entropy_p": weighted(p, -log_p),
            "entropy_q": weighted(q, -log_q),
            "kl_pq": weighted(p, log_p - log_q),
            "kl_qp": weighted(q, log_q - log_p),
            "jsd_bits": (weighted(p, log_p - middle) + weighted(q, log_q - middle)) / np.log(4),
            "total_variation": np.abs(p - q).sum(axis=1) / 2,
            "dropped_p": dropped[0],
            "dropped_q": dropped[1],
        }


def assert_matches(metrics: HeadMetrics, expected: dict[str, np.ndarray], rtol: float) -> None:
    for name, value in expected.items():
        # The whole allowance of a divergence of at most one is absolute.
        bounded = name in ("jsd_bits", "total_variation")
        atol, relative = (1e-6, 0.0) if bounded else (2e-6, rtol)
        actual = metrics.columns()[name].double().numpy()
        np.testing.assert_allclose(actual, value, atol=atol, rtol=relative, err_msg=name)
    assert bool(metrics.finite_p.all())
    assert bool(metrics.finite_q.all())


def test_exp2_over_its_whole_range() -> None:
    x = np.concatenate(
        [
            np.linspace(-126, 0, 200_001),
            np.linspace(-1.001, -0.499, 20_001),
            -np.logspace(-12, 0, 2_001),
        ]
    ).astype(np.float32)
    values = np.array([cpu_math.exp2(value) for value in x])
    np.testing.assert_allclose(values, np.exp2(x.astype(np.float64)), rtol=1.5e-7)
    whole = np.arange(-126, 1).astype(np.float32)
    assert [cpu_math.exp2(value) for value in whole] == [2.0**n for n in range(-126, 1)]


def test_numbers_that_exp2_does_not_take_become_its_lowest() -> None:
    for value in (-INF, NAN, -1e30, -126.5):
        assert cpu_math.clamped(np.float32(value)) == -126


def test_jsd_term_over_its_whole_range() -> None:
    x = np.concatenate([np.logspace(-12, 0, 3_001), np.linspace(0.4, 126, 60_001)])
    x = x.astype(np.float32)
    actual = np.array([cpu_math._jsd_term(value, np.exp2(-value)) for value in x])
    wide = x.astype(np.float64)
    d = np.tanh(wide * np.log(2) / 2)
    near = x < 0.25
    # phi(d) as its power series, which does not cancel.
    phi = sum(d ** (2 * k) / (2 * k * (2 * k - 1)) for k in range(1, 12))
    w = (1 + np.exp2(-wide)) / 2
    expected = w * phi / np.log(2)
    np.testing.assert_allclose(actual[near], expected[near], rtol=1e-6)
    expected = -w * np.log2(w) - np.exp2(-wide) * wide / 2
    np.testing.assert_allclose(actual[~near], expected[~near], atol=1.5e-7, rtol=0)
    assert cpu_math._jsd_term(np.float32(0), np.float32(1)) == 0


def test_the_loops_are_vectors() -> None:
    import numba

    # AVX-512; x86 of any age; ARM.
    packed = "%zmm" if cpu_product.LANES == 16 else r"\bv?(mul|max)ps\b|\bv?fmadd\d+ps\b|\.4s\b"
    row = numba.types.Array(numba.float32, 1, "C")
    for loop, arguments in ((cpu_math._top, (row,)), (cpu_math._block_sum, (row, numba.float32))):
        loop.compile(arguments)
        assert re.search(packed, loop.inspect_asm(arguments))


BLOCK = cpu_math.BLOCK
WIDTHS = [
    (1, 1),
    (1, 3),
    (2, 2),
    (15, 17),
    (BLOCK, BLOCK),
    (BLOCK + 1, 2 * BLOCK - 1),
    (5000, 4321),
]


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_agrees_with_float64(widths: tuple[int, int], spread: float) -> None:
    logits_p = spread * draw(6, widths[0], seed=1) + 5
    logits_q = spread * draw(6, widths[1], seed=2) - 3
    for width in {min(widths), (min(widths) + 1) // 2, 1}:
        tokens = [i % width for i in range(6)]
        metrics = from_logits(logits_p, logits_q, tokens, width)
        assert_matches(metrics, reference(logits_p, logits_q, tokens, width), rtol=1e-6)


@pytest.mark.parametrize("width", [49_152, 151_936])
def test_wide_vocabularies_keep_six_digits(width: int) -> None:
    logits_p = 3 * draw(3, width, seed=1)
    logits_q = logits_p + draw(3, width, seed=2)
    logits_p[1, 7] += 30  # a peak in one, nothing but peak in the other
    logits_q[2] *= 10
    metrics = from_logits(logits_p, logits_q)
    assert_matches(metrics, reference(logits_p, logits_q, [0] * 3, width), rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.one_of(st.floats(-200, 200, width=32), st.just(-INF))] * 2),
        min_size=1,
        max_size=40,
    )
)
def test_any_logits_and_masks(pairs: list[tuple[float, float]]) -> None:
    logits = torch.tensor([(0.0, 0.0), *pairs]).T  # one token is allowed to both
    metrics = from_logits(logits[:1].contiguous(), logits[1:].contiguous(), [0])
    expected = reference(logits[:1], logits[1:], [0], logits.shape[1])
    assert_matches(metrics, expected, rtol=2e-6)
    assert 0 <= float(metrics.jsd_bits) <= 1
    assert 0 <= float(metrics.others["total_variation"]) <= 1


@pytest.mark.parametrize("step", [1e-2, 1e-4, 1e-6])
def test_nearly_equal_distributions(step: float) -> None:
    logits_p = 4 * draw(4, 3000, seed=1)
    logits_q = logits_p + step * draw(4, 3000, seed=2)
    metrics = from_logits(logits_p, logits_q)
    # JSD of p and p(1 + e) is about the variance of e over 8 ln 2; the plain way loses it.
    p = logits_p.double().softmax(1)
    e = (logits_q.double() - logits_p.double()).numpy()
    variance = (p.numpy() * e**2).sum(1) - (p.numpy() * e).sum(1) ** 2
    expected = variance / (8 * np.log(2))
    actual = metrics.jsd_bits.double().numpy()
    np.testing.assert_allclose(actual, expected, atol=1e-12, rtol=2 * step + 1e-5)
    assert from_logits(logits_p, logits_p + 2).jsd_bits.max() < 1e-12


def test_the_same_logits_give_exactly_nothing() -> None:
    logits = 5 * draw(3, 2000, seed=1)
    logits[1, 3:] = -INF
    metrics = from_logits(logits, logits.clone())
    assert metrics.jsd_bits.tolist() == metrics.kl_pq.tolist() == metrics.kl_qp.tolist() == [0] * 3
    assert metrics.others["total_variation"].tolist() == [0] * 3


def test_masked_tokens_count_exactly() -> None:
    half, other = torch.tensor([[0.0, 0.0, -INF]]), torch.tensor([[0.0, -INF, 0.0]])
    only = torch.tensor([[-INF, -INF, 7.0]])
    metrics = from_logits(half, other, [1])
    assert float(metrics.jsd_bits) == float(metrics.others["total_variation"]) == 0.5
    assert float(metrics.kl_pq) == float(metrics.kl_qp) == INF
    assert float(metrics.logprob_q) == -INF
    assert float(metrics.entropy_p) == pytest.approx(np.log(2))
    disjoint = from_logits(half, only)
    assert float(disjoint.jsd_bits) == float(disjoint.others["total_variation"]) == 1.0
    assert float(disjoint.entropy_q) == pytest.approx(0, abs=1e-30)


def test_a_masked_token_makes_one_kl_infinite() -> None:
    whole, part = torch.zeros(1, 2), torch.tensor([[0.0, -INF]])
    metrics = from_logits(whole, part)
    assert float(metrics.kl_pq) == INF
    assert float(metrics.kl_qp) == pytest.approx(np.log(2))
    # However little the token has, it is allowed.
    faint = torch.tensor([[0.0, -150.0]])
    assert float(from_logits(faint, part).kl_pq) == INF
    assert float(from_logits(faint, part).jsd_bits) == 0
    assert float(from_logits(faint, part).others["total_variation"]) == 0


@pytest.mark.parametrize("floor", [-1e9, -1e30, float(np.finfo(np.float32).min)])
def test_a_finite_mask_behind_faint_tokens_changes_nothing(floor: float) -> None:
    faint, masked = torch.tensor([[0.0, -150.0]]), torch.tensor([[0.0, floor]])
    for metrics in (from_logits(faint, masked), from_logits(masked, masked.clone())):
        assert float(metrics.kl_pq) == pytest.approx(0, abs=1e-20)
        assert float(metrics.jsd_bits) == pytest.approx(0, abs=1e-30)
        assert float(metrics.others["total_variation"]) == pytest.approx(0, abs=1e-30)


@pytest.mark.parametrize("size", [5, 2 * BLOCK + 5])
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_broken_logit_shows_wherever_it_is(size: int, value: float) -> None:
    clean_p, clean_q = draw(3, size, seed=1), draw(3, size, seed=2)
    clean = from_logits(clean_p, clean_q)
    for position in (0, 3, size - 1):
        logits = clean_p.clone()
        logits[1, position] = value
        metrics = from_logits(logits, clean_q)
        assert metrics.finite_p.tolist() == [True, False, True]
        assert metrics.finite_q.all()
        assert from_logits(clean_q, logits).finite_q.tolist() == [True, False, True]
        numbers = {n: c for n, c in metrics.columns().items() if not n.startswith("finite")}
        assert len(numbers) == 10
        for name, column in numbers.items():
            assert bool(column[1].isnan())
            assert torch.equal(column[[0, 2]], clean.columns()[name][[0, 2]])


def test_rows_without_a_distribution() -> None:
    logits = torch.zeros(4, 6)
    logits[0] = -INF
    logits[1, :4] = -INF  # all that is shared
    logits[2, 5] = NAN  # in the tail that the crop hides
    metrics = from_logits(logits, torch.zeros(4, 4))
    assert metrics.finite_p.tolist() == [False, False, False, True]
    assert float(metrics.dropped_p[3]) == pytest.approx(1 / 3)
    assert metrics.finite_q.all()


def test_threads_share_the_rows() -> None:
    logits_p, logits_q = 3 * draw(11, 700, seed=1), 3 * draw(11, 700, seed=2)
    alone = from_logits(logits_p, logits_q)
    with ThreadPoolExecutor(3) as pool:
        shared = from_logits(logits_p, logits_q, team=cpu.Team(3, pool))
    for name, column in shared.columns().items():
        assert torch.equal(column, alone.columns()[name])


STRIP, GROUP, DEPTH = cpu_product.STRIP, cpu_product.GROUP, cpu_product.DEPTH


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [STRIP, STRIP + 1, 5 * STRIP - 1])
@pytest.mark.parametrize(
    ("rows", "depth"), [(1, 1), (9, 7), (GROUP, DEPTH), (GROUP + 1, DEPTH + 1), (3 * GROUP - 1, 64)]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_tiled_product(dtype: torch.dtype, vocab: int, rows: int, depth: int, threads: int) -> None:
    weight, hidden = draw(vocab, depth, seed=1).to(dtype), draw(rows, depth, seed=2).to(dtype)
    logits = torch.full((rows, vocab), NAN)
    with ThreadPoolExecutor(threads) as pool:
        cpu._tiled_product(cpu.Team(threads, pool), weight, hidden, logits)
    torch.testing.assert_close(
        logits.double(), hidden.double() @ weight.double().T, atol=2e-6 * depth**0.5, rtol=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_half_precision_number_is_widened_exactly(dtype: torch.dtype) -> None:
    numbers = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    weight = numbers[:, None].contiguous()
    logits = torch.empty(1, len(numbers))
    cpu._tiled_product(ALONE, weight, torch.ones(1, 1), logits)
    torch.testing.assert_close(logits[0], numbers.float(), atol=0, rtol=0, equal_nan=True)


def some_work(dtype: torch.dtype, positions: int, vocab: int, depth: int = 24) -> Work:
    head_p = Head(draw(vocab, depth, seed=1).to(dtype), bias=draw(vocab, seed=2), softcap=20.0)
    head_q = Head(draw(vocab - 3, depth + 8, seed=3).to(dtype), scale=0.5)
    hidden_p = draw(positions, depth, seed=4).to(dtype)
    hidden_q = draw(positions, depth + 8, seed=5).to(dtype)
    tokens = torch.arange(positions) % (vocab - 9)
    return Work(hidden_p, head_p, hidden_q, head_q, tokens, vocab - 9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("positions", [1, 7, 150])
@pytest.mark.parametrize("tiles", [True, False])
def test_agrees_with_the_plain_path(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, positions: int, tiles: bool
) -> None:
    if not tiles:
        monkeypatch.setattr(cpu, "_fits_tiles", lambda _: False)
    work = some_work(dtype, positions, vocab=400)
    expected = plain.metrics(work, 1 << 30)
    for workspace in (1 if positions < 10 else 60_000, 300_000, 1 << 30):
        actual = cpu.metrics(work, workspace)
        for name, column in actual.columns().items():
            torch.testing.assert_close(column, expected.columns()[name], atol=3e-6, rtol=1e-5)


def test_weights_that_are_not_contiguous_or_want_a_gradient() -> None:
    work = some_work(torch.float32, 40, vocab=300)
    expected = cpu.metrics(work, 1 << 20)
    odd = Head(work.head_q.weight.T.contiguous().T, scale=0.5)
    learnt = Head(work.head_p.weight.clone().requires_grad_(), work.head_p.bias, softcap=20.0)
    arguments = work.hidden_p, learnt, work.hidden_q, odd, work.tokens
    actual = pair_metrics(*arguments, vocab_size=work.width)
    torch.testing.assert_close(actual.jsd_bits, expected.jsd_bits, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("tiles", [True, False])
@pytest.mark.parametrize("workspace", [400_000, 3 << 20])
def test_memory_stays_within_the_workspace(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, tiles: bool, workspace: int
) -> None:
    if not tiles:
        monkeypatch.setattr(cpu, "_fits_tiles", lambda _: False)
    positions, vocab = 300, 4000
    work = some_work(dtype, positions, vocab)
    work = Work(
        work.hidden_p,
        Head(work.head_p.weight),
        work.hidden_q,
        Head(work.head_q.weight),
        work.tokens,
        work.width,
    )
    inputs = work.hidden_p, work.head_p.weight, work.hidden_q, work.head_q.weight
    with LiveBytes(*inputs) as live:
        cpu.metrics(work, workspace)
    results = positions * 3 * len(COLUMNS) * 4  # the kernel's columns, and the metrics made of them
    assert workspace // 4 < live.peak <= workspace + results


def test_no_array_is_made_beside_the_tensors() -> None:
    """The compiled loops allocate nothing: the tensors counted above are all there is."""
    from numba.core.runtime import _nrt_python, rtsys

    _nrt_python.memsys_enable_stats()
    work = some_work(torch.bfloat16, 50, vocab=400)
    cpu.metrics(work, 1 << 20)
    before = rtsys.get_allocation_stats().alloc
    cpu.metrics(work, 1 << 20)
    # A header for each array that a thread is handed: four for the rows, five for each product.
    assert rtsys.get_allocation_stats().alloc - before == (4 + 2 * 5) * torch.get_num_threads()


def test_code_is_compiled_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.caching import CompileResultCacheImpl

    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])

    def double(values: Any) -> None:
        for i in range(len(values)):
            values[i] *= 2

    values = np.ones(3, dtype=np.float32)
    cpu_math.compiled("void(f4[:])")(double)(values)
    assert values.tolist() == [2, 2, 2]


def test_numba_is_only_imported_when_it_is_used() -> None:
    code = "import sys, divtok.trace.head_stage; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_numba_the_path_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    cpu.available.cache_clear()
    try:
        assert not cpu.available()
    finally:
        cpu.available.cache_clear()
