"""Objects of a JSON file of any shape: one a line, or one text that is a list, or holds one.

Knows the shapes, and of what the objects mean only whether one is a row by itself.
"""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path
from typing import Any

from divtok.compressed import open_plain
from divtok.errors import DataError
from divtok.importers.columns import USUAL_NAMES
from divtok.importers.importer import NEXT_STEP, Line, json_lines, line_at, object_in
from divtok.json_lines import LARGEST_FILE, LARGEST_LINE, UnreadableError, read_bytes, unreadable

_BEGINS_A_LIST = re.compile(rb"\[\s*[\[{\]]")  # unlike a line such as "[INFO] started"
_AS_LINES = "Write it as JSONL, one object a line: jq -c '.[]' FILE"


def json_rows(path: Path) -> list[Line]:
    """The objects of a file, at least one.

    An object over several lines, or alone in its file, stands for the one list of rows in it; where
    it has none, or is a row itself, it stands for itself.
    """
    start = _start(path)
    if _BEGINS_A_LIST.match(start):
        return _items(path, _list(path))
    if start[:1] != b"{" or holds_lines(path):
        return json_lines(path)
    try:
        found = object_in(_text(path), str(path), largest=LARGEST_FILE)
    except UnreadableError:
        return json_lines(path)  # one object a line, the first of them broken
    lists = [value for value in found.values() if isinstance(value, list) and is_row(*value[:1])]
    if len(lists) == 1 and not is_row(found):
        return _items(path, lists[0])
    return [Line(f"{path}, line 1", found)]


def holds_lines(path: Path) -> bool:
    """Whether the first line is JSON and not all there is, so that others have theirs."""
    first, _, further = _start(path).partition(b"\n")
    return bool(further.strip()) and _is_json(first)


def is_row(found: Any = None) -> bool:
    """Whether an object has a question and a response under usual names, or messages."""
    if not isinstance(found, dict):
        return False
    has = {
        field: any(name in found for name in USUAL_NAMES[field])
        for field in ("question", "response", "messages")
    }
    return has["messages"] or (has["question"] and has["response"])


def _start(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            return file.read(LARGEST_LINE).removeprefix(codecs.BOM_UTF8).lstrip()
    except OSError as error:
        raise unreadable(path, error) from error


def _list(path: Path) -> list[Any]:
    data = b'{"":' + _text(path) + b"}"
    try:
        return object_in(data, str(path), largest=LARGEST_FILE + 5)[""]
    except UnreadableError as error:
        raise UnreadableError(
            error.what, next_step="It may be cut off: export it again, best as JSONL."
        ) from error


def _text(path: Path) -> bytes:
    return read_bytes(path, next_step=_AS_LINES).removeprefix(codecs.BOM_UTF8)


def _items(path: Path, items: list[Any]) -> list[Line]:
    if not items:
        raise DataError(f"The file {path} has no rows.", next_step="Check the path.")
    return [line_at(f"{path}, item {n}", _object, item) for n, item in enumerate(items, start=1)]


def _object(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise DataError(f"{where}: not a JSON object.", next_step=NEXT_STEP)
    return item


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
