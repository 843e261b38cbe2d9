"""The projection: what it learns, when it stops, how it is kept, and what it is good for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from trace_samples import SavedPair, bigram_reader, trajectory

from divtok.errors import DataError, UsageError
from divtok.evidence.kinds.projected import ProjectedHead
from divtok.evidence.projection import FitFacts, Projection
from divtok.evidence.projection_fit import StatePair, fit_projection, split_trajectories
from divtok.packed.parts import Head
from divtok.records import Reading, Trajectory
from divtok.trace.pair import Asked, Pair
from divtok.trace.reader import load_reader
from divtok.trace.readings import read_states, read_trajectories

NAMES: dict[str, Any] = {"generator": "g", "base": "b"}
FACTS = FitFacts(9, 1, 90, 10, "mean", 7, 2, True, 1 / 3, 0.1, 2.0, 0.95, 4)


def mapped(
    weight: torch.Tensor, bias: torch.Tensor, *, count: int = 12, noise: float = 0.0, seed: int = 0
) -> list[StatePair]:
    """States of unlike scales, and what the map makes of them."""
    random = torch.Generator().manual_seed(seed)
    scales = torch.logspace(-1, 1, weight.shape[1])
    pairs: list[StatePair] = []
    for number in range(count):
        x = torch.randn(40 + number, weight.shape[1], generator=random) * scales + 3
        y = x @ weight.T + bias
        pairs.append((x, y + noise * torch.randn(y.shape, generator=random)))
    return pairs


def known_map(base_width: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    weight = torch.randn(base_width, width, generator=random)
    return weight, torch.randn(base_width, generator=random)


@pytest.mark.parametrize(("base_width", "width"), [(6, 10), (10, 6), (8, 8)])
def test_a_known_affine_map_is_recovered(base_width: int, width: int) -> None:
    weight, bias = known_map(base_width, width)
    found = fit_projection(
        mapped(weight, bias), **NAMES, learning_rate=0.02, batch_tokens=64, max_epochs=400
    )
    torch.testing.assert_close(found.weight, weight, atol=5e-3, rtol=0)
    torch.testing.assert_close(found.bias, bias, atol=2e-2, rtol=0)
    assert found.facts.r_squared is not None
    assert found.facts.r_squared > 0.99999
    assert found.weight.dtype == found.bias.dtype == torch.float32
    assert not found.weight.requires_grad


def test_equal_states_start_and_stay_at_the_identity() -> None:
    pairs = [(x, x) for x, _ in mapped(*known_map(5, 5))]
    found = fit_projection(pairs, **NAMES)
    assert (found.facts.start, found.facts.best_epoch) == ("identity", 0)
    torch.testing.assert_close(found.weight, torch.eye(5), atol=1e-6, rtol=0)
    assert found.facts.validation_loss < 1e-10


def test_far_states_and_other_widths_start_at_the_mean() -> None:
    weight, bias = known_map(5, 5)
    assert fit_projection(mapped(weight, bias + 100), **NAMES, max_epochs=1).facts.start == "mean"
    assert fit_projection(mapped(*known_map(4, 5)), **NAMES, max_epochs=1).facts.start == "mean"


def mean_squared_error(pairs: list[StatePair], guess: Callable[[torch.Tensor], Any]) -> float:
    errors = torch.cat([((guess(x) - y) ** 2).flatten() for x, y in pairs])
    return float(errors.double().mean())


def test_the_facts_are_what_a_plain_computation_gives() -> None:
    pairs = mapped(*known_map(4, 7), count=20, noise=0.5)
    found = fit_projection(pairs, **NAMES, seed=3, validation_share=0.2, max_epochs=12)
    held_out = split_trajectories(20, 0.2, 3)
    held = [pairs[i] for i in sorted(held_out)]
    train = [pair for i, pair in enumerate(pairs) if i not in held_out]
    mean = torch.cat([y for _, y in train]).mean(dim=0)
    facts = found.facts
    assert (facts.train_trajectories, facts.validation_trajectories) == (16, 4)
    assert facts.train_tokens == sum(len(x) for x, _ in train)
    assert facts.validation_tokens == sum(len(x) for x, _ in held)
    assert facts.train_loss == pytest.approx(mean_squared_error(train, found.apply), rel=1e-4)
    assert facts.validation_loss == pytest.approx(mean_squared_error(held, found.apply), rel=1e-4)
    assert facts.baseline_loss == pytest.approx(mean_squared_error(held, lambda _: mean), rel=1e-4)
    assert facts.r_squared == 1 - facts.validation_loss / facts.baseline_loss
    assert facts.seed == 3


def overfitting_pairs() -> list[StatePair]:
    """Few tokens and many dimensions that say nothing: after a while more fit is worse."""
    random = torch.Generator().manual_seed(1)
    pairs: list[StatePair] = []
    for _ in range(8):
        x = torch.randn(10, 60, generator=random)
        y = x[:, :3] + torch.randn(10, 3, generator=random)
        pairs.append((x, y))
    return pairs


def test_early_stopping_stops_and_keeps_the_best() -> None:
    pairs = overfitting_pairs()
    losses: list[float] = []
    told: list[int] = []

    def progress(epoch: int, train: float, validation: float) -> None:
        told.append(epoch)
        losses.append(validation)

    found = fit_projection(
        pairs,
        **NAMES,
        patience=4,
        max_epochs=300,
        batch_tokens=8,
        learning_rate=0.1,
        validation_share=0.5,
        progress=progress,
    )
    facts = found.facts
    assert told == list(range(1, facts.epochs + 1))
    assert facts.stopped_early
    assert facts.epochs < 300
    # By hand: four epochs in a row, the last ones, did not gain a thousandth.
    held = [pairs[i] for i in split_trajectories(8, 0.5, 0)]
    train = [pair for i, pair in enumerate(pairs) if i not in split_trajectories(8, 0.5, 0)]
    mean = torch.cat([y for _, y in train]).mean(dim=0)
    mark, waits = mean_squared_error(held, lambda _: mean), [0]
    for epoch, loss in enumerate(losses, start=1):
        better = loss < mark * 0.999
        mark = loss if better else mark
        waits.append(0 if better else waits[-1] + 1)
        assert (waits[-1] == 4) == (epoch == facts.epochs)
    assert [a for a, b in pairwise(waits) if a > b == 0]  # waited, then gained
    assert facts.best_epoch == int(np.argmin(losses)) + 1
    assert 0 < facts.best_epoch < facts.epochs
    assert facts.validation_loss == min(losses) < losses[-1]
    assert mean_squared_error(held, found.apply) == pytest.approx(min(losses), rel=1e-5)


def test_steps_that_are_too_long_are_undone_and_shortened() -> None:
    found = fit_projection(
        mapped(*known_map(6, 10)), **NAMES, learning_rate=2.0, patience=8, batch_tokens=64
    )
    assert found.facts.r_squared is not None
    assert 1 - found.facts.r_squared < 1e-9


def test_without_early_stopping_all_epochs_run() -> None:
    found = fit_projection(mapped(*known_map(4, 6)), **NAMES, max_epochs=3)
    assert (found.facts.epochs, found.facts.stopped_early) == (3, False)


def test_constant_states_have_no_r_squared() -> None:
    pairs = [(x, torch.ones(len(x), 2)) for x, _ in mapped(*known_map(2, 4))]
    found = fit_projection(pairs, **NAMES, patience=2)
    assert found.facts.r_squared is None
    assert (found.facts.best_epoch, found.facts.epochs, found.facts.stopped_early) == (0, 2, True)
    torch.testing.assert_close(found.apply(pairs[0][0]), pairs[0][1])


def test_a_dimension_that_never_changes_does_no_harm() -> None:
    weight, bias = known_map(3, 4)
    pairs = [
        (torch.cat([x, torch.full((len(x), 1), 7.0)], dim=1), y) for x, y in mapped(weight, bias)
    ]
    found = fit_projection(pairs, **NAMES, learning_rate=0.02, batch_tokens=64)
    torch.testing.assert_close(found.weight[:, :4], weight, atol=5e-3, rtol=0)
    assert bool(found.weight.isfinite().all())


def test_equal_arguments_give_equal_weights_and_seeds_matter() -> None:
    pairs = mapped(*known_map(4, 6), noise=0.3)
    a, b = (fit_projection(pairs, **NAMES, seed=1, max_epochs=5) for _ in range(2))
    assert torch.equal(a.weight, b.weight)
    assert torch.equal(a.bias, b.bias)
    assert a.facts == b.facts
    assert not torch.equal(fit_projection(pairs, **NAMES, seed=2, max_epochs=5).weight, a.weight)


def test_states_read_for_inference_and_in_half_precision_can_be_learned_from() -> None:
    with torch.inference_mode():
        pairs = [(x.bfloat16(), y.bfloat16()) for x, y in mapped(*known_map(4, 6))]
        within = fit_projection(pairs, **NAMES, max_epochs=2)
    outside = fit_projection(pairs, **NAMES, max_epochs=2)
    assert torch.equal(within.weight, outside.weight)
    assert outside.weight.dtype == torch.float32


def test_the_split_is_by_trajectory_seeded_and_never_all_or_none() -> None:
    assert split_trajectories(100, 0.1, 7) == split_trajectories(100, 0.1, 7)
    assert split_trajectories(100, 0.1, 7) != split_trajectories(100, 0.1, 8)
    assert len(split_trajectories(100, 0.1, 7)) == 10
    assert len(split_trajectories(2, 0.01, 0)) == len(split_trajectories(2, 0.99, 0)) == 1
    for share in (0, 1, -0.5):
        with pytest.raises(UsageError, match="between 0 and 1"):
            split_trajectories(10, share, 0)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda pairs: pairs[:1], DataError, r"at least 2 trajectories, not 1.*Generate more"),
        (lambda pairs: [*pairs, (pairs[0][0], pairs[1][1])], UsageError, r"trajectory 12 .*shapes"),
        (lambda pairs: [*pairs, (pairs[0][1], pairs[0][0])], UsageError, r"trajectory 12 .*shapes"),
        (lambda pairs: [*pairs, (pairs[0][0][:0], pairs[0][1][:0])], UsageError, r"at least 1"),
        (lambda pairs: [*pairs, (pairs[0][0] / 0, pairs[0][1])], DataError, r"trajectory 12 .*NaN"),
    ],
)
def test_states_that_cannot_be_learned_from_are_named(
    change: Callable[[list[StatePair]], list[StatePair]], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        fit_projection(change(mapped(*known_map(4, 6))), **NAMES)


@pytest.mark.parametrize("name", ["patience", "max_epochs", "batch_tokens", "learning_rate"])
def test_settings_must_be_positive(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be positive, not 0"):
        fit_projection(mapped(*known_map(4, 6)), **NAMES, **{name: 0})


def small() -> Projection:
    weight, bias = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]]), torch.tensor([10.0, 20.0])
    return Projection(weight, bias, "org/g", "org/b", FACTS, "abc", "main")


def test_apply_is_the_affine_map() -> None:
    states = torch.tensor([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0]], dtype=torch.bfloat16)
    assert small().apply(states).tolist() == [[13.0, 22.0], [14.0, 21.0]]
    with pytest.raises(UsageError, match=r"shape \[2, 2\].*'org/g' needs \[N, 3\]"):
        small().apply(states[:, :2])


def test_saving_and_loading_is_exact(tmp_path: Path) -> None:
    projection = replace(small(), weight=torch.randn(2, 3), bias=torch.randn(2))
    path = tmp_path / "new" / "map.safetensors"
    projection.save(path)
    again = Projection.load(path)
    assert torch.equal(again.weight, projection.weight)
    assert torch.equal(again.bias, projection.bias)
    assert again.facts == FACTS
    assert (again.generator, again.base) == ("org/g", "org/b")
    assert (again.generator_digest, again.base_digest) == ("abc", "main")
    assert [file.name for file in path.parent.iterdir()] == ["map.safetensors"]


def damage(path: Path, how: str) -> None:
    tensors = load_file(path)
    told = {
        "format": 1,
        "generator": "g",
        "base": "b",
        "generator_digest": "",
        "base_digest": "",
        "facts": {name: getattr(FACTS, name) for name in FACTS.__slots__},
    }
    match how:
        case "gone":
            path.unlink()
            return
        case "other file":
            path.write_text("nothing of the kind")
            return
        case "no metadata":
            save_file(tensors, path)
            return
        case "no bias":
            del tensors["bias"]
        case "wrong shape":
            tensors["bias"] = torch.zeros(3)
        case "flat weight":
            tensors["weight"] = torch.zeros(6)
        case "half":
            tensors["weight"] = tensors["weight"].half()
        case "not finite":
            tensors["bias"][0] = float("nan")
        case "newer":
            told["format"] = 2
        case "fewer facts":
            told["facts"] = {}
        case _:
            assert how == "whole"
    save_file(tensors, path, metadata={"divtok_projection": json.dumps(told)})


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("gone", "map.safetensors"),
        ("other file", "cannot be read"),
        ("no metadata", "no metadata"),
        ("no bias", "no 'bias'"),
        ("wrong shape", r"\[2, 3\] and its bias \[3\]; \[Db, Dg\] and \[Db\] are needed"),
        ("flat weight", r"weight has shape \[6\]"),
        ("half", "float16 and torch.float32, not float32"),
        ("not finite", "NaN or infinite"),
        ("newer", "format is 2, not 1"),
        ("fewer facts", "missing"),
    ],
)
def test_files_that_are_no_projection_are_refused(tmp_path: Path, how: str, words: str) -> None:
    path = tmp_path / "map.safetensors"
    small().save(path)
    damage(path, "whole")
    assert Projection.load(path).facts == FACTS
    damage(path, how)
    with pytest.raises(DataError, match=rf"projection '.*{words}.*Fit it again"):
        Projection.load(path)


def read_projected(
    generator: Any, base: Any, head: Head, projection: Projection, trajectories: list[Trajectory]
) -> list[Reading]:
    """What the generator's pass gives beside the trace; the base stands in for an auxiliary."""
    asked = Asked(listeners=[ProjectedHead(projection, head)])
    reads = Pair(generator, base).read_batch(trajectories, asked=asked)
    return [reading for read in reads for reading in read.heard]


