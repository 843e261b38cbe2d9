"""jsd_bits against the definition, on every kind of input, and the properties it must have."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from trace_samples import naive_jsd_bits

from divtok.divergences.arithmetic import jsd_bits
from divtok.errors import DataError, UsageError

INF = float("inf")


def random_logits(spread: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(0, spread, (40, 997)), rng.normal(0, spread, (40, 997))


def peaked_logits() -> tuple[np.ndarray, np.ndarray]:
    """p sure of one token, q of the same or another, by 0 to 60 nats; noise elsewhere."""
    p, q = random_logits(1.0)
    steps = np.linspace(0, 60, len(p))
    p[:, 5] += steps
    q[::2, 5] += steps[::2]
    q[1::2, 6] += steps[1::2]
    return p, q


def two_token_logits() -> tuple[np.ndarray, np.ndarray]:
    """Every log-ratio from 0 to 40 on two tokens, where a saturating tanh would show."""
    t = np.linspace(0, 40, 400)
    return np.stack([t, 0 * t], 1), np.stack([0 * t, t], 1)


def nearly_equal_logits() -> tuple[np.ndarray, np.ndarray]:
    p, noise = random_logits(3.0)
    return p, p + 1e-4 * noise


def masked_logits() -> tuple[np.ndarray, np.ndarray]:
    p, q = random_logits(3.0)
    rng = np.random.default_rng(1)
    p[rng.random(p.shape) < 0.5] = -INF
    q[rng.random(q.shape) < 0.5] = -INF
    return p, q


def disjoint_logits() -> tuple[np.ndarray, np.ndarray]:
    p, q = random_logits(3.0)
    p[:, 500:] = -INF
    q[:, :500] = -INF
    return p, q


KINDS = {
    "near uniform": random_logits(0.01),
    "random": random_logits(3.0),
    "spread": random_logits(30.0),
    "peaked": peaked_logits(),
    "two tokens": two_token_logits(),
    "nearly equal": nearly_equal_logits(),
    "identical": (random_logits(3.0)[0],) * 2,
    "masked": masked_logits(),
    "disjoint": disjoint_logits(),
    "far off zero": tuple(x + 1000 for x in random_logits(3.0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_agrees_with_the_definition(kind: str) -> None:
    p, q = KINDS[kind]
    assert np.abs(jsd_bits(p, q) - naive_jsd_bits(p, q)).max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_torch_agrees_with_the_definition(kind: str, dtype: torch.dtype) -> None:
    p, q = (torch.tensor(x).to(dtype) for x in KINDS[kind])
    result = jsd_bits(p, q)
    # The reference sees the same rounded logits, so only the computation is measured.
    expected = naive_jsd_bits(p.double().numpy(), q.double().numpy())
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert np.abs(result.numpy() - expected).max() < 1e-6


def test_wide_vocabulary_in_float32() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4, 152_000)).astype(np.float32)
    other = (logits + rng.normal(0, 0.1, logits.shape)).astype(np.float32)
    result = jsd_bits(torch.tensor(logits), torch.tensor(other)).numpy()
    assert np.abs(result - naive_jsd_bits(logits, other)).max() < 1e-6


def test_nearly_equal_distributions_keep_their_digits() -> None:
    # JSD is close to d^2 / (32 ln 2) for a coin of log-odds d against a fair one; the entropy form
    # in float32 has no digit left at this size.
    d = 1e-3
    result = jsd_bits(torch.tensor([d, 0.0]), torch.tensor([0.0, 0.0]))
    assert float(result) == pytest.approx(d**2 / (32 * np.log(2)), rel=1e-3)


def test_exact_values() -> None:
    assert jsd_bits([0.0, -INF], [-INF, 0.0]) == 1.0
    assert jsd_bits([0.0, 1.0, -INF], [0.0, 1.0, -INF]) == 0.0
    assert jsd_bits([5.0], [-3.0]) == 0.0
    # P = (1, 0), Q = (1/2, 1/2): H(3/4, 1/4) - 1/2 bits
    expected = 0.75 * np.log2(4 / 3) + 0.25 * 2 - 0.5
    assert jsd_bits([0.0, -INF], [0.0, 0.0]) == pytest.approx(expected, abs=1e-15)


def test_identical_inputs_give_zero() -> None:
    p, _ = KINDS["random"]
    assert (jsd_bits(p, p) == 0).all()
    assert (jsd_bits(torch.tensor(p).float(), torch.tensor(p).float()) == 0).all()


def test_inputs_are_left_alone_and_leading_axes_kept() -> None:
    p, q = (torch.randn(2, 3, 5, generator=torch.manual_seed(0)) for _ in range(2))
    before = p.clone(), q.clone()
    assert jsd_bits(p, q).shape == (2, 3)
    assert torch.equal(p, before[0])
    assert torch.equal(q, before[1])
    assert jsd_bits(p.numpy(), q.numpy()).shape == (2, 3)
    assert jsd_bits(p[:, :0], q[:, :0]).shape == (2, 0)


logit = st.one_of(st.floats(-200, 200), st.just(-INF), st.floats(-1e-3, 1e-3))


@st.composite
def logit_pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    width = draw(st.integers(1, 12))
    rows = hnp.arrays(np.float64, width, elements=logit).filter(lambda x: bool((x > -INF).any()))
    return draw(rows), draw(rows)


@settings(max_examples=400, deadline=None)
@given(logit_pairs(), st.floats(-100, 100))
def test_properties(pair: tuple[np.ndarray, np.ndarray], shift: float) -> None:
    p, q = pair
    value = jsd_bits(p, q)
    assert 0 <= value <= 1
    assert value == pytest.approx(naive_jsd_bits(p, q), abs=1e-12)
    assert jsd_bits(q, p) == pytest.approx(value, abs=1e-14)
    assert jsd_bits(p, p) == 0
    assert jsd_bits(p + shift, q) == pytest.approx(value, abs=1e-9)
    as_float32 = jsd_bits(torch.tensor(p).float(), torch.tensor(q).float())
    assert 0 <= float(as_float32) <= 1
    assert float(as_float32) == pytest.approx(
        naive_jsd_bits(p.astype(np.float32), q.astype(np.float32)), abs=1e-6
    )


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize(
    ("bad_row", "where"), [([0.0, float("nan")], 1), ([INF, 0.0], 1), ([-INF, -INF], 1)]
)
def test_what_is_no_distribution_is_refused(kind: Any, bad_row: list[float], where: int) -> None:
    good, bad = [[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]], [[0.0, 1.0], bad_row, bad_row]
    with pytest.raises(DataError, match=f"q_logits .* at position {where}"):
        jsd_bits(kind(good), kind(bad))
    with pytest.raises(DataError, match="p_logits"):
        jsd_bits(kind(bad[1]), kind(good[1]))
    with pytest.raises(DataError, match=r"p_logits .* at position \[0, 1\]"):
        jsd_bits(kind([bad]), kind([good]))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_shapes_that_do_not_fit_are_refused(kind: Any) -> None:
    with pytest.raises(UsageError, match="different vocabulary widths: 3 and 2"):
        jsd_bits(kind([0.0, 1.0, 2.0]), kind([0.0, 1.0]))
    with pytest.raises(UsageError, match="different shapes"):
        jsd_bits(kind([[0.0, 1.0]]), kind([0.0, 1.0]))
    with pytest.raises(UsageError, match="at least one token"):
        jsd_bits(kind(1.0), kind(1.0))
    with pytest.raises(UsageError, match="at least one token"):
        jsd_bits(kind([]), kind([]))


def test_one_tensor_and_one_array_are_refused() -> None:
    with pytest.raises(UsageError, match="one torch tensor and one array"):
        jsd_bits(torch.zeros(2), np.zeros(2))


def test_arrays_do_not_import_torch() -> None:
    code = (
        "import sys; from divtok.divergences.arithmetic import jsd_bits; jsd_bits([0, 1], [1, 0]);"
        "import divtok.trace.pair, divtok.models.load; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
