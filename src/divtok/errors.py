"""Every error a user can meet: what happened, where, and what to do next.

An error carries the exit code of the command that ends on it. Errors with a stored row (a trace
that is too long, an answer that cannot be graded) are not exceptions: they are statuses in records.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_PARTIAL = 3  # finished, but some rows failed
EXIT_NOTHING = 4  # nothing could be scored


class DivtokError(Exception):
    """Base of all divtok errors: one line that says what happened, and the user's next step.

    Example:
        >>> import divtok
        >>> try:
        ...     divtok.load_pair("tony")
        ... except divtok.DivtokError as error:
        ...     print(error.what)
        'tony' alone is not a pair.
    """

    exit_code = EXIT_ERROR

    def __init__(self, what: str, *, next_step: str | None = None) -> None:
        self.what = what
        self.next_step = next_step
        super().__init__(what if next_step is None else f"{what} {next_step}")


class UsageError(DivtokError):
    """A wrong argument, option or parameter value."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """The config file or an override is wrong; all its problems are reported at once."""


class DataError(DivtokError):
    """An input file is missing, unreadable or inconsistent; names the file and line."""


class ModelError(DivtokError):
    """A model or tokenizer cannot be loaded, or two of them do not fit together."""


class ServerError(DivtokError):
    """A server cannot be reached, refuses what it is asked, or gives answers not to be trusted."""


class ServerUnreachableError(ServerError):
    """Nothing answers at the address of a server."""


class ResourceError(DivtokError):
    """The machine has too little memory for what was asked."""


class StoreError(DivtokError):
    """A run folder is corrupt, locked, or was made with another configuration."""


class MissingExtraError(DivtokError):
    """An optional dependency is not installed."""

    def __init__(self, module: str, extra: str, *, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{module}', which is not installed.",
            next_step=f"Run: pip install 'divtok[{extra}]'",
        )


class NothingScoredError(DivtokError):
    """The command ran, but not one row could be scored."""

    exit_code = EXIT_NOTHING


def command(*words: object) -> str:
    """A command as it can be typed, each of its words quoted where a shell needs it."""
    return f"divtok {shlex.join(str(word) for word in words)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence for an unknown name: the close matches, or else everything that is known."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(f"'{match}'" for match in close) + "?"
    return "Known: " + ", ".join(known) + "."
