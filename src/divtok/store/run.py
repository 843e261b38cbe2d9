"""A run: one folder with everything that was made, and the rules for opening and writing it.

Knows the names of the files and tables, who may write, and whether the rows there were made with
the configuration at hand. It does not know what is in the configuration or how rows come about.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from divtok.errors import StoreError, UsageError, command, did_you_mean
from divtok.records import (
    Call,
    Confidence,
    Counts,
    Evaluation,
    Grade,
    Problem,
    StepLabels,
    TheirVerdict,
    Trace,
    Trajectory,
)
from divtok.store import atomic, manifest, schema, shard_file, shards
from divtok.store.layout import LAYOUT_NAME, Layout
from divtok.store.lock import WriterLock
from divtok.store.manifest import Maker, Manifest
from divtok.store.table import Table
from divtok.store.table_folder import TableFolder

CONFIG_FILE = "run.yaml"
MANIFEST_FILE = "manifest.json"
LOCK_FILE = ".lock"
REPORT_FOLDER = "report"
FITS_FOLDER = "fits"
POLICIES_FOLDER = "policies"
MAX_NAME_BYTES = 200
# The last line of run.yaml: whose it is, and a checksum of the lines before it.
_CONFIG_END = re.compile(r"# run ([0-9a-f]+), checksum ([0-9a-f]+)\n")
# Everywhere, so that a run can be moved there; a colon would even lead to another drive.
_NOT_ON_WINDOWS = frozenset('<>:"|?*')
_DEVICES = re.compile(r"(CON|PRN|AUX|NUL|(COM|LPT)\d) *(\..*)?", re.IGNORECASE)


R = TypeVar("R")


class Run:
    """An existing run folder. Made by `Run.create_or_open` or `Run.open`.

    The core tables are attributes; any other is opened with `table`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = WriterLock(path / LOCK_FILE)
        self._tables: dict[str, Table[Any]] = {}
        self._seen: tuple[tuple[int, int, int], Manifest] | None = None
        # In the order in which the stages fill them.
        self.problems: Table[Problem] = self.table(schema.PROBLEMS)
        self.trajectories: Table[Trajectory] = self.table(schema.TRAJECTORIES)
        self.calls: Table[Call] = self.table(schema.CALLS)
        self.verdicts: Table[TheirVerdict] = self.table(schema.VERDICTS)
        self.step_labels: Table[StepLabels] = self.table(schema.STEP_LABELS)
        self.grades: Table[Grade] = self.table(schema.GRADES)
        self.traces: Table[Trace] = self.table(schema.traces())
        self.counts: Table[Counts] = self.table(schema.COUNTS)
        self.confidences: Table[Confidence] = self.table(schema.CONFIDENCES)
        self.evaluations: Table[Evaluation] = self.table(schema.EVALUATIONS)

    @classmethod
    def create_or_open(cls, path: Path) -> Run:
        """The run at `path`, made if the folder is missing or empty."""
        atomic.make_folder(path)
        if is_run(path):
            return cls(path)
        try:
            occupied = any(path.iterdir())
            if not occupied:
                (path / LOCK_FILE).touch()  # marks the folder as a run from now on
        except OSError as error:
            raise atomic.write_failure(path, error) from error
        if occupied:
            raise StoreError(
                f"{path} has files in it, but it is not a run folder.",
                next_step="Give an empty or a new folder.",
            )
        return cls(path)

    @classmethod
    @contextlib.contextmanager
    def begun(cls, path: Path) -> Generator[Run]:
        """`create_or_open` for a command: a folder that it made for nothing goes again."""
        new = not path.exists()
        run = cls.create_or_open(path)
        try:
            yield run
        finally:
            if new:
                run._remove_empty()

    @classmethod
    def open(cls, path: Path) -> Run:
        """The run at `path`, which must be there. Writes nothing, so a read-only disk will do."""
        if is_run(path):
            return cls(path)
        what = "is not a run folder that can be read" if path.exists() else "does not exist"
        names = list_runs(path.parent)
        hint = (
            did_you_mean(path.name, names)
            if names
            else f"There are no runs in {path.parent} yet: make one with 'divtok run' or "
            "'divtok demo'."
        )
        raise StoreError(f"The run {path} {what}.", next_step=hint)

    def table(self, layout: Layout[R]) -> Table[R]:
        """The table of this layout, in the folder of its name; it need not exist yet."""
        table = Table(self.path / layout.name, layout, self._require_lock, self._listing_run)
        known = self._tables.setdefault(layout.name, table)
        same = known is table or known.layout.schema.equals(layout.schema, check_metadata=True)
        if not same or layout.name in (REPORT_FOLDER, FITS_FOLDER, POLICIES_FOLDER):
            raise UsageError(
                f"The name '{layout.name}' of a table is taken in every run.",
                next_step="Give the table of the package that brings it another name.",
            )
        return known

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        """The core tables, and then every other that was opened."""
        return tuple(self._tables.values())

    @property
    def report(self) -> Path:
        """The folder for reports; whoever writes there makes it."""
        return self.path / REPORT_FOLDER

    @property
    def fits(self) -> Path:
        """The folder of what was fitted on the run, a file each."""
        return self.path / FITS_FOLDER

    @property
    def policies(self) -> Path:
        """The folder of the policies that were made on the run, a file each."""
        return self.path / POLICIES_FOLDER

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Be the only writer. Raises at once if there is another; clears up after a dead one."""
        self._lock.acquire()
        try:
            atomic.remove_orphans(self.path)
            for folder in self.folders():
                folder.remove_superseded()
            yield
        finally:
            self._lock.release()

    def write_config(self, text: str) -> None:
        """Keep the resolved configuration, as the text of run.yaml."""
        self._require_lock()
        self._write_config(text)

    def config_text(self) -> str | None:
        """The text of run.yaml, as it was written; None where the run has none yet."""
        stored = self._stored()  # first: a file that is taken over gets its last line before
        text = _read_text(self.path / CONFIG_FILE)
        if text is None:
            return None
        body, end = _without_end(text)
        if stored is None or stored.run is None or stored.taking_over:
            return body
        if end != _config_end(stored.run, body):
            raise StoreError(
                f"{self.path / CONFIG_FILE} is not as it was written: it was changed, cut off or "
                "damaged, or is another run's.",
                next_step="Put it back; if it was changed on purpose: "
                f"{command('verify', self.path, '--accept')}",
            )
        return body

    @property
    def id(self) -> str | None:
        """What tells the run from others; None where an earlier version made it."""
        stored = self._stored()
        return None if stored is None else stored.run

    def manifest(self) -> dict[str, Any] | None:
        """What the stored rows depend on; None where nothing has been stored yet."""
        stored = self._stored()
        return None if stored is None or not stored.sections else dict(stored.sections)

    def write_manifest(self, sections: Mapping[str, Any]) -> None:
        self._require_lock()
        self._write(replace(self._stored() or Manifest(), sections=sections))

    def makers(self) -> dict[str, list[Maker]]:
        """table -> what made its rows, each once, in order"""
        stored = self._stored() or Manifest()
        return {table: list(makers) for table, makers in stored.makers.items()}

    def note_maker(self, table: str, maker: Maker) -> None:
        """Write down what is about to make rows of a table, unless that is there already."""
        self._require_lock()
        stored, makers = self._stored() or Manifest(), self.makers()
        if maker not in makers.get(table, []):
            makers[table] = [*makers.get(table, []), maker]
            self._write(replace(stored, makers=makers))

    def accept(self) -> None:
        """Take the folder as it is: its shards for those of the run, run.yaml and the manifest for
        as they should be. Takes the lock.
        """
        self._lock.acquire()
        try:
            path = self.path / MANIFEST_FILE
            text = _read_text(path)
            found = None if text is None else manifest.parsed(path, text, changed=True)
            self._take_over(found or Manifest())
        finally:
            self._lock.release()

    def has_rows(self) -> bool:
        """Whether any table has a row, whatever made it."""
        return any(
            shard_file.row_count(folder.path, shard)
            for folder in self.folders()
            for shard in shards.current(shards.all_shards(folder.path, strict=False))
        )

    def folders(self) -> list[TableFolder]:
        """Those that may be a table's, of whatever package; a copy under another name is not."""
        try:
            return [
                TableFolder(path, self._listing_run)
                for path in sorted(self.path.iterdir())
                if LAYOUT_NAME.fullmatch(path.name) and path.is_dir()
            ]
        except OSError as error:
            raise StoreError(
                f"Cannot list {self.path}: {error.strerror}.",
                next_step="Check the disk and the folder's permissions, then run again.",
            ) from error

    def _remove_empty(self) -> None:
        with contextlib.suppress(OSError):  # another command may have begun here
            if {file.name for file in self.path.iterdir()} <= {LOCK_FILE, MANIFEST_FILE}:
                for name in (MANIFEST_FILE, LOCK_FILE):
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()

    def _require_lock(self) -> None:
        if not self._lock.held:
            raise StoreError(
                f"{self.path} is not locked for writing.",
                next_step="Write inside 'with run.lock():'.",
            )
        stored = self._stored()
        if stored is None or stored.run is None or stored.taking_over:
            self._take_over(stored or Manifest())

    def _take_over(self, stored: Manifest) -> None:
        """Give the run an id, and what an earlier version made the lists and checksums it lacks."""
        stored = replace(stored, run=stored.run or secrets.token_hex(8), taking_over=True)
        assert stored.run is not None
        folders, path = self.folders(), self.path / CONFIG_FILE
        text = _read_text(path)
        if text is not None or any(shards.all_shards(f.path, strict=False) for f in folders):
            # Until the end of it the folder is read as before.
            self._write(stored)
            for folder in folders:
                folder.take_over(stored.run)
            if text is not None:
                lines = text.splitlines(keepends=True)
                self._write_config("".join(x for x in lines if not _CONFIG_END.fullmatch(x)))
        self._write(replace(stored, taking_over=False))

    def _listing_run(self) -> str | None:
        """The id of the run; None as long as its tables need no ledger."""
        stored = self._stored()
        return None if stored is None or stored.taking_over else stored.run

    def _stored(self) -> Manifest | None:
        path = self.path / MANIFEST_FILE
        found: Manifest | None = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            stat = path.stat()
            stamp = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if self._seen is not None and self._seen[0] == stamp:
                return self._seen[1]
            text = _read_text(path)
            if text is not None:
                found = manifest.parsed(path, text)
                if found.run is not None:
                    self._seen = stamp, found
                    return found
        if self._has_marks():
            raise manifest.damaged(path, "it is missing" if found is None else "it names no run")
        return found

    def _has_marks(self) -> bool:
        """Whether the folder holds what only a run with an id has."""
        text = None
        with contextlib.suppress(StoreError):
            text = _read_text(self.path / CONFIG_FILE)
        if text is not None and _without_end(text)[1]:
            return True
        return self.path.is_dir() and any(f.ledger.path.exists() for f in self.folders())

    def _write(self, stored: Manifest) -> None:
        self._seen = None
        atomic.write_text_atomically(self.path / MANIFEST_FILE, stored.text())

    def _write_config(self, body: str) -> None:
        stored = self._stored()
        assert stored is not None
        assert stored.run is not None
        if body and not body.endswith("\n"):
            body += "\n"
        text = body + _config_end(stored.run, body)
        atomic.write_text_atomically(self.path / CONFIG_FILE, text)


