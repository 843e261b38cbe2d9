"""From a run's responses to a model folder: what is in it, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from distil_samples import LAYERS, cut_by_hand, responses, run_of, save_deep
from trace_samples import ARCHITECTURES

from divtok.distilling import folder as folders
from divtok.distilling.card import card_text
from divtok.distilling.facts import Distilled
from divtok.distilling.folder import FACTS
from divtok.distilling.train import Schedule
from divtok.errors import DataError, DivtokError, ModelError, StoreError, UsageError
from divtok.models.load import load_model, model_digest
from divtok.stages import distil as stage
from divtok.stages.distil import Asked, default_folder, distil
from divtok.store.run import Run
from divtok.trace.pair import load_pair

STEPS = Schedule(steps=3, batch_tokens=60)
NONE = Schedule(steps=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "source"
    save_deep(folder, "qwen2", tie_word_embeddings=True)
    (folder / "generation_config.json").write_text('{"temperature": 0.5, "eos_token_id": [1, 2]}')
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    return str(folder)


@pytest.fixture(scope="module")
def run(model: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("runs") / "text", model)


@pytest.fixture(scope="module")
def made(model: str, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Distilled:
    folder = tmp_path_factory.mktemp("out") / "small"
    return distil(run, Asked(model, 2, STEPS, device="cpu"), folder)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(3, 40)[None], use_cache=False).logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_without_a_step_it_is_the_model_with_those_layers(
    architecture: str, tmp_path: Path
) -> None:
    source = save_deep(tmp_path / "source", architecture)
    run = run_of(tmp_path / "run", str(tmp_path / "source"))
    asked = Asked(str(tmp_path / "source"), [0, 3], NONE, device="cpu")
    made = distil(run, asked, tmp_path / "small")
    assert made.layers == (0, 3)
    assert (made.kl_after, made.steps, made.epochs) == (made.kl_before, 0, 0.0)
    loaded = load_model(str(tmp_path / "small"), device="cpu").model
    assert loaded.config.get_text_config().num_hidden_layers == 2
    torch.testing.assert_close(logits(loaded), logits(cut_by_hand(source, [0, 3])))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_learns(architecture: str, tmp_path: Path) -> None:
    save_deep(tmp_path / "source", architecture)
    name = str(tmp_path / "source")
    run = run_of(tmp_path / "run", name, responses(name, problems=40))
    asked = Asked(name, 3, Schedule(steps=20, batch_tokens=300), device="cpu")
    made = distil(run, asked, tmp_path / "small")
    assert made.kl_after < made.kl_before
    pair = load_pair(str(tmp_path / "source"), str(tmp_path / "small"), p_device="cpu")
    trace = pair.trace_ids(prompt_ids=[3, 4, 5], token_ids=[6, 7, 8])
    assert trace.status == "ok"


def test_the_folder_is_a_model_like_any_other(made: Distilled, model: str) -> None:
    source = Path(model)
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        assert (made.folder / name).read_bytes() == (source / name).read_bytes()
    config = json.loads((made.folder / "config.json").read_text())
    assert config["num_hidden_layers"] == len(config["layer_types"]) == 2
    assert config["dtype"] == "float32"
    loaded = load_model(str(made.folder), device="cpu").model
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert {path.name[0] for path in made.folder.parent.iterdir()} == {"s"}  # nothing hidden
    assert len({path.stat().st_mode for path in made.folder.iterdir()}) == 1


def test_the_facts_are_what_was_done(made: Distilled, model: str, run: Run) -> None:
    assert made.layers == (0, 3)
    assert made.source_layers == LAYERS
    assert made.source_digest == model_digest(model)
    assert (made.source, made.generator, made.run) == (model, model, "text")
    assert (made.problems, made.held_out_problems) == (5, 1)
    assert made.responses + made.held_out_responses == 12
    assert made.steps == 3
    assert made.epochs == pytest.approx(1.6, abs=0.4)  # of some 150 tokens
    assert made.kl_after < made.kl_before
    assert made.parameters < made.source_parameters
    assert (made.device, made.stored_dtype) == (
        f"cpu, {torch.get_num_threads()} threads",
        "float32",
    )
    stored = json.loads((made.folder / FACTS).read_text())
    assert stored == json.loads(json.dumps(made.as_data()))
    card = (made.folder / "README.md").read_text()
    assert card.startswith(f"---\nbase_model: {model}\nlicense: mit\n---\n")
    for said in (made.source_digest, f"{made.kl_before:.4f}", f"{made.kl_after:.4f}", "0, 3 (of"):
        assert said in card


def test_a_card_names_its_source_and_warns_of_few_held_out_tokens(made: Distilled) -> None:
    few = card_text(made, licence=None)
    assert few.startswith(f"---\nbase_model: {made.source}\n---\n\n# ")
    assert f"rest on {made.held_out_tokens} tokens, fewer than 1,000" in few
    enough = card_text(replace(made, held_out_tokens=1000), licence="mit")
    assert enough.startswith(f"---\nbase_model: {made.source}\nlicense: mit\n---\n\n# ")
    assert "Few held-out tokens" not in enough


def test_the_held_out_numbers_are_those_of_the_folder(
    made: Distilled, run: Run, model: str
) -> None:
    parts = stage.split_responses(
        [*run.trajectories.read()], max_tokens=200_000, max_length=64, seed=0
    )
    p, q = (load_model(name, device="cpu").model for name in (model, str(made.folder)))
    total, same, tokens = 0.0, 0, 0
    for row in parts.held_out:
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        part = slice(len(row.prompt_ids) - 1, -1)
        with torch.no_grad():
            log_p, log_q = (m(ids).logits[0, part].log_softmax(-1) for m in (p, q))
        total += float((log_p.exp() * (log_p - log_q)).sum())
        same += int((log_p.argmax(-1) == log_q.argmax(-1)).sum())
        tokens += len(row.token_ids)
    assert tokens == made.held_out_tokens
    assert made.kl_after == pytest.approx(total / tokens, rel=1e-4)
    assert made.agreement_after == pytest.approx(same / tokens)


def test_equal_seeds_make_equal_files(
    made: Distilled, run: Run, model: str, tmp_path: Path
) -> None:
    again = distil(run, Asked(model, [0, 3], STEPS, device="cpu"), tmp_path / "again")
    for name in ("model.safetensors", "config.json"):
        assert (again.folder / name).read_bytes() == (made.folder / name).read_bytes()
    assert replace(again, folder=made.folder, seconds=made.seconds) == made
    other = replace(STEPS, seed=1)
    differs = distil(run, Asked(model, 2, other, device="cpu"), tmp_path / "other")
    weights = (differs.folder / "model.safetensors").read_bytes()
    assert weights != (made.folder / "model.safetensors").read_bytes()


def test_weights_are_stored_as_the_sources_are(model: str, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(model, half)
    folders.write_model(load_model(model, device="cpu"), half, torch.bfloat16)
    run = run_of(tmp_path / "run", str(half))
    made = distil(run, Asked(str(half), 2, STEPS, device="cpu"), tmp_path / "small")
    assert (made.stored_dtype, made.dtype) == ("bfloat16", "float32")
    assert json.loads((made.folder / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = load_model(str(made.folder), device="cpu").model  # in float32
    weight = loaded.model.layers[0].mlp.up_proj.weight
    assert torch.equal(weight, weight.bfloat16().float())


@pytest.mark.parametrize("when", ["train", "write_card", "load_model"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_call_leaves_nothing(
    when: str,
    error: type[BaseException],
    model: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., Any] = getattr(stage, when)

    def stop(*arguments: Any, **options: Any) -> Any:
        if when == "load_model" and arguments == (model,):
            return real(*arguments, **options)
        raise error

    monkeypatch.setattr(stage, when, stop)
    with pytest.raises(error):
        distil(run, Asked(model, 2, NONE, device="cpu"), tmp_path / "deep" / "small")
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_folder_that_is_there_is_replaced_only_on_request(
    made: Distilled, model: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    shutil.copytree(made.folder, folder)
    (folder / "mine").touch()
    asked = Asked(model, 3, NONE, device="cpu")
    with pytest.raises(UsageError, match=r"There is a folder .* --replace"):
        distil(run, asked, folder)
    with monkeypatch.context() as context:
        context.setattr(stage, "train", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            distil(run, asked, folder, replace_old=True)
    assert (folder / "mine").exists()
    assert len(distil(run, asked, folder, replace_old=True).layers) == 3
    assert not (folder / "mine").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    (folder / FACTS).unlink()
    with pytest.raises(UsageError, match="was not made by 'divtok distil'"):
        distil(run, asked, folder, replace_old=True)


def test_a_folder_that_cannot_take_its_name_leaves_the_old_one(
    made: Distilled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    shutil.copytree(made.folder, folder)
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            raise OSError("no")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(StoreError, match="cannot be stored"), folders.drafted(folder) as draft:
        (draft / FACTS).touch()
    monkeypatch.undo()
    assert (folder / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def refusal(run: Run, folder: Path, asked: Asked) -> DivtokError:
    with pytest.raises(DivtokError) as caught:
        distil(run, asked, folder)
    assert not folder.exists()
    return caught.value


@pytest.mark.parametrize("layers", [LAYERS, 0, [0, 9]])
def test_layers_that_are_not_there_are_refused(
    layers: Any, model: str, run: Run, tmp_path: Path
) -> None:
    error = refusal(run, tmp_path / "small", Asked(model, layers, NONE, device="cpu"))
    assert isinstance(error, UsageError)


def test_a_run_without_responses_of_the_model_is_refused(
    model: str, run: Run, tmp_path: Path
) -> None:
    asked = Asked("divtok/tiny-1.6m", 2, NONE, device="cpu")
    error = refusal(run, tmp_path / "small", asked)
    assert f"it has those of {model}" in str(error)
    assert "--generator" in str(error)


def test_responses_of_another_tokenizer_are_refused(model: str, run: Run, tmp_path: Path) -> None:
    asked = Asked("divtok/tiny-1.6m", 2, NONE, generator=model, device="cpu")
    assert "did not write them" in str(refusal(run, tmp_path / "small", asked))


@pytest.mark.parametrize("change", [{"retokenized": True}, {"token_ids": ()}])
def test_text_without_its_own_tokens_is_refused(
    change: dict[str, Any], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = responses(model)
    text = [replace(row, **change) for row in rows]
    asked = Asked(model, 2, NONE, device="cpu")
    error = refusal(run_of(tmp_path / "text", model, text), tmp_path / "small", asked)
    assert isinstance(error, DataError)
    assert "None of the 12 responses" in str(error)
    some = run_of(tmp_path / "some", model, [*text[:3], *rows[3:]])
    made = distil(some, asked, tmp_path / "small")
    assert made.responses + made.held_out_responses == 9
    assert "3 of 12 responses are left out" in capsys.readouterr().err


def test_float16_and_wrong_numbers_are_refused(model: str) -> None:
    for wrong in ({"dtype": "float16"}, {"tokens": 1}, {"max_length": 0}):
        with pytest.raises(UsageError):
            Asked(model, 2, NONE, **wrong)  # type: ignore[arg-type]


def test_quantised_weights_are_refused(
    model: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quantised(*arguments: Any, **options: Any) -> Any:
        loaded = load_model(*arguments, **options)
        loaded.model.hf_quantizer = object()
        return loaded

    monkeypatch.setattr(stage, "load_model", quantised)
    error = refusal(run, tmp_path / "small", Asked(model, 2, NONE, device="cpu"))
    assert isinstance(error, ModelError)


def test_layers_that_depend_on_their_place_are_refused(
    model: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stage.write_model

    def misplaced(loaded: Any, folder: Path, stored: torch.dtype) -> None:
        stack = loaded.model.model.layers
        loaded.model.model.layers = torch.nn.ModuleList(list(stack)[::-1])
        real(loaded, folder, stored)

    monkeypatch.setattr(stage, "write_model", misplaced)
    error = refusal(run, tmp_path / "small", Asked(model, 2, NONE, device="cpu"))
    assert "depends on its place" in str(error)


def test_the_default_folder_has_the_models_name() -> None:
    assert default_folder("divtok/tiny-1.6m", 2) == Path("tiny-1.6m-2-layers")
    assert default_folder("/a/b/model.GGUF", [0, 1, 5]) == Path("model-3-layers")
    assert default_folder("a/b/", 1) == Path("b-1-layers")


def test_a_real_model_goes_through(smollm2: str, tmp_path: Path) -> None:
    """SmolLM2 from its GGUF file: a few steps on sentences of its own tokens."""
    source = load_model(smollm2, device="cpu")
    texts = ["Two and two is four.", "Ada has 12 eggs and buys 30 more.", "The sky is blue today."]
    rows = [
        replace(
            responses(smollm2, problems=1, samples=1)[0],
            key=str(number),
            problem_id=str(number),
            prompt_ids=tuple(source.tokenizer.encode("Say something.")),
            token_ids=tuple(source.tokenizer.encode(text)),
        )
        for number, text in enumerate(texts)
    ]
    del source
    run = run_of(tmp_path / "run", smollm2, rows)
    schedule = Schedule(steps=4, batch_tokens=16)
    made = distil(run, Asked(smollm2, 3, schedule, device="cpu"), tmp_path / "small")
    assert made.layers == (0, 14, 29)
    assert made.kl_after < made.kl_before
    pair = load_pair(smollm2, str(made.folder), p_device="cpu", q_device="cpu")
    assert pair.trace_ids(prompt_ids=[1, 5, 9], token_ids=[12, 13]).status == "ok"
