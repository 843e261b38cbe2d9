"""Files in a run: added once, refused when changed, never half there."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from importers_samples import (
    BATCH_OUTPUT,
    BATCH_REQUESTS,
    FAILING_LOG,
    LM_EVAL,
    REASONING_LOG,
    SAMPLES,
    write_lines,
)

from divtok.config.run import load_config, to_yaml
from divtok.errors import ConfigError, DataError, StoreError
from divtok.importers import ImportOptions
from divtok.records import Problem, Trajectory
from divtok.stages import import_files as imports
from divtok.stages.bad_rows import BAD_ROWS_FILE
from divtok.stages.import_files import ImportedFile, import_files
from divtok.store import atomic
from divtok.store.run import CONFIG_FILE, Run, check_or_write_manifest

JSONL = ImportOptions(format="jsonl")


def line(question: str, response: str = "r", **more: Any) -> dict[str, Any]:
    return {"question": question, "response": response, "model": "m", **more}


def brought(
    folder: Path, *files: Path, options: ImportOptions = JSONL, family: str | None = None
) -> list[ImportedFile]:
    run = Run.create_or_open(folder)
    with run.lock():
        return import_files(run, files, options, family=family)


def content(folder: Path) -> tuple[set[Problem], list[Trajectory], Any, str | None]:
    """All that an import is to leave, without the names of shards."""
    run = Run.open(folder)
    return set(run.problems.read()), run.trajectories.read(), run.manifest(), run.config_text()


def stored(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_a_run_is_ready_to_be_scored(tmp_path: Path) -> None:
    (found,) = brought(tmp_path / "run", LM_EVAL, options=ImportOptions(format="lm-eval"))
    assert (found.rows, found.trajectories, found.repeated, found.set_aside) == (20, 10, 10, 0)
    run = Run.open(tmp_path / "run")
    config = load_config(run.path / CONFIG_FILE)
    assert config.generate.engine == "imported"
    assert (config.family, config.protocol) == ("blackbox", "cot")
    assert (config.generators, config.benchmarks) == (["tiny-0.5m"], ["arith_easy"])
    assert len(run.problems.read()) == 5
    section = (run.manifest() or {})[f"import {LM_EVAL.name}"]
    assert (section["format"], section["rows"], section["trajectories"]) == ("lm-eval", 20, 10)
    assert len(section["sha256"]) == 64


def test_the_same_files_again_change_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    files = (FAILING_LOG, shutil.copy(REASONING_LOG, tmp_path / "other.eval"))
    options = ImportOptions(format="inspect", generator="g", skip_bad=True)
    brought(folder, *files, options=options)
    before = stored(folder)
    again = brought(folder, *files, options=options)
    assert [found.already for found in again] == [True, True]
    assert stored(folder) == before
    (copy,) = brought(folder, shutil.copy(FAILING_LOG, tmp_path / "copy.eval"), options=options)
    assert copy.already
    assert copy.notes == ["copy.eval: the same content was imported as failing.eval"]
    assert stored(folder) == before


@pytest.mark.parametrize("packed", ["neither", "first", "second"])
@pytest.mark.parametrize("at_once", [True, False])
def test_of_copies_one_counts(tmp_path: Path, packed: str, at_once: bool) -> None:
    plain = write_lines(tmp_path / "plain", [line("q", "1"), line("q", "2")]).read_bytes()
    files = [
        tmp_path / ("a.jsonl.gz" if packed == "first" else "a.jsonl"),
        tmp_path / ("b.jsonl.gz" if packed == "second" else "b.jsonl"),
    ]
    for file in files:
        file.write_bytes(gzip.compress(plain) if file.suffix == ".gz" else plain)
    folder = tmp_path / "run"
    if at_once:
        first, copy = brought(folder, *files)
    else:
        (first,), (copy,) = brought(folder, files[0]), brought(folder, files[1])
    assert not first.already
    assert (copy.name, copy.already, copy.rows) == (files[1].name, True, 2)
    assert copy.notes == [f"{files[1].name}: the same content was imported as {files[0].name}"]
    assert list(_sections(folder)) == [f"import {files[0].name}"]
    assert [t.sample for t in Run.open(folder).trajectories.read()] == [0, 1]
    before = stored(folder)
    assert [found.already for found in brought(folder, *files)] == [True, True]
    assert stored(folder) == before


def test_a_packed_file_beside_its_unpacked_one_counts_once(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    path = write_lines(logs / "a.jsonl", [line("q")])
    (logs / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    found = brought(tmp_path / "run", logs)
    assert [(file.name, file.already) for file in found] == [
        ("a.jsonl", False),
        ("a.jsonl.gz", True),
    ]
    assert len(Run.open(tmp_path / "run").trajectories.read()) == 1


def test_packed_files_of_earlier_versions_are_known_by_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(line("q")).encode()))
    folder = tmp_path / "run"
    brought(folder, path)
    run = Run.open(folder)
    with run.lock():
        manifest = run.manifest() or {}
        del manifest["import a.jsonl.gz"]["content"]
        run.write_manifest(manifest)
    copy = shutil.copy(path, tmp_path / "b.jsonl.gz")
    unpacked = tmp_path / "c.jsonl"
    unpacked.write_bytes(gzip.decompress(path.read_bytes()))
    assert [found.already for found in brought(folder, path, copy, unpacked)] == [True] * 3
    assert len(Run.open(folder).trajectories.read()) == 1


def test_a_file_that_is_left_out_has_copies_that_are_left_out(tmp_path: Path) -> None:
    choice = next((SAMPLES / "lm-eval-tasks").glob("samples_sums_choice_*"))
    hashes = next((SAMPLES / "lm-eval-tasks").glob("samples_sums_hashes_*"))
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("samples_a.jsonl", "samples_b.jsonl"):
        shutil.copy(choice, logs / name)
    options = ImportOptions(generator="m")
    with pytest.raises(DataError, match="multiple-choice or log-likelihood task"):
        brought(tmp_path / "run", logs, options=options)
    shutil.copy(hashes, logs / "samples_c.jsonl")
    (found,) = brought(tmp_path / "run", logs, options=options)
    assert found.name == "samples_c.jsonl"
    assert "left out: samples_b.jsonl has the same content as samples_a.jsonl" in found.notes


def test_a_changed_file_is_refused_with_the_difference(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line("q")])
    brought(tmp_path / "run", path)
    before = stored(tmp_path / "run")
    write_lines(path, [line("q"), line("r")])
    with pytest.raises(StoreError, match=r"import a\.jsonl\.sha256: its content has changed"):
        brought(tmp_path / "run", path)
    assert stored(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"generator": "g"}, "generator: null -> g"),
        ({"columns": {"answer": ""}}, r"columns.answer: \(absent\) ->"),
        ({"benchmark": "b"}, "benchmark: null -> b"),
        ({"protocol": "verbalized"}, "imported.protocol: letter -> verbalized"),
    ],
)
def test_the_same_file_read_otherwise_is_refused(
    tmp_path: Path, options: dict[str, Any], difference: str
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line("q")])
    brought(tmp_path / "run", path)
    with pytest.raises(StoreError, match=difference):
        brought(tmp_path / "run", path, options=ImportOptions(format="jsonl", **options))


def test_another_file_adds_to_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = write_lines(tmp_path / "a.jsonl", [line("q", "1"), line("q", "2"), line("s")])
    second = write_lines(
        tmp_path / "b.jsonl", [line("q", "3", answer="7"), {**line("q"), "model": "n"}]
    )
    brought(folder, first, options=ImportOptions(format="jsonl", benchmark="sums"), family="tiny")
    (found,) = brought(folder, second, options=ImportOptions(format="jsonl", benchmark="sums"))
    assert found.notes[-1] == "b.jsonl: gold answers of 1 earlier problems are now known"
    run = Run.open(folder)
    assert [(t.generator, t.sample, t.text) for t in run.trajectories.read()] == [
        ("m", 0, "1"),
        ("m", 1, "2"),
        ("m", 0, "r"),
        ("m", 2, "3"),
        ("n", 0, "r"),
    ]
    assert {p.question: p.answer for p in run.problems.read()} == {"q": "7", "s": None}
    config = load_config(folder / CONFIG_FILE)
    assert (config.family, config.generators, config.benchmarks) == ("tiny", ["m", "n"], ["sums"])


def test_the_order_of_commands_does_not_matter_to_what_is_stored(tmp_path: Path) -> None:
    files = [
        write_lines(tmp_path / f"{name}.jsonl", [line("q", name), line(name)]) for name in "abc"
    ]
    options = ImportOptions(format="jsonl", benchmark="sums")
    brought(tmp_path / "at-once", *files, options=options)
    for file in files:
        brought(tmp_path / "one-by-one", file, options=options)
    brought(tmp_path / "one-by-one", files[0], options=options)
    assert content(tmp_path / "at-once") == content(tmp_path / "one-by-one")


def test_contradictions_between_files_name_both_places(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", [line("q", id="x", sample=0)])
    second = write_lines(tmp_path / "b.jsonl", [line("q", "other", id="x", sample=0)])
    options = ImportOptions(format="jsonl", benchmark="sums")
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: .*is already at .*a\.jsonl, line 1,"):
        brought(tmp_path / "run", first, second, options=options)
    assert Run.open(tmp_path / "run").trajectories.keys() == set()
    brought(tmp_path / "run", first, options=options)
    with pytest.raises(DataError, match=r"is already at a\.jsonl \(imported before\),"):
        brought(tmp_path / "run", second, options=options)
    third = write_lines(tmp_path / "c.jsonl", [line("another", id="x", sample=1)])
    with pytest.raises(DataError, match=r"another question than at a\.jsonl \(imported before\)"):
        brought(tmp_path / "run", third, options=options)


def test_bad_rows_are_kept_beside_the_tables(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = write_lines(tmp_path / "a.jsonl", [line("q"), b"{", line("s"), b"[]"])
    second = write_lines(tmp_path / "b.jsonl", [{**line("q"), "response": None}, line("t")])
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: not valid JSON"):
        brought(folder, first, options=ImportOptions(format="jsonl", strict=True))
    with pytest.raises(DataError, match=r"a\.jsonl, line 4: not a JSON object"):
        brought(folder, first)
    options = ImportOptions(format="jsonl", skip_bad=True)
    (found,) = brought(folder, first, options=options)
    assert (found.rows, found.trajectories, found.set_aside) == (4, 2, 2)
    brought(folder, second, options=options)
    kept = [json.loads(text) for text in (folder / BAD_ROWS_FILE).read_text().splitlines()]
    assert [(row["file"], row["where"]) for row in kept] == [
        ("a.jsonl", "a.jsonl, line 2"),
        ("a.jsonl", "a.jsonl, line 4"),
        ("b.jsonl", "b.jsonl, line 1"),
    ]
    assert kept[2]["why"] == "b.jsonl, line 1: 'response' is missing."
    assert [row["set_aside"] for row in _sections(folder).values()] == [2, 1]


def test_bad_rows_name_no_folder(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", [line("q", "1", id="x", sample=0)])
    rows = [
        line("q", "2", id="x", sample=0),
        line("s", id="y", sample=0),
        line("q", "3", id="x", sample=1),
    ]
    second = write_lines(tmp_path / "b.jsonl", rows)
    problems = write_lines(tmp_path / "p.jsonl", [{"id": "x", "problem": "q", "answer": "7"}])
    options = ImportOptions(format="jsonl", benchmark="sums", problems=problems, skip_bad=True)
    brought(tmp_path / "run", first, second, options=options)
    kept = (tmp_path / "run" / BAD_ROWS_FILE).read_text()
    assert str(tmp_path) not in kept
    assert [json.loads(text)["why"] for text in kept.splitlines()] == [
        "b.jsonl, line 1: sample 0 of problem 'x' by 'm' is already at a.jsonl, line 1, with "
        "another response.",
        "b.jsonl, line 2: p.jsonl has no problem 'y'.",
    ]


@pytest.mark.parametrize("benchmark", ["sums", None])
def test_a_log_that_has_grown_is_told(tmp_path: Path, benchmark: str | None) -> None:
    rows = [line("q", "1"), line("q", "2"), line("s", "1")]
    options = ImportOptions(format="jsonl", benchmark=benchmark)
    (first,) = brought(
        tmp_path / "run", write_lines(tmp_path / "monday.jsonl", rows), options=options
    )
    grown = write_lines(tmp_path / "tuesday.jsonl", [*rows, line("s", "2"), line("t", "1")])
    (second,) = brought(tmp_path / "run", grown, options=options)
    assert second.trajectories == 5
    assert not any("very response" in note for note in first.notes)
    assert second.notes[-1].startswith("tuesday.jsonl: 3 of 5 rows have the very response that")
    assert second.notes[-1].endswith("import it alone into a new run")


@pytest.mark.parametrize(("family", "kept"), [("tiny", False), ("blackbox", True), (None, True)])
def test_another_family_brings_its_own_pair_and_theta(
    tmp_path: Path, family: str | None, kept: bool
) -> None:
    folder = tmp_path / "run"
    path = write_lines(tmp_path / "a.jsonl", [line("q")])
    brought(folder, path)
    scored = ["trace.reader=p", "trace.auxiliary=q", "score.theta=0.3"]
    run = Run.open(folder)
    with run.lock():
        run.write_config(to_yaml(load_config(folder / CONFIG_FILE, scored)))
    brought(folder, path, family=family)
    config = load_config(folder / CONFIG_FILE)
    assert config.family == (family or "blackbox")
    expected = ("p", "q", 0.3) if kept else (None, None, None)
    assert (config.trace.reader, config.trace.auxiliary, config.score.theta) == expected


def _sections(folder: Path) -> dict[str, Any]:
    manifest = Run.open(folder).manifest() or {}
    return {name: manifest[name] for name in manifest if name.startswith("import ")}


def test_a_file_of_bad_rows_alone_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [b"{", b"["])
    with pytest.raises(DataError, match="Not one row of"):
        brought(tmp_path / "run", path, options=ImportOptions(format="jsonl", skip_bad=True))


def test_files_are_told_by_name_and_namesakes_by_their_folders(tmp_path: Path) -> None:
    names = ("x/a.jsonl", "y/a.jsonl", "y/z/a.jsonl", "b.jsonl")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_lines(tmp_path / name, [line(f"q of {name}"), b"{", line(f"r of {name}")])
    found = brought(tmp_path / "run", tmp_path)
    assert sorted(file.name for file in found) == ["b.jsonl", "x/a.jsonl", "y/a.jsonl", "z/a.jsonl"]
    kept = [json.loads(text) for text in (tmp_path / "run" / BAD_ROWS_FILE).open()]
    assert sorted((row["file"], row["where"]) for row in kept) == [
        ("b.jsonl", "b.jsonl, line 2"),
        ("x/a.jsonl", "x/a.jsonl, line 2"),
        ("y/a.jsonl", "y/a.jsonl, line 2"),
        ("z/a.jsonl", "z/a.jsonl, line 2"),
    ]
    assert {file.already for file in brought(tmp_path / "run", tmp_path / "y")} == {True}
    with pytest.raises(DataError, match="There is no file"):
        brought(tmp_path / "run", tmp_path / "nowhere.jsonl")


def test_a_path_in_two_spellings_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line("q")])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    given = (path, Path("a.jsonl"), Path("x/../a.jsonl"), tmp_path, tmp_path / "x" / "..")
    assert [file.name for file in brought(tmp_path / "run", *given)] == ["a.jsonl"]
    assert len(Run.open(tmp_path / "run").trajectories.keys()) == 1


def test_a_run_that_was_generated_is_left_alone(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        check_or_write_manifest(run, {"seed": 1}, section="generate")
    before = stored(run.path)
    with pytest.raises(StoreError, match="were not imported"):
        brought(run.path, write_lines(tmp_path / "a.jsonl", [line("q")]))
    assert stored(run.path) == before


def test_an_unknown_family_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line("q")])
    with pytest.raises(ConfigError, match="unknown family"):
        brought(tmp_path / "run", path, family="blackbx")
    assert Run.open(tmp_path / "run").problems.keys() == set()


def test_names_too_many_for_a_config_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MAX_YAML_BYTES", 10_000)
    path = write_lines(
        tmp_path / "a.jsonl", [{**line(f"q{n}"), "model": f"{n}" * 100} for n in range(100)]
    )
    with pytest.raises(DataError, match="Check what --column names as generator"):
        brought(tmp_path / "run", path)
    assert Run.open(tmp_path / "run").problems.keys() == set()


def test_an_import_needs_the_lock(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    path = write_lines(tmp_path / "a.jsonl", [line("q")])
    with pytest.raises(StoreError, match="not locked"):
        import_files(run, [path], JSONL)


class Killed(BaseException):
    """Not an Exception, as a signal is none."""


@pytest.mark.parametrize("after_the_rename", [False, True])
def test_killed_anywhere_the_same_command_puts_it_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_the_rename: bool
) -> None:
    old = write_lines(tmp_path / "old.jsonl", [line("q", "1"), line("s", "1")])
    new = [
        write_lines(tmp_path / "a.jsonl", [line("q", "2", answer="7"), b"{", line("t", "1")]),
        write_lines(tmp_path / "b.jsonl", [line("t", "2"), line("q", "3")]),
    ]
    options = ImportOptions(format="jsonl", benchmark="sums", skip_bad=True)

    def attempt(folder: Path, stop_at: int | None) -> int:
        passed = 0
        rename: Callable[[Path, Path], None] = atomic.rename

        def counting(source: Path, target: Path) -> None:
            nonlocal passed
            if passed == stop_at and not after_the_rename:
                raise Killed
            rename(source, target)
            passed += 1
            if stop_at is not None and passed == stop_at + 1:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(atomic, "rename", counting)
            brought(folder, *new, options=options)
        return passed

    def prepared(name: str) -> Path:
        brought(tmp_path / name, old, options=options)
        return tmp_path / name

    whole = prepared("whole")
    points = attempt(whole, None)
    assert points >= 8
    expected = content(whole)
    for point in range(points):
        folder = prepared(f"killed-{point}")
        with pytest.raises(Killed):
            attempt(folder, point)
        present = [t.text for t in Run.open(folder).trajectories.read()]
        assert present in (["1", "1"], ["1", "1", "2", "1"], ["1", "1", "2", "1", "2", "3"])
        attempt(folder, None)
        assert content(folder) == expected
        assert (folder / BAD_ROWS_FILE).read_bytes() == (whole / BAD_ROWS_FILE).read_bytes()


def test_what_a_killed_import_left_does_not_bind_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_lines(tmp_path / "a.jsonl", [line("mistyped", id="x"), line("gone", id="y")])
    folder = tmp_path / "run"
    run = Run.create_or_open(folder)

    def kill(_: Any) -> None:
        raise Killed

    monkeypatch.setattr(run.trajectories, "append", kill)
    with pytest.raises(Killed), run.lock():
        import_files(run, [first], ImportOptions(format="jsonl", benchmark="sums"))
    assert len(Run.open(folder).problems.keys()) == 2
    write_lines(first, [line("corrected", id="x")])
    brought(folder, first, options=ImportOptions(format="jsonl", benchmark="sums"))
    assert [p.question for p in Run.open(folder).problems.read()] == ["corrected"]


def test_trajectories_that_no_file_brought_are_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    brought(folder, write_lines(tmp_path / "a.jsonl", [line("q"), line("s")]))
    run = Run.open(folder)
    with run.lock():
        run.trajectories.replace(run.trajectories.read()[:1])
        manifest = run.manifest() or {}
        manifest["import a.jsonl"]["trajectories"] = 0
        run.write_manifest(manifest)
    with pytest.raises(StoreError, match="holds 1 trajectories, but its files brought 0"):
        brought(folder, write_lines(tmp_path / "b.jsonl", [line("t")]))


def test_a_batch_depends_on_its_requests(tmp_path: Path) -> None:
    requests = shutil.copy(BATCH_REQUESTS, tmp_path / "requests.jsonl")
    options = ImportOptions(format="openai-batch", requests=requests)
    brought(tmp_path / "run", BATCH_OUTPUT, options=options)
    requests.write_bytes(requests.read_bytes() + b"\n")
    with pytest.raises(StoreError, match=r"requests: "):
        brought(tmp_path / "run", BATCH_OUTPUT, options=options)
