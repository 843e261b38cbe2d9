"""Teaching the copy: whole responses in a seeded order, AdamW, a warm-up and a cosine.

A step is some thousand response tokens, however few of them fit into memory at once: its parts'
gradients are added up. Where memory runs out the step is begun anew with smaller parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from divtok.distilling.kl import Distance, chunk_of, distance
from divtok.distilling.student import Student
from divtok.errors import ModelError, ResourceError, UsageError
from divtok.memory import is_out_of_memory
from divtok.packed.packs import build_pack, plan_packs
from divtok.progress import notice, track
from divtok.trace.batches import Row, read_rows
from divtok.trace.budget import Budget
from divtok.trace.reader import Reader

if TYPE_CHECKING:
    import torch

WORKSPACE_BYTES = 256_000_000
WORKSPACE_BYTES_GPU = 2_000_000_000
DEFAULT_EPOCHS = 3
_WARM_UP = 0.05  # share of the steps
_LAST_RATE = 0.05  # of the highest
_LONGEST_GRADIENT = 1.0
# The rate of a model whose hidden states have D numbers is this over D.
_RATE_TIMES_WIDTH = 0.2


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long the copy learns, and in what steps. `steps` go before `epochs`."""

    epochs: int = DEFAULT_EPOCHS
    steps: int | None = None
    batch_tokens: int = 1024  # response tokens of a step
    learning_rate: float | None = None  # the highest; left out: by the model's width
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"epochs": 0, "steps": 0, "batch_tokens": 1, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise UsageError(f"{name} must be at least {smallest}, not {value}.")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise UsageError(f"learning_rate must be positive, not {self.learning_rate}.")

    def rate(self, width: int) -> float:
        """The highest learning rate."""
        given = self.learning_rate
        return _RATE_TIMES_WIDTH / width if given is None else given

    def seen(self, rows: Sequence[Row]) -> int:
        """How many response tokens are learned from, those of every epoch."""
        lengths = [len(row.token_ids) for row in rows]
        return sum(lengths[row] for batch in self.batches(lengths) for row in batch)

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """The rows of every step, by their number; in a new order each time all were seen."""
        shuffle = np.random.default_rng(self.seed)
        found: list[list[int]] = []
        epoch = 0
        while epoch < self.epochs if self.steps is None else len(found) < self.steps:
            found += _batches(
                lengths, shuffle.permutation(len(lengths)).tolist(), self.batch_tokens
            )
            epoch += 1
        return found[: self.steps]


