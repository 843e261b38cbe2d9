"""Which files of a model are read, and what a model's files may not ask for.

Weights are safetensors files in the model's own folder, and nothing that comes with a model names
code to run unless the user does. Reads small files only; loads nothing.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast

from divtok.errors import ModelError

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_MAX_INDEX_BYTES = 64 << 20
# A layout for many processes, which transformers would prefer to the files above.
_DISTRIBUTED = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
# What a config may choose: torch's own functions. Other names stand for code of other packages,
# which transformers may fetch (`OWNER/KERNEL`) and run.
_PLAIN_CHOICES = {
    "attn_implementation": ("eager", "sdpa", "flex_attention"),
    "experts_implementation": ("eager", "batched_mm", "grouped_mm"),
}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch(place: str, name: str, revision: str | None) -> Path | None:
    """A model's file from its folder or the hub; None where it has none of this name."""
    if Path(place).is_dir():
        path = Path(place) / name
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    # A missing file is no error, and neither is one that an offline cache has not.
    found = cached_file(place, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(found)


def commit_of(place: str, revision: str | None) -> str | None:
    """The commit that a revision of a hub model stands for now; None where that is not known."""
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    try:
        config = fetch(place, "config.json", revision)
    except (OSError, ImportError):
        return None
    return None if config is None else config.parent.name  # the hub's cache has a folder for each


def weight_map(ref: str, place: str, revision: str | None) -> Mapping[str, str] | None:
    """The file of each weight, as the index says; None where one file has them all.

    Refuses what transformers would read beside safetensors: pickled weights that an index names,
    files elsewhere, adapters with a base model of their own choice.
    """
    if fetch(place, _ADAPTER, revision) is not None:
        raise ModelError(
            f"The model '{ref}' is an adapter ({_ADAPTER}), whose base model would be taken from "
            "elsewhere.",
            next_step="Merge it into its base model (peft: merge_and_unload) and save that.",
        )
    if Path(place).is_dir() and any(_DISTRIBUTED.fullmatch(f.name) for f in Path(place).iterdir()):
        raise ModelError(
            f"The model '{ref}' is a distributed checkpoint (shard-*-model-*.safetensors).",
            next_step=f"Save it as one model, with {WHOLE} or {INDEX}.",
        )
    if fetch(place, WHOLE, revision) is not None:
        return None
    index = fetch(place, INDEX, revision)
    if index is None:
        raise ModelError(
            f"The model '{ref}' has no {WHOLE} and no {INDEX}; weights are read from safetensors "
            "only.",
            next_step="Convert pytorch_model.bin files to safetensors, or use another checkpoint.",
        )
    return _read_index(ref, place, index)


def _read_index(ref: str, place: str, index: Path) -> Mapping[str, str]:
    shards: object = None
    if index.stat().st_size <= _MAX_INDEX_BYTES:
        try:
            read: Any = json.loads(index.read_bytes())
            shards = read["weight_map"]
        except (ValueError, TypeError, LookupError, RecursionError, OSError):
            pass  # told below
    if not isinstance(shards, dict) or not shards:
        raise ModelError(
            f"The {INDEX} of '{ref}' cannot be read.", next_step="Fetch the model again."
        )
    named = cast("dict[str, object]", shards)
    for file in {str(name) for name in named.values()}:
        plain = file == PurePosixPath(file).name == PureWindowsPath(file).name
        if not plain or not file.endswith(".safetensors"):
            raise ModelError(
                f"The {INDEX} of '{ref}' names the file '{file}'; weights are read from "
                "safetensors files in the model's own folder only.",
                next_step="Convert the model to safetensors (save_pretrained), or use another.",
            )
        if Path(place).is_dir() and not (Path(place) / file).is_file():
            raise ModelError(
                f"The model '{ref}' lacks the file {file} that its {INDEX} names.",
                next_step="Fetch it again.",
            )
    return {weight: str(file) for weight, file in named.items()}


def check_settings(
    ref: str, place: str, settings: Mapping[str, Any], revision: str | None, trusted: bool
) -> None:
    """Refuse a model's or tokenizer's settings that bring code, but for code that is trusted.

    Trusted code lies in the model's own folder or repository, and there at a fixed commit.
    """
    for key, value in _entries(settings):
        choice = key.removeprefix("_").removesuffix("_internal")
        if choice in _PLAIN_CHOICES:
            _check_choice(ref, choice, value)
        if key == "transformers_weights" and value is not None:
            raise ModelError(
                f"The config.json of '{ref}' names its own file of weights ({value}).",
                next_step=f"Take out the line transformers_weights; {WHOLE} or {INDEX} is read.",
            )
        if key == "auto_map" and value:
            _check_code(ref, place, value, revision, trusted)


def _entries(settings: object) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth: parts of a model have settings of their own."""
    waiting: list[object] = [settings]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            entries = cast("Mapping[str, object]", value)
            yield from entries.items()
            waiting += entries.values()
        elif isinstance(value, list):
            waiting += cast("list[object]", value)


def _check_choice(ref: str, choice: str, value: object) -> None:
    """Refuse anything but torch's own functions and flash attention that is installed here."""
    names = [name for _, name in _entries(value)] if isinstance(value, Mapping) else [value]
    for name in names:
        if name is None or isinstance(name, Mapping) or name in _PLAIN_CHOICES[choice]:
            continue  # of a mapping the entries come by themselves
        if not _installed(name):
            raise ModelError(
                f"The config.json of '{ref}' asks for code from elsewhere ({choice}: {name}), "
                "which divtok does not run.",
                next_step=f"Take out the line {choice}, in a copy of the model's folder.",
            )


def _installed(name: object) -> bool:
    """Whether a name stands for flash attention that is here; if not, it would be fetched."""
    module = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
    package = module.get(str(name))
    return package is not None and importlib.util.find_spec(package) is not None


def _check_code(
    ref: str, place: str, auto_map: object, revision: str | None, trusted: bool
) -> None:
    if not trusted:
        raise ModelError(
            f"The model '{ref}' brings its own code (auto_map), which divtok does not run.",
            next_step="Read that code, then allow it by name: trust_remote_code=True.",
        )
    # `OWNER/NAME--file.Class` is code of another repository, of which no commit can be given.
    for _, value in _entries({"auto_map": auto_map}):
        named = cast("list[object]", value) if isinstance(value, list) else [value]
        for code in named:
            if isinstance(code, str) and "--" in code and code.split("--")[0] != place:
                raise ModelError(
                    f"The model '{ref}' takes its code from elsewhere ({code}), where no commit "
                    "is pinned.",
                    next_step="Copy that code into the model's own folder, and read it.",
                )
    if not Path(place).is_dir() and not _COMMIT.fullmatch(revision or ""):
        raise ModelError(
            f"The model '{ref}' brings its own code, and no commit is pinned.",
            next_step="Give revision= the full commit hash of the code you have read.",
        )
