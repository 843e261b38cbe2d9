"""What `make gpu` checks, tried without a GPU: the checks themselves must be able to say no."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from divtok.packed import probe
from perf.gpu import __main__ as command
from perf.gpu import kernels, reading, speculative, while_writing, whole_run, writing
from perf.gpu.findings import Finding, Report, read_report
from perf.gpu.models import QWEN_15B, SHAPES, Shape

CPU = torch.device("cpu")


def small(shape: Shape) -> Shape:
    """The same architecture and about the same position of everything, in a few milliseconds."""
    smaller = {
        "sliding_window": 100,
        "query_pre_attn_scalar": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
    }
    settings = {name: smaller[name] for name in shape.settings} | {"initializer_range": 0.3}
    return replace(
        shape,
        layers=4,
        hidden=32,
        intermediate=48,
        heads=4,
        kv_heads=2,
        head_width=8,
        vocab=1100,
        settings=settings,
    )


@pytest.fixture(autouse=True)
def _small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHAPES", tuple(small(shape) for shape in SHAPES))
    monkeypatch.setattr(reading, "QWEN_15B", small(QWEN_15B))
    monkeypatch.setattr(reading, "RESPONSES", (200, 90, 7))
    monkeypatch.setattr(writing, "STEPPED", tuple(small(shape) for shape in writing.STEPPED))
    monkeypatch.setattr(writing, "PROMPTS", (180, 90, 7))


def test_every_architecture_is_read_in_every_dtype() -> None:
    found = list(reading.check(CPU))
    assert len(found) == len(SHAPES) * 3 + 1
    assert [finding.name for finding in found if not finding.holds] == []


def test_a_limit_without_room_for_noise_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "allowed_gap", lambda dtype, layers: -1.0)
    assert not any(finding.holds for finding in reading.check(CPU))


def test_mistakes_are_refused_in_half_precision() -> None:
    outcomes = {finding.name: finding.facts["outcome"] for finding in reading.check_refusals(CPU)}
    assert outcomes == {
        "reads ahead": "refused",
        "mixes lanes": "padded",
        "misplaces positions": "padded",
        "nothing wrong": "packed",
    }


def test_a_probe_that_lets_all_pass_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "allowed_gap", lambda dtype, layers: 1e9)
    held = {finding.name: finding.holds for finding in reading.check_refusals(CPU)}
    assert held == {
        "reads ahead": False,
        "mixes lanes": False,
        "misplaces positions": False,
        "nothing wrong": True,
    }


def test_the_kernel_is_held_against_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(kernels, "WIDTHS", (300,))
    monkeypatch.setattr(kernels, "POSITIONS", 2)
    (finding,) = kernels.check(CPU)
    assert finding.holds
    assert finding.facts["outside [0, 1]"] == 0
    cases = {"sd 0.5", "sd 2.5", "sd 20", "nearly equal", "apart", "masked"}
    for words in kernels.CHECKED.values():
        named = {name for name in finding.facts if name.startswith(f"{words}, ")}
        assert named == {f"{words}, {case}" for case in cases}
    monkeypatch.setattr(kernels, "ALLOWED", 0.0)
    (finding,) = kernels.check(CPU)
    assert not finding.holds


@pytest.mark.parametrize("name", ["jsd_bits", "total_variation"])
def test_a_kernel_that_is_wrong_in_one_column_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cuda: Any = pytest.importorskip("divtok.trace.kernels.cuda")
    monkeypatch.setattr(kernels, "WIDTHS", (300,))
    monkeypatch.setattr(kernels, "POSITIONS", 2)
    right = cuda.row_kernel

    def wrong(p: Any, q: Any, tokens: Any, width: int, out: Any, **options: Any) -> None:
        right(p, q, tokens, width, out, **options)
        column = out[kernels.COLUMNS.index(name)]
        column[column > 0.01] -= 5e-6  # inside the range, where only the comparison sees it

    monkeypatch.setattr(cuda, "row_kernel", wrong)
    (finding,) = kernels.check(CPU)
    assert not finding.holds


def test_written_tokens_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MODELS", writing.MODELS[:1])
    monkeypatch.setattr(writing, "PROBLEMS", 1)
    monkeypatch.setattr(writing, "SAMPLES", 2)
    found = list(writing.check(CPU))
    assert [finding.holds for finding in found] == [True] * 9
    assert [finding.facts.get("responses") for finding in found] == [None] * 6 + [4] * 3

    usual = writing.generate_batch

    def wrong(loaded: Any, jobs: Any) -> Any:
        first, *others = usual(loaded, jobs)
        writing.generate_batch = usual  # the other side is right
        return [replace(first, token_ids=(*first.token_ids[:-1], 5)), *others]

    monkeypatch.setattr(writing, "generate_batch", wrong)
    first = next(finding for finding in writing.check(CPU) if "responses" in finding.facts)
    assert first.holds is False
    assert first.facts["responses that differ"] == 1


def row(auroc: float | None, accuracy: float = 0.5) -> dict[str, Any]:
    return {
        "benchmark": "b",
        "estimator": "e",
        "accuracy": accuracy,
        "natural_ece": 0.2,
        "natural_ece_interval": {"low": 0.1, "high": 0.3},
        "natural_auroc": auroc,
        "natural_auroc_interval": {"low": 0.6, "high": 0.8},
    }


@pytest.mark.parametrize(
    ("auroc", "accuracy", "wrong"),
    [
        (0.71, 0.51, []),
        (0.81, 0.51, ["natural_auroc beside the CPU's"]),
        (0.71, 0.12, ["accuracy, b"]),
    ],
)
def test_tables_are_compared_with_the_cpus_intervals(
    auroc: float, accuracy: float, wrong: list[str]
) -> None:
    found = list(whole_run._compared([row(auroc, accuracy)], [row(0.70)]))
    assert [finding.name for finding in found if not finding.holds] == wrong


def test_a_report_is_kept_whole(tmp_path: Path) -> None:
    finding = Finding("kernels", "768 tokens", True, {"error": 2e-7, "outside": 0})
    report = Report("abc123", "2026-11-16", {"GPU": "one"}, {"kernels": 3.5}, (finding,))
    path = tmp_path / "folder" / "gpu.json"
    report.write(path)
    assert read_report(path) == report
    assert report.of("kernels") == [finding]
    assert report.of("pair") == []
    assert read_report(tmp_path / "nothing.json") is None
    assert finding.line() == "ok    kernels: 768 tokens: error 2e-07, outside 0"


def test_a_check_that_breaks_is_a_finding() -> None:
    def breaks(device: Any) -> Any:
        yield Finding("x", "first", True, {})
        raise RuntimeError("no such kernel")

    first, second = command._tried("x", breaks, CPU)
    assert first.holds
    assert second.holds is False
    assert "no such kernel" in str(second.facts["error"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 1
    assert "no GPU" in capsys.readouterr().err


def test_the_page_has_tables_of_speed_and_a_line_for_each_check() -> None:
    from perf.gpu.page import block

    machine = {"GPU": "a card", "CPU": "a processor", "memory": "some", "torch": "2"}
    findings = (
        Finding("pair", "ragged", True, {"new lengths, tokens/s": 31083.4}),
        Finding("pair", "even", False, {"new lengths, tokens/s": 27000.0, "best": 29000.0}),
        Finding("kernels", "768 tokens", True, {"error": 2e-7, "outside": 0}),
        Finding("kernels", "49,152 tokens", True, {"error": 3e-7, "outside": 0}),
    )
    text = block(Report("abc123", "2026-11-16", machine, {}, findings))
    assert "Commit abc123." in text
    assert "| ragged | 31,083 |  | met |" in text
    assert "| even | 27,000 | 29,000 | **missed** |" in text
    assert "float64: 2 of 2 checks hold. Largest: error 3e-07, outside 0." in text
    assert "make gpu" in block(None)


def test_the_stored_report_is_on_the_page() -> None:
    from perf import page
    from perf.gpu.page import NAME, block

    text = page.PAGE.read_text(encoding="utf-8")
    assert page.replace_block(text, NAME, block(read_report())) == text, (
        "run: python -m perf render"
    )


def test_processors_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy: both ways give a time for each vocabulary."""
    from perf import heads, naive, processors

    monkeypatch.setattr(heads, "SMOLLM", heads.TOY)
    monkeypatch.setattr(heads, "QWEN_SMALL", heads.TOY)
    monkeypatch.setattr(heads, "compiled", lambda: naive.metrics)
    monkeypatch.setattr(processors, "POSITIONS", 4)
    (times,) = processors.measure(torch.get_num_threads()).values()
    assert len(times) == 2
    assert min(times) > 0


