"""The head stage: hidden states of both models in, per-token numbers out, by every way there is.

All ways get the same tensors. Time and memory are taken over a range of positions, the error of
the JSD on inputs of their own, against float64 on the same logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch

from divtok.trace import head_stage as heads
from divtok.trace.kernels import cpu, plain
from divtok.trace.kernels.common import (
    COLUMNS,
    Head,
    Work,
    head_logits,
    run_chunks,
)
from perf import naive, peers
from perf.inputs import HeadsInput, Shape, make_inputs
from perf.meter import Limits, Meter, Task, add_errors
from perf.results import Case, Measurement, Way

if TYPE_CHECKING:
    from torch import Tensor

Errors = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a section measures: each shape over its numbers of positions.

    Errors go into the case of `error_tokens` positions, from at most `checked` of them.
    """

    shapes: tuple[tuple[Shape, tuple[int, ...]], ...]
    error_tokens: int
    checked: int
    dtype: torch.dtype
    limits: Limits


SMOLLM = Shape("SmolLM-135M heads", 576, 576, 49152, 49152)
QWEN_SMALL = Shape("small heads, Qwen2.5 vocabulary", 1536, 896, 152064, 151936)
QWEN_LARGE = Shape("Qwen2.5-7B and 1.5B heads", 3584, 1536, 152064, 151936)
TOY = Shape("toy heads", 64, 48, 1040, 1000)

OURS = (
    Way("floor", "the two matrix products alone", "logits in the model's type"),
    Way("floor-float32", "the same with float32 results", "logits"),
    Way(
        "floor-chunks",
        "the same in the chunks that divtok works in",
        "logits",
        "divtok's own matrix products without what follows them",
    ),
    Way("ours", "divtok", "all seven numbers of every token"),
    Way("ours-plain", "divtok, plain torch path", "all seven numbers of every token"),
    Way(
        "naive",
        "naive torch, full logits",
        "all seven numbers of every token",
        "logits in the model's type, then cast to float32",
    ),
    Way("naive-chunks", "naive torch, chunks of 512", "all seven numbers of every token"),
    Way(
        "naive-compiled",
        "torch.compile of naive",
        "all seven numbers of every token",
        "compiled before the clock starts",
    ),
)
BEHIND = (
    Way(
        "rows-ours",
        "divtok behind the products",
        "all seven numbers of every token",
        "from logits that are there already",
    ),
    Way(
        "rows-naive",
        "naive torch behind the products",
        "all seven numbers of every token",
        "from logits that are there already",
    ),
)
WAYS = (*OURS, *BEHIND, *(peer.way for peer in peers.ALL))


def plan(device: torch.device, *, quick: bool) -> Plan:
    toy = ((TOY, (64, 256)),)
    if device.type == "cuda":
        large = ((QWEN_LARGE, (512, 1024, 2048, 4096, 8192, 16384)),)
        limits = Limits(first_s=45, expected_s=4, slow_s=2, repeats=10, section_s=190)
        return Plan(toy if quick else large, 256 if quick else 8192, 1024, torch.bfloat16, limits)
    small = ((QWEN_SMALL, (64, 256)), (SMOLLM, (64, 256, 1024, 2048)))
    limits = Limits(first_s=40, expected_s=30, slow_s=4, repeats=5, section_s=420)
    return Plan(toy if quick else small, 256, 256, torch.float32, limits)


def run(device: torch.device, what: Plan) -> tuple[list[Case], dict[str, str]]:
    """All cases of the section, and what each group of them is."""
    peers.add_peers_path()
    meter = Meter(device, what.limits)
    cases: list[Case] = []
    groups: dict[str, str] = {}
    for shape, sizes in what.shapes:
        meter.say(f"making inputs: {shape.name}")
        everything = make_inputs(shape, max(sizes), device=device, dtype=what.dtype, grid=False)
        groups[shape.name] = (
            f"hidden states {shape.hidden_p} and {shape.hidden_q} wide, vocabularies of "
            f"{shape.vocab_p:,} and {shape.vocab_q:,}, {str(what.dtype).removeprefix('torch.')}"
        )
        for size in sizes:
            checked = None
            if size == what.error_tokens:
                count = min(size, what.checked)
                checked = make_inputs(shape, count, device=device, dtype=what.dtype, grid=True)
            cases.append(_case(meter, shape, everything.first(size), checked))
        del everything
    return cases, groups


