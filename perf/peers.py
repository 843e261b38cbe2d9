"""Other projects' ways to the Jensen-Shannon divergence, each behind one small function.

A peer takes a HeadsInput and gives the JSD in bits: per token [T], or the mean as a scalar tensor,
or None where it has no JSD. They are installed without their dependencies into .peers/ (see
perf/requirements.txt); where a whole package cannot be imported for want of them, the one function
needed is taken out of its installed file.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from divtok.errors import DataError
from perf.inputs import HeadsInput
from perf.naive import NATS_PER_BIT
from perf.results import Way

if TYPE_CHECKING:
    from torch import Tensor

PEERS = Path(__file__).parents[1] / ".peers"
PACKAGES = ("trl", "liger-kernel", "lm-polygraph")

Run = Callable[[HeadsInput], "Tensor | None"]


@dataclass(frozen=True, slots=True)
class Peer:
    way: Way
    run: Run
    timed: bool = True
    cuda_only: bool = False
    half_only: bool = False  # says something new in half precision only
    compiles: bool = False


def add_peers_path() -> None:
    """Behind everything else, so that nothing in .peers/ hides an installed package."""
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))


def definition(path: Path, name: str, names: dict[str, Any]) -> Any:
    """The function or class `name` of a source file, run on its own with `names` in sight."""
    if not path.exists():
        raise DataError(
            f"The peer's file {path.relative_to(PEERS)} is not in .peers/.",
            next_step="Install the peers: make .peers",
        )
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            scope = dict(names)
            exec(compile(ast.Module([node], []), str(path), "exec"), scope)
            return scope[name]
    raise DataError(f"{path.relative_to(PEERS)} has no definition of {name}.")


def trl(inputs: HeadsInput, *, cast: bool = False) -> Tensor:
    loss = definition(
        PEERS / "trl" / "experimental" / "gkd" / "gkd_trainer.py",
        "generalized_jsd_loss",
        {"torch": torch, "F": F},
    )
    hidden_p, weight_p, hidden_q, weight_q, _ = inputs.cut()
    teacher, student = hidden_p @ weight_p.T, hidden_q @ weight_q.T
    if cast:
        teacher, student = teacher.float(), student.float()
    # "batchmean" divides by the first axis, which is the positions here.
    return loss(student, teacher, beta=0.5, reduction="batchmean") / NATS_PER_BIT


def liger_fused(inputs: HeadsInput) -> Tensor:
    module = importlib.import_module("liger_kernel.ops.fused_linear_jsd")
    hidden_p, weight_p, hidden_q, weight_q, _ = inputs.cut()
    apply = module.LigerFusedLinearJSDFunction.apply
    return apply(hidden_q, weight_q, hidden_p, weight_p, None, 0.5) / NATS_PER_BIT


def liger_chunked(inputs: HeadsInput, *, cut: bool = True, compiled: bool = True) -> Tensor:
    module = importlib.import_module("liger_kernel.chunked_loss.jsd_loss")
    loss = module.LigerFusedLinearJSDLoss(
        weight_hard_loss=0.0, weight_soft_loss=1.0, beta=0.5, compiled=compiled
    )
    weights = (inputs.weight_q, inputs.weight_p)
    weight_q, weight_p = (w[: inputs.width] if cut else w for w in weights)
    return loss(inputs.hidden_q, weight_q, inputs.hidden_p, weight_p, inputs.tokens) / NATS_PER_BIT


# What the names in lm-polygraph's class stand for; base class and model are never used.
POLYGRAPH_NAMES: dict[str, Any] = {
    "np": np,
    "Dict": dict,
    "List": list,
    "Tuple": tuple,
    "StatCalculator": object,
    "WhiteboxModel": object,
}


def lm_polygraph(inputs: HeadsInput) -> None:
    calculator = definition(
        PEERS / "lm_polygraph" / "stat_calculators" / "entropy.py",
        "EntropyCalculator",
        POLYGRAPH_NAMES,
    )()
    hidden_p, weight_p, hidden_q, weight_q, _ = inputs.cut()
    for hidden, weight in ((hidden_p, weight_p), (hidden_q, weight_q)):
        log_probs = (hidden @ weight.T).log_softmax(-1).cpu().float().numpy()
        calculator({"greedy_log_probs": [log_probs]})


_MEAN = "mean JSD only, as a loss"

ALL: tuple[Peer, ...] = (
    Peer(
        Way(
            "trl",
            "TRL generalized JSD",
            _MEAN,
            "full logits in the model's type, as its GKD trainer hands them over; one width only",
        ),
        trl,
    ),
    Peer(
        Way("trl-float32", "TRL, logits cast to float32", _MEAN, "cast after the matrix product"),
        lambda inputs: trl(inputs, cast=True),
        half_only=True,
    ),
    Peer(
        Way(
            "liger-fused",
            "Liger fused linear JSD (Triton)",
            _MEAN,
            "also makes the gradient of the hidden states in its forward pass, one more matrix "
            "product; one width only",
        ),
        liger_fused,
        cuda_only=True,
    ),
    Peer(
        Way(
            "liger-chunked",
            "Liger chunked JSD loss",
            _MEAN,
            "also makes the gradients of hidden states and head in its forward pass, two more "
            "matrix products; compiled, as is its default; logits in the model's type",
        ),
        liger_chunked,
        compiles=True,
    ),
    Peer(
        Way(
            "liger-chunked-uncut",
            "Liger chunked JSD loss, heads not cut",
            _MEAN,
            "pads the smaller vocabulary with logits of 0, which gives mass to tokens that the "
            "model does not have; not timed",
        ),
        lambda inputs: liger_chunked(inputs, cut=False, compiled=False),
        timed=False,
    ),
    Peer(
        Way(
            "lm-polygraph",
            "lm-polygraph entropies",
            "both entropies, no JSD",
            "full log-probs copied to the host, then numpy token by token",
        ),
        lm_polygraph,
    ),
)
