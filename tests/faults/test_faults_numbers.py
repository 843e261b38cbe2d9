"""Numbers that are none, that just leave their range, or that lie on an edge."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scorecard import measure, tries
from trace_samples import bigram_reader, naive_jsd_bits, trajectory

from divtok.divergences.arithmetic import jsd_bits
from divtok.errors import DataError
from divtok.evaluate.metrics import bin_index
from divtok.evaluate.near_theta import BAND_BITS, near_theta
from divtok.evaluate.protocol import Protocol, evaluate_estimator
from divtok.evaluate.scored_group import ScoreColumn
from divtok.records import Trace, Verdict
from divtok.score.facts import count_trace
from divtok.store.run import Run, check_or_write_manifest

torch = pytest.importorskip("torch")

from divtok.trace.kernels import cpu, plain  # noqa: E402
from divtok.trace.kernels.common import COLUMNS, Head, RowKernel, finish  # noqa: E402
from divtok.trace.pair import Pair  # noqa: E402

INF, NAN = float("inf"), float("nan")
TABLE = np.array([[0.0, 1, 2, 3], [3, 1, 0, 2], [1, 1, 4, 0], [0, 2, 1, 1]])
JSD = COLUMNS.index("jsd_bits")


def pair_of(table: Any, other: Any = TABLE[::-1]) -> Pair:
    return Pair(
        bigram_reader("P", table, "abcd"), bigram_reader("Q", np.array(other, float), "abcd")
    )


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("side", ["P", "Q"])
def test_fault_07_broken_logits_make_the_trace_nonfinite_with_the_position(
    value: float, side: str
) -> None:
    broken = TABLE.copy()
    broken[2, 1] = value  # what comes behind token 2
    pair = pair_of(broken) if side == "P" else pair_of(TABLE, broken)
    rows = [trajectory("good", [0], [1, 3, 1]), trajectory("bad", [0], [1, 3, 2, 1, 0])]
    good, bad = pair.trace_batch(rows)
    assert good.status == "ok"
    assert bad.status == "nonfinite"
    assert bad.reason == (
        f"the logits of {side} are no distribution (NaN, +inf or all masked) at response token 3 "
        "of 5"
    )
    assert len(bad.jsd_bits) == 0  # nothing that could pass for a number


def test_fault_07_nan_is_not_clamped_into_a_number() -> None:
    columns = torch.zeros(len(COLUMNS), 1)
    columns[JSD] = NAN  # of a position whose logits are a distribution: the kernel is at fault
    with pytest.raises(DataError, match="came out as nan"):
        finish(columns)


def test_fault_08_masked_logits_give_exact_divergences() -> None:
    mask_p, mask_q = torch.tensor([0, -INF, 0, 0]), torch.tensor([0, 0, -INF, 0])
    pair = pair_of(TABLE)
    masked = Pair(
        replace(pair.p, head=Head(torch.eye(4), bias=mask_p)),
        replace(pair.q, head=Head(torch.eye(4), bias=mask_q)),
    )
    (found,) = masked.trace_batch([trajectory("k", [0], [3, 0, 3])])
    seen = [0, 3, 0]
    p, q = TABLE[seen] + mask_p.numpy(), TABLE[::-1][seen] + mask_q.numpy()
    assert found.status == "ok"
    np.testing.assert_allclose(found.jsd_bits, naive_jsd_bits(p, q), rtol=0, atol=1e-7)
    assert np.isinf(found.kl_pq).all()  # p allows what q masks
    # What no token shares is one bit apart, and no more.
    assert jsd_bits(np.array([0.0, -INF]), np.array([-INF, 0.0])) == 1.0


def test_fault_09_nats_are_not_taken_for_bits(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    (trace,) = pair_of(TABLE).trace_batch([trajectory("k", [0], [1, 2])])
    with run.lock():
        check_or_write_manifest(run, {"made": "by hand"})
        run.traces.append([trace])
    (shard,) = (tmp_path / "run" / "traces").glob("*.parquet")
    table = pq.read_table(shard)
    units = json.loads(table.schema.metadata[b"divtok.units"])
    assert (units["jsd_bits"], units["kl_pq"]) == ("bits", "nats")

    other = json.dumps(units | {"jsd_bits": "nats"}).encode()
    tags = dict(table.schema.metadata) | {b"divtok.units": other}
    field = table.schema.get_field_index("jsd_bits")
    schema = table.schema.set(field, table.schema.field(field).with_metadata({"unit": "nats"}))
    assert run.traces.layout.differences(table.schema) == []
    for changed in (schema, table.schema.with_metadata(tags)):
        (difference,) = run.traces.layout.differences(changed)
        assert "jsd_bits" in difference
        assert "nats" in difference


@pytest.mark.parametrize(
    ("value", "kept"),
    [(-7.8e-17, 0.0), (1 + 2e-16, 1.0), (-9e-7, 0.0), (1 + 9e-7, 1.0), (-2e-6, None), (1.1, None)],
)
def test_fault_10_rounding_beyond_the_range_is_cut_within_a_millionth(
    value: float, kept: float | None
) -> None:
    columns = torch.zeros(len(COLUMNS), 1, dtype=torch.float64)
    columns[JSD] = value
    if kept is None:
        with pytest.raises(DataError, match=r"outside \[0, 1\]"):
            finish(columns)
    else:
        assert finish(columns).jsd_bits.tolist() == [kept]


def test_fault_11_tokens_near_theta_give_an_interval_of_the_count() -> None:
    jsd = np.array([0.1, 0.4999, 0.5, 0.50005, 0.9], np.float32)
    (trace,) = pair_of(TABLE).trace_batch([trajectory("k", [0], [1, 2, 3, 0, 1])])
    trace = replace(trace, jsd_bits=jsd)
    counts = count_trace(trace, theta=0.5, band_bits=BAND_BITS["float32"])
    dtypes = {"P": "float32", "Q": "float32"}
    (found,) = near_theta(iter([("g", counts)]), theta=0.5, dtypes=dtypes)
    assert (found.near, found.count, found.count_low, found.count_high) == (3, 2, 1, 4)


def test_fault_12_no_token_is_empty_and_one_token_is_valid() -> None:
    rows = [trajectory("none", [0], []), trajectory("one", [0], [2])]
    none, one = pair_of(TABLE).trace_batch(rows)
    assert (none.status, none.reason) == ("empty", "the response has no tokens")
    assert (one.status, one.reason, len(one.jsd_bits)) == ("ok", None, 1)
    expected = naive_jsd_bits(TABLE[[0]], TABLE[::-1][[0]])
    np.testing.assert_allclose(one.jsd_bits, expected, rtol=0, atol=1e-7)


def test_fault_13_a_confidence_on_an_edge_is_in_the_bin_that_begins_there() -> None:
    for places in (1, 2, 3, 4):
        values = np.arange(10**places + 1) / 10**places
        exact = [min(19, int(Fraction(k, 10**places) * 20)) for k in range(10**places + 1)]
        assert bin_index(values).tolist() == exact
    # As a count makes them: 0.95 - 0.09 m is stored a little below its decimals.
    lines = [0.95 - 0.09 * m for m in range(11)]
    assert bin_index(lines).tolist() == [int((Fraction(95 - 9 * m, 100)) * 20) for m in range(11)]


def test_fault_14_one_class_only_has_no_auroc_and_says_why() -> None:
    found = evaluate_estimator(
        benchmark="b",
        generator="g",
        column=ScoreColumn("dtc_lin", [0.2, 0.5, 0.8], {}, ranking_only=False),
        problem_id=["1", "2", "3"],
        verdict=[Verdict.CORRECT] * 3,
        truncated=[False] * 3,
        protocol=Protocol(resamples=20),
    )
    assert (found.auroc, found.natural_auroc, found.ece) == (None, None, None)
    assert found.reason is not None
    why = "every scored response is correct: no AUROC and no balanced draw"
    assert found.reason.startswith(why)


# Measures


def logits(count: int, width: int, seed: int) -> tuple[Any, Any]:
    """Pairs of every kind: far and near, equal, masked, disjoint, of one token, flat."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=draw)

    scale = 10 ** (torch.rand(count, 1, generator=draw) * 3.3 - 1.5)
    p, q = normal(count, width) * scale, normal(count, width) * scale
    kind = torch.randint(0, 6, (count,), generator=draw)
    half = torch.rand(count, width, generator=draw) < 0.5
    half[:, 0], half[:, 1] = True, False
    q[kind == 1] = p[kind == 1]
    q[kind == 2] = p[kind == 2] + 1e-4 * normal(int((kind == 2).sum()), width)
    p[kind == 3] = p[kind == 3].masked_fill(half[kind == 3], -INF)
    q[kind == 3] = q[kind == 3].masked_fill(~half[kind == 3], -INF)
    p[kind == 4, 0] += 60
    q[kind == 4, 1] += 60
    p[kind == 5] = torch.where(half[kind == 5], 0.0, -40.0)
    q[kind == 5] = torch.where(half[kind == 5], -40.0, 0.0)
    return p, q


