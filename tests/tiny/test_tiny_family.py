"""The embedded family: small, complete, of one tokenizer, and traced exactly."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import divtok
from divtok.families.family import FAMILIES
from divtok.generate.jobs import Job, generate_batch
from divtok.models.load import load_model, load_tokenizer
from divtok.models.packaged import resolve_model
from divtok.problems.benchmark import load_benchmark
from divtok.protocols.encode import prompt_ids
from divtok.records import Trajectory
from divtok.trace.pair import load_pair

TINY = FAMILIES.get("tiny")
FOLDER = Path(resolve_model(TINY.auxiliary)).parent
FOLDERS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
REWARD_MODEL = "tiny-prm"
MODELS = [name for name in FOLDERS if name != REWARD_MODEL]
GENERATORS = [generator.model for generator in TINY.generators]
MOST_BYTES = 15_000_000


def config_of(model: str) -> dict[str, Any]:
    return json.loads((FOLDER / model / "config.json").read_text())


def test_it_is_small() -> None:
    assert sum(p.stat().st_size for p in FOLDER.rglob("*") if p.is_file()) <= MOST_BYTES


def test_it_lies_inside_the_package() -> None:
    assert FOLDER.is_relative_to(Path(divtok.__file__).parent)


def test_every_model_of_the_preset_is_there() -> None:
    bases = [generator.base for generator in TINY.generators if generator.base]
    assert len(bases) >= 1
    for name in (*GENERATORS, *bases, TINY.auxiliary):
        assert Path(resolve_model(name)).parent == FOLDER


def test_every_generator_has_its_base_and_there_is_a_reward_model() -> None:
    bases = [f"{name.removeprefix('divtok/')}-base" for name in GENERATORS]
    assert sorted([*bases, REWARD_MODEL, *(m for m in MODELS if "base" not in m)]) == FOLDERS


def test_the_weights_are_safetensors_alone() -> None:
    for model in FOLDERS:
        names = {path.name for path in (FOLDER / model).iterdir()}
        assert "model.safetensors" in names
        assert not [n for n in names if n.endswith((".bin", ".pt", ".pth", ".pkl", ".py", ".h5"))]


def test_the_output_layer_is_not_stored_a_second_time() -> None:
    from safetensors import safe_open

    for model in FOLDERS:
        with safe_open(FOLDER / model / "model.safetensors", "pt") as stored:
            assert "lm_head.weight" not in stored.keys()  # noqa: SIM118
            assert stored.metadata() == {"format": "pt"}
            assert {str(stored.get_tensor(key).dtype) for key in stored.keys()} == {  # noqa: SIM118
                "torch.float16"
            }
        assert config_of(model)["tie_word_embeddings"]


def test_four_sizes_with_vocabularies_of_several_widths() -> None:
    def size(model: str) -> int:
        return (FOLDER / model / "model.safetensors").stat().st_size

    widths = {model: config_of(model)["vocab_size"] for model in MODELS}
    assert len({size(model) for model in MODELS}) >= 4
    assert len(set(widths.values())) >= 2
    for model in MODELS:
        assert widths[model] > len(load_tokenizer(f"divtok/{model}"))
        assert config_of(model)["model_type"] == "qwen2"


def test_the_generators_grow_and_the_auxiliary_is_smaller() -> None:
    sizes = [
        (Path(resolve_model(name)) / "model.safetensors").stat().st_size
        for name in (TINY.auxiliary, *GENERATORS)
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("file", ["tokenizer.json", "chat_template.jinja"])
def test_all_sizes_share_one_tokenizer(file: str) -> None:
    assert len({(FOLDER / model / file).read_bytes() for model in FOLDERS}) == 1


def test_the_tokenizer_writes_back_any_text() -> None:
    tokenizer = load_tokenizer(GENERATORS[0])
    for text in ("Ada has 1,234 eggs.", r"So \boxed{-7}.", "  two  blanks\n\n", "naïve 日本 🙂"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text


def test_the_chat_template_knows_a_system_role() -> None:
    tokenizer = load_tokenizer(GENERATORS[0])
    text = tokenizer.decode(prompt_ids(tokenizer, "How many?"))
    roles = [part.partition("\n")[0] for part in text.split("<|im_start|>")[1:]]
    assert roles == ["system", "user", "assistant"]
    assert r"put your final answer within \boxed{}" in text
    assert text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("model", MODELS)
def test_every_model_loads_complete(model: str) -> None:
    loaded = load_model(f"divtok/{model}", device="cpu")
    assert str(loaded.dtype) == "torch.float32"
    assert loaded.tokenizer.convert_tokens_to_ids("<|im_end|>") in loaded.end_ids
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    millions = float(model.removeprefix("tiny-").partition("m")[0])
    assert count / 1e6 == pytest.approx(millions, abs=0.06)


def sample(generator: str) -> Trajectory:
    """A trajectory of the hardest embedded problem, as long as the model makes it."""
    problem = load_benchmark("arith-contest", limit=1)[0]
    preset = TINY.generator(generator)
    job = Job(problem, 0, generator, "cot", preset.sampling)
    return generate_batch(load_model(generator, device="cpu"), [job])[0]


def log_probabilities(model: str, trajectory: Trajectory, width: int) -> Any:
    """[T, width] in float64, straight from the whole model's logits."""
    import torch
    from transformers import AutoModelForCausalLM

    whole = AutoModelForCausalLM.from_pretrained(resolve_model(model), dtype=torch.float64)
    ids = torch.tensor([[*trajectory.prompt_ids, *trajectory.token_ids]])
    with torch.no_grad():
        logits = whole(input_ids=ids).logits[0]
    start = len(trajectory.prompt_ids) - 1
    return torch.log_softmax(logits[start:-1, :width], dim=-1).numpy()


