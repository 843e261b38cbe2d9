"""Steps, rates and gradients: what a step learns does not depend on how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from distil_samples import responses, save_deep

from divtok.distilling import train as training
from divtok.distilling.student import Student
from divtok.distilling.train import Schedule, measure, train
from divtok.errors import ModelError, ResourceError, UsageError
from divtok.models.load import load_model
from divtok.trace.batches import Row, row_of
from divtok.trace.budget import Budget
from divtok.trace.reader import Reader, make_reader
from divtok.trace.trunks import padded_trunk


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model, and another of the same tokens that is to learn from it."""
    top = tmp_path_factory.mktemp("models")
    save_deep(top / "p", "qwen3")
    save_deep(top / "q", "qwen3", seed=1)
    return str(top / "p"), str(top / "q")


@pytest.fixture(scope="module")
def teacher(folders: tuple[str, str]) -> Reader:
    return make_reader(load_model(folders[0], device="cpu"))


@pytest.fixture
def student(folders: tuple[str, str]) -> Student:
    return Student.of(load_model(folders[1], device="cpu"), torch.float32)


ROWS = [row_of(trajectory) for trajectory in responses("g")]


def gradients(
    teacher: Reader, student: Student, rows: Sequence[Row], budget: Budget
) -> tuple[float, list[torch.Tensor]]:
    kl = training._gradients(teacher, student, rows, budget)
    found = [each.grad for each in student.parameters]
    assert all(slope is not None for slope in found)
    return kl, [slope.clone() for slope in found if slope is not None]


def close(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)


def plain_gradients(folders: tuple[str, str], rows: Sequence[Row]) -> tuple[float, dict[str, Any]]:
    """By transformers and torch alone: whole logits, one response at a time."""
    p, q = (load_model(folder, device="cpu").model for folder in folders)
    q.requires_grad_(True)
    total = torch.zeros(())
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        part = slice(len(row.prompt_ids) - 1, -1)
        log_p, log_q = (m(ids).logits[0, part].log_softmax(-1) for m in (p, q))
        total = total + (log_p.exp() * (log_p - log_q)).sum()
    mean = total / sum(len(row.token_ids) for row in rows)
    mean.backward()
    return mean.item(), {name: weight.grad for name, weight in q.named_parameters()}


def test_gradients_are_those_of_the_whole_models(
    folders: tuple[str, str], teacher: Reader, student: Student
) -> None:
    assert student.reader.packed
    kl, found = gradients(teacher, student, ROWS, Budget())
    plain_kl, plain = plain_gradients(folders, ROWS)
    assert kl == pytest.approx(plain_kl, rel=1e-5)
    names = {id(weight): name for name, weight in student.loaded.model.named_parameters()}
    assert len(names) == len(student.parameters)
    for weight, slope in zip(student.parameters, found, strict=True):
        torch.testing.assert_close(slope, plain[names[id(weight)]], rtol=1e-3, atol=1e-6)


def test_padded_reading_gives_the_same_gradients(teacher: Reader, student: Student) -> None:
    packed = gradients(teacher, student, ROWS, Budget())
    trunk = padded_trunk(student.decoder, student.reader.device)
    padded = replace(student, reader=replace(student.reader, trunk=trunk, packed=False))
    kl, found = gradients(teacher, padded, ROWS, Budget())
    assert kl == pytest.approx(packed[0], rel=1e-5)
    close(found, packed[1])


@pytest.mark.parametrize("budget", [Budget(20), Budget(60, 20_000), Budget(1)])
def test_smaller_parts_give_the_same_gradients(
    teacher: Reader, student: Student, budget: Budget
) -> None:
    whole = gradients(teacher, student, ROWS, Budget())
    parts = gradients(teacher, student, ROWS, budget)
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    close(parts[1], whole[1])


