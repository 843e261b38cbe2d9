"""Everything that can be wrong with the files of a run is found, named, and has a next step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from console import Command, divtok
from dying import KILLED, die, forked, striking
from stages_samples import Row, handmade_run, small_config

from divtok.errors import StoreError
from divtok.records import Verdict
from divtok.stages.stored import stored_config
from divtok.stages.verify import accept, verify
from divtok.store.run import Run
from divtok.store.verify import Finding

__all__ = ["divtok"]

OLD = Path(__file__).parents[1] / "old_runs" / "0cb3044" / "run"
ROWS = [Row(problem=str(n), values={"dtc_lin": n / 10}, count=n) for n in range(4)]


def made(folder: Path) -> Run:
    run = handmade_run(folder, ROWS[:2])
    with run.lock():
        other = handmade_run(folder.parent / f"{folder.name} rest", ROWS[2:])
        run.problems.append(other.problems.read())
        run.trajectories.append(other.trajectories.read())
        run.grades.append(other.grades.read())
    return run


def wrong(run: Run) -> list[Finding]:
    findings = verify(Run.open(run.path)).findings
    assert all(finding.next_step for finding in findings)
    return [finding for finding in findings if not finding.harmless]


def shards(run: Run, table: str) -> list[Path]:
    return sorted((run.path / table).glob("*.parquet"))


def test_a_run_that_is_as_it_was_written_is_sound(tmp_path: Path) -> None:
    found = verify(made(tmp_path / "run"))
    assert found.findings == []
    assert (found.shards, found.tables["trajectories"]) == (9, 4)


def test_a_changed_config_is_found_and_can_be_accepted(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    file = run.path / "run.yaml"
    file.write_text(file.read_text().replace("seed: 0", "seed: 5"))
    (finding,) = wrong(run)
    assert finding.path == file
    with pytest.raises(StoreError, match=r"run\.yaml is not as it was written"):
        stored_config(Run.open(run.path))
    accept(run)
    assert wrong(run) == []
    assert stored_config(Run.open(run.path)).seed == 5


def test_the_config_of_another_run_is_found(tmp_path: Path) -> None:
    run, other = made(tmp_path / "run"), made(tmp_path / "other")
    shutil.copy(other.path / "run.yaml", run.path)
    assert [finding.path.name for finding in wrong(run)] == ["run.yaml"]


@pytest.mark.parametrize("how", ["changed", "cut", "gone", "renamed key"])
def test_a_manifest_that_is_not_as_it_was_written_is_found(tmp_path: Path, how: str) -> None:
    run = made(tmp_path / "run")
    file = run.path / "manifest.json"
    text = file.read_text()
    if how == "gone":
        file.unlink()
    else:
        changes = {
            "changed": text.replace("by hand", "by hanf"),
            "cut": text[:-9],
            "renamed key": text.replace('"divtok"', '"divtnk"'),
        }
        file.write_text(changes[how])
    (finding,) = wrong(run)
    assert finding.path == file
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        Run.open(run.path).grades.read()


def test_a_shard_of_another_run_is_not_merged(tmp_path: Path) -> None:
    run, other = made(tmp_path / "run"), made(tmp_path / "other")
    with other.lock():
        other.grades.append([other.grades.read()[0].__class__("x", "1", Verdict.CORRECT)])
    stray = shutil.copy(shards(other, "grades")[-1], run.path / "grades")
    assert [(f.path, "was not stored by this run" in f.what) for f in wrong(run)] == [
        (Path(stray), True)
    ]
    with pytest.raises(StoreError, match="was not stored by this run"):
        Run.open(run.path).grades.read()
    with pytest.raises(StoreError, match="was not stored by this run"), run.lock():
        run.grades.read()
    assert Path(stray).exists()  # nothing of somebody else's is deleted
    Path(stray).unlink()
    assert wrong(run) == []


def test_a_whole_table_of_another_run_is_not_taken_for_ours(tmp_path: Path) -> None:
    run, other = made(tmp_path / "run"), made(tmp_path / "other")
    shutil.rmtree(run.path / "grades")
    shutil.copytree(other.path / "grades", run.path / "grades")
    (finding,) = wrong(run)
    assert "belongs to the run" in finding.what


@pytest.mark.parametrize("number", [0, -1])
def test_a_lost_shard_is_missed_until_it_is_accepted(tmp_path: Path, number: int) -> None:
    run = made(tmp_path / "run")
    lost = shards(run, "trajectories")[number]
    lost.unlink()
    assert [finding.path for finding in wrong(run)] == [lost]
    with pytest.raises(StoreError, match="was stored by this run and is gone"):
        Run.open(run.path).trajectories.read()
    accept(run)
    assert len(run.trajectories.read()) == 2
    # Now the rows that hung on it are what is wrong.
    assert {finding.path.name for finding in wrong(run)} >= {"grades"}


def test_a_lost_or_damaged_list_of_shards_is_found(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    file = run.path / "grades" / "shards.txt"
    text = file.read_text()
    file.write_text(text.replace("stored", "begun", 1))
    assert "does not match its checksum" in wrong(run)[0].what
    file.unlink()
    assert "has shards, but no shards.txt" in wrong(run)[0].what
    accept(run)
    assert wrong(run) == []


def test_damage_in_any_column_is_found_and_never_accepted(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    (shard,) = shards(run, "traces")
    whole = shard.read_bytes()
    for place in range(10, len(whole), len(whole) // 40):
        data = bytearray(whole)
        data[place] ^= 4
        shard.write_bytes(data)
        assert [finding.path for finding in wrong(run)] == [shard]
    with pytest.raises(StoreError, match="cannot be accepted"):
        accept(run)


def test_what_is_harmless_is_told_and_is_no_fault(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    with run.lock():
        run.grades.append(run.grades.read()[:1])
    (run.report / "tables").mkdir(parents=True)
    (run.report / "tables" / f".tmp-1-{'0' * 16}").write_bytes(b"half")
    found = verify(run)
    assert found.sound
    assert [f.path.name for f in found.findings] == [f".tmp-1-{'0' * 16}", "grades"]
    with run.lock():
        assert list((run.report / "tables").iterdir()) == []


def test_an_old_run_has_no_checksums_and_gets_them_when_it_is_written_to(tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(OLD, tmp_path / "run"))
    before = [repr(table.frame().rows()) for table in run.tables]
    config = stored_config(run)
    (finding,) = verify(run).findings
    assert finding.harmless
    assert "no checksums" in finding.what
    with run.lock():
        run.write_manifest(run.manifest() or {})
    again = Run.open(run.path)
    assert verify(again).findings == []
    assert [repr(table.frame().rows()) for table in again.tables[: len(before)]] == before
    assert stored_config(again) == config
    file = run.path / "run.yaml"
    file.write_text(file.read_text()[:-50])
    assert len(wrong(run)) == 1


def test_an_old_run_killed_while_it_gets_its_checksums_is_still_read(tmp_path: Path) -> None:
    before = [repr(table.read()) for table in Run.open(OLD).tables]
    for number in range(1, 200, 9):
        run = Run.open(shutil.copytree(OLD, tmp_path / str(number)))

        def first_write(run: Run = run, number: int = number) -> None:
            with striking(number, die, half=True), run.lock():
                run.note_maker("grades", {"by": "hand"})

        code = forked(first_write)
        again = Run.open(run.path)
        assert [repr(table.read()) for table in again.tables] == before
        assert stored_config(again) == stored_config(Run.open(OLD))
        assert verify(again).sound
        with again.lock():
            again.note_maker("grades", {"by": "hand"})
        assert verify(again).findings == []
        if code == 0:
            break
        assert code == KILLED
    else:
        pytest.fail("never done")


def test_the_verb_says_what_to_do_and_ends_on_1(tmp_path: Path, divtok: Command) -> None:
    run = made(tmp_path / "run")
    sound = divtok("verify", run.path)
    assert sound.code == 0
    assert sound.out.endswith("9 shards, 18 rows read; nothing is wrong\n")
    lost = shards(run, "grades")[0]
    lost.unlink()
    found = divtok("verify", run.path)
    assert found.code == 1
    assert f"wrong: {lost} was stored by this run and is gone. Put it back;" in found.out
    data = json.loads(divtok("verify", run.path, "--json").out)
    assert not data["sound"]
    assert data["findings"][0]["path"] == str(lost)
    assert divtok("verify", run.path, "--accept").code == 0
    assert divtok("verify", tmp_path / "nothing").code == 1


def test_configs_with_their_last_line_are_still_configs(tmp_path: Path) -> None:
    """A run's config is also what another run is made with."""
    from divtok.config.run import load_config

    run = made(tmp_path / "run")
    assert load_config(run.path / "run.yaml") == small_config()
