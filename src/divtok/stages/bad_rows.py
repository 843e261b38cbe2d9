"""The rows that an import set aside, with their reasons, in a file beside the tables of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from divtok.errors import StoreError
from divtok.importers import BadRow
from divtok.store import atomic
from divtok.store.run import Run

BAD_ROWS_FILE = "bad_rows.jsonl"
FILE_SECTION = "import "  # of the manifest, and the file's name


def bad_rows(run: Run) -> list[tuple[str, str]]:
    """File and line of JSON for every row that was set aside."""
    path = run.path / BAD_ROWS_FILE
    try:
        text = path.read_text(encoding="utf-8")
        if not text.endswith("\n"):
            raise ValueError("its last line has no end")
        found = [(json.loads(line)["file"], line) for line in text.splitlines()]
        for name, section in file_sections(run).items():
            if section["set_aside"] > sum(file == name for file, _ in found):
                raise ValueError(f"it lacks rows of {name}")
        return found
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged: {error}.",
            next_step="Put a good copy back, or move it away: it holds only reasons to read.",
        ) from error


def write_bad_rows(run: Run, name: str, bad: Sequence[BadRow], read: Mapping[Path, str]) -> None:
    """This file's bad rows in the place of any it left before, beside those of other files.

    The paths of the files that were `read` become what the run calls them: it may go to others.
    """

    def named(text: str) -> str:
        for file in sorted(read, key=lambda file: len(str(file)), reverse=True):
            text = text.replace(str(file), read[file])
        return text

    old = bad_rows(run)
    kept = [line for file, line in old if file != name]
    added = [
        json.dumps({"file": name, "where": named(row.where), "why": named(row.why)}) for row in bad
    ]
    text = "".join(f"{line}\n" for line in [*kept, *added])
    if text:
        atomic.write_text_atomically(run.path / BAD_ROWS_FILE, text)
    elif old:
        (run.path / BAD_ROWS_FILE).unlink()


def file_sections(run: Run) -> dict[str, dict[str, Any]]:
    """name -> section, in the order of the imports."""
    stored = run.manifest() or {}
    found = {n: s for n, s in stored.items() if n.startswith(FILE_SECTION)}
    ordered = sorted(found, key=lambda name: found[name]["after"])
    return {name.removeprefix(FILE_SECTION): found[name] for name in ordered}