def test_where_memory_runs_out_the_step_is_done_in_smaller_parts(
    teacher: Reader, student: Student, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gradients(teacher, student, ROWS, Budget())
    real, tried = training._distance, list[int]()

    def scarce(
        teacher: Reader, student: Student, rows: Sequence[Row], *more: Any, **kw: Any
    ) -> Any:
        tokens = sum(row.length for row in rows)
        tried.append(tokens)
        found = real(teacher, student, rows, *more, **kw)  # leaves gradients, as half a pass does
        if tokens > 70:
            raise torch.OutOfMemoryError("no room")
        return found

    monkeypatch.setattr(training, "_distance", scarce)
    budget = Budget()
    parts = gradients(teacher, student, ROWS, budget)
    assert max(tried) > 70
    assert budget.tokens <= 70
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    close(parts[1], whole[1])


def test_a_response_that_never_fits_is_an_error(
    teacher: Reader, student: Student, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(training, "_distance", scarce)
    with pytest.raises(ResourceError, match=r"one response of .* does not fit"):
        gradients(teacher, student, ROWS, Budget())


def test_no_room_for_the_optimizer_is_an_error_of_its_own(
    teacher: Reader, student: Student, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(torch.optim.AdamW, "step", scarce)
    with pytest.raises(ResourceError, match="16 bytes"):
        train(teacher, student, ROWS, Schedule(steps=1), budget=Budget(), told=print)


def test_equal_seeds_give_equal_weights(folders: tuple[str, str], teacher: Reader) -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        student = Student.of(load_model(folders[1], device="cpu"), torch.float32)
        schedule = Schedule(steps=4, batch_tokens=30, seed=seed)
        assert train(teacher, student, ROWS, schedule, budget=Budget(), told=lambda _: None) == 4
        return [each.detach().clone() for each in student.parameters]

    one, again, other = weights(3), weights(3), weights(4)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_it_comes_nearer_also_with_products_in_half_precision(
    folders: tuple[str, str], teacher: Reader
) -> None:
    for number in (torch.float32, torch.bfloat16):
        student = Student.of(load_model(folders[1], device="cpu"), number)
        before = measure(teacher, student, ROWS, budget=Budget())
        said: list[str] = []
        schedule = Schedule(steps=20, batch_tokens=60)
        train(teacher, student, ROWS, schedule, budget=Budget(), told=said.append)
        after = measure(teacher, student, ROWS, budget=Budget())
        assert after.kl < 0.8 * before.kl
        assert after.tokens == sum(len(row.token_ids) for row in ROWS)
        assert len(said) == 10
        assert {each.dtype for each in student.parameters} == {torch.float32}


def test_a_distance_that_is_no_number_is_an_error(teacher: Reader, student: Student) -> None:
    with torch.no_grad():
        student.parameters[-1].fill_(float("nan"))
    with pytest.raises(ModelError, match="no number at step 1"):
        train(teacher, student, ROWS, Schedule(steps=1), budget=Budget(), told=print)


def test_an_epoch_has_every_row_once() -> None:
    lengths = [5, 9, 2, 7, 30, 1]
    schedule = Schedule(epochs=2, batch_tokens=10)
    batches = schedule.batches(lengths)
    rows = [row for batch in batches for row in batch]
    assert sorted(rows[:6]) == sorted(rows[6:]) == [0, 1, 2, 3, 4, 5]
    for batch in batches:
        assert sum(lengths[row] for row in batch[:-1]) < 10
    assert schedule.batches(lengths) == batches
    assert Schedule(steps=7, batch_tokens=10).batches(lengths)[:3] == batches[:3]
    assert len(Schedule(steps=7, batch_tokens=10).batches(lengths)) == 7
    assert Schedule(epochs=0).batches(lengths) == []


def test_the_rate_rises_and_falls() -> None:
    shares = [training._share(step, 100) for step in range(100)]
    assert shares[0] == pytest.approx(0.2)
    assert max(shares) == shares[4] > 0.99
    assert shares[4:] == sorted(shares[4:], reverse=True)
    assert shares[-1] == pytest.approx(0.05, abs=0.001)
    assert Schedule().rate(160) == pytest.approx(0.00125)
    assert Schedule(learning_rate=0.1).rate(160) == 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": -1},
        {"steps": -1},
        {"batch_tokens": 0},
        {"seed": -1},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Schedule(**wrong)


def test_a_tied_head_is_one_weight(tmp_path: Path) -> None:
    for tied in (True, False):
        save_deep(tmp_path / str(tied), "qwen3", tie_word_embeddings=tied)
        student = Student.of(load_model(str(tmp_path / str(tied)), device="cpu"), torch.float32)
        model = student.loaded.model
        assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
        assert len({id(each) for each in student.parameters}) == len(student.parameters)
        assert any(each is model.lm_head.weight for each in student.parameters)
