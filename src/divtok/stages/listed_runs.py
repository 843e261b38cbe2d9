"""What runs there are in a folder, and how far each has come; a broken one is named, not fatal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from divtok.errors import DivtokError, StoreError
from divtok.store.responses import rows_of
from divtok.store.run import Run, is_run

Listed = dict[str, Any]

RUNS = Path("runs")

_MOST_NAMES = 3
_DONE = ("graded", "traced", "scored")


def listed_runs(root: Path = RUNS) -> list[Listed]:
    """Every folder in `root`, by name: what is in it, or in `broken` why that cannot be said.

    `graded`, `traced` and `scored` count responses; `written` is when the run last changed.
    """
    if not root.is_dir():
        return []
    folders = (path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [_listed(path) for path in sorted(folders)]


def _listed(path: Path) -> Listed:
    names = {"name": path.name, "path": str(path)}
    try:
        found = _contents(path)
    except (DivtokError, OSError) as error:
        why = error.what if isinstance(error, DivtokError) else (error.strerror or str(error))
        empty = dict.fromkeys(("responses", "generators", "benchmarks", *_DONE, "written"))
        return {**names, "summary": f"broken: {why}", **empty, "broken": why}
    return {**names, "summary": _summary(found), **found, "broken": None}


def _contents(path: Path) -> Listed:
    if not is_run(path):
        raise StoreError("It is no run folder.")
    run = Run(path)
    run.config_text()  # an error where it was damaged
    responses = Counter(rows_of(run.trajectories, ("generator", "benchmark")))
    values = rows_of(run.confidences, ("key", "value"))
    return {
        "responses": responses.total(),
        "generators": list(dict.fromkeys(generator for generator, _ in responses)),
        "benchmarks": list(dict.fromkeys(benchmark for _, benchmark in responses)),
        "graded": _distinct(key for (key,) in rows_of(run.grades, ("key",))),
        "traced": _distinct(key for (key,) in rows_of(run.traces, ("key",))),
        "scored": _distinct(key for key, value in values if value is not None),
        "written": _written(run),
    }


def _distinct(keys: Iterable[str]) -> int:
    """A response may have several rows: one for each pair or estimator."""
    return len(set(keys))


def _written(run: Run) -> str:
    """When a table, the config or the manifest last changed, in local time."""
    folders = [table.folder for table in run.tables if table.folder.is_dir()]
    times = [path.stat().st_mtime for path in (run.path, *folders, *run.path.glob("*.*"))]
    return datetime.fromtimestamp(max(times)).astimezone().isoformat(timespec="minutes")


def _summary(found: Listed) -> str:
    total = found["responses"]
    if not total:
        return f"no responses yet; {_when(found)}"
    done = [f"{count:,} {name}" for name in _DONE if 0 < (count := found[name]) < total]
    done = [", ".join(name for name in _DONE if found[name] == total), *done]
    names = f"{_some(found['generators'])} on {_some(found['benchmarks'])}"
    return "; ".join(filter(None, [f"{total:,} responses", *done, names, _when(found)]))


def _when(found: Listed) -> str:
    return found["written"][:16].replace("T", " ")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