def test_a_mapped_reading_is_the_bases_head_on_mapped_states(saved_pair: SavedPair) -> None:
    generator = load_reader(str(saved_pair.p_dir), device="cpu")
    base = load_reader(str(saved_pair.q_dir), device="cpu")
    random = torch.Generator().manual_seed(0)
    projection = replace(
        small(),
        weight=torch.randn(32, 48, generator=random) / 7,
        bias=torch.randn(32, generator=random),
    )
    rows = [(saved_pair.ids(6), saved_pair.ids(n)) for n in (9, 1, 4)]
    trajectories = [trajectory(str(i), *row) for i, row in enumerate(rows)]
    found = read_projected(generator, base, base.head, projection, trajectories)
    for reading, states, (_, response) in zip(
        found, read_states(generator, trajectories), rows, strict=True
    ):
        assert (reading.model, reading.kind, reading.reason) == ("org/b", "projected", None)
        mapped_states = states.values @ projection.weight.T + projection.bias
        logprobs = (mapped_states @ saved_pair.q.lm_head.weight.T).double().log_softmax(dim=-1)
        expected = logprobs[torch.arange(len(response)), torch.tensor(response)]
        np.testing.assert_allclose(reading.logprob, expected.detach().numpy(), atol=1e-4)


def test_rows_that_cannot_be_mapped_keep_their_place() -> None:
    table = np.zeros((3, 3), dtype=np.float32)
    generator = bigram_reader("g", table, "abc", context_length=3)
    projection = replace(small(), weight=torch.eye(3), bias=torch.zeros(3))
    found = read_projected(
        generator,
        generator,
        Head(torch.eye(3)),
        projection,
        [trajectory("a", [0], []), trajectory("b", [0], [1]), trajectory("c", [0], [1, 1, 1])],
    )
    assert [reading.key for reading in found] == ["a", "b", "c"]
    assert found[0].reason == "empty: the response has no tokens"
    assert found[1].logprob.tolist() == pytest.approx([-np.log(3)])
    assert found[2].reason == "too_long: prompt 1 + response 3 = 4 tokens, g reads 3"
    with pytest.raises(UsageError, match=r"maps to 3 dimensions.*'org/b' reads 2"):
        ProjectedHead(projection, Head(torch.zeros(3, 2)))


