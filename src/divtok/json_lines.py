"""JSON from files that may be broken anywhere: an error names the file and the line.

Knows nothing of what the objects mean.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from divtok.errors import DataError


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"The file {path} cannot be read ({error.strerror}).", next_step="Check the path."
        ) from error


def json_object(data: bytes, where: str, *, next_step: str) -> dict[str, Any]:
    """The object that a line holds; `where` names the line, `next_step` what to do about it."""
    try:
        row = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8.", next_step="Save it as UTF-8.") from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{where}: not valid JSON ({error.msg}, column {error.colno}).", next_step=next_step
        ) from error
    except (ValueError, RecursionError) as error:
        # Python's own limits: thousands of digits in a number, or of brackets.
        raise DataError(
            f"{where}: JSON that cannot be read ({error}).", next_step=next_step
        ) from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object.", next_step=next_step)
    return row
