"""Notes of a run: what happened while its rows were made, and may have changed how they were."""

from __future__ import annotations

from divtok.records import Note
from divtok.store.columns import text, whole
from divtok.store.layout import Layout
from divtok.store.run import Run

NOTES = Layout("notes", Note, ("number",), (whole("number"), text("text")))


def keep_note(run: Run, message: str) -> None:
    """Keep a line on what happened, behind those that are there."""
    table = run.table(NOTES)
    table.append([Note(len(table.keys()), message)])


def kept_notes(run: Run) -> list[str]:
    """Every line that was kept, in order."""
    rows = [note for batch in run.table(NOTES).batches() for note in batch]
    return [note.text for note in sorted(rows, key=lambda note: note.number)]
