"""Memory, speed and advice before a job: every figure worked out by hand for small shapes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trace_samples import SavedPair, bigram_reader, tiny_config

from divtok.errors import ModelError
from divtok.planning import machine
from divtok.planning.amounts import duration, gigabytes, operations, rate
from divtok.planning.feasibility import (
    Feasibility,
    default_length,
    dtype_advice,
    length_obstacle,
    memory_obstacle,
    shared_context,
)
from divtok.planning.machine import Measured
from divtok.planning.memory import Batch, Memory, activation_bytes, memory_needed, plan_batch
from divtok.planning.model_shapes import ModelShape, read_outline, shape_of
from divtok.planning.speed import EFFICIENCY, Flops, flops_per_token, tokens_per_second
from divtok.trace.pair import Pair

P = ModelShape(
    name="p",
    architecture="Llama",
    parameters=1000,
    active_parameters=600,
    head_width=50,
    hidden_size=8,
    intermediate_size=20,
    attention_size=6,
    attention_heads=2,
    layers=3,
    context_length=64,
    dtype="float32",
)
Q = replace(
    P,
    name="q",
    parameters=400,
    active_parameters=200,
    head_width=40,
    hidden_size=4,
    intermediate_size=5,
    layers=2,
    dtype="bfloat16",
)


def meta_model(config: Any) -> Any:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def test_operations_of_a_token() -> None:
    # 2 x 600; 4 x 3 layers x 6 x 10 / 2; 2 x 50 x 8
    assert flops_per_token(P, 10) == Flops(linear=1200, attention=360, head=800)
    assert flops_per_token(P, 10).total == 2360
    assert flops_per_token(Q, 10) == Flops(linear=400, attention=240, head=320)


def test_activations_of_a_batch() -> None:
    batch = Batch(rows=2, length=10)
    # 4 bytes x (4 x 8 + the larger of 6 x 6 and 3 x 20), and a mask of 1 + 4 bytes for 10 tokens
    assert activation_bytes(P, batch) == 1.5 * 20 * (4 * (32 + 60) + 50)
    # in 2 bytes, with 6 x 6 the larger one
    assert activation_bytes(Q, batch) == 1.5 * 20 * (2 * (16 + 36) + 30)
    # two heads keep 10 scores each, once in 4 bytes and once more in float32
    assert activation_bytes(replace(P, keeps_scores=True), batch) == 1.5 * 20 * (418 + 160)


def test_memory_of_a_job() -> None:
    found = memory_needed(P, Q, Batch(2, 10), workspace_bytes=5000, free=30_000)
    assert found == Memory(
        weights_p=4000,
        weights_q=800,
        activations=12_540,
        hidden_states=20 * (8 * 4 + 4 * 2),
        workspace=5000,
        free=30_000,
    )
    assert found.total == 23_140
    assert found.fits is True
    assert replace(found, free=25_712).fits is True, "90 % of it is 23140.8"
    assert replace(found, free=25_711).fits is False
    assert replace(found, free=None).fits is None


@pytest.mark.parametrize(
    ("length", "batch"),
    [(4096, Batch(4, 4096)), (100, Batch(64, 100)), (20_000, Batch(1, 20_000))],
)
def test_the_batch_of_rows_that_long(length: int, batch: Batch) -> None:
    assert plan_batch(length, max_tokens=16384, max_rows=64) == batch


@pytest.mark.parametrize(
    ("context", "length"), [(None, 4096), (32768, 4096), (4096, 3840), (1024, 768), (64, 32)]
)
def test_the_default_length_leaves_room_for_a_prompt(context: int | None, length: int) -> None:
    assert default_length(context) == length


def test_the_shorter_context_counts() -> None:
    assert shared_context(P, replace(Q, context_length=48)) == 48
    assert shared_context(P, replace(Q, context_length=None)) == 64
    assert shared_context(replace(P, context_length=None), replace(Q, context_length=None)) is None


def test_a_response_needs_a_prompt_token_before_it() -> None:
    shorter = replace(Q, context_length=48)
    assert length_obstacle(P, shorter, 47) is None
    problem = length_obstacle(P, shorter, 48)
    assert problem is not None
    assert problem.what == ("A response of 48 tokens is too long: q reads 48, prompt included.")
    endless = [replace(shape, context_length=None) for shape in (P, Q)]
    assert length_obstacle(*endless, length=99) is None


def test_speed_is_the_inverse_of_the_seconds_of_a_token() -> None:
    rates = {"float32": 2360 / EFFICIENCY, "bfloat16": 960 / EFFICIENCY}
    # a second in each model, and two for comparing
    assert tokens_per_second(P, Q, 10, rates=rates, row_seconds=2.0) == pytest.approx(0.25)


def test_hours_come_from_the_measured_speed_where_there_is_one() -> None:
    found = Feasibility(
        p=P,
        q=Q,
        device="cpu",
        same_tokens=True,
        length=10,
        batch=Batch(2, 10),
        memory=memory_needed(P, Q, Batch(2, 10), workspace_bytes=1, free=None),
        estimated=100.0,
        tokens=720_000,
        problems=(),
        notes=(),
        advice=(),
    )
    assert found.shared_width == 40
    assert found.hours == 2.0
    assert replace(found, measured=Measured(50.0, Batch(1, 10))).hours == 4.0
    assert replace(found, estimated=None).hours is None
    assert replace(found, tokens=None).hours is None


def test_what_helps_against_too_little_memory() -> None:
    memory = memory_needed(P, Q, Batch(2, 10), workspace_bytes=5000, free=10_000)
    on_gpu = memory_obstacle(memory, P, Q, device_type="cuda")
    assert on_gpu is not None
    assert on_gpu.what.startswith("The job needs 0.0 MB of memory")
    steps = on_gpu.next_step.split("; or ")
    assert [step.split()[0] for step in steps] == ["Take", "use", "spread", "put", "use"]
    half = replace(P, dtype="bfloat16")
    on_cpu = memory_obstacle(replace(memory, free=100), half, Q, device_type="cpu")
    assert on_cpu is not None
    assert on_cpu.next_step == "Use smaller models or a machine with more memory."
    assert memory_obstacle(replace(memory, free=None), P, Q, device_type="cpu") is None
    assert memory_obstacle(replace(memory, free=10**6), P, Q, device_type="cpu") is None


@pytest.mark.parametrize(
    ("dtype", "stored", "device", "words"),
    [
        ("float32", "bfloat16", "cpu", []),
        ("float32", "bfloat16", "cuda", ["many times slower on a GPU"]),
        ("bfloat16", "bfloat16", "cuda", ["near theta may count"]),
        ("bfloat16", "bfloat16", "cpu", ["emulate half precision", "near theta may count"]),
        ("float16", "bfloat16", "cuda", ["p is stored in", "q is stored in", "near theta"]),
        ("float16", "float16", "cuda", ["near theta may count"]),
    ],
)
def test_advice_on_the_dtype(dtype: str, stored: str, device: str, words: list[str]) -> None:
    p, q = (replace(shape, dtype=dtype, stored_dtype=stored) for shape in (P, Q))
    advice = dtype_advice(p, q, device_type=device)
    assert len(advice) == len(words)
    for sentence, part in zip(advice, words, strict=True):
        assert part in sentence


@pytest.mark.parametrize(
    ("size", "text"),
    [(16_060_000_000, "16.1 GB"), (123_456_789, "0.1 GB"), (99_000_000, "99.0 MB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert gigabytes(size) == text


def test_operations_rates_and_times_for_people() -> None:
    assert [operations(n) for n in (933_632, 2_600_000, 14_141_238_272)] == [
        "933,632",
        "2.6 M",
        "14.1 G",
    ]
    assert [rate(n) for n in (0.123, 9.9, 166.7, 30_512.0)] == ["0.12", "9.9", "170", "31,000"]
    assert [duration(hours) for hours in (1 / 120, 0.5, 1234.56)] == [
        "30 seconds",
        "30 minutes",
        "1,234.6 hours",
    ]


def test_parameters_of_a_plain_model(tokenizer: Any) -> None:
    shape = shape_of("m", meta_model(tiny_config("llama", 100, 32)), tokenizer, dtype="float32")
    # a layer: q and o 32 x 32, k and v 16 x 32, three of 32 x 32, two norms
    layer = 2 * 1024 + 2 * 512 + 3 * 1024 + 2 * 32
    assert shape.active_parameters == 2 * layer + 32
    assert shape.parameters == shape.active_parameters + 2 * 100 * 32  # embedding and head
    assert (shape.head_width, shape.hidden_size, shape.intermediate_size) == (100, 32, 32)
    assert (shape.layers, shape.attention_heads, shape.attention_size) == (2, 2, 32)
    assert (shape.context_length, shape.architecture) == (64, "LlamaForCausalLM")


def test_only_the_chosen_experts_of_a_mixture_are_active(tokenizer: Any) -> None:
    from transformers import AutoConfig

    config = AutoConfig.for_model(
        "mixtral",
        vocab_size=100,
        hidden_size=32,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    shape = shape_of("m", meta_model(config), tokenizer, dtype="float32")
    attention, gate, norms = 2 * 1024 + 2 * 512, 4 * 32, 3 * 32
    expert = 3 * 32 * 16
    assert shape.active_parameters == attention + gate + norms + 2 * expert
    assert shape.parameters == attention + gate + norms + 4 * expert + 2 * 3200


def test_an_outline_is_that_of_the_model_itself(any_saved_pair: SavedPair) -> None:
    outline = read_outline(str(any_saved_pair.p_dir), device="cpu")
    model, shape = any_saved_pair.p, outline.shape
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())
    assert shape.head_width == any_saved_pair.width + 16
    assert (shape.hidden_size, shape.context_length, shape.dtype) == (48, 64, "float32")
    caps = {"gemma2": 3.0}
    scales = {"cohere": 0.25, "granite": 1 / 3}
    kind = model.config.model_type
    assert shape.softcap == caps.get(kind)
    assert shape.logit_scale == pytest.approx(scales.get(kind, 1.0))
    assert len(outline.tokenizer) == len(any_saved_pair.tokenizer)


@pytest.mark.usefixtures("offline")
def test_a_model_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="no/such"):
        read_outline("no/such")
    with pytest.raises(ModelError, match="no packaged model"):
        read_outline("divtok/tiny-9b")


def clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """A clock that moves by one step each time it is read; any time limit is over at once."""
    readings, limits = (np.arange(10**6) * step).tolist(), count(0, 1000)
    ticks = iter(readings)
    times = SimpleNamespace(perf_counter=lambda: next(ticks), monotonic=lambda: next(limits))
    monkeypatch.setattr(machine, "time", times)


def test_the_rate_of_a_matrix_product(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0.5)
    rate = machine.matmul_rate(torch.device("cpu"), "float32", hidden_size=32, seconds=0)
    assert rate == 2 * 16 * 32 * 128 / 0.5, "16 rows take long enough"
    clock(monkeypatch, 1e-3)
    rate = machine.matmul_rate(torch.device("cpu"), "float32", hidden_size=32, seconds=0)
    assert rate == pytest.approx(2 * 4096 * 32 * 128 / 1e-3), "as many rows as there are"


def test_the_seconds_of_a_position(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0.5)
    spent = machine.row_seconds(torch.device("cpu"), 12, 10, workspace_bytes=10**6, seconds=0)
    assert spent == 0.5 / 16


@pytest.mark.parametrize(
    ("step", "batch"), [(1.0, Batch(1, 20)), (0.0625, Batch(5, 20)), (0.25, Batch(5, 20))]
)
def test_tracing_is_timed_on_batches_that_grow(
    monkeypatch: pytest.MonkeyPatch, step: float, batch: Batch
) -> None:
    table = np.zeros((3, 3))
    pair = Pair(bigram_reader("p", table, "abc"), bigram_reader("q", table, "abc"))
    clock(monkeypatch, step)
    found = machine.measure_tracing(pair, Batch(5, 20), workspace_bytes=10**6, seconds=3.0)
    assert found.batch == batch
    assert found.tokens_per_second == pytest.approx(batch.tokens / step)


def test_free_memory_is_what_the_container_leaves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    alone = machine.free_memory(cpu)
    (tmp_path / "memory.max").write_text("10000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    assert machine.free_memory(cpu) == 6000
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = machine.free_memory(cpu)
    assert (alone is None) == (unlimited is None)
    assert unlimited is None or unlimited > 6000
    assert machine.free_memory(torch.device("meta")) is None
