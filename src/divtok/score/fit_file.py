"""The file of a fit: JSON that says what was fitted, on what, and for whom, with a checksum.

Knows one file. Where it lies in a run, and how a run is named instead of it, is in `stages/fits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from divtok.errors import DivtokError
from divtok.records import Interval
from divtok.score.fitted import ConfidenceMap, Fitted, Isotonic, Logistic
from divtok.store.checked_json import CheckedJson

FILE = CheckedJson(
    "fit", 1, marked_by="what", next_step="Give a file that 'divtok fit' wrote, or fit again."
)


def with_identity(fitted: Fitted) -> Fitted:
    """The fit under the name that its content gives it."""
    return replace(fitted, identity=FILE.identity(_content(fitted)))


def save_fit(fitted: Fitted, path: Path) -> Fitted:
    """Write the file, whole or not at all."""
    return replace(fitted, identity=FILE.write(_content(fitted), path))


def load_fit(path: Path) -> Fitted:
    """What `save_fit` wrote; an error where the file is missing, changed or something else."""
    told, identity = FILE.read(path)
    try:
        return replace(_fitted(told), identity=identity)
    except (KeyError, TypeError, ValueError) as error:
        raise FILE.damaged(path, f"{type(error).__name__}: {error}") from error
    except DivtokError as error:
        raise FILE.damaged(path, error.what) from error


def _content(fitted: Fitted) -> dict[str, Any]:
    return {name: value for name, value in asdict(fitted).items() if name != "identity"}


def _fitted(told: Mapping[str, Any]) -> Fitted:
    interval = told["interval"]
    return Fitted(
        what=told["what"],
        estimator=str(told["estimator"]),
        params=dict(told["params"]),
        tokens=told["tokens"],
        pairs=tuple((str(p), str(q)) for p, q in told["pairs"]),
        generators=tuple(map(str, told["generators"])),
        target=told["target"],
        prior=float(told["prior"]),
        prior_from=told["prior_from"],
        responses=int(told["responses"]),
        problems=int(told["problems"]),
        map=None if told["map"] is None else _map(told["map"]),
        interval=None if interval is None else Interval(**interval),
        figures=dict(told["figures"]),
        notes=tuple(map(str, told["notes"])),
        made_of=dict(told["made_of"]),
        divtok=str(told["divtok"]),
    )


def _map(told: Mapping[str, Any]) -> ConfidenceMap:
    if told["kind"] == "isotonic":
        return Isotonic(tuple((float(value), float(share)) for value, share in told["knots"]))
    if told["kind"] == "logistic":
        return Logistic(float(told["slope"]), float(told["intercept"]), float(told["edge"]))
    raise ValueError(f"there is no map of the kind {told['kind']!r}")
