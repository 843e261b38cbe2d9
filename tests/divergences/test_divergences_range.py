"""JSD and total variation on every path of the head stage: right, and never outside [0, 1]."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from divtok.errors import DataError
from divtok.trace.kernels import cpu, plain
from divtok.trace.kernels.common import COLUMNS, RowKernel, finish

INF = float("inf")
JSD = COLUMNS.index("jsd_bits")
VARIATION = COLUMNS.index("total_variation")


def kernels() -> dict[str, Callable[[], RowKernel]]:
    """Every path that this environment has; they are imported by the tests that use them."""

    def triton_kernel() -> Any:
        return importlib.import_module("divtok.trace.kernels.cuda").row_kernel

    def numba_kernel() -> Any:
        return lambda *arguments: cpu.row_kernel(cpu.Team(1, None), *arguments)

    found: dict[str, Callable[[], RowKernel]] = {"plain": lambda: plain.row_kernel}
    if cpu.available():
        found["numba"] = numba_kernel
    if importlib.util.find_spec("triton") is not None:
        found["triton"] = triton_kernel
    return found


@pytest.fixture(params=kernels())
def kernel(request: pytest.FixtureRequest) -> RowKernel:
    return kernels()[request.param]()


def columns(kernel: RowKernel, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Logits [N, V] of both -> what the kernel fills in."""
    out = torch.empty(len(COLUMNS), len(p))
    tokens = torch.zeros(len(p), dtype=torch.int64)
    with np.errstate(all="ignore"):  # Triton's interpreter computes with numpy, which warns
        kernel(p.clone(), q.clone(), tokens, p.shape[1], out)
    return out


def exact_bits(p: torch.Tensor, q: torch.Tensor) -> np.ndarray:
    """From the definition in float64: [N, V], [N, V] -> [N]."""
    a, b = p.double().softmax(-1), q.double().softmax(-1)
    middle = (a + b) / 2
    total = torch.special.xlogy(a, a / middle) + torch.special.xlogy(b, b / middle)
    return (torch.nan_to_num(total).sum(-1) / (2 * np.log(2))).numpy()


def exact_variation(p: torch.Tensor, q: torch.Tensor) -> np.ndarray:
    return ((p.double().softmax(-1) - q.double().softmax(-1)).abs().sum(-1) / 2).numpy()


def flat(width: int, rng: np.random.Generator) -> Any:
    return np.zeros(width), rng.normal(0, 1e-3, width)


def peaked(width: int, rng: np.random.Generator) -> Any:
    p, q = rng.normal(0, 1, (2, width))
    p[rng.integers(width)] += 40
    q[rng.integers(width)] += 40
    return p, q