def test_speculation_is_measured_with_drafts_that_mostly_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = replace(small(speculative.GENERATOR), hidden=96, vocab=1104)
    auxiliary = replace(small(speculative.AUXILIARY), hidden=64)
    for name, value in (
        ("GENERATOR", generator),
        ("AUXILIARY", auxiliary),
        ("TOKENS", 1000),
        ("ROWS", {"open": (3,), "top-p 0.95": (3,)}),
        ("NEW_TOKENS", 60),
        ("DRAFTS", (1,)),
    ):
        monkeypatch.setattr(speculative, name, value)
    monkeypatch.setattr(torch, "bfloat16", torch.float32)
    monkeypatch.setattr(speculative, "compile_steps", lambda loaded: None)
    found = list(speculative.check(CPU))
    assert [f.name for f in found] == ["3 x 60 tokens, open", "3 x 60 tokens, top-p 0.95"]
    for finding in found:
        assert 1.55 < float(finding.facts["k=1, not traced, tokens a round"]) < 1.95
        ways = ("plain", "plain + trace", "capture", "k=1", "k=1, not traced")
        assert all(float(finding.facts[way]) > 0 for way in ways)


def test_traces_that_come_with_the_writing_are_held_against_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(while_writing, "PROBLEMS", 3)
    monkeypatch.setattr(while_writing, "ASKED", 1)
    found = list(while_writing.check(CPU))
    assert len(found) == 7
    assert all(finding.holds for finding in found)
