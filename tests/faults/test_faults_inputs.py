"""Input files that are broken, or made to do harm."""

from __future__ import annotations

import csv
import json
import math
import random
import resource
import struct
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from console import Command, divtok
from mutations import damaged, mutated
from scorecard import measure, tries

from divtok.errors import DataError, DivtokError
from divtok.importers import IMPORTERS, ImportOptions, read_rows
from divtok.problems.jsonl import read_problems
from divtok.records import GOLD_MISSING, Verdict, reason_kind
from divtok.stages.bad_rows import BAD_ROWS_FILE
from divtok.stages.import_files import import_files
from divtok.store.run import Run

__all__ = ["divtok"]

GOOD = {"id": "a", "question": "1 + 1?", "response": "so \\boxed{2}", "answer": "2", "model": "m"}
OTHER = GOOD | {"id": "c", "question": "5?"}
BAD_ROWS = {
    "empty": b"{}",
    "not an object": b"[]",
    "cut off": b'{"id": "b", "question": "2',
    "not UTF-8": json.dumps(GOOD | {"id": "b"}).encode().replace(b"1 + 1", b"1 \xff 1"),
    "NUL": json.dumps(GOOD | {"id": "b", "response": "a\x00b"}).encode(),
    "lone surrogate": json.dumps(GOOD | {"id": "b", "question": "\ud800?"}).encode(),
    "the id of another question": json.dumps(GOOD | {"question": "3?"}).encode(),
}


def lines(path: Path, *rows: Any) -> Path:
    data = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(data) + b"\n")
    return path


@pytest.mark.parametrize("fault", BAD_ROWS)
def test_fault_01_a_broken_row_is_named_by_file_and_line(
    divtok: Command, tmp_path: Path, fault: str
) -> None:
    file = lines(
        tmp_path / "rows.jsonl", GOOD, BAD_ROWS[fault], GOOD | {"id": "c", "question": "5?"}
    )
    command = ("import", file, "--format", "jsonl", "--column", "id=id", "--out", tmp_path / "run")
    said = divtok(*command, "--strict")
    assert said.code == 1
    assert f"{file}, line 2: " in said.error_line
    said = divtok(*command)
    if fault == "cut off":  # no row at all, and what a stream ends in
        assert (said.code, "line 2: not valid JSON" in said.err) == (3, True)
        assert "1 of 3 rows of rows.jsonl were set aside" in said.err
    else:
        assert said.code == 1
        assert f"{file}, line 2: " in said.error_line
        said = divtok(*command, "--skip-bad")
        assert said.code == 0
    assert said.out.startswith("rows.jsonl: 3 rows, 2 trajectories, 1 set aside\n")
    [aside] = (tmp_path / "run" / BAD_ROWS_FILE).read_text(encoding="utf-8").splitlines()
    assert json.loads(aside)["where"] == "rows.jsonl, line 2"


@pytest.mark.parametrize("fault", BAD_ROWS)
def test_fault_01_a_broken_problem_is_named_by_file_and_line(tmp_path: Path, fault: str) -> None:
    file = lines(tmp_path / "problems.jsonl", GOOD, BAD_ROWS[fault])
    if fault == "NUL":  # in the response, which a problem has not
        file = lines(file, GOOD, GOOD | {"id": "b", "question": "a\x00b"})
    with pytest.raises(DataError) as caught:
        read_problems(file, benchmark="b")
    assert caught.value.what.startswith(f"{file}, line 2: ")


def test_fault_02_a_gold_answer_that_is_missing_or_nan_is_no_answer(
    divtok: Command, tmp_path: Path
) -> None:
    without = [None, math.nan, "", "  "]
    rows = [
        GOOD | {"id": f"q{n}", "question": f"{n}?", "answer": gold}
        for n, gold in enumerate([*without, "2"])
    ]
    file = lines(tmp_path / "rows.jsonl", *rows)
    run = tmp_path / "run"
    assert divtok("import", file, "--format", "jsonl", "--out", run).code == 0
    assert divtok("grade", run).code == 0
    store = Run.open(run)
    assert [p.answer for p in store.problems.read()] == [None] * len(without) + ["2"]
    verdicts = [(grade.verdict, reason_kind(grade.reason)) for grade in store.grades.read()]
    assert verdicts.count((Verdict.UNDETERMINED, GOLD_MISSING)) == len(without)
    assert verdicts.count((Verdict.CORRECT, None)) == 1
    problems = lines(tmp_path / "problems.jsonl", *rows)
    assert [p.answer for p in read_problems(problems, benchmark="b")].count(None) == len(without)


