"""Series of hub models that share a tokenizer, so that a smaller one can read with a larger one.

Facts from the models' cards, in siblings.yaml; whether two models really fit is for their files to
say. Reads no model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from divtok.strict_yaml import read_record, read_tree

_QUANTISED = re.compile(r"[.-](i?q\d\w*|b?f16|f32)$")  # how GGUF files end


@dataclass(frozen=True, slots=True)
class Sibling:
    """One model. `width` is that of its output layer; None where it is not known."""

    model: str
    billions: float  # of parameters
    licence: str
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    source: str
    models: tuple[Sibling, ...]
    note: str | None = None

    def member(self, ref: str) -> Sibling | None:
        """The model of this hub id, or of a folder or file that is called as it is."""
        name = _QUANTISED.sub("", Path(ref).name.casefold().removesuffix(".gguf"))
        for sibling in self.models:
            if ref == sibling.model or name == Path(sibling.model).name.casefold():
                return sibling
        return None

    def smaller(self, ref: str) -> list[Sibling]:
        """The models that are smaller than this one, smallest first."""
        own = self.member(ref)
        found = [s for s in self.models if own is not None and s.billions < own.billions]
        return sorted(found, key=lambda sibling: sibling.billions)


@dataclass(frozen=True, slots=True)
class Siblings:
    checked: str  # the day
    series: tuple[Series, ...]

    def series_of(self, ref: str) -> Series | None:
        return next((series for series in self.series if series.member(ref) is not None), None)


@cache
def siblings() -> Siblings:
    path = Path(__file__).with_name("siblings.yaml")
    return read_record(Siblings, read_tree(path, noun="table"), source=f"the table {path}")