def _batches(
    lengths: Sequence[int], order: Sequence[int], batch_tokens: int
) -> Iterator[list[int]]:
    batch: list[int] = []
    tokens = 0
    for row in order:
        batch.append(row)
        tokens += lengths[row]
        if tokens >= batch_tokens:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near the copy is on some responses: nats a token, and shares of tokens."""

    kl: float
    agreement: float  # how often both have the same likeliest token
    tokens: int


def workspace(device: torch.device) -> int:
    return WORKSPACE_BYTES if device.type == "cpu" else WORKSPACE_BYTES_GPU


def measure(teacher: Reader, student: Student, rows: Sequence[Row], *, budget: Budget) -> Nearness:
    """How near the copy is to its model on these rows."""
    import torch

    with track("read held-out responses", total=_tokens(rows)) as advance:

        def read(rows: Sequence[Row], workspace_bytes: int) -> list[tuple[float, int]]:
            with torch.no_grad():
                found = _distance(teacher, student, rows, workspace_bytes)
            lengths = [len(row.token_ids) for row in rows]
            parts = zip(found.kl.split(lengths), found.same.split(lengths), strict=True)
            advance(sum(lengths))
            return [(float(kl.double().sum()), int(same.sum())) for kl, same in parts]

        found = read_rows(rows, read, device=teacher.device, budget=budget, doing="distil")
    tokens = _tokens(rows)
    kl = sum(kl for kl, _ in found) / tokens
    _check_number(kl, "on held-out responses")
    return Nearness(kl, sum(same for _, same in found) / tokens, tokens)


def train(
    teacher: Reader,
    student: Student,
    rows: Sequence[Row],
    schedule: Schedule,
    *,
    budget: Budget,
    told: Callable[[str], None],
) -> int:
    """Bring the copy nearer to its model, in place; gives the number of steps.

    `told` gets a line now and then. Equal arguments give equal weights on a CPU.
    """
    import torch

    batches = schedule.batches([len(row.token_ids) for row in rows])
    if not batches:
        return 0
    rate = schedule.rate(student.width)
    optimizer = torch.optim.AdamW(
        student.parameters,
        lr=rate,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        fused=teacher.device.type == "cuda",
    )
    recent: list[tuple[float, int]] = []
    with track("distil", total=schedule.seen(rows)) as advance:
        for step, batch in enumerate(batches):
            chosen = [rows[i] for i in batch]
            kl = _gradients(teacher, student, chosen, budget)
            _check_number(kl, f"at step {step + 1}")
            torch.nn.utils.clip_grad_norm_(student.parameters, _LONGEST_GRADIENT)
            for group in optimizer.param_groups:
                group["lr"] = rate * _share(step, len(batches))
            _step(optimizer)
            recent.append((kl, _tokens(chosen)))
            _tell(step + 1, len(batches), recent, told)
            advance(_tokens(chosen))
    for each in student.parameters:
        each.grad = None
    return len(batches)


def _share(step: int, steps: int) -> float:
    """Of the highest learning rate, at a step from 0."""
    warm_up = max(1, round(_WARM_UP * steps))
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / warm_up) * (_LAST_RATE + (1 - _LAST_RATE) * cosine)


def _tell(
    step: int, steps: int, recent: list[tuple[float, int]], told: Callable[[str], None]
) -> None:
    """Ten times in all: the mean KL since the last time."""
    if step * 10 // steps == (step - 1) * 10 // steps:
        return
    tokens = sum(count for _, count in recent)
    mean = sum(kl * count for kl, count in recent) / tokens
    told(f"step {step} of {steps}: KL {mean:.4f} nats a token")
    recent.clear()


def _gradients(teacher: Reader, student: Student, rows: Sequence[Row], budget: Budget) -> float:
    """Gradients of the mean KL over these rows' tokens, from nothing; gives that mean."""
    import torch

    while True:
        for each in student.parameters:
            each.grad = None
        held = budget.workspace_bytes or workspace(teacher.device)
        packs = _packs(rows, budget.tokens)
        largest: list[Row] = []
        total = torch.zeros((), dtype=torch.float64, device=teacher.device)
        try:
            for pack in packs:
                largest = pack
                found = _distance(teacher, student, pack, held, weight=1 / _tokens(rows))
                total += found.kl.double().sum()
            return float(total) / _tokens(rows)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            cause = str(error).split(". ")[0]
        # Only here, with the failed attempt's tensors gone, is there room again.
        _give_way(largest, held, budget, cause)


def _give_way(rows: Sequence[Row], held: int, budget: Budget, cause: str) -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    tokens = sum(row.length for row in rows)
    done = budget.shrink(tokens=tokens, responses=len(rows), workspace_bytes=held)
    if done is None:
        raise ResourceError(
            f"Learning from one response of {tokens:,} tokens (trajectory '{rows[0].key}') does "
            f"not fit into memory ({cause}).",
            next_step="Keep fewer layers, cut responses (--max-length), or use a device with more "
            "memory.",
        )
    notice(f"distil: out of memory with {tokens:,} tokens at once; {done}")


def _step(optimizer: torch.optim.Optimizer) -> None:
    try:
        optimizer.step()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise ResourceError(
            "The weights that learn and what the optimizer keeps of each, 16 bytes in all, do not "
            "fit into memory.",
            next_step="Keep fewer layers, or use a device with more memory.",
        ) from error


def _packs(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    planned = plan_packs(
        [row.prompt_key for row in rows],
        [len(row.prompt_ids) for row in rows],
        [len(row.token_ids) for row in rows],
        max_tokens=max_tokens,
        max_rows=len(rows),
    )
    return [[rows[i] for i in pack] for pack in planned]


def _distance(
    teacher: Reader,
    student: Student,
    rows: Sequence[Row],
    workspace_bytes: int,
    weight: float | None = None,
) -> Distance:
    import torch

    pack = build_pack([row.prompt_ids for row in rows], [row.token_ids for row in rows])
    with torch.no_grad():
        theirs = teacher.states(pack)
    chunk = chunk_of(workspace_bytes, student.head.width)
    with student.products():
        ours = student.states(pack)
        return distance(
            theirs, teacher.head.logits, ours, student.logits, chunk=chunk, weight=weight
        )


def _tokens(rows: Sequence[Row]) -> int:
    return sum(len(row.token_ids) for row in rows)


def _check_number(kl: float, where: str) -> None:
    if not math.isfinite(kl):
        raise ModelError(
            f"The distance of the copy from its model is no number {where}.",
            next_step="Give a lower learning rate, or read in float32 (--dtype float32).",
        )
