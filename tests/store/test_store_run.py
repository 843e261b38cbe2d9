"""The run folder: opening, the single writer, the manifest, names and space."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from store_samples import grade

from divtok.errors import StoreError, UsageError
from divtok.store import shards, space
from divtok.store.run import Run, check_or_write_manifest, list_runs, run_path
from divtok.store.space import require_space

SOURCE = Path(__file__).resolve().parents[2] / "src"

HOLDING_CHILD = """
import sys
from pathlib import Path
from divtok.store.run import Run
with Run.create_or_open(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def _holder(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDING_CHILD, str(path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_run_is_made_once_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "demo"
    run = Run.create_or_open(path)
    with run.lock():
        run.write_config("seed: 1\n")
        run.grades.append([grade("a")])
    for again in (Run.create_or_open(path), Run.open(path)):
        assert again.config_text() == "seed: 1\n"
        assert again.grades.read() == [grade("a")]
    assert list_runs(tmp_path / "runs") == ["demo"]


def test_tables_lie_in_folders_of_their_names(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    names = ["problems", "trajectories", "calls", "verdicts", "step_labels", "grades", "traces"]
    names += ["counts", "confidences", "evaluations"]
    assert [table.folder for table in run.tables] == [run.path / name for name in names]
    assert [table.layout.name for table in run.tables] == names
    assert run.report == run.path / "report"


def test_a_missing_run_names_those_that_are_there(tmp_path: Path) -> None:
    for name in ("demo", "paper"):
        Run.create_or_open(tmp_path / name)
    (tmp_path / "notes").mkdir()
    with pytest.raises(StoreError, match=r"dmeo does not exist\. Did you mean 'demo'\?"):
        Run.open(tmp_path / "dmeo")
    with pytest.raises(StoreError, match=r"Known: demo, paper\."):
        Run.open(tmp_path / "xyz")
    with pytest.raises(StoreError, match="notes is not a run folder"):
        Run.open(tmp_path / "notes")
    with pytest.raises(StoreError, match="There are no runs in"):
        Run.open(tmp_path / "elsewhere" / "demo")


def test_a_folder_with_other_things_in_it_is_not_made_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="not a run folder"):
        Run.create_or_open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_copy_without_hidden_files_is_still_a_run(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        check_or_write_manifest(run, {"seed": 1})
        run.grades.append([grade("a")])
    (run.path / ".lock").unlink()
    assert Run.open(run.path).grades.read() == [grade("a")]


def test_writing_without_the_lock_is_refused(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    attempts = [
        lambda: run.grades.append([grade("a")]),
        lambda: run.grades.replace([]),
        lambda: run.grades.replace_with([]),
        lambda: run.grades.remove_superseded(),
        lambda: run.write_config("x"),
        lambda: check_or_write_manifest(run, {}),
    ]
    for attempt in attempts:
        with pytest.raises(StoreError, match="not locked for writing"):
            attempt()
    with run.lock():
        pass
    with pytest.raises(StoreError, match="not locked for writing"):
        run.grades.append([grade("a")])


def test_a_second_writer_is_refused_within_a_second_and_told_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "demo"
    owner = _holder(path)
    try:
        run = Run.open(path)
        started = time.monotonic()
        with pytest.raises(StoreError) as caught, run.lock():
            pass
        assert time.monotonic() - started < 1
        text = rf"{re.escape(str(path))}: pid {owner.pid} on host \S+, started \d{{4}}-.*, command:"
        assert re.search(text, caught.value.what)
        assert run.grades.read() == []  # readers need no lock
    finally:
        owner.communicate("done\n")
    with run.lock():
        run.grades.append([grade("a")])


def test_an_owner_without_a_name_still_keeps_the_lock(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        os.truncate(run.path / ".lock", 0)
        started = time.monotonic()
        with pytest.raises(StoreError, match="has not written its name"), run.lock():
            pass
        assert time.monotonic() - started < 1
        run.grades.append([grade("a")])  # the outer lock is untouched by the refusal


def test_the_lock_of_a_killed_writer_is_free_again(tmp_path: Path) -> None:
    path = tmp_path / "demo"
    owner = _holder(path)
    owner.kill()
    owner.communicate()
    assert f"pid {owner.pid} " in (path / ".lock").read_text()
    with Run.open(path).lock():
        assert f"pid {os.getpid()} " in (path / ".lock").read_text()
    assert (path / ".lock").read_text() == ""


def test_nothing_of_a_dead_owner_s_name_stays(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    (run.path / ".lock").write_text("z" * 5000)
    with run.lock():
        assert "zzz" not in (run.path / ".lock").read_text()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (run.path / ".lock").unlink()
    (run.path / ".lock").symlink_to(precious)
    with pytest.raises(StoreError, match="Cannot write"), run.lock():
        pass
    assert precious.read_text() == "keep"


def _try_to_append(run: Run, answers: Any, finish: Any) -> None:
    try:
        run.grades.append([grade("child")])
    except StoreError as error:
        answers.put(error.what)
    finish.wait(20)


def test_a_forked_worker_neither_writes_nor_keeps_the_lock(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    context = multiprocessing.get_context("fork")
    answers, finish = context.Queue(), context.Event()
    with run.lock():
        worker = context.Process(target=_try_to_append, args=(run, answers, finish))
        worker.start()
        assert "not locked for writing" in answers.get(timeout=20)
        with pytest.raises(StoreError, match="Another process"), Run.open(run.path).lock():
            pass  # the child has let go of its copy, the parent's lock is in force
    with Run.open(run.path).lock():
        assert worker.is_alive()
    finish.set()
    worker.join()
    assert worker.exitcode == 0


def test_locking_clears_up_after_a_dead_writer(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    run.report.mkdir()
    orphans = [folder / f".tmp-9-{'0' * 16}" for folder in (run.path, run.report)]
    for path in orphans:
        path.write_bytes(b"half")
    with run.lock():
        assert not any(path.exists() for path in orphans)


def test_the_manifest_is_written_first_and_compared_afterwards(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    manifest = {"models": {"generator": "abc"}, "sizes": (1, 2), "n": 1}
    with run.lock():
        check_or_write_manifest(run, manifest)
        check_or_write_manifest(run, manifest)
        before = (run.path / "manifest.json").read_bytes()
        changed = {"models": {"generator": "abd", "base": "x"}, "sizes": [1, 3], "m": None}
        with pytest.raises(StoreError) as caught:
            check_or_write_manifest(run, changed)
    assert caught.value.what.endswith(
        "(stored -> given): m: (absent) -> null; "
        "models.base: (absent) -> x; models.generator: abc -> abd; "
        "n: 1 -> (absent); sizes.1: 2 -> 3."
    )
    assert "another run name" in str(caught.value.next_step)
    assert (run.path / "manifest.json").read_bytes() == before
    assert run.manifest() == {"models": {"generator": "abc"}, "sizes": [1, 2], "n": 1}


@pytest.mark.parametrize(
    ("stored", "given"), [(1, True), (1, 1.0), (0, False), ({}, []), ("1", 1), (None, "null")]
)
def test_values_that_python_calls_equal_still_differ(
    tmp_path: Path, stored: object, given: object
) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        check_or_write_manifest(run, {"a": stored})
        with pytest.raises(StoreError, match="a: "):
            check_or_write_manifest(run, {"a": given})


def test_a_later_stage_adds_its_section_and_leaves_the_others(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        check_or_write_manifest(run, {"seed": 1}, section="generate")
        run.grades.append([grade("a")])
        check_or_write_manifest(run, {"pair": "x"}, section="trace")
        check_or_write_manifest(run, {"seed": 1}, section="generate")
        with pytest.raises(StoreError, match=r"given\): trace\.pair: x -> y\."):
            check_or_write_manifest(run, {"pair": "y"}, section="trace")
    assert run.manifest() == {"generate": {"seed": 1}, "trace": {"pair": "x"}}


def test_rows_without_a_manifest_are_not_resumed(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        run.grades.append([grade("a")])
        for section in (None, "generate"):
            with pytest.raises(StoreError, match=r"holds rows but no manifest\.json"):
                check_or_write_manifest(run, {"seed": 1}, section=section)


@pytest.mark.parametrize("content", [b"", b'{"a": ', b"[]", b"\xff\xfe"])
def test_a_damaged_manifest_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    (run.path / "manifest.json").write_bytes(content)
    with run.lock(), pytest.raises(StoreError, match=r"manifest\.json"):
        check_or_write_manifest(run, {"a": 1})
    assert (run.path / "manifest.json").read_bytes() == content


@pytest.mark.parametrize(
    "name", ["demo", "demo-2", "Qwen2.5 dual", "läufe", "a" * 200, "x..y", "null"]
)
def test_plain_names_are_folders_below_the_root(name: str) -> None:
    assert run_path(name) == Path("runs") / name
    assert run_path(name, "elsewhere") == Path("elsewhere") / name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " demo",
        "demo\n",
        ".",
        "..",
        "../x",
        "a/../../x",
        "/tmp/x",
        "a/b",
        "a\\b",
        ".hidden",
        "-rf",
        "C:x",
        "what?",
        "demo.",
        "Con",
        "lpt1.old",
        "nul\0l",
        "bell\a",
        "right\u202eleft",
        "half\ud800",
        "a" * 201,
        "a" * 300,
        "\u00e4" * 101,
    ],
)
def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a run") as caught:
        run_path(name, tmp_path)
    assert caught.value.next_step
    assert str(caught.value).isprintable()


def test_a_name_whose_folder_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "demo").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("demo", "dangling"):
        with pytest.raises(UsageError, match="symbolic link"):
            run_path(name, tmp_path)
    (tmp_path / "root").symlink_to(tmp_path / "target")  # only the run itself must be real
    assert run_path("demo", tmp_path / "root") == tmp_path / "root" / "demo"


def test_space_is_checked_on_the_disk_that_will_hold_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Any:
        asked.append(path)
        return shutil._ntuple_diskusage(total=10**10, used=10**10 - 1000, free=1000)  # type: ignore[attr-defined]

    monkeypatch.setattr(space.shutil, "disk_usage", usage)
    require_space(tmp_path / "not" / "yet", 1000)
    assert asked == [tmp_path]
    with pytest.raises(StoreError, match=r"About 3\.00 GB are needed .* only 0\.00 GB are free"):
        require_space(tmp_path, 3 * 10**9)


def test_appending_does_not_look_through_all_shards_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        run.grades.append([grade("0")])
        with monkeypatch.context() as patch:
            patch.setattr(shards, "all_shards", None)
            patch.setattr(shards, "current", None)
            for number in range(1, 5):
                run.grades.append([grade(str(number))])
    assert [row.key for row in run.grades.read()] == [*"01234"]