def entropy_of(probabilities: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return -(probabilities * np.log(probabilities)).sum(axis=-1)


@pytest.mark.parametrize("generator", GENERATORS)
def test_traces_equal_the_plain_computation(generator: str) -> None:
    trajectory = sample(generator)
    assert len(trajectory.token_ids) > 20
    trace = load_pair(generator, TINY.auxiliary, p_device="cpu", q_device="cpu").trace_batch(
        [trajectory]
    )[0]
    names = [name.removeprefix("divtok/") for name in (generator, TINY.auxiliary)]
    width = min(config_of(name)["vocab_size"] for name in names)
    log_p = log_probabilities(generator, trajectory, width)
    log_q = log_probabilities(TINY.auxiliary, trajectory, width)
    p, q = np.exp(log_p), np.exp(log_q)
    # Entropy of the mixture minus the mean entropy; the library sums non-negative terms instead.
    jsd = (entropy_of((p + q) / 2) - (entropy_of(p) + entropy_of(q)) / 2) / np.log(2)
    tokens = np.arange(len(trajectory.token_ids)), np.array(trajectory.token_ids)
    expected = {
        "jsd_bits": jsd,
        "logprob_p": log_p[tokens],
        "logprob_q": log_q[tokens],
        "entropy_p": entropy_of(p),
        "entropy_q": entropy_of(q),
        "kl_pq": (p * (log_p - log_q)).sum(axis=-1),
        "kl_qp": (q * (log_q - log_p)).sum(axis=-1),
    }
    assert np.abs(trace.jsd_bits - jsd).max() < 1e-5
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(trace, name), values, atol=2e-4, err_msg=name)
    assert trace.jsd_bits.max() > 0.05, "two equal models would show nothing"


def test_a_longer_row_of_the_batch_changes_nothing() -> None:
    trajectory = sample(GENERATORS[0])
    ids = trajectory.token_ids[:15]
    text = load_tokenizer(GENERATORS[0]).decode(ids)
    short = replace(trajectory, key="short", token_ids=ids, text=text)
    pair = load_pair(GENERATORS[0], TINY.auxiliary, p_device="cpu", q_device="cpu")
    together = pair.trace_batch([trajectory, short])
    np.testing.assert_allclose(together[1].jsd_bits, together[0].jsd_bits[:15], atol=1e-5)


def test_a_models_fingerprint_tells_changed_weights_of_the_same_size(tmp_path: Path) -> None:
    from divtok.models.load import model_digest
    from divtok.models.packaged import resolve_model

    copy = tmp_path / "model"
    shutil.copytree(resolve_model("divtok/tiny-0.3m"), copy)
    before = model_digest(str(copy))
    assert before == model_digest("divtok/tiny-0.3m")
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    assert model_digest(str(copy)) != before
