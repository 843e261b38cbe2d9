"""The import contract: every room of src/divtok imports only rooms below it, lazily or not.

Run by `make check`. The order is that of docs/architecture.md; a folder or module that is not in it
is an error, so that none is left out.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "divtok"

# From the top down. Rooms on one line may not import each other either.
ORDER = """
    __main__
    cli
    __init__
    serve
    api
    paper
    planning
    stages
    evidence
    config
    report page
    decide
    evaluate
    score
    importers grade
    distilling
    generate
    trace
    packed
    problems families
    protocols endpoints models
    fill
    store
    divergences
    section strict_yaml
    registry progress json_lines memory
    compressed
    records errors screen json_text
"""
LEVEL = {
    room: level for level, line in enumerate(reversed(ORDER.split("\n"))) for room in line.split()
}


def room_of(module: str) -> str:
    """The folder or module below divtok that a dotted name is in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything of divtok's that a file imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "divtok":
            yield from ((node.lineno, f"divtok.{name.name}") for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def problems() -> list[str]:
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).with_suffix("")
        room = place.parts[0]
        if room not in LEVEL:
            found.append(f"{path}: '{room}' has no place in the order of rooms")
            continue
        for line, name in imports(path):
            if name.split(".")[0] != "divtok":
                continue
            other = room_of(name)
            if other not in LEVEL:
                other = "__init__"  # a public name
            if other != room and LEVEL[other] >= LEVEL[room]:
                found.append(f"{path}:{line}: {room} may not import {other} ({name})")
    return found


if __name__ == "__main__":
    wrong = problems()
    print("\n".join(wrong) or "every room imports only rooms below it", file=sys.stderr)
    sys.exit(bool(wrong))
