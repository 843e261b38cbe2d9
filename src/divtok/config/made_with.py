"""What makes rows: the versions of what runs here, and where and in which dtype models run.

Loads no model. Kept with a run for each of its tables, so that a difference can be traced to it.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from divtok.config.loading import dtype_of
from divtok.config.run import RunConfig
from divtok.generate.engine import EngineSetup
from divtok.models.load import pick_place, resolve_dtype
from divtok.store.manifest import Maker

_LIBRARIES = ("divtok", "numpy", "torch", "transformers", "tokenizers", "vllm", "math-verify")


def divtok_version() -> str:
    try:
        return version("divtok")
    except PackageNotFoundError:  # run from its source, not installed
        return "source"


def libraries() -> Maker:
    """The versions of divtok, of Python and of what figures depend on, as far as installed."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    revision = _git_revision()
    return found if revision is None else {**found, "git": revision}


def readers(config: RunConfig, models: Iterable[str], *, q_device: str | None = None) -> Maker:
    """What reads with these models; the last of them on `q_device`, if that is given."""
    section, models = config.trace, list(models)
    if models[0] in config.servers:
        return {**libraries(), "models": " ".join(models), "device": "served", "dtype": "served"}
    devices = [section.device] * (len(models) - 1) + [q_device or section.device]
    places = [_place(device, section.device_map) for device in devices]
    pairs = zip(models, devices, strict=True)
    dtypes = [dtype_of(config, model, device=device) for model, device in pairs]
    return {**libraries(), "models": " ".join(models), **_where(places, dtypes)}


def generator(setup: EngineSetup, *, weights_here: bool) -> Maker:
    """What an engine samples with."""
    if not weights_here:
        return {**libraries(), "models": setup.model, "device": "served", "dtype": "served"}
    dtype = resolve_dtype(
        setup.model,
        setup.dtype,
        device=setup.device,
        device_map=setup.device_map,
        revision=setup.revision,
    )
    place = _place(setup.device, setup.device_map)
    return {**libraries(), "models": setup.model, **_where([place], [dtype])}


def _where(places: Iterable[str], dtypes: Iterable[str]) -> Maker:
    """Each once where all are alike."""
    found = {"device": places, "dtype": dtypes}
    return {name: ", ".join(dict.fromkeys(values)) for name, values in found.items()}


def _place(device: str | None, device_map: str | None) -> str:
    place, spread = pick_place(device, device_map)
    if place.type != "cuda":
        return place.type
    import torch

    name = f"cuda ({torch.cuda.get_device_name(place)})"
    return name if spread is None else f"{name}, spread {spread}"


@cache
def _git_revision() -> str | None:
    """The commit of a checkout that divtok runs from, `+` where its files were changed since."""
    package = Path(__file__).parents[1]
    if not (package.parents[1] / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(package), *arguments],
            capture_output=True,
            check=True,
            encoding="utf-8",
            timeout=10,
        )
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None  # no git here, or not a repository after all