def exact_bits(p: Any, q: Any) -> Any:
    """From the definition, in float64."""
    a, b = p.double().softmax(-1), q.double().softmax(-1)
    middle = (a + b) / 2
    total = torch.special.xlogy(a, a / middle) + torch.special.xlogy(b, b / middle)
    return total.nan_to_num().sum(-1) / (2 * np.log(2))


def kernels() -> dict[str, tuple[RowKernel, int]]:
    """Every kernel that is here, with the part of all cases that it is tried with: one in so many.

    Triton's interpreter is some thousand times slower than a GPU.
    """
    found: dict[str, tuple[RowKernel, int]] = {"plain": (plain.row_kernel, 1)}
    if cpu.available():
        found["numba"] = (lambda *given: cpu.row_kernel(cpu.Team(1, None), *given), 1)
    if importlib.util.find_spec("triton") is not None:
        found["triton"] = (importlib.import_module("divtok.trace.kernels.cuda").row_kernel, 400)
    return found


def run_kernel(kernel: RowKernel, p: Any, q: Any) -> Any:
    out = torch.empty(len(COLUMNS), len(p))
    tokens = torch.zeros(len(p), dtype=torch.int64)
    with np.errstate(all="ignore"):  # Triton's interpreter computes with numpy, which warns
        kernel(p.clone(), q.clone(), tokens, p.shape[1], out)
    return out


