"""Learning BaseCal's projection from the hidden states of both models; no label is needed.

An affine map under the mean squared error, with early stopping on trajectories held out. Works on
tensors alone: no model is loaded and none is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from divtok.errors import DataError, UsageError
from divtok.evidence.projection import FitFacts, Projection, affine

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Hidden states [T, Dg] of the generator and [T, Db] of the base for one trajectory's tokens.
StatePair = tuple["Tensor", "Tensor"]
# Told after every epoch: its number from 1, training loss and validation loss.
Progress = Callable[[int, float, float], None]

# An epoch that lowers the validation loss by a smaller share counts as no better.
_LEAST_GAIN = 1e-3


def fit_projection(
    pairs: Sequence[StatePair],
    *,
    generator: str,
    base: str,
    generator_digest: str = "",
    base_digest: str = "",
    seed: int = 0,
    patience: int = 5,
    max_epochs: int = 200,
    batch_tokens: int = 512,
    learning_rate: float = 3e-3,
    validation_share: float = 0.1,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Projection:
    """Learn the map from the states of both models, one pair of matrices for each trajectory.

    Whole trajectories are held out. Training stops after `patience` epochs in a row that lower
    their loss by less than a thousandth, and keeps the best weights; an epoch that does not lower
    it at all is undone and halves the learning rate. It starts from the identity where that is
    better than the mean. Equal arguments give equal weights on one device. Computes in float32 on
    `device`, by default where the states are.
    """
    import torch

    _check_settings(patience, max_epochs, batch_tokens, learning_rate)
    _check_pairs(pairs)
    held_out = split_trajectories(len(pairs), validation_share, seed)
    device = device or pairs[0][0].device
    # States read for inference cannot be trained on, but copies of them made outside can.
    with torch.inference_mode(False), torch.enable_grad():
        train = _join(
            [pair for i, pair in enumerate(pairs) if i not in held_out], batch_tokens, device
        )
        held = _join([pair for i, pair in enumerate(pairs) if i in held_out], batch_tokens, device)
        scale = _measure(train)
        start, first = _start(train, scale)
        best = _train(
            train,
            held,
            scale,
            first,
            patience=patience,
            max_epochs=max_epochs,
            learning_rate=learning_rate,
            seed=seed,
            progress=progress,
        )
    baseline = held.loss(torch.zeros_like(best.weight), scale.mean_y)
    facts = FitFacts(
        train_trajectories=len(pairs) - len(held_out),
        validation_trajectories=len(held_out),
        train_tokens=len(train),
        validation_tokens=len(held),
        start=start,
        epochs=best.epochs,
        best_epoch=best.epoch,
        stopped_early=best.stopped_early,
        train_loss=train.loss(best.weight, best.bias),
        validation_loss=best.loss,
        baseline_loss=baseline,
        r_squared=1 - best.loss / baseline if baseline else None,
        seed=seed,
    )
    return Projection(best.weight, best.bias, generator, base, facts, generator_digest, base_digest)


def split_trajectories(count: int, validation_share: float, seed: int) -> frozenset[int]:
    """Which of `count` trajectories are held out; at least one is, and at least one is not."""
    if not 0 < validation_share < 1:
        raise UsageError(f"validation_share must lie between 0 and 1, not {validation_share}.")
    size = min(count - 1, max(1, round(validation_share * count)))
    return frozenset(int(i) for i in np.random.default_rng(seed).permutation(count)[:size])


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """States of many tokens, [N, Dg] and [N, Db], worked on a batch at a time on `device`."""

    x: Tensor
    y: Tensor
    batch: int
    device: torch.device

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in float32, in the order given."""
        for start in range(0, len(self), self.batch):
            rows = slice(start, start + self.batch)
            picked = rows if order is None else order[rows].to(self.x.device)
            yield self.x[picked].to(self.device).float(), self.y[picked].to(self.device).float()

    def loss(self, weight: Tensor, bias: Tensor) -> float:
        """Mean squared error of the map."""
        import torch

        with torch.no_grad():
            errors = [
                float((affine(weight, bias, x) - y).square().sum(dtype=torch.float64))
                for x, y in self.batches()
            ]
        return sum(errors) / self.y.numel()


