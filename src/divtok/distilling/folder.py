"""The folder of a distilled auxiliary: whole or not there, and a model folder like any other.

Writes weights, config, what the source's tokenizer consists of, a card and the facts as JSON.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import stat
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from divtok.distilling.card import card_text
from divtok.distilling.facts import Distilled
from divtok.errors import StoreError, UsageError
from divtok.json_text import json_text
from divtok.models.errors import quiet
from divtok.models.files import fetch
from divtok.models.load import LoadedModel, model_place
from divtok.store.atomic import make_folder, sync, sync_folder

if TYPE_CHECKING:
    import torch

FACTS = "distilled.json"
# What goes with a model beside weights and config, as far as it has it.
_COMPANIONS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model"),
    *("chat_template.jinja", "chat_template.json", "generation_config.json"),
    *("preprocessor_config.json", "processor_config.json"),
)


def check_free(folder: Path, *, replace: bool) -> None:
    """Refuse a folder that is there, unless it is a distilled auxiliary to be replaced."""
    if not folder.exists():
        return
    if not replace:
        raise UsageError(
            f"There is a folder '{folder}' already.",
            next_step="Name another with --out, or give --replace.",
        )
    if not (folder / FACTS).is_file():
        raise UsageError(
            f"'{folder}' was not made by 'divtok distil' (it has no {FACTS}), so it is not "
            "replaced.",
            next_step="Name another folder with --out.",
        )


@contextlib.contextmanager
def drafted(folder: Path) -> Generator[Path]:
    """A folder to fill, which takes its name once the block ended without an exception."""
    make_folder(folder.absolute().parent)
    draft = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}.part")
    try:
        with _storing(folder):
            draft.mkdir()
        yield draft
        with _storing(folder):
            _keep(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _keep(draft: Path, folder: Path) -> None:
    # A rename that outlives a power cut must not name empty files.
    for written in draft.iterdir():
        written.chmod(stat.S_IMODE((draft / FACTS).stat().st_mode))  # weights come as private
        with written.open("rb+") as file:
            sync(file.fileno())
    sync_folder(draft)
    before = draft.with_suffix(".old")
    if folder.exists():
        folder.rename(before)
    try:
        draft.rename(folder)
    except OSError:
        if before.exists():
            before.rename(folder)
        raise
    sync_folder(folder.absolute().parent)
    shutil.rmtree(before, ignore_errors=True)


def write_model(loaded: LoadedModel, folder: Path, stored: torch.dtype) -> None:
    """Weights in this format, and the config; a head that is the embedding stays so."""
    from transformers import GenerationConfig

    model, made = loaded.model, dict[tuple[int, Any], Any]()

    def narrow(weight: torch.Tensor) -> torch.Tensor:
        # Weights that are one in memory have to stay one.
        key = weight.data_ptr(), weight.shape
        if key not in made:
            made[key] = weight.detach().to("cpu", stored if weight.is_floating_point() else None)
        return made[key]

    preset = model.generation_config
    try:
        # The source's own is copied as it is, and transformers would refuse to write some.
        model.generation_config = GenerationConfig()
        with quiet(), _storing(folder):
            weights = {name: narrow(weight) for name, weight in model.state_dict().items()}
            model.save_pretrained(folder, state_dict=weights)
    finally:
        model.generation_config = preset
    with _storing(folder):
        (folder / "generation_config.json").unlink(missing_ok=True)
        _state_dtype(folder / "config.json", str(stored).removeprefix("torch."))


def _state_dtype(file: Path, name: str) -> None:
    """What the config says of the weights' format, in all its parts."""
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    parts = [config, *(cast("dict[str, Any]", v) for v in config.values() if isinstance(v, dict))]
    for part in parts:
        part.pop("torch_dtype", None)
        if part is config or "dtype" in part:
            part["dtype"] = name
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def copy_companions(ref: str, revision: str | None, folder: Path) -> None:
    """The source's tokenizer files, chat template and generation settings, unchanged."""
    place = model_place(ref)
    for name in _COMPANIONS:
        found = fetch(place, name, revision)
        if found is not None:
            with _storing(folder):
                shutil.copyfile(found, folder / name)


def write_card(facts: Distilled, folder: Path, *, licence: str | None) -> None:
    """README.md for people, and the same for programs."""
    with _storing(folder):
        text = card_text(facts, licence=licence)
        (folder / "README.md").write_text(text, encoding="utf-8")
        data = json_text(facts.as_data(), indent=2) + "\n"
        (folder / FACTS).write_text(data, encoding="utf-8")


@contextlib.contextmanager
def _storing(folder: Path) -> Generator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"The distilled model cannot be stored in {folder.absolute().parent} ({error}).",
            next_step="Make room there, or name another folder with --out.",
        ) from error
