"""BaseCal's projection: an affine map from the generator's hidden states to its base model's.

The base's output layer reads the mapped states, so a response gets the base's log-probabilities
from the generator's pass alone. `divtok.evidence.projection_fit` learns the map.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divtok.errors import DataError, UsageError
from divtok.models.errors import need_module

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_METADATA = "divtok_projection"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FitFacts:
    """How a projection was learned. Losses are mean squared errors over tokens and dimensions.

    `baseline_loss` is what the training tokens' mean would get on the validation tokens, and
    `r_squared` is the share of it that the map explains: 1 is perfect, 0 no better than the mean.
    """

    train_trajectories: int
    validation_trajectories: int
    train_tokens: int
    validation_tokens: int
    start: str  # "identity" or "mean": the map that training began with
    epochs: int  # how many were run
    best_epoch: int  # the one whose weights were kept; 0 is the start
    stopped_early: bool
    train_loss: float
    validation_loss: float
    baseline_loss: float
    r_squared: float | None  # None where the validation states never change
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """The map h -> weight h + bias, in float32. Digests or revisions are the caller's, if any."""

    weight: Tensor  # [Db, Dg]
    bias: Tensor  # [Db]
    generator: str
    base: str
    facts: FitFacts
    generator_digest: str = ""
    base_digest: str = ""

    def apply(self, states: Tensor) -> Tensor:
        """Generator states [N, Dg] -> base states [N, Db] in float32, on the weights' device."""
        if states.ndim != 2 or states.shape[1] != self.weight.shape[1]:
            raise UsageError(
                f"Hidden states have shape {list(states.shape)}; the projection of "
                f"'{self.generator}' needs [N, {self.weight.shape[1]}].",
                next_step="Use the projection that was learned for this generator.",
            )
        return affine(self.weight, self.bias, states.to(self.weight.device))

    def to(self, device: torch.device) -> Projection:
        return replace(self, weight=self.weight.to(device), bias=self.bias.to(device))

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, with all that is known about the map in its metadata."""
        need_module("safetensors", "models", purpose="Writing a projection")
        from safetensors.torch import save_file

        told = {
            "format": _FORMAT,
            "generator": self.generator,
            "base": self.base,
            "generator_digest": self.generator_digest,
            "base_digest": self.base_digest,
            "facts": asdict(self.facts),
        }
        tensors = {"weight": self.weight, "bias": self.bias}
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        save_file(
            {name: x.detach().cpu().contiguous() for name, x in tensors.items()},
            part,
            metadata={_METADATA: json.dumps(told)},
        )
        part.replace(path)  # never half a file under the final name

    @staticmethod
    def load(path: str | Path) -> Projection:
        """What `save` wrote; DataError where the file is missing, damaged or something else."""
        need_module("safetensors", "models", purpose="Reading a projection")
        told, tensors = _read(Path(path))
        try:
            if told["format"] != _FORMAT:
                raise ValueError(f"its format is {told['format']}, not {_FORMAT}")
            projection = Projection(
                weight=tensors["weight"],
                bias=tensors["bias"],
                generator=told["generator"],
                base=told["base"],
                facts=FitFacts(**told["facts"]),
                generator_digest=told["generator_digest"],
                base_digest=told["base_digest"],
            )
            _check_tensors(projection)
        except KeyError as error:
            raise _damaged(path, f"it has no {error}") from error
        except (TypeError, ValueError) as error:
            raise _damaged(path, str(error)) from error
        return projection


def affine(weight: Tensor, bias: Tensor, states: Tensor) -> Tensor:
    """States [N, Dg] -> weight [Db, Dg] states + bias [Db], in float32."""
    return (states.float() @ weight.T).add_(bias)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            names: list[str] = file.keys()
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
        return json.loads(metadata[_METADATA]), tensors
    except (OSError, SafetensorError) as error:
        raise _damaged(path, str(error)) from error
    except (KeyError, ValueError) as error:
        raise _damaged(path, "it has no metadata of one") from error


def _check_tensors(projection: Projection) -> None:
    """ValueError where weight and bias are no affine map."""
    import torch

    weight, bias = projection.weight, projection.bias
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ValueError(
            f"its weight has shape {list(weight.shape)} and its bias {list(bias.shape)}; "
            "[Db, Dg] and [Db] are needed"
        )
    if weight.dtype != torch.float32 or bias.dtype != torch.float32:
        raise ValueError(f"its numbers are {weight.dtype} and {bias.dtype}, not float32")
    if not bool(weight.isfinite().all() and bias.isfinite().all()):
        raise ValueError("it holds NaN or infinite numbers")


def _damaged(path: str | Path, why: str) -> DataError:
    return DataError(
        f"The projection '{path}' cannot be read: {why}.",
        next_step="Fit it again, or give the path of a file that was saved by divtok.",
    )
