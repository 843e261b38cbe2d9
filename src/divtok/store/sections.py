"""Sections of the manifest: each stage's rows answer for what they were made with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from divtok.store.run import Run, check_or_write_manifest


class Digest(str):
    """What tells something from others. `earlier` gives what older versions wrote for the same."""

    earlier: Callable[[], str]

    def __new__(cls, text: str, *, earlier: Callable[[], str]) -> Digest:
        made = super().__new__(cls, text)
        made.earlier = earlier
        return made

    def matches(self, stored: object) -> bool:
        return stored == self or stored == self.earlier()


def check_section(
    run: Run, rows: Collection[object], section: str, identity: Mapping[str, object]
) -> None:
    """Refuse to mix `rows`, the stored ones of this section, with others made otherwise.

    Where an earlier attempt stored no row, its section is replaced.
    """
    stored = run.manifest()
    if stored is not None and section in stored and not rows:
        run.write_manifest({**stored, section: as_stored(identity, None)})
    else:
        known = (stored or {}).get(section)
        check_or_write_manifest(run, as_stored(identity, known), section=section)


def as_stored(given: Any, stored: Any) -> Any:
    """The same with every digest in the form that is stored, where it matches that."""
    if isinstance(given, Digest):
        return stored if given.matches(stored) else str(given)
    if not isinstance(given, Mapping):
        return given
    known: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
    return {name: as_stored(given[name], known.get(name)) for name in given}
