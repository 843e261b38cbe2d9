"""What fits: bytes of weights, activations, caches and workspace, and what is left of a device.

Pure arithmetic, estimates all of it; no device is asked. Tracing one pair (`memory_needed`) is
worked out from exact shapes in the dtype that was asked for. A plan (`too_large`, `fitting_rows`)
knows sizes from a list only and takes bfloat16, in which large models run on a GPU; the largest
part of its memory is the cache of generation, which tracing does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from divtok.models.sizes import ModelSize

if TYPE_CHECKING:
    from divtok.planning.model_shapes import ModelShape

# The rest is for what allocators lose between blocks, and for all that is not a tensor.
USABLE_SHARE = 0.9
# What plans are made for.
GPU = "one NVIDIA H200"
GPU_BYTES = 141e9


@dataclass(frozen=True, slots=True)
class Batch:
    """What is read at once: `rows` responses of `length` tokens."""

    rows: int
    length: int

    @property
    def tokens(self) -> int:
        return self.rows * self.length


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a job needs at its peak, by what they are for. `free` is None where it is not known."""

    weights_p: int
    weights_q: int
    activations: int
    hidden_states: int
    workspace: int
    free: int | None

    @property
    def total(self) -> int:
        parts = (self.weights_p, self.weights_q, self.activations, self.hidden_states)
        return sum(parts) + self.workspace

    @property
    def fits(self) -> bool | None:
        """None where the free memory is not known."""
        return None if self.free is None else self.total <= USABLE_SHARE * self.free


def plan_batch(length: int, *, max_tokens: int, max_rows: int) -> Batch:
    """The batch that tracing makes of rows this long: one row at least, however long it is."""
    return Batch(max(1, min(max_rows, max_tokens // length)), length)


def memory_needed(
    p: ModelShape, q: ModelShape, batch: Batch, *, workspace_bytes: int, free: int | None
) -> Memory:
    """Both models stay loaded; they read one after the other, and the head stage comes last.

    The hidden states of both are kept for the head stage; the larger of the two trunks sets the
    peak of the activations.
    """
    return Memory(
        weights_p=p.weight_bytes,
        weights_q=q.weight_bytes,
        activations=max(activation_bytes(shape, batch) for shape in (p, q)),
        hidden_states=batch.tokens * sum(s.hidden_size * s.dtype_bytes for s in (p, q)),
        workspace=workspace_bytes,
        free=free,
    )


def activation_bytes(shape: ModelShape, batch: Batch) -> int:
    """What one trunk holds at its peak while it reads a batch, and half of that again.

    A token needs b (4 D + max(6 A, 3 I)): the residual stream and its norms, and either queries,
    keys and values with their rotated copies, or both halves of the feed-forward layer and their
    product. Padding and sliding windows add a mask of 1 + b bytes for each earlier token, which is
    always counted; attention that keeps its scores adds b + 4 for each head and earlier token. b
    is the size of a number.

    The half is for what allocators keep: on a CPU the process grew by 0.7 to 1.5 times the tensors'
    own size, in float32 and bfloat16, so by at most what is given here.
    """
    size = shape.dtype_bytes
    layer = max(6 * shape.attention_size, 3 * shape.intermediate_size)
    token = size * (4 * shape.hidden_size + layer)
    token += batch.length * (1 + size)
    if shape.keeps_scores:
        token += batch.length * shape.attention_heads * (size + 4)
    return 3 * token * batch.tokens // 2


def too_large(*models: ModelSize) -> bool:
    """Whether the weights of models that are loaded together leave no room on one GPU."""
    return sum(model.weight_bytes for model in models) > USABLE_SHARE * GPU_BYTES


def fitting_rows(model: ModelSize, tokens: float) -> int:
    """Rows whose keys and values surely fit on one GPU beside the weights, as a power of two.

    Rows leave as they end, so that there are never more tokens than rows times their mean.
    """
    free = USABLE_SHARE * GPU_BYTES - model.weight_bytes
    rows = int(free / model.cache_bytes(tokens))
    return 1 << (rows.bit_length() - 1) if rows > 0 else 0
