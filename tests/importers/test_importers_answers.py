"""The protocol that finds the answers of a log, and logs whose answers are in no box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from importers_samples import LM_EVAL, SAMPLES, rows_of, write_lines

from divtok.importers import ImportOptions
from divtok.importers import answers as choosing
from divtok.importers.answers import best_protocol
from divtok.records import Verdict
from divtok.stages.grade import grade
from divtok.stages.import_files import ImportedFile, import_files
from divtok.stages.stored import stored_config
from divtok.store.run import Run

BOXED = [r"So it is \boxed{4}.", r"\boxed{5}"]
HASHED = ["2 + 2 = 4\n#### 4", "#### 5", "#### 6"]
LETTER = ["The answer is (B).", "Answer: C"]
STATED = '{"final_answer": "4", "confidence": 0.5}'


@pytest.mark.parametrize(
    ("texts", "protocol"),
    [
        (BOXED, "cot"),
        (HASHED, "hashes"),
        (LETTER, "letter"),
        (["The answer is 18.", "The answer is 20."], "sentence"),
        ([*HASHED, *BOXED], "hashes"),
        ([STATED, STATED], "verbalized"),
        (['These:\n```json\n{"a": [1, 2]}\n```'], "json"),
        # As many in a box as in a sentence: the mark says more.
        ([r"The answer is \boxed{4}."], "cot"),
        ([r"The answer is 4.\n#### 4", "#### 5"], "hashes"),
    ],
)
def test_the_one_that_finds_most(texts: list[str], protocol: str) -> None:
    found, said = best_protocol(texts)
    assert found == protocol
    assert said is not None
    assert said.startswith(f"answers: '{protocol}' finds {len(texts)} of {len(texts)}") or len(
        texts
    ) == len(HASHED) + len(BOXED)


def test_letters_are_no_answers_where_the_gold_answers_are_numbers() -> None:
    marked = ["The answer is (A) or so, that is\nB) 18", "C) 20"]
    assert best_protocol(marked)[0] == "letter"
    assert best_protocol(marked, golds=["A", "(B)"])[0] == "letter"
    assert best_protocol(marked, golds=["18", "20"])[0] != "letter"
    shown = ["16 - 3 = 13\nA: 13", "2 + 2 = 4\nA: 4"]
    assert best_protocol(shown)[0] == "sentence"


def test_the_counts_are_said() -> None:
    assert best_protocol([*HASHED, *BOXED, "none"]) == (
        "hashes",
        "answers: 'hashes' finds 3 of 6, 'cot' 2; the protocol is 'hashes'",
    )


def test_without_any_answer_the_usual_one_stays() -> None:
    protocol, said = best_protocol(["I do not know that", "nor do we"])
    assert protocol == "cot"
    assert said is not None
    assert said.startswith("answers: no protocol finds any in 2 responses, so 'cot' stays")
    assert best_protocol([]) == ("cot", None)
    assert best_protocol(["", ""]) == ("cot", None)


def test_of_many_responses_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST_LOOKED_AT", 10)
    assert best_protocol(HASHED * 30) == (
        "hashes", "answers: 'hashes' finds 10 of 10; the protocol is 'hashes'"
    )  # fmt: skip


def log(path: Path, texts: list[str]) -> Path:
    rows = [{"question": f"q{n}", "response": t, "model": "m"} for n, t in enumerate(texts)]
    return write_lines(path, rows)


def brought(folder: Path, *files: Path, **options: Any) -> list[ImportedFile]:
    run = Run.create_or_open(folder)
    with run.lock():
        return import_files(run, files, ImportOptions(**options))


def test_files_that_are_added_keep_the_runs_protocol(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, second = log(tmp_path / "a.jsonl", HASHED), log(tmp_path / "b.jsonl", BOXED)
    brought(folder, first)
    (found,) = brought(folder, second)
    assert any(
        "'cot' finds 2 of 2" in note and "the protocol of this run is 'hashes'" in note
        for note in found.notes
    )
    run = Run.open(folder)
    assert {t.protocol for t in run.trajectories.read()} == {"hashes"}
    assert stored_config(run).protocol == "hashes"
    (same,) = brought(folder, first)
    assert same.already


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    files = [log(tmp_path / "a.jsonl", HASHED), log(tmp_path / "b.jsonl", LETTER)]
    found = brought(tmp_path / "run", *files)
    notes = [note for file in found for note in file.notes if "answers:" in note]
    assert notes[0].endswith("the protocol is 'hashes'")
    assert notes[1].startswith("b.jsonl: answers: 'letter' finds 2 of 2")
    assert len(notes) == 2


def test_a_protocol_that_is_named_is_taken(tmp_path: Path) -> None:
    (found,) = brought(tmp_path / "run", log(tmp_path / "a.jsonl", HASHED), protocol="cot")
    assert not any("answers:" in note for note in found.notes)
    assert stored_config(Run.open(tmp_path / "run")).protocol == "cot"


@pytest.mark.parametrize(
    ("file", "extracted"),
    [
        (SAMPLES / "inspect" / "hashes.eval", ["18", "18", "41", "41", "30", "30"]),
        (SAMPLES / "inspect" / "letters.eval", ["B", "C"]),
        (SAMPLES / "inspect" / "tools.eval", ["18", "41", "30"]),
        (next((SAMPLES / "lm-eval-tasks").glob("samples_sums_letters*")), ["B", "C", "B"]),
    ],
)
def test_logs_without_a_box_are_answered_and_graded_as_their_tool_did(
    tmp_path: Path, file: Path, extracted: list[str]
) -> None:
    brought(tmp_path / "run", file)
    run = Run.open(tmp_path / "run")
    with run.lock():
        grade(run, stored_config(run))
    grades = run.grades.read()
    found = {g.key: g.extracted for g in grades}
    assert sorted(found[t.key] or "" for t in run.trajectories.read()) == sorted(extracted)
    theirs = {v.key: v.verdict for v in run.verdicts.read() if v.scorer != "effort"}
    assert {g.key: g.verdict for g in grades} == theirs
    assert Verdict.UNANSWERED not in theirs.values()


def chat(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"object": "chat.completion", "model": "gpt-x", "choices": [choice]}


def response(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "content": content}
    return {"object": "response", "status": "completed", "model": "gpt-x", "output": [message]}


@pytest.mark.parametrize(("url", "body"), [("chat/completions", chat), ("responses", response)])
@pytest.mark.parametrize(
    ("texts", "extracted"),
    [
        (["8 + 10 = 18.\n#### 18", "5 * 6 = 31.\n#### 31"], ["18", "31"]),
        (["Four is even. The answer is (B).", "Answer: C"], ["B", "C"]),
    ],
)
def test_a_batch_of_openai_without_a_box(
    tmp_path: Path, url: str, body: Any, texts: list[str], extracted: list[str]
) -> None:
    asked = "messages" if url == "chat/completions" else "input"
    golds = [extracted[0], "none of them"]
    ids = ["a", "b"]
    lines = [
        {"id": f"batch_req_{i}", "custom_id": i, "error": None,
         "response": {"status_code": 200, "request_id": i, "body": body(text)}}
        for i, text in zip(ids, texts, strict=True)
    ]  # fmt: skip
    requests = [
        {"custom_id": i, "method": "POST", "url": f"/v1/{url}",
         "body": {"model": "gpt-x", asked: [{"role": "user", "content": f"Question {i}?"}]}}
        for i in ids
    ]  # fmt: skip
    known = [
        {"id": i, "problem": f"Question {i}?", "answer": gold}
        for i, gold in zip(ids, golds, strict=True)
    ]
    brought(
        tmp_path / "run",
        write_lines(tmp_path / "output.jsonl", lines),
        requests=write_lines(tmp_path / "requests.jsonl", requests),
        problems=write_lines(tmp_path / "problems.jsonl", known),
    )
    run = Run.open(tmp_path / "run")
    with run.lock():
        grade(run, stored_config(run))
    assert [g.extracted for g in run.grades.read()] == extracted
    assert Verdict.UNANSWERED not in {g.verdict for g in run.grades.read()}
    assert {t.generator for t in run.trajectories.read()} == {"gpt-x"}


def test_a_conversation_with_tools_is_read_as_the_model_saw_it() -> None:
    rows = rows_of(SAMPLES / "inspect" / "tools.eval", "inspect")
    assert rows[1].question == (
        "Ada has 12 eggs and buys 30. How many eggs does Ada have?\n\n"
        '[assistant]\nI compute it.\ncalculator({"expression": "12 + 29"})\n\n'
        "[tool calculator]\n41"
    )
    assert rows[1].response == "The tool says 41.\n#### 41"
    # Another conversation about the same question is another problem.
    assert [row.problem_id.split("-")[0] for row in rows if row.problem_id] == ["q0", "q1", "q2"]
    assert len({row.problem_id for row in rows}) == 3
    assert (
        rows_of(SAMPLES / "inspect" / "tools.eval", "inspect", columns={"question": "input"})[
            1
        ].question
        == "Ada has 12 eggs and buys 30. How many eggs does Ada have?"
    )


def test_options_belong_to_the_question() -> None:
    rows = rows_of(SAMPLES / "inspect" / "letters.eval", "inspect")
    assert rows[0].question == "Which is even?\n\nA) 3\nB) 4\nC) 5"


def test_boxes_stay_boxes(tmp_path: Path) -> None:
    brought(tmp_path / "run", LM_EVAL)
    assert {t.protocol for t in Run.open(tmp_path / "run").trajectories.read()} == {"cot"}