SAMPLES = Path(__file__).parents[1] / "importers" / "samples"
LM_EVAL = next((SAMPLES / "lm-eval").glob("samples_*.jsonl"))
HEADER = {"eval": {"model": "m", "task": "t"}}
SAMPLE = {
    "id": "a",
    "epoch": 1,
    "input": "1 + 1?",
    "target": "2",
    "output": {"choices": [{"message": {"content": "It is 2."}, "stop_reason": "stop"}]},
    "metadata": {"level": 1},
}
REQUEST = {
    "custom_id": "a",
    "body": {"model": "m", "n": 2, "messages": [{"role": "user", "content": "1 + 1?"}]},
}
ANSWER = {
    "custom_id": "a",
    "response": {
        "status_code": 200,
        "body": {
            "model": "m",
            "choices": [{"index": 0, "message": {"content": "2"}, "finish_reason": "stop"}],
        },
    },
    "error": None,
}
FAILED = {"custom_id": "a", "response": None, "error": {"message": "out of luck"}}


def eval_log(path: Path, header: Any, *samples: Any) -> Path:
    """A log of Inspect; what is not JSON yet becomes it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        for number, part in enumerate([header, *samples]):
            data = part if isinstance(part, bytes) else json.dumps(part).encode()
            log.writestr(f"samples/{number}.json" if number else "header.json", data)
    return path


def refused(file: Path, file_format: str, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        read_rows(file, ImportOptions(file_format, **options))
    return str(caught.value)


def test_more_responses_than_anybody_asks_for_are_refused(tmp_path: Path) -> None:
    header = HEADER | {"plan": {"config": {"num_choices": 10**9}}}
    log = eval_log(tmp_path / "log.eval", header, SAMPLE | {"output": None})
    assert f"{log}, member 'header.json': 'num_choices' is above 256" in refused(log, "inspect")
    body = REQUEST["body"] | {"n": 10**12}
    requests = lines(tmp_path / "requests.jsonl", {**REQUEST, "body": body})
    output = lines(tmp_path / "output.jsonl", FAILED)
    why = refused(output, "openai-batch", requests=requests)
    assert f"{requests}, line 1: 'n' is above 256" in why


def test_a_sample_number_that_cannot_be_stored_is_a_bad_row(tmp_path: Path) -> None:
    log = eval_log(tmp_path / "log.eval", HEADER, SAMPLE | {"epoch": 10**400}, SAMPLE)
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        with pytest.raises(DataError, match=r"samples/1.json': the number of the sample"):
            import_files(run, [log], ImportOptions("inspect"))
        [report] = import_files(run, [log], ImportOptions("inspect", skip_bad=True))
    assert (report.trajectories, report.set_aside) == (1, 1)


def overlapping(path: Path, members: int, size: int) -> Path:
    """A zip whose directory names one packed member many times over."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(bytes(size)) + packer.flush()
    checksum = zlib.crc32(bytes(size))
    name = b"samples/1.json"
    fields = (20, 0, 8, 0, 0, checksum, len(packed), size, len(name), 0)
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", *fields) + name + packed
    directory = b""
    for number in range(members):
        name = b"header.json" if number == 0 else b"samples/%d.json" % number
        fields = (20, 20, 0, 8, 0, 0, checksum, len(packed), size, len(name), 0, 0, 0, 0, 0, 0)
        directory += b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", *fields) + name
    end = (0, 0, members, members, len(directory), len(local), 0)
    path.write_bytes(local + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", *end))
    return path


def test_an_archive_that_unpacks_to_far_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    bomb = overlapping(tmp_path / "bomb.eval", members=100, size=2**20)
    assert bomb.stat().st_size < 10_000
    assert f"{bomb} is no honest zip file: its members overlap" in refused(bomb, "inspect")
    blank = b" " * 2**25
    bomb = eval_log(tmp_path / "dense.eval", HEADER, *[blank] * 4)
    assert "would unpack to 134217" in refused(bomb, "inspect", skip_bad=True)


def test_an_attachment_that_is_referred_to_without_end_is_a_bad_row(tmp_path: Path) -> None:
    part = {"type": "text", "text": "attachment://a"}
    message = {"content": [part] * 2_000}
    sample = SAMPLE | {
        "attachments": {"a": "x" * 10**6},
        "output": {"choices": [{"message": message, "stop_reason": "stop"}]},
    }
    log = eval_log(tmp_path / "log.eval", HEADER, sample, SAMPLE)
    assert "samples/1.json': its attachments make more than" in refused(log, "inspect")
    rows, _ = read_rows(log, ImportOptions("inspect", skip_bad=True))
    assert [type(row).__name__ for row in rows] == ["BadRow", "Imported"]


LIMITED = """
import resource, sys
from pathlib import Path
from divtok.errors import DivtokError
from divtok.importers import IMPORTERS, ImportOptions, read_rows
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    rows, _ = read_rows(Path(sys.argv[1]), ImportOptions(sys.argv[2], skip_bad=True))
    print(len(rows))
except DivtokError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_line_of_hundreds_of_megabytes_costs_no_such_memory(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    with file.open("wb") as writing:
        writing.write(json.dumps(GOOD).encode() + b'\n{"question": [')
        for _ in range(300):
            writing.write(b"[1]," * 2**18)
        writing.write(b"1]}\n" + json.dumps(OTHER).encode() + b"\n")
    command = [sys.executable, "-c", LIMITED, str(file), "jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, megabytes = done.stdout.split()
    assert (int(rows), int(megabytes) < 200) == (3, True), done.stdout
    assert f"{file}, line 2: longer than 16 MiB" in refused(file, "jsonl")


@pytest.mark.parametrize("digits", [400, 4000, 5000])
def test_numbers_of_thousands_of_digits_are_texts_or_bad_rows(tmp_path: Path, digits: int) -> None:
    number = b"9" * digits
    for name in GOOD:
        row = json.dumps(GOOD | {name: "@"}).encode().replace(b'"@"', number)
        file = lines(tmp_path / f"{name}.jsonl", OTHER, row)
        run = Run.create_or_open(tmp_path / f"run {name}")
        with run.lock():
            options = ImportOptions("jsonl", {"id": "id"}, skip_bad=True)
            [report] = import_files(run, [file], options)
        assert report.trajectories + report.set_aside == 2


Break = Callable[[random.Random, Path], Path]


def broken_jsonl(rng: random.Random, folder: Path) -> Path:
    rows = [GOOD, mutated(rng, GOOD | {"sample": 0}), OTHER]
    return lines(folder / "rows.jsonl", *rows)


def broken_steps(rng: random.Random, folder: Path) -> Path:
    row = {"id": "a", "problem": "1 + 1?", "steps": ["It is 2.", "So 2."], "label": -1}
    wrong = row | {"id": "b", "label": 1, "final_answer_correct": False}
    return lines(folder / "steps.jsonl", row, mutated(rng, wrong), row | {"id": "c"})


def broken_lm_eval(rng: random.Random, folder: Path) -> Path:
    rows = [json.loads(line) for line in LM_EVAL.read_text(encoding="utf-8").splitlines()[:3]]
    return lines(folder / LM_EVAL.name, rows[0], mutated(rng, rows[1]), rows[2])


def broken_inspect(rng: random.Random, folder: Path) -> Path:
    header = mutated(rng, HEADER) if rng.random() < 0.2 else HEADER
    other = SAMPLE | {"id": "b", "input": [{"role": "user", "content": "2 + 2?"}]}
    return eval_log(folder / "log.eval", header, SAMPLE, mutated(rng, other))


def broken_inspect_json(rng: random.Random, folder: Path) -> Path:
    file = folder / "log.json"
    file.write_bytes(mutated(rng, HEADER | {"samples": [SAMPLE, SAMPLE | {"id": "b"}]}))
    return file


def broken_batch(rng: random.Random, folder: Path) -> Path:
    requests = [REQUEST, REQUEST | {"custom_id": "b"}]
    one = mutated(rng, requests[1]) if rng.random() < 0.3 else requests[1]
    lines(folder / "requests.jsonl", requests[0], one)
    answer = rng.choice((ANSWER, FAILED)) | {"custom_id": "b"}
    return lines(folder / "output.jsonl", ANSWER, mutated(rng, answer))


def broken_csv(rng: random.Random, folder: Path) -> Path:
    file = folder / "rows.csv"
    with file.open("w", newline="") as writing:
        writer = csv.DictWriter(writing, GOOD)
        writer.writeheader()
        writer.writerows([GOOD, OTHER])
    file.write_bytes(damaged(rng, file.read_bytes()))
    return file


def broken_parquet(rng: random.Random, folder: Path) -> Path:
    file = folder / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([GOOD, OTHER]), file)
    if rng.random() < 0.8:
        file.write_bytes(damaged(rng, file.read_bytes()))
    return file


def broken_traces(sound: Any) -> Break:
    def broken(rng: random.Random, folder: Path) -> Path:
        file = folder / "traces.json"
        file.write_bytes(mutated(rng, sound))
        return file

    return broken


def langfuse_trace(name: str) -> dict[str, Any]:
    given, returned = f"What is {name}?", {"content": "It is \\boxed{2}.", "role": "assistant"}
    model = {"type": "GENERATION", "model": "m", "parentObservationId": "o1", "id": "o2"}
    root = {"type": "SPAN", "parentObservationId": None, "id": "o1", "level": "DEFAULT"}
    scores = [{"name": "match", "dataType": "BOOLEAN", "value": 1, "stringValue": "True"}]
    stamp = "2026-11-18T20:00:00Z"
    return {
        **{"id": name, "timestamp": stamp, "input": {"question": given}, "output": returned},
        **{"observations": [root, model], "scores": scores},
    }


MLFLOW = json.loads((SAMPLES / "mlflow" / "traces.json").read_bytes())
PHOENIX = json.loads((SAMPLES / "phoenix" / "spans.json").read_bytes())

BROKEN: dict[str, tuple[str, Break]] = {
    "csv": ("csv", broken_csv),
    "parquet": ("parquet", broken_parquet),
    "mlflow": ("mlflow", broken_traces(MLFLOW)),
    "langfuse": ("langfuse", broken_traces([langfuse_trace("a"), langfuse_trace("b")])),
    "phoenix": ("phoenix", broken_traces(PHOENIX)),
    "jsonl": ("jsonl", broken_jsonl),
    "processbench": ("processbench", broken_steps),
    "lm-eval": ("lm-eval", broken_lm_eval),
    "inspect": ("inspect", broken_inspect),
    "inspect, JSON": ("inspect", broken_inspect_json),
    "openai-batch": ("openai-batch", broken_batch),
}


def imported(file: Path, file_format: str, run: Run, *, skip_bad: bool) -> str:
    """What came of a file: "whole", "some rows set aside" or "refused", with the place."""
    asked = file.parent / "requests.jsonl"
    options = ImportOptions(
        file_format,
        {"id": ""} if file_format == "openai-batch" else {},
        generator="g",
        benchmark="b",
        requests=asked if asked.exists() else None,
        skip_bad=skip_bad,
    )
    try:
        [report] = import_files(run, [file], options)
    except DivtokError as error:
        return "refused" if str(file.parent) in str(error) else "refused without a place"
    assert report.rows == report.trajectories + report.repeated + report.set_aside
    assert len(run.trajectories.read()) == report.trajectories
    return "some rows set aside" if report.set_aside else "whole"


def test_no_import_file_ends_in_anything_but_rows_or_a_clean_error(tmp_path: Path) -> None:
    rng = random.Random(3)
    count = tries(short=60, full=5_000)
    assert {name for name, _ in BROKEN.values()} == set(IMPORTERS.names())
    outcomes: Counter[str] = Counter()
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with measure(
        "imports",
        "mutated files of every import format",
        "0 crashes; each row in a table, set aside or named in an error; memory bounded",
    ) as figures:
        for number in range(count):
            file_format, write = BROKEN[rng.choice(list(BROKEN))]
            folder = tmp_path / str(number)
            folder.mkdir()
            file = write(rng, folder)
            if rng.random() < 0.1:
                file.write_bytes(damaged(rng, file.read_bytes()))
            run = Run.create_or_open(folder / "run")
            with run.lock():
                outcomes[imported(file, file_format, run, skip_bad=rng.random() < 0.7)] += 1
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin) >> 10
        figures |= {"files": count, **outcomes, "MiB of memory more": grown}
        assert set(outcomes) == {"whole", "some rows set aside", "refused"}
        assert grown < 300
