"""The run folder under faults: kills, failing disks, damage, second writers, resumes."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from dying import KILLED, die, forked, striking
from killing import (
    SMALL,
    Commands,
    Whole,
    calls,
    killed_in_a_write,
    left_by,
    made_up,
    random_kill,
    run_child,
    whole,
)
from scorecard import measure, tries

from divtok.config import made_with
from divtok.config.run import load_config
from divtok.errors import DivtokError, StoreError
from divtok.fill import OpenWorker
from divtok.generate import engine as engines
from divtok.generate.engines import transformers as local
from divtok.stages import trace as tracing
from divtok.stages.bad_rows import bad_rows
from divtok.stages.generate import generate
from divtok.stages.report import report
from divtok.stages.run import run_stages
from divtok.stages.stored import stored_config
from divtok.stages.verify import verify
from divtok.store import atomic, space
from divtok.store.run import Run

CONFIG = load_config(None, SMALL)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run, made in this process so that children find everything loaded."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with made_up():
        run = Run.create_or_open(folder)
        run_stages(run, CONFIG)
        report(run, CONFIG)
        yield folder


def making(folder: Path) -> Commands:
    return [["run", *SMALL, "--out", str(folder)], ["sweep", str(folder)]]


def looking(folder: Path) -> Commands:
    """What is done with a finished run."""
    name = str(folder)
    return [
        ["evaluate", name],
        ["score", name, "--theta", "0.3"],
        ["sweep", name],
        ["report", name],
    ]


def importing(folder: Path) -> Commands:
    file = folder.parent / "log.jsonl"
    if not file.exists():
        rows: list[dict[str, str]] = [
            {"question": f"{n}?", "response": rf"It is \boxed{{{n}}}.", "answer": str(n % 7)}
            for n in range(12)
        ]
        lines = [*map(json.dumps, rows), json.dumps({"question": "no response"})]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["--format", "jsonl", "--generator", "g", "--benchmark", "b", "--skip-bad"]
    return [["import", str(file), *options, "--out", str(folder)], ["grade", str(folder)]]


SCENARIOS: tuple[Callable[[Path], Commands], ...] = (making, looking, importing)


def begin(scenario: Callable[[Path], Commands], folder: Path, finished: Path) -> Commands:
    """Its commands, and the folder as they find it."""
    shutil.rmtree(folder, ignore_errors=True)
    if scenario is looking:
        shutil.copytree(finished, folder)
    return scenario(folder)


@pytest.fixture(scope="module")
def wholes(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Whole]:
    """What each scenario leaves when nothing happens to it."""
    root = tmp_path_factory.mktemp("whole")
    found: dict[Any, Whole] = {}
    for scenario in SCENARIOS:
        folder = root / scenario.__name__ / "run"
        folder.parent.mkdir()
        commands = begin(scenario, folder, finished)
        found[scenario] = whole(commands, folder, root / "said")
    return found


def assert_as_if_nothing_had_happened(folder: Path, expected: Whole) -> None:
    tables, files = left_by(folder)
    assert tables == expected.tables
    assert files == expected.files
    found = verify(Run.open(folder))
    assert found.findings == []  # no row twice, no file left over


def test_killed_at_random_points(finished: Path, wholes: dict[Any, Whole], tmp_path: Path) -> None:
    chance, said = random.Random(23), tmp_path / "said"
    with measure(
        "kills",
        "SIGKILL at random points of run, score, evaluate, sweep, report and import, then resume",
        "0 lost, 0 duplicated, identical tables",
    ) as figures:
        kills = {"write": 0, "time": 0, "resume": 0}
        cases = tries(short=3, full=130)
        for case in range(cases):
            scenario = SCENARIOS[case % len(SCENARIOS)]
            folder = tmp_path / "run"
            how = None
            while how is None:
                commands = begin(scenario, folder, finished)
                how = random_kill(chance, commands, said, wholes[scenario])
            kills[how] += 1
            for _ in range(case % 3):
                kills["resume"] += random_kill(chance, commands, said, wholes[scenario]) is not None
            assert run_child(commands, said) == 0, said.read_text()
            assert_as_if_nothing_had_happened(folder, wholes[scenario])
        figures |= {
            "kills": sum(kills.values()),
            "inside writes": kills["write"],
            "while resuming": kills["resume"],
            "lost or other rows": 0,
        }


def test_one_run_killed_over_and_over(
    finished: Path, wholes: dict[Any, Whole], tmp_path: Path
) -> None:
    """Each attempt dies soon, so that the kills lie all along the way of the run."""
    chance, said, folder = random.Random(5), tmp_path / "said", tmp_path / "run"
    with measure(
        "kills_in_a_row",
        "one run killed over and over, in every stage, score, sweep and report",
        "identical tables",
    ) as figures:
        wanted, kills, done = tries(short=3, full=50), 0, False
        while kills < wanted:
            commands = looking(folder) if done and chance.random() < 0.5 else making(folder)
            number, half = chance.randint(1, 120 if done else 25), chance.random() < 0.5
            if killed_in_a_write(commands, said, number, half=half):
                kills += 1
            else:
                done = True
        assert run_child(making(folder), said) == 0, said.read_text()
        assert_as_if_nothing_had_happened(folder, wholes[making])
        figures |= {"kills": kills}


class _ShortFile(io.FileIO):
    """Takes some bytes, the last write a short one, and then the disk is full."""

    room = 10

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")[: self.room]
        if not view:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(view)
        return super().write(view) or 0


def failing(commands: Commands, said: Path, number: int, kind: str) -> int:
    """The exit code where the write step of this number, and only that, fails."""

    def fail() -> None:
        code = errno.EIO if kind == "EIO" else errno.ENOSPC
        raise OSError(code, os.strerror(code))

    def child() -> None:
        if kind == "short write":
            _shorten(number)
            os._exit(calls(commands, said))
        with striking(number, fail):
            os._exit(calls(commands, said))

    return forked(child)


def _shorten(number: int) -> None:
    """Of the files that are opened for writing, the one of this number takes a few bytes only."""
    opened = 0

    def short(mode: str, real: Callable[[Path], BinaryIO]) -> Callable[[Path], BinaryIO]:
        def opening(path: Path) -> BinaryIO:
            nonlocal opened
            opened += 1
            if opened != number:
                return real(path)
            return io.BufferedRandom(_ShortFile(path, mode), 16)  # type: ignore[return-value]

        return opening

    atomic.open_new = short("xb+", atomic.open_new)
    atomic.open_there = short("rb+", atomic.open_there)


def test_every_nth_write_fails(finished: Path, wholes: dict[Any, Whole], tmp_path: Path) -> None:
    said, folder = tmp_path / "said", tmp_path / "run"
    kinds = ("ENOSPC", "EIO", "short write")
    with measure(
        "failing_writes",
        "one write, fsync or rename fails (ENOSPC, EIO, a short write), at every few steps",
        "0 corrupt files, always resumable",
    ) as figures:
        failures = dict.fromkeys(kinds, 0)
        for case in range(tries(short=3, full=240)):
            scenario = SCENARIOS[case % 3]
            commands = begin(scenario, folder, finished)
            kind, expected = kinds[(case + case // 3) % 3], wholes[scenario]
            number = 1 + case * 37 % (expected.opened if kind == "short write" else expected.steps)
            code = failing(commands, said, number, kind)
            assert code == 1, (kind, number, said.read_text())
            failures[kind] += 1
            last = said.read_text().splitlines()[-1]
            assert last.startswith("divtok: Cannot write "), last
            assert "Traceback" not in said.read_text()
            if (folder / ".lock").exists():
                left = verify(Run.open(folder))
                assert left.damaged == 0
                assert all(f.harmless or "has no run.yaml" in f.what for f in left.findings)
            assert run_child(commands, said) == 0, said.read_text()
            assert_as_if_nothing_had_happened(folder, expected)
        figures |= {**failures, "corrupt files": 0, "not resumable": 0}


def reading(folder: Path, file: Path) -> Callable[[], object]:
    """What divtok makes of one file of a run."""

    def config() -> object:
        return stored_config(Run.open(folder))

    def manifest() -> object:
        run = Run.open(folder)
        return run.id, run.manifest(), run.makers(), run.grades.keys()

    def table() -> object:
        run = Run.open(folder)
        (found,) = (t for t in run.tables if t.folder == file.parent)
        return [repr(row) for row in found.read()]

    return {
        "run.yaml": config,
        "manifest.json": manifest,
        "bad_rows.jsonl": lambda: bad_rows(Run.open(folder)),
    }.get(file.name, table)


def small_files(finished: Path, tmp_path: Path) -> list[tuple[Path, Path]]:
    """(run, file) for one file of each format, and a shard and a list of each table."""
    run = shutil.copytree(finished, tmp_path / "damaged")
    found = [(run, run / name) for name in ("run.yaml", "manifest.json")]
    tables = [table.folder for table in Run.open(run).tables if table.folder.is_dir()]
    for folder in tables:
        found += [(run, min(folder.glob("*.parquet"))), (run, folder / "shards.txt")]
    imported = tmp_path / "imported"
    assert run_child(importing(imported), tmp_path / "said") == 0
    return [*found, (imported, imported / "bad_rows.jsonl")]


def tried(file: Path, read: Callable[[], object], data: bytes, right: object) -> bool:
    """Whether this content of the file is an error; nothing but an error or the same is allowed."""
    file.write_bytes(data)
    try:
        found = read()
    except DivtokError as error:
        named = str(file.parent) in str(error)  # the file, or the run or table it is in
        if named and error.next_step:
            return True
        raise
    assert found == right, f"{file} gives another result"
    return False


def test_files_cut_off_at_every_byte(finished: Path, tmp_path: Path) -> None:
    with measure(
        "truncation",
        "run.yaml, manifest, a shard and a list of shards of every table cut off at every byte",
        "an error that names the file, or the same rows",
    ) as figures:
        cuts = errors = 0
        for folder, file in small_files(finished, tmp_path):
            read, good = reading(folder, file), file.read_bytes()
            right = read()
            for length in range(0, len(good), tries(short=311, full=1)):
                errors += tried(file, read, good[:length], right)
                cuts += 1
            file.write_bytes(good)
            assert read() == right
        figures |= {"cuts": cuts, "errors": errors, "the same rows": cuts - errors, "other rows": 0}


def test_flipped_bits(finished: Path, tmp_path: Path) -> None:
    chance = random.Random(7)
    with measure(
        "bit_flips",
        "a bit of run.yaml, manifest, a shard or a list of shards of every table flipped",
        "an error that names the file, or the same rows",
    ) as figures:
        flips = errors = 0
        for folder, file in small_files(finished, tmp_path)[:-1]:
            read, good = reading(folder, file), file.read_bytes()
            right = read()
            for place in range(0, len(good), tries(short=311, full=1)):
                changed = bytearray(good)
                changed[place] ^= 1 << chance.randrange(8)
                errors += tried(file, read, bytes(changed), right)
                flips += 1
            file.write_bytes(good)
        figures |= {"flips": flips, "errors": errors, "the same rows": flips - errors}
        assert errors > 0.9 * flips


def test_fault_23_killed_while_writing_only_the_unfinished_shard_is_made_again(
    finished: Path, tmp_path: Path
) -> None:
    folder, said, real = tmp_path / "run", tmp_path / "said", atomic.rename

    def dying(source: Path, target: Path) -> None:
        if target.parent.name == "trajectories" and "-000003-" in target.name:
            die()
        real(source, target)

    def child() -> None:
        atomic.rename = dying
        calls(making(folder), said)

    assert forked(child) == KILLED
    assert len(Run.open(folder).trajectories.read()) == 6  # three shards of two
    assert run_child(making(folder), said) == 0
    assert "6 of 12 are there already" in said.read_text()
    assert left_by(folder)[0]["trajectories"] == left_by(finished)[0]["trajectories"]


@pytest.mark.parametrize("table", ["trajectories", "confidences"])
def test_fault_24_a_damaged_shard_is_named_and_never_skipped(
    finished: Path, tmp_path: Path, table: str
) -> None:
    folder, said = shutil.copytree(finished, tmp_path / "run"), tmp_path / "said"
    shard = min((folder / table).glob("*.parquet"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert run_child([["verify", str(folder)]], said) == 1
    assert f"wrong: {shard} is damaged" in said.read_text()
    assert run_child([["evaluate", str(folder)]], said) == 1
    assert f"divtok: {shard} is damaged" in said.read_text()
    # What the message advises.
    shard.unlink()
    assert run_child([["evaluate", str(folder)]], said) == 1  # a shard that is gone is missed, too
    assert f"{shard} was stored by this run and is gone" in said.read_text()
    run_child([["verify", str(folder), "--accept"]], said)
    assert run_child(making(folder), said) == 0
    assert left_by(folder)[0] == left_by(finished)[0]


def test_fault_25_a_partly_written_file_never_has_a_final_name(
    finished: Path, tmp_path: Path
) -> None:
    folder, said = shutil.copytree(finished, tmp_path / "run"), tmp_path / "said"
    before = left_by(folder)
    half: list[Path] = []
    for number in range(2, 60, 13):  # in tables, in the list of shards and in the report's folders
        assert killed_in_a_write([["report", str(folder)]], said, number, half=True)
        assert left_by(folder)[0] == before[0]
        assert all(f.harmless for f in verify(Run.open(folder)).findings)
        half += atomic.orphans(folder)
    assert half
    assert not any(path.suffix for path in half)  # so nobody takes them for what they are not
    assert run_child([["report", str(folder)]], said) == 0
    assert atomic.orphans(folder) == []
    assert left_by(folder) == before


@pytest.mark.parametrize("kind", ["ENOSPC", "EIO"])
def test_fault_26_a_full_or_failing_disk_stops_the_run_which_goes_on_later(
    finished: Path, tmp_path: Path, kind: str
) -> None:
    folder, said = tmp_path / "run", tmp_path / "said"
    assert failing(making(folder), said, 80, kind) == 1
    says = {"ENOSPC": "the disk is full", "EIO": "Input/output error"}[kind]
    assert says in said.read_text().splitlines()[-1]
    assert verify(Run.open(folder)).damaged == 0
    assert run_child(making(folder), said) == 0
    assert left_by(folder)[0] == left_by(finished)[0]


def test_fault_26_space_is_asked_for_before_a_model_is_loaded(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_model(*_: Any, **__: Any) -> None:
        pytest.fail("a model is loaded")

    def usage(_: Path) -> Any:
        return shutil._ntuple_diskusage(10**9, 10**9 - 100, 100)  # type: ignore[attr-defined]

    config = load_config(None, SMALL)
    sampled = Run.create_or_open(tmp_path / "sampled")
    with sampled.lock():
        generate(sampled, config)
    monkeypatch.setattr(local, "load_model", no_model)
    monkeypatch.setattr(tracing, "load_pair", no_model)
    monkeypatch.setattr(space.shutil, "disk_usage", usage)
    run = Run.create_or_open(tmp_path / "run")
    with run.lock(), pytest.raises(StoreError, match="are needed at"):
        generate(run, config)
    with sampled.lock(), pytest.raises(StoreError, match="are needed at"):
        tracing.trace(sampled, config)


def test_fault_27_a_second_writer_is_told_the_owner_and_a_stale_lock_is_taken_over(
    finished: Path, tmp_path: Path
) -> None:
    folder, said = shutil.copytree(finished, tmp_path / "run"), tmp_path / "said"
    reader, writer = os.pipe()
    owner = os.fork()
    if owner == 0:
        with Run.open(folder).lock():
            os.write(writer, b"held")
            time.sleep(60)
        os._exit(0)
    assert os.read(reader, 4) == b"held"
    began = time.monotonic()
    refusal = pytest.raises(StoreError, match=rf"writing to {folder}: pid {owner} on host")
    with refusal, Run.open(folder).lock():
        pass
    assert time.monotonic() - began < 1
    assert run_child([["report", str(folder)]], said) == 1
    assert f"pid {owner} on host" in said.read_text()
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    assert f"pid {owner} " in (folder / ".lock").read_text()
    assert run_child([["report", str(folder)]], said) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_fault_28_a_signal_keeps_what_is_done_and_ends_the_command(
    finished: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder, said, real = tmp_path / "run", tmp_path / "said", local.generate_batch

    def slow(*arguments: Any) -> Any:
        time.sleep(0.3)
        return real(*arguments)

    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        local.generate_batch = slow
        os._exit(calls(making(folder), said))
    while not list((folder / "trajectories").glob("*.parquet")):
        time.sleep(0.01)
    began = time.monotonic()
    os.kill(child, number)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == code
    assert time.monotonic() - began < 10
    assert (
        said.read_text().splitlines()[-1].startswith("divtok: stopped. What was finished is kept")
    )
    kept = len(Run.open(folder).trajectories.read())
    assert 2 <= kept < 12
    assert run_child(making(folder), said) == 0
    assert f"{kept} of 12 are there already" in said.read_text()
    assert left_by(folder)[0] == left_by(finished)[0]


def test_fault_29_a_resume_with_another_config_model_or_data_is_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = shutil.copytree(finished, tmp_path / "run"), tmp_path / "said"
    [again, _] = making(folder)
    before = left_by(folder)

    def refused(*overrides: str) -> str:
        assert run_child([[*again, *overrides]], said) == 1
        assert left_by(folder)[0] == before[0]
        return said.read_text().splitlines()[-1]

    assert "cannot go on with seed: 0 -> 1" in refused("seed=1")
    assert "with sampling.temperature: 1 -> 0.5" in refused("sampling.temperature=0.5")
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "x", "problem": "1 + 1?", "answer": "2"}\n', encoding="utf-8")
    line = refused(f"benchmark_files.arith-easy={problems}")
    assert "with other problems" in line
    assert "of arith-easy are not there or were changed" in line
    monkeypatch.setattr(engines, "model_digest", lambda *_, **__: "sha256:" + "1" * 32)
    assert "with other files of its generators" in refused()


def test_fault_30_nothing_depends_on_the_clock(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time goes back an hour with each look at it, and files are dated the wrong way round."""
    folder, hours = tmp_path / "run", iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: 2e9 - 3600 * next(hours))
    monkeypatch.setattr(time, "time_ns", lambda: (2 * 10**9 - 3600 * next(hours)) * 10**9)
    run = Run.create_or_open(folder)
    run_stages(run, CONFIG)
    for age, shard in enumerate(sorted(folder.glob("*/*.parquet"))):
        os.utime(shard, (2e9 - 3600 * age, 2e9 - 3600 * age))
    expected = Run.open(finished)
    assert [t.key for t in run.trajectories.read()] == [t.key for t in expected.trajectories.read()]
    with run.lock():
        run.grades.append([run.grades.read()[0]])
    assert run.grades.read()[-1] == expected.grades.read()[0]  # the last one stored, not the newest
    sources = Path(sys.modules["divtok"].__file__ or "").parent.rglob("*.py")
    looking = [p.name for p in sources if "time.time(" in p.read_text(encoding="utf-8")]
    assert looking == ["words.py"]  # a server's "try again at" is a date


