"""Small JSON files that say whether they are as they were written: a format, content, a checksum.

What was fitted, and policies, are kept so. Knows no content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from divtok.errors import DataError
from divtok.json_text import without_nonfinite
from divtok.store import atomic

MAX_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class CheckedJson:
    """One kind of file: its name in messages, the format, a field that tells it from other JSON,
    and what to do about a file that cannot be read.
    """

    kind: str
    format: int
    marked_by: str
    next_step: str

    def tree(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content as it is written, without the checksum."""
        plain, nonfinite = without_nonfinite({"format": self.format, **content})
        if nonfinite:
            raise DataError(
                f"A {self.kind} holds numbers that are not finite: {', '.join(nonfinite)}."
            )
        return json.loads(json.dumps(plain))  # tuples become lists, as in what is read

    def identity(self, content: Mapping[str, Any]) -> str:
        """The name that its content gives it."""
        return _checksum(self.tree(content))

    def write(self, content: Mapping[str, Any], path: Path) -> str:
        """Write the file, whole or not at all; gives its identity."""
        tree = self.tree(content)
        checksum = _checksum(tree)
        text = json.dumps({**tree, "checksum": checksum}, indent=1, allow_nan=False)
        atomic.make_folder(path.parent)
        atomic.write_text_atomically(path, text + "\n")
        return checksum

    def read(self, path: Path) -> tuple[dict[str, Any], str]:
        """The content and its identity; an error where the file is missing, changed or another."""
        try:
            if path.stat().st_size > MAX_BYTES:
                raise self.damaged(path, f"it is over {MAX_BYTES:,} bytes long")
            tree: Any = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
        except OSError as error:
            raise self.damaged(path, error.strerror or str(error)) from error
        except (ValueError, RecursionError) as error:
            raise self.damaged(path, str(error)) from error
        if not isinstance(tree, dict) or "format" not in tree or self.marked_by not in tree:
            raise self.damaged(path, f"it is no file of a {self.kind}")
        told = cast(dict[str, Any], tree)
        if told["format"] != self.format:
            raise DataError(
                f"The {self.kind} {path} is of format {told['format']}; this version of divtok "
                f"reads {self.format}.",
                next_step="Make it again, or read it with the version that wrote it: "
                f"{told.get('divtok')}.",
            )
        checksum = told.pop("checksum", None)
        if checksum != _checksum(told):
            raise self.damaged(path, "its content does not match its checksum")
        return told, checksum

    def damaged(self, path: Path, why: str) -> DataError:
        return DataError(f"The {self.kind} {path} cannot be read: {why}.", next_step=self.next_step)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")  # Python also reads NaN and Infinity


def _checksum(tree: Mapping[str, Any]) -> str:
    text = json.dumps(tree, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
