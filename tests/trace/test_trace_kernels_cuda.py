"""The GPU's kernel, run by Triton's interpreter: the numbers of float64, whatever the logits."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from divergence_samples import HELLINGER
from trace_samples import naive_jsd_bits, naive_total_variation

from divtok.trace.kernels import plain
from divtok.trace.kernels.common import COLUMNS, Head, Work, finish

pytest.importorskip("triton", reason="the kernel is written in Triton")
INF = float("inf")


@pytest.fixture(scope="module")
def cuda() -> Any:
    return importlib.import_module("divtok.trace.kernels.cuda")


def draw(*shape: int, seed: int, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def run(cuda: Any, p: torch.Tensor, q: torch.Tensor, width: int, **options: Any) -> dict[str, Any]:
    tokens = torch.arange(len(p)) % width
    out = torch.full((len(COLUMNS), len(p)), float("nan"))
    with np.errstate(all="ignore"):  # the interpreter computes with numpy, which warns of inf - inf
        cuda.row_kernel(p, q, tokens, width, out, block=64, warps=4, **options)
    return dict(zip(COLUMNS, out, strict=True))


def reference(p: torch.Tensor, q: torch.Tensor, width: int) -> dict[str, Any]:
    out = torch.empty(len(COLUMNS), len(p), dtype=torch.float64)
    plain.row_kernel(p.double(), q.double(), torch.arange(len(p)) % width, width, out)
    return dict(zip(COLUMNS, out, strict=True))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    ("width_p", "width_q", "width"),
    [(700, 650, 600), (256, 256, 256), (511, 640, 511), (5, 9, 5), (130, 130, 1)],
)
def test_agrees_with_float64(
    cuda: Any, masked: bool, width_p: int, width_q: int, width: int
) -> None:
    p, q = draw(3, width_p, seed=1), draw(3, width_q, seed=2)
    expected = reference(p, q, width)
    for name, value in run(cuda, p, q, width, masked=masked).items():
        torch.testing.assert_close(value.double(), expected[name], atol=4e-6, rtol=1e-6)
    exact = naive_jsd_bits(p[:, :width].numpy(), q[:, :width].numpy())
    found = run(cuda, p, q, width, masked=masked)
    np.testing.assert_allclose(found["jsd_bits"].numpy(), exact, atol=1e-6)
    exact = naive_total_variation(p[:, :width].numpy(), q[:, :width].numpy())
    np.testing.assert_allclose(found["total_variation"].numpy(), exact, atol=1e-6, rtol=0)


@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-2, 0.3])
def test_small_divergences_keep_their_digits(cuda: Any, noise: float) -> None:
    p = draw(2, 500, seed=3)
    q = p + draw(2, 500, seed=4, scale=noise)
    jsd = run(cuda, p, q, 500)["jsd_bits"].double()
    expected = reference(p, q, 500)["jsd_bits"]
    # Log-ratios are known to about 1e-6; the entropy form would lose 1e-9 bits altogether.
    rtol = max(2e-3, 2e-6 / noise) if noise else 0
    torch.testing.assert_close(jsd, expected, atol=1e-14, rtol=rtol)


@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-2, 0.3])
def test_small_total_variations_keep_their_digits(cuda: Any, noise: float) -> None:
    p = draw(2, 500, seed=3)
    q = p + draw(2, 500, seed=4, scale=noise)
    found = run(cuda, p, q, 500)["total_variation"].double()
    expected = reference(p, q, 500)["total_variation"]
    # A difference of probabilities that are each known to about 1e-7 of themselves.
    torch.testing.assert_close(found, expected, atol=1e-7 if noise else 0, rtol=1e-6)


def test_logits_far_from_zero_lose_nothing(cuda: Any) -> None:
    p, q = draw(2, 300, seed=5), draw(2, 300, seed=6)
    # Shifts that float32 can add to these logits without rounding.
    p, q = (x.mul(256).round().div(256) for x in (p, q))
    base, moved = run(cuda, p, q, 300), run(cuda, p + 512, q - 1024, 300)
    for name in ("jsd_bits", "total_variation"):
        torch.testing.assert_close(moved[name], base[name], atol=5e-7, rtol=0)


def test_masked_tokens_count_exactly(cuda: Any) -> None:
    p = torch.tensor([[0.0, 0.0, -INF], [0.0, 0.0, -INF], [0.0, -INF, -INF]])
    q = torch.tensor([[0.0, -INF, 0.0], [0.0, 0.0, -INF], [-INF, 0.0, 0.0]])
    found = run(cuda, p, q, 3)
    assert found["jsd_bits"].tolist() == [0.5, 0.0, 1.0]
    assert found["total_variation"].tolist() == [0.5, 0.0, 1.0]
    assert found["kl_pq"].tolist() == [INF, 0.0, INF]
    assert found["kl_qp"].tolist() == [INF, 0.0, INF]
    faint = torch.tensor([[0.0, 0.0, -150.0]])
    assert run(cuda, faint, p[:1], 3)["kl_pq"].tolist() == [INF]
    assert found["entropy_p"].tolist() == pytest.approx([np.log(2), np.log(2), 0.0])


@pytest.mark.parametrize("value", [float("nan"), INF])
def test_a_broken_row_is_marked_and_its_neighbours_are_not(cuda: Any, value: float) -> None:
    p, q = draw(3, 100, seed=7), draw(3, 100, seed=8)
    clean = run(cuda, p, q, 90)
    for column in (3, 95):  # within the shared width, and behind it
        broken = q.clone()
        broken[1, column] = value
        metrics = finish(torch.stack(list(run(cuda, p, broken, 90).values())))
        assert metrics.finite_p.all()
        # NaN behind the width cannot be told from no tail by comparison alone.
        assert metrics.finite_q.tolist() == [True, False, True]
        for name in ("jsd_bits", "total_variation"):
            column = metrics.columns()[name]
            assert torch.equal(column[[0, 2]], clean[name][[0, 2]])
            assert bool(column[1].isnan())


def test_a_row_with_every_token_masked_is_marked(cuda: Any) -> None:
    p, q = draw(2, 70, seed=9), draw(2, 70, seed=10)
    p[1] = -INF
    metrics = finish(torch.stack(list(run(cuda, p, q, 70).values())))
    assert metrics.finite_p.tolist() == [True, False]
    assert metrics.finite_q.tolist() == [True, True]
    assert metrics.others["total_variation"].isnan().tolist() == [False, True]


@pytest.mark.parametrize("rows", [1, 3, 300])
def test_the_whole_path_in_chunks(cuda: Any, rows: int) -> None:
    head_p, head_q = Head(draw(90, 8, seed=1)), Head(draw(80, 6, seed=2), bias=draw(80, seed=3))
    work = Work(
        draw(7, 8, seed=4, scale=1), head_p, draw(7, 6, seed=5, scale=1), head_q,
        torch.arange(7), 80,
    )  # fmt: skip
    found = cuda.metrics(work, rows * 4 * 170)
    expected = plain.metrics(work, 1 << 20)
    for name in ("jsd_bits", "kl_pq", "kl_qp", "entropy_p", "logprob_q", "dropped_p", "dropped_q"):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), atol=5e-6, rtol=1e-5
        )
    assert list(found.others) == ["total_variation"]
    torch.testing.assert_close(
        found.others["total_variation"], expected.others["total_variation"], atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("rows", [3, 300])
def test_another_divergence_beside_the_kernel(cuda: Any, rows: int) -> None:
    head_p, head_q = Head(draw(90, 8, seed=1)), Head(draw(80, 6, seed=2), bias=draw(80, seed=3))
    hidden = draw(7, 8, seed=4, scale=1), draw(7, 6, seed=5, scale=1)
    work = Work(hidden[0], head_p, hidden[1], head_q, torch.arange(7), 80)
    asked = replace(work, others=(HELLINGER,))
    with np.errstate(all="ignore"):
        found, alone = (cuda.metrics(w, rows * 4 * 170) for w in (asked, work))
    expected = plain.metrics(asked, 1 << 20).others["hellinger"]
    torch.testing.assert_close(found.others["hellinger"], expected, atol=1e-6, rtol=0)
    for name, column in alone.columns().items():
        assert torch.equal(column, found.columns()[name])