@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    """Where the training states lie. Training works on states of mean 0 and like size.

    There the map is A x' + c with x' = (x - mean_x) / size_x and y' = (y - mean_y) / size_y, whose
    loss is that of the map itself over size_y ** 2.
    """

    mean_x: Tensor  # [Dg]
    size_x: Tensor  # [Dg]
    mean_y: Tensor  # [Db]
    size_y: float

    def outside(self, inner: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """A [Db, Dg] and c [Db] -> the map's weight and bias."""
        weight = self.size_y * inner / self.size_x
        return weight, self.mean_y + self.size_y * shift - weight @ self.mean_x


@dataclass(frozen=True, slots=True, eq=False)
class _Best:
    weight: Tensor
    bias: Tensor
    loss: float  # on the validation tokens
    epoch: int
    epochs: int
    stopped_early: bool


def _join(pairs: Sequence[StatePair], batch: int, device: torch.device) -> _Tokens:
    import torch

    x, y = (torch.cat([pair[side] for pair in pairs]) for side in (0, 1))
    return _Tokens(x, y, batch, device)


def _measure(tokens: _Tokens) -> _Scale:
    """Means and sizes in float64, since a hidden state may have a few very large dimensions."""
    import torch

    def moments(side: int) -> tuple[Tensor, Tensor]:
        total: Tensor = torch.zeros((), dtype=torch.float64)
        for batch in tokens.batches():
            total = total.to(tokens.device) + batch[side].double().sum(dim=0)
        mean = total / len(tokens)
        spread = torch.zeros_like(mean)
        for batch in tokens.batches():
            spread += (batch[side].double() - mean).square().sum(dim=0)
        return mean.float(), spread / len(tokens)

    mean_x, variance_x = moments(0)
    mean_y, variance_y = moments(1)
    size_x = variance_x.sqrt().float()
    size_y = float(variance_y.mean().sqrt())
    # What never changes has no size; any will do.
    return _Scale(mean_x, size_x.masked_fill(size_x == 0, 1.0), mean_y, size_y or 1.0)


def _start(tokens: _Tokens, scale: _Scale) -> tuple[str, tuple[Tensor, Tensor]]:
    """The better of "always the mean" and, where the widths are equal, the identity."""
    import torch

    mean = torch.zeros(len(scale.mean_y), len(scale.mean_x), device=tokens.device)
    nothing = torch.zeros_like(scale.mean_y)
    if mean.shape[0] != mean.shape[1]:
        return "mean", (mean, nothing)
    one = torch.eye(len(mean), device=tokens.device)
    if tokens.loss(one, nothing) >= tokens.loss(mean, scale.mean_y):
        return "mean", (mean, nothing)
    same = torch.diag(scale.size_x) / scale.size_y
    return "identity", (same, (scale.mean_x - scale.mean_y) / scale.size_y)


def _train(
    train: _Tokens,
    held: _Tokens,
    scale: _Scale,
    first: tuple[Tensor, Tensor],
    *,
    patience: int,
    max_epochs: int,
    learning_rate: float,
    seed: int,
    progress: Progress | None,
) -> _Best:
    """The weights of the epoch with the lowest validation loss; epoch 0 is the start."""
    import torch

    shuffle = torch.Generator().manual_seed(seed)
    weight, bias = scale.outside(*first)
    best, kept = (weight, bias, held.loss(weight, bias), 0), first
    mark, waited, epoch = best[2], 0, 0
    inner, shift, optimizer = _begin(kept, learning_rate)
    while epoch < max_epochs and waited < patience:
        epoch += 1
        order = torch.randperm(len(train), generator=shuffle)
        told = _epoch(train, scale, inner, shift, optimizer, order)
        weight, bias = scale.outside(inner.detach(), shift.detach())
        loss = held.loss(weight, bias)
        if progress is not None:
            progress(epoch, told, loss)
        waited = 0 if loss < mark * (1 - _LEAST_GAIN) else waited + 1
        mark = mark if waited else loss
        if loss < best[2]:
            best = (weight, bias, loss, epoch)
            kept = (inner.detach().clone(), shift.detach().clone())
        else:
            learning_rate /= 2
            inner, shift, optimizer = _begin(kept, learning_rate)
    return _Best(*best, epochs=epoch, stopped_early=waited >= patience)


def _begin(
    start: tuple[Tensor, Tensor], learning_rate: float
) -> tuple[Tensor, Tensor, torch.optim.Optimizer]:
    """Copies of the start that can be trained."""
    import torch

    inner, shift = (x.clone().requires_grad_() for x in start)
    return inner, shift, torch.optim.Adam([inner, shift], lr=learning_rate)


def _epoch(
    train: _Tokens,
    scale: _Scale,
    inner: Tensor,
    shift: Tensor,
    optimizer: torch.optim.Optimizer,
    order: Tensor,
) -> float:
    """One pass in the order given; the mean squared error over it, while it changed."""
    total = 0.0
    for x, y in train.batches(order):
        x, y = (x - scale.mean_x) / scale.size_x, (y - scale.mean_y) / scale.size_y
        loss = (x @ inner.T + shift - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) * len(x)
    return total / len(train) * scale.size_y**2


def _check_settings(
    patience: int, max_epochs: int, batch_tokens: int, learning_rate: float
) -> None:
    settings = {
        "patience": patience,
        "max_epochs": max_epochs,
        "batch_tokens": batch_tokens,
        "learning_rate": learning_rate,
    }
    for name, value in settings.items():
        if value <= 0:
            raise UsageError(f"{name} must be positive, not {value}.")


def _check_pairs(pairs: Sequence[StatePair]) -> None:
    if len(pairs) < 2:
        raise DataError(
            f"A projection is learned from at least 2 trajectories, not {len(pairs)}.",
            next_step="Generate more responses; some hundreds are usual.",
        )
    widths = [pairs[0][side].shape[-1] for side in (0, 1)]
    for number, pair in enumerate(pairs):
        shapes: Collection[list[int]] = [list(states.shape) for states in pair]
        tokens = len(pair[0])
        if tokens < 1 or shapes != [[tokens, widths[0]], [tokens, widths[1]]]:
            raise UsageError(
                f"The states of trajectory {number} have shapes {shapes}; [T, {widths[0]}] and "
                f"[T, {widths[1]}] with one T of at least 1 are needed.",
                next_step="Leave out trajectories without states.",
            )
        if not all(bool(states.isfinite().all()) for states in pair):
            raise DataError(
                f"The states of trajectory {number} hold NaN or infinite numbers.",
                next_step="Leave it out, or read it in float32.",
            )