def _case(meter: Meter, shape: Shape, inputs: HeadsInput, checked: HeadsInput | None) -> Case:
    tokens = len(inputs.tokens)
    with torch.no_grad():
        measured, _ = meter.measure(shape.name, tokens, timed_tasks(inputs))
        facts: dict[str, float] = {}
        if checked is not None:
            measured, facts = _with_errors(meter, shape, measured, checked)
    return Case(shape.name, f"{tokens:,} positions", tokens, tuple(measured), facts)


def _with_errors(
    meter: Meter, shape: Shape, measured: list[Measurement], inputs: HeadsInput
) -> tuple[list[Measurement], dict[str, float]]:
    """The error of every way that could be timed, and of those that are only checked."""
    running = {m.way for m in measured if m.best is not None}
    outputs = {task.way: meter.once(task)[1] for task in timed_tasks(inputs) if task.way in running}
    for peer in peers.ALL:
        # Cut heads or not is one and the same where the widths are equal.
        if not peer.timed and shape.vocab_p != shape.vocab_q:
            result, outputs[peer.way.name] = meter.once(_peer_task(peer, inputs))
            measured.append(result)
    meter.say("float64 reference")
    exact = reference(inputs)
    facts = {
        "positions checked": float(len(inputs.tokens)),
        "mean JSD, bits": float(exact.mean()),
        "share of tokens above 0.5 bits": float((exact > 0.5).double().mean()),
        "largest error of a logit": logit_error(inputs),
    }
    return list(add_errors(measured, jsd_errors(outputs, exact))), facts


def timed_tasks(inputs: HeadsInput) -> list[Task]:
    """One task for every way, those that cannot run here with the reason."""
    half = inputs.weight_p.dtype.itemsize == 2
    cut = inputs.cut()
    tasks = [
        Task("floor", partial(_products, inputs)),
        Task("floor-float32", partial(_products, inputs, torch.float32)),
        Task("floor-chunks", partial(_products_in_chunks, inputs)),
        Task("ours", partial(ours, inputs), compiles=True),
        Task("ours-plain", partial(_ours_plain, inputs)),
        Task("naive", lambda: naive.metrics(*cut)["jsd_bits"]),
        Task("naive-chunks", lambda: naive.metrics_in_chunks(*cut)["jsd_bits"]),
        Task("naive-compiled", lambda: compiled()(*cut)["jsd_bits"], compiles=True),
    ]
    if not (half and inputs.weight_p.is_cuda):
        del tasks[1:3]  # the products give float32 anyway, and the CPU has chunks of its own
    if not inputs.weight_p.is_cuda:
        tasks += _tasks_behind(inputs)
    return tasks + [
        _peer_task(peer, inputs)
        for peer in peers.ALL
        if peer.timed and (half or not peer.half_only)
    ]


def _tasks_behind(inputs: HeadsInput) -> list[Task]:
    """What follows the products, alone: on a CPU the products are most of the whole."""

    @cache
    def logits() -> tuple[Tensor, Tensor]:
        hidden_p, weight_p, hidden_q, weight_q, _ = inputs.cut()
        return head_logits(Head(weight_p), hidden_p), head_logits(Head(weight_q), hidden_q)

    def ours() -> Tensor:
        out = torch.empty(len(COLUMNS), len(inputs.tokens))
        with cpu.team(torch.get_num_threads()) as team:
            cpu.row_kernel(team, *logits(), inputs.tokens, inputs.width, out)
        return out[COLUMNS.index("jsd_bits")]

    return [
        Task("rows-ours", ours, compiles=True, reason=None if cpu.available() else "needs numba"),
        Task(
            "rows-naive",
            lambda: naive.metrics_from_logits(*logits(), inputs.tokens)["jsd_bits"],
            compiles=True,
        ),
    ]


