"""The verb check: what it says of pairs that can be traced, and of those that cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_samples import Outcome
from console import Command

from divtok.models.packaged import resolve_model
from divtok.planning import feasibility

P, Q = "divtok/tiny-0.9m", "divtok/tiny-0.3m"
PAIR = ("check", "--pair", P, Q, "--device", "cpu")


@pytest.fixture
def known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.6 * 1e9 operations and 1e4 comparisons a second, and 2 GB free."""
    monkeypatch.setattr(feasibility, "matmul_rate", lambda *_, **__: 1e9)
    monkeypatch.setattr(feasibility, "row_seconds", lambda *_, **__: 1e-4)
    monkeypatch.setattr(feasibility, "free_memory", lambda *_, **__: 2_000_000_000)


@pytest.fixture
def without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(feasibility, "load_pair", refuse)


def words(said: Outcome) -> str:
    """The panel as one line, without its frame."""
    return " ".join(said.out.replace("│", " ").split())


def data(said: Outcome) -> dict[str, Any]:
    return json.loads(said.out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))


def copy_of(model: str, folder: Path) -> Path:
    return Path(shutil.copytree(resolve_model(model), folder))


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_a_pair_that_can_be_traced(divtok: Command) -> None:
    said = divtok(*PAIR)
    assert (said.code, said.err) == (0, "")
    text = words(said)
    for part in (
        "Tracing with this pair can be done",
        f"{P}: Qwen2ForCausalLM, 895,104 parameters in float32 (stored in float16)",
        "the same token for every id that both know; outputs 832 and 784 wide, compared over 784",
        "responses of 768 tokens; the models read 1,024, which leaves 256 for the prompt",
        "2.0 GB free on cpu: fits",
        "about 170 tokens/s (estimate; 2.6 M + 933,632 operations a token)",
        "float32, the usual choice",
    ):
        assert part in text
    assert "Problem" not in text
    assert "Note" not in text


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_json_holds_every_figure(divtok: Command) -> None:
    found = data(divtok(*PAIR, "--json", "--tokens", "1000000"))
    assert found["feasible"] is True
    assert (found["problems"], found["notes"], found["advice"]) == ([], [], [])
    # a layer of p: q and o 128 x 128, k and v 64 x 128, their biases, 3 x 128 x 384, two norms
    layer = 2 * 128 * 128 + 2 * 64 * 128 + (128 + 64 + 64) + 3 * 128 * 384 + 2 * 128
    active = 4 * layer + 128
    assert found["p"]["active_parameters"] == active
    assert found["p"]["parameters"] == active + 832 * 128
    assert found["p"]["flops_per_token"] == {
        "linear": 2 * active,
        "attention": 4 * 4 * 768 * 128 // 2,
        "head": 2 * 832 * 128,
        "total": 2 * active + 786_432 + 212_992,
    }
    assert found["memory"]["weights_p"] == 4 * found["p"]["parameters"]
    parts = ("weights_p", "weights_q", "activations", "hidden_states", "workspace")
    assert found["memory"]["total"] == sum(found["memory"][part] for part in parts)
    assert found["memory"]["fits"] is True
    operations = sum(found[model]["flops_per_token"]["total"] for model in "pq")
    assert found["estimated"] == pytest.approx(1 / (operations / 0.6e9 + 1e-4))
    assert found["hours"] == pytest.approx(1e6 / found["estimated"] / 3600)
    assert (found["context_length"], found["length"], found["shared_width"]) == (1024, 768, 784)


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_other_tokens_are_refused_and_named(tmp_path: Path, divtok: Command) -> None:
    other = copy_of(Q, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["!"], vocabulary['"'] = vocabulary['"'], vocabulary["!"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    first = min(vocabulary["!"], vocabulary['"'])
    tokens = ("!", '"') if vocabulary["!"] > first else ('"', "!")
    said = divtok("check", "--pair", P, other, "--device", "cpu", "--measure")
    assert said.code == 1
    assert "Tracing with this pair cannot be done" in said.out
    assert "Vocabulary not the same; outputs" in words(said)
    (line,) = said.err.splitlines()
    assert f"'{P}' and '{other}' do not share their vocabulary: 2 of " in line
    assert line.endswith(
        f"the first is id {first}, {tokens[0]!r} in p and {tokens[1]!r} in q. Use two models with "
        f"one tokenizer, mostly of one series; some are named by: divtok pair {P}"
    )


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_a_response_that_is_too_long(divtok: Command) -> None:
    assert divtok(*PAIR, "--length", "1023").code == 0
    said = divtok(*PAIR, "--length", "1024", "--json")
    assert said.code == 1
    (problem,) = data(said)["problems"]
    assert problem["what"] == (
        f"A response of 1,024 tokens is too long: {P} reads 1,024, prompt included."
    )
    assert said.err == f"divtok: {problem['what']} {problem['next_step']}\n"


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_too_little_memory(divtok: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feasibility, "free_memory", lambda *_, **__: 50_000_000)
    said = divtok(*PAIR)
    assert said.code == 1
    assert "50.0 MB free on cpu: does not fit" in words(said)
    assert "Take smaller batches (trace.max_batch_tokens); or use --dtype bfloat16" in said.err
    monkeypatch.setattr(feasibility, "free_memory", lambda *_, **__: None)
    said = divtok(*PAIR)
    assert said.code == 0
    assert "an unknown amount free on cpu: cannot be judged" in words(said)


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_half_precision_is_advised_against_on_a_cpu(divtok: Command) -> None:
    text = words(divtok(*PAIR, "--dtype", "bfloat16"))
    assert "Many CPUs emulate half precision" in text
    assert "In half precision a token near theta may count as divergent in one run" in text
    assert "895,104 parameters in bfloat16 (stored in float16)" in text


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_what_is_special_about_a_model_is_told(tmp_path: Path, divtok: Command) -> None:
    special = copy_of(P, tmp_path / "special")
    (special / "chat_template.jinja").unlink()
    edit_json(special / "config.json", final_logit_softcapping=30.0, logit_scale=0.5)
    notes = data(divtok("check", "--pair", special, Q, "--device", "cpu", "--json"))["notes"]
    assert [note.removeprefix(f"{special} ").split()[0] for note in notes] == [
        "caps",
        "scales",
        "has",
    ]


@pytest.mark.usefixtures("known_machine", "without_weights")
def test_a_model_without_weights_will_do(tmp_path: Path, divtok: Command) -> None:
    outline = copy_of(P, tmp_path / "outline")
    (outline / "model.safetensors").unlink()
    assert divtok("check", "--pair", outline, Q, "--device", "cpu").code == 0


def test_measuring_loads_the_pair_and_traces(
    divtok: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = feasibility.measure_tracing
    monkeypatch.setattr(
        feasibility, "measure_tracing", lambda *a, **k: quick(*a, **(k | {"seconds": 0.2}))
    )
    said = divtok(*PAIR, "--measure", "--tokens", "3600", "--json")
    assert said.code == 0
    assert "Loading both models" in said.err
    found = data(said)
    speed = found["measured"]["tokens_per_second"]
    assert speed > 0
    assert found["hours"] == pytest.approx(1 / speed)
    assert found["measured"]["batch"]["length"] <= found["length"]
    assert found["estimated"] > 0
    assert found["memory"]["free"] > found["memory"]["total"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--pair", "divtok/tiny-9b", Q], 1, "There is no packaged model 'divtok/tiny-9b'."),
        (["--pair", P, "./nothing"], 1, "There is no model folder './nothing'."),
        (["--pair", P, Q, "--dtype", "float23"], 2, "Unknown dtype 'float23'. Did you mean"),
        (["--pair", P, Q, "--device", "toaster"], 2, "Unknown device 'toaster'."),
        (
            ["--pair", P, Q, "--device", "cpu", "--device-map", "auto"],
            2,
            "Both device 'cpu' and device_map 'auto' are given.",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], code: int, message: str, divtok: Command
) -> None:
    said = divtok("check", *arguments)
    assert message in said.error_line
    assert said.code == code


@pytest.mark.parametrize("arguments", [[], ["--pair", P], ["--pair", P, Q, "--length", "0"]])
def test_wrong_usage_ends_with_2(arguments: list[str], divtok: Command) -> None:
    assert divtok("check", *arguments).code == 2


def test_a_model_without_numbers_is_refused_by_its_tensor(divtok: Command, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    broken = Path(shutil.copytree(resolve_model(Q), tmp_path / "broken"))
    (file,) = broken.glob("*.safetensors")
    weights = load_file(file)
    name = next(name for name in weights if "norm" in name)
    weights[name] = torch.full_like(weights[name], float("nan"))
    save_file(weights, file, metadata={"format": "pt"})
    said = divtok("check", "--pair", P, broken, "--device", "cpu", "--measure", "--json")
    assert said.code == 1
    assert f"The weights of '{broken}' hold NaN or an infinity in {name} in {file}." in said.err
    found = json.loads(said.out)
    assert found["feasible"] is False
    assert found["measured"]["broken"].startswith(f"the logits of {broken} are no distribution")
    assert "can be done" in divtok("check", "--pair", P, broken, "--device", "cpu").out


def test_measuring_tells_models_that_know_nothing(divtok: Command, tmp_path: Path) -> None:
    from any_pair_samples import save_llama

    p = save_llama(tmp_path / "p", width=32, seed=1)
    q = save_llama(tmp_path / "q", width=16, seed=2)
    said = divtok("check", "--pair", p, q, "--device", "cpu", "--measure", "--json")
    assert said.code == 0
    (note,) = [n for n in json.loads(said.out)["notes"] if "close to uniform" in n]
    assert note.startswith(f"'{p}' and '{q}' are close to uniform")


def test_what_files_tell_is_among_the_notes(divtok: Command, tmp_path: Path) -> None:
    copy = str(shutil.copytree(resolve_model(P), tmp_path / "copy"))
    for pair, text in (((Q, P), "is smaller than"), ((P, copy), "have the same weights")):
        said = divtok("check", "--pair", *pair, "--device", "cpu", "--json")
        assert said.code == 0
        assert any(text in note for note in json.loads(said.out)["notes"])
