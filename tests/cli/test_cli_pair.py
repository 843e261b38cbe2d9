"""The verb pair: what it says of two models, of one, and of those that cannot be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from any_pair_samples import llamas, with_swapped_tokens
from console import Command, Outcome

from divtok.errors import ModelError
from divtok.models import card
from divtok.models.load import _locate  # pyright: ignore[reportPrivateUsage]
from divtok.planning import pairing

__all__ = ["llamas"]

P, Q = "divtok/tiny-0.9m", "divtok/tiny-0.3m"
HUB_P, HUB_Q = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hub ids cannot be fetched, and nothing waits for a network."""
    read = pairing.read_outline

    def local_only(ref: str, **options: Any) -> Any:
        if not Path(_locate(ref)).exists():
            raise ModelError(f"The model '{ref}' cannot be read.", next_step="Check the network.")
        return read(ref, **options)

    monkeypatch.setattr(pairing, "read_outline", local_only)


def words(said: Outcome) -> str:
    return " ".join(said.out.replace("│", " ").split())


def data(said: Outcome) -> dict[str, Any]:
    return json.loads(said.out)


def test_two_models_that_fit(divtok: Command) -> None:
    said = divtok("pair", P, Q)
    assert (said.code, said.err) == (0, "")
    for part in (
        "These models can be paired",
        "Qwen2ForCausalLM, 895,104 parameters, reads 1,024 tokens, licence not stated",
        "the same token for every id that both know",
        "832 and 784, compared over 784",
        "Context 1,024 tokens",
        "Theta 0.05 bits (family tiny)",
    ):
        assert part in words(said)


def test_json_holds_every_fact(divtok: Command) -> None:
    said = divtok("pair", P, Q, "--json")
    found = data(said)
    assert (found["pairable"], found["same_tokens"], found["different_tokens"]) == (
        True,
        True,
        None,
    )
    assert (found["shared_width"], found["context_length"]) == (784, 1024)
    assert (found["thetas"], found["problems"]) == ({"tiny": 0.05}, [])
    assert found["p"]["shape"]["parameters"] == 895_104
    assert found["p"]["chat_template"] is True


def test_other_tokens_are_named(divtok: Command, llamas: tuple[Path, Path], tmp_path: Path) -> None:
    p, q = llamas
    other, first, (in_p, in_q) = with_swapped_tokens(q, tmp_path / "other")
    said = divtok("pair", p, other, "--json")
    assert said.code == 1
    found = data(said)
    assert found["pairable"] is False
    assert found["different_tokens"]["id"] == first
    assert (found["different_tokens"]["in_p"], found["different_tokens"]["in_q"]) == (in_p, in_q)
    assert f"the first is id {first}" in said.err
    assert "These models cannot be paired" in divtok("pair", p, other).out


def test_what_to_mind(divtok: Command, llamas: tuple[Path, Path], tmp_path: Path) -> None:
    p, q = llamas
    other = Path(shutil.copytree(q, tmp_path / "other"))
    (other / "chat_template.jinja").write_text("{{ messages[0].content }}")
    settings = json.loads((other / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "!"}))
    notes = data(divtok("pair", other, p, "--json"))["notes"]
    assert any("p should be the larger one" in note for note in notes)
    assert any("chat templates differ" in note for note in notes)
    assert any(note.startswith("eos_token is '!' in p and ") for note in notes)


def test_the_same_weights_are_no_pair(
    divtok: Command, llamas: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = shutil.copytree(llamas[0], tmp_path / "copy")
    said = divtok("pair", llamas[0], copy)
    assert said.code == 1
    assert "have the same weights" in said.err
    # Whatever else lies in the folder: it is the weights that read.
    (Path(copy) / "generation_config.json").write_text("{}")
    assert "have the same weights" in divtok("pair", llamas[0], copy).err


def test_licences_are_read_from_cards(
    divtok: Command, llamas: tuple[Path, Path], tmp_path: Path
) -> None:
    cards = {
        "---\nlicense: apache-2.0\nlanguage: [en]\n---\n# A model\n": "apache-2.0",
        "---\nlicense: other\nlicense_name: house-licence\n---\n": "house-licence",
        "---\nlicense: other\n---\n": "other",
        "---\nlicense: [mit, apache-2.0]\n---\n": "mit, apache-2.0",
        "---\nlicense: {\n---\n": None,
        "---\n- license\n---\n": None,
        "# No front matter\nlicense: mit\n": None,
    }
    model = Path(shutil.copytree(llamas[1], tmp_path / "model"))
    for text, licence in cards.items():
        (model / "README.md").write_text(text)
        assert card.card_licence(str(model)) == licence
    (model / "README.md").write_text("---\nlicense: mit\n---\n")
    assert "licence mit" in words(divtok("pair", llamas[0], model))


@pytest.mark.usefixtures("offline")
def test_auxiliaries_are_suggested(divtok: Command) -> None:
    said = divtok("pair", P)
    assert said.code == 0
    assert "divtok/tiny-0.3m: theta 0.05 bits is known" in words(said)
    qwen = data(divtok("pair", "Qwen/Qwen2.5-7B-Instruct", "--json"))["suggestions"]
    assert (qwen[0]["model"], qwen[0]["theta"]) == ("Qwen/Qwen2.5-1.5B-Instruct", 0.5)
    assert all(each["listed"]["billions"] < 7.61 for each in qwen)


@pytest.mark.usefixtures("offline")
def test_the_table_stands_in_for_what_cannot_be_fetched(divtok: Command) -> None:
    said = divtok("pair", HUB_P)
    assert said.code == 1
    assert f"{HUB_P} (from the table): 8.03 billion parameters" in words(said)
    assert f"{HUB_Q}: 1.23 billion parameters" in words(said)
    assert said.err == f"divtok: The model '{HUB_P}' cannot be read. Check the network.\n"
    both = divtok("pair", HUB_P, HUB_Q)
    assert both.code == 1
    assert "These models could not be compared" in both.out
    assert data(divtok("pair", HUB_P, HUB_Q, "--json"))["pairable"] is None


def test_a_folder_that_is_not_there(divtok: Command) -> None:
    said = divtok("pair", "/no/such/model", Q)
    assert said.code == 1
    assert "There is no model folder '/no/such/model'" in said.err
