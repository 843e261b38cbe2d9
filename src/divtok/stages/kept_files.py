"""Files that a run keeps in a folder of their own: fits and policies, found by file or by run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from divtok.errors import DataError, UsageError
from divtok.stages.stored import open_run
from divtok.store.run import Run


def kept_file(
    given: str, folder: Callable[[Run], Path], *, nothing: str, several: str, make: str
) -> Path:
    """The file itself, or the one that a run holds, by its folder or name.

    `nothing` and `several` say what is wrong with a run that has none, or more than one, and `make`
    is the command that makes one.
    """
    path = Path(given)
    if path.is_file() or path.suffix == ".json":
        return path
    found = kept_files(folder(open_run(given)))
    if len(found) == 1:
        return found[0]
    if not found:
        raise DataError(nothing, next_step=make)
    raise UsageError(
        several.format(len(found)),
        next_step=f"Name the file of one: {', '.join(map(str, found))}.",
    )


def kept_files(folder: Path) -> list[Path]:
    """By name; none where the folder is not there yet."""
    return sorted(folder.glob("*.json"))