def check_or_write_manifest(
    run: Run, identity: Mapping[str, Any], *, section: str | None = None
) -> None:
    """Write down what the rows depend on, or refuse to mix them with rows made otherwise.

    With `section` only that top-level entry is compared or added, so that a stage which comes
    later can add what it depends on. Needs the lock; call it before the first row is stored.
    """
    stored = run.manifest()
    if stored is None and run.has_rows():
        raise StoreError(
            f"{run.path} holds rows but no {MANIFEST_FILE}, so what made them is not known.",
            next_step=f"Put {MANIFEST_FILE} back, or use another run name.",
        )
    given = json.loads(json.dumps(identity, allow_nan=False))
    if section is not None:
        given = {**(stored or {}), section: given}
    if stored is None or (section is not None and section not in stored):
        run.write_manifest(given)
        return
    found = manifest.differences(stored, given)
    if found:
        raise StoreError(
            f"The rows in {run.path} were made with another configuration "
            f"(stored -> given): {'; '.join(difference.text() for difference in found)}.",
            next_step="Use another run name or folder (--name, --out), or the configuration that "
            "matches.",
        )


def run_path(name: str, root: Path | str = "runs") -> Path:
    """The folder of the run called `name`; a name can never lead out of `root`."""
    problem = _name_problem(name)
    if problem is None and (Path(root) / name).is_symlink():
        problem = "its folder is a symbolic link"
    if problem is not None:
        raise UsageError(
            f"{name[:80]!r} cannot be the name of a run: {problem}.",
            next_step="Use a plain name such as 'demo-2', or give a folder with --out.",
        )
    return Path(root) / name


