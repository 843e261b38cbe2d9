"""Standard input and pipes as files: an import reads a file more than once, a pipe only once."""

from __future__ import annotations

import contextlib
import hashlib
import stat
import sys
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import IO

from divtok.errors import DataError, DivtokError
from divtok.progress import say

STANDARD_INPUT = Path("-")
_DIGITS = 8  # of the digest in a name: the same text piped in again is the same file
_AT_ONCE = 2**20


class Piped:
    """Files in place of what can be read only once, in a folder that goes at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[Path, Path] = {}

    def file(self, path: Path) -> Path:
        """The path itself, or where it leads to a pipe, a file of what comes from there."""
        if path != STANDARD_INPUT and not _is_pipe(path):
            return path
        if path not in self._kept:
            self._kept[path] = self._keep(path)
        return self._kept[path]

    def plain(self, text: str) -> str:
        """A message as it is without the folder, of which nobody knows."""
        return text.replace(f"{self._folder}/", "").replace(f"{self._folder}\\", "")

    def _keep(self, path: Path) -> Path:
        name = "stdin" if path == STANDARD_INPUT else "pipe" if path.name.isdigit() else path.name
        part = self._folder / "part"
        digest = hashlib.sha256()
        with _opened(path) as source, part.open("wb") as target:
            while data := source.read(_AT_ONCE):
                digest.update(data)
                target.write(data)
        if not part.stat().st_size:
            raise DataError(
                f"Nothing came from {'standard input' if path == STANDARD_INPUT else path}.",
                next_step="Pipe the log into the command, or name its file.",
            )
        # The end is no part of what the benchmark is called after the file.
        return part.rename(self._folder / f"{name}.{digest.hexdigest()[:_DIGITS]}")


@contextlib.contextmanager
def piped(paths: Iterable[Path]) -> Generator[Piped]:
    """What gives the files of a command; errors in the block name them as the user did."""
    if not any(path == STANDARD_INPUT or _is_pipe(path) for path in paths):
        yield Piped(Path())
        return
    with tempfile.TemporaryDirectory(prefix="divtok-") as folder:
        found = Piped(Path(folder))
        try:
            yield found
        except DivtokError as error:
            error.what = found.plain(error.what)
            error.args = (found.plain(str(error)),)
            raise


def _is_pipe(path: Path) -> bool:
    """A pipe with a name, or one of a shell's `<(...)`."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def _opened(path: Path) -> IO[bytes]:
    if path != STANDARD_INPUT:
        return path.open("rb")
    stream = _standard_input()
    if stream is None:
        raise DataError("There is no standard input.", next_step="Name a file.")
    if stream.isatty():
        say("import: reads standard input; Ctrl-D ends it")
    return stream


def _standard_input() -> IO[bytes] | None:
    """None where the program was started without one."""
    return getattr(sys.stdin, "buffer", None)
