"""The models that ship inside the package, named "divtok/NAME" like any hub model."""

from __future__ import annotations

from pathlib import Path

from divtok.errors import ModelError, did_you_mean

PACKAGED_OWNER = "divtok/"
_FOLDER = Path(__file__).parents[1] / "tiny"


def resolve_model(ref: str) -> str:
    """The folder of a packaged model; any other ref as it is."""
    if not ref.startswith(PACKAGED_OWNER) or Path(ref).exists():
        return ref
    configs = _FOLDER.glob("*/config.json")
    packaged = {PACKAGED_OWNER + config.parent.name: str(config.parent) for config in configs}
    if ref not in packaged:
        raise ModelError(
            f"There is no packaged model '{ref}'.", next_step=did_you_mean(ref, packaged)
        )
    return packaged[ref]
