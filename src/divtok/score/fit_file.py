"""The file of a fit: JSON that says what was fitted, on what, and for whom, with a checksum.

Knows one file. Where it lies in a run, and how a run is named instead of it, is in `stages/fits`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from divtok.errors import DataError, DivtokError
from divtok.json_text import without_nonfinite
from divtok.records import Interval
from divtok.score.fitted import ConfidenceMap, Fitted, Isotonic, Logistic
from divtok.store import atomic

FORMAT = 1
MAX_BYTES = 16_000_000


def with_identity(fitted: Fitted) -> Fitted:
    """The fit under the name that its content gives it."""
    return replace(fitted, identity=_checksum(_tree(fitted)))


def save_fit(fitted: Fitted, path: Path) -> Fitted:
    """Write the file, whole or not at all."""
    tree = _tree(fitted)
    text = json.dumps({**tree, "checksum": _checksum(tree)}, indent=1, allow_nan=False)
    atomic.make_folder(path.parent)
    atomic.write_text_atomically(path, text + "\n")
    return with_identity(fitted)


def load_fit(path: Path) -> Fitted:
    """What `save_fit` wrote; an error where the file is missing, changed or something else."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _damaged(path, f"it is over {MAX_BYTES:,} bytes long")
        tree: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(tree, dict) or "format" not in tree or "what" not in tree:
        raise _damaged(path, "it is no file of a fit")
    told = cast(dict[str, Any], tree)
    if told["format"] != FORMAT:
        raise DataError(
            f"The fit {path} is of format {told['format']}; this version of divtok reads {FORMAT}.",
            next_step="Fit it again, or read it with the version that wrote it: "
            f"{told.get('divtok')}.",
        )
    checksum = told.pop("checksum", None)
    if checksum != _checksum(told):
        raise _damaged(path, "its content does not match its checksum")
    try:
        return replace(_fitted(told), identity=checksum)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    except DivtokError as error:
        raise _damaged(path, error.what) from error


def _tree(fitted: Fitted) -> dict[str, Any]:
    """As it is written, without the checksum."""
    tree = {name: value for name, value in asdict(fitted).items() if name != "identity"}
    plain, nonfinite = without_nonfinite({"format": FORMAT, **tree})
    if nonfinite:
        raise DataError(f"A fit holds numbers that are not finite: {', '.join(nonfinite)}.")
    return json.loads(json.dumps(plain))  # tuples become lists, as in what is read


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


def _checksum(tree: Mapping[str, Any]) -> str:
    text = json.dumps(tree, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _damaged(path: Path, why: str) -> DataError:
    return DataError(
        f"The fit {path} cannot be read: {why}.",
        next_step="Give a file that 'divtok fit' wrote, or fit again.",
    )