def is_run(path: Path) -> bool:
    # A copy made with a shell's * has no hidden files, hence not the lock file alone.
    try:
        return any((path / name).is_file() for name in (LOCK_FILE, MANIFEST_FILE, CONFIG_FILE))
    except PermissionError:
        return False


def list_runs(root: Path) -> list[str]:
    """The names of the runs in `root`, sorted; empty where there is no such folder."""
    if not root.is_dir():
        return []
    return sorted(path.name for path in root.iterdir() if is_run(path))


def _name_problem(name: str) -> str | None:
    if not name or name != name.strip():
        return "it is empty or begins or ends with a blank"
    if "/" in name or "\\" in name:
        return "it contains a path separator"
    if name[0] in ".-":
        return "it begins with a dot or a dash"
    if name[-1] == "." or _NOT_ON_WINDOWS & set(name) or _DEVICES.fullmatch(name):
        return "Windows does not allow it"
    if not name.isprintable():
        return "it contains a character that cannot be printed"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME_BYTES} bytes"
    return None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(
            f"Cannot read {path}: {error}.", next_step="Put the file right, or use another run."
        ) from error


def _config_end(run: str, body: str) -> str:
    checksum = hashlib.sha256(f"{run}\n{body}".encode()).hexdigest()[:32]
    return f"# run {run}, checksum {checksum}\n"


def _without_end(text: str) -> tuple[str, str]:
    """The text of run.yaml before its last line, and that line; empty where it has none."""
    start = text.rfind("\n", 0, len(text) - 1) + 1
    return (text[:start], text[start:]) if _CONFIG_END.fullmatch(text, start) else (text, "")
