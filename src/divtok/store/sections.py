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

    Where an earlier attempt stored no row, its section is replaced. Names that join those of a
    mapping, such as one more model, are added: no row depends on them yet.
    """
    stored = run.manifest()
    known = (stored or {}).get(section)
    given = as_stored(identity, known)
    if stored is not None and known is not None:
        if not rows:
            run.write_manifest({**stored, section: given})
            return
        joining = {name: _more(value, known.get(name)) for name, value in given.items()}
        if any(joining.values()):
            more = {name: {**known[name], **new} for name, new in joining.items() if new}
            run.write_manifest({**stored, section: {**known, **more}})
    check_or_write_manifest(run, given, section=section)


def _more(given: Any, known: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not isinstance(known, Mapping):
        return {}
    return {name: value for name, value in given.items() if name not in known}


def as_stored(given: Any, stored: Any) -> Any:
    """The same with every digest in the form that is stored, where it matches that."""
    if isinstance(given, Digest):
        return stored if given.matches(stored) else str(given)
    if not isinstance(given, Mapping):
        return given
    known: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
    return {name: as_stored(given[name], known.get(name)) for name in given}