def sampled(name: str, count: int) -> list[Trajectory]:
    from divtok.generate.jobs import Job, generate_batch
    from divtok.models.load import load_model
    from divtok.problems.benchmark import load_benchmark
    from divtok.records import Sampling

    sampling = Sampling(temperature=1.0, top_p=1.0, max_length=200)
    problems = load_benchmark("arith-fit")[:count]
    loaded = load_model(name, device="cpu")
    return generate_batch(loaded, [Job(p, 0, name, "cot", sampling) for p in problems])


def gap(readings: list[Reading], to: list[Reading]) -> float:
    """Root of the mean squared difference of the log-probabilities."""
    a, b = (np.concatenate([reading.logprob for reading in side]) for side in (readings, to))
    return float(np.sqrt(np.mean((a - b) ** 2)))


def test_the_tiny_base_is_met_better_than_by_an_untrained_map() -> None:
    names = ("divtok/tiny-0.9m", "divtok/tiny-0.9m-base")
    generator, base = (load_reader(name, device="cpu") for name in names)
    trajectories = sampled(names[0], 24)
    fitting, fresh = trajectories[:18], trajectories[18:]
    pairs = [
        (g.values, b.values)
        for g, b in zip(read_states(generator, fitting), read_states(base, fitting), strict=True)
    ]
    found = fit_projection(
        pairs, generator=names[0], base=names[1], learning_rate=3e-3, batch_tokens=256
    )
    assert found.facts.r_squared is not None
    assert found.facts.r_squared > 0.3
    untrained = replace(
        found, weight=torch.eye(len(found.weight)), bias=torch.zeros(len(found.bias))
    )
    truth = read_trajectories(base, fresh, kind="base_chat")

    def read(projection: Projection) -> list[Reading]:
        return read_projected(generator, base, base.head, projection, fresh)

    assert gap(read(found), truth) < 0.95 * gap(read(untrained), truth)
