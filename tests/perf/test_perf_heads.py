"""Inputs with exact logits, and every way to the JSD held against float64 at toy sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from divtok.errors import DataError
from perf import heads, naive, peers
from perf.inputs import HeadsInput, Shape, make_inputs
from perf.meter import Limits
from perf.results import Case

CPU = torch.device("cpu")
SHAPE = Shape("toy", 64, 48, 1040, 1000)
need_peers = pytest.mark.skipif(not peers.PEERS.exists(), reason="peers are not installed: .peers")


@pytest.fixture(scope="module")
def inputs() -> HeadsInput:
    peers.add_peers_path()
    return make_inputs(SHAPE, 96, device=CPU, dtype=torch.float32, grid=True)


@pytest.fixture(scope="module")
def half() -> HeadsInput:
    peers.add_peers_path()
    return make_inputs(SHAPE, 96, device=CPU, dtype=torch.bfloat16, grid=True)


def exact_jsd(inputs: HeadsInput, *, pad: bool = False) -> np.ndarray:
    """In numpy from float64 products; with `pad`, the narrower model gets logits of zero."""
    p = inputs.hidden_p.double().numpy() @ inputs.weight_p.double().numpy().T
    q = inputs.hidden_q.double().numpy() @ inputs.weight_q.double().numpy().T
    if pad:
        q = np.pad(q, ((0, 0), (0, p.shape[1] - q.shape[1])))
    p, q = (np.exp(x - x.max(-1, keepdims=True)) for x in (p[:, : q.shape[1]], q))
    p, q = (x / x.sum(-1, keepdims=True) for x in (p, q))
    m = (p + q) / 2
    return ((p * np.log2(p / m)).sum(-1) + (q * np.log2(q / m)).sum(-1)) / 2


@pytest.mark.parametrize("shape", [SHAPE, Shape("wide", 3584, 1536, 300, 290)])
def test_logits_are_exact_in_float32_and_in_bfloat16_inputs(shape: Shape):
    made = make_inputs(shape, 40, device=CPU, dtype=torch.float32, grid=True)
    for hidden, weight in ((made.hidden_p, made.weight_p), (made.hidden_q, made.weight_q)):
        assert torch.equal(hidden, hidden.bfloat16().float())
        assert torch.equal(weight, weight.bfloat16().float())
        wide = hidden.double() @ weight.double().T
        assert torch.equal((hidden @ weight.T).double(), wide)
        backwards = hidden.flip(1)[:7] @ weight.flip(1).T
        assert torch.equal(backwards.double(), wide[:7])


def test_logits_look_like_a_model():
    made = make_inputs(
        Shape("x", 256, 192, 5000, 4900), 400, device=CPU, dtype=torch.float32, grid=True
    )
    logits = made.hidden_p @ made.weight_p.T
    assert float(logits.std(-1).mean()) == pytest.approx(2.5, rel=0.1)
    top = logits.softmax(-1).amax(-1)
    assert 0.02 < float(top.min()) < 0.3
    assert float(top.max()) > 0.9999
    same = logits[:, : made.width].argmax(-1) == (made.hidden_q @ made.weight_q.T).argmax(-1)
    assert 0.75 < float(same.float().mean()) < 0.95


def test_the_first_positions_are_the_same_positions(inputs: HeadsInput):
    assert torch.equal(heads.reference(inputs.first(5)), heads.reference(inputs)[:5])


def test_the_reference_is_the_definition(inputs: HeadsInput):
    np.testing.assert_allclose(heads.reference(inputs, rows=17), exact_jsd(inputs), atol=1e-14)


def test_naive_gives_all_seven_numbers():
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.25, 0.5])
    found = naive.metrics_from_logits(p.log()[None], q.log()[None], torch.tensor([0]))
    bit = math.log(2)
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {
            "logprob_p": -bit,
            "logprob_q": -2 * bit,
            "entropy_p": 1.5 * bit,
            "entropy_q": 1.5 * bit,
            # M is (3, 2, 3)/8 with 3 - 3/4 log2 3 - 1/4 bits of entropy; P and Q have 1.5.
            "jsd_bits": 3 - 0.75 * math.log2(3) - 0.25 - 1.5,
            "kl_pq": 0.25 * bit,
            "kl_qp": 0.25 * bit,
        },
        abs=1e-6,
    )


def test_naive_in_chunks_is_naive(inputs: HeadsInput):
    whole = naive.metrics(*inputs.cut())
    parts = naive.metrics_in_chunks(*inputs.cut(), rows=40)
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value)


@pytest.mark.parametrize("way", ["ours", "ours-plain", "naive", "naive-chunks"])
def test_our_ways_and_naive_agree_with_float64(inputs: HeadsInput, way: str):
    task = next(t for t in heads.timed_tasks(inputs) if t.way == way)
    limit = 1e-6 if way.startswith("ours") else 1e-5
    np.testing.assert_allclose(task.call(), exact_jsd(inputs), atol=limit)


def test_naive_on_rounded_logits_is_wrong_and_ours_is_not(half: HeadsInput):
    tasks = {task.way: task for task in heads.timed_tasks(half)}
    outputs = {way: tasks[way].call() for way in ("ours", "naive")}
    errors = heads.jsd_errors(outputs, heads.reference(half))
    assert errors["ours"][0] is not None
    assert errors["naive"][0] is not None
    assert errors["ours"][0] < 1e-6
    assert 1e-4 < errors["naive"][0] < 0.1


@need_peers
@pytest.mark.parametrize("run", [peers.trl, lambda x: peers.liger_chunked(x, compiled=False)])
def test_losses_are_the_mean_jsd_in_bits(inputs: HeadsInput, run: peers.Run):
    with torch.no_grad():
        found = run(inputs)
    assert found is not None
    assert found.ndim == 0
    assert float(found) == pytest.approx(exact_jsd(inputs).mean(), abs=1e-5)


@need_peers
def test_heads_that_are_not_cut_give_liger_mass_that_is_not_there(inputs: HeadsInput):
    with torch.no_grad():
        found = float(peers.liger_chunked(inputs, cut=False, compiled=False))
    assert found == pytest.approx(exact_jsd(inputs, pad=True).mean(), abs=1e-5)
    assert abs(found - exact_jsd(inputs).mean()) > 1e-4


@need_peers
def test_casting_rounded_logits_helps_trl_but_only_so_far(half: HeadsInput):
    exact = exact_jsd(half).mean()
    with torch.no_grad():
        rounded, cast = (abs(float(peers.trl(half, cast=c)) - exact) for c in (False, True))
    assert 1e-6 < cast < rounded


@need_peers
def test_lm_polygraph_gives_entropies_and_no_jsd(inputs: HeadsInput):
    entropy = peers.definition(
        peers.PEERS / "lm_polygraph" / "stat_calculators" / "entropy.py",
        "EntropyCalculator",
        peers.POLYGRAPH_NAMES,
    )()
    flat = np.full((2, 8), -math.log(8))
    assert entropy({"greedy_log_probs": [flat]})["entropy"] == [pytest.approx([math.log(8)] * 2)]
    assert peers.lm_polygraph(inputs) is None


def test_a_peer_that_is_not_installed_says_so():
    with pytest.raises(DataError, match=r"no-such/file\.py is not in \.peers/"):
        peers.definition(peers.PEERS / "no-such" / "file.py", "f", {})


def test_a_section_has_every_way_and_errors_where_they_are_checked(monkeypatch: pytest.MonkeyPatch):
    # Compiling takes half a minute and is no part of the harness.
    monkeypatch.setattr(heads, "compiled", lambda: naive.metrics)
    quick = [peer for peer in peers.ALL if not peer.compiles]
    monkeypatch.setattr(peers, "ALL", tuple(quick))
    limits = Limits(first_s=60, expected_s=5, slow_s=1, repeats=1, section_s=1200)
    plan = heads.Plan(((SHAPE, (16, 32)),), 32, 32, torch.float32, limits)
    (small, large), groups = heads.run(CPU, plan)
    assert list(groups) == ["toy"]
    assert isinstance(small, Case)
    assert {m.way for m in small.measurements} >= {"floor", "ours", "naive", "naive-compiled"}
    fused = large.of("liger-fused")
    assert fused is not None
    assert fused.reason == "needs a GPU"
    ours = large.of("ours")
    assert ours is not None
    assert ours.error_max_bits is not None
    assert ours.error_max_bits < 1e-6
    assert all(m.error_mean_bits is None for m in small.measurements)
    assert 0 < large.facts["mean JSD, bits"] < 1
    assert large.facts["largest error of a logit"] == 0


def test_a_logit_that_is_off_is_seen(inputs: HeadsInput):
    # A third is on no binary grid, so float32 has to round.
    off = HeadsInput(
        inputs.hidden_p / 3, inputs.weight_p, inputs.hidden_q, inputs.weight_q, inputs.tokens
    )
    assert 0 < heads.logit_error(off) < 1e-4