def test_fault_31_killed_while_resuming_earlier_rows_survive(
    finished: Path, tmp_path: Path
) -> None:
    folder, said = tmp_path / "run", tmp_path / "said"
    rows: set[str] = set()
    for number in (70, 40, 40, 40):
        assert killed_in_a_write(making(folder), said, number, half=True)
        now = {t.key for t in Run.open(folder).trajectories.read()}
        assert rows <= now
        rows = now
    assert rows
    assert run_child(making(folder), said) == 0
    assert left_by(folder)[0] == left_by(finished)[0]


class _Replaying:
    """Gives batches in another order, and every result twice."""

    def run(self, open_worker: OpenWorker[Any, Any], batches: Sequence[Any]) -> Generator[Any]:
        with open_worker() as work:
            for batch in reversed(batches):
                for rows in work([batch]):
                    yield rows
                    yield rows


def test_fault_51_work_that_is_done_twice_is_one_row_for_each_key(
    finished: Path, tmp_path: Path
) -> None:
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        generate(run, CONFIG, executor=_Replaying())
    expected = Run.open(finished).trajectories.read()
    found = run.trajectories.read()
    assert len(found) == len(expected) == len(run.trajectories.keys())
    assert {t.key: t for t in found} == {t.key: t for t in expected}


def test_fault_51_seeds_come_from_the_key_not_from_the_worker() -> None:
    """Real models: the same response alone, in another batch and in another order."""
    from divtok.generate.jobs import Job, generate_batch
    from divtok.models.load import load_model
    from divtok.problems.benchmark import load_benchmark

    (generator,) = CONFIG.generator_presets()
    sampling = load_config(None, [*SMALL, "sampling.max_length=120"]).sampling_for(generator)
    problems = load_benchmark("arith-easy", limit=2)
    jobs = [Job(p, s, generator.model, "cot", sampling) for p in problems for s in range(2)]
    loaded = load_model(generator.model)
    together = {t.key: t.token_ids for t in generate_batch(loaded, jobs)}
    alone = {t.key: t.token_ids for job in jobs[::-1] for t in generate_batch(loaded, [job])}
    assert together == alone
    assert len(set(together.values())) > 1


def test_fault_53_parts_made_on_other_devices_are_recorded_and_the_report_warns(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = tmp_path / "run", tmp_path / "said"
    assert run_child([["evaluate", str(finished)]], said) == 0
    assert "Mixed" not in said.read_text()
    assert killed_in_a_write(making(folder), said, 60, half=False)
    monkeypatch.setattr(made_with, "_place", lambda *_: "cuda (Some GPU)")
    assert run_child(making(folder), said) == 0
    run = Run.open(folder)
    first, second = run.makers()["trajectories"]
    assert (first["device"], second["device"]) == ("cpu", "cuda (Some GPU)")
    assert {"divtok", "torch", "transformers", "numpy", "python", "dtype"} <= first.keys()
    assert run_child([["evaluate", str(folder)], ["report", str(folder)]], said) == 0
    line = "rows of trajectories by divtok/tiny-0.5m were made on cpu in float32 and on cuda"
    assert line in (folder / "report" / "README.md").read_text(encoding="utf-8")
    assert run_child([["evaluate", str(folder), "--json"]], said) == 0
    (mixed,) = json.loads(said.read_text())[0]["mixed"]
    assert mixed["made_on"] == ["cpu in float32", "cuda (Some GPU) in float32"]