def test_jsd_holds_its_properties_on_every_kernel() -> None:
    cases = tries(short=4_000, full=100_000)
    widths = {2: 0.2, 17: 0.25, 128: 0.45, 1000: 0.08, 5000: 0.02}
    what = "JSD of random pairs of distributions of 2 to 5,000 tokens"
    passes = "in [0, 1], symmetric, 0 for equal ones; float32 within 5e-6 bits of float64"
    with measure("jsd", what, passes) as figures:
        worst = dict.fromkeys(("beyond_range", "asymmetry", "of_equal", "error"), 0.0)
        tried = dict.fromkeys(kernels(), 0)
        for width, share in widths.items():
            left = round(cases * share)
            while left > 0:
                count = min(left, 2_000_000 // width)
                p, q = logits(count, width, seed=width + left)
                left -= count
                for name, (kernel, part) in kernels().items():
                    some = slice(None, None, part)
                    tried[name] += len(p[some])
                    _compare(kernel, p[some], q[some], worst)
        figures |= {f"cases ({name})": count for name, count in tried.items()}
        figures |= {
            "largest error, bits": worst["error"],
            "raw values beyond [0, 1] by at most": worst["beyond_range"],
            "largest asymmetry": worst["asymmetry"],
            "largest for equal ones": worst["of_equal"],
        }
        assert tried["plain"] >= cases * 0.99
        assert worst["error"] <= 5e-6
        assert worst["beyond_range"] <= 1e-6
        assert worst["asymmetry"] <= 1e-6
        assert worst["of_equal"] <= 1e-12


def _compare(kernel: RowKernel, p: Any, q: Any, worst: dict[str, float]) -> None:
    raw, turned = run_kernel(kernel, p, q), run_kernel(kernel, q, p)
    equal = run_kernel(kernel, p, p)
    bits = finish(raw).jsd_bits.double()
    assert bool(((bits >= 0) & (bits <= 1)).all())
    seen: dict[str, Callable[[], Any]] = {
        "beyond_range": lambda: torch.maximum(raw[JSD] - 1, -raw[JSD]).clamp(min=0),
        "asymmetry": lambda: (raw[JSD] - turned[JSD]).abs(),
        "of_equal": lambda: equal[JSD].abs(),
        "error": lambda: (bits - exact_bits(p, q)).abs(),
    }
    for name, value in seen.items():
        worst[name] = max(worst[name], float(value().max()))


def test_traces_do_not_depend_on_the_batch() -> None:
    """Batches of 1, 2, 8 and 32 rows, packed and padded, with the embedded family."""
    from divtok.generate.jobs import Job, generate_batch
    from divtok.models.load import load_model
    from divtok.packed.parts import find_decoder
    from divtok.problems.benchmark import load_benchmark
    from divtok.records import Sampling
    from divtok.trace.reader import make_reader
    from divtok.trace.trunks import padded_trunk

    rows_tried, theta = tries(short=8, full=128), 0.05
    refs = ("divtok/tiny-1.6m", "divtok/tiny-0.3m")
    problems = load_benchmark("arith-medium")[:rows_tried]
    sampling = Sampling(temperature=1.0, top_p=1.0, max_length=768)
    jobs = [Job(problem, 0, refs[0], "cot", sampling) for problem in problems]
    rows = generate_batch(load_model(refs[0], device="cpu"), jobs)

    def pair_of_family(dtype: Any, padded: bool) -> Pair:
        readers: list[Any] = []
        for ref in refs:
            loaded = load_model(ref, device="cpu", dtype=dtype)
            reader = make_reader(loaded)
            if padded:
                trunk = padded_trunk(find_decoder(loaded), loaded.device)
                reader = replace(reader, trunk=trunk, packed=False)
            readers.append(reader)
        return Pair(*readers)

    def traces(pair: Pair, size: int) -> np.ndarray:
        found: list[Trace] = []
        for start in range(0, len(rows), size):
            found += pair.trace_batch(rows[start : start + size])
        return np.concatenate([trace.jsd_bits for trace in found]).astype(np.float64)

    what = f"traces of {len(rows)} responses in batches of 1, 2, 8 and 32, packed and padded"
    passes = "float32: the same counts; bfloat16: other counts only by tokens near theta"
    with measure("batches", what, passes) as figures:
        for dtype, band in (("float32", BAND_BITS["float32"]), ("bfloat16", BAND_BITS["half"])):
            pairs = [pair_of_family(dtype, padded) for padded in (False, True)]
            alone = traces(pairs[0], size=1)
            furthest, flips, far = 0.0, 0, 0.0
            for pair in pairs:
                for size in (1, 2, 8, 32):
                    jsd = traces(pair, size)
                    furthest = max(furthest, float(np.abs(jsd - alone).max()))
                    flipped = (jsd > theta) != (alone > theta)
                    flips += int(flipped.sum())
                    far = max(far, float(np.abs(alone - theta)[flipped].max(initial=0.0)))
            figures["tokens"] = len(alone)
            figures[f"{dtype}: largest difference, bits"] = furthest
            figures[f"{dtype}: tokens on the other side of theta"] = flips
            assert furthest <= band
            assert far <= band
            assert flips == 0 or dtype != "float32"