def _peer_task(peer: peers.Peer, inputs: HeadsInput) -> Task:
    blocked = peer.cuda_only and not inputs.weight_p.is_cuda
    reason = "needs a GPU" if blocked else None
    return Task(peer.way.name, partial(peer.run, inputs), compiles=peer.compiles, reason=reason)


@cache
def compiled() -> Callable[..., dict[str, Tensor]]:
    return torch.compile(naive.metrics)


def _products(inputs: HeadsInput, out_dtype: torch.dtype | None = None) -> None:
    wanted: dict[str, Any] = {} if out_dtype is None else {"out_dtype": out_dtype}
    torch.mm(inputs.hidden_p, inputs.weight_p.T, **wanted)
    torch.mm(inputs.hidden_q, inputs.weight_q.T, **wanted)


def _products_in_chunks(inputs: HeadsInput) -> None:
    def nothing(
        logits_p: Tensor, logits_q: Tensor, tokens: Tensor, width: int, out: Tensor
    ) -> None:
        del logits_p, logits_q, tokens, width
        out.zero_()  # numbers that pass for results

    from divtok.trace.kernels import cuda

    work = _work(inputs)
    workspace = heads.default_workspace(inputs.hidden_p.device)
    rows = cuda.chunk_rows(work.head_p, work.head_q, workspace)
    run_chunks(nothing, work, rows=rows, weight_bytes=workspace)


def ours(inputs: HeadsInput) -> Tensor:
    return heads.pair_metrics(
        inputs.hidden_p, inputs.weight_p, inputs.hidden_q, inputs.weight_q, inputs.tokens
    ).jsd_bits


def _ours_plain(inputs: HeadsInput) -> Tensor:
    workspace = heads.default_workspace(inputs.hidden_p.device)
    return plain.metrics(_work(inputs), workspace).jsd_bits


def _work(inputs: HeadsInput) -> Work:
    return Work(
        inputs.hidden_p,
        Head(inputs.weight_p),
        inputs.hidden_q,
        Head(inputs.weight_q),
        inputs.tokens,
        inputs.width,
    )


def reference(inputs: HeadsInput, rows: int = 64) -> Tensor:
    """The JSD of every position in bits, in float64 from the float32 logits: [T]."""
    parts: list[Tensor] = []
    for start in range(0, len(inputs.tokens), rows):
        logits = [
            head_logits(Head(weight), hidden[start : start + rows])[:, : inputs.width]
            for weight, hidden in (
                (inputs.weight_p, inputs.hidden_p),
                (inputs.weight_q, inputs.hidden_q),
            )
        ]
        parts.append(naive.jsd_bits_float64(logits[0], logits[1]))
    return torch.cat(parts)


def logit_error(inputs: HeadsInput, rows: int = 64, columns: int = 8192) -> float:
    """How far float32 logits lie from float64 ones on a corner of the work; the inputs say 0."""
    gaps: list[float] = []
    for weight, hidden in (
        (inputs.weight_p, inputs.hidden_p),
        (inputs.weight_q, inputs.hidden_q),
    ):
        corner = head_logits(Head(weight[:columns]), hidden[:rows])
        exact = hidden[:rows].double() @ weight[:columns].double().T
        gaps.append(float((corner.double() - exact).abs().max()))
    return max(gaps)


def jsd_errors(outputs: dict[str, Any], exact: Tensor) -> dict[str, Errors]:
    """Largest error of a token and error of the mean, in bits, of every way that gave a JSD."""
    errors: dict[str, Errors] = {}
    for way, output in outputs.items():
        if output is None:
            continue
        found = output.double()
        of_mean = float((found.mean() - exact.mean()).abs())
        largest = float((found - exact).abs().max()) if found.ndim else None
        errors[way] = (largest, of_mean)
    return errors
