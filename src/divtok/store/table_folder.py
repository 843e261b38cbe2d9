"""The folder of one table: which shards make it up, and where the next one goes.

In a run that has an id, the ledger names every shard of the table: a file from elsewhere or one
that is gone is an error, never more or fewer rows. In runs of earlier versions what lies in the
folder is the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from divtok.errors import StoreError, command
from divtok.store import atomic, shard_file, shards
from divtok.store.ledger import LEDGER_FILE, Ledger, Listed
from divtok.store.shard_file import Content
from divtok.store.shards import Shard

# A writer may be at work between looking at the list and at the files.
_LOOKS = 20


class TableFolder:
    """`run_id` gives the id of the run; None where its tables have no ledgers yet."""

    def __init__(self, path: Path, run_id: Callable[[], str | None]) -> None:
        self.path = path
        self.ledger = Ledger(path)
        self._run_id = run_id
        self._next: tuple[Listed, int, int] | None = None  # where the next shard goes

    def current(self) -> list[Shard]:
        """The shards that make up the table, in order; each of them is there."""
        before: object = None
        for _ in range(_LOOKS):
            run = self._run_id()
            listed = self.ledger.listed()
            files = shards.all_shards(self.path)
            if run is None or (listed is None and not files):
                return shards.current(files)
            problem = self._problem(run, listed, files)
            if listed is not None and problem is None:
                return self._counting(listed)
            now = (run, listed and (listed.size, listed.checksum), files)
            if problem is not None and now == before:
                raise problem
            before = now
        raise StoreError(
            f"{self.path} is being changed over and over while it is read.",
            next_step="Wait for the other process to finish, then run the same command again.",
        )

    def strays(self, run: str | None) -> list[Path]:
        """Shards that the ledger of this run does not name."""
        listed = self.ledger.listed()
        if run is None or listed is None or listed.run != run:
            return []
        names = set(listed.shards)
        files = shards.all_shards(self.path, strict=False)
        return [self.path / s.name for s in files if s.name not in names]

    def lost(self, run: str | None) -> list[Path]:
        """Shards that count by the ledger of this run and are not there."""
        listed = self.ledger.listed()
        if run is None or listed is None or listed.run != run:
            return []
        paths = (self.path / shard.name for shard in self._counting(listed))
        return [path for path in paths if not path.exists()]

    def append(self, content: Content) -> None:
        """Store one more shard. For the holder of the lock."""
        generation, number = self._next_place()
        self.write(content, generation, number)
        if self._run_id() is not None and (listed := self.ledger.listed()) is not None:
            self._next = listed, generation, number + 1

    def newest(self) -> int:
        """The newest generation, finished or not."""
        listed = None if self._run_id() is None else self.ledger.listed()
        names = [] if listed is None else [s for n in listed.shards if (s := shards.shard_of(n))]
        found = [*names, *shards.all_shards(self.path)]
        return max((shard.generation for shard in found), default=0)

    def write(self, content: Content, generation: int, number: int, *, rest: bool = False) -> None:
        """Store one shard. For the holder of the lock."""
        shard = Shard(generation, number, rest, content.tail, content.checksum)
        run, self._next = self._run_id(), None
        atomic.make_folder(self.path)
        if run is not None:
            self.ledger.begin(run, shard.name)
        shard_file.write(self.path, shard, content)
        if run is not None:
            self.ledger.stored(shard.name)

    def remove_superseded(self) -> None:
        """Remove shards that do not count, and orphaned temp files. For the holder of the lock."""
        atomic.remove_orphans(self.path)
        files = shards.all_shards(self.path, strict=False)
        listed = None if self._run_id() is None else self.ledger.listed()
        if listed is None:
            counting = shards.current(files) if self._run_id() is None else files
        else:
            counting = self._counting(listed)
            files = [shard for shard in files if shard.name in listed.shards]
        shards.remove(self.path, set(files) - set(counting))

    def remove_unfinished(self, generation: int) -> None:
        counting = self.current()
        files = shards.all_shards(self.path)
        left = (s for s in files if s.generation == generation and s not in counting)
        shards.remove(self.path, left)

    def compact(self) -> None:
        """Drop the lines of what was replaced. After that was removed; for the lock's holder."""
        run, self._next = self._run_id(), None
        if run is not None:
            self.ledger.rewrite(run, [shard.name for shard in self.current()])

    def take_over(self, run: str) -> None:
        """List the shards that are there as those of the run. For the holder of the lock."""
        found = shards.current(shards.all_shards(self.path, strict=False))
        if found:
            self.ledger.rewrite(run, [shard.name for shard in found])
        else:
            self.ledger.path.unlink(missing_ok=True)

    def _next_place(self) -> tuple[int, int]:
        """The generation and the number of a shard that is appended."""
        listed = None if self._run_id() is None else self.ledger.listed()
        if listed is not None and self._next is not None and self._next[0] is listed:
            return self._next[1:]
        there = self.current() if listed is None else self._counting(listed)
        return (there[-1].generation, there[-1].number + 1) if there else (self.newest() + 1, 0)

    def _counting(self, listed: Listed) -> list[Shard]:
        """The newest finished generation, by the ledger. Of a shard that was only begun, the file
        says whether it was stored.
        """
        stored = [n for n, done in listed.shards.items() if done or (self.path / n).exists()]
        return shards.current(shards.in_order(s for n in stored if (s := shards.shard_of(n))))

    def _problem(self, run: str, listed: Listed | None, files: list[Shard]) -> StoreError | None:
        look = f"or look at it with: {command('verify', self.path.parent)}"
        if listed is None:
            return StoreError(
                f"{self.path} has shards, but no {LEDGER_FILE}, which lists them.",
                next_step=f"Put it back, {look}",
            )
        if listed.run != run:
            return StoreError(
                f"{self.path} belongs to the run {listed.run}, not to {run}.",
                next_step=f"Move it somewhere else, {look}",
            )
        stray = [shard.name for shard in files if shard.name not in listed.shards]
        if stray:
            return StoreError(
                f"{self.path / stray[0]} was not stored by this run.",
                next_step=f"Move it somewhere else, {look}",
            )
        there = set(files)
        lost = [shard.name for shard in self._counting(listed) if shard not in there]
        if lost:
            return StoreError(
                f"{self.path / lost[0]} was stored by this run and is gone.",
                next_step=f"Put it back, {look}",
            )
        return None