def disjoint(width: int, rng: np.random.Generator) -> Any:
    """Equal logits on one part, nothing on the other: all terms of the sum round the same way."""
    p, q = np.zeros(width), np.zeros(width)
    cut = int(rng.integers(width // 3, width // 2 + 1))
    p[cut:], q[:cut] = -INF, -INF
    return p, q


def nearly_disjoint(width: int, rng: np.random.Generator) -> Any:
    p, q = rng.normal(0, 3, (2, width))
    return p - 60 * (np.arange(width) % 2), q - 60 * (np.arange(width) % 2 == 0)


def masked(width: int, rng: np.random.Generator) -> Any:
    p, q = rng.normal(0, 4, (2, width))
    p[rng.random(width) < 0.4], q[rng.random(width) < 0.4] = -INF, -INF
    p[0] = q[0] = 0.0
    return p, q


def usual(width: int, rng: np.random.Generator) -> Any:
    p = rng.normal(0, rng.choice([0.1, 3, 30]), width)
    return p + 5, p + rng.normal(0, rng.choice([1e-4, 1, 10]), width) - 3


SHAPES = (flat, peaked, disjoint, nearly_disjoint, masked, usual)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [3, 7, 63, 64, 65, 1_000, 33_001, 151_936, 262_144])
def test_is_right_and_in_range(
    kernel: RowKernel, shape: Any, width: int, request: pytest.FixtureRequest
) -> None:
    rng = np.random.default_rng(width)
    # Triton's interpreter takes a second for a wide row.
    wide = 1 if "triton" in request.node.name else 6
    cases = [shape(width, rng) for _ in range(20 if width <= 1_000 else wide)]
    p, q = (torch.from_numpy(np.array(side, dtype=np.float32)) for side in zip(*cases, strict=True))
    found = columns(kernel, p, q)
    metrics = finish(found)
    for column in (metrics.jsd_bits, metrics.others["total_variation"]):
        assert bool(((column >= 0) & (column <= 1)).all())
    # What the kernel gave, not what was cut to the range.
    np.testing.assert_allclose(found[JSD].numpy(), exact_bits(p, q), atol=1e-6, rtol=0)
    # Equal terms all round the same way, and on a GPU they are summed plainly.
    rounding = 2e-6 if "triton" in request.node.name else 1e-6
    variation = exact_variation(p, q)
    np.testing.assert_allclose(found[VARIATION].numpy(), variation, atol=rounding, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [3, 65, 1_000, 33_001])
def test_equal_distributions_are_exactly_nothing_apart(
    kernel: RowKernel, shape: Any, width: int
) -> None:
    for side in shape(width, np.random.default_rng(width)):
        logits = torch.from_numpy(side[None].astype(np.float32))
        found = columns(kernel, logits, logits)
        assert float(found[JSD]) == float(found[VARIATION]) == 0


@pytest.mark.parametrize("width", [2, 4, 64, 256, 4096])
def test_disjoint_distributions_are_exactly_one_apart(kernel: RowKernel, width: int) -> None:
    """Halves of a power of two: nothing need be rounded."""
    p, q = torch.zeros(2, 1, width)
    p[:, width // 2 :], q[:, : width // 2] = -INF, -INF
    found = columns(kernel, p, q)
    assert float(found[VARIATION]) == 1
    assert float(finish(found).jsd_bits) == 1


@pytest.mark.parametrize("value", [float("nan"), INF])
@pytest.mark.parametrize("side", [0, 1])
def test_a_broken_position_has_no_number(kernel: RowKernel, side: int, value: float) -> None:
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(rng.normal(0, 3, (2, 3, 300)).astype(np.float32))
    clean = finish(columns(kernel, *logits))
    logits[side, 1, 17] = value
    found = finish(columns(kernel, *logits))
    pairs = [(m.jsd_bits, m.others["total_variation"]) for m in (clean, found)]
    for before, after in zip(*pairs, strict=True):
        assert after.isnan().tolist() == [False, True, False]
        assert torch.equal(after[[0, 2]], before[[0, 2]])


BOUNDED = pytest.mark.parametrize("name", ["jsd_bits", "total_variation"])


@BOUNDED
@pytest.mark.parametrize(("value", "expected"), [(1 + 9e-7, 1.0), (-9e-7, 0.0), (0.25, 0.25)])
def test_rounding_is_cut_off(name: str, value: float, expected: float) -> None:
    found = torch.zeros(len(COLUMNS), 2)
    found[COLUMNS.index(name), 1] = value
    assert finish(found).columns()[name].tolist() == [0.0, expected]


@BOUNDED
@pytest.mark.parametrize("value", [1.001, 1 + 2e-6, -2e-6, INF, -INF, float("nan")])
def test_what_is_no_rounding_never_leaves_as_a_number(name: str, value: float) -> None:
    found = torch.zeros(len(COLUMNS), 2)
    found[COLUMNS.index(name), 1] = value
    with pytest.raises(DataError, match="outside"):
        finish(found)
    # A position without a distribution has none in any case.
    found[COLUMNS.index("lse_p"), 1] = float("nan")
    metrics = finish(found)
    assert metrics.finite_p.tolist() == [True, False]
    assert metrics.columns()[name][0] == 0
    assert bool(metrics.columns()[name][1].isnan())
