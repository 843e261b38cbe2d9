"""Words of a user's that imported responses were asked in: read once, and kept with the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from divtok.errors import StoreError
from divtok.importers import ImportOptions
from divtok.protocols.given import is_wording_file, protocol_in, read_wording
from divtok.protocols.wording import Wording
from divtok.records import Trajectory
from divtok.stages.continued import reworded
from divtok.stages.stored import stored_config
from divtok.store.run import Run


def with_words(options: ImportOptions) -> tuple[ImportOptions, Wording | None]:
    """The options with the protocol as rows have it, and the words where they are a file's."""
    if not is_wording_file(options.protocol):
        return options, None
    words = read_wording(options.protocol)
    return replace(options, protocol=protocol_in(words)), words


def check_words(run: Run, trajectories: Sequence[Trajectory], words: Wording | None) -> None:
    """Refuse other words by the name that a wording of the run has."""
    if words is None or not trajectories:
        return
    there = {name: s.named(name).hash for name, s in stored_config(run).wordings.items()}
    for changed in reworded(there, {words.name: words.hash}):
        raise StoreError(
            f"{run.path} cannot go on with {changed}.",
            next_step="Import into another run: --name NAME or --out FOLDER.",
        )
