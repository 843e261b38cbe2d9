"""Every registered divergence: what it says of itself, and that all ways to compute it agree."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from divergence_samples import HELLINGER, register_for_test

from divtok.divergences.divergence import DIVERGENCES, Divergence, further, register
from divtok.errors import UsageError
from divtok.records import PER_TOKEN_FIELDS
from divtok.trace.kernels import cpu, plain
from divtok.trace.kernels.common import COLUMNS, RowKernel

INF = float("inf")
NAMES = ("jsd", "kl_pq", "kl_qp", "total_variation")


def numba_kernel(
    logits_p: torch.Tensor,
    logits_q: torch.Tensor,
    tokens: torch.Tensor,
    width: int,
    out: torch.Tensor,
) -> None:
    cpu.row_kernel(cpu.Team(1, None), logits_p, logits_q, tokens, width, out)


KERNELS: dict[str, RowKernel] = {"plain": plain.row_kernel}
if cpu.available():
    KERNELS["cpu"] = numba_kernel


def random_logits(spread: float, width: int = 257) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(width)
    p = rng.normal(0, spread, (30, width))
    # From nearly the same to nothing in common.
    share = np.linspace(0, 1, 30)[:, None]
    return p, (1 - share) * p + share * rng.normal(0, spread, p.shape)


def masked_by_both() -> tuple[np.ndarray, np.ndarray]:
    p, q = random_logits(3.0)
    hidden = np.random.default_rng(1).random(p.shape) < 0.5
    hidden[:, 0] = False
    p[hidden], q[hidden] = -INF, -INF
    return p, q


def masked_by_one() -> tuple[np.ndarray, np.ndarray]:
    """Two thirds of the rows hide a token of one model alone, the others the same for both."""
    p, q = masked_by_both()
    p[::3, 0], q[1::3, 0] = -INF, -INF
    return p, q


def masked_at_random() -> tuple[np.ndarray, np.ndarray]:
    p, q = random_logits(3.0)
    rng = np.random.default_rng(2)
    p[rng.random(p.shape) < 0.3], q[rng.random(q.shape) < 0.3] = -INF, -INF
    return p, q


def disjoint() -> tuple[np.ndarray, np.ndarray]:
    p, q = random_logits(3.0, width=256)
    p[:, 128:], q[:, :128] = -INF, -INF
    return p, q


def faint() -> tuple[np.ndarray, np.ndarray]:
    """One model has a token so faint that float32 rounds it to nothing; the other hides it."""
    p, q = random_logits(1.0)
    p[:, 3], q[:, 3] = -150.0, -INF
    return p, q


KINDS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "near uniform": lambda: random_logits(0.1),
    "random": lambda: random_logits(3.0),
    "one token": lambda: random_logits(3.0, width=1),
    "two tokens": lambda: random_logits(3.0, width=2),
    "wide": lambda: random_logits(2.0, width=5_000),
    "masked by both": masked_by_both,
    "masked by one": masked_by_one,
    "masked at random": masked_at_random,
    "disjoint": disjoint,
    "faint": faint,
}


def as_float32(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    p, q = KINDS[kind]()
    return torch.from_numpy(p).float(), torch.from_numpy(q).float()


def naive(name: str, p_logits: np.ndarray, q_logits: np.ndarray) -> np.ndarray:
    """From the definitions in float64 and the unit of the column; 0 ln 0 is 0."""

    def log_softmax(logits: np.ndarray) -> np.ndarray:
        shifted = logits - logits.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    def kl(log_a: np.ndarray, log_b: np.ndarray) -> np.ndarray:
        allowed = np.isfinite(log_a)
        ratio = np.where(allowed, log_a, 0.0) - np.where(allowed, log_b, 0.0)
        return (np.exp(log_a) * ratio).sum(axis=-1)

    with np.errstate(divide="ignore"):
        log_p, log_q = (log_softmax(x.astype(np.float64)) for x in (p_logits, q_logits))
        middle = np.log((np.exp(log_p) + np.exp(log_q)) / 2)
    if name == "hellinger":
        return 1 - np.exp((log_p + log_q) / 2).sum(axis=-1)
    if name == "total_variation":
        return np.abs(np.exp(log_p) - np.exp(log_q)).sum(axis=-1) / 2
    if name == "jsd":
        return (kl(log_p, middle) + kl(log_q, middle)) / (2 * np.log(2))
    return kl(log_p, log_q) if name == "kl_pq" else kl(log_q, log_p)


def whole(divergence: Divergence, p: torch.Tensor, q: torch.Tensor) -> np.ndarray:
    """The divergence as it is computed from whole distributions."""
    return divergence.of(p.log_softmax(-1), q.log_softmax(-1)).numpy()


def assert_same(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    """Within 1e-6; of several nats float32 has six digits, so there it is relative, too."""
    rtol = 1e-6 if name.startswith("kl") else 0
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=rtol)


def test_the_divergences_that_come_with_the_package() -> None:
    assert sorted(DIVERGENCES.names()) == list(NAMES)
    found = {d.name: (d.column, d.unit, d.theta_unit, d.highest) for d in DIVERGENCES}
    assert found == {
        "jsd": ("jsd_bits", "bits", "bits", 1.0),
        "kl_pq": ("kl_pq", "nats", "bits", INF),
        "kl_qp": ("kl_qp", "nats", "bits", INF),
        "total_variation": ("total_variation", "probability", "probability", 1.0),
    }
    assert all(d.in_kernels and d.summary.endswith(".") for d in DIVERGENCES)
    assert [d.name for d in DIVERGENCES if d.bounded] == ["jsd"]
    assert {d.column for d in DIVERGENCES} <= set(COLUMNS)
    # The fields of a trace, and those that are in every new one but not in old files.
    of_old = {d.column for d in DIVERGENCES} & set(PER_TOKEN_FIELDS)
    assert of_old == {"jsd_bits", "kl_pq", "kl_qp"}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_whole_distributions_and_kernels_give_the_same(name: str, kind: str, kernel: str) -> None:
    divergence, (p, q) = DIVERGENCES.get(name), as_float32(kind)
    out = torch.empty(len(COLUMNS), len(p))
    tokens = torch.zeros(len(p), dtype=torch.int64)
    KERNELS[kernel](p.clone(), q.clone(), tokens, p.shape[1], out)
    column = out[COLUMNS.index(divergence.column)].numpy()
    assert_same(name, whole(divergence, p, q), column)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*NAMES, "hellinger"])
def test_whole_distributions_agree_with_the_definition(name: str, kind: str) -> None:
    divergence = HELLINGER if name == "hellinger" else DIVERGENCES.get(name)
    p, q = as_float32(kind)
    found, expected = whole(divergence, p, q), naive(name, p.numpy(), q.numpy())
    assert_same(name, found, expected)
    if kind == "masked by one" and name.startswith("kl"):
        hidden_by = 1 if name == "kl_pq" else 0
        infinite = np.arange(len(p)) % 3 == hidden_by
        assert np.array_equal(np.isinf(found), infinite)


@pytest.mark.parametrize("name", [*NAMES, "hellinger"])
def test_equal_distributions_do_not_diverge(name: str) -> None:
    divergence = HELLINGER if name == "hellinger" else DIVERGENCES.get(name)
    for kind in ("random", "masked by both", "wide"):
        p, _ = as_float32(kind)
        assert not whole(divergence, p, p).any()


def test_logits_are_not_changed() -> None:
    for name in NAMES:
        log_p, log_q = (x.log_softmax(-1) for x in as_float32("masked at random"))
        before = log_p.clone(), log_q.clone()
        DIVERGENCES.get(name).of(log_p, log_q)
        assert torch.equal(log_p, before[0])
        assert torch.equal(log_q, before[1])


def test_grids_are_the_decimals_they_are_written_as() -> None:
    jsd, forward, reverse, variation = (DIVERGENCES.get(name).grid for name in NAMES)
    assert (len(jsd), jsd[0], jsd[69], jsd[-1]) == (99, 0.01, 0.7, 0.99)
    assert (len(forward), forward[0], forward[14], forward[-1]) == (300, 0.02, 0.3, 6.0)
    assert reverse == forward
    assert variation == jsd
    assert jsd == tuple(float(f"0.{k:02}") for k in range(1, 100))


def test_the_grid_of_a_bounded_divergence_ends_below_its_highest_value() -> None:
    assert HELLINGER.grid == DIVERGENCES.get("jsd").grid
    wide = replace(HELLINGER, highest=2.0).grid
    assert (len(wide), wide[0], wide[49], wide[-1]) == (99, 0.02, 1.0, 1.98)


def test_a_kl_theta_of_one_bit_is_ln_2_nats() -> None:
    for name in ("kl_pq", "kl_qp"):
        found = DIVERGENCES.get(name).stored_thetas([1.0, 0.5])
        assert found.dtype == np.float32
        assert found.tolist() == [np.float32(math.log(2)), np.float32(math.log(2) / 2)]
    assert DIVERGENCES.get("jsd").stored_thetas([1.0, 0.7]).tolist() == [1.0, np.float32(0.7)]
    assert HELLINGER.stored_thetas([0.25]).tolist() == [0.25]


def test_those_that_a_trace_need_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"hellinger", "jsd_bits", "kl_pq", "logprob_p", "chain"}
    assert further(columns) == []
    assert further({"total_variation", *columns}) == [DIVERGENCES.get("total_variation")]
    register_for_test(monkeypatch, HELLINGER)
    assert further(columns) == [HELLINGER]
    assert further(()) == []


def test_a_name_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    register_for_test(monkeypatch)
    assert register(HELLINGER) is HELLINGER
    assert DIVERGENCES.get("hellinger") is HELLINGER
    with pytest.raises(UsageError, match="The divergence 'hellinger' is registered twice"):
        register(HELLINGER)


def test_an_unknown_name_is_explained() -> None:
    with pytest.raises(UsageError, match=r"Unknown divergence 'jsd_bit'\. Did you mean 'jsd'"):
        DIVERGENCES.get("jsd_bit")


def test_looking_up_a_divergence_does_not_import_torch() -> None:
    code = (
        "import sys; from divtok.divergences.divergence import DIVERGENCES;"
        "[d.grid for d in DIVERGENCES]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
