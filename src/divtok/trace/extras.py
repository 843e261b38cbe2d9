"""What p's pass can give beside the trace, at the cost of no further pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from divtok.errors import UsageError
from divtok.evidence.projection import Projection
from divtok.packed.packs import Indices
from divtok.packed.parts import Head
from divtok.records import Chain, FloatArray, Reading, Trace
from divtok.trace.readings import failed_reading, make_reading, token_logprobs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedHead:
    """The base model's output layer behind the map from the generator's hidden states."""

    projection: Projection
    head: Head

    def __post_init__(self) -> None:
        mapped, read = self.projection.weight.shape[0], self.head.weight.shape[1]
        if mapped != read:
            raise UsageError(
                f"The projection maps to {mapped} dimensions; the output layer of "
                f"'{self.projection.base}' reads {read}.",
                next_step="Use the projection that was learned for this pair of models.",
            )

    def logprobs(self, states: Tensor, targets: Indices, workspace_bytes: int) -> FloatArray:
        """[N] log-probabilities of the targets, from the generator's hidden states [N, D]."""
        import torch

        found = token_logprobs(
            self.projection.apply(states),
            self.head,
            torch.from_numpy(targets),
            workspace_bytes=workspace_bytes,
        )
        return found.cpu().numpy()

    def reading(self, key: str, logprob: FloatArray) -> Reading:
        return make_reading(key, self.projection.base, "projected", logprob)

    def failed(self, key: str, reason: str) -> Reading:
        return failed_reading(key, self.projection.base, "projected", reason)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What one pass of both models gave for one trajectory, with the extras asked for."""

    trace: Trace
    chain: Chain | None = None
    projected: Reading | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Extras:
    """Which of them are asked for."""

    chain: bool = False
    projected: ProjectedHead | None = None

    def unread(self, trace: Trace, model: str) -> Read:
        """For a trajectory that was not read: the same reason everywhere."""
        reason = f"{trace.status}: {trace.reason}"
        return Read(
            trace,
            Chain(trace.key, model, (), (), reason) if self.chain else None,
            None if self.projected is None else self.projected.failed(trace.key, reason),
        )
