"""Sections of the manifest: each stage's rows answer for what they were made with."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from divtok.store.run import Run, check_or_write_manifest


def check_section(
    run: Run, rows: Collection[object], section: str, identity: Mapping[str, object]
) -> None:
    """Refuse to mix `rows`, the stored ones of this section, with others made otherwise.

    Where an earlier attempt stored no row, its section is replaced.
    """
    stored = run.manifest()
    if stored is not None and section in stored and not rows:
        run.write_manifest({**stored, section: identity})
    else:
        check_or_write_manifest(run, identity, section=section)
